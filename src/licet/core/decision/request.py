"""The input of a decision (`Request`, `Usage`, `Approval`), and a reason for its result (`Ground`, with a code).

Budgets: whether one more call exceeds a limit, and exact sums of money.

Storage is elsewhere. A store must call `overspent` and write in the same transaction.
"""

from collections.abc import Iterable, Mapping
from decimal import ROUND_CEILING, Context, Decimal, Inexact, InvalidOperation
from typing import Literal

from msgspec import Struct

from licet.core.algebra.rules import Use
from licet.core.flow.judgement import Judgement
from licet.core.late_pattern import late_pattern
from licet.core.policy.terms import Budget, Bundle
from licet.core.values import Origin, money_text

Reason = Literal[
    "ALLOWED",
    # declare, validate, decide
    "UNKNOWN_TOOL",
    "TOOL_NOT_IN_BUNDLE",
    "INPUT_INVALID",
    "ARGUMENT_NOT_ALLOWED",
    "SIDE_EFFECT_EXCEEDED",
    "CONNECTOR_NOT_ALLOWED",
    "SANDBOX_NOT_DECLARED",
    "NATIVE_NOT_ALLOWED",
    "DECISION_FAILED",
    # flow
    "FLOW_ORIGIN",
    "FLOW_SECRET",
    "FLOW_NOT_ASKED_FOR",
    # a call with an id
    "CALL_ID_REUSED",
    "CALL_UNKNOWN",
    # ask, reserve, record, bind
    "APPROVAL_REQUIRED",
    "APPROVAL_DENIED",
    "APPROVAL_EXPIRED",
    "BUDGET_EXCEEDED",
    "LEDGER_UNAVAILABLE",
    "BACKEND_MISSING",
    "TOOL_NOT_AVAILABLE",
    # run
    "HOST_NOT_ALLOWED",
    "ADDRESS_NOT_ALLOWED",
    "PATH_NOT_REACHABLE",
    "SECRET_NOT_DECLARED",
    "BINARY_NOT_ALLOWED",
    "ENV_NOT_ALLOWED",
    "STORAGE_NOT_DECLARED",
    "SOCKET_NOT_ALLOWED",
    "RESOLVE_FAILED",
    "CONNECT_FAILED",
    "LIMIT_TIME",
    "LIMIT_SIZE",
    "LIMIT_REDIRECTS",
    "LIMIT_CPU",
    "LIMIT_MEMORY",
    "LIMIT_OUTPUT",
    "LIMIT_FILES",
    "LIMIT_PROCESSES",
    "LIMIT_FILE_SIZE",
    "LIMIT_DISK",
    "LIMIT_HOST_MEMORY",
    "LIMIT_HOST_FILES",
    "LIMIT_WAITING",
    "LIMIT_HEADERS",
    "LIMIT_PATHS",
    "LIMIT_FUEL",
    "LIMIT_STACK",
    "CLOSED_FILE_REPLACED",
    "TOOL_FAILED",
    "TOOL_CRASHED",
    # always
    "FROZEN",
    "SESSION_ENDED",
    "MANIFEST_CHANGED",
    "SANDBOX_UNAVAILABLE",
    "INTERRUPTED",
]

FLOW_REASONS: frozenset[Reason] = frozenset({"FLOW_ORIGIN", "FLOW_SECRET", "FLOW_NOT_ASKED_FOR"})

REASON_OF_DOMAIN: dict[str, Reason] = {
    "network": "HOST_NOT_ALLOWED",
    "fs": "PATH_NOT_REACHABLE",
    "secret": "SECRET_NOT_DECLARED",
    "process": "BINARY_NOT_ALLOWED",
    "env": "ENV_NOT_ALLOWED",
    "storage": "STORAGE_NOT_DECLARED",
    "tool": "TOOL_NOT_IN_BUNDLE",
    "connector": "CONNECTOR_NOT_ALLOWED",
    "socket": "SOCKET_NOT_ALLOWED",
}


