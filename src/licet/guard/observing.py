"""Lets a session run what its policy refuses, and note what the policy would have said. Meant for trying out a policy.

Only `licet gateway --observe` makes an `Observing`, from its command line: no policy file and no variable of the
environment can. The policy is asked first, by the same steps as always. If it refuses, the call starts again under
`instead`, which admits the tools that may be observed and holds nothing: their effects are those of a server's process,
behind its own walls. Receipts of such a session all say that it observed.
"""

from collections import Counter
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from typing import TYPE_CHECKING

from msgspec.structs import replace

from licet.core.algebra.scope import visible
from licet.core.decision.decision import CapabilityGranted
from licet.core.decision.request import UNUSED, Reason
from licet.core.ledger.entry import ObservedFact
from licet.errors import Refused
from licet.guard.approvals_and_budgets import settle
from licet.guard.grant import Grant, Observer
from licet.guard.registration import Registered, RegisteredTools
from licet.guard.result import NOTHING

if TYPE_CHECKING:
    from licet.guard.call import Call

# The reasons with which a policy refuses before the tool runs. A frozen gate, a missing backend, a ledger that cannot
# be written, an error while deciding: all of these still refuse. `ask_server` of the gateway lifts three more: changed
# definitions, resources and prompts that are not listed, and structured content that does not fit.
LIFTED: frozenset[Reason] = frozenset(
    {
        *("UNKNOWN_TOOL", "TOOL_NOT_IN_BUNDLE", "TOOL_NOT_AVAILABLE", "INPUT_INVALID", "ARGUMENT_NOT_ALLOWED"),
        *("SIDE_EFFECT_EXCEEDED", "CONNECTOR_NOT_ALLOWED", "SANDBOX_NOT_DECLARED", "NATIVE_NOT_ALLOWED"),
        *("APPROVAL_REQUIRED", "BUDGET_EXCEEDED", "HOST_NOT_ALLOWED", "ADDRESS_NOT_ALLOWED", "PATH_NOT_REACHABLE"),
        *("SECRET_NOT_DECLARED", "BINARY_NOT_ALLOWED", "ENV_NOT_ALLOWED", "STORAGE_NOT_DECLARED"),
    }
)
_MOST_RULES = 20  # in one receipt
_LONGEST = 1000  # characters of one rule

Admit = Callable[["Call", object], Awaitable[tuple[Registered, Grant]]]


class Observed:
    """What the policy would have said about one call."""

    def __init__(self, observing: "Observing", tool: str) -> None:
        self._observing, self._tool = observing, tool
        self._reasons: dict[str, None] = {}
        self._rules: list[str] = []
        self._asked = False

    def note(self, reason: Reason, *rules: str, asked: bool = False) -> None:
        """Note a refusal, or a question to a person if `asked`."""
        if not self._reasons:
            self._observing.refused += 1
            self._asked = asked
        if reason not in self._reasons:
            self._reasons[reason] = None
            self._observing.by_reason[reason, self._tool] += 1
        self._asked &= asked
        self._rules += [visible(rule)[:_LONGEST] for rule in rules][: _MOST_RULES - len(self._rules)]

    @property
    def fact(self) -> ObservedFact:
        """It all, for a receipt."""
        return ObservedFact(
            verdict="allow" if not self._reasons else "ask" if self._asked else "deny",
            reasons=tuple(self._reasons),
            rules=tuple(self._rules),
            walls=not self._observing.is_open,
        )


# The call that the current task observes.
OBSERVED: ContextVar[Observed | None] = ContextVar("licet_observed", default=None)


class Observing:
    """Observes the calls of one session until a time of the gate's monotonic clock."""

    def __init__(
        self, instead: RegisteredTools, until: float, *, is_open: bool, recorder: Observer | None = None
    ) -> None:
        self.instead, self.until = instead, until
        self.recorder = recorder  # gets what was refused and let through, as granted
        self.is_open = is_open  # servers run without walls
        self.calls = 0
        self.refused = 0  # calls that the policy would have refused or asked about
        self.by_reason: Counter[tuple[str, str]] = Counter()  # by reason and tool

    async def admit(self, call: "Call", arguments: object, admit: Admit) -> tuple[Registered, Grant]:
        """Admit a call. `admit` are the steps that ask the policy of a call; a refusal is noted."""
        if call.clock.monotonic() >= self.until:
            fix = "start it again: without `--observe`, or with `--observe --for` for another while"
            call.refuse("SESSION_ENDED", "this gateway only observed, and the time for that is over", fix)
        observed = call.observed = Observed(self, call.tool)
        OBSERVED.set(observed)  # of this task alone: each call has one
        self.calls += 1
        session, reported_open = call.session, call.session.reported_open
        try:
            registered, grant = await admit(call, arguments)
        except Refused as refusal:
            observed.note(refusal.code, *map(str, refusal.decision.rules), asked=refusal.code == "APPROVAL_REQUIRED")
            if refusal.code not in LIFTED or call.tool not in self.instead.tools:
                raise
            session.reported_open = reported_open  # by a grant that is dropped
            await self._start_again(call)
            admitted = await admit(call, arguments)
            if self.recorder is not None and refusal.decision.use is not None:
                event = CapabilityGranted(str(refusal.decision.use), call.tool, "", "observed")
                self.recorder(call.identity.stamped(event, call.clock.monotonic()))
            return admitted
        if self.is_open:
            registered = call.registered = _without_walls(registered, self.instead.tools[call.tool])
        return registered, grant

    async def _start_again(self, call: "Call") -> None:
        """Put a call back to its start, under the policy that admits it."""
        if call.reservation is not None or call.bundle_reservations:
            await settle(call, NOTHING)  # a bundle had room and another budget had not
        call.policy, call.registered, call.grant = self.instead, None, None
        call.reservation, call.bundle_reservations = None, {}
        call.request, call.usage, call.approvals = call.session.request(call.tool), UNUSED, ()


def _without_walls(registered: Registered, instead: Registered) -> Registered:
    """A tool with its own limits and cost, and without its walls: its server has none, and its receipt says so."""
    return replace(registered, reach=instead.reach, layers=instead.layers, walls=instead.walls, unavailable="")
