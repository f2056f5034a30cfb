"""What a gate, a session and a call know. The steps of a call read these facts, and fill in what they find out.

There is no step here, so each step imports this module, and none of them needs another one's.
"""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from decimal import Decimal
from typing import Any, NoReturn

from msgspec import UNSET, Struct, UnsetType
from msgspec.structs import replace

from licet.core.algebra.rules import Use
from licet.core.algebra.set import Rules
from licet.core.decision.decision import Deny
from licet.core.decision.request import UNUSED, Approval, Ground, Reason, Request, Usage
from licet.core.ledger.entry import AgentFact, Caller, Entry, ObservedFact
from licet.core.limits import MOST_OF_A_GROUND
from licet.core.policy.flow import Flow
from licet.core.policy.manifest import Manifest
from licet.core.policy.terms import StandingApproval
from licet.declare.context import Available
from licet.errors import Refused
from licet.guard.deadlines import CURRENT, Deadline, StoreDeadline
from licet.guard.grant import CallIdentity, Grant, Observer
from licet.guard.kept_result import Repeated
from licet.guard.limits import GIVE_UP_EARLY, LONG_RESULT, LONGEST_TOOL_NAME, STORE_SECONDS
from licet.guard.memory import Memories, Moment, SessionMemory
from licet.guard.ports import Agreement, Begun, Clock, Ports, Reservation
from licet.guard.redaction.redact import Redactor
from licet.guard.registration import Registered, RegisteredTools


class ToolChecks(ABC):
    """Asks the tools of a gate whether they can run here."""

    @abstractmethod
    def is_blocked(self, check: Available) -> bool:
        """Whether the last run of a check has not returned, though its time is over."""

    @abstractmethod
    async def unavailable(self, session: "SessionFacts", names: Collection[str] | None = None) -> dict[str, str]:
        """By name, why tools that could be called say themselves that they cannot run here; of `names`, or of all."""


class CallWatch(ABC):
    """Looks after the calls of a gate that are under way."""

    @abstractmethod
    def begin(self) -> None:
        """Look from now on, as long as calls run in this event loop."""

    @abstractmethod
    def look(self, loop: asyncio.AbstractEventLoop | None = None, this: "asyncio.Task[Any] | None" = None) -> None:
        """Cut the calls that are frozen, of one loop or of all; not that of the task which has frozen them."""


class GateFacts(ABC):
    """A gate as its sessions and calls see it."""

    manifest: Manifest
    ports: Ports
    clock: Clock
    workdir: str
    home: str
    observers: tuple[Observer, ...]
    flags: tuple[str, ...] = ()  # of `licet run`, if they made or narrowed the policy; receipts have them
    narrows = False  # whether a call runs without its deletes, rather than wait for a person to approve them
    memories: Memories  # of its sessions, under policies with `flow:`
    reloaded = 0.0  # time of day of the last reload; earlier questions are void
    ended: set[tuple[str, str]]  # sessions ended by this process; the store has all of them
    running: "set[Call]"  # of this gate and its delegates
    # By session: its approvals, each with the policy it was given under, and when it expires.
    agreed: dict[tuple[str, str], dict[Approval, tuple[RegisteredTools, float, Agreement]]]

    @property
    @abstractmethod
    def policy(self) -> RegisteredTools:
        """The manifest in force, and the tools under it."""

    checks: ToolChecks
    watch: "CallWatch"  # that running calls end which are frozen meanwhile

    @property
    @abstractmethod
    def frozen(self) -> str:
        """Why this gate takes no calls; empty if it does."""

    @abstractmethod
    def frozen_for(self, agent: str, tool: str) -> str:
        """Why calls of a tool by an agent are stopped; empty if they are not. `Unavailable` if nobody can know."""

    @abstractmethod
    def next_receipt(self) -> str:
        """A new receipt id."""

    @abstractmethod
    def made(self, receipt: str) -> bool:
        """Whether a receipt id is of this gate, as it is in this process."""

    @abstractmethod
    def is_current(self, registered: Registered) -> bool:
        """Whether a call of this tool would be decided by the same policy now. Thread-safe, and never reloads."""

    @abstractmethod
    def stands(self, standing: StandingApproval) -> bool:
        """Whether a standing approval that a policy of this gate has still counts."""

    @abstractmethod
    def renew_standing(self) -> None:
        """Decide later calls without the standing approval, if it has ended or was withdrawn. Before each call."""

    def is_outdated(self) -> bool:
        """Whether the policy is known not to be that of its files any more. Only a process that looks says so."""
        return False

    @abstractmethod
    def delegated(self, agent: str, allow: Rules) -> "GateFacts":
        """A gate for another agent, limited to `allow` and to what this gate holds."""


