"""A state: where the stores of gates are. A directory of this machine, or a database that many nodes share.

`read_state` reads one from text, such as that of `--state` or the variable `LICET_STATE`. It is never a key of a
policy: who writes a policy must not choose where its records go. Each store is opened by a method of the state.

With a database, a node keeps its own keys and the last head that it saw in a local directory: one for each database and
user, so that all policies here are one node. In a process, all stores of a node share one `Database`.
"""

import asyncio
import hashlib
import os
import shlex
import threading
from collections.abc import Awaitable, Callable
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from msgspec import Struct

from licet.assemble.limits import MOST_SECRET_SOURCES
from licet.assemble.review import state_directory, straight
from licet.core.late_pattern import late_pattern
from licet.core.ledger.entry import STATE_AGENT, STATE_SESSION
from licet.guard.ports import Budgets, Ledger, Unavailable
from licet.policy_files.policy_paths import NoHome, state_root

# Stores are imported where they are opened: a command opens some of them, and a bad command line none.
if TYPE_CHECKING:
    from licet.backends.approvals.requests import ApprovalStore
    from licet.backends.approvals.standing import LocalStanding, StoredStanding
    from licet.backends.approvals.store import SqliteApprovals
    from licet.backends.freezes import SqliteFreezes
    from licet.backends.kept_calls import SqliteKeptCalls
    from licet.backends.kv import SqliteKv
    from licet.backends.ledger.writer import SqliteLedger
    from licet.backends.postgres.database import Database
    from licet.backends.postgres.node_keys import Node
    from licet.backends.postgres.postgres_approvals import PostgresApprovals
    from licet.backends.postgres.postgres_budgets import PostgresBudgets
    from licet.backends.postgres.postgres_freezes import PostgresFreezes
    from licet.backends.postgres.postgres_kept_calls import PostgresKeptCalls
    from licet.backends.postgres.postgres_kv import PostgresKv
    from licet.backends.postgres.postgres_ledger import PostgresLedger
    from licet.backends.postgres.postgres_opening import PostgresOpening

VARIABLE = "LICET_STATE"
LEDGER, KV, BUDGETS = "ledger.sqlite", "kv.sqlite", "budgets.sqlite"  # the stores in a directory
APPROVALS, FREEZES, KEPT = "approvals.sqlite", "freezes.sqlite", "kept.sqlite"
KEPT_CALLS = b"licet kept calls"  # what the key of their seals is derived for
_SCHEMES = ("postgresql://", "postgres://")
_SCHEME = late_pattern(r"[A-Za-z][A-Za-z0-9+.-]*:/+|(?i:postgres(ql)?):")

SecretSource = Callable[[str], Awaitable[str | None]]  # finds the value of a secret by its reference


class BadState(ValueError):
    """A text that names no state. It says why, and what to write instead; it never repeats a password."""


class DirectoryState(Struct, frozen=True):
    """The stores of one machine, as files of a directory."""

    path: Path

    @property
    def shown(self) -> str:
        """For messages."""
        return str(self.path)

    @property
    def spelled(self) -> str:
        """The text from which this state can be read anywhere."""
        return str(straight(self.path))

    @property
    def directory(self) -> Path:
        """Where files of this machine alone are: keys, recordings, secrets."""
        return self.path

    @property
    def option(self) -> str:
        """The option that a command needs to find this state; empty if it looks here by default."""
        place = straight(self.path)
        try:
            found = not os.environ.get(VARIABLE) and place == state_directory(Path.cwd())
        except NoHome:
            found = False
        return "" if found else f" --state {shlex.quote(str(place))}"

    def ledger(self) -> "SqliteLedger":
        """The ledger, for gates."""
        from licet.backends.ledger.writer import SqliteLedger

        return SqliteLedger(self.path / LEDGER)

    def budgets(self, ledger: Ledger | None) -> Budgets:
        """What was spent. With the ledger, a count that is missing is made from it."""
        from licet.backends.budgets import SqliteBudgets
        from licet.backends.ledger.writer import SqliteLedger

        return SqliteBudgets(self.path / BUDGETS, ledger if isinstance(ledger, SqliteLedger) else None)

    def kv(self) -> "SqliteKv":
        """Values by key, and which sessions have ended."""
        from licet.backends.kv import SqliteKv

        return SqliteKv(self.path / KV)

    def has(self, store: str) -> bool:
        """Whether a store is there: a look at one that is not must not make it."""
        return (self.path / store).exists()

    def approvals(self) -> "SqliteApprovals":
        """Requests for approval, and their answers. Refusals name the state if a command would not find it."""
        from licet.backends.approvals.store import SqliteApprovals

        return SqliteApprovals(straight(self.path) / APPROVALS, options=self.option)

    def standing(self) -> "LocalStanding":
        """The standing approvals of deletes."""
        from licet.backends.approvals.standing import LocalStanding

        return LocalStanding(self.approvals(), straight(self.path) / LEDGER)

    def kept_calls(self, ledger: "SqliteLedger | PostgresLedger") -> "SqliteKeptCalls":
        """What became of calls with an id, sealed with a secret that the ledger of this state derives."""
        from licet.backends.kept_calls import SqliteKeptCalls

        return SqliteKeptCalls(self.path / KEPT, partial(ledger.derived, KEPT_CALLS))

    def freezes(self) -> "SqliteFreezes":
        """What stops calls, and who may let them go on."""
        from licet.backends.freezes import SqliteFreezes

        return SqliteFreezes(self.path / FREEZES)

    def opening(self) -> None:
        """There is no one step that opens a call: each file is a store of its own."""

    def opening_approvals(self) -> "SqliteApprovals":
        """The same approvals: nothing else uses them up."""
        return self.approvals()

    def with_secrets(self, source: SecretSource) -> "DirectoryState":
        """This state: it needs no password."""
        return self


