"""A decision in words for the operator: what was asked, what decided, where it is written, what would change it."""

from licet.core.decision import Allow, Ask, Decision, Deny, Ground
from licet.core.network import PROTOCOL_ATOMS
from licet.core.reach import Reach
from licet.core.scope import visible
from licet.core.use import Use

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
            reach = decision.source if isinstance(decision.source, Reach) else reach
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
