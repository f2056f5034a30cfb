"""The one table of MCP methods: who sends each, in which protocol versions, and what governs it.

The gateway passes on nothing that is not in the table. It answers other requests with -32601 and drops other
notifications. The same holds for parameters, for keys of results and definitions, and for `_meta`. What content is made
of has a table of its own, in `mcp/content.py`.

The protocol versions of clients: which one a connection speaks, and how its results look in it.

Up to 2025-11-25 a client starts with `initialize`, and its claims hold for the connection. Since 2026-07-28 every
request carries them in an envelope (`_meta`), and results say their type and how long they may be cached.
"""

from collections.abc import Mapping
from typing import Any, Literal

from msgspec import Struct

from licet import __version__
from licet.mcp.jsonrpc import INVALID_PARAMS, UNSUPPORTED_VERSION, Id, ProtocolError
from licet.mcp.limits import LIST_SECONDS
from licet.policy_files.server_tools import is_object_schema

HANDSHAKE_VERSIONS = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
MODERN_VERSIONS = ("2026-07-28",)
VERSIONS = HANDSHAKE_VERSIONS + MODERN_VERSIONS

Sender = Literal["client", "server"]
# An input is a request inside an input-required result: this is how a server asks a client since 2026-07-28.
Kind = Literal["request", "notification", "input"]


class Method(Struct, frozen=True):
    """One row: a message that one side may send."""

    name: str
    kind: Kind
    sender: Sender
    versions: tuple[str, ...]
    topic: str
    governed: str  # what the gateway does with it, for docs/gateway.md
    params: frozenset[str] = frozenset()  # the parameters that are read; `_meta` is read by what knows the versions
    result: frozenset[str] = frozenset()  # the keys of its result that are passed on


def _keys(text: str) -> frozenset[str]:
    return frozenset(text.split())


_ASKED_AGAIN = "inputResponses requestState"  # of a call that is repeated after an input-required result
_SAMPLING = _keys(
    # Not includeContext: to the client, "this server" is the gateway with every server behind it, so one server would
    # read what the others said.
    "messages modelPreferences systemPrompt temperature maxTokens stopSequences metadata tools toolChoice"
)
_FORM = _keys("mode message requestedSchema url elicitationId")
PROGRESS_PARAMS = _keys("progress total message")
LOG_PARAMS = _keys("level logger data")
_SAMPLED = _keys("role content model stopReason")
_FILLED_IN = _keys("action content")
_ROOTS = _keys("roots")
_DENIED = "denied unless `servers.NAME.client.{}` says otherwise and the client announced it; "
_SAMPLING_RULE = _DENIED.format("sampling") + "context of other servers is never included"
_FORM_RULE = _DENIED.format("elicitation") + "approvals are shown this way too"
_ROOTS_RULE = "answered with client roots ∩ `servers.NAME.client.roots` ∩ the server's grant, `file:` only"


def _client(
    name: str, versions: tuple[str, ...], topic: str, governed: str, params: str = "", result: str = ""
) -> Method:
    return Method(name, "request", "client", versions, topic, governed, _keys(params), _keys(result))


def _notice(
    name: str,
    sender: Sender,
    versions: tuple[str, ...],
    topic: str,
    governed: str,
    params: frozenset[str] = frozenset(),
) -> Method:
    return Method(name, "notification", sender, versions, topic, governed, params)


