"""One MCP server, seen as its client. The era of the server is hidden: callers see one way to ask and to be asked.

Servers of 2025-11-25 and before open with `initialize` and send requests of their own. Servers of 2026-07-28 open with
`server/discover`, and ask by a result that says which input they need. Nothing here knows policy: the peer decides.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Literal

from msgspec import Struct

from licet.core.policy.lock import LockedServer
from licet.mcp.exchange import Answer, Exchange, Mend, TimedOut, UpstreamError, Waiting, not_found
from licet.mcp.jsonrpc import (
    INTERNAL_ERROR,
    METHOD_NOT_FOUND,
    UNSUPPORTED_VERSION,
    Id,
    Notification,
    ProtocolError,
    Request,
)
from licet.mcp.limits import MOST_ANSWER_BYTES, MOST_INPUTS, MOST_ROUNDS, PROBE_SECONDS, STATE_ONLY_PAUSES
from licet.mcp.link import Gone, Link
from licet.mcp.protocol import (
    ASKED,
    CAPABILITIES_KEY,
    HANDSHAKE_VERSIONS,
    INFO_KEY,
    LEVEL_KEY,
    LEVELS,
    MODERN_VERSIONS,
    SERVER_INFO,
    SERVER_KEY,
    SUBSCRIPTION_KEY,
    VERSION_KEY,
)

Era = Literal["2025", "2026"]
VERSION_2026 = MODERN_VERSIONS[-1]

_LIST_CHANGED = {
    "notifications/tools/list_changed": "tools",
    "notifications/resources/list_changed": "resources",
    "notifications/prompts/list_changed": "prompts",
}
_SUBSCRIBED = frozenset((*_LIST_CHANGED, "notifications/resources/updated"))
_TOLD: Mapping[Era, frozenset[str]] = {
    "2025": _SUBSCRIBED | {"notifications/message", "notifications/elicitation/complete"},
    "2026": _SUBSCRIBED | {"notifications/message"},
}


def era_of(version: str) -> Era | Literal[""]:
    """The era of a protocol version; empty if no version is known."""
    return "" if not version else "2026" if version in MODERN_VERSIONS else "2025"


def locked_in_era(locked: LockedServer, era: Era | Literal[""]) -> LockedServer:
    """What a server was locked as in an era; if it was not asked in it, in its own."""
    if era and era != era_of(locked.version):
        for version in locked.other_versions:
            if era_of(version) == era:
                return locked.in_version(version)
    return locked


class Peer:
    """What stands in front of a server: it answers the server's requests, and is told its notifications.

    This one has no client behind it. The server is told of no roots, and asks for nothing.
    """

    async def asked(self, server: str, request: Request, during: Id | None) -> dict[str, Any]:
        """The result of a request of the server. Raises `ProtocolError`.

        `during` is the `caller` of the request that the server is working on; None if several are possible.
        """
        if request.method == "roots/list":
            return {"roots": []}
        raise ProtocolError(METHOD_NOT_FOUND, "there is no client: the server is being locked")

    def told(self, server: str, notification: Notification) -> None:
        """A log message, a changed list or an updated resource. Progress goes to the caller of its request."""

    def dropped(self, server: str, text: str) -> None:
        """The server sent something that was dropped. The text is for the operator, and holds what the server wrote."""


class Opened(Struct, frozen=True):
    """What a server says about itself."""

    era: Era
    version: str
    server: dict[str, Any]
    capabilities: dict[str, Any]
    instructions: str


class Upstream(Exchange):
    """One running server. `open` comes first; after `Gone`, a new process needs a new Upstream."""

    def __init__(
        self,
        name: str,
        link: Link,
        peer: Peer,
        offers: dict[str, Any],
        *,
        client: dict[str, Any] | None = None,
        probe_seconds: float = PROBE_SECONDS,
    ) -> None:
        self.name = name
        self._peer = peer
        self._offers = offers
        self._client = client or dict(SERVER_INFO)
        self._probe_seconds = probe_seconds
        self._opened: Opened | None = None
        self._level = ""
        self._uris: set[str] = set()  # resources that a 2026 server is asked to watch
        self._listening: asyncio.Task[None] | None = None
        self._listen_id = 0
        self.changed = asyncio.Event()  # some list changed; readers clear it
        super().__init__(link)

    @property
    def opened(self) -> Opened:
        """What the server said about itself; an error before `open`."""
        if self._opened is None:
            raise RuntimeError("the server was not opened")
        return self._opened

    # Opening ----------------------------------------------------------------------------------------------------------

    async def open(self, prefer: Era | Literal[""] = "", *, seconds: float = 60.0) -> Opened:
        """Agree on a version, within so many seconds. With `prefer`, no other era is tried.

        Raises `UpstreamError`, `Gone` or `TimedOut`. A server that ends at the probe may still open as "2025".
        """
        if prefer == "2025":
            self._opened = await self._initialize(seconds)
        elif prefer == "2026":
            self._opened = await self._discover(seconds)
        else:
            self._opened = await self._find_era(seconds)
        if self._opened.era == "2026":
            self._listen()
        return self._opened

    async def _find_era(self, seconds: float) -> Opened:
        """Probe for 2026 first. Any error means 2025, unless the error itself says that the server knows 2026."""
        try:
            return await self._discover(min(seconds, self._probe_seconds))
        except UpstreamError as wrong:
            if wrong.code == UNSUPPORTED_VERSION and not set(_supported(wrong)) & set(HANDSHAKE_VERSIONS):
                raise
        except TimedOut:
            pass
        try:
            return await self._initialize(seconds)
        except UpstreamError as wrong:
            # A slow server that took the probe for its first request has fixed its era by now.
            if wrong.code != UNSUPPORTED_VERSION or VERSION_2026 not in _supported(wrong):
                raise
        return await self._discover(seconds)

    async def _discover(self, seconds: float) -> Opened:
        answer = await self.send_request(
            "server/discover", lambda _: {"_meta": self._envelope()}, seconds=seconds, may_cancel=False
        )
        said = answer.data
        versions = said.get("supportedVersions")
        if not isinstance(versions, list) or VERSION_2026 not in versions:
            raise UpstreamError(INTERNAL_ERROR, f"the server does not offer version {VERSION_2026}")
        meta = said.get("_meta")
        about = meta.get(SERVER_KEY) if isinstance(meta, dict) else None
        return _opened("2026", VERSION_2026, about, said)

    async def _initialize(self, seconds: float) -> Opened:
        params = {"protocolVersion": HANDSHAKE_VERSIONS[-1], "capabilities": self._offers, "clientInfo": self._client}
        answer = await self.send_request("initialize", lambda _: params, seconds=seconds, may_cancel=False)
        version = answer.data.get("protocolVersion")
        if version not in HANDSHAKE_VERSIONS:
            raise UpstreamError(INTERNAL_ERROR, f"the server wants an unknown version: {str(version)[:40]}")
        await self.notify("notifications/initialized", {})
        return _opened("2025", version, answer.data.get("serverInfo"), answer.data)

    def _envelope(self) -> dict[str, Any]:
        return {
            VERSION_KEY: VERSION_2026,
            INFO_KEY: self._client,
            CAPABILITIES_KEY: self._offers,
        }

    # Asking the server ------------------------------------------------------------------------------------------------

    async def request(
        self,
        method: str,
        params: dict[str, Any],
        *,
        seconds: float,
        progress: Callable[[dict[str, Any]], None] | None = None,
        level: str = "",
        caller: Id | None = None,
        most: int = MOST_ANSWER_BYTES,
        mend: Mend | None = None,
    ) -> Answer:
        """The result of a request. `_meta` of the parameters is dropped, and with it the caller's progress token.

        `seconds` do not count while the server waits for an answer of the peer. `level` is the log level that the
        caller wants, and `most` the bytes that an answer may have. `mend` reads an answer that is no message. Raises
        `UpstreamError`, `Gone` or `TimedOut`; a cancelled task cancels the request.
        """
        if level in LEVELS and self.opened.era == "2025":
            await self._raise_level(level, seconds)
        answers: dict[str, Any] = {}  # to questions of the server, for the next round

        def whole(number: int) -> dict[str, Any]:
            sent = {key: value for key, value in params.items() if key != "_meta"} | answers
            meta = self._meta(number if progress is not None else None, level)
            return sent | {"_meta": meta} if meta else sent

        clock = asyncio.get_running_loop().time
        for round_number in range(MOST_ROUNDS + 1):
            started = clock()
            answer = await self.send_request(
                method, whole, seconds=seconds, progress=progress, caller=caller, most=most, mend=mend
            )
            seconds -= clock() - started
            kind = answer.data.get("resultType", "complete")
            if kind == "complete":
                return answer
            if kind != "input_required" or self.opened.era == "2025":
                raise UpstreamError(INTERNAL_ERROR, f"a result of an unknown type: {str(kind)[:40]}")
            if round_number < MOST_ROUNDS:
                answers = await self._input(answer.data, round_number, caller)
        raise UpstreamError(INTERNAL_ERROR, f"the server asked for input more than {MOST_ROUNDS} times")

    def _meta(self, token: int | None, level: str) -> dict[str, Any]:
        meta = self._envelope() if self.opened.era == "2026" else {}
        if token is not None:
            meta["progressToken"] = token
        if self.opened.era == "2026" and (level or self._level) in LEVELS:
            meta[LEVEL_KEY] = level or self._level
        return meta

    async def _input(self, said: dict[str, Any], round_number: int, caller: Id | None) -> dict[str, Any]:
        """What a call needs when it is repeated: the answers to the server's requests, and the server's own state."""
        wanted, state = said.get("inputRequests") or {}, said.get("requestState")
        if not isinstance(wanted, dict) or len(wanted) > MOST_INPUTS or not isinstance(state, str | None):
            raise UpstreamError(INTERNAL_ERROR, "a malformed request for input")
        more: dict[str, Any] = {} if state is None else {"requestState": state}
        if not wanted:
            await asyncio.sleep(STATE_ONLY_PAUSES[min(round_number, len(STATE_ONLY_PAUSES) - 1)])
            return more
        requests = [_input_request(key, value) for key, value in wanted.items()]
        tasks = [asyncio.create_task(self._ask_peer(request, caller)) for request in requests]
        try:
            return more | {"inputResponses": dict(zip(wanted, await asyncio.gather(*tasks), strict=True))}
        except ProtocolError as refusal:  # the call ends here, as in SDK 2.x; the server holds nothing for it
            raise UpstreamError(refusal.code, refusal.message) from None
        finally:
            for task in tasks:
                task.cancel()

    async def _raise_level(self, level: str, seconds: float) -> None:
        """Let a 2025 server log in at least this detail: there, one level is for all requests."""
        if "logging" not in self.opened.capabilities:
            return
        if self._level and LEVELS.index(level) >= LEVELS.index(self._level):
            return
        with suppress(UpstreamError):  # the call does not depend on it
            await self.set_level(level, seconds=seconds)

    async def set_level(self, level: str, *, seconds: float) -> None:
        """Set the log level for all requests from now on."""
        if level not in LEVELS:
            raise ValueError(f"expected a log level, found `{level[:40]}`")
        self._level = level
        if self.opened.era == "2025" and "logging" in self.opened.capabilities:
            await self.send_request("logging/setLevel", lambda _: {"level": level}, seconds=seconds)

    async def subscribe(self, uri: str, *, seconds: float) -> None:
        """Be told when a resource is updated."""
        if self.opened.era == "2025":
            await self.send_request("resources/subscribe", lambda _: {"uri": uri}, seconds=seconds)
        elif uri not in self._uris:
            self._uris.add(uri)
            self._listen()

    async def unsubscribe(self, uri: str, *, seconds: float) -> None:
        """Be told no longer when a resource is updated."""
        if self.opened.era == "2025":
            await self.send_request("resources/unsubscribe", lambda _: {"uri": uri}, seconds=seconds)
        elif uri in self._uris:
            self._uris.remove(uri)
            self._listen()

    async def roots_changed(self) -> None:
        """Tell the server that the roots are others now, if it was told that this happens. Raises `Gone`."""
        roots = self._offers.get("roots")
        if self.opened.era == "2025" and isinstance(roots, dict) and roots.get("listChanged"):
            await self.notify("notifications/roots/list_changed", {})

    async def close(self) -> None:
        """Close the link. Requests that wait raise `Gone`."""
        if self._listening is not None:
            self._listening.cancel()
        await super().close()

    # Listening to a 2026 server ---------------------------------------------------------------------------------------

    def _listen(self) -> None:
        """Open the stream of changes again, with what is wanted now; a stream cannot be changed."""
        if self._listening is not None:
            self._listening.cancel()
            self._listening = None
        wanted: dict[str, Any] = {
            f"{kind}ListChanged": True
            for kind in _LIST_CHANGED.values()
            if isinstance(about := self.opened.capabilities.get(kind), dict) and about.get("listChanged")
        }
        if self._uris:
            wanted["resourceSubscriptions"] = sorted(self._uris)
        self._listen_id = 0
        if wanted:
            self._listening = asyncio.create_task(self._hear(wanted))

    async def _hear(self, wanted: dict[str, Any]) -> None:
        def params(number: int) -> dict[str, Any]:
            self._listen_id = number
            return {"_meta": self._envelope(), "notifications": wanted}

        try:
            await self.send_request("subscriptions/listen", params, seconds=float("inf"))
        except UpstreamError as wrong:
            self.reported(f"changes are not reported: {wrong}")
        except Gone:
            return

    # Messages of the server -------------------------------------------------------------------------------------------

    async def answer(self, request: Request) -> dict[str, Any]:
        """The answer to a request on the wire, which only 2025 servers send. Raises `ProtocolError`."""
        if self._opened is not None and self._opened.era == "2026":
            self.reported(f"a request, which servers of 2026-07-28 do not send: `{request.method[:100]}`")
            raise not_found(request.method)
        if request.method == "ping":
            return {}
        waiting = [one for one in self.waiting if one.caller is not None]
        during = waiting[0].caller if len(waiting) == 1 else None
        return await self._ask_peer(request, during, waiting)

    async def _ask_peer(self, request: Request, during: Id | None, waiting: Sequence[Waiting] = ()) -> dict[str, Any]:
        """Ask the peer, which answers or refuses what a client can be asked. Meanwhile the clocks of calls stand."""
        if request.method not in ASKED:
            self.reported(f"a request that no client can answer: `{request.method[:100]}`")
            raise not_found(request.method)
        for one in waiting:
            one.stop_clock()
        try:
            return await self._peer.asked(self.name, request, during)
        finally:
            for one in waiting:
                one.start_clock()

    def notified(self, notification: Notification) -> None:
        """Tell the peer, if the notification is one that servers of this era send."""
        method, params = notification.method, notification.params
        era = self._opened.era if self._opened is not None else "2025"
        if method == "notifications/subscriptions/acknowledged" and era == "2026":
            return
        if method not in _TOLD[era]:
            self.reported(f"an unknown notification: `{method[:100]}`")
            return
        if era == "2026" and method in _SUBSCRIBED and not self._is_subscribed(params):
            self.reported(f"a notification that was not asked for: `{method[:100]}`")
            return
        if method in _LIST_CHANGED:
            self.changed.set()
        self._peer.told(self.name, Notification(method, {key: params[key] for key in params if key != "_meta"}))

    def _is_subscribed(self, params: dict[str, Any]) -> bool:
        meta = params.get("_meta")
        stream = meta.get(SUBSCRIPTION_KEY) if isinstance(meta, dict) else None
        return self._listen_id > 0 and str(stream) == str(self._listen_id)

    def reported(self, text: str) -> None:
        """Report something that was dropped."""
        self._peer.dropped(self.name, text)


def _opened(era: Era, version: str, about: object, said: dict[str, Any]) -> Opened:
    capabilities, instructions = said.get("capabilities"), said.get("instructions")
    if not isinstance(capabilities, dict):
        raise UpstreamError(INTERNAL_ERROR, "the server does not say what it can do")
    return Opened(
        era,
        version,
        about if isinstance(about, dict) else {},
        capabilities,
        instructions if isinstance(instructions, str) else "",
    )


def _supported(wrong: UpstreamError) -> list[str]:
    versions = wrong.data.get("supported") if isinstance(wrong.data, dict) else None
    return [version for version in versions if isinstance(version, str)] if isinstance(versions, list) else []


def _input_request(key: str, value: object) -> Request:
    match value:
        case {"method": str(method), **rest}:
            params = rest.get("params")
            return Request(key, method, params if isinstance(params, dict) else {})
    raise UpstreamError(INTERNAL_ERROR, "a malformed request for input")
