"""MCP servers as values: what `servers.NAME` of a workspace says, and the declarations of a server's tools.

A server's tool is an ordinary tool, `SERVER.TOOL`. Its description, argument schema and annotations come from
`licet.lock`; what it needs, its class and the rules on its arguments come from `servers.SERVER.tools`. The server's
process gets `grants`, `env` and `secrets`; of a secret with hosts, a stand-in that the proxy replaces there.
"""

from collections.abc import Mapping
from typing import Any, Literal

from msgspec import UNSET, Struct, UnsetType, convert

from licet.core.algebra.rules import Capability, use_of_url
from licet.core.algebra.scope import Malformed
from licet.core.algebra.set import CapabilitySet
from licet.core.late_pattern import late_pattern
from licet.core.limits import MAX_ASKS
from licet.core.policy.inspection import KEY_ALONE, StandIn, expanded_file, met_inspect, placed_form, stand_ins
from licet.core.policy.layer import CLASSES, EffectClass
from licet.core.policy.terms import WriteApproval
from licet.core.values import plain

SERVER_NAME = r"[a-z][a-z0-9-]{0,31}"
RESOURCES, PROMPTS = "resources", "prompts"  # reading resources and using prompts are calls of tools with these names
SERVER_PROCESS = "server"  # the process of a server is called `server NAME` in decisions
EVERY = "*"
CLIENT_ASKS = ("deny", "ask", "allow")

ClientAsk = Literal["deny", "ask", "allow"]
Names = tuple[str, ...] | Literal["*"]
_SCHEME = late_pattern(r"[A-Za-z][A-Za-z0-9+.-]*:")
# Headers that the transport to a remote server writes itself, besides all that begin with `mcp-` or `proxy-`.
_OWN_HEADERS = frozenset(
    {"accept", "accept-encoding", "connection", "content-encoding", "content-length", "content-type", "expect", "host"}
    | {"http2-settings", "keep-alive", "last-event-id", "te", "trailer", "transfer-encoding", "upgrade"}
    | {"x-http-method", "x-http-method-override", "x-method-override"}
)


class ServerToolEntry(Struct, frozen=True, forbid_unknown_fields=True):
    """What a workspace says about one tool of a server, or with `"*"` about every other one."""

    needs: tuple[str, ...] | UnsetType = UNSET  # left out: all that the server's process holds
    optional: tuple[str, ...] = ()
    effect: EffectClass | None = None
    args: Mapping[str, Any] = {}
    approval: WriteApproval | None = None
    limits: Mapping[str, int] = {}
    cost_usd: str | None = None
    asked_by: tuple[str, ...] | Mapping[str, tuple[str, ...]] = ()
    hidden: Literal["keep", "show"] = "keep"  # hidden characters in results: passed on, or written visibly


class ClientTerms(Struct, frozen=True, forbid_unknown_fields=True):
    """What a server may ask of the client."""

    sampling: ClientAsk = "deny"
    elicitation: ClientAsk = "deny"
    roots: tuple[str, ...] = ()
    logging: bool = False
    max_asks: int = MAX_ASKS  # in one call

    def allows(self, name: str) -> ClientAsk:
        """The setting for `sampling`, `elicitation` or `roots`."""
        listed: ClientAsk = "allow" if self.roots else "deny"
        return {"sampling": self.sampling, "elicitation": self.elicitation, "roots": listed}.get(name, "deny")

    @property
    def capabilities(self) -> dict[str, Any]:
        """The client capabilities that the server is shown, by `licet lock` and by the gateway alike."""
        named: dict[str, tuple[bool, dict[str, Any]]] = {
            "sampling": (self.sampling != "deny", {}),
            "elicitation": (self.elicitation != "deny", {"form": {}, "url": {}}),
            "roots": (bool(self.roots), {}),
        }
        return {name: features for name, (announced, features) in named.items() if announced}