# fmt: off
METHODS: tuple[Method, ...] = (
    # What a client requests.
    _client(
        "initialize", HANDSHAKE_VERSIONS, "start", "answered by the gateway; the client's claims are recorded",
        "protocolVersion capabilities clientInfo",
    ),
    _client("server/discover", MODERN_VERSIONS, "start", "answered by the gateway; the client's claims are recorded"),
    _client("ping", HANDSHAKE_VERSIONS, "start", "answered by the gateway"),
    _client(
        "tools/list", VERSIONS, "tools", "answered from the lock, at once: the tools that this agent may call",
        "cursor", "tools",
    ),
    _client(
        "tools/call", VERSIONS, "tools", "a call under the manifest: decided, budgeted, recorded, run behind walls",
        f"name arguments {_ASKED_AGAIN}", "content structuredContent isError",
    ),
    _client(
        "resources/list", VERSIONS, "resources",
        "answered from the lock, at once: what `servers.NAME.resources` covers",
        "cursor", "resources",
    ),
    _client(
        "resources/templates/list", VERSIONS, "templates", "answered from the lock, at once, as resources",
        "cursor", "resourceTemplates",
    ),
    _client(
        "resources/read", VERSIONS, "resources", "a call of the tool `NAME.resources`, for covered URIs alone",
        f"uri {_ASKED_AGAIN}", "contents",
    ),
    _client("resources/subscribe", HANDSHAKE_VERSIONS, "subscriptions", "as `resources/read` of that URI", "uri"),
    _client("resources/unsubscribe", HANDSHAKE_VERSIONS, "subscriptions", "ends a subscription of this client", "uri"),
    _client(
        "subscriptions/listen", MODERN_VERSIONS, "subscriptions",
        "lists: answered by the gateway; URIs: as `resources/read` of each", "notifications",
    ),
    _client(
        "prompts/list", VERSIONS, "prompts", "answered from the lock, at once: what `servers.NAME.prompts` names",
        "cursor", "prompts",
    ),
    _client(
        "prompts/get", VERSIONS, "prompts", "a call of the tool `NAME.prompts`, for named prompts alone",
        f"name arguments {_ASKED_AGAIN}", "description messages",
    ),
    _client(
        "completion/complete", VERSIONS, "completions", "follows the prompt or template that it completes",
        "ref argument context", "completion",
    ),
    _client("logging/setLevel", HANDSHAKE_VERSIONS, "logging", "answered by the gateway, which filters", "level"),
    # What a client notifies of.
    _notice("notifications/initialized", "client", HANDSHAKE_VERSIONS, "start", "taken by the gateway"),
    _notice(
        "notifications/cancelled", "client", VERSIONS, "cancellation", "cancels that call of this client",
        _keys("requestId reason"),
    ),
    _notice(
        "notifications/progress", "client", HANDSHAKE_VERSIONS, "progress",
        "dropped: the gateway asks a client for no progress",
    ),
    _notice(
        "notifications/roots/list_changed", "client", HANDSHAKE_VERSIONS, "roots",
        "passed on to servers that may see roots; it changes no walls",
    ),
    # What a server requests, on the wire or inside an input-required result.
    Method("ping", "request", "server", HANDSHAKE_VERSIONS, "start", "answered by the gateway"),
    Method(
        "sampling/createMessage", "request", "server", HANDSHAKE_VERSIONS, "sampling", _SAMPLING_RULE,
        _SAMPLING, _SAMPLED,
    ),
    Method(
        "sampling/createMessage", "input", "server", MODERN_VERSIONS, "sampling", _SAMPLING_RULE,
        _SAMPLING, _SAMPLED,
    ),
    Method(
        "elicitation/create", "request", "server", HANDSHAKE_VERSIONS[2:], "elicitation", _FORM_RULE,
        _FORM, _FILLED_IN,
    ),
    Method(
        "elicitation/create", "input", "server", MODERN_VERSIONS, "elicitation", _FORM_RULE,
        _FORM - {"elicitationId"}, _FILLED_IN,
    ),
    Method("roots/list", "request", "server", HANDSHAKE_VERSIONS, "roots", _ROOTS_RULE, frozenset(), _ROOTS),
    Method("roots/list", "input", "server", MODERN_VERSIONS, "roots", _ROOTS_RULE, frozenset(), _ROOTS),
    # What a server notifies of.
    _notice(
        "notifications/progress", "server", VERSIONS, "progress", "passed on while the call runs, if it was asked for",
        PROGRESS_PARAMS,
    ),
    _notice(
        "notifications/message", "server", VERSIONS, "logging",
        "passed on from the level that the client set, if `servers.NAME.client.logging` allows", LOG_PARAMS,
    ),
    _notice(
        "notifications/cancelled", "server", VERSIONS, "cancellation", "ends a question of that server to the client",
        _keys("requestId reason"),
    ),
    _notice(
        "notifications/tools/list_changed", "server", VERSIONS, "list-changed",
        "passed on if the shown list changed",
    ),
    _notice(
        "notifications/resources/list_changed", "server", VERSIONS, "list-changed",
        "passed on if the shown list changed",
    ),
    _notice(
        "notifications/prompts/list_changed", "server", VERSIONS, "list-changed",
        "passed on if the shown list changed",
    ),
    _notice(
        "notifications/resources/updated", "server", VERSIONS, "subscriptions",
        "passed on for URIs that this client subscribed to", _keys("uri"),
    ),
    _notice(
        "notifications/subscriptions/acknowledged", "server", MODERN_VERSIONS, "subscriptions",
        "sent by the gateway; a server's is not passed on", _keys("notifications"),
    ),
    _notice(
        "notifications/elicitation/complete", "server", HANDSHAKE_VERSIONS[3:], "elicitation",
        "dropped: one server could end the question of another",
    ),
)
# fmt: on

_FOUND = {
    (method.name, method.kind, method.sender, version): method for method in METHODS for version in method.versions
}

# What a server may ask of a client, and the capability with which the client offers it.
ASKED: Mapping[str, str] = {method.name: method.topic for method in METHODS if method.kind == "input"}

# Results of these may be input-required.
ASKABLE = frozenset(("tools/call", "resources/read", "prompts/get"))

