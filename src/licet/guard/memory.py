"""What does a session remember of what its calls, and its host, have handed out?

Each session under a policy with `flow:` has one memory, and delegates have one of their own that begins with that of
their parent. Only the host adds to the task. Results are added when they are handed to the caller, by
`licet.guard.flow_steps`. A call is judged by what had been handed out when it was made, so that calls made together do
not vouch for each other.

Nothing here is kept on disk. A session that has receipts of another process counts as tainted: what its host gave it is
in no receipt. It gets its secrets back from them, and earlier values are unknown. Any thread may use a memory.
"""

import asyncio
import hashlib
import secrets
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import TypeVar
from weakref import WeakSet, WeakValueDictionary

from licet.core.flow.indexed import Indexed
from licet.core.flow.session_knowledge import Known, Reading
from licet.core.ledger.entry import Entry, FlowFact, SecretFact
from licet.core.policy.flow import SecretSource
from licet.guard.limits import MEMORIES_KEPT, SESSIONS_NOTED
from licet.guard.ports import free_after_fork

_T = TypeVar("_T")
_DROPPED = "this session was given something before, and what it knew was dropped"
_UNNOTED = "more sessions than are noted were given something: this one may be one of them"
_OTHER_POLICY = "the policy of its origins was changed, and what it had read before is not known by it"
_RESUMED = "this session was begun earlier, and what its host has given it since is not known"


class Moment:
    """The moment at which a call was made: it is judged by what its session knew then."""

    __slots__ = ("__weakref__", "known")

    def __init__(self) -> None:
        self.known: Known | None = None  # None: nothing was handed out since


