"""What comes of holding a ledger to what it says of itself: the first thing that is wrong, and what is proven.

Entries of a ledger, one after the other: whether each is what was hashed, says what it is searched by, and follows.

Whoever looks at a million of them cannot read each word by word. Most are like one before them but for a few words:
whether one is, and follows, is seen at a glance. What they are held to as a whole (heads, in `verify`) is told of
their hashes.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Literal, NamedTuple, Protocol

from licet.core.ledger.entry import Row, Tail, canonical_text, check_entry, quoted
from licet.core.ledger.merkle import leaf_hash

Kind = Literal[
    "edited",  # the bytes of an entry are not those that were hashed, or are no entry
    "column",  # what is searched for is not what the entry says
    "missing",  # a number is left out
    "moved",  # an entry stands where it was not written, once more or in another order
    "foreign",  # an entry or a head of another ledger
    "chain",  # an entry does not follow the one before it in its session
    "root",  # some entry of a range is not the one that was signed
    "truncated",  # a head has signed more entries than there are
    "key",  # a head that another key has signed
    "signature",  # a head that nobody has signed
    "head",  # a head that is none
    "unsigned",  # more entries than could be waiting for a head have none
    "clock",  # the time went back
]


class Finding(NamedTuple):
    """The first thing that is wrong: at which entry (or up to which), and how."""

    kind: Kind
    number: int
    text: str
    id: str = ""
    until: int = 0  # the last entry of a range, where only a range is known

    def __str__(self) -> str:
        where = f"entries {self.number} to {self.until}" if self.until > self.number else f"entry {self.number}"
        return f"{where}{f' ({self.id})' if self.id else ''}: {self.text}"


class Outcome(NamedTuple):
    """What came of a verification."""

    entries: int
    heads: int
    signed: int  # entries that the last head speaks for; those after it are linked, and not signed yet
    ledger: str
    root: str  # of all entries
    finding: Finding | None
    # What the next entry follows, for whoever keeps it beside the entries.
    frontier: bytes = b""
    recorded: str = ""
    ends: Mapping[tuple[str, str], Tail] = {}  # of the chain of each agent and session
    tagged: bool = False  # whether the key was there to tell that its holder wrote those after the last head too

    @property
    def ok(self) -> bool:
        """Whether nothing is wrong."""
        return self.finding is None


def both(doubt: Finding, finding: Finding) -> Finding:
    """What a head and a chain tell together: the part of the range that both speak of."""
    first = max(doubt.number, finding.number)
    last = min(doubt.until, max(finding.number, finding.until))
    return finding._replace(number=first, until=last) if first <= last else doubt


NEVER = 1 << 63
_MOST_KINDS = 4096
_LEAVES = 512  # that wait for their place in the tree
_AT_ID, _TIME = ',"format":1,"id":', len("2026-01-01T00:00:00.000000Z")
_SEARCHED = ("id", "kind", "agent", "session", "sequence", "tool", "verdict", "time")
_LAST = ("tool", "tool_digest", "truncated", "verdict")
_FORMAT_ID = _AT_ID.encode()
# The fields of a `Row`: to make one of each of a million tuples takes a while.
Columns = tuple[int, str, str, str, str, int, str, str, str, bytes, bytes]
Session = tuple[str, str]  # the agent, and the name


class Held(Protocol):
    """What the entries are held to as a whole."""

    ledger: str  # its name, once an entry or a head has told it
    until: int  # the size at which it has something to say; `NEVER` if nobody will
    signed: int  # entries that are proven so far
    doubt: Finding | None  # a range in which something is wrong; a chain may still say which entry it is

    def grown(self, leaves: list[bytes], recorded: bytes) -> Finding | None:
        """Take the hashes of the next entries, and when the last was recorded."""


def _in_session(session: str) -> str:
    return f',"session":{quoted(session)},"time":"'


class Chain:
    """The end of one session's chain, and how the next entry names it."""

    __slots__ = ("number", "previous", "sequence")

    def __init__(self) -> None:
        self.sequence = self.number = 0
        self.previous = "null"

    @property
    def tail(self) -> Tail:
        return Tail(self.sequence, bytes.fromhex(self.previous[len('"sha256:') : -1]), self.number)


# What entries of one tool, session and outcome have in common: the chain, the first bytes, the words between id,
# number, parent, previous, recorded; sequence, time, and the end. Then how far from its end the time of recording is.
_Like = tuple[Chain, bytes, str, str, str, str, str, int]


