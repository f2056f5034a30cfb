"""Refusals in words: why a connection may not go to an address, and the explanation of a decision for the operator.

`explain` lists what was requested, the rules that decided with their places, and the edits that would allow it. Which
addresses are open is decided in `policy/addresses.py`.
"""

from collections.abc import Sequence

from licet.core.algebra.domains import PROTOCOL_ATOMS
from licet.core.algebra.scope import is_address, visible
from licet.core.algebra.use import Use
from licet.core.decision.decision import Allow, Ask, Decision, Deny
from licet.core.decision.folding import CEILINGS
from licet.core.decision.reach import Reach, rule_covers
from licet.core.decision.request import Ground
from licet.core.policy.addresses import PUBLIC, Address, address_kind, in_list, private_lists, refused_addresses
from licet.core.policy.bundle import Bundle


def is_written(use: Use, reach: Reach) -> bool:
    """Whether every ceiling has a rule for exactly this address. Wildcards and the needs of the tool do not count."""
    ceilings = [layer for layer in reach.layers if layer.kind in CEILINGS]
    return bool(ceilings) and all(
        any(rule.capability.key == use.target and rule_covers(rule.capability, use) for rule in layer.allows)
        for layer in ceilings
    )


def address_grounds(use: Use, addresses: Sequence[str], reach: Reach) -> tuple[Ground, ...]:
    """Why a connection may not go to these addresses of a host, with the edits that would allow it; empty if it may.

    The first reason has only facts that the caller knows. The addresses of a private name are for the operator only.
    """
    if addresses and all(address_kind(text) is PUBLIC for text in addresses):
        return ()
    literal = is_address(use.target)
    wrong = refused_addresses(addresses, reach.manifest.private, literal and is_written(use, reach))
    fix, opened = _ceiling_fix(wrong, reach), not wrong
    for bundle in reach.bundles:
        # If a bundle has a `private` list, the list counts even for an address that the ceilings name exactly.
        if bundle.private is not None:
            closed = refused_addresses(addresses, (bundle.private,), literal and _is_written_in(bundle, use))
            wrong = tuple(dict.fromkeys((*wrong, *closed)))
            fix = "; ".join(filter(None, (fix, _bundle_fix(closed, bundle))))
    if any(address_kind(text).metadata for text in wrong):
        fix = ""
    if addresses and not wrong:
        return ()
    found = [f"{visible(text)} is {address_kind(text).title}" for text in wrong]
    texts = found if literal and found else [f"{use.target} leads to an address that is not public", *found]
    needed = [address for text in wrong for address in address_kind(text).closed]
    lists = [
        one for one in private_lists(reach.manifest, reach.bundles) if not opened or one.key.startswith("bundles.")
    ]
    lacking = (one.origin for one in lists if not all(in_list(address, one.ranges) for address in needed))
    origin = next((place for place in lacking if place.line), None) if needed else None
    return tuple(Ground("ADDRESS_NOT_ALLOWED", text, origin, fix) for text in texts)


def _ceiling_fix(wrong: tuple[str, ...], reach: Reach) -> str:
    """The edits of `private`, one for each ceiling, that would open these addresses."""
    manifest = reach.manifest
    if not wrong:
        return ""
    needed = [address for text in wrong for address in address_kind(text).closed]
    steps = []
    for one in private_lists(manifest, ()):
        missing = dict.fromkeys(_exact(address) for address in needed if not in_list(address, one.ranges))
        if missing:
            listed = ", ".join(f'"{text}"' for text in (*one.ranges, *missing))
            steps.append(f"set `{one.key}: [{listed}]` in {one.origin.file}")
    return "; ".join(steps)


def _bundle_fix(wrong: tuple[str, ...], bundle: Bundle) -> str:
    ranges = bundle.private or ()
    needed = [address for text in wrong for address in address_kind(text).closed if not in_list(address, ranges)]
    missing = dict.fromkeys(map(_exact, needed))
    listed = ", ".join(f'"{text}"' for text in (*ranges, *missing))
    return f"set `bundles.{bundle.name}.private: [{listed}]` in {bundle.origin.file}" if missing else ""


