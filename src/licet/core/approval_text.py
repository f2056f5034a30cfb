"""A request for an approval in words: the tool, its effect, the exact arguments, and what is at stake.

Arguments come from a model. Whatever in them acts on a terminal, hides or turns text around is spelled out.
"""

import json
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any
from unicodedata import bidirectional

from licet.core.approval import ApprovalRequest
from licet.core.entries import KIND_OF_DOMAIN
from licet.core.scope import spelled, visible

_FOR = {
    "session": "for every call of it in this session, with any arguments",
    "call": "once, with exactly these arguments",
    "use": "once, for exactly this act",
}
_ONLY_THESE = "for every call of it in this session, with exactly these arguments"
_TURNS = frozenset(("R", "AL", "AN"))  # letters and digits that are read from the right, and move what is beside them
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def told(request: ApprovalRequest, arguments: Mapping[str, Any] | None, *, narrow: bool = False) -> Iterator[str]:
    """The lines that a person reads before answering; what decides stands last, where nothing can push it away.

    `narrow` says that only calls with exactly these arguments were agreed to.
    """
    for name, value in sorted((arguments or {}).items()):
        yield _line("argument", f"{shown(name)}: {shown(value)}")
    if not arguments:
        yield _line("arguments", "none" if arguments is not None else "no longer kept: nobody answered in time")
    kinds: dict[str, list[str]] = {}
    for rule in request.stakes:
        kinds.setdefault(KIND_OF_DOMAIN.get(rule.partition(":")[0], "also"), []).append(rule)
    for kind in sorted(kinds):
        for rule in kinds[kind]:
            yield _line(kind, rule)
    yield _line("directory", request.directory)
    yield _line("agent", f"{request.agent}, session {request.session}")
    yield _line("manifest", request.manifest)
    for act in filter(None, (request.use, *request.acts)):
        yield _line("act", act)
    if request.why:
        yield _line("because", request.why)
    yield _line("effect", request.effect)
    yield _line("tool", request.tool)
    holds = _ONLY_THESE if narrow and request.scope == "session" else _FOR[request.scope]
    yield _line("holds", f"{holds}{'; each act once' if request.acts else ''}")
    yield _line("until", time_text(request.expires))


def shown(value: Any) -> str:
    """A value of an argument: JSON, with letters as letters, and what hides or turns text around as an escape."""
    return in_order(json.dumps(value, ensure_ascii=False, sort_keys=True))


def in_order(text: str) -> str:
    """Text that any screen shows from left to right: between Hebrew letters, two numbers would change places."""
    return "".join(spelled(char) if bidirectional(char) in _TURNS else char for char in visible(text))


def time_text(milliseconds: int) -> str:
    """A time as people and programs read it."""
    moment = _EPOCH + timedelta(milliseconds=milliseconds)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _line(title: str, text: str) -> str:
    return f"  {title:<14}{in_order(text)}"
