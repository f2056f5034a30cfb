"""What a client wants to be told about: changed lists and updated resources.

A client of 2025 subscribes to URIs, and is told of every changed list. A client of 2026 opens streams, and each stream
is told what it asked for.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal

from msgspec import Struct

from licet.surfaces.gateway.backend import Backend, Refusal
from licet.surfaces.gateway.eras import SUBSCRIPTION_KEY, ProtocolError
from licet.surfaces.gateway.jsonrpc import INTERNAL_ERROR, INVALID_PARAMS, Id, Message, Notification

MOST_SUBSCRIPTIONS = 1000  # URIs, per connection

Changed = Literal["tools", "resources", "prompts"]
_FLAGS: Mapping[Changed, str] = {
    "tools": "toolsListChanged",
    "resources": "resourcesListChanged",
    "prompts": "promptsListChanged",
}
_Resource = tuple[str, str]  # server, URI


class _Stream(Struct):
    id: Id | None  # the request that opened it; None for the one of a client of 2025
    lists: frozenset[Changed] = frozenset()
    resources: list[_Resource] = []
    held: dict[tuple[str, str], Notification] | None = None  # what happened before it was acknowledged


class Subscriptions:
    """The subscriptions of one client."""

    def __init__(
        self,
        backend: Backend,
        send: Callable[[Message], None],
        crowded: Callable[[], bool],
        server_of: Callable[[str], str],
    ) -> None:
        self._backend = backend
        self._send = send
        self._crowded = crowded
        self._server_of = server_of
        self._2025 = _Stream(None)
        self._streams = [self._2025]

    # A client of 2025 -------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Tell a client of 2025 of changed lists from now on."""
        self._2025.lists = frozenset(_FLAGS)

    async def subscribe(self, uri: object) -> None:
        await self._add(self._2025, uri)

    async def unsubscribe(self, uri: object) -> None:
        await self._remove(self._2025, [resource for resource in self._2025.resources if resource[1] == uri])

    # A client of 2026 -------------------------------------------------------------------------------------------------

    async def listen(self, request_id: Id, wanted: object) -> None:
        """Serve one stream until it is cancelled. What is refused is missing in the acknowledgement."""
        if not isinstance(wanted, dict):
            raise ProtocolError(INVALID_PARAMS, "`notifications` is not an object")
        uris = wanted.get("resourceSubscriptions") or []
        if not isinstance(uris, list):
            raise ProtocolError(INVALID_PARAMS, "`resourceSubscriptions` is not a list")
        lists = frozenset(kind for kind, flag in _FLAGS.items() if wanted.get(flag) is True)
        stream = _Stream(request_id, lists, held={})
        self._streams.append(stream)
        try:
            honored: dict[str, Any] = {_FLAGS[kind]: True for kind in _FLAGS if kind in lists}
            if accepted := [uri for uri in uris if await self._is_added(stream, uri)]:
                honored["resourceSubscriptions"] = accepted
            self._send(_stamped(stream, "notifications/subscriptions/acknowledged", {"notifications": honored}))
            held, stream.held = stream.held or {}, None
            for notification in held.values():
                self._send(notification)
            await asyncio.Event().wait()
        finally:
            self._streams.remove(stream)
            await self._remove(stream, list(stream.resources))

    async def _is_added(self, stream: _Stream, uri: object) -> bool:
        try:
            await self._add(stream, uri)
        except (Refusal, ProtocolError):
            return False
        return True

    # What happens -----------------------------------------------------------------------------------------------------

    def list_changed(self, kind: Changed) -> None:
        for stream in self._streams:
            if kind in stream.lists:
                self._tell(stream, f"notifications/{kind}/list_changed", {})

    def resource_updated(self, server: str, uri: str) -> None:
        """Tell who subscribed to this resource of this server, or to one above it, unless the transport is behind."""
        if self._crowded():
            return
        for stream in self._streams:
            if any(_covers(resource, server, uri) for resource in stream.resources):
                self._tell(stream, "notifications/resources/updated", {"uri": uri})

    def _tell(self, stream: _Stream, method: str, params: dict[str, Any]) -> None:
        notification = _stamped(stream, method, params)
        if stream.held is None:
            self._send(notification)
        elif len(stream.held) < MOST_SUBSCRIPTIONS:
            stream.held[method, params.get("uri", "")] = notification

    async def _add(self, stream: _Stream, uri: object) -> None:
        if not isinstance(uri, str):
            raise ProtocolError(INVALID_PARAMS, "`uri` is not a text")
        if sum(len(each.resources) for each in self._streams) >= MOST_SUBSCRIPTIONS:
            raise ProtocolError(INTERNAL_ERROR, f"too many: at most {MOST_SUBSCRIPTIONS} subscriptions")
        resource = self._server_of(uri), uri
        if resource in stream.resources:
            return
        stream.resources.append(resource)
        try:
            await self._backend.subscribe(*resource)
        except BaseException:
            stream.resources.remove(resource)
            raise

    async def _remove(self, stream: _Stream, resources: Iterable[_Resource]) -> None:
        for resource in resources:
            stream.resources.remove(resource)
            if not any(resource in each.resources for each in self._streams):
                await self._backend.unsubscribe(*resource)


def _covers(subscribed: _Resource, server: str, uri: str) -> bool:
    above = subscribed[1]
    return subscribed[0] == server and (uri == above or uri.startswith(f"{above.rstrip('/')}/"))


def _stamped(stream: _Stream, method: str, params: dict[str, Any]) -> Notification:
    return Notification(method, params if stream.id is None else {**params, "_meta": {SUBSCRIPTION_KEY: stream.id}})