class Server(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One MCP server: a command to start behind walls, or a URL."""

    name: str
    command: tuple[str, ...] = ()
    code: tuple[str, ...] = ()  # directories of its own files, which are in the lock and on its import path
    url: str = ""
    headers: Mapping[str, str] = {}  # name of the header -> secret reference
    grants: tuple[str, ...] = ()
    env: tuple[str, ...] = ()
    secrets: Mapping[str, str] = {}  # variable -> reference of a secret that is handed over
    stand_ins: tuple[StandIn, ...] = ()  # variables that are set to stand-ins
    inspect: tuple[str, ...] = ()  # connections of its process that are looked into
    connector: str | None = None
    tools: Mapping[str, ServerToolEntry] = {}
    resources: Names = ()
    prompts: Names = ()
    client: ClientTerms = ClientTerms()
    limits: Mapping[str, int] = {}
    sandbox: Literal["isolated", "native"] = "isolated"

    @property
    def kind(self) -> Literal["isolated", "native", "remote"]:
        """How it runs: behind walls, as ordinary code of this user, or on another machine."""
        return "remote" if self.url else self.sandbox

    @property
    def uses_connectors(self) -> bool:
        """Whether allowlists of connectors are about it, so that its version counts."""
        needs = (
            need for tool in self.tools.values() if tool.needs is not UNSET for need in (*tool.needs, *tool.optional)
        )
        return self.connector is not None or any(need.startswith("connector:") for need in (*needs, *self.grants))

    @property
    def references(self) -> tuple[str, ...]:
        """The secrets that it is started or reached with, whether they are handed over or placed."""
        placed = (one.secret for one in self.stand_ins if one.secret)  # another one is in a file
        return (*self.secrets.values(), *self.headers.values(), *placed)

    @property
    def holds(self) -> CapabilitySet:
        """All that its process may touch: grants, variables and secrets; of a remote server, its host and secrets."""
        secrets = (f"secret:read:{one}" for one in self.references)
        rules = (*self.grants, *(f"env:read:{name}" for name in self.env), *secrets)
        rules += (host_rule(self.url),) if self.url else ()
        return CapabilitySet(map(Capability, rules))

    def entry(self, tool: str) -> ServerToolEntry | None:
        """The entry of a tool: its own, else that of `"*"`; None if there is neither."""
        return self.tools.get(tool) or self.tools.get(EVERY)

    def shows_resource(self, uri: str) -> bool:
        """Whether the resource with this URI may be read: an entry of `resources` is it, or a whole part before it."""
        return self.resources == EVERY or any(below(uri, prefix) for prefix in self.resources)

    def shows_prompt(self, name: str) -> bool:
        """Whether the prompt with this name may be used."""
        return self.prompts == EVERY or name in self.prompts


def below(uri: str, prefix: str) -> bool:
    """Whether a URI is `prefix` or lies below it, by whole segments.

    A URI with `.` or `..` segments, slashes or dots that are encoded (also several times), or backslashes is below
    nothing: a server may read it as another path.

    >>> below("file:///srv/data/a.txt", "file:///srv/data"), below("file:///srv/database", "file:///srv/data")
    (True, False)
    """
    if not _SCHEME.match(uri) or _LEAVES.search(uri):
        return False
    start = prefix if prefix.endswith(("/", ":")) else f"{prefix}/"
    return uri == prefix or uri.startswith((start, f"{prefix}?", f"{prefix}#"))


_LEAVES = late_pattern(r"/\.{1,2}(?:[/?#]|$)|%(?:25)*(?:2[eEfF]|5[cC])|\\|[\x00-\x20\x7f]")


def host_rule(url: str) -> str:
    """What reaching a remote server needs. The POST that carries a call is no effect of a tool, so it is a GET.

    >>> host_rule("https://mcp.example.com/mcp")
    'network:https:get@mcp.example.com:443'
    """
    return str(use_of_url("GET", url))


def is_own_header(name: str) -> bool:
    """Whether the transport writes this header itself, so that no secret can be set as it."""
    low = name.lower()
    return low in _OWN_HEADERS or low.startswith(("mcp-", "proxy-"))


_TOKEN = late_pattern(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,64}")
# Headers that a server repeats, logs or routes by: a key there is published, or changes which request it is.
_REPEATED = frozenset({"user-agent", "referer", "origin", "from", "via", "forwarded", "date", "range", "cookie2"})


def placeable_header(text: str) -> str:
    """Parse a header in which a key may be placed, with what is around the key; in lower case. Raises `Malformed`."""
    # A name may begin with a colon, as those of HTTP/2 do: that one is refused as a name.
    end = text.find(":", 1)
    name, form = (text, KEY_ALONE) if end < 0 else (text[:end], text[end + 1 :])
    low = name.lower()
    if not _TOKEN.fullmatch(name):
        raise Malformed(name, "the name of a header, such as `x-api-key`")
    if is_own_header(low) or low in _REPEATED or low.startswith(("sec-", "x-forwarded-", "accept-")):
        raise Malformed(name, "a header that carries a key, such as `x-api-key`: this one is about the connection")
    return placed_form(low, form)


def server_of(name: str, data: Mapping[str, Any]) -> Server:
    """The value of a checked entry of `servers:` that is given as plain data."""
    handed = {key: entry for key, entry in data.get("secrets", {}).items() if not isinstance(entry, Mapping)}
    known = {**plain(data), "secrets": handed}
    known |= {"stand_ins": stand_ins_of(data), "inspect": met_inspect(data.get("inspect", ()), ())}
    return convert({"name": name, **known}, Server)


def stand_ins_of(data: Mapping[str, Any]) -> tuple[StandIn, ...]:
    """The secrets of a server, as plain data, of which its process gets a stand-in."""
    return stand_ins({name: entry for name, entry in data.get("secrets", {}).items() if isinstance(entry, Mapping)})


def with_real_files(data: Mapping[str, Any], workdir: str, home: str) -> Mapping[str, Any]:
    """A server as plain data, whose files with keys are below real directories. Raises `Malformed` without a home."""
    placed = {one.name: expanded_file(one.file, workdir, home) for one in stand_ins_of(data) if one.file}
    if not placed:
        return data
    secrets = data["secrets"]
    return {**data, "secrets": {**secrets, **{name: {**secrets[name], "file": path} for name, path in placed.items()}}}


def servers_of(servers: Mapping[str, Mapping[str, Any]]) -> Mapping[str, Server]:
    """The servers of a workspace by name."""
    return {name: server_of(name, data) for name, data in servers.items()}


def annotated_effect(annotations: Mapping[str, Any]) -> EffectClass:
    """The least class that a tool has by what its server says about it.

    An annotation comes from the server and can only tighten: `readOnlyHint: true` therefore means nothing.
    """
    if annotations.get("destructiveHint") is True:
        return "full"
    return "write_limited" if annotations.get("readOnlyHint") is False else "read_only"


def stricter(one: EffectClass, two: EffectClass) -> EffectClass:
    """The class of the two that can do more, and is therefore asked about more."""
    return max(one, two, key=CLASSES.index)


# The coding agents whose hooks are known: their own tools are called `claude.Bash`, so no server is called so.
CODING_AGENTS = ("claude", "codex", "gemini", "copilot", "opencode", "cursor")


def tool_parts(name: str, servers: Mapping[str, object]) -> tuple[str, str] | None:
    """The server and the tool that a full name such as `files.read` names; None if it names no server's tool.

    >>> tool_parts("files.read", {"files": 1}), tool_parts("a.b", {})
    (('files', 'read'), None)
    """
    server, dot, tool = name.partition(".")
    return (server, tool) if dot and tool and server in servers else None