# The keys of definitions that are shown. `execution` (tasks) and `_meta` are not.
_DESCRIBED = "name title description icons"
DEFINITION_KEYS: Mapping[str, frozenset[str]] = {
    "tools": _keys(f"{_DESCRIBED} inputSchema outputSchema annotations"),
    "resources": _keys(f"{_DESCRIBED} uri mimeType annotations size"),
    "resourceTemplates": _keys(f"{_DESCRIBED} uriTemplate mimeType annotations"),
    "prompts": _keys(f"{_DESCRIBED} arguments"),
}


def find(name: str, kind: Kind, sender: Sender, version: str) -> Method | None:
    """The row of a message in one protocol version, or None if that version does not have it."""
    return _FOUND.get((name, kind, sender, version))


def kept(data: Mapping[str, Any], keys: frozenset[str]) -> tuple[dict[str, Any], list[str]]:
    """The entries that the table names, and the keys of the others."""
    return {key: data[key] for key in data if key in keys}, [key for key in data if key not in keys]


Era = Literal["", "2025", "2026"]  # empty until the first request decides

_META = "io.modelcontextprotocol/"
VERSION_KEY = f"{_META}protocolVersion"
INFO_KEY = f"{_META}clientInfo"
CAPABILITIES_KEY = f"{_META}clientCapabilities"
LEVEL_KEY = f"{_META}logLevel"
SUBSCRIPTION_KEY = f"{_META}subscriptionId"
SERVER_KEY = f"{_META}serverInfo"
# What a client may say of the conversation. The first counts only where the policy says so; the second only narrows.
TASK_KEY = "licet/task"
RESUMED_KEY = "licet/resumed"
CALL_ID_KEY = "licet/call-id"  # of a tool call: it runs once, however often it comes


class MetaKey(Struct, frozen=True):
    """A key in `_meta` of a message that the gateway knows. No other passes, and none of these as it came."""

    name: str
    sender: str  # of the message: `client`, `server` or `licet`
    where: str
    governed: str  # what the gateway does with it, for docs/gateway.md


META: tuple[MetaKey, ...] = (
    MetaKey(VERSION_KEY, "client", "requests", "read; the gateway says its own to the server"),
    MetaKey(INFO_KEY, "client", "requests", "recorded as a claim; the gateway says its own to the server"),
    MetaKey(CAPABILITIES_KEY, "client", "requests", "read; the server is told what `licet lock` told it"),
    MetaKey(LEVEL_KEY, "client", "requests", "goes on to a server that may log"),
    MetaKey("progressToken", "client", "requests", "kept; the server gets a number of the gateway instead"),
    MetaKey(TASK_KEY, "client", "requests", "read where the policy says so; no server gets it"),
    MetaKey(RESUMED_KEY, "client", "requests", "read; no server gets it"),
    MetaKey(CALL_ID_KEY, "client", "`tools/call`", "read; no server gets it"),
    MetaKey(
        "ui, ui/visibility, openai/visibility", "server", "tools", "read: tools that are not for models are left out"
    ),
    MetaKey(SUBSCRIPTION_KEY, "server", "notifications", "read; a client gets that of its own stream"),
    MetaKey(SERVER_KEY, "licet", "results", "says that the gateway answers"),
)
_META_KEYS = frozenset(key.name for key in META if key.sender == "client")

SERVER_INFO: Mapping[str, str] = {"name": "licet", "version": __version__}
_LIFETIMES_MS = {
    **dict.fromkeys(("tools/list", "resources/list", "resources/templates/list", "prompts/list"), LIST_SECONDS * 1000),
    "server/discover": LIST_SECONDS * 1000,
    "resources/read": 0,  # each read is decided and recorded
}

LEVELS = ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")


class Claims(Struct, frozen=True):
    """What a client says of itself. It decides nothing, except what the client can be asked."""

    version: str
    info: dict[str, Any]
    capabilities: dict[str, Any]


class Wishes(Struct, frozen=True):
    """What a request asks for in its `_meta`, and the keys there that the gateway does not know."""

    progress_token: Id | None = None
    level: str = ""  # of 2026 alone
    task: object = None  # what it says that the user asked for
    is_resumed: bool = False  # it says that the conversation is resumed
    call_id: object = None  # the id that it gives a tool call
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
        meta.get(TASK_KEY),
        meta.get(RESUMED_KEY, False) is not False,
        meta.get(CALL_ID_KEY),
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
    return {**shaped, "_meta": {SERVER_KEY: SERVER_INFO, **result.get("_meta", {})}}


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


def _readable(block: object, version: str) -> object:
    match block:
        case {"type": "resource_link", "uri": str(uri)}:
            return {"type": "text", "text": f"[resource] {uri}"}
        case {"type": "audio"} if version == "2024-11-05":
            return {"type": "text", "text": "[audio, which protocol version 2024-11-05 does not have]"}
    return block
