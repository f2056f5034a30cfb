"""Checks the arguments of a call against the rules of the manifest, and computes their digest."""

from typing import TYPE_CHECKING, Any

from licet.core.algebra.set import CapabilitySet
from licet.core.algebra.use import Use
from licet.core.canonical import data_digest
from licet.core.decision.arguments import argument_denial, likely_deletes, tied, use_of_argument
from licet.declare.received import exact, received
from licet.errors import Refused
from licet.guard.registration import Registered, Rules

if TYPE_CHECKING:
    from licet.guard.call import Call


def check_rules(call: "Call", registered: Registered, one: Rules, data: dict[str, Any]) -> None:
    """Check arguments against the rules of one admission; raise `Refused` if they break one."""
    reach, workdir = registered.reach, call.session.gate.workdir
    assert reach is not None  # noqa: S101
    denied = argument_denial(call.request, reach, one.rules, one.check, data, workdir, one.origin)
    if denied is not None:
        raise Refused(denied)


def known_deletes(call: "Call", registered: Registered) -> tuple[Use, ...]:
    """The deletes that are known from the arguments: those that a rule ties to `fs:delete`."""
    if not (registered.asks and registered.rules):
        return ()
    found: dict[Use, None] = {}
    for one in registered.rules:
        got = {name: received(call.arguments[one.parameters[name]]) for name in one.rules}
        for value in tied(one.rules, got):
            if value.scope == "fs:delete":
                found[use_of_argument(value, CapabilitySet(), call.session.gate.workdir)] = None
    return tuple(found)


def named_deletes(call: "Call", registered: Registered) -> tuple[Use, ...]:
    """The deletes that are likely: of the paths that arguments name, by a tool that deletes through `ctx.fs`."""
    tool, reach = registered.tool, registered.reach
    if not registered.asks or reach is None or not tool.uses_handles or reach.delete_approval != "call":
        return ()
    names = tool.parameter_names()
    got = {name: received(call.arguments[held]) for name, held in names.items() if held in call.arguments}
    return likely_deletes(tool.schema, got, call.session.gate.workdir)


def arguments_digest(arguments: dict[str, Any]) -> str:
    return data_digest(exact(arguments))
