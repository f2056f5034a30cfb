"""What comes of holding a ledger to what it says of itself: the first thing that is wrong, and what is proven."""

from collections.abc import Mapping
from typing import Literal, NamedTuple

from licet.core.receipt import Tail

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
