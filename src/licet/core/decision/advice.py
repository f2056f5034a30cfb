"""Whether a refusal is one that rules would lift, so that advice about rules belongs to it.

A program, a model or a server chooses what it asks for, and so what it is refused. Most refusals are no matter of
rules: a malformed request, a key for another host, a limit, a name that does not resolve. A rule for the place of such
a request would not allow the request, and would open something else.
"""

from licet.core.algebra.rules import InvalidUse, Use
from licet.core.decision.decision import CapabilityDenied
from licet.core.decision.reach import Reach
from licet.core.decision.request import Ground


def lacking_rules(text: str, use: Use, reach: Reach) -> tuple[Ground, ...]:
    """The reasons for a refusal, if rules that are missing are all of them and adding these allows the use; else none.

    `text` is what the refusal says, as events have it. A deny is no missing rule: somebody has decided on that already.
    """
    grounds = reach.obstacles_of(use)
    if text != "; ".join(map(str, grounds)) or not all(ground.fix for ground in grounds):
        return ()
    return () if any(layer.allowed.verdict(use) is False for layer in reach.layers) else grounds


def use_lacking_rules(event: CapabilityDenied, reach: Reach) -> Use | None:
    """The use that was refused, if rules that are missing are why; None if a rule would not allow what was tried."""
    try:
        use = Use(event.capability)
    except InvalidUse:
        return None
    return use if lacking_rules(event.rule, use, reach) else None
