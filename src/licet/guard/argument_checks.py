"""Checks the arguments of a call: by type hints, by the rules of the manifest, and by what is tied to the grant.

Also what arguments tell before the call: the deletes that they name, and their digest.
"""

import os
from collections.abc import Mapping
from typing import Any

from licet.core.algebra.rules import Use, use_of_path
from licet.core.algebra.scope import inside
from licet.core.algebra.set import CapabilitySet
from licet.core.decision.argument_rules import (
    PathReading,
    argument_denial,
    asked_arguments,
    likely_deletes,
    opened_paths,
    tie_denial,
    tied,
    unheld,
    untying,
    use_of_argument,
    uses_of_argument,
)
from licet.core.decision.reach import Reach
from licet.core.values import data_digest
from licet.declare.arguments import InvalidArguments, exact, received
from licet.declare.check_cost import patiently
from licet.declare.plain_json import data_again, plain_json
from licet.errors import Refused
from licet.guard.facts import Call
from licet.guard.held_paths import held_paths
from licet.guard.registration import Registered, Rules


async def validate(call: Call, registered: Registered, arguments: object) -> dict[str, Any]:
    """Return the arguments as the tool will get them, checked against its type hints and the manifest's rules."""
    try:
        given = await patiently(registered.validate, arguments)
    except InvalidArguments as wrong:
        call.refuse("INPUT_INVALID", str(wrong))
    call.asked = ()
    if registered.rules:
        sent = data_again(plain_json(arguments))
        for one in registered.rules:
            await patiently(_check_rules, call, registered, one, {**one.defaults, **sent})
            # Type hints trim, convert and fill in defaults: check what the tool gets, too.
            got = {name: received(given[one.parameters[name]]) for name in one.rules}
            await patiently(_check_rules, call, registered, one, got)
    if registered.ties is not None:
        await patiently(_check_ties, call, registered, given)
    return given


def _check_rules(call: Call, registered: Registered, one: Rules, data: dict[str, Any]) -> None:
    """Check arguments against the rules of one admission; raise `Refused` if they break one."""
    reach = registered.reach
    assert reach is not None  # noqa: S101
    reading = _reading(call, registered)
    denied = argument_denial(call.request, reach, one.rules, one.check, data, reading, one.origin)
    if denied is not None:
        raise Refused(denied)
    call.asked = tuple(dict.fromkeys((*call.asked, *asked_arguments(one.asking, one.refuses, data))))
    if reading.by_code or reach.level == "native":  # around other tools are walls, which look at links
        _check_links(call, reach, one.rules, data, reading)


def _check_ties(call: Call, registered: Registered, given: dict[str, Any]) -> None:
    """Check what the code of a tool without handles gets against its grant; raise `Refused` if it is not held.

    This is about the text of the arguments, and about links that exist now. What the code makes of them, and links
    that change before it opens a file, are not seen.
    """
    ties, reach = registered.ties, registered.reach
    assert ties is not None  # noqa: S101
    assert reach is not None  # noqa: S101
    got = {name: received(given[name], by_fields=True) for name in ties.rules if name in given}
    reading = _reading(call, registered)
    if (denied := tie_denial(call.request, reach, ties, got, reading)) is not None:
        raise Refused(denied)
    _check_links(call, reach, ties.rules, got, reading)


def _reading(call: Call, registered: Registered) -> PathReading:
    gate = call.session.gate
    if registered.ties is None:
        return PathReading(gate.workdir, gate.home)
    try:
        return PathReading(os.getcwd(), gate.home, by_code=True)  # where its code opens relative paths
    except FileNotFoundError:  # the directory was removed; relative paths are then refused
        return PathReading("", gate.home, by_code=True)


def _check_links(
    call: Call, reach: Reach, rules: Mapping[str, Any], data: dict[str, Any], reading: PathReading
) -> None:
    """Refuse a path that leads out of the grant through a link, both as it is written and without its `..`.

    Code may open the text as it is, or clean it first: `notes/link/../a` is then `notes/a`.
    """
    for value in tied(rules, data):
        # A URL of a host has a use, and no path.
        uses = [use for use in uses_of_argument(value, reach.grant, reading) if use.domain == "fs"]
        for use, path in zip(uses, opened_paths(value, reading), strict=False):
            for real in dict.fromkeys((os.path.realpath(use.target), os.path.realpath(path))):
                if (away := _linked_away(use, real, reach.grant)) is not None:
                    raise Refused(unheld(call.request, reach, value.argument, away, untying(reach, value.argument)))


def _linked_away(use: Use, real: str, grant: CapabilitySet) -> Use | None:
    """The use of the real path, if a path leads through a link to something that is not held; otherwise None."""
    if real == use.target:
        return None
    found, held = use_of_path(use.action, real), held_paths(grant)
    if (known := grant.verdict(found)) is not None:
        return None if known else found
    # The grant may name a directory by a path with links, such as a working directory below one.
    roots, denied = (map(os.path.realpath, paths(use.action)) for paths in (held.allowed, held.denied))
    return None if inside(real, list(roots)) and not inside(real, list(denied)) else found


def known_deletes(call: Call, registered: Registered) -> tuple[Use, ...]:
    """The deletes that are known from the arguments: those that a rule ties to `fs:delete`."""
    if not (registered.asks and registered.rules):
        return ()
    found: dict[Use, None] = {}
    reading = PathReading(call.session.gate.workdir, call.session.gate.home)
    for one in registered.rules:
        got = {name: received(call.arguments[one.parameters[name]]) for name in one.rules}
        for value in tied(one.rules, got):
            if value.scope == "fs:delete":
                found[use_of_argument(value, CapabilitySet(), reading)] = None
    return tuple(found)


def named_deletes(call: Call, registered: Registered) -> tuple[Use, ...]:
    """The deletes that are likely: of the paths that arguments name, by a tool that deletes through `ctx.fs`."""
    tool, reach = registered.tool, registered.reach
    if not registered.asks or reach is None or not tool.uses_handles or reach.delete_approval != "call":
        return ()
    names = tool.parameter_names()
    got = {name: received(call.arguments[held]) for name, held in names.items() if held in call.arguments}
    return likely_deletes(tool.schema, got, call.session.gate.workdir)


def arguments_digest(arguments: dict[str, Any]) -> str:
    """The digest of validated arguments; a plain `dict` of these is their complete data."""
    return data_digest(arguments if type(arguments) is dict else exact(arguments))
