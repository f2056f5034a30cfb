"""What grew and what shrank among servers and connectors: programs, their grants, variables and secrets."""

import json
from collections.abc import Iterable
from typing import Any

from licet.core.canonical import canonical_json
from licet.core.change import Found, Side, Spot
from licet.core.document import command_text
from licet.core.effects import class_fits
from licet.core.entries import piece_text
from licet.core.set import CapabilitySet

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
