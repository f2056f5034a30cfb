"""What does a session remember of what its calls, and its host, have handed out?

Each session under a policy with `flow:` has one memory, and delegates have one of their own that begins with that of
their parent. Only the host adds to the task. Results are added when they are handed to the caller, by
`licet.guard.flow_steps`. A call is judged by what had been handed out when it was made, so that calls made together do
not vouch for each other.

Nothing here is kept on disk. Before anybody gets a text, the ledger has that it taints, and which secrets it has; so a
session that goes on in another process is as tainted there. Earlier values are unknown there. `Chains` tells whether
other processes have written about a session since its entries were read. Any thread may use a memory.
"""

import asyncio
import hashlib
import secrets
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import TypeVar
from weakref import WeakSet, WeakValueDictionary

from licet.core.flow.indexed import Indexed
from licet.core.flow.session_knowledge import Known, Reading
from licet.core.ledger.entry import Entry, FlowFact, SecretFact
from licet.core.limits import MOST_TAINTS
from licet.core.policy.flow import SecretSource
from licet.guard.limits import MEMORIES_KEPT, SESSIONS_NOTED
from licet.guard.ports import free_after_fork

_T = TypeVar("_T")
_DROPPED = "this session was given something before, and what it knew was dropped"
_UNNOTED = "more sessions than are noted were given something: this one may be one of them"
OTHER_POLICY = "the policy of its origins was changed, and what it had read before is not known by it"


