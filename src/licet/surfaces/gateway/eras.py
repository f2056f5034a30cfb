"""The protocol versions of clients: which one a connection speaks, and how its results look in it.

Up to 2025-11-25 a client starts with `initialize`, and its claims hold for the connection. Since 2026-07-28 every
request carries them in an envelope (`_meta`), and results say their type and how long they may be cached.
"""

from collections.abc import Mapping
from typing import Any, Literal

from msgspec import UNSET, Struct

from licet import __version__
from licet.policy_files.definition_shapes import is_object_schema
from licet.surfaces.gateway.jsonrpc import INVALID_PARAMS, UNSUPPORTED_VERSION, Id
from licet.surfaces.gateway.methods import DEFINITION_KEYS, HANDSHAKE_VERSIONS, MODERN_VERSIONS, VERSIONS, find, kept

Era = Literal["", "2025", "2026"]  # empty until the first request decides

_META = "io.modelcontextprotocol/"
VERSION_KEY = f"{_META}protocolVersion"
INFO_KEY = f"{_META}clientInfo"
CAPABILITIES_KEY = f"{_META}clientCapabilities"
LEVEL_KEY = f"{_META}logLevel"
SUBSCRIPTION_KEY = f"{_META}subscriptionId"
_SERVER_KEY = f"{_META}serverInfo"
_META_KEYS = frozenset((VERSION_KEY, INFO_KEY, CAPABILITIES_KEY, LEVEL_KEY, "progressToken"))

SERVER_INFO: Mapping[str, str] = {"name": "licet", "version": __version__}
LIST_SECONDS = 60  # how long a client may keep a list: the policy behind it can change
_LIFETIMES_MS = {
    **dict.fromkeys(("tools/list", "resources/list", "resources/templates/list", "prompts/list"), LIST_SECONDS * 1000),
    "server/discover": LIST_SECONDS * 1000,
    "resources/read": 0,  # each read is decided and recorded
}

LEVELS = ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")


class ProtocolError(Exception):
    """A request is answered with a JSON-RPC error."""

    def __init__(self, code: int, message: str, data: Any = UNSET) -> None:
        self.code = code
        self.message = message
        self.data = data
        super().__init__(message)


class Claims(Struct, frozen=True):
    """What a client says of itself. It decides nothing, except what the client can be asked."""

    version: str
    info: dict[str, Any]
    capabilities: dict[str, Any]


class Wishes(Struct, frozen=True):
    """What a request asks for in its `_meta`, and the keys there that the gateway does not know."""

    progress_token: Id | None = None
    level: str = ""  # of 2026 alone
    unknown: tuple[str, ...] = ()


# Requests -------------------------------------------------------------------------------------------------------------


def has_envelope(params: Mapping[str, Any]) -> bool:
    """Whether a request says that it is of 2026 or later. Only that era has this key, and its prefix is reserved."""
    meta = params.get("_meta")
    return isinstance(meta, dict) and VERSION_KEY in meta


def read_envelope(params: Mapping[str, Any], also: tuple[str, ...] = ()) -> Claims:
    """The claims in a request's envelope. `also` are the versions that the connection could speak besides."""
    meta = params.get("_meta")
    missing = [key for key in (VERSION_KEY, CAPABILITIES_KEY) if not isinstance(meta, dict) or key not in meta]
    if missing or not isinstance(meta, dict):
        raise ProtocolError(INVALID_PARAMS, f"`_meta` lacks {' and '.join(f'`{key}`' for key in missing)}")
    version, info, capabilities = meta[VERSION_KEY], meta.get(INFO_KEY), meta[CAPABILITIES_KEY]
    if not isinstance(version, str):
        raise ProtocolError(INVALID_PARAMS, f"`{VERSION_KEY}` is not a text")
    if version not in MODERN_VERSIONS:
        raise unsupported(version, (*MODERN_VERSIONS, *also))
    if not isinstance(capabilities, dict):
        raise ProtocolError(INVALID_PARAMS, f"`{CAPABILITIES_KEY}` is not an object")
    return Claims(version, info if isinstance(info, dict) else {}, capabilities)


def read_initialize(params: Mapping[str, Any]) -> Claims:
    """The claims in `initialize`. An unknown version is answered with 2025-11-25, the newest that has `initialize`."""
    version, info, capabilities = (params.get(key) for key in ("protocolVersion", "clientInfo", "capabilities"))
    if not isinstance(version, str) or not isinstance(info, dict) or not isinstance(capabilities, dict):
        raise ProtocolError(
            INVALID_PARAMS, "expected a text `protocolVersion`, objects `clientInfo` and `capabilities`"
        )
    return Claims(version if version in HANDSHAKE_VERSIONS else HANDSHAKE_VERSIONS[-1], info, capabilities)


