"""The domains: the actions of each, how its rules are parsed, and how they are written as text.

A parsed rule has three parts:

- atoms: a set of elementary actions, as the bits of an int. In `fs` these are read, write and delete. In `network` they
  are each HTTP method on `http`, each on `https`, and `tcp`, a connection whose contents licet does not see.
- a scope key: see `scope`, which parses and compares them.
- a port, in `network` only; None is any port.

A *phrase* is a set of atoms that a single rule can express: all reads are one, `get` and `post` together are not.
The grammar of network rules is `network:ACTION:[METHOD@][PROTOCOL://]HOST[:PORT]`. A new domain is one entry in
`DOMAINS`; CONTRIBUTING lists the other places.

>>> parse_rule("network:https:get@api.example.com:8443")
('network', 1, 'api.example.com', 8443)
"""

from collections.abc import Callable, Mapping
from typing import Literal, get_args

from msgspec import Struct

from licet.core.algebra.scope import (
    TOP,
    Malformed,
    binary,
    canonical_host,
    host_ancestors,
    host_key,
    host_text,
    hosts_below,
    name,
    name_ancestors,
    name_text,
    nothing_below,
    path_ancestors,
    path_key,
    path_text,
    paths_below,
    plain_host_key,
    reversed_host,
    secret_ancestors,
    secret_key,
    secret_reference,
    secret_text,
    secrets_below,
    unix_socket,
    variable,
)
from licet.core.late_pattern import late_pattern
from licet.core.values import near_hint, nearest

EFFECTS = {
    "read": ("get", "head", "options"),
    "write": ("post", "put", "patch"),
    "delete": ("delete",),
}
METHODS = (*(method for methods in EFFECTS.values() for method in methods), "other")
NEVER_METHODS = ("connect", "trace")
DEFAULT_PORTS = {"http": 80, "https": 443}

HTTPS = (1 << len(METHODS)) - 1  # the lowest bits, because these uses are the most frequent and small ints are fast
HTTP = HTTPS << len(METHODS)
TCP = 1 << 2 * len(METHODS)
EVERYTHING = HTTP | HTTPS | TCP

PROTOCOL_ATOMS = {"http": HTTP, "https": HTTPS, "tcp": TCP}
METHOD_ATOMS = {method: (1 << bit) | (1 << bit + len(METHODS)) for bit, method in enumerate(METHODS)}
EFFECT_ATOMS = {effect: sum(METHOD_ATOMS[method] for method in methods) for effect, methods in EFFECTS.items()}
ACTION_ATOMS = {**PROTOCOL_ATOMS, **EFFECT_ATOMS, "*": EVERYTHING}

