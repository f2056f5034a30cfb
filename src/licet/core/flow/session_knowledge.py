"""What does a session know: the task in the user's words, and the results that it has read?

It is bounded: the oldest results are forgotten first, and what is forgotten is unknown. Values of secret fields are
never forgotten. Nothing here reads a file or decides about a call.
"""

from collections.abc import Iterable, Mapping

from msgspec import Struct

from licet.core.flow.indexed import Indexed, Place, Reading, Sought, Task, sought, was_read
from licet.core.flow.judgement import Found
from licet.core.flow.labels import scalars, text_of
from licet.core.flow.secret_values import SecretFound, SecretValues, Steps
from licet.core.flow.text import folded
from licet.core.flow.written_values import begins_as_path, is_own
from licet.core.limits import (
    FEW_SECRETS,
    LONG_REMEMBERED,
    LONG_UNREAD,
    MOST_FOUND,
    MOST_REMEMBERED,
    MOST_TAINTS,
    MOST_UNREAD,
    SHORTEST_SECRET,
)
from licet.core.policy.argument_ties import PATH, kind_of_name
from licet.core.policy.flow import FlowOrigin, SecretSource

__all__ = ["Found", "Known", "Reading", "Sought", "from_task", "sought", "was_read"]

_OF_GROUP: Mapping[str, FlowOrigin] = {
    "trusted": "trusted",
    "identity": "identity",
    "made": "made",
    "untrusted": "seen",
}


class Held(Struct, frozen=True):
    """What a session holds at one moment."""

    taints: tuple[str, ...]
    private: tuple[str, ...]
    sources: tuple[SecretSource, ...]
    unscanned: tuple[Indexed, ...]
    results: tuple[Indexed, ...]
    secrets: Mapping[str, SecretFound]
    lost: tuple[str, ...]
    read_in: tuple[str, ...]  # of each source, where it was read