class Approval(Struct, frozen=True):
    """What a person has approved. It is never for more than one tool in one session under one manifest."""

    manifest: str
    tool: str
    session: str
    arguments: str = ""  # the digest of the arguments, if only calls with exactly these were approved
    use: str = ""  # if only this one use was approved
    deletes: bool = False  # if all deletes of files that the tool holds are approved with it
    flow: str = ""  # the rules of flow that are not met, and that the person was shown: `Judgement.subject`


class Request(Struct, frozen=True):
    """One call: the tool, and the uses that are known before it starts."""

    tool: str
    uses: tuple[Use, ...] = ()
    session: str = ""
    arguments: str = ""  # the digest of the arguments
    likely: tuple[Use, ...] = ()  # deletes that its arguments name: asked about together with the call, if it asks
    asked: tuple[str, ...] = ()  # the arguments with a value that the policy asks about
    narrowed: bool = False  # it runs without an approval of its deletes, and then each of them asks or is judged


class RequestAsSent(Request, frozen=True):
    """A request with one refused use as the caller wrote it. The message to the caller repeats only that text."""

    sent: str = ""


def is_sound(request: Request) -> bool:
    """Whether a request and its fields have exactly the declared types: a subclass could return other values later."""
    if type(request) is not Request and type(request) is not RequestAsSent:
        return False
    for text in (request.tool, request.session, request.arguments):
        if type(text) is not str:
            return False
    if type(request.uses) is not tuple or type(request.likely) is not tuple or type(request.asked) is not tuple:
        return False
    for use in (*request.uses, *request.likely) if request.likely else request.uses:  # noqa: SIM110  a plain loop, since every decision runs it
        if type(use) is not Use:
            return False
    return True


class Usage(Struct, frozen=True):
    """What a session has spent so far, and what was approved for it."""

    calls: int = 0
    calls_of_tool: Mapping[str, int] = {}
    cost_usd: Decimal = Decimal(0)
    cost_usd_today: Decimal = Decimal(0)
    cost_usd_of_tool: Mapping[str, Decimal] = {}
    calls_today: int = 0  # by the agent, in all sessions
    approved: frozenset[Approval] = frozenset()
    bundles: Mapping[str, "Usage"] = {}  # name of a bundle -> what its tools have spent together
    flow: Judgement | None = None  # None: no rule of flow holds for the call


UNUSED = Usage()


class Ground(Struct, frozen=True):
    """One reason for a decision: a rule or a missing rule, where it is written, and the edit that would change it."""

    reason: Reason
    text: str
    origin: Origin | None = None
    fix: str = ""  # empty if no edit would help
    capability: str = ""  # what the reason is about, if it is about the tool and not about one use

    def __str__(self) -> str:
        return f"{self.text} ({self.origin})" if self.origin else self.text


NOTHING = Decimal(0)
_FINEST = Decimal("1e-15")
# Never the decimal context of the thread: a tool could have reduced its precision. Amounts have at most 15 decimals and
# are below a billion, so no realistic sum needs 60 digits. One that does raises an error and is not rounded.
_EXACT = Context(prec=60, traps=[Inexact, InvalidOperation])
_UP = Context(prec=60, rounding=ROUND_CEILING, traps=[InvalidOperation])
# The form in which Decimal writes an amount. Its parser accepts more: `1_0`, digits of other scripts, spaces.
_AMOUNT = late_pattern(r"[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]{1,6})?")


class Spent(Struct, frozen=True):
    """What an account has spent and reserved, seen by a call of one tool."""

    calls: int = 0
    calls_of_tool: int = 0
    cost_usd: Decimal = NOTHING
    cost_usd_today: Decimal = NOTHING
    cost_usd_of_tool: Decimal = NOTHING
    calls_today: int = 0


