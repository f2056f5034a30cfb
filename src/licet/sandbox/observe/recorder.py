"""Writes a recording while the command runs: each use once for each process, with how often it was.

New uses are on disk within a moment. Counts are known at the end, and then the file is written again with them.

The proxy in recording mode: it lets every request through, and records which process asked for which host.

It is the proxy of `licet run` with a grant of everything, so a command that works here works there, and asks for the
same. Only addresses that no manifest can open, those of cloud metadata services, stay closed.
"""

import os
import socket
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import UNSET, Struct
from msgspec.structs import replace

from licet.core.algebra.rules import InvalidUse, Use
from licet.core.algebra.scope import inside
from licet.core.decision.decision import CapabilityDenied, CapabilityGranted, Event
from licet.core.review.recording_lines import RecordingStart, Touch, recording_line
from licet.guard.grant import Grant
from licet.guard.ports import Http
from licet.own_files import append, open_new, replace_file
from licet.sandbox.grant_paths import NEVER
from licet.sandbox.kernel.namespaces import DEVICES
from licet.sandbox.limits import MOST_NAMED, MOST_OBSERVED_REQUESTS
from licet.sandbox.observe.acts import Act
from licet.sandbox.programs.program_files import MADE_FILES, SYSTEM
from licet.sandbox.programs.proxy import Egress
from licet.sandbox.programs.system_configuration import configuration

if TYPE_CHECKING:
    from licet.sandbox.inspection.inspected import Inspecting

_FILES = ("read", "write", "delete")
_RULE_OF = {"exec": ("process", "exec"), "connect": ("network", "tcp"), "unix": ("socket", "connect")}
# The C library reads it through a link in /usr, and does without it behind walls.
_DISPENSABLE = ("/etc/locale.alias",)
_COMPILED = "__pycache__"  # Python does the same with it as without


class Process(Struct, frozen=True):
    """Who did something: the number of the process in the order in which they were seen, and its program."""

    number: int
    program: str


class GivenFiles:
    """What `licet run` lets every program use without a rule: the system, its own runtime, scratch, some devices."""

    def __init__(self, runtime: Iterable[str], scratch: str | None) -> None:
        named = (*SYSTEM, *configuration(), *MADE_FILES, *_DISPENSABLE, *runtime, "/proc")
        self._readable = tuple(dict.fromkeys((*named, *map(os.path.realpath, named))))
        self.scratch = (os.path.realpath(scratch),) if scratch else ()

    def cover(self, act: Act) -> bool:
        """Whether an act needs no rule."""
        if act.what == "read" and inside(act.target, self._readable):
            return True
        return act.target in DEVICES or inside(act.target, self.scratch)


class Summary(Struct, frozen=True):
    """How much was recorded, and what could not be. Each note names some of the things that it is about."""

    read: int
    written: int
    deleted: int
    hosts: tuple[str, ...]
    programs: tuple[str, ...]
    processes: int
    made: tuple[str, ...]  # directories that it made and left there: the next run finds them
    unreadable: int  # calls of processes whose memory cannot be read
    notes: dict[str, tuple[str, ...]]


class _Entry:
    __slots__ = ("count", "directory", "key", "made", "time")

    def __init__(self, key: tuple[Process, str], moment: int) -> None:
        self.key, self.time, self.count, self.made, self.directory = key, moment, 1, False, False


