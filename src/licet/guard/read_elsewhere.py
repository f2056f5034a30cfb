"""What a session has read in other processes: at another node, or earlier.

The ledger says it. Whatever brings text into a session is in an entry before anybody gets the text, with what it taints
and which secrets it has. A session learns from all its entries when it is opened, and at each later call from those
that others have written since. Values that were read elsewhere stay unknown: no entry has a text.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from typing import TypedDict

from licet.core.algebra.scope import visible
from licet.core.decision.decision import Deny
from licet.core.decision.request import Ground
from licet.core.flow.labels import ANY_READ, secrets_of_result
from licet.core.ledger.entry import AgentFact, Entry, FlowFact, ParentFact, time_text
from licet.core.policy.flow import SecretSource
from licet.errors import Refused
from licet.guard.deadlines import StoreDeadline, in_time
from licet.guard.facts import Call, SessionFacts
from licet.guard.limits import STORE_SECONDS
from licet.guard.memory import OTHER_POLICY, SessionMemory
from licet.guard.policy_record import POLICY_CHANGE
from licet.guard.ports import Beginning, Ledger, LedgerUnavailable, Opened, Opening, ReadableLedger, Unavailable
from licet.guard.session_end import SESSION_END

_PURPOSE = b"licet flow values"


async def restore(call: Call, memory: SessionMemory) -> None:
    """Learn from the ledger what this session has read in other processes. Until that is known, it may have read all.

    All of it when the session is opened here, and at each later call what they have written since.
    """
    session, ledger = call.session, call.ports.ledger
    with suppress(Refused):  # then the ledger cannot keep this call either
        await keep_given(session, call.stores)
    if memory.is_restored and not memory.unreadable:
        await _look(call, memory.first, ledger)
        return
    for one in reversed([*above(session)]):
        if one.memory is not None:
            await _restore(call, one, one.memory, ledger)
    await _restore(call, session, memory, ledger)


def above(session: SessionFacts) -> Iterator[SessionFacts]:
    while session.parent is not None:
        session = session.parent
        yield session


async def _restore(call: Call, session: SessionFacts, memory: SessionMemory, ledger: Ledger | None) -> None:
    if ledger is None:  # the call is refused
        return
    if memory.is_restored:
        if session.parent is None:
            await _look(call, memory, ledger)
        return
    if not isinstance(ledger, ReadableLedger):
        memory.restore((), None, "this ledger cannot be read: what the session did before is not known")
        return
    try:
        found = await in_time(call.stores, ledger.entries_of(*session.name), "the ledger")
        key = await in_time(call.stores, ledger.derived(_PURPOSE), "the ledger")
    except Exception as error:
        memory.not_restored(_unread(error))  # the next call tries again
        return
    running = {one.receipt for one in list(session.gate.running)}
    ended = {one.id for one in found if one.kind == "receipt"}
    # A call without a receipt may have returned something before its process ended. So it counts until it has one.
    unfinished = [one.id for one in found if one.kind == "decision" and one.id not in ended | running]
    earlier = [*_of_calls(found)]
    if session.parent is None:
        memory.chains.read({}, found)
    # What its host has given it here is known here.
    is_reopened = any(one.tool != SESSION_READ or not session.gate.made(one.id) for one in earlier)
    memory.restore(earlier, key, is_reopened=is_reopened, unfinished=unfinished, **_since(call, earlier))


async def _look(call: Call, memory: SessionMemory, ledger: Ledger | None) -> None:
    """Learn what other processes have written about a session, or a delegate of it, since its entries were read.

    A call of theirs that has no receipt yet has handed nothing out, unless a coding agent runs it.
    """
    if not isinstance(ledger, ReadableLedger):
        return
    session = [call.session, *above(call.session)][-1]
    read, known = memory.chains.known()
    try:
        lengths = await in_time(call.stores, ledger.lengths_of(*session.name), "the ledger")
        if lengths == known:
            memory.chains.caught_up(lengths)
            memory.caught_up()
            return
        found = await in_time(call.stores, ledger.entries_of(*session.name, read), "the ledger")
    except Exception as error:
        memory.not_restored(_unread(error))
        return
    others = [one for one in found if not session.gate.made(one.id)]
    later = [*_of_calls(others)]
    ended = {one.id for one in later if one.kind == "receipt"}
    open_calls = [one for one in others if one.kind == "decision" and one.id not in ended]
    unfinished = [one.id for one in open_calls if isinstance(one.coding_agent, AgentFact)]
    if later or unfinished:
        memory.learn(later, unfinished=unfinished, **_since(call, later))
    memory.chains.read(read, found)  # last: who finds them read counts on what was learned
    memory.caught_up()


def _unread(error: Exception) -> str:
    return f"the ledger could not be read: {type(error).__name__}"


def _of_calls(found: Iterable[Entry]) -> Iterator[Entry]:
    """The entries that say what a session knows. That of a decision is repeated by its receipt, if there is one."""
    for one in found:
        is_told = one.kind == "decision" and isinstance(one.flow, FlowFact)
        if is_told or (one.kind == "receipt" and one.tool not in (SESSION_END, POLICY_CHANGE)):
            yield one


class _Since(TypedDict):
    also: list[SecretSource]
    why: str


def _since(call: Call, earlier: Sequence[Entry]) -> _Since:
    """What calls may have read under other policies, whose labels are not those of the policy in force."""
    digests = {one.gate.policy.digest for one in (call.session, *above(call.session))}
    returned = [one for one in earlier if one.manifest not in digests and _has_returned(one)]
    flow = call.flow
    found = [] if flow is None else [one for entry in returned for one in secrets_of_result(flow, entry.tool, ANY_READ)]
    return _Since(also=found, why=OTHER_POLICY if returned else "")


def _has_returned(one: Entry) -> bool:
    return one.result is not None or (isinstance(one.flow, FlowFact) and one.flow.taints is True)


async def keep_entry(call: Call, ledger: Ledger, entry: Entry) -> None:
    """Keep an entry of a call, and count it as one that this process knows."""
    memory = call.session.memory
    if memory is None:
        await ledger.record(entry)
        return
    await _kept(memory.first, ledger, entry)


async def open_entry(call: Call, opening: Opening, begins: Beginning) -> Opened:
    """Open a call, and count its decision as one that this process knows, if it was kept."""
    memory = call.session.memory
    if memory is None:
        return await opening.open(begins)
    memory, is_kept = memory.first, False
    memory.chains.begin(begins.entry)
    try:
        opened = await opening.open(begins)
        if not opened.refused:
            is_kept = True
            memory.was_kept(begins.entry)
        return opened
    finally:
        memory.chains.end(begins.entry, is_kept=is_kept)


async def _kept(memory: SessionMemory, ledger: Ledger, entry: Entry) -> None:
    memory.chains.begin(entry)
    is_kept = False
    try:
        await ledger.record(entry)
        is_kept = True
        memory.was_kept(entry)
    finally:
        memory.chains.end(entry, is_kept=is_kept)


# What reaches the model without a call -------------------------------------------------------------------------------

SESSION_READ = "licet session read"  # what the ledger calls it; no tool can have this name


async def keep_given(session: SessionFacts, stores: StoreDeadline | None = None) -> None:
    """Keep that a session was given what taints it, unless an entry says already that it is tainted.

    It may go on in another process, which knows what the ledger has. Raises `Refused` if that could not be kept.
    """
    memory, ledger = session.memory, session.gate.ports.ledger
    reasons = memory.ungiven() if memory is not None else ()
    if memory is None or not reasons or ledger is None or session.gate.policy.flow is None:
        return
    entry = _given_entry(session, reasons)
    try:
        await in_time(stores or StoreDeadline(STORE_SECONDS), _kept(memory.first, ledger, entry), "the ledger")
    except Exception as error:
        known = isinstance(error, LedgerUnavailable | Unavailable)
        text = f"the ledger could not keep what this session was given: {type(error).__name__}"
        ground = Ground("LEDGER_UNAVAILABLE", text, fix=str(error) if known else "")
        raise Refused(Deny(session.request(""), (ground,))) from None


def _given_entry(session: SessionFacts, reasons: Sequence[str]) -> Entry:
    gate, parent = session.gate, session.parent
    return Entry(
        kind="receipt",
        id=gate.next_receipt(),
        agent=session.agent,
        session=session.id,
        tool=SESSION_READ,
        time=time_text(gate.clock.now()),
        manifest=gate.policy.digest,
        parent=ParentFact(agent=parent.agent, session=parent.id) if parent is not None else None,
        caller=session.caller,
        code="ok",
        flow=FlowFact(tainted_by=tuple(visible(why)[:200] for why in reasons)),
    )