_PORT = late_pattern(r"[0-9]{1,5}")
TOKEN = late_pattern(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")  # RFC 9110, the characters of a method


def _phrases() -> dict[int, tuple[str, str, str]]:
    """Every phrase of `network`, largest first, with its canonical action, method and protocol."""
    phrases: dict[int, tuple[str, str, str]] = {EVERYTHING: ("*", "", "")}
    for protocol, atoms in PROTOCOL_ATOMS.items():
        phrases[atoms] = (protocol, "", "")
    for effect in ("read", "write"):
        phrases[EFFECT_ATOMS[effect]] = (effect, "", "")
        for protocol in ("http", "https"):
            phrases[EFFECT_ATOMS[effect] & PROTOCOL_ATOMS[protocol]] = (effect, "", protocol)
    for method in METHODS:
        phrases[METHOD_ATOMS[method]] = ("*", method, "")
        for protocol in ("http", "https"):
            phrases[METHOD_ATOMS[method] & PROTOCOL_ATOMS[protocol]] = (protocol, method, "")
    return dict(sorted(phrases.items(), key=lambda item: -item[0].bit_count()))


PHRASES = _phrases()


def parse_scope(action: str, scope: str) -> tuple[int, str, int | None]:
    """Parse the action and scope of a network rule into atoms, host key and port."""
    if (key := plain_host_key(scope)) is not None and scope not in METHOD_ATOMS:
        return ACTION_ATOMS[action], key, None  # the scope of most rules is only a host
    method, at, rest = scope.partition("@")
    if not at:
        method, rest = ("*", scope) if scope.lower() not in METHOD_ATOMS else (scope, "*")
    atoms = ACTION_ATOMS[action]
    if method != "*":
        atoms &= _method_atoms(method, scope)
    protocol, origin, after = rest.partition("://")
    if origin:
        if protocol.lower() not in PROTOCOL_ATOMS:
            raise Malformed(scope, "the protocol `http`, `https` or `tcp` before `://`")
        atoms &= PROTOCOL_ATOMS[protocol.lower()]
        rest = after
    if not atoms:
        raise Malformed(f"{action}:{scope}", "parts that agree", "no request is both at once")
    host, port = _split_port(rest)
    if port is not None and not at and not origin and host.lower() in METHOD_ATOMS:
        raise Malformed(
            scope, "a method or a host", f"write `{host}@*:{port}` for the method, `*@{host}:{port}` for the host"
        )
    return atoms, host_key(host), port


def place_text(key: str, port: int | None) -> str:
    """Write a host key and its port as text; without a port the rule is about any port."""
    return host_text(key) if port is None else f"{host_text(key)}:{port}"


def scope_text(atoms: int, key: str, port: int | None) -> str:
    """Write a network rule as its canonical `action:scope`; `atoms` must be a phrase."""
    action, method, protocol = PHRASES[atoms]
    host = place_text(key, port)
    if method:
        return f"{action}:{method}" if host == "*" else f"{action}:{method}@{host}"
    if protocol:
        return f"{action}:{protocol}://{host}"
    if host.partition(":")[0] in METHOD_ATOMS:
        host = f"*@{host}"
    return f"{action}:{host}"


def parse_target(action: str, scope: str) -> tuple[str, str, int]:
    """Parse the scope of a concrete network use, such as `get@api.example.com`, into method, host and port.

    For `tcp` the scope has no method and must have a port: `db.internal:5432`.
    """
    if action == "tcp":
        host, port = _split_port(scope)
        if port is None:
            raise Malformed(scope, "a host and a port such as `db.internal:5432`")
        return "", canonical_host(host), port
    if action not in DEFAULT_PORTS:
        raise Malformed(action, "the protocol of one request: `http`, `https` or `tcp`")
    method, at, rest = scope.partition("@")
    if not at:
        raise Malformed(scope, "a method and a host such as `get@api.example.com`")
    host, port = _split_port(rest)
    return method_word(method), canonical_host(host), DEFAULT_PORTS[action] if port is None else port


def method_word(method: str) -> str:
    """The name of a request method in rules: the method in lower case, or `other` if rules have no name for it."""
    word = method.lower()
    if word in METHOD_ATOMS:
        return word
    if word in NEVER_METHODS:
        raise Malformed(method, "a method that a tool may use; `CONNECT` and `TRACE` are never allowed")
    if method == "*" or not TOKEN.fullmatch(method):
        raise Malformed(method, "a request method such as `GET`")
    return "other"


def parse_port(text: str) -> int:
    """Parse a port number, 1 to 65535."""
    if not _PORT.fullmatch(text) or not 0 < int(text) < 65536:
        hint = "leave the port out to mean any port" if text == "*" else ""
        raise Malformed(text, "a port from 1 to 65535", hint)
    return int(text)


def _method_atoms(method: str, scope: str) -> int:
    atoms = METHOD_ATOMS.get(method.lower())
    if atoms is not None:
        return atoms
    if ":" in method or "/" in method:
        raise Malformed(scope, "a method before `@`", "user names and passwords in addresses are never used")
    near = nearest(method.lower(), METHODS)
    hint = f"did you mean `{near}@`?" if near else "`other` means every method without a name of its own"
    raise Malformed(method, f"one of {', '.join(METHODS)}", hint)


def _split_port(text: str) -> tuple[str, int | None]:
    host, bracket, rest = text.partition("]")
    if bracket and text[0] == "[":
        host += bracket
    else:
        host, colon, rest = text.partition(":")
        rest = colon + rest
    if not rest:
        return host, None
    if rest[0] != ":" or ":" in rest[1:]:
        return text, None  # not a port: the host parser raises a better message
    return host, parse_port(rest[1:])


PATH_DOMAINS = frozenset({"fs", "process", "socket"})  # their scopes may start with `~` or `${workdir}`
STORAGE_KINDS = ("tool-private", "session", "personality")


class Domain(Struct, frozen=True):
    """One kind of outside surface and the grammar of its rules."""

    name: str
    actions: Mapping[str, int]  # the atoms of each action, `*` included
    parse: Callable[[str, str], tuple[int, str, int | None]]  # action and scope -> atoms, key, port
    render: Callable[[int, str, int | None], str]  # the text of a rule from its atoms, key and port
    ancestors: Callable[[str], tuple[str, ...]]
    phrases: tuple[int, ...]  # largest first
    target: Callable[[str], str]  # checks the scope of a use
    top_phrases: frozenset[int]  # the phrases with which a rule can have the scope `*`
    # If keys are sorted by `sorted_as`, all keys that a key covers are next to each other, and their sort keys start
    # with `begins_below(key)`.
    begins_below: Callable[[str], str] = nothing_below
    sorted_as: Callable[[str], str] = str


def _named(
    domain: str,
    actions: tuple[str, ...],
    key: Callable[[str], str],
    text: Callable[[str], str],
    ancestors: Callable[[str], tuple[str, ...]],
    target: Callable[[str], str],
    begins_below: Callable[[str], str] = nothing_below,
) -> Domain:
    every = (1 << len(actions)) - 1
    atoms = {**{action: 1 << bit for bit, action in enumerate(actions)}, "*": every}
    # If there is only one action, `*` has the same atoms; the canonical text then has the name of the action.
    phrases = {every: "*", **{atoms[action]: action for action in actions}}
    parse_key, render_key = key, text

    def parse(action: str, scope: str) -> tuple[int, str, int | None]:
        return atoms[action], parse_key(scope), None

    def render(mask: int, key: str, port: int | None) -> str:
        return f"{domain}:{phrases[mask]}:{render_key(key)}"

    order = tuple(sorted(phrases, key=lambda mask: -mask.bit_count()))
    return Domain(domain, atoms, parse, render, ancestors, order, target, frozenset(order), begins_below)


def _or_star(parse: Callable[[str], str]) -> Callable[[str], str]:
    return lambda text: TOP if text == "*" else parse(text)


def _storage() -> Domain:
    actions = ("read", "write")
    kinds = {kind: 0b11 << 2 * bit for bit, kind in enumerate(STORAGE_KINDS)} | {"*": 0b111111}
    sides = {"read": 0b010101, "write": 0b101010, "*": 0b111111}
    phrases = {
        sides[action] & kinds[kind]: (action, kind) for action in (*actions, "*") for kind in (*STORAGE_KINDS, "*")
    }

    def kind_of(text: str) -> str:
        if text not in STORAGE_KINDS:
            raise Malformed(text, f"one of {', '.join(STORAGE_KINDS)}", near_hint(text.lower(), STORAGE_KINDS))
        return text

    def parse(action: str, scope: str) -> tuple[int, str, int | None]:
        return sides[action] & kinds[scope if scope == "*" else kind_of(scope)], TOP, None

    def render(mask: int, key: str, port: int | None) -> str:
        action, kind = phrases[mask]
        return f"storage:{action}:{kind}"

    order = tuple(sorted(phrases, key=lambda mask: -mask.bit_count()))
    top = frozenset(mask for mask, (_, kind) in phrases.items() if kind == "*")
    return Domain("storage", sides, parse, render, name_ancestors, order, kind_of, top)


def _network() -> Domain:
    def render(mask: int, key: str, port: int | None) -> str:
        return f"network:{scope_text(mask, key, port)}"

    phrases = tuple(PHRASES)
    return Domain(
        "network",
        ACTION_ATOMS,
        parse_scope,
        render,
        host_ancestors,
        phrases,
        str,
        frozenset(phrases),
        hosts_below,
        reversed_host,
    )


DOMAINS: dict[str, Domain] = {
    domain.name: domain
    for domain in (
        _named("fs", ("read", "write", "delete"), path_key, path_text, path_ancestors, str, paths_below),
        _network(),
        _named("process", ("exec",), _or_star(binary), name_text, name_ancestors, binary),
        _named("env", ("read",), _or_star(variable), name_text, name_ancestors, variable),
        _named("secret", ("read",), secret_key, secret_text, secret_ancestors, secret_reference, secrets_below),
        _storage(),
        _named("tool", ("call",), _or_star(name), name_text, name_ancestors, name),
        _named("connector", ("use",), _or_star(name), name_text, name_ancestors, name),
        _named("socket", ("connect",), _or_star(unix_socket), name_text, name_ancestors, unix_socket),
    )
}


# What people write who expect each domain to have the actions read, write, exec and delete.
ELSEWHERE: dict[tuple[str, str], str] = {
    ("fs", "exec"): "a program is granted by `process:exec:NAME`",
    ("network", "exec"): "a program is granted by `process:exec:NAME`, a request by `network:https:post@HOST`",
    ("env", "write"): "no rule changes a variable of the host; `env:read:NAME` also lets a tool set it for a program",
}


def split_text(text: str) -> tuple[Domain, str, str]:
    """Split `domain:action:scope`; `Malformed` if the domain or the action does not exist."""
    parts = str.split(text, ":", 2)
    domain = DOMAINS.get(parts[0])
    if domain is not None and len(parts) == 3 and parts[1] in domain.actions:
        return domain, parts[1], parts[2]
    if len(parts) != 3 or domain is None:
        if domain is None and len(parts) == 3:
            raise Malformed(parts[0], f"one of the domains {', '.join(DOMAINS)}", near_hint(parts[0].lower(), DOMAINS))
        raise Malformed(text, "`domain:action:scope`, such as `fs:read:/srv/data`")
    words = tuple(domain.actions)
    hint = ELSEWHERE.get((domain.name, parts[1])) or near_hint(parts[1].lower(), words)
    raise Malformed(parts[1], f"one of {', '.join(words)} after `{domain.name}:`", hint)


def parse_rule(text: str) -> tuple[str, int, str, int | None]:
    """Parse a rule into its domain, atoms, scope key and port."""
    domain, action, scope = split_text(text)
    return domain.name, *domain.parse(action, scope)


def phrases_for(domain: Domain, atoms: int) -> list[int]:
    """Phrases that together make up exactly these atoms, largest first; two of them may overlap."""
    found, left = [], atoms
    for phrase in domain.phrases:
        if phrase & left and not phrase & ~atoms:
            found.append(phrase)
            left &= ~phrase
    return found


# What a domain is called in reports, in the order of reports.
ResourceKind = Literal["hosts", "paths", "secrets", "binaries", "env", "storage", "tools", "connectors", "sockets"]
RESOURCE_KINDS: tuple[ResourceKind, ...] = get_args(ResourceKind)
KIND_OF_DOMAIN: dict[str, ResourceKind] = {
    "network": "hosts",
    "fs": "paths",
    "secret": "secrets",
    "process": "binaries",
    "env": "env",
    "storage": "storage",
    "tool": "tools",
    "connector": "connectors",
    "socket": "sockets",
}


def storage_scope_id(kind: str, tool: str, session: str, personality: str | None) -> str:
    """The namespace of a key-value store. Tools never choose it themselves."""
    match kind:
        case "tool-private":
            return f"tool:{tool}"
        case "personality" if personality:
            return f"personality:{personality}"
        case "session" | "personality":
            return f"session:{session}"
    raise ValueError(f"unknown kind of storage: {kind}")