class Known:
    """What one session knows. `most` is how many characters of results it remembers."""

    def __init__(self, most: int = MOST_REMEMBERED) -> None:
        self._most = most
        self._turns: tuple[str, ...] = ()
        self._task = Task()
        self._taints: dict[str, None] = {}
        self._sources: dict[int, SecretSource] = {}  # the secret sources that were read, each once
        self._read_in: dict[int, str] = {}  # the receipt of the first result with such a secret, or a reason
        self._private: dict[str, None] = {}
        self._lost: dict[str, None] = {}  # why it is not known what it has read
        self._unscanned: list[Indexed] = []  # those that may taint, or hold secrets, and were not looked at yet
        self._unread: list[Indexed] = []  # those whose text was not taken out yet
        self._unread_size = 0
        self._results: list[Indexed] = []
        self._size = 0  # of their text
        self._secrets = SecretValues()

    # What it is told

    def say(self, text: str) -> None:
        """Add a turn of the user to the task. Only the host may call this."""
        if text:
            self._turns = (*self._turns, text)
            self._task = Task("\n".join(self._turns), self._turns)

    def taint(self, why: str) -> None:
        """Taint the session for a reason that is no result, such as a resumed conversation."""
        if why in self._taints or len(self._taints) < MOST_TAINTS:
            self._taints[why] = None

    def lose(self, why: str) -> None:
        """Say that nobody knows what it has read: untrusted text, and whatever a policy calls secret."""
        self.taint(why)
        if len(self._lost) < MOST_TAINTS:
            self._lost[why] = None

    def suppose(self, sources: Iterable[SecretSource]) -> None:
        """Count all secret sources of a policy as read, and something private, if it is not known what was read."""
        for why in [*self._lost][:1]:
            self.read_secrets(sources, why)
            self.read_private(why)

    def read_secrets(self, sources: Iterable[SecretSource], why: str = "") -> None:
        """Say that secret sources were read before, whose values are not known any more."""
        for source in sources:
            if source not in self._sources.values():
                self._read_in[len(self._sources)] = why
                self._sources[len(self._sources)] = source

    def read_private(self, why: str) -> None:
        """Say that something private was read, in a workspace without labels."""
        if len(self._private) < MOST_TAINTS:
            self._private[why] = None

    def remember(self, reading: Reading) -> None:
        """Keep a result that is handed over. Its text is taken out when a question comes."""
        self.keep(Indexed(reading))

    def keep(self, result: Indexed) -> None:
        """Keep a result that others may have, too."""
        self.hear_of(result)
        self._unread.append(result)
        self._unread_size += result.reading.size

    def hear_of(self, result: Indexed) -> None:
        """Be tainted by a result, and have read the secrets in it, without knowing its text."""
        self._unscanned.append(result)

    def shed(self) -> None:
        """Forget the oldest text that was not taken out yet, as far as it is too much; never one with secrets.

        What taints as everybody knows, and has no secrets, needs no look.
        """
        if len(self._unread) > MOST_UNREAD or self._unread_size > self._most:
            kept = []
            number = len(self._unread)
            for result in self._unread:
                is_much = number > MOST_UNREAD or self._unread_size > self._most
                if is_much and not result.reading.secret:
                    number -= 1
                    self._unread_size -= result.reading.size
                else:
                    kept.append(result)
            self._unread = kept
        if len(self._unscanned) > MOST_UNREAD:
            left, self._unscanned = self._unscanned, []
            for result in left:
                if result.reading.is_untrusted and not (result.reading.secret or result.reading.private):
                    self.taint(_name(result.reading))
                else:
                    self._unscanned.append(result)

    def child(self) -> "Known":
        """What a delegate begins with: all of this. What it reads stays its own until `absorb`."""
        other = Known(self._most)
        for name in ("_turns", "_task", "_unread_size", "_size"):
            setattr(other, name, getattr(self, name))
        for name in (
            "_taints",
            "_sources",
            "_read_in",
            "_private",
            "_lost",
            "_results",
            "_secrets",
            "_unscanned",
            "_unread",
        ):
            setattr(other, name, getattr(self, name).copy())
        return other

    @property
    def held(self) -> "Held":
        """All of it as it is, with nothing looked at."""
        return Held(
            tuple(self._taints),
            tuple(self._private),
            tuple(self._sources.values()),
            tuple(self._unscanned),
            (*self._results, *self._unread),
            dict(self._secrets.places),
            tuple(self._lost),
            tuple(self._read_in.values()),
        )

    def inherit(self, other: "Held") -> None:
        """Be as tainted as another session is, with the secrets that it has read."""
        for why in other.taints:
            self.taint(why)
        for why in other.private:
            self.read_private(why)
        for why in other.lost:
            self.lose(why)
        for source, where in zip(other.sources, other.read_in, strict=True):
            self.read_secrets((source,), where)
        mine = {id(one) for one in self._unscanned}
        self._unscanned += [one for one in other.unscanned if id(one) not in mine]

    def absorb(self, child: "Known") -> None:
        """Take in what a delegate has read, when its answer is handed back. What it was told stays its own."""
        held, mine = child.held, {id(one) for one in (*self._results, *self._unread)}
        self.inherit(held)
        for result in held.results:
            if id(result) not in mine:
                self._unread.append(result)
                self._unread_size += result.reading.size
        for value, place in held.secrets.items():
            self._keep_secret(value, place)

    def without_results(self) -> "Known":
        """The same with no value that an argument could come from: its task, its taint, and its secrets."""
        other = Known(self._most)
        other._turns, other._task = self._turns, self._task
        other.inherit(self.held)
        other._secrets = self._secrets.copy()
        # Secret values that were not taken out yet are still in there. Such a result is remembered until they are.
        other._unread = [result for result in self._unread if result.reading.secret]
        other._unread_size = sum(result.reading.size for result in other._unread)
        return other

    def index(self) -> None:
        """Take the text out of what was handed over, which others share that know of it, and nothing else."""
        for result in self._unread:
            result.prepare()
        for result in self._unscanned:
            result.look()

    def read_indexed(self) -> None:
        """Remember what is indexed, and forget what is too much. This is short."""
        unscanned, self._unscanned = self._unscanned, [one for one in self._unscanned if one.is_looked_at]
        self._scan()
        self._unscanned = [one for one in unscanned if not one.is_looked_at]
        self._remember(next((at for at, one in enumerate(self._unread) if not one.is_indexed), len(self._unread)))

    @property
    def is_behind(self) -> bool:
        """Whether so much was handed over since the last question that its text should be taken out."""
        waiting = self._unscanned[:MOST_UNREAD]
        return (
            max(len(self._unread), len(waiting)) >= MOST_UNREAD
            or max(self._unread_size, sum(one.reading.size for one in waiting)) > self._most
        )

    @property
    def is_long(self) -> bool:
        """Whether a question may take longer than an event loop should wait."""
        return (
            self._unread_size > LONG_UNREAD
            or self._size > LONG_REMEMBERED
            or len(self._secrets.places) > FEW_SECRETS
            or sum(one.reading.size for one in self._unscanned) > LONG_UNREAD
            or len(self._task.text) > LONG_UNREAD
        )

    @property
    def has_read(self) -> bool:
        """Whether it was handed anything, or may have been."""
        return any((self._taints, self._sources, self._private, self._unscanned, self._unread, self._results))

    # What it is asked

    @property
    def task(self) -> str:
        """What the user said, turn by turn."""
        return self._task.text

    @property
    def tainted_by(self) -> tuple[str, ...]:
        """The first results with untrusted text, by receipt, and other reasons; empty if nothing taints it."""
        self._scan()
        return tuple(self._taints)

    @property
    def tainted(self) -> bool:
        """Whether anybody but the user may have spoken to the model."""
        return bool(self.tainted_by)

    @property
    def secrets_read(self) -> tuple[SecretSource, ...]:
        """The secret sources that it has read from."""
        self._scan()
        return tuple(self._sources.values())

    @property
    def secrets_read_in(self) -> tuple[str, ...]:
        """Of each of these sources, the receipt of the first result with such a secret, or why it counts as read."""
        self._scan()
        return tuple(self._read_in.values())

    @property
    def task_words(self) -> frozenset[str]:
        """The words of the task in lower case."""
        return self._task.words

    @property
    def private_by(self) -> tuple[str, ...]:
        """The first private results of a workspace without labels."""
        self._scan()
        return tuple(self._private)

    @property
    def results(self) -> tuple[Indexed, ...]:
        """The results that it remembers, the oldest first."""
        self._read()
        return tuple(self._results)

    @property
    def secret_values(self) -> Mapping[str, SecretFound]:
        """The secret values that it has read, case folded, and where."""
        self._read()
        return self._secrets.places

    @property
    def is_full_of_secrets(self) -> bool:
        """Whether secret values alone fill the memory: then further ones are not known, and nothing may carry them."""
        self._read()
        return self._secrets.size >= self._most

    def in_task(self, name: str, value: object) -> bool:
        """Whether a value of an argument stands in the task: whole, or as a path by its folder and its name."""
        is_path = kind_of_name(name) == PATH or begins_as_path(text_of(value).strip())
        return self._task.has_all_of(value) if is_path else self._task.has(sought(value))

    def stands_in_task(self, one: Sought | None) -> bool:
        """Whether a value stands whole in the task."""
        return self._task.has(one)

    def has(self, one: Sought | None) -> bool:
        """Whether a value stands in the task or in any result, whatever its label is."""
        if one is None:
            return False
        self._read()
        return self._task.has(one) or any(result.has(one) for result in self._results)

    def origins_of(self, one: Sought | None, of: tuple[str, ...] = (), own: tuple[str, ...] = ()) -> tuple[Found, ...]:
        """Every origin of a value, each with its first place in a result. None is unknown, and so is what is nowhere.

        `of` are the fields, as `tool:field`, that may give it besides the task; `own` the domains whose addresses
        count as trusted if a service vouches for them.
        """
        if one is None:
            return (Found("unknown"),)
        self._read()
        found: dict[Found, None] = {}
        if self._task.has(one):
            found[Found("task")] = None
        is_ours = "@" in one.text and bool(own) and is_own(one.text, own)
        for result in self._results:
            for origin, place in self._origins_in(result, one, of, is_ours).items():
                label = "untrusted" if place.group == "untrusted" else "ack" if place.group == "made" else place.group
                found[Found(origin, result.reading.receipt, result.reading.tool, place.pointer, label)] = None
        return _few(tuple(found)) or (Found("unknown"),)

    def _origins_in(self, result: Indexed, one: Sought, of: tuple[str, ...], is_ours: bool) -> dict[FlowOrigin, Place]:
        origins: dict[FlowOrigin, Place] = {}
        for name in result.groups:
            origin: FlowOrigin = "trusted" if is_ours and name == "identity" else _OF_GROUP[name]
            for place in result.find_in(name, one):
                if of and not _is_tied(result.reading.tool, place.field, of):
                    continue
                origins.setdefault(origin, place)
                if result.reading.from_task:
                    origins.setdefault("asked", place)
                named, asked = result.records_of_task(self._task)
                if place.record in named:
                    origins.setdefault("named", place)
                if place.record in asked:
                    origins.setdefault("asked", place)
                if not (named or asked) or {"named", "asked"} <= origins.keys():
                    break  # no further place has another origin
        return origins

    def secrets_in(self, text: str, steps: Steps | None = None) -> SecretFound | None:
        """The first secret value that stands in a text and not in the task; None if there is none.

        `steps` are for all searches of one call; `TooManySecrets` is raised when none are left.
        """
        self._read()
        if not self._secrets.places:
            return None
        left = Steps() if steps is None else steps
        for value in self._secrets.found_in(folded(text), left):
            left.spend(len(self._task.text) // SHORTEST_SECRET)
            if not self._task.has(Sought(value, True)):
                return self._secrets.places[value]
        return None

    def record_of(self, found: Found) -> str:
        """The record that a value was found in, for a person to read; empty if it is forgotten."""
        for result in self._results:
            if found.receipt == result.reading.receipt and found.tool == result.reading.tool:
                return result.record_at(found.pointer)
        return ""

    # How it remembers

    def _scan(self) -> None:
        """Look at what was handed over, as far as taint and secret sources need it."""
        unscanned, self._unscanned = self._unscanned, []
        for result in unscanned:
            reading = result.reading
            if len(self._taints) < MOST_TAINTS and result.is_untrusted:
                self.taint(_name(reading))
            if reading.private:
                self.read_private(_name(reading))
            self.read_secrets(result.secrets_read, _name(reading))

    def _read(self) -> None:
        """Take the text out of what was handed over."""
        self.index()  # before the scan, which then has less to look at
        self._scan()
        if self._unread:
            self._remember(len(self._unread))

    def _remember(self, number: int) -> None:
        """Remember the first so many of what was handed over."""
        for result in self._unread[:number]:
            for value, pointer in result.secret_values.items():
                self._keep_secret(value, SecretFound(result.reading.receipt, result.reading.tool, pointer))
            self._results.append(result)
            self._size += result.size
            self._unread_size -= result.reading.size
        del self._unread[:number]
        self._forget()

    def _keep_secret(self, value: str, place: SecretFound) -> None:
        if len(value) >= SHORTEST_SECRET and self._secrets.size < self._most:
            self._secrets.add(value, place)

    def _forget(self) -> None:
        """Forget the oldest results until the rest fits; never a secret value."""
        forgotten = 0
        for result in self._results:
            if self._size + self._secrets.size <= self._most:
                break
            self._size -= result.size
            forgotten += 1
        del self._results[:forgotten]


def from_task(arguments: Mapping[str, object], known: Known) -> bool:
    """Whether a call took all its arguments from the task. One without arguments took none."""
    values = [(name, value) for name in arguments for _, value in scalars(arguments[name])]
    given = [(name, value) for name, value in values if not isinstance(value, bool) and value != ""]
    return bool(given) and all(known.in_task(name, value) for name, value in given)


def _name(reading: Reading) -> str:
    return reading.receipt or reading.about or reading.tool or "a result"


def _is_tied(tool: str, field: str, of: tuple[str, ...]) -> bool:
    """Whether a field is one of those that give such ids, or inside one."""
    for one in of:
        of_tool, colon, of_field = one.partition(":")
        if of_tool == tool and (not colon or field == of_field or field.startswith(f"{of_field}/")):
            return True
    return False


def _few(found: tuple[Found, ...]) -> tuple[Found, ...]:
    """At most so many places as a person reads, with the first place of each origin among them."""
    if len(found) <= MOST_FOUND:
        return found
    first = {one.origin: one for one in reversed(found)}
    rest = [one for one in found if first[one.origin] is not one]
    kept = {id(one) for one in (*first.values(), *rest[: MOST_FOUND - len(first)])}
    return tuple(one for one in found if id(one) in kept)