class DatabaseState(Struct, frozen=True):
    """The stores of many nodes in one database, and the directory in which this node keeps what is its own."""

    address: str
    directory: Path

    @property
    def shown(self) -> str:
        """For messages: without parameters."""
        return self._opened.database.address.shown

    @property
    def spelled(self) -> str:
        """The text from which this state can be read anywhere. It never has a password."""
        return self.address

    @property
    def option(self) -> str:
        """The option that a command needs to find this state, also in another terminal. It never has a password."""
        return f" --state {shlex.quote(self.address)}"

    @property
    def database(self) -> "Database":
        """The connections of this process to the database."""
        return self._opened.database

    @property
    def node(self) -> "Node":
        """This node. Its key is made when it is first needed."""
        return self._opened.node

    def ledger(self) -> "PostgresLedger":
        """The ledger, for gates."""
        return self._opened.ledger

    def budgets(self, ledger: Ledger | None) -> Budgets:
        """What was spent."""
        return self._opened.budgets

    def kv(self) -> "PostgresKv":
        """Values by key, and which sessions have ended."""
        return self._opened.kv

    def has(self, store: str) -> bool:
        """A database has all stores."""
        return True

    def approvals(self) -> "ApprovalStore":
        """Requests for approval, and their answers."""
        return self._opened.approvals

    def standing(self) -> "StoredStanding":
        """The standing approvals of deletes."""
        return self._opened.standing

    def kept_calls(self, ledger: "LedgerStore") -> "PostgresKeptCalls":
        """What became of calls with an id; the node signs it."""
        return self._opened.kept_calls

    def freezes(self) -> "PostgresFreezes":
        """What stops calls, and who may let them go on."""
        return self._opened.freezes

    def opening(self) -> "PostgresOpening":
        """The one step in which a call is opened, with this ledger, these budgets and `opening_approvals`."""
        return self._opened.opening

    def opening_approvals(self) -> "PostgresApprovals":
        """As `approvals`, where the opening of a call uses them up."""
        return self._opened.opening_approvals

    def with_secrets(self, source: SecretSource) -> "DatabaseState":
        """This state, whose password is looked up in one more source of secrets, before those that are known."""
        opened = self._opened
        if opened.database.address.password:
            opened.sources.insert(0, source)
            del opened.sources[MOST_SECRET_SOURCES:]
        return self

    @property
    def _opened(self) -> "_Opened":
        key = self.address, str(self.directory)
        return _OPENED.get(key) or _OPENED.setdefault(key, _Opened(self.address, self.directory))


State = DirectoryState | DatabaseState
LedgerStore: TypeAlias = "SqliteLedger | PostgresLedger"
FreezeStore: TypeAlias = "SqliteFreezes | PostgresFreezes"
Place = State | Path  # code that has only a directory may give that


def state_at(place: Place) -> State:
    """A state; a path is that of a directory."""
    return DirectoryState(place) if isinstance(place, Path) else place


def is_address(text: str) -> bool:
    """Whether a text is the address of a database, and not a directory."""
    return text.startswith(_SCHEMES)


def read_state(text: str, directory: Path | None = None) -> State:
    """Read a state from text: an address, or a directory. Raises `BadState`; `NoHome` if there is no place for keys."""
    if not is_address(text):
        # An address with a slash too few names no directory either: calls would run, and no other node would know.
        if (found := _SCHEME.match(text)) is not None:
            raise BadState(f"`{found[0]}` is no state: expected a directory, or postgresql://USER@HOST/NAME")
        return DirectoryState(Path(text))
    from licet.backends.postgres.address import AddressError, read_address

    try:
        read_address(text)
    except AddressError as wrong:
        raise BadState(str(wrong)) from None
    return DatabaseState(text, directory or own_directory(text))


def environment_state() -> State | None:
    """The state that the variable `LICET_STATE` names; None if it names none."""
    text = os.environ.get(VARIABLE, "")
    return read_state(text) if text else None


