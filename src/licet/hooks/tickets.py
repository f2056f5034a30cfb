"""Tickets for shell lines: what a hook has decided, for the process that runs the line a moment later.

A ticket is a file in licet's own state, which nothing behind walls reads or writes. Its id is a random number that
stands in the rewritten line beside the text. It serves once: who redeems it renames the file, which one process alone
can do. A crash leaves a ticket that nobody redeems, or one that counts as used; in both cases nothing runs.
"""

import os
import secrets
import stat
import time
from collections.abc import Iterator
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import Literal

import msgspec
from msgspec import Struct

from licet.core.late_pattern import late_pattern
from licet.errors import LicetError
from licet.hooks.limits import MOST_TICKET_BYTES, MOST_TICKETS, TICKET_SECONDS
from licet.hooks.policy_choice import hooks_directory
from licet.own_files import open_regular, read_most
from licet.policy_files.policy_paths import NoHome

Keeps = Literal["nothing", "directory", "shell"]
Why = Literal["unknown", "used", "expired", "other text", "other user", "unreadable"]

_ID = late_pattern(r"[0-9a-f]{32}")
_USED, _DIRECTORY = ".used", ".directory"
_REASONS: dict[Why, str] = {
    "unknown": "there is no such ticket: the agent's hook writes one for each line",
    "used": "its ticket was used already: each line needs a new decision",
    "expired": "its ticket has expired: the line was decided too long ago",
    "other text": "it is not the text that was decided",
    "other user": "its ticket is of another user",
    "unreadable": "its ticket cannot be read",
}


class BadTicket(LicetError):
    """A line that must not run: a reason in one line.

    `ticket` is set if this attempt has used it up: the call in it will not run, and has to be closed.
    """

    def __init__(self, why: Why, ticket: "Ticket | None" = None) -> None:
        super().__init__(f"the line was not run: {_REASONS[why]}")
        self.why, self.ticket = why, ticket


class NoTicket(LicetError):
    """A ticket cannot be written, so the line is refused."""


class AgentShell(Struct, frozen=True):
    """The shell that an agent runs its lines in, and what of it lasts from one line to the next."""

    path: str  # absolute
    keeps: Keeps = "nothing"


class Ticket(Struct, frozen=True, kw_only=True):
    """One decision about one line."""

    agent: str
    session: str  # the licet session
    text_digest: str  # `digest_of` the line
    shell: AgentShell
    directory: str  # where the agent's shell is
    policy: str  # the file
    policy_digest: str
    workdir: str  # what `${workdir}` is, whatever the directory
    reads_only: bool = False  # a plan mode: the walls are read-only
    call: bytes = b""  # for `restored` in guard/open_call.py
    expires: float = 0.0  # seconds since 1970


def digest_of(text: str) -> str:
    """The SHA-256 of a line."""
    return sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def expiry() -> float:
    """When a ticket ends that is issued now."""
    return time.time() + TICKET_SECONDS


class Tickets:
    """The tickets of this user."""

    def __init__(self, directory: Path | None = None) -> None:
        self._given = directory

    @property
    def directory(self) -> Path:
        """Where they lie. Raises `NoHome`."""
        return self._given or hooks_directory() / "tickets"

    def issue(self, ticket: Ticket) -> str:
        """Keep a ticket; returns its id. Raises `NoTicket`."""
        name, data = secrets.token_hex(16), msgspec.json.encode(ticket)
        if len(data) > MOST_TICKET_BYTES:
            raise NoTicket("the arguments of the call are too long for a ticket")
        try:
            self._make()
            self._remove_old()
            self._write(name, data)
        except NoHome:
            raise NoTicket("there is no place for tickets: this user has no home directory") from None
        except OSError as wrong:
            raise NoTicket(f"the ticket cannot be written: {wrong.strerror or wrong}") from None
        return name

    def redeem(self, name: str, text: str) -> Ticket:
        """The ticket for a line, once. Raises `BadTicket`."""
        if not _ID.fullmatch(name):
            raise BadTicket("unknown")
        try:
            path, used = self.directory / name, self.directory / f"{name}{_USED}"
            os.rename(path, used)  # one process alone can do this
        except NoHome:
            raise BadTicket("unknown") from None
        except FileNotFoundError:
            raise BadTicket("used" if os.path.lexists(used) else "unknown") from None
        except OSError:
            raise BadTicket("unreadable") from None
        ticket = self._read(used)
        now = time.time()
        if not now <= ticket.expires <= now + TICKET_SECONDS:  # later ones come of a clock that was set back
            raise BadTicket("expired", ticket)
        if not secrets.compare_digest(ticket.text_digest, digest_of(text)):
            raise BadTicket("other text", ticket)
        return ticket

    def directory_link(self, name: str) -> str:
        """The link that leads to the last directory of a line, if that may be told to the agent's shell."""
        return str(self.directory / f"{name}{_DIRECTORY}")

    def tell_directory(self, name: str, directory: str) -> None:
        """Make that link. A directory that has been checked, and that no text of the line can be anything else than."""
        with suppress(OSError):  # a full disk: nothing changes
            os.symlink(directory, self.directory_link(name))

    def _make(self) -> None:
        place = self.directory
        place.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = os.lstat(place)
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid():
            raise PermissionError(1, "the directory for tickets is not of this user")
        if found.st_mode & 0o077:
            os.chmod(place, 0o700)

    def _write(self, name: str, data: bytes) -> None:
        """Write it complete or not at all. It need not outlive a crash, so nothing waits for the disk."""
        draft = self.directory / f"{name}.draft"
        file = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            with os.fdopen(file, "wb") as written:
                written.write(data)
            os.rename(draft, self.directory / name)
        except BaseException:
            with suppress(OSError):
                os.unlink(draft)
            raise

    def _read(self, used: Path) -> Ticket:
        """What a used ticket says. Only its name is kept then, to tell a second attempt why it fails."""
        try:
            with open_regular(used, links=False) as file:
                if os.fstat(file).st_uid != os.getuid():
                    raise BadTicket("other user")
                ticket = msgspec.json.decode(read_most(file, MOST_TICKET_BYTES), type=Ticket)
            os.truncate(used, 0)
        except (OSError, msgspec.MsgspecError):
            raise BadTicket("unreadable") from None
        return ticket

    def _remove_old(self) -> None:
        found = list(self._listed())
        if len(found) < MOST_TICKETS:
            oldest = time.time() - 2 * TICKET_SECONDS
            found = [one for one in found if one[0] < oldest]
        else:
            found = sorted(found)[: len(found) - MOST_TICKETS // 2]
        for _, path in found:
            with suppress(OSError):
                os.unlink(path)

    def _listed(self) -> Iterator[tuple[float, str]]:
        with os.scandir(self.directory) as entries:
            for entry in entries:
                with suppress(OSError):
                    yield entry.stat(follow_symlinks=False).st_mtime, entry.path