class SessionFacts:
    """A session as its calls see it: who it is, whether it is over, and what was approved for it."""

    def __init__(self, gate: GateFacts, id: str, parent: "SessionFacts | None" = None) -> None:  # noqa: A002
        self.gate = gate
        self.id = id
        self.agent = gate.manifest.agent
        self.name = (self.agent, id)
        self.parent = parent
        # A delegate spends from the account of the first session, so delegating does not raise a budget.
        self.account: tuple[str, str] = parent.account if parent else (self.agent, id)
        self.store_error = ""  # why it is not known whether this session was ended
        self.looked_in: StoreDeadline | None = None  # the opening in which that was asked last
        self.closed = False
        self.reported_open = False  # whether observers have seen `SessionOpened`
        self.memory: SessionMemory | None = None  # None until a policy with `flow:` needs one
        self.caller: Caller | None = None  # who calls, as a gateway reports it; a claim that decides nothing
        self._requests: dict[str, Request] = {}

    @property
    def over(self) -> bool:
        """Whether this session accepts no more calls."""
        return self.closed or self.name in self.gate.ended or (self.parent is not None and self.parent.over)

    @property
    def ended(self) -> bool:
        """Whether this session, or one that delegated to it, was ended for good."""
        return self.name in self.gate.ended or (self.parent is not None and self.parent.ended)

    def other_agent(self, policy: RegisteredTools) -> str:
        """The agent of the manifest in force, if it is not that of this session or of a parent; otherwise empty."""
        if policy.manifest.agent != self.agent:
            return policy.manifest.agent
        return self.parent.other_agent(self.parent.gate.policy) if self.parent is not None else ""

    def agreed(self, policy: RegisteredTools, now: float) -> dict[Approval, Agreement]:
        """The approvals for this session that were given under this policy and have not expired."""
        known = list(self.gate.agreed.get(self.name, {}).items())  # a copy: another thread may change it
        return {approval: agreement for approval, (under, until, agreement) in known if under is policy and now < until}

    def agree(self, agreement: Agreement, policy: RegisteredTools, asked: float, seconds: int) -> None:
        """Remember an approval for this session until it expires, counted from the time of the question."""
        if self.ended:
            return
        agreed = self.gate.agreed
        for name, known in list(agreed.items()):  # remove expired ones, also of sessions that are never ended
            if all(until <= asked for _, until, _ in list(known.values())):
                agreed.pop(name, None)
        agreed.setdefault(self.name, {})[agreement.approval] = (policy, asked + seconds, agreement)

    def remembering(self) -> SessionMemory:
        """The memory of this session, which is made if there is none. A delegate begins with that of its parent."""
        if self.memory is None:
            if self.parent is not None:
                self.memory = SessionMemory(self.parent.remembering())
            else:
                self.memory = self.gate.memories.of(self.name)
        return self.memory

    def request(self, tool: str) -> Request:
        """The request to call a tool, cached for the tools of this gate."""
        if type(tool) is not str:
            return Request(tool, (), self.id)
        found = self._requests.get(tool)
        if found is None:
            found = Request(tool, (), self.id)
            if tool in self.gate.policy.tools:  # names that models make up are not kept
                self._requests[tool] = found
        return found


