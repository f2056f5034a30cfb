"""Refusals of the gate as a model reads them."""

from typing import Any

from licet.core.algebra.scope import visible
from licet.errors import Refused
from licet.guard.result import Result


def error_result(line: str) -> dict[str, Any]:
    """A tool result that says one line to the model, and that the call failed."""
    return {"content": [{"type": "text", "text": line}], "isError": True}


def quoted(text: str, most: int = 300) -> str:
    """A server's words inside a message of ours: cut, without hidden characters, and unable to end the quotation."""
    return f"`{visible(text[:most]).replace('`', chr(39))}{'…' if len(text) > most else ''}`"


def too_long(limit: int) -> str:
    """One line for the model about a result with more bytes than its tool may return."""
    return (
        f"LIMIT_OUTPUT: the result is longer than the {limit / 1024:,.0f} KiB that this tool may return "
        "(`limits.output_kb` in the policy), and was cut: ask for less at once"
    )


def refusal_line(result: Result) -> str:
    """One line for the model. If an approval is missing, it has the command with which a person can give it."""
    line = result.error or result.reason
    if result.reason not in ("APPROVAL_REQUIRED", "APPROVAL_EXPIRED"):
        return line
    try:
        result.unwrap()
    except Refused as refused:
        last = refused.decision.rules[-1]
        return f"{line}: {last.text}; a person can {last.fix}; then call again" if last.fix else line
    return line
