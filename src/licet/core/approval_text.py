"""A request for an approval in words: the tool, its effect, the exact arguments, and what is at stake.

Arguments come from a model. Whatever in them acts on a terminal, hides or turns text around is spelled out.
"""

import json
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from licet.core.approval import ApprovalRequest
from licet.core.entries import KIND_OF_DOMAIN
from licet.core.scope import visible

_FOR = {
    "session": "for every call of it in this session, with any arguments",
    "call": "once, with exactly these arguments",
    "use": "once, for exactly this act",
}
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def told(request: ApprovalRequest, arguments: Mapping[str, Any]) -> Iterator[str]:
    """The lines that a person reads before answering; what decides stands last, where nothing can push it away."""
    for name, value in sorted(arguments.items()):
        yield _line("argument", f"{visible(json.dumps(name, ensure_ascii=False))}: {shown(value)}")
    if not arguments:
        yield _line("arguments", "none")
    kinds: dict[str, list[str]] = {}
    for rule in request.stakes:
        kinds.setdefault(KIND_OF_DOMAIN.get(rule.partition(":")[0], "also"), []).append(rule)
    for kind in sorted(kinds):
        for rule in kinds[kind]:
            yield _line(kind, rule)
    yield _line("directory", request.directory)
    yield _line("agent", f"{request.agent}, session {request.session}")
    yield _line("manifest", request.manifest)
    if request.use:
        yield _line("act", request.use)
    yield _line("effect", request.effect)
    yield _line("tool", request.tool)
    yield _line("holds", _FOR[request.scope])
    yield _line("until", time_text(request.expires))


def shown(value: Any) -> str:
    """A value of an argument: JSON, with letters as letters and everything that nobody would see as an escape."""
    return visible(json.dumps(value, ensure_ascii=False, sort_keys=True))


def time_text(milliseconds: int) -> str:
    """A time as people and programs read it."""
    moment = _EPOCH + timedelta(milliseconds=milliseconds)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _line(title: str, text: str) -> str:
    return f"  {title:<14}{visible(text)}"
