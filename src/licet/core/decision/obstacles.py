"""Which addresses a connection may go to: public ones, and those that a manifest opens by itself.

Rules are about names; a name can lead anywhere. This is asked with every address of an answer before anything is
dialled, and all of them must pass. Nothing here resolves or connects.

A decision in words for the operator: what was asked, what decided, where it is written, what would change it.
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
    """Whether every ceiling has a rule for exactly this address; a wildcard or the tool's own need is not that."""
    ceilings = [layer for layer in reach.layers if layer.kind in CEILINGS]
    return bool(ceilings) and all(
        any(rule.capability.key == use.target and rule_covers(rule.capability, use) for rule in layer.allows)
        for layer in ceilings
    )


def address_grounds(use: Use, addresses: Sequence[str], reach: Reach) -> tuple[Ground, ...]:
    """Why a connection may not go to these addresses of a host, with the lines that would allow it; or nothing.

    The first ground repeats only what the caller knows. What a name of the inner network leads to is for the operator.
    """
    if addresses and all(address_kind(text) is PUBLIC for text in addresses):
        return ()
    literal = is_address(use.target)
    wrong = refused_addresses(addresses, reach.manifest.private, literal and is_written(use, reach))
    fix, opened = _fix(wrong, reach), not wrong
    for bundle in reach.bundles:
        # A bundle that lists private addresses is held to them, whatever addresses the ceilings write out.
        if bundle.private is not None:
            closed = refused_addresses(addresses, (bundle.private,), literal and _is_written_in(bundle, use))
            wrong = tuple(dict.fromkeys((*wrong, *closed)))
            fix = "; ".join(filter(None, (fix, _bundle_fix(closed, bundle))))
    if any(address_kind(text).metadata for text in wrong):
        fix = ""
    if addresses and not wrong:
        return ()
    found = [f"{visible(text)} is {address_kind(text).title}" for text in wrong]
    said = found if literal and found else [f"{use.target} leads to an address that is not public", *found]
    faces = [face for text in wrong for face in address_kind(text).closed]
    lists = [
        one for one in private_lists(reach.manifest, reach.bundles) if not opened or one.key.startswith("bundles.")
    ]
    lacking = (one.origin for one in lists if not all(in_list(face, one.ranges) for face in faces))
    origin = next((place for place in lacking if place.line), None) if faces else None
    return tuple(Ground("ADDRESS_NOT_ALLOWED", text, origin, fix) for text in said)


def _fix(wrong: tuple[str, ...], reach: Reach) -> str:
    """The line for each ceiling that would open these addresses."""
    manifest = reach.manifest
    if not wrong:
        return ""
    faces = [face for text in wrong for face in address_kind(text).closed]
    steps = []
    for one in private_lists(manifest, ()):
        missing = dict.fromkeys(_exact(face) for face in faces if not in_list(face, one.ranges))
        if missing:
            listed = ", ".join(f'"{text}"' for text in (*one.ranges, *missing))
            steps.append(f"set `{one.key}: [{listed}]` in {one.origin.file}")
    return "; ".join(steps)


def _bundle_fix(wrong: tuple[str, ...], bundle: Bundle) -> str:
    ranges = bundle.private or ()
    faces = [face for text in wrong for face in address_kind(text).closed if not in_list(face, ranges)]
    missing = dict.fromkeys(map(_exact, faces))
    listed = ", ".join(f'"{text}"' for text in (*ranges, *missing))
    return f"set `bundles.{bundle.name}.private: [{listed}]` in {bundle.origin.file}" if missing else ""


def _is_written_in(bundle: Bundle, use: Use) -> bool:
    """Whether the destinations of a bundle name exactly this address."""
    rules = bundle.admission.layer.allows if bundle.admission.layer else ()
    return any(rule.capability.key == use.target and rule_covers(rule.capability, use) for rule in rules)


def _exact(address: Address) -> str:
    bare = str(address).partition("%")[0]  # the interface of a link-local address is not part of a range
    return f"{bare}/{address.max_prefixlen}"


_WIDTH = 14


def explain(decision: Decision, reach: Reach | None = None) -> str:
    """Why a call is allowed, refused or asked about, a line for each thing that matters."""
    tool = visible(decision.request.tool)
    match decision:
        case Allow():
            held = decision.request.uses
            lines = [f"allowed: `{tool}` may {visible(str(use))}" for use in held] or [
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
    """That a tool had begun when it was refused something that a person may still agree to."""
    cost = "" if cost_usd == "0" else f" and cost {cost_usd} USD"
    return _line("it ran", f"until there{cost}; called again, it runs from the start{' and costs again' * bool(cost)}")


def _what(use: Use | None) -> str:
    return visible(str(use)) if use else "be called"


def _allowed_instead(reach: Reach, use: Use) -> list[str]:
    """What the tool needs and what is allowed in the domain that was refused, so that a typo shows."""
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
