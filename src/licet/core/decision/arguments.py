"""Decides whether the arguments of a call keep the rules that a manifest has on them.

Values with a `scope` must name what the call holds. `tied` and `use_of` in `decide.py` find these.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from licet.core.algebra.use import InvalidUse
from licet.core.canonical import canonical_json
from licet.core.decision.decide import tied, use_of
from licet.core.decision.decision import Deny
from licet.core.decision.reach import Reach
from licet.core.decision.request import MOST_OF_A_GROUND, Ground, Reason, Request
from licet.core.origin import Origin

ArgumentCheck = Callable[[Mapping[str, Any]], str]  # returns what is wrong with arguments, or an empty text
_REASON: Reason = "ARGUMENT_NOT_ALLOWED"


def argument_denial(
    request: Request,
    reach: Reach,
    rules: Mapping[str, Any],
    check: ArgumentCheck | None,
    arguments: Mapping[str, Any],
    workdir: str,
    origin: Origin | None = None,
) -> Deny | None:
    """Deny a call whose arguments break a rule of one admission, which is written at `origin`; None if they do not."""
    if missing := [name for name in rules if name not in arguments]:
        return _denied(request, f"`{missing[0]}` must be given: the manifest has a rule on it")
    wrong = check(arguments) if check is not None else "nothing here can check the rules on its arguments"
    if wrong:
        ground = Ground(_REASON, wrong[:MOST_OF_A_GROUND])
        return Deny(request, (ground, *_broken(request.tool, rules, check, arguments, origin)))
    for value in tied(rules, arguments):
        try:
            use = use_of(value, reach.grant, workdir)
        except InvalidUse as invalid:
            return _denied(request, f"`{value.argument}`: {invalid}")
        if not reach.grant.has(use):
            ground = Ground(_REASON, f"`{value.argument}` names what this call does not hold")
            return Deny(request, (ground, *reach.obstacles_of(use)), use)
    return None


def _denied(request: Request, text: str) -> Deny:
    return Deny(request, (Ground(_REASON, text[:MOST_OF_A_GROUND]),))


def _broken(
    tool: str,
    rules: Mapping[str, Any],
    check: ArgumentCheck | None,
    arguments: Mapping[str, Any],
    origin: Origin | None,
) -> Iterator[Ground]:
    """One ground for each broken rule. The operator sees them; the model sees only the first ground of a refusal."""
    for name, rule in rules.items():
        if check is not None and check({name: arguments[name]}):
            text = f"a rule on `{name}`: {canonical_json(rule).decode()}"
            fix = f"change `args.{name}` of `{tool}`" + (f" in {origin.file}" if origin else "")
            yield Ground(_REASON, text[:MOST_OF_A_GROUND], origin, fix)
