"""What is kept of the sessions of coding agents between two events: their policy, and the calls that are under way.

Each event may be handled by another process, so it is on disk, in licet's own state: a directory for each session, and
a file for each open call. Taking a call is a rename, so two processes never close the same one. None of it is needed to
prove anything: if it is lost, the ledger still has every decision, and the calls have no end in it.

The time of a session's directory is that of its last event: a session is never forgotten while it is in use, since its
next event would settle its policy anew.
"""

import os
import shutil
import time
from collections.abc import Iterator
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import Any, Literal

import msgspec
from msgspec import Struct

from licet.core.values import data_json
from licet.errors import LicetError
from licet.hooks.limits import MOST_OPEN_CALLS, MOST_SESSIONS, RECENT_SECONDS, SESSION_DAYS
from licet.hooks.policy_choice import Choice, NoPolicy, hooks_directory
from licet.own_files import create_file, read_regular

_ABOUT, _CALLS, _SCRATCH = "session.json", "calls", "scratch"

# What is known to hold in a session: a plan goes on, in which nothing may be changed; the model may plan its prompts.
Mark = Literal["plan", "prompted"]
_MOST_ABOUT, _MOST_CALL = 1 << 20, 64 << 20  # bytes
_NAME_CHARACTERS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-")
_LONGEST_NAME = 128


class SessionUnusable(LicetError):
    """What is kept of a session cannot be read or written: its calls are refused."""


class AgentSession(Struct, frozen=True):
    """What is known of a session of an agent since its first event."""

    agent: str
    id: str  # as the agent names it
    start: str  # the directory of its first event
    choice: Choice | None  # None: no policy holds
    why: str = ""  # why none does
    name: str = ""  # of the licet session: receipts, budgets and approvals have it
    version: str = ""  # of the agent
    began: float = 0.0

    @property
    def place(self) -> str:
        """The name of its directory."""
        return f"{self.agent}-{sha256(self.id.encode('utf-8', 'surrogatepass')).hexdigest()[:32]}"


class OpenCall(Struct, frozen=True):
    """A call that was allowed and has not been closed."""

    key: str  # the name of its file
    tool: str
    arguments: tuple[str, ...]  # digests of the arguments as the model gave them, and as they were handed back
    call: str  # the agent's id; may be empty
    subagent: str
    opened: float
    by_licet: bool  # whether licet runs it and closes it, as a shell line
    kept: bytes  # for `restored` in guard/open_call.py


def session_name(agent: str, id: str) -> str:  # noqa: A002
    """The licet session of an agent's session: `claude/2f6e…`. Names that would be equal stay apart."""
    safe = "".join(one if one in _NAME_CHARACTERS else "_" for one in id)
    name = f"{agent}/{safe}"
    if safe == id and len(name) <= _LONGEST_NAME and safe:
        return name
    digest = sha256(id.encode("utf-8", "surrogatepass")).hexdigest()[:16]
    return f"{name[: _LONGEST_NAME - 17]}-{digest}"


def arguments_key(tool: str, arguments: Any) -> str:
    """A digest of a call's tool and arguments, to find the call again by its end."""
    return sha256(data_json([tool, arguments])).hexdigest()[:32]