class Linked:
    """Entries one after the other, and the end of each session's chain."""

    def __init__(self, held: Held, before: int = 0) -> None:
        """Begin behind so many entries.

        Behind the first, a session may have begun earlier: where it goes on is then taken from its first entry here.
        """
        self.size = self._before = before
        self.tails: dict[Session, Chain] = {}
        self.begun: dict[Session, tuple[int, str]] = {}  # what is taken so: the number in it, and its hash as JSON
        self.recorded = self.since = b""  # when the last entry was, and the first
        self.clock: Finding | None = None  # where the time went back first
        self._held = held
        self._like: dict[tuple[str, str, str, str, str], _Like] = {}
        self._shapes: dict[tuple[str, str, str, str], _Like] = {}  # the same in any session

    def all(self, entries: Iterable[Columns]) -> Finding | None:
        """Every entry; the first thing that is wrong, with one of them or with what they are held to.

        Any that is not seen at a glance to be right is read word by word, and so is each that no head will speak for:
        whoever has no key could have written it. A million times: what is short here is quick.
        """
        like_of, leaves = self._like.get, list[bytes]()
        until, last = self._held.until, self.recorded
        for expected, row in enumerate(entries, self.size + 1):
            number, name, kind, agent, session, sequence, tool, verdict, time, hashed, body = row
            at = -1
            try:
                like = like_of((kind, agent, session, tool, verdict)) or self._like_elsewhere(row)
                if like is not None and number == expected and until != NEVER:
                    chain, opening, kept, parent, reason, within, closing, behind = like
                    middle = f"{_AT_ID}{quoted(name)}{kept}{number}{parent}{chain.previous}{reason}".encode()
                    if (
                        sequence == chain.sequence + 1
                        and body.startswith(opening)
                        and body.endswith(f',"sequence":{sequence}{within}{time}{closing}'.encode())
                        and leaf_hash(body) == hashed
                    ):
                        at = len(body) - behind
                        if not body.endswith(middle, 0, at):
                            at = self._found(row, like, middle)
            except (AttributeError, TypeError, ValueError):  # a column or a body that holds anything else
                at = -1
            if at < 0:
                self._grown(leaves, last)
                if (finding := self._take(Row(*row))) is not None:
                    return finding
                until, last = self._held.until, self.recorded
                continue
            recorded = body[at : at + _TIME]
            if recorded < last:
                self._went_back(number, name, last, recorded)
            last = recorded
            chain.sequence, chain.number, chain.previous = sequence, number, f'"sha256:{hashed.hex()}"'
            leaves.append(hashed)
            if number >= until or len(leaves) == _LEAVES:
                if (wrong := self._grown(leaves, last)) is not None:
                    return wrong
                until = self._held.until
        return self._grown(leaves, last)

    def _grown(self, leaves: list[bytes], recorded: bytes) -> Finding | None:
        """Hand on the hashes that wait."""
        self.size, self.recorded = self.size + len(leaves), recorded
        finding = self._held.grown(leaves, recorded)
        leaves.clear()
        return finding

    def _like_elsewhere(self, row: Columns) -> _Like | None:
        """What an entry has in common with those of other sessions, if it is the first of its own."""
        _, _, kind, agent, session, _, tool, verdict, _, _, _ = row
        shape = self._shapes.get((kind, agent, tool, verdict))
        if shape is None:
            return None
        _, opening, kept, parent, reason, _, closing, behind = shape
        chain = self.tails.setdefault((agent, session), Chain())
        like = chain, opening, kept, parent, reason, _in_session(session), closing, behind
        self._remember((kind, agent, session, tool, verdict), like)
        return like

    def _remember(self, key: tuple[str, str, str, str, str], like: _Like) -> None:
        if len(self._like) >= _MOST_KINDS:
            self._like.clear()
        if len(self._shapes) >= _MOST_KINDS:
            self._shapes.clear()
        kind, agent, _, tool, verdict = key
        self._like[key] = self._shapes[kind, agent, tool, verdict] = like

    def _found(self, row: Columns, like: _Like, middle: bytes) -> int:
        """Where an entry has these words, and says next when it was recorded; remembered, for most say it there.

        Strings in JSON have their quotes escaped: what has bare quotes can only stand where the keys are.
        """
        _, _, kind, agent, session, _, tool, verdict, _, _, body = row
        at = body.find(_FORMAT_ID)
        if not body.startswith(middle, at):
            return -1
        at += len(middle)
        self._remember((kind, agent, session, tool, verdict), (*like[:7], len(body) - at))
        return at

    def _take(self, row: Row) -> Finding | None:
        """One more entry, read word by word; what is wrong with it, or with what it is held to."""
        try:
            finding = self._standing(row)
        except (AttributeError, TypeError, ValueError) as wrong:  # no entry, or a column that holds anything else
            finding = self._unreadable(row, wrong)
        if finding is not None:
            return finding if self._held.doubt is None else both(self._held.doubt, finding)
        return self._grown([row.hash], self.recorded)

    def _standing(self, row: Row) -> Finding | None:
        """Whether a row stands in its place, is what was hashed, and follows the last one of its session."""
        number, name, hashed, body = row.number, row.id, row.hash, row.body
        expected = self.size + 1
        if number > expected:
            text = f"after entry {expected - 1} comes entry {number}"
            return Finding("missing", expected, text, until=number - 1)
        if number < expected:
            return Finding("moved", number, f"it stands where entry {expected} should", name)
        if leaf_hash(body) != hashed:
            return Finding("edited", number, "its bytes are not those that were hashed", name)
        return self._read(row, self.tails.get((row.agent, row.session)) or Chain())

    def _went_back(self, number: int, name: str, last: bytes, recorded: bytes) -> None:
        """Note where the clock went back first."""
        if self.clock is None:
            before, after = (time.decode(errors="replace") for time in (last, recorded))  # half a letter may be left
            self.clock = Finding("clock", number, f"the time went back from {before} to {after}", name)

    def _read(self, row: Row, chain: Chain) -> Finding | None:
        """Read an entry word by word, and remember what others of its kind will have in common with it."""
        entry = check_entry(row.body)
        self._held.ledger = self._held.ledger or entry["ledger"]  # no head has told it yet
        if (finding := self._misfit(row, entry)) is not None:
            return finding
        if self._before and not chain.sequence and row.sequence > 1:
            chain.sequence, chain.previous = row.sequence - 1, canonical_text(entry["previous"]).decode()
            self.begun[row.agent, row.session] = chain.sequence, chain.previous
        if row.sequence != chain.sequence + 1 or canonical_text(entry["previous"]) != chain.previous.encode():
            return self._broken(row, chain)
        names = "kind", "ledger", "manifest"
        kept = "".join(f',"{name}":{quoted(entry[name])}' for name in names)
        rest = "".join(f',"{name}":{canonical_text(entry[name]).decode()}' for name in _LAST)
        like = (
            chain,
            f'{{"agent":{quoted(entry["agent"])},"approvals":'.encode(),
            f'{kept},"number":',
            f',"parent":{canonical_text(entry["parent"]).decode()},"previous":',
            f',"reason":{quoted(entry["reason"])},"recorded":"',
            _in_session(entry["session"]),
            f'"{rest}}}',
            0,
        )
        self._remember((row.kind, row.agent, row.session, row.tool, row.verdict), like)
        recorded = entry["recorded"].encode()
        if recorded < self.recorded:
            self._went_back(row.number, row.id, self.recorded, recorded)
        self.recorded = recorded
        if self.size == self._before:
            self.since = recorded
        chain.sequence, chain.number, chain.previous = row.sequence, row.number, f'"sha256:{row.hash.hex()}"'
        self.tails[row.agent, row.session] = chain
        return None

    def _unreadable(self, row: Row, wrong: Exception) -> Finding:
        """What is wrong with a row that could not even be looked at."""
        try:
            finding = self._misfit(row, check_entry(row.body))
        except (TypeError, ValueError) as also:
            return Finding("edited", row.number, str(also), row.id)
        return finding or Finding("edited", row.number, str(wrong), row.id)

    def _misfit(self, row: Row, entry: dict[str, Any]) -> Finding | None:
        """Say what of a row does not fit what its body says."""
        if entry["ledger"] != self._held.ledger:
            text = f"it was written to the ledger {entry['ledger']}, and this one is {self._held.ledger}"
            return Finding("foreign", row.number, text, row.id)
        if entry["number"] != row.number:
            return Finding("moved", row.number, f"it was written as entry {entry['number']}", row.id)
        for name in _SEARCHED:
            if (column := getattr(row, name)) != entry[name]:
                text = f"it is searched for by {name} `{column}`, and says `{entry[name]}`"
                return Finding("column", row.number, text, row.id)
        return None

    def _broken(self, row: Row, tail: Chain) -> Finding:
        """Where a chain broke: at one entry, or in the range that nothing vouches for."""
        if row.sequence != tail.sequence + 1:
            first = max(self._held.signed, tail.number) + 1  # up to there nothing is missing
            text = f"{row.id} is number {row.sequence} of its session, after number {tail.sequence}"
            return Finding("chain", first, text, row.id if first == row.number else "", row.number)
        if tail.number > self._held.signed:
            text = f"entry {row.number} does not follow entry {tail.number} of its session: one of them was changed"
            return Finding("chain", tail.number, text, until=row.number)
        before = f"entry {tail.number} of its session" if tail.number else "the start of its session"
        return Finding("chain", row.number, f"it does not follow {before}", row.id)
