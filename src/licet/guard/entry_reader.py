"""How commands read a ledger, wherever it is: in a file, or in a database of several nodes. Calls do not need it."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Protocol, Self, TypedDict, Unpack

from licet.core.ledger.entry import Checkpoint, Row, time_text

Moment = datetime | str  # a time, or its text as entries have it


class Filters(TypedDict, total=False):
    """Which calls are wanted: those that match all of these. Their time is from `since` on, and before `until`."""

    agent: str | None
    session: str | None
    tool: str | None
    since: Moment | None
    until: Moment | None


class VerdictFilters(Filters, total=False):
    """The same, also by how a call was decided."""

    verdict: str | None


_COLUMNS = ("agent", "session", "tool", "verdict")
_TESTS = {"since": "time >=", "until": "time <", **{name: f"{name} =" for name in _COLUMNS}}


def tests_of(filters: Mapping[str, object]) -> list[tuple[str, str]]:
    """What filters ask of columns: the test, such as `time >=`, and its value."""
    return [(_TESTS[name], moment_text(value)) for name, value in filters.items() if value is not None]


def moment_text(value: object) -> str:
    """A time as entries have it, or any other text."""
    return time_text(value) if isinstance(value, datetime) else str(value)


class EntryReader(Protocol):
    """A ledger as it was when it was opened, for commands: in a file, or in a database of several nodes.

    It verifies nothing. An entry of a database that has no place in the tree yet is listed and shown with the number
    0, and `entries`, `hashes` and `size` leave it out. Everything raises `LedgerUnavailable` if it cannot be read.
    """

    ledger: str  # its id
    key: str  # its public key, as the ledger itself says it
    path: str  # its file or its address, as messages show it and commands take it
    keys: str  # the path of its `….key` and `….pub`, without their endings

    def __enter__(self) -> Self: ...

    def __exit__(self, *_: object) -> None: ...

    def close(self) -> None:
        """Release the file or the connection."""

    def list(
        self,
        *,
        limit: int = 50,
        before: int | None = None,
        kind: str | None = "receipt",
        **filters: Unpack[VerdictFilters],
    ) -> Sequence[Row]:
        """Entries that match all given filters, the newest first; with `before`, only those before that number."""

    def containing(self, *texts: Sequence[str], **filters: Unpack[VerdictFilters]) -> Iterator[Row]:
        """Receipts whose body contains at least one text of each list, the newest first."""

    def counts(self, **filters: Unpack[Filters]) -> Iterator[tuple[str, str, str, int]]:
        """The number of receipts per day, agent and verdict, the newest day first."""

    def unended(self, *, limit: int = 50, **filters: Unpack[Filters]) -> tuple[Sequence[Row], int]:
        """Decisions without a receipt, the newest first, and how many entries were not searched; all if below 0."""

    def sessions(self) -> Iterator[Row]:
        """The last entry of each session, the newest first."""

    def of_session(self, agent: str, session: str) -> Iterator[Row]:
        """All entries of a session and of its delegates."""

    def unknown(self) -> tuple[str, ...]:
        """The ids of all calls that began and have no receipt, the newest first."""

    def show(self, id: str) -> Sequence[Row]:  # noqa: A002
        """The entries with an id, in order."""

    def entries(self) -> Iterator[Row]:
        """Every entry in order, a few at a time."""

    def checkpoints(self) -> Iterator[Checkpoint]:
        """Every signed checkpoint, the oldest first."""

    def hashes(self) -> Iterator[bytes]:
        """The leaves of the tree in order."""

    @property
    def size(self) -> int:
        """The number of entries."""

    def is_complete(self, first: int) -> bool:
        """Whether no entry is missing from this number to the last one."""
