"""Checks the arguments of a call against the rules of the manifest, and computes their digest."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from licet.core.algebra.set import CapabilitySet
from licet.core.algebra.use import InvalidUse, Use
from licet.core.canonical import canonical_json, data_digest
from licet.core.decision.decide import tied, use_of
from licet.core.decision.decision import Deny
from licet.core.decision.request import Ground
from licet.declare.received import exact, received
from licet.errors import Refused
from licet.guard.grant import MOST_OF_A_GROUND
from licet.guard.registration import Registered, Rules

if TYPE_CHECKING:
    from licet.guard.call import Call


def check_rules(call: "Call", registered: Registered, one: Rules, data: dict[str, Any]) -> None:
    """Check arguments against the rules of one admission; raise `Refused` if they break one."""
    reach, workdir = registered.reach, call.session.gate.workdir
    assert reach is not None  # noqa: S101
    if unknown := [name for name in one.rules if name not in data]:
        call.refuse("ARGUMENT_NOT_ALLOWED", f"`{unknown[0]}` must be given: the manifest has a rule on it")
    wrong = one.check(data) if one.check is not None else "nothing here can check the rules on its arguments"
    if wrong:
        ground = Ground("ARGUMENT_NOT_ALLOWED", wrong[:MOST_OF_A_GROUND])
        raise Refused(Deny(call.request, (ground, *_broken(call, one, data))))
    for value in tied(one.rules, data):
        try:
            use = use_of(value, reach.grant, workdir)
        except InvalidUse as invalid:
            call.refuse("ARGUMENT_NOT_ALLOWED", f"`{value.argument}`: {invalid}")
        if not reach.grant.has(use):
            ground = Ground("ARGUMENT_NOT_ALLOWED", f"`{value.argument}` names what this call does not hold")
            raise Refused(Deny(call.request, (ground, *reach.obstacles_of(use)), use))


def known_deletes(call: "Call", registered: Registered) -> tuple[Use, ...]:
    """The deletes that are known from the arguments: those that a rule ties to `fs:delete`."""
    if not (registered.asks and registered.rules):
        return ()
    found: dict[Use, None] = {}
    for one in registered.rules:
        got = {name: received(call.arguments[one.parameters[name]]) for name in one.rules}
        for value in tied(one.rules, got):
            if value.scope == "fs:delete":
                found[use_of(value, CapabilitySet(), call.session.gate.workdir)] = None
    return tuple(found)


def _broken(call: "Call", one: Rules, data: dict[str, Any]) -> Iterator[Ground]:
    """One ground for each broken rule. The operator sees them; the model sees only the first ground of a refusal."""
    for name, rule in one.rules.items():
        if one.check is not None and one.check({name: data[name]}):
            text = f"a rule on `{name}`: {canonical_json(rule).decode()}"
            fix = f"change `args.{name}` of `{call.tool}`" + (f" in {one.origin.file}" if one.origin else "")
            yield Ground("ARGUMENT_NOT_ALLOWED", text[:MOST_OF_A_GROUND], one.origin, fix)


def arguments_digest(arguments: dict[str, Any]) -> str:
    return data_digest(exact(arguments))