def own_directory(address: str) -> Path:
    """The directory of this user for what a node keeps by itself, by the servers and the name of the database.

    Another spelling of these is another node, which has to be enrolled.
    """
    from licet.backends.postgres.address import place_of

    if not (root := state_root()):
        raise NoHome
    return Path(root) / f"node-{hashlib.sha256(place_of(address).encode()).hexdigest()[:16]}"


def close_databases() -> None:
    """Close the connections of this process. A store that is used again opens others."""
    for one in list(_OPENED.values()):
        one.close()


class _Opened:
    """What a process has open of one database, as one node. Nothing is connected until it is first used."""

    def __init__(self, address: str, directory: Path) -> None:
        from licet.backends.postgres.database import Database

        self._address, self._directory = address, directory
        self.sources: list[SecretSource] = []
        self.database = Database(address, self.secret)

    def close(self) -> None:
        if "ledger" in self.__dict__:
            self.ledger.close()
        self.database.close()

    @cached_property
    def node(self) -> "Node":
        from licet.backends.postgres.node_keys import Node

        try:
            return Node.of(self._directory)
        except OSError as wrong:
            raise Unavailable(f"the key of this node in {self._directory} cannot be used: {wrong.strerror}") from None

    @cached_property
    def ledger(self) -> "PostgresLedger":
        from licet.backends.postgres.postgres_ledger import PostgresLedger

        return PostgresLedger(self.database, self.node, self._directory, operators=self._operators)

    async def _operators(self) -> tuple[str, ...]:
        """The operators of the state, as they are pinned in the directory of this node."""
        from licet.backends.freezes import read_operators

        found = read_operators(self._directory)
        return () if found is None else found.keys

    @cached_property
    def freezes(self) -> "PostgresFreezes":
        from licet.backends.postgres.postgres_freezes import PostgresFreezes

        recorded = partial(self.ledger.entries_of, STATE_AGENT, STATE_SESSION)
        return PostgresFreezes(self.database, self.node, self.ledger.enrolled.check, self._directory, recorded)

    @cached_property
    def budgets(self) -> "PostgresBudgets":
        from licet.backends.postgres.postgres_budgets import PostgresBudgets

        return PostgresBudgets(self.database, self.node, enrolled=self.ledger.enrolled.check_ever_over)

    @cached_property
    def opening(self) -> "PostgresOpening":
        from licet.backends.postgres.postgres_opening import PostgresOpening

        return PostgresOpening(self.database, self.ledger, self.budgets, prepare=self.freezes.prepare)

    @cached_property
    def approvals(self) -> "PostgresApprovals":
        return self._approvals(leaves_use=False)

    @cached_property
    def opening_approvals(self) -> "PostgresApprovals":
        return self._approvals(leaves_use=True)

    def _approvals(self, *, leaves_use: bool) -> "PostgresApprovals":
        from licet.backends.postgres.postgres_approvals import PostgresApprovals

        ledger, options = self.ledger, f" --state {shlex.quote(self._address)}"
        return PostgresApprovals(
            self.database,
            self.node,
            ledger.enrolled.check,
            options=options,
            leaves_use=leaves_use,
            check_node=ledger.check_node,
        )

    @cached_property
    def standing(self) -> "StoredStanding":
        from licet.backends.postgres.postgres_approvals import PostgresStanding

        return PostgresStanding(self.approvals, self.ledger, self.database, self.node)

    @cached_property
    def kept_calls(self) -> "PostgresKeptCalls":
        from licet.backends.postgres.postgres_kept_calls import PostgresKeptCalls

        return PostgresKeptCalls(self.database, self.node, self.ledger.enrolled.check)

    @cached_property
    def kv(self) -> "PostgresKv":
        from licet.backends.postgres.postgres_kv import PostgresKv

        return PostgresKv(self.database)

    def secret(self, reference: str) -> str | None:
        """The password, by its reference. The loop that asks is busy meanwhile, so the sources get one of their own."""
        from licet.backends.secrets import EnvironmentSecrets

        async def found() -> str | None:
            for ask in (*self.sources, EnvironmentSecrets().get):
                if (value := await ask(reference)) is not None:
                    return value
            return None

        answers: list[str | None] = []
        errors: list[Exception] = []

        def work() -> None:
            try:
                answers.append(asyncio.run(found()))
            except Exception as wrong:  # a source of a user may raise anything
                errors.append(wrong)

        thread = threading.Thread(target=work, name="licet password")
        thread.start()
        thread.join()
        if errors:
            wrong = errors[0]
            text = str(wrong) if isinstance(wrong, Unavailable) else type(wrong).__name__
            raise Unavailable(f"the secret `{reference}`, the password of the state, cannot be read: {text}")
        return answers[0]


_OPENED: dict[tuple[str, str], _Opened] = {}
