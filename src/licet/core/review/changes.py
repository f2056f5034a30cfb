"""The words of a comparison: one change, all changes, and the phrases for values that went up, down or elsewhere.

What grew and what shrank among servers and connectors: programs, their grants, variables and secrets.
"""

import json
from collections.abc import Callable, Iterable, Iterator
from decimal import Decimal
from typing import Any, Literal, TypeVar

from msgspec import Struct

from licet.core.algebra.set import CapabilitySet
from licet.core.canonical import canonical_json, money_text
from licet.core.origin import Origin
from licet.core.policy.digest import command_text
from licet.core.policy.effects import class_fits
from licet.core.review.entries import piece_text

Side = Literal["grown", "shrunk", "changed"]
T = TypeVar("T")
_NO_LIMIT = Decimal("Infinity")


class Change(Struct, frozen=True):
    """One difference: what kind it is, of which tool (None is the whole agent), and both sides of it in words."""

    kind: str
    tool: str | None
    text: str
    before: str = ""
    after: str = ""
    origin: Origin | None = None  # where it is written: in the old manifest if it shrank, else in the new one

    def document(self) -> dict[str, Any]:
        """The change as plain data."""
        return {
            "kind": self.kind,
            "tool": self.tool,
            "text": self.text,
            "before": self.before,
            "after": self.after,
            "origin": self.origin.full if self.origin else None,
        }


class Changes(Struct, frozen=True):
    """Everything that grew, everything that shrank, and what changed without doing either."""

    grown: tuple[Change, ...] = ()
    shrunk: tuple[Change, ...] = ()
    changed: tuple[Change, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.grown or self.shrunk or self.changed)

    def document(self) -> dict[str, Any]:
        """The changes as plain data."""
        return {
            "grown": [change.document() for change in self.grown],
            "shrunk": [change.document() for change in self.shrunk],
            "changed": [change.document() for change in self.changed],
        }


Found = Iterator[tuple[Side, Change]]


class Spot(Struct, frozen=True):
    """Where the two sides of a comparison are written, and of which tool they speak, if of one."""

    old: Origin | None
    new: Origin | None
    tool: str | None = None

    def turned(self, side: Side, kind: str, what: str, before: str, after: str) -> Found:
        """A value that became another."""
        text = f"{what}: {before or 'none'} → {after or 'none'}"
        yield side, Change(kind, self.tool, text, before, after, self._origin(side))

    def moved(self, kind: str, what: str, before: T, after: T, rank: Callable[[T], Any]) -> Found:
        """A value on a scale that went up (grown) or down (shrunk)."""
        if before != after:
            side: Side = "grown" if rank(after) > rank(before) else "shrunk"
            yield from self.turned(side, kind, what, _said(before), _said(after))

    def limit(self, key: str, before: int | None, after: int | None) -> Found:
        """A limit of the sandbox, which has a default that is not known here."""
        if before is not None and after is not None:
            yield from self.moved("limit", key, before, after, int)
        elif before != after:
            # Stated against unstated: the number or the default may be the higher one, so it may have grown.
            words = ("the default" if one is None else str(one) for one in (before, after))
            yield from self.turned("grown", "limit", key, *words)

    def entry(self, side: Side, kind: str, text: str, item: str) -> Found:
        """Something that is there on one side only."""
        before, after = (item, "") if side == "shrunk" else ("", item)
        yield side, Change(kind, self.tool, text, before, after, self._origin(side))

    def _origin(self, side: Side) -> Origin | None:
        return self.old if side == "shrunk" else self.new


def no_limit_is_most(limit: int | Decimal | None) -> int | Decimal:
    """The rank of a limit of which absence means unlimited."""
    return _NO_LIMIT if limit is None else limit


def _said(value: object) -> str:
    if isinstance(value, Decimal):
        return money_text(value)
    return "no limit" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


_COMPARED_BY_PART = {"grants", "env", "secrets", "tools"}


def server_changes(old: Iterable[tuple[str, str]], new: Iterable[tuple[str, str]], spot: Spot) -> Found:
    """Every difference between two lists of servers, each a name and canonical JSON."""
    was = {name: json.loads(text) for name, text in old}
    now = {name: json.loads(text) for name, text in new}
    for name in sorted(was.keys() | now.keys()):
        before, after = was.get(name, {}), now.get(name, {})
        if not before or not after:
            side: Side = "grown" if after else "shrunk"
            yield from spot.entry(side, "server", f"server `{name}`", _text((after or before)["command"]))
        else:
            for key in sorted((before.keys() | after.keys()) - _COMPARED_BY_PART):
                if before.get(key) != after.get(key):
                    # Another program, or the same one told something else: nobody here can say which does more.
                    words = _text(before.get(key)), _text(after.get(key))
                    yield from spot.turned("grown", "server", f"{key} of server `{name}`", *words)
        yield from _parts(f"server `{name}`", before, after, spot)


def definition_changes(old: Iterable[tuple[str, str]], new: Iterable[tuple[str, str]], spot: Spot) -> Found:
    """Every difference between two lists of definitions of connectors: each narrows, so a lost one lets more in."""
    was = {name: json.loads(text) for name, text in old}
    now = {name: json.loads(text) for name, text in new}
    for name in sorted(was.keys() | now.keys()):
        before, after = was.get(name), now.get(name)
        if before == after:
            continue
        side: Side = "shrunk" if before is None or (after is not None and _narrower(after, before)) else "grown"
        words = ("" if one is None else canonical_json(one).decode() for one in (before, after))
        yield from spot.turned(side, "connector", f"definition of {name}", *words)


def _narrower(one: dict[str, Any], other: dict[str, Any]) -> bool:
    """Whether a definition lets no more in than another; of two different versions nobody here can say."""
    lists = all(
        other[key] is None or (one[key] is not None and CapabilitySet(one[key]) <= CapabilitySet(other[key]))
        for key in ("hosts", "secrets")
    )
    classes = other["side_effect_class"] is None or (
        one["side_effect_class"] is not None and class_fits(one["side_effect_class"], other["side_effect_class"])
    )
    versions = all(one[key] == other[key] for key in ("versions", "version", "distribution"))
    return lists and classes and versions


def _parts(server: str, was: dict[str, Any], now: dict[str, Any], spot: Spot) -> Found:
    held, holds = CapabilitySet(was.get("grants", ())), CapabilitySet(now.get("grants", ()))
    for piece in map(piece_text, holds - held):
        yield from spot.entry("grown", "server", f"{server} holds {piece}", piece)
    for piece in map(piece_text, held - holds):
        yield from spot.entry("shrunk", "server", f"{server} holds {piece}", piece)
    for key, what in (("env", "the variable"), ("secrets", "the secret in"), ("tools", "the tool")):
        mine, theirs = _named(now.get(key, {})), _named(was.get(key, {}))
        for name in sorted(mine.keys() | theirs.keys()):
            if name not in mine:
                yield from spot.entry("shrunk", "server", f"{server} has {what} `{name}`", theirs[name])
            elif name not in theirs:
                yield from spot.entry("grown", "server", f"{server} has {what} `{name}`", mine[name])
            elif mine[name] != theirs[name]:
                yield from spot.turned("grown", "server", f"{server}, {what} `{name}`", theirs[name], mine[name])


def _named(held: dict[str, Any] | list[str]) -> dict[str, str]:
    if isinstance(held, dict):
        return {name: _text(value) for name, value in held.items()}
    return {name: name for name in held}


def _text(value: Any) -> str:
    if isinstance(value, list):
        return command_text(value)
    return value if isinstance(value, str) else canonical_json(value).decode()
