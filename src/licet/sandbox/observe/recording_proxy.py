"""The proxy in recording mode: it lets every request through, and records which process asked for which host.

It is the proxy of `licet run` with a grant of everything, so a command that works here works there, and asks for the
same. Only addresses that no manifest can open, those of cloud metadata services, stay closed.
"""

import os
import socket
from collections.abc import Callable
from contextlib import suppress
from contextvars import ContextVar

from licet.core.decision.decision import CapabilityDenied, CapabilityGranted, Event
from licet.guard.grant import Grant
from licet.guard.ports import Http
from licet.sandbox.observe.recorder import Process, Recorder
from licet.sandbox.programs.proxy import Egress

_NO_LIMIT = 1 << 40  # requests of one command
_CLIENT: ContextVar[Process | None] = ContextVar("client", default=None)  # of the connection that a task serves


class RecordingProxy:
    """Serves one command. `grant` makes a grant of everything that passes its events to an observer."""

    def __init__(self, recorder: Recorder, grant: Callable[[Callable[[Event], None]], Grant], http: Http) -> None:
        self._recorder, self._http = recorder, http
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

        self._egress = _Egress(self._grant, self._http, client)
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

    def _owner(self, end: socket.socket, inside: int) -> int | None:
        """The process at the other end of a connection: the one that has its socket open."""
        with suppress(OSError, ValueError):
            inode = _inode(f"/proc/{inside}/net/tcp", end.getpeername()[1], end.getsockname()[1])
            for process in reversed(self.clients) if inode else ():
                if _has_open(process, f"socket:[{inode}]"):
                    return process
        return None


class _Egress(Egress):
    def __init__(self, grant: Grant, http: Http, client: Callable[[socket.socket], Process]) -> None:
        super().__init__(grant, http, most_requests=_NO_LIMIT)
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