def unsupported(requested: object, supported: tuple[str, ...] = MODERN_VERSIONS) -> ProtocolError:
    data: dict[str, Any] = {"supported": list(supported)}
    if isinstance(requested, str):
        data |= {"requested": requested[:100]}
    return ProtocolError(UNSUPPORTED_VERSION, f"this connection speaks {', '.join(supported)}", data)


def read_wishes(params: Mapping[str, Any], era: Era) -> Wishes:
    """Read `_meta` of a request. An invalid token or level counts as none."""
    meta = params.get("_meta")
    if not isinstance(meta, dict):
        return Wishes()
    token, level = meta.get("progressToken"), meta.get(LEVEL_KEY)
    return Wishes(
        token if type(token) is int or isinstance(token, str) else None,
        level if era == "2026" and level in LEVELS else "",
        tuple(key for key in meta if key not in _META_KEYS),
    )


# Results --------------------------------------------------------------------------------------------------------------


def capabilities(resources: bool, prompts: bool) -> dict[str, Any]:
    """What the gateway announces."""
    offered: dict[str, Any] = {"logging": {}, "tools": {"listChanged": True}}
    if resources:
        offered["resources"] = {"listChanged": True, "subscribe": True}
    if prompts:
        offered["prompts"] = {"listChanged": True}
    if resources or prompts:
        offered["completions"] = {}
    return offered


def initialize_result(version: str, offered: dict[str, Any], instructions: str) -> dict[str, Any]:
    result = {"protocolVersion": version, "capabilities": offered, "serverInfo": SERVER_INFO}
    return {**result, "instructions": instructions} if instructions else result


def discover_result(offered: dict[str, Any], instructions: str) -> dict[str, Any]:
    result: dict[str, Any] = {"supportedVersions": list(MODERN_VERSIONS), "capabilities": offered}
    return {**result, "instructions": instructions} if instructions else result


def for_version(method: str, result: dict[str, Any], version: str) -> dict[str, Any]:
    """Add to a result what its version requires of every result of this method."""
    if version not in MODERN_VERSIONS:
        return result
    shaped = {"resultType": "complete", **result}
    if method in _LIFETIMES_MS:
        shaped |= {"ttlMs": _LIFETIMES_MS[method], "cacheScope": "private"}
    return {**shaped, "_meta": {_SERVER_KEY: SERVER_INFO, **result.get("_meta", {})}}


def from_server(method: str, result: Mapping[str, Any], version: str) -> tuple[dict[str, Any], list[str]]:
    """A server's result as this version knows it, and the keys that were left out."""
    row = find(method, "request", "client", version)
    shaped, dropped = kept(result, row.result if row else frozenset())
    if version not in MODERN_VERSIONS and not isinstance(shaped.get("structuredContent", {}), dict):
        # Any JSON value since 2026. SDKs of 2025 reject the whole result if it is not an object.
        del shaped["structuredContent"]
    if VERSIONS.index(version) < VERSIONS.index("2025-06-18"):
        _make_readable(shaped, version)
    own = ("resultType", "ttlMs", "cacheScope")  # of the server's era: the gateway says its own
    return for_version(method, shaped, version), [key for key in dropped if key not in own]


def definition_for(kind: str, definition: Mapping[str, Any], version: str) -> dict[str, Any]:
    """A locked definition as this version knows it."""
    shown, _ = kept(definition, DEFINITION_KEYS[kind])
    if version not in MODERN_VERSIONS and not is_object_schema(shown.get("outputSchema")):
        shown.pop("outputSchema", None)  # as for structuredContent
    return shown


def _make_readable(result: dict[str, Any], version: str) -> None:
    """Write content as text where its type is younger than the version: older SDKs reject the whole result."""
    if isinstance(blocks := result.get("content"), list):
        result["content"] = [_readable(block, version) for block in blocks]
    if isinstance(messages := result.get("messages"), list):
        result["messages"] = [
            {**message, "content": _readable(message.get("content"), version)} if isinstance(message, dict) else message
            for message in messages
        ]


def _readable(block: Any, version: str) -> Any:
    match block:
        case {"type": "resource_link", "uri": str(uri)}:
            return {"type": "text", "text": f"[resource] {uri}"}
        case {"type": "audio"} if version == "2024-11-05":
            return {"type": "text", "text": "[audio, which protocol version 2024-11-05 does not have]"}
    return block