class Recorder:
    """One recording. The file must not exist; only its owner can read it.

    `redact` takes secrets out of a text, `redact_name` out of the name of a process, which the kernel may have cut.
    """

    def __init__(
        self,
        path: Path,
        start: RecordingStart,
        given: GivenFiles,
        redact: Callable[[str], str],
        redact_name: Callable[[str], str],
    ) -> None:
        self.path = path
        self._start, self._given, self._redact, self._redact_name = start, given, redact, redact_name
        self._names: dict[str, str] = {}  # of processes, as they are recorded
        self._entries: dict[tuple[Process, str], _Entry] = {}
        self._new: list[_Entry] = []
        self._texts: dict[Act, str] = {}  # of acts, as they are recorded; empty for those that are not
        self._notes: dict[str, dict[str, None]] = {}
        self._seen: set[int] = set()
        self._made: dict[str, bool] = {}  # the names that the command made and did not remove; true for directories
        self._removed: set[str] = set()  # the names that it removed, and had not made
        self.unreadable = 0
        self._file = open_new(path)
        append(self._file, recording_line(start))

    # While the command runs ------------------------------------------------------------------------------------------

    def add(self, process: Process, act: Act) -> bool:
        """Record what a process does; returns whether there is something to flush."""
        self._seen.add(process.number)
        text = self._texts.get(act)
        if text is None:
            text = self._texts[act] = self._text(act)
        if not text:
            return False
        is_new = self._use(process, text)
        entry = self._entries[process, text]
        if act.made:
            entry.made, entry.directory = True, act.directory
            self._made[act.target] = act.directory
        elif act.what == "delete":
            entry.made = self._is_own(act.target) and (is_new or entry.made)
            self._forget(act.target)
        return is_new

    def _is_own(self, path: str) -> bool:
        """Whether the command has made a name, or a directory that it is in."""
        while path not in self._made and path != "/":
            path = os.path.dirname(path)
        return path in self._made

    def _forget(self, path: str) -> None:
        if not self._is_own(path):
            self._removed.add(path)
        self._made.pop(path, None)

    def _use(self, process: Process, text: str) -> bool:
        key = (process, text)
        if (entry := self._entries.get(key)) is not None:
            entry.count += 1
            return False
        entry = self._entries[key] = _Entry(key, _now())
        self._new.append(entry)
        return True

    def request(self, process: Process, text: str) -> bool:
        """Record a use of the network that the proxy has named."""
        self._seen.add(process.number)
        return self._use(process, self._redact(text))

    def take_back(self, process: Process, text: str) -> None:
        """Forget a use that has failed."""
        if (entry := self._entries.get((process, self._redact(text)))) is not None:
            entry.count -= 1

    def note(self, kind: str, what: str) -> None:
        """Remember something that is no use, and that the operator should know."""
        named = self._notes.setdefault(kind, {})
        if len(named) < MOST_NAMED:
            named[self._redact(what)] = None

    def _text(self, act: Act) -> str:
        """The use that an act is; empty for one that needs no rule, or that no rule can allow."""
        if act.what in ("32 bits", "setuid", "direct") or (act.what == "unix" and not act.target.startswith("/")):
            self.note(act.what, act.target)
            return ""
        if act.what == "unix" and (act.target in self._made or inside(act.target, self._given.scratch)):
            return ""  # a socket of its own
        if act.what in _FILES:
            if self._given.cover(act):
                return ""
            if inside(act.target, NEVER):
                # Runtimes read their limits in /sys, and do without them behind walls.
                if act.what != "read" or not inside(act.target, ("/sys",)):
                    self.note("kernel", act.target)
                return ""
        try:
            domain, action = _RULE_OF.get(act.what, ("fs", act.what))
            text = str(Use(self._redact(f"{domain}:{action}:{act.target}")))
            text.encode()
        except (InvalidUse, UnicodeEncodeError):
            self.note("unnamed", act.target.encode("utf-8", "backslashreplace").decode())
            return ""
        return text

    def flush(self) -> None:
        """Write what is new. Raises `OSError`, also for a full disk."""
        if self._new:
            lines = b"".join(recording_line(self._touch(entry)) for entry in self._new)
            self._new.clear()
            append(self._file, lines)

    # At the end ------------------------------------------------------------------------------------------------------

    def finish(self) -> Summary:
        """Write the file again with all counts, close it, and sum up."""
        kept = [entry for entry in self._entries.values() if entry.count > 0]
        lines = (recording_line(self._touch(entry)) for entry in kept)
        try:
            replace_file(self.path, b"".join((recording_line(self._start), *lines)))
        finally:
            self.close()
        return self._summary(kept)

    @property
    def empty(self) -> bool:
        """Whether nothing was recorded."""
        return not self._entries

    def close(self) -> None:
        """Close the file as it is."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def _summary(self, kept: Iterable[_Entry]) -> Summary:
        found: dict[tuple[str, str], dict[str, None]] = {}
        for entry in kept:
            use = Use(entry.key[1])
            target = f"{use.target}:{use.port}" if use.port is not None else use.target
            found.setdefault((use.domain, "" if use.domain == "network" else use.action), {})[target] = None
        return Summary(
            read=len(found.get(("fs", "read"), ())),
            written=len(found.get(("fs", "write"), ())),
            deleted=len(found.get(("fs", "delete"), ())),
            hosts=tuple(found.get(("network", ""), ())),
            programs=tuple(found.get(("process", "exec"), ())),
            processes=len(self._seen),
            made=tuple(self._directories_left()),
            unreadable=self.unreadable,
            notes={kind: tuple(named) for kind, named in self._notes.items()},
        )

    def _directories_left(self) -> Iterator[str]:
        """The directories that were not there before, without those in them."""
        for path, is_directory in sorted(self._made.items()):
            is_new = is_directory and path not in self._removed and not self._is_own(os.path.dirname(path))
            if is_new and os.path.isdir(path) and os.path.basename(path) != _COMPILED:
                yield self._redact(path)

    def _touch(self, entry: _Entry) -> Touch:
        process, use = entry.key
        name = self._names.get(process.program)
        if name is None:
            name = self._names[process.program] = self._redact_name(process.program)
        return Touch(
            time=entry.time,
            call=f"process {process.number}",
            tool=name,
            use=use,
            count=entry.count,
            made=entry.made or UNSET,
            directory=entry.directory or UNSET,
        )


def _now() -> int:
    return time.time_ns() // 1_000_000


_CLIENT: ContextVar[Process | None] = ContextVar("client", default=None)  # of the connection that a task serves


class RecordingProxy:
    """Serves one command. `grant` makes a grant of everything that passes its events to an observer.

    With `inspecting` it looks into HTTPS, and records the requests in it.
    """

    def __init__(
        self,
        recorder: Recorder,
        grant: Callable[[Callable[[Event], None]], Grant],
        http: Http,
        inspecting: "Inspecting | None" = None,
    ) -> None:
        self._recorder, self._http = recorder, http
        self._inspecting = replace(inspecting, tell=self._not_inspected) if inspecting is not None else None
        self._grant = grant(self._observe)
        self._egress: _Egress | None = None
        self._flush_soon: Callable[[], None] = lambda: None
        self._process_of: Callable[[int | None], Process] = lambda _: Process(1, "")
        self.clients: dict[int, None] = {}  # processes that have connected to the proxy

    async def serve_in(
        self,
        listener: socket.socket,
        inside: int,
        process_of: Callable[[int | None], Process],
        flush_soon: Callable[[], None],
    ) -> None:
        """Serve the connections to a listener in the network of the process `inside`."""
        self._process_of, self._flush_soon = process_of, flush_soon

        def client(end: socket.socket) -> Process:
            return process_of(self._owner(end, inside))

        self._egress = _Egress(self._grant, self._http, client, self._inspecting)
        self._egress.serve(listener)

    async def close(self) -> None:
        """Close all connections."""
        if self._egress is not None:
            await self._egress.close()
        await self._http.close()

    def _observe(self, event: Event) -> None:
        if not event.capability.startswith("network:") or "*" in event.capability:
            return
        process = _CLIENT.get() or self._process_of(None)
        if isinstance(event, CapabilityGranted):
            if self._recorder.request(process, event.capability):
                self._flush_soon()
        elif isinstance(event, CapabilityDenied):  # everything is granted, so the name or the connection failed
            self._recorder.take_back(process, event.capability)
            if event.reason == "ADDRESS_NOT_ALLOWED":
                self._recorder.note("metadata", event.capability)
            elif self._inspecting is not None and event.capability.startswith("network:https:"):
                self._recorder.note("unanswered", f"{event.capability.partition('@')[2]}: {event.rule}")

    def _not_inspected(self, place: Use, why: str) -> None:
        self._recorder.note("not inspected", f"{place.target}:{place.port}: {why}")

    def _owner(self, end: socket.socket, inside: int) -> int | None:
        """The process at the other end of a connection: the one that has its socket open."""
        with suppress(OSError, ValueError):
            inode = _inode(f"/proc/{inside}/net/tcp", end.getpeername()[1], end.getsockname()[1])
            for process in reversed(self.clients) if inode else ():
                if _has_open(process, f"socket:[{inode}]"):
                    return process
        return None


class _Egress(Egress):
    def __init__(
        self,
        grant: Grant,
        http: Http,
        client: Callable[[socket.socket], Process],
        inspecting: "Inspecting | None",
    ) -> None:
        super().__init__(grant, http, most_requests=MOST_OBSERVED_REQUESTS, inspecting=inspecting)
        self._client = client

    async def _serve(self, end: socket.socket) -> None:
        _CLIENT.set(self._client(end))  # asyncio serves each connection in a task with a context of its own
        await super()._serve(end)


def _inode(table: str, local: int, remote: int) -> int:
    """The inode of the socket with these two ports, in a table such as /proc/net/tcp; 0 if there is none."""
    with open(table, encoding="ascii") as lines:
        for line in lines:
            fields = line.split()
            if fields[1].endswith(f":{local:04X}") and fields[2].endswith(f":{remote:04X}"):
                return int(fields[9])
    return 0


def _has_open(process: int, name: str) -> bool:
    folder = f"/proc/{process}/fd"
    try:
        files = os.listdir(folder)
    except OSError:
        return False
    for file in files:
        with suppress(OSError):
            if os.readlink(f"{folder}/{file}") == name:
                return True
    return False