class AgentSessions:
    """The sessions of one user's agents, in a directory of licet's state."""

    def __init__(self, directory: Path | None = None) -> None:
        self.directory = (directory or hooks_directory()) / "sessions"

    def find(self, agent: str, id: str) -> AgentSession | None:  # noqa: A002
        """The session, if it had an event already. It counts as used now."""
        wanted = AgentSession(agent, id, "", None)
        try:
            data = read_regular(self.directory / wanted.place / _ABOUT, _MOST_ABOUT, links=False)
            found = msgspec.json.decode(data, type=AgentSession)
        except FileNotFoundError:
            return None
        except (OSError, msgspec.MsgspecError) as wrong:
            raise SessionUnusable(f"what is kept of this session cannot be read: {type(wrong).__name__}") from None
        if (found.agent, found.id) != (agent, id):
            raise SessionUnusable("what is kept of this session is of another one")
        try:
            os.utime(self.directory / wanted.place)
        except OSError as wrong:  # it may be forgotten just now
            raise SessionUnusable(f"what is kept of this session cannot be kept longer: {wrong.strerror}") from None
        return found

    def begin(self, session: AgentSession) -> AgentSession:
        """Keep a new session; if another process was first, the one that it has kept."""
        place = self.directory / session.place
        try:
            (place / _CALLS).mkdir(mode=0o700, parents=True, exist_ok=True)
            create_file(place / _ABOUT, msgspec.json.encode(session))
        except FileExistsError:
            found = self.find(session.agent, session.id)
            if found is None:
                raise SessionUnusable("what is kept of this session was removed meanwhile") from None
            return found
        except OSError as wrong:
            raise SessionUnusable(f"the session cannot be kept: {wrong.strerror}") from None
        return session

    def mark(self, session: AgentSession, mark: Mark, *, on: bool = True) -> None:
        """Keep that something holds from now on, or not any more."""
        file = self.directory / session.place / mark
        try:
            file.touch(mode=0o600) if on else file.unlink(missing_ok=True)
        except OSError as wrong:
            raise SessionUnusable(f"the mode of the session cannot be kept: {wrong.strerror}") from None

    def has(self, session: AgentSession, mark: Mark) -> bool:
        """Whether something holds, as far as the agent's events say."""
        return os.path.lexists(self.directory / session.place / mark)

    def scratch(self, session: AgentSession) -> Path:
        """The directory for what lives as long as the session; it may not exist."""
        return self.directory / session.place / _SCRATCH

    def keep(self, session: AgentSession, call: OpenCall) -> None:
        """Keep an open call."""
        place = self.directory / session.place / _CALLS
        try:
            if len(os.listdir(place)) >= MOST_OPEN_CALLS:
                raise SessionUnusable(f"{MOST_OPEN_CALLS} calls of this session are under way already")
            fd = os.open(place / call.key, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            with os.fdopen(fd, "wb") as file:
                file.write(msgspec.json.encode(call))
        except OSError as wrong:
            with suppress(OSError):
                os.unlink(place / call.key)
            raise SessionUnusable(f"the call cannot be kept: {wrong.strerror}") from None

    def open_calls(self, session: AgentSession) -> Iterator[str]:
        """The keys of the open calls, the oldest first."""
        return self._keys(self.directory / session.place)

    def look(self, session: AgentSession, key: str) -> OpenCall | None:
        """An open call, which stays open; None if it is not open."""
        return _read_call(self.directory / session.place / _CALLS / key)

    def take(self, session: AgentSession, key: str) -> OpenCall | None:
        """An open call, which is not open any more; None if another process was first."""
        place = self.directory / session.place / _CALLS
        taken = place / f".{key}.{os.getpid()}"
        try:
            os.rename(place / key, taken)
        except OSError:
            return None
        try:
            return _read_call(taken)
        finally:
            with suppress(OSError):
                os.unlink(taken)

    def every(self) -> Iterator[AgentSession]:
        """All sessions that are kept and can be read."""
        for name in self._names():
            if (found := self._about(name)) is not None:
                yield found

    def unused(self) -> list[tuple[str, float, AgentSession | None]]:
        """The sessions to be forgotten: their directory, the time of their last event, and themselves, if readable.

        Those without an event for long, and the oldest beyond the limit unless they had one lately.
        """
        aged = []
        for name in self._names():
            with suppress(OSError):
                aged.append((os.lstat(self.directory / name).st_mtime, name))
        now, too_many = time.time(), len(aged) - MOST_SESSIONS
        old, recent = now - SESSION_DAYS * 86400, now - RECENT_SECONDS
        found = enumerate(sorted(aged))
        return [
            (name, when, self._about(name)) for at, (when, name) in found if when < (recent if at < too_many else old)
        ]

    def forget(self, name: str, used: float) -> None:
        """Remove what is kept of a session, unless it had another event since."""
        place, gone = self.directory / name, self.directory / f".{name}.{os.getpid()}"
        with suppress(OSError):
            if os.lstat(place).st_mtime == used:
                os.rename(place, gone)  # an event from here on is that of a new session, or is refused
                shutil.rmtree(gone, ignore_errors=True)

    def remove(self, agent: str, id: str) -> None:  # noqa: A002
        """Remove what is kept of a session that is over, if anything is."""
        name = AgentSession(agent, id, "", None).place
        with suppress(OSError):
            self.forget(name, os.lstat(self.directory / name).st_mtime)

    def _names(self) -> list[str]:
        with suppress(FileNotFoundError):
            return sorted(one for one in os.listdir(self.directory) if one[0] != ".")
        return []

    def _about(self, name: str) -> AgentSession | None:
        with suppress(OSError, msgspec.MsgspecError):
            data = read_regular(self.directory / name / _ABOUT, _MOST_ABOUT, links=False)
            return msgspec.json.decode(data, type=AgentSession)
        return None

    def _keys(self, place: Path) -> Iterator[str]:
        with suppress(FileNotFoundError):
            yield from sorted(one for one in os.listdir(place / _CALLS) if one[0] != ".")


def call_key(call: str, opened: float) -> str:
    """The name of the file of a call: sorted by the time when it was opened."""
    tail = sha256(call.encode("utf-8", "surrogatepass")).hexdigest()[:16] if call else os.urandom(8).hex()
    return f"{int(opened * 1_000_000):020d}-{tail}"


def opened_at(key: str) -> float:
    """When the call of a file was opened, in seconds since 1970."""
    return int(key.partition("-")[0]) / 1_000_000


def _read_call(path: Path) -> OpenCall | None:
    try:
        return msgspec.json.decode(read_regular(path, _MOST_CALL, links=False), type=OpenCall)
    except FileNotFoundError:
        return None
    except (OSError, msgspec.MsgspecError) as wrong:
        raise SessionUnusable(f"an open call cannot be read: {type(wrong).__name__}") from None


__all__ = [
    "AgentSession",
    "AgentSessions",
    "NoPolicy",
    "OpenCall",
    "SessionUnusable",
    "arguments_key",
    "call_key",
    "opened_at",
    "session_name",
]