def _is_written_in(bundle: Bundle, use: Use) -> bool:
    """Whether the destinations of a bundle name exactly this address."""
    rules = bundle.admission.layer.allows if bundle.admission.layer else ()
    return any(rule.capability.key == use.target and rule_covers(rule.capability, use) for rule in rules)


def _exact(address: Address) -> str:
    bare = str(address).partition("%")[0]  # without the interface of a link-local address, which a range cannot have
    return f"{bare}/{address.max_prefixlen}"


_WIDTH = 14


def explain(decision: Decision, reach: Reach | None = None) -> str:
    """Explain a decision to the operator: the verdict, the reasons with their places, and the fixes."""
    tool = visible(decision.request.tool)
    match decision:
        case Allow():
            lines = [f"allowed: `{tool}` may {visible(str(use))}" for use in decision.request.uses] or [
                f"allowed: `{tool}` may be called"
            ]
            lines += [_line("because", ground) for ground in decision.rules]
        case Ask():
            uses = decision.request.uses
            asked: list[Use | None] = [decision.use] if decision.use else [*uses] or [None]
            lines = [f"asks: `{tool}` may {_what(use)} once a person agrees" for use in asked]
            lines += [_line("because", ground) for ground in decision.rules]
            if reach is not None:
                lines += [_line("allowed by", ground) for use in uses for ground in reach.grounds_of(use)]
            lines += [_line("to settle it", ground.fix) for ground in decision.rules if ground.fix]
        case Deny():
            lines = [f"denied: `{tool}` may not {_what(decision.use)}"]
            rules = decision.rules
            lines += [_line("because", ground) for ground in rules]
            reach = decision._source if isinstance(decision._source, Reach) else reach
            if reach is not None and decision.use is not None:
                lines += _allowed_instead(reach, decision.use)
            lines += [_line("to allow it", fix) for fix in dict.fromkeys(ground.fix for ground in rules) if fix]
    return "\n".join(lines)


def missing_at_host(reach: Reach, use: Use) -> str:
    """The port, protocol or method of a request that is not allowed although its host is; empty if the host is not."""
    here, anywhere = reach.grant.atoms_at(use)
    if not here:
        return f"port {use.port}" if anywhere else ""
    if not here & PROTOCOL_ATOMS[use.action]:
        return f"`{use.action}`"
    return "this method" if use.method == "other" else use.method.upper()


def ran_until(cost_usd: str) -> str:
    """A line that warns that the tool had already started when it needed an approval, so a retry starts again."""
    cost = "" if cost_usd == "0" else f" and cost {cost_usd} USD"
    return _line("it ran", f"until there{cost}; called again, it runs from the start{' and costs again' * bool(cost)}")


def _what(use: Use | None) -> str:
    return visible(str(use)) if use else "be called"


def _allowed_instead(reach: Reach, use: Use) -> list[str]:
    """The needs and the rules in the domain of a refused use, so that the operator can spot a typo."""
    needs, optional = (
        [str(rule) for rule in declared.allow if rule.domain == use.domain]
        for declared in (reach.spec.needs, reach.spec.optional)
    )
    rules = [
        Ground("ALLOWED", str(rule.capability), rule.origin)
        for layer in reach.layers
        for rule in layer.allows
        if rule.capability.domain == use.domain
    ]
    shown = [_line("tool needs", ", ".join(needs) or "nothing of this kind")]
    shown += [_line("optional", ", ".join(optional))] if optional else []
    shown += [_line("allowed here", rule) for rule in rules[:8]] or [_line("allowed here", "nothing of this kind")]
    if len(rules) > 8:
        shown.append(_line("", f"and {len(rules) - 8} more"))
    return shown


def _line(title: str, what: Ground | str) -> str:
    return f"  {title:<{_WIDTH}}{visible(str(what))}"