class Chains:
    """How much of a session's chains in the ledger is known: what was read, and what this process wrote after that.

    An entry of this process that is read before its writer has returned counts as read, and not a second time.
    """

    def __init__(self) -> None:
        self._read: dict[str, int] = {}  # by agent: so many entries of its chain, from the first one
        self._written: dict[str, set[tuple[str, str]]] = {}  # by agent: own entries after these, by id and kind
        self._begun: set[tuple[str, str]] = set()  # own entries that are being written

    def begin(self, entry: Entry) -> None:
        """An entry is about to be written."""
        self._begun.add((entry.id, entry.kind))

    def end(self, entry: Entry, *, is_kept: bool) -> None:
        """It is in the ledger, or nobody knows whether it is."""
        key = entry.id, entry.kind
        if key in self._begun:
            self._begun.remove(key)
            if is_kept:
                self._written.setdefault(entry.agent, set()).add(key)

    def known(self) -> tuple[dict[str, int], dict[str, int]]:
        """By agent, how many entries were read, and with them, how many are known. To be asked before the ledger is."""
        whole = dict(self._read)
        for agent, keys in self._written.items():
            if keys:
                whole[agent] = whole.get(agent, 0) + len(keys)
        return dict(self._read), whole

    def caught_up(self, lengths: Mapping[str, int]) -> None:
        """Chains of these lengths are known."""
        if self.known()[1] == lengths:  # otherwise more was written meanwhile
            self._read = dict(lengths)
            self._written.clear()

    def read(self, after: Mapping[str, int], found: Iterable[Entry]) -> None:
        """The entries after so many ones were read. If another reader was first, nothing changes."""
        if after != self._read:
            return
        for entry in found:
            key = entry.id, entry.kind
            self._read[entry.agent] = self._read.get(entry.agent, 0) + 1
            self._begun.discard(key)
            self._written.get(entry.agent, set()).discard(key)


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
        self.chains = Chains()  # of the first session of delegates alone
        self._ungiven: dict[str, None] = {}  # why it is tainted, while no entry of the ledger says that it is
        self._is_kept_tainted = False  # whether an entry says so
        self._unfinished: dict[str, None] = {}  # calls of other processes without a receipt, which may return anything
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
        self._ungiven[why] = None

    def taint(self, why: str) -> None:
        """Let origins matter from now on. Taint never goes away."""
        with self._lock:
            self._freeze()
            self._known.taint(why)
            self._noted(why)
            if self._parent is not None:  # also of one whose answer is awaited: its calls are made by the same code
                self._parent.taint(why)

    def lose(self, why: str) -> None:
        """Count as having read anything, secrets too, since nobody knows what was handed out."""
        with self._lock:
            self._freeze()
            self._known.lose(why)
            self._noted(why)
            if self._parent is not None:
                self._parent.lose(why)

    def _noted(self, why: str) -> None:
        if len(self._ungiven) < MOST_TAINTS:
            self._ungiven[why] = None
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
            if why := self.unreadable or self.unfinished:
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
                self._noted(result.reading.about or "a result")
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

    # For a session that other processes have, or had ------------------------------------------------------------------

    @property
    def first(self) -> "SessionMemory":
        """The memory of the session that is no delegate's."""
        return self if self._parent is None else self._parent.first

    def ungiven(self) -> tuple[str, ...]:
        """Why it is tainted, if the ledger has to be told; empty if an entry says that it is, or it is not."""
        with self._lock:
            return () if self.first.is_kept_tainted else tuple(self._ungiven)

    @property
    def is_kept_tainted(self) -> bool:
        """Whether an entry of the ledger says that this session is tainted."""
        return self._is_kept_tainted

    def was_kept(self, entry: Entry) -> None:
        """The ledger has an entry of this session, or of a delegate."""
        if taints(entry):
            self._is_kept_tainted = True

    def restore(
        self,
        found: Iterable[Entry],
        key: bytes | None,
        unreadable: str = "",
        *,
        is_reopened: bool = False,
        unfinished: Iterable[str] = (),
        also: Iterable[SecretSource] = (),
        why: str = "",
    ) -> None:
        """Restore taint and secrets from the entries of this session, before it is asked anything.

        Values stay unknown that another process read, if it `is_reopened`. `unfinished` are calls of other processes
        that may return anything yet, or have. `unreadable` is why this ledger never gives entries: it may have read any
        secret. `also` are secrets that entries do not name, and `why` is a taint that they do not, since they were made
        under another policy.
        """
        earlier = list(found)
        with self._lock:
            if self.is_restored:
                return
            if key is not None:
                self.key = key
            self._unfinished.update(dict.fromkeys(unfinished))
            self._take_in(earlier, also, why)
            # Also what calls are judged by that were made before: nobody was asked about them yet.
            for known in self._states():
                if unreadable:
                    known.lose(unreadable)
                if self._parent is not None:
                    self._parent.pass_on(known)  # it may have been restored after this one began
            self._is_reopened = is_reopened or bool(self._unfinished or unreadable)
            self.is_restored = True
            self._unreadable = ""

    def learn(
        self,
        found: Iterable[Entry],
        *,
        unfinished: Iterable[str] = (),
        also: Iterable[SecretSource] = (),
        why: str = "",
    ) -> None:
        """Learn what other processes have written since, and let all delegates learn it, as if they were restored."""
        later, sources, open_calls = list(found), list(also), list(unfinished)
        with self._lock:
            self._unfinished.update(dict.fromkeys(open_calls))
            self._take_in(later, sources, why)
            self._is_reopened = self._is_reopened or bool(later or open_calls)
            delegates = list(self._delegates)
        for delegate in delegates:
            delegate.learn(later, also=sources, why=why)

    def _take_in(self, found: Iterable[Entry], also: Iterable[SecretSource], why: str) -> None:
        for entry in found:
            self.was_kept(entry)
            if entry.kind == "receipt":
                self._unfinished.pop(entry.id, None)
        for known in {id(one): one for one in self._states()}.values():
            for entry in found:
                _restore(known, entry)
            known.read_secrets(also, OTHER_POLICY)
            if why:
                known.taint(why)

    def not_restored(self, why: str) -> None:
        """Say that the receipts cannot be read now. Until they can be, the session may have read anything."""
        self._unreadable = why

    @property
    def unreadable(self) -> str:
        """Why the receipts of this session, or of one above it, cannot be read now; empty if they can."""
        return self._unreadable or (self._parent.unreadable if self._parent is not None else "")

    @property
    def unfinished(self) -> str:
        """A call of another process that has no receipt yet, of this session or of one above it; empty if none has."""
        return next(iter(self._unfinished), "") or (self._parent.unfinished if self._parent is not None else "")

    def caught_up(self) -> None:
        """Say that the ledger could be read again."""
        self._unreadable = ""

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
            self.chains = Chains()
            self._unfinished.clear()
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
        other.lose(OTHER_POLICY)
    return other


def taints(entry: Entry) -> bool:
    """Whether an entry says that its session is tainted."""
    return isinstance(entry.flow, FlowFact) and (entry.flow.taints is True or bool(entry.flow.tainted_by))


def _restore(known: Known, entry: Entry) -> None:
    flow = entry.flow
    if not isinstance(flow, FlowFact):  # without `flow:`, nothing is known about what it returned
        known.lose(entry.id)
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
