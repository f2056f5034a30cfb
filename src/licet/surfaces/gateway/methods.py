"""The one table of MCP methods: who sends each, in which protocol versions, and what governs it.

The gateway passes on nothing that is not in the table. It answers other requests with -32601 and drops other
notifications. The same holds for parameters, for keys of results and definitions, and for `_meta`.
"""

from collections.abc import Mapping
from typing import Any, Literal

from msgspec import Struct

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
    params: frozenset[str] = frozenset()  # the parameters that are read; `_meta` is read by eras.py alone
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
