"""What does a session remember of what its calls, and its host, have handed out?

Each session under a policy with `flow:` has one memory, and delegates have one of their own that begins with that of
their parent. Only the host adds to the task. Results are added when they are handed to the caller, by
`licet.guard.flow_steps`. A call is judged by what had been handed out when it was made, so that calls made together do
not vouch for each other.

Nothing here is kept on disk. A session that is opened again gets its taint and its secrets back from its receipts, and
earlier values are unknown. Any thread may use a memory.
"""

import secrets
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar
from weakref import WeakSet, WeakValueDictionary

from licet.core.flow.known import Known, Reading
from licet.core.ledger.entry import Entry, FlowFact, SecretFact
from licet.core.policy.flow import SecretSource
from licet.guard.limits import MEMORIES_KEPT
from licet.guard.ports import free_after_fork

_T = TypeVar("_T")


class Moment:
    """The moment at which a call was made: it is judged by what its session knew then."""

    __slots__ = ("__weakref__", "known")

    def __init__(self) -> None:
        self.known: Known | None = None  # None: nothing was handed out since


class SessionMemory:
    """The memory of one session."""

    def __init__(self, parent: "SessionMemory | None" = None) -> None:
        self._lock = free_after_fork(threading.RLock())
        self._moments: WeakSet[Moment] = WeakSet()
        self._turns: list[str] = []
        self._parent = parent
        self._is_held = False  # whether what a delegate reads stays its own, until its answer is handed back
        self.is_restored = False  # whether the receipts of an earlier process have been read
        self.is_reopened = False  # whether there were some: their values are unknown
        self.key = secrets.token_bytes(32)  # of digests, until the ledger has given one
        self._known = Known()
        if parent is not None:
            self._known, self._turns = parent.for_delegate()

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

    def taint(self, why: str) -> None:
        """Let origins matter from now on. Taint never goes away."""
        with self._lock:
            self._freeze()
            self._known.taint(why)
            if self._parent is not None and not self._is_held:
                self._parent.taint(why)

    # For calls -------------------------------------------------------------------------------------------------------

    def moment(self) -> Moment:
        """The present moment, for a call that is made now."""
        moment = Moment()
        with self._lock:
            self._moments.add(moment)
        return moment

    def ask(self, moment: Moment | None, question: Callable[[Known], _T]) -> _T:
        """Ask what was known at a moment. A moment is asked once."""
        with self._lock:
            known = self._known
            if moment is not None:
                self._moments.discard(moment)
                known = known if moment.known is None else moment.known
            return question(known)

    def together(self) -> Moment:
        """The present moment, for calls that are made together: the last may start after the first has ended."""
        moment = self.moment()
        with self._lock:
            moment.known = self._known.child()
        return moment

    def remember(self, reading: Reading) -> None:
        """Remember what is handed out now."""
        with self._lock:
            self._freeze()
            self._known.remember(reading)
            if self._parent is not None and not self._is_held:
                self._parent.remember(reading)

    def _freeze(self) -> None:
        """Keep what was known until now for the calls that were made before, and are not judged yet."""
        waiting = [one for one in self._moments if one.known is None]
        if waiting:
            before = self._known.child()
            for moment in waiting:
                moment.known = before

    # For delegates ---------------------------------------------------------------------------------------------------

    def for_delegate(self) -> tuple[Known, list[str]]:
        """What a delegate begins with, and the turns of the task."""
        with self._lock:
            return self._known.child(), [*self._turns]

    def hold(self) -> None:
        """Keep what this delegate reads from its parent, until `hand_back`."""
        self._is_held = True

    def hand_back(self) -> None:
        """Let the parent know all that this delegate has read: its answer may repeat any of it."""
        with self._lock:
            if self._parent is not None and self._is_held:
                self._is_held = False
                self._parent.absorb(self._known)

    def absorb(self, known: Known) -> None:
        """Take in what a delegate has read."""
        with self._lock:  # always that of a delegate first, then that of its parent
            self._freeze()
            self._known.absorb(known)
            if self._parent is not None and not self._is_held:
                self._parent.absorb(known)

    # For a session that is opened again ------------------------------------------------------------------------------

    def restore(self, earlier: Iterable[Entry], key: bytes | None, unreadable: str = "") -> None:
        """Restore taint and secrets from the receipts of this session, before it is asked anything.

        Their values stay unknown. `unreadable` is why they could not be read: then it counts as tainted.
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
                if unreadable:
                    known.taint(unreadable)
                if self._parent is not None:
                    self._parent.pass_on(known)  # it may have been restored after this one began
            self.is_reopened = bool(found or unreadable)
            self.is_restored = True

    def _states(self) -> Iterator[Known]:
        yield self._known
        yield from (one.known for one in self._moments if one.known is not None)

    def pass_on(self, known: Known) -> None:
        """Taint what a delegate knows as this session is tainted, with its secrets."""
        with self._lock:
            for why in self._known.tainted_by:
                known.taint(why)
            for why in self._known.private_by:
                known.read_private(why)
            known.read_secrets(self._known.secrets_read)

    def forget(self) -> None:
        """Forget all results, since calls were made that nobody watched. The next call reads the receipts."""
        with self._lock:
            self._known = Known()
            for turn in self._turns:
                self._known.say(turn)
            self._moments.clear()
            self.is_restored = False


class Memories:
    """The memories of the sessions of one gate. Those of sessions in use, and of some that were used last, are kept."""

    def __init__(self) -> None:
        self._lock = free_after_fork(threading.Lock())
        self._live: WeakValueDictionary[tuple[str, str], SessionMemory] = WeakValueDictionary()
        self._last: OrderedDict[tuple[str, str], SessionMemory] = OrderedDict()

    def of(self, name: tuple[str, str]) -> SessionMemory:
        """The memory of a session, which is made if there is none."""
        with self._lock:
            memory = self._live.get(name)
            if memory is None:
                memory = self._live[name] = SessionMemory()
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

    def forget(self) -> None:
        """Forget all results of all sessions, when a policy without `flow:` takes over."""
        with self._lock:
            live = list(self._live.values())
        for memory in live:
            memory.forget()


def _restore(known: Known, entry: Entry) -> None:
    flow = entry.flow
    if not isinstance(flow, FlowFact):
        known.taint(entry.id)  # made without `flow:`, so nothing is known about what it returned
        return
    for why in flow.tainted_by:
        known.taint(why)
    if flow.taints is True or entry.kind == "decision":  # without a receipt, it may have returned anything
        known.taint(entry.id)
    if flow.private is True:
        known.read_private(entry.id)
    if isinstance(flow.secrets, tuple):
        known.read_secrets(map(_source, flow.secrets))


def _source(fact: SecretFact) -> SecretSource:
    return SecretSource(
        tool=fact.tool if isinstance(fact.tool, str) else "",
        fields=fact.fields if isinstance(fact.fields, tuple) else (),
        use=fact.use if isinstance(fact.use, str) else "",
        readers=fact.readers,
    )