class SessionMemory:
    """The memory of one session. `note` is called when it is tainted by what is in no receipt."""

    def __init__(self, parent: "SessionMemory | None" = None, note: Callable[[], None] | None = None) -> None:
        self._note = note
        self._delegates: WeakSet[SessionMemory] = WeakSet()
        self._lock = free_after_fork(threading.RLock())
        self._moments: WeakSet[Moment] = WeakSet()
        self._turns: list[str] = []
        self._parent = parent
        self._is_held = False  # whether what a delegate reads stays its own, until its answer is handed back
        self.is_restored = False  # whether the receipts of an earlier process have been read
        self._is_reopened = False  # whether there were some: their values are unknown
        self._unreadable = ""  # why they could not be read, until they can be
        self.key = secrets.token_bytes(32)  # of digests, until the ledger has given one
        self._known = Known()
        if parent is not None:
            self._known, self._turns = parent.for_delegate(self)

    # For the host ----------------------------------------------------------------------------------------------------

    @property
    def task(self) -> str:
        """What the user said, turn by turn."""
        return "\n".join(self._turns)

    def say(self, text: str) -> None:
        """Add a turn of the user to the task."""
        if not isinstance(text, str):
            raise TypeError(f"expected what the user said as text, found {type(text).__name__}")
        with self._lock:
            self._turns.append(text)
            self._known.say(text)

    def begin(self, task: str) -> None:
        """Begin with a task. A session that is opened again with a turn that it knows is not told it twice."""
        if task and task not in self._turns:
            self.say(task)

    def begin_tainted(self, why: str) -> None:
        """Begin as tainted, before anybody else knows this memory."""
        self._known.taint(why)

    def taint(self, why: str) -> None:
        """Let origins matter from now on. Taint never goes away."""
        with self._lock:
            self._freeze()
            self._known.taint(why)
            self._noted()
            if self._parent is not None:  # also of one whose answer is awaited: its calls are made by the same code
                self._parent.taint(why)

    def lose(self, why: str) -> None:
        """Count as having read anything, secrets too, since nobody knows what was handed out."""
        with self._lock:
            self._freeze()
            self._known.lose(why)
            self._noted()
            if self._parent is not None:
                self._parent.lose(why)

    def _noted(self) -> None:
        if self._note is not None:
            self._note()

    # For calls -------------------------------------------------------------------------------------------------------

    def moment(self) -> Moment:
        """The present moment, for a call that is made now."""
        moment = Moment()
        with self._lock:
            self._moments.add(moment)
        return moment

    async def ask(self, moment: Moment | None, question: Callable[[Known], _T], *, is_long: bool = False) -> _T:
        """Ask what was known at a moment. A moment is asked once. A long question is asked in a thread.

        There a copy is asked, which shares the texts: nobody waits for the lock of a memory while it is searched.
        """
        with self._lock:
            known = self._known
            if moment is not None:
                self._moments.discard(moment)
                known = known if moment.known is None else moment.known
            if why := self.unreadable:
                known = known.child()
                known.lose(why)
            if not is_long and not known.is_long:
                return question(known)
            known = known.child()
        return await asyncio.to_thread(question, known)

    @property
    def is_behind(self) -> bool:
        """Whether so much was handed over since the last question that its text should be taken out."""
        return self._known.is_behind or (self._parent is not None and self._parent.is_behind)

    async def catch_up(self) -> None:
        """Take the text out of what was handed over, in a thread. For those above a delegate, too."""
        if self._parent is not None and self._parent.is_behind:
            await self._parent.catch_up()
        with self._lock:
            known = self._known.child()
        await asyncio.to_thread(known.index)
        with self._lock:
            self._known.read_indexed()

    def together(self) -> Moment:
        """The present moment, for calls that are made together: the last may start after the first has ended."""
        moment = self.moment()
        with self._lock:
            moment.known = self._known.child()
        return moment

    def remember(self, reading: Reading) -> None:
        """Remember what is handed out now. It taints those above at once, wherever its text is known."""
        self.keep(Indexed(reading), is_text=True)

    def hear_of(self, reading: Reading) -> None:
        """Be tainted by what is handed out now, without remembering its text."""
        self.keep(Indexed(reading), is_text=False)

    def be_given(self, reading: Reading) -> None:
        """Remember untrusted text that no call returned. A host may give much of it before the next question."""
        self.remember(reading)
        self.shed()

    def shed(self) -> None:
        """Forget the oldest of what was handed over and not read yet, if it is too much. For those above, too."""
        with self._lock:
            self._known.shed()
            if self._parent is not None:
                self._parent.shed()

    def keep(self, result: Indexed, *, is_text: bool) -> None:
        """Remember a result; without its text, only that it taints, and which secrets it has."""
        with self._lock:  # always that of a delegate first, then that of its parent
            self._freeze()
            if is_text:
                self._known.keep(result)
            else:
                self._known.hear_of(result)
            if not result.reading.receipt:
                self._noted()
            if self._parent is not None:
                self._parent.keep(result, is_text=is_text and not self._is_held)

    def _freeze(self) -> None:
        """Keep what was known until now for the calls that were made before, and are not judged yet."""
        waiting = [one for one in self._moments if one.known is None]
        if waiting:
            before = self._known.child()
            for moment in waiting:
                moment.known = before

    # For delegates ---------------------------------------------------------------------------------------------------

    def for_delegate(self, delegate: "SessionMemory") -> tuple[Known, list[str]]:
        """What a delegate begins with, and the turns of the task."""
        with self._lock:
            self._delegates.add(delegate)
            return self._known.child(), [*self._turns]

    def hold(self) -> None:
        """Keep the text that this delegate reads from its parent, until `hand_back`. Taint and secrets reach it."""
        self._is_held = True

    def hand_back(self) -> None:
        """Let the parent know all that this delegate has read: its answer may repeat any of it."""
        with self._lock:
            if self._parent is not None and self._is_held:
                self._is_held = False
                self._parent.absorb(self._known)

    def absorb(self, known: Known) -> None:
        """Take in what a delegate has read."""
        with self._lock:
            self._freeze()
            self._known.absorb(known)
            if self._parent is not None and not self._is_held:
                self._parent.absorb(known)

    # For a session that is opened again ------------------------------------------------------------------------------

    def restore(
        self,
        earlier: Iterable[Entry],
        key: bytes | None,
        unreadable: str = "",
        *,
        is_resumed: bool = False,
        also: Iterable[SecretSource] = (),
    ) -> None:
        """Restore taint and secrets from the receipts of this session, before it is asked anything.

        Their values stay unknown. If it is resumed, another process had it, and it counts as tainted: what a host gives
        it is in no receipt. `unreadable` is why this ledger never gives receipts: it may have read any secret. `also`
        are secrets that receipts do not name, since they were made under another policy.
        """
        found = list(earlier)
        with self._lock:
            if self.is_restored:
                return
            if key is not None:
                self.key = key
            # Also what calls are judged by that were made before: nobody was asked about them yet.
            for known in {id(one): one for one in self._states()}.values():
                for entry in found:
                    _restore(known, entry)
                known.read_secrets(also, _OTHER_POLICY)
                if unreadable:
                    known.lose(unreadable)
                elif is_resumed:
                    known.taint(_RESUMED)
                if self._parent is not None:
                    self._parent.pass_on(known)  # it may have been restored after this one began
            self._is_reopened = bool(found or unreadable)
            self.is_restored = True
            self._unreadable = ""

    def not_restored(self, why: str) -> None:
        """Say that the receipts cannot be read now. Until they can be, the session may have read anything."""
        self._unreadable = why

    @property
    def unreadable(self) -> str:
        """Why the receipts of this session, or of one above it, cannot be read now; empty if they can."""
        return self._unreadable or (self._parent.unreadable if self._parent is not None else "")

    @property
    def is_reopened(self) -> bool:
        """Whether this session, or one above it, was opened again: what was read before is unknown."""
        return self._is_reopened or bool(self._unreadable) or (self._parent is not None and self._parent.is_reopened)

    def _states(self) -> Iterator[Known]:
        yield self._known
        yield from (one.known for one in self._moments if one.known is not None)

    def pass_on(self, known: Known) -> None:
        """Taint what a delegate knows as this session is tainted, with its secrets."""
        with self._lock:
            known.inherit(self._known.held)

    def forget(self) -> None:
        """Forget all results, since another policy labels them otherwise. The next call reads the receipts.

        A session that has read anything may have read what the policy calls secret now.
        """
        with self._lock:
            self._known = _forgotten(self._known)
            for one in self._moments:
                one.known = None if one.known is None else _forgotten(one.known)
            self.is_restored = False
            delegates = list(self._delegates)
        for delegate in delegates:
            delegate.forget()