class Call(Struct, eq=False):
    """One call: what is fixed when it begins, then what each of its steps has found out."""

    session: SessionFacts
    tool: str  # empty if it cannot be the name of a tool
    policy: RegisteredTools  # read once: a reload affects later calls only
    ports: Ports
    clock: Clock
    receipt: str
    time: datetime
    started: float
    request: Request
    purpose: str | None  # why the caller makes this call
    stores: StoreDeadline  # until the tool, and so its time limit, is known
    task: "asyncio.Task[Any] | None"
    arguments: dict[str, Any] = {}  # once they are validated
    digest: str = ""  # of these
    asked: tuple[str, ...] = ()  # those with a value that the policy asks about
    registered: Registered | None = None
    usage: Usage = UNUSED
    approvals: tuple[Agreement, ...] = ()  # with who agreed
    observed: ObservedFact | UnsetType = UNSET  # for its receipts, if nothing was enforced
    coding_agent: AgentFact | UnsetType = UNSET  # for its receipts, if a hook of a coding agent makes it
    grant: Grant | None = None
    reservation: Reservation | None = None
    to_use: tuple[str, ...] = ()  # stored requests whose approvals the opening of the call uses up
    bundle_reservations: dict[str, Reservation] = {}  # in the budgets of its tool's bundles
    decision: Entry | None = None  # as the ledger got it; the receipt repeats its facts
    listed_all: bool = False  # whether it lists all events until then, so that those of the receipt begin with them
    charged: Callable[[], Decimal | None] | None = None  # what its tool has charged
    deadline: Deadline | None = None
    running: bool = False
    is_elsewhere: bool = False  # whether somebody else runs it, outside of any walls of licet
    is_closed: bool = False  # whether its end has begun; only set of calls that were left open
    result_bytes: int = 0  # of JSON that its tool returned
    was_cut: bool = False  # whether the end of its session, or a freeze, has cancelled it
    frozen: str = ""  # why, if a freeze has
    cuts: int = 0  # how often
    flow: Flow | None = None  # of its policy; None: origins do not matter, and nothing is remembered
    moment: Moment | None = None  # when it was made, as its session's memory counts
    plain: Mapping[str, Any] = {}  # the arguments as data, under the names that policies have; once they are judged
    from_task: bool = False  # whether all its arguments stand in the task
    is_heard: bool = True  # whether anybody gets its result; if not, nothing of it is remembered
    flow_request: str = ""  # the stored request for an approval of what its origins do not allow
    id: str = ""  # that its caller gave it; empty if it gave none
    first: Begun | None = None  # set while it is the first one of its id
    repeated: Repeated | None = None  # what it repeats; it then runs nothing

    def __repr__(self) -> str:  # arguments may be secret
        return f"<call {self.receipt} of {self.tool!r}>"

    @property
    def identity(self) -> CallIdentity:
        """Which call this is, for its events."""
        session = self.session
        return CallIdentity(session.agent, session.id, self.receipt, self.time, self.started, self.clock)

    @property
    def hands_out(self) -> bool:
        """Whether what it returns comes from its tool: it ran now, or it repeats one that did."""
        return self.running or self.repeated is not None

    @property
    def is_long(self) -> bool:
        """Whether its events or its result are so long that building the receipt would block the event loop."""
        return self.result_bytes > LONG_RESULT or (self.grant is not None and self.grant.is_long)

    @property
    def redactor(self) -> Redactor | None:
        """The redactor of the secrets that this call has seen; None if it has seen none."""
        return self.grant.redactor if self.grant is not None else None

    @property
    def shown_approvals(self) -> tuple[Agreement, ...]:
        """The agreements without secrets: the path of a delete may contain one."""
        redactor = self.redactor
        if redactor is None:
            return self.approvals
        return tuple(
            replace(agreed, approval=replace(agreed.approval, use=redactor.text(agreed.approval.use)))
            for agreed in self.approvals
        )

    def refuse(self, reason: Reason, text: str, fix: str = "", use: Use | None = None) -> NoReturn:
        """Refuse this call, or one use inside it, for a reason that no rule states, such as a missing backend."""
        if self.grant is not None:
            self.grant.refuse(reason, text, use, fix)
        raise Refused(Deny(self.request, (Ground(reason, text[:MOST_OF_A_GROUND], fix=fix),), use))


def opening_seconds(policy: RegisteredTools, tool: object = None) -> float:
    """How long stores may take to open a call: no longer than its tool may run. Without a tool: to open a session."""
    found = policy.tools.get(tool) if type(tool) is str else None
    of_policy = policy.manifest.limits.get("wall_seconds", STORE_SECONDS)
    return min(STORE_SECONDS, of_policy if found is None else found.seconds) - GIVE_UP_EARLY


@contextmanager
def in_opening(policy: RegisteredTools, tool: object = None) -> Iterator[StoreDeadline]:
    """Meanwhile, stores give up in time to open a call, or a session. Both have the same time if both are opened here.

    The first call takes that time for itself: one that is made later has its own.
    """
    outer = CURRENT.get()
    if outer is not None and outer.is_opening:
        yield outer
        return
    stores = StoreDeadline(opening_seconds(policy, tool))
    stores.is_opening = True
    CURRENT.set(stores)
    try:
        yield stores
    finally:
        stores.is_opening = False
        CURRENT.set(outer)


def begun(
    session: SessionFacts,
    tool: str,
    purpose: str | None = None,
    moment: Moment | None = None,
    id: str = "",  # noqa: A002
    stores: StoreDeadline | None = None,
) -> Call:
    """The facts of a call that begins now. `moment` is when it was made, if that was earlier.

    `stores` is the time that it has had so far for them.
    """
    gate, clock = session.gate, session.gate.clock
    name = tool if type(tool) is str and len(tool) <= LONGEST_TOOL_NAME else ""
    policy = gate.policy
    call = Call(
        session,
        name,
        policy,
        gate.ports,
        clock,
        gate.next_receipt(),
        clock.now(),
        clock.monotonic(),
        session.request(name),
        purpose,
        stores or StoreDeadline(opening_seconds(policy, name)),
        asyncio.current_task(),
        id=id,
    )
    if policy.flow is not None:
        call.flow = policy.flow
        call.moment = moment or session.remembering().moment()
    return call