class Overspent(Struct, frozen=True):
    """A limit that one more call would exceed, by its key in the manifest."""

    key: str
    limit: int | Decimal
    wanted: int | Decimal
    of_tool: bool = False  # whether it is a limit of the tool and not of the budget: both have a `max_cost_usd`


def spent_of(usage: Usage, tool: str) -> Spent:
    """The spending of a session, seen by a call of one tool."""
    calls, cost = usage.calls_of_tool.get(tool, 0), usage.cost_usd_of_tool.get(tool, NOTHING)
    return Spent(usage.calls, calls, usage.cost_usd, usage.cost_usd_today, cost, usage.calls_today)


def overspent(
    spent: Spent, cost_usd: Decimal, budget: Budget, max_calls: int | None, max_cost_usd: Decimal | None
) -> Overspent | None:
    """The first limit that one more call at this cost would exceed, or None; reaching a limit exactly is allowed."""
    calls: list[tuple[str, int | None, int, bool]] = [
        ("max_calls_per_session", budget.max_calls_per_session, spent.calls, False),
        ("max_calls_per_day", budget.max_calls_per_day, spent.calls_today, False),
        ("max_calls", max_calls, spent.calls_of_tool, True),
    ]
    costs: list[tuple[str, Decimal | None, Decimal, bool]] = [
        ("max_cost_usd", budget.max_cost_usd, spent.cost_usd, False),
        ("max_cost_usd_per_day", budget.max_cost_usd_per_day, spent.cost_usd_today, False),
        ("max_cost_usd", max_cost_usd, spent.cost_usd_of_tool, True),
    ]
    for key, most_calls, called, of_tool in calls:
        if most_calls is not None and called + 1 > most_calls:
            return Overspent(key, most_calls, called + 1, of_tool)
    for key, most_cost, paid, of_tool in costs:
        if most_cost is not None and (wanted := plus(paid, cost_usd)) > most_cost:
            return Overspent(key, most_cost, wanted, of_tool)
    return None


def overspent_bundle(usage: Usage, cost_usd: Decimal, bundles: Iterable[Bundle]) -> tuple[Bundle, Overspent] | None:
    """The first bundle whose budget one more call at this cost would exceed, with the limit; or None."""
    for bundle in bundles:
        if bundle.budget:
            spent = spent_of(usage.bundles.get(bundle.name, UNUSED), "")
            if (found := overspent(spent, cost_usd, bundle.budget, None, None)) is not None:
                return bundle, found
    return None


def bundle_account(agent: str, bundle: str) -> str:
    """The name of the account of a bundle. It cannot be the name of an agent, since those have no spaces."""
    return f"{agent} bundle {bundle}"


def plus(one: Decimal, other: Decimal) -> Decimal:
    """The exact sum of two amounts."""
    return _EXACT.add(one, other)


def settlement(reserved: Decimal, cost_usd: Decimal) -> Decimal:
    """The correction to a reserved amount when the cost is known, at most 0; `ValueError` if the cost is larger."""
    if not 0 <= cost_usd <= reserved:
        raise ValueError(f"expected at most the {reserved} that was set aside, found {cost_usd}")
    return _EXACT.subtract(cost_usd, reserved)


def reported(amount: object) -> Decimal | None:
    """Parse an amount that a tool reports; None if it is not one. Floats and booleans are not amounts."""
    if isinstance(amount, str):
        return Decimal(amount) if _AMOUNT.fullmatch(amount) else None
    if isinstance(amount, bool) or not isinstance(amount, int | Decimal):
        return None
    number = Decimal(amount)
    return number if number.is_finite() and number >= 0 else None


def plus_up(one: Decimal, other: Decimal) -> Decimal:
    """The sum of two reported amounts, rounded up if it has too many digits."""
    return _UP.add(one, other)


def settled_amount(total: Decimal) -> Decimal:
    """Round a reported sum up to 15 decimals, so that no spending is left uncounted."""
    return Decimal(money_text(total.quantize(_FINEST, context=_UP)))