class Memories:
    """The memories of the sessions of one gate. Those of sessions in use, and of some that were used last, are kept."""

    def __init__(self) -> None:
        self._lock = free_after_fork(threading.Lock())
        self._live: WeakValueDictionary[tuple[str, str], SessionMemory] = WeakValueDictionary()
        self._last: OrderedDict[tuple[str, str], SessionMemory] = OrderedDict()
        # Sessions that were tainted by what is in no receipt, so that dropping a memory does not clean its session.
        self._given: set[bytes] = set()
        self._is_given_full = False

    def of(self, name: tuple[str, str]) -> SessionMemory:
        """The memory of a session, which is made if there is none."""
        with self._lock:
            memory = self._live.get(name)
            if memory is None:
                memory = self._live[name] = SessionMemory(note=partial(self._note, name))
                is_given = _digest(name) in self._given
                if is_given or self._is_given_full:
                    memory.begin_tainted(_DROPPED if is_given else _UNNOTED)
            self._last[name] = memory
            self._last.move_to_end(name)
            while len(self._last) > MEMORIES_KEPT:
                self._last.popitem(last=False)
            return memory

    def end(self, name: tuple[str, str]) -> None:
        """Drop the memory of a session that has ended."""
        with self._lock:
            self._last.pop(name, None)
            self._live.pop(name, None)
            self._given.discard(_digest(name))

    def taint(self, name: tuple[str, str], why: str) -> None:
        """Taint a session, which needs no memory for it."""
        with self._lock:
            memory = self._live.get(name)
        if memory is not None:
            memory.taint(why)
        else:
            self._note(name)

    def _note(self, name: tuple[str, str]) -> None:
        with self._lock:
            if len(self._given) < SESSIONS_NOTED:
                self._given.add(_digest(name))
            else:
                self._is_given_full = self._is_given_full or _digest(name) not in self._given

    def forget(self) -> None:
        """Forget all results of all sessions, when a policy with another `flow:`, or without, takes over."""
        with self._lock:
            live = list(self._live.values())
        for memory in live:
            memory.forget()


def _digest(name: tuple[str, str]) -> bytes:
    """The name of a session as few bytes: a client may choose long ones. One that collides is tainted, too."""
    return hashlib.blake2b("\0".join(name).encode("utf-8", "surrogatepass"), digest_size=8).digest()


def _forgotten(known: Known) -> Known:
    other = known.without_results()
    if known.has_read:
        other.lose(_OTHER_POLICY)
    return other


def _restore(known: Known, entry: Entry) -> None:
    flow = entry.flow
    # Without `flow:`, nothing is known about what it returned; without a receipt, it may have returned anything.
    if not isinstance(flow, FlowFact) or entry.kind == "decision":
        known.lose(entry.id)
    if not isinstance(flow, FlowFact):
        return
    for why in flow.tainted_by:
        known.taint(why)
    if flow.taints is True:
        known.taint(entry.id)
    if flow.private is True:
        known.read_private(entry.id)
    if isinstance(flow.secrets, tuple):
        known.read_secrets(map(_source, flow.secrets), entry.id)


def _source(fact: SecretFact) -> SecretSource:
    return SecretSource(
        tool=fact.tool if isinstance(fact.tool, str) else "",
        fields=fact.fields if isinstance(fact.fields, tuple) else (),
        use=fact.use if isinstance(fact.use, str) else "",
        readers=fact.readers,
    )
