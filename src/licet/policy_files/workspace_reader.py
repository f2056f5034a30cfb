"""Reads the parts of a workspace that all agents share: declarations, connectors and destinations.

Checks the `servers:` section of a workspace, beyond the shape of its keys.

Access to the values of a checked file: by key, as plain data, and lists as rules.
"""

from collections.abc import Container, Iterator, Mapping
from typing import Any

from msgspec import Struct

from licet.core.algebra.domains import DOMAINS
from licet.core.algebra.rules import Capability, capability
from licet.core.algebra.scope import NAME_PATTERN
from licet.core.algebra.set import CapabilitySet
from licet.core.policy.connector import ConnectorRef, ConnectorRule, Connectors, Definition, Versions, version_range
from licet.core.policy.layer import ALL_BUT_NETWORK, EVERY_DOMAIN, Layer, LayerKind, Rule, class_fits
from licet.core.policy.servers import CODING_AGENTS, PROMPTS, RESOURCES, below, is_own_header
from licet.core.policy.tool import ToolSpec, spec_of
from licet.core.values import Origin, Problem
from licet.policy_files.checks import argument_problems
from licet.policy_files.inspection_reader import server_placing_problems
from licet.policy_files.limits import LONGEST_TOOL_NAME, MOST_APPS_NAMED, MOST_MODULES
from licet.policy_files.shapes import Located, did_you_mean

Value = Located[Any]
Fields = Mapping[str, Value]
Problems = list[Problem]
NONE: Fields = {}


class Lists(Struct, frozen=True):
    """A mapping whose keys hold lists of rules: `capabilities`, a personality, a bundle. `prefix` is its path."""

    keys: Fields
    prefix: str
    origin: Origin

    def key(self, name: str) -> str:
        """The path of a key as the file spells it, which may be an alias."""
        located = self.keys.get(name)
        return self.prefix + (located.key if located is not None and located.key else name)

    def listed(self, *path: str) -> tuple[Value, ...]:
        """The items of a list; none if it is absent."""
        found = at(self.keys, *path)
        return found.value if found is not None else ()

    def scope_rules(self, kind: str, key: str) -> Iterator[Rule]:
        """The rules of a list that has only scopes (paths, names); `kind` is their domain and action, as `fs:read`."""
        domain, action = kind.split(":")
        atoms = DOMAINS[domain].actions[action]
        name = self.prefix + key
        for item in self.listed(*key.split(".")):
            scope = "" if item.value == "*" else item.value
            yield Rule(capability(domain, atoms, scope, None), item.origin, name)

    def capability_rules(self, *path: str) -> Iterator[Rule]:
        """The rules of a list that has complete capabilities; hosts are parsed to such, too."""
        key = self.prefix + ".".join(path)
        for item in self.listed(*path):
            yield Rule(item.value, item.origin, key)


def at(keys: Fields, *path: str) -> Value | None:
    """The value at a path of keys, or None."""
    located: Value | None = None
    for part in path:
        located = keys.get(part)
        if located is None:
            return None
        keys = located.value if isinstance(located.value, Mapping) else NONE
    return located


def record(keys: Fields, key: str) -> Fields:
    """The mapping under a key, empty if it is absent, or if a list is written there, as `tools` may be."""
    located = keys.get(key)
    return located.value if located is not None and isinstance(located.value, Mapping) else NONE


def plain(keys: Fields, key: str, default: Any) -> Any:
    """The value under a key without its origin, or a default."""
    located = keys.get(key)
    return located.value if located is not None else default


def stated(keys: Fields, key: str) -> tuple[tuple[Any, Origin], ...]:
    """The value under a key with its origin, as a tuple of one; an empty tuple if it is absent."""
    located = keys.get(key)
    return ((located.value, located.origin),) if located is not None else ()


def numbers(located: Value | None) -> Mapping[str, int]:
    """A mapping of limits without origins."""
    return {key: item.value for key, item in located.value.items()} if located is not None else {}


def data(located: Value) -> Any:
    """A checked value as plain data, without origins."""
    value = located.value
    return _plain_data([data(item) for item in value] if isinstance(value, tuple) else value)


def _plain_data(value: object) -> Any:
    match value:
        case Located():
            return data(value)
        case Capability() | ConnectorRef():
            return str(value)
        case Mapping():
            return {str(key): _plain_data(item) for key, item in value.items()}
        case list():
            return tuple(map(_plain_data, value))
    return value


def key_origin(located: Value) -> Origin:
    """The origin of a value's key; that of the value itself if it has none."""
    return located.key_origin or located.origin


def declarations(shared: Fields, problems: Problems) -> tuple[dict[str, ToolSpec], dict[str, tuple[str, Origin]]]:
    """The tools that are declared inline, and the `from:` references of the others with their origins."""
    tools: dict[str, ToolSpec] = {}
    sources: dict[str, tuple[str, Origin]] = {}
    for name, located in record(shared, "tools").items():
        given: Fields = located.value
        if ("from" in given) == ("needs" in given) or ("from" in given and len(given) > 1):
            found = "neither `from` nor `needs`" if "from" not in given else "`from` together with other keys"
            expected = "`from` alone, or `needs` with optional, effect, sandbox, connector and cost_usd"
            problems.append(Problem(key_origin(located), found, expected, "`needs: []` is a tool that touches nothing"))
        elif "from" in given:
            if (source := given.get("from")) is not None:
                sources[name] = source.value, source.origin
        else:
            fields = {key: value.value for key, value in given.items() if key not in ("needs", "optional")}
            needs, optional = ([rule.value for rule in plain(given, key, ())] for key in ("needs", "optional"))
            tools[name] = spec_of(name=name, needs=needs, optional=optional, **fields, origin=key_origin(located))
    modules = {reference.partition(":")[0] for reference, _ in sources.values()}
    if len(modules) > MOST_MODULES:
        found, expected = f"{len(modules)} different modules under `from`", f"at most {MOST_MODULES}"
        problems.append(Problem(key_origin(shared["tools"]), found, expected, "their source was not looked at"))
        return tools, {}
    return tools, sources


def read_connectors(ceiling: Lists, shared: Fields, app: str | None, workspace_file: str) -> Connectors:
    """The connector lists that apply to one agent of one app. `app` is None for a personality, which has no app."""
    connectors = record(shared, "connectors")
    override: Fields = record(record(connectors, "app_overrides"), app or "")
    # A personality has no app. An override might deny a connector to its app, so it may use none if there are any.
    unknown = app is None and "app_overrides" in connectors and bool(ceiling.listed("connectors"))
    section = shared.get("connectors")
    default_origin = (
        key_origin(section) if section is not None else Origin(workspace_file, 1, 1) if workspace_file else None
    )
    tenant, allow, own = connectors.get("tenant_allowlist"), override.get("allow"), ceiling.keys.get("connectors")
    return Connectors(
        tenant=connector_lines(tenant),
        app=connector_lines(allow) if unknown or "allow" in override else None,
        app_deny=connector_lines(override.get("deny")),
        profiles=(connector_lines(own),),
        profile_places=((f"{ceiling.prefix}connectors", key_origin(own) if own is not None else ceiling.origin),),
        app_name=app or "",
        workspace_file=workspace_file,
        tenant_place=key_origin(tenant) if tenant is not None else default_origin,
        app_place=key_origin(allow) if allow is not None else default_origin,
    )


def app_problems(given: Fields, ceiling: Lists, shared: Fields) -> Iterator[Problem]:
    """Check that the workspace knows the `app` of a manifest, and that it is stated if connectors depend on it."""
    overrides = record(shared, "connectors").get("app_overrides")
    if overrides is None:
        return
    app, listed = given.get("app"), ceiling.keys.get("connectors")
    names = ", ".join(f"`{name}`" for name in [*overrides.value][:MOST_APPS_NAMED]) or "none yet"
    more = f" and {len(overrides.value) - MOST_APPS_NAMED} more" if len(overrides.value) > MOST_APPS_NAMED else ""
    expected = f"an app of `connectors.app_overrides` ({names}{more})"
    if app is not None and app.value not in overrides.value:
        near = did_you_mean(app.value, overrides.value, [])
        hint = f"{near}; or " if near else ""
        yield Problem(app.origin, f"the app `{app.value}`", expected, f"{hint}add `{app.value}: {{}}` there")
    elif app is None and listed is not None and listed.value:
        hint = "add `app:`; a name becomes known with `NAME: {}` there"
        yield Problem(key_origin(listed), "connectors of a manifest without `app`", expected, hint)


def read_definitions(shared: Fields) -> dict[str, Definition]:
    """The connector definitions of a workspace, by name."""
    definitions = {}
    for name, located in record(record(shared, "connectors"), "definitions").items():
        given, origin, prefix = located.value, key_origin(located), f"connectors.definitions.{name}"
        lists = Lists(given, f"{prefix}.", origin)
        rules = (*lists.capability_rules("hosts"), *lists.scope_rules("secret:read", "secrets"))
        narrowed = {domain for key, domain in (("hosts", "network"), ("secrets", "secret")) if key in given}
        layer = Layer("definition", prefix, origin, rules, silent=EVERY_DOMAIN - narrowed) if narrowed else None
        text: str = plain(given, "version", "")
        versions, version = version_range(text) if text else "", text if text[:1].isdigit() else ""
        place = stated_version.origin if (stated_version := given.get("version")) is not None else origin
        about = Versions(name, place, versions, version, plain(given, "distribution", ""))
        definitions[name] = Definition(about, layer, stated(given, "side_effect_class"))
    return definitions


def connector_lines(located: Value | None) -> tuple[ConnectorRule, ...]:
    lines = []
    for item in located.value if located is not None else ():
        given = item.value
        name, versions = (
            (given, "") if isinstance(given, str) else (plain(given, "connector", ""), plain(given, "version", ""))
        )
        lines.append(ConnectorRule(name, versions, item.origin))
    return tuple(lines)


def workspace_layer(
    shared: Fields, problems: Problems, kind: LayerKind = "workspace", title: str = "the workspace"
) -> Iterator[Layer]:
    """The layer for `destinations` of a workspace or an organisation, if it has any."""
    located = shared.get("destinations")
    if located is None:
        return
    narrowing = Lists(located.value, "destinations.", key_origin(located))
    if "default" in located.value and "allow" not in located.value:
        found, expected = "`default: deny` without an `allow` list", "an `allow` list, since absent it does not narrow"
        hint = "write `allow: []` to reach nothing, or leave `default` out"
        problems.append(Problem(key_origin(located.value.get("default", located)), found, expected, hint))
    allows, denies = tuple(narrowing.capability_rules("allow")), tuple(narrowing.capability_rules("deny"))
    if "allow" in located.value:
        yield Layer(kind, title, narrowing.origin, allows, denies, ALL_BUT_NETWORK)
    elif denies:
        yield Layer(kind, title, narrowing.origin, (), denies, EVERY_DOMAIN)


def bundle_layer(name: str, bundle: Fields) -> Layer | None:
    """The layer for `destinations` of a bundle, if it has any."""
    located = bundle.get("destinations")
    if located is None:
        return None
    narrowing = Lists(bundle, f"bundles.{name}.", key_origin(located))
    rules = tuple(narrowing.capability_rules("destinations"))
    return Layer("bundle", f"bundles.{name}", narrowing.origin, rules, (), ALL_BUT_NETWORK)


def shared_layers(shared: Fields, but: Container[str] = ()) -> tuple[Layer, ...]:
    """The layers of all bundles of a workspace except those in `but`, and of all its connector definitions."""
    bundles = record(shared, "bundles").items()
    layers = [bundle_layer(name, located.value) for name, located in bundles if name not in but]
    layers += [definition.layer for definition in read_definitions(shared).values()]
    return tuple(layer for layer in layers if layer is not None)


_PROCESS_KEYS = ("code", "grants", "env", "secrets", "inspect", "limits", "sandbox")  # about the process of a server


def server_places(shared: Fields) -> Iterator[tuple[str, Origin]]:
    """Where each server, each of its secrets and each of its tools is written, for messages."""
    for name, located in record(shared, "servers").items():
        yield f"servers.{name}", key_origin(located)
        for variable, secret in record(located.value, "secrets").items():
            yield f"servers.{name}.secrets.{variable}", key_origin(secret)
        for tool, entry in record(located.value, "tools").items():
            yield f"servers.{name}.tools.{tool}", key_origin(entry)


def server_problems(shared: Fields, definitions: Mapping[str, Definition]) -> Iterator[Problem]:
    """Check each server: its keys together, its tools, and the definition of its connector."""
    servers = record(shared, "servers")
    for tool, entry in record(shared, "tools").items():
        server, dot, _ = tool.partition(".")
        if dot and server in servers:
            found, expected = f"`{tool}`", f"another name: `{server}.…` are the tools of the server `{server}`"
            yield Problem(key_origin(entry), found, expected)
    entries = [tool.value for located in servers.values() for tool in record(located.value, "tools").values()]
    yield from argument_problems((entry.get("args") for entry in entries), [])
    for name, located in servers.items():
        if name in CODING_AGENTS:
            expected = f"another name: a coding agent is called so, and its tools are `{name}.TOOL`"
            yield Problem(key_origin(located), f"a server called `{name}`", expected)
        yield from _key_problems(name, located)
        yield from server_placing_problems(name, located)
        yield from _tool_problems(name, located.value)
        yield from _connector_problems(name, located, definitions)


def _key_problems(name: str, located: Value) -> Iterator[Problem]:
    given: Fields = located.value
    if ("command" in given) == ("url" in given):
        found = "both `command` and `url`" if "url" in given else "neither `command` nor `url`"
        yield Problem(key_origin(located), f"the server `{name}` with {found}", "one of the two")
    if "url" in given:
        for key in _PROCESS_KEYS:
            if key in given:
                found, expected = f"`{key}` on a server with a `url`", "a key about how it is reached"
                hint = "it runs on another machine, where no walls of licet are; remove the key"
                yield Problem(key_origin(given[key]), found, expected, hint)
    elif "headers" in given:
        found, expected = "`headers` on a server with a `command`", "`secrets`, which sets variables of its process"
        yield Problem(key_origin(given["headers"]), found, expected)
    seen: set[str] = set()
    for header, secret in record(given, "headers").items():
        if is_own_header(header):
            yield Problem(key_origin(secret), f"the header `{header}`", "another one: the gateway writes it itself")
        elif header.lower() in seen:
            yield Problem(key_origin(secret), f"the header `{header}` twice", "one secret for each header")
        seen.add(header.lower())
    if plain(given, "sandbox", "isolated") == "native" and "grants" in given:
        found, expected = "`grants` on a native server", "no grants: it runs without walls, as this user"
        yield Problem(key_origin(given["grants"]), found, expected, "remove one of `grants` and `sandbox: native`")
    listed = plain(given, "resources", ())
    for item in listed if isinstance(listed, tuple) else ():
        if not below(item.value, item.value):
            found, expected = f"`{item.value}`", "the beginning of a URI with its scheme, without `..`"
            yield Problem(item.origin, found, expected, "such as `file:///srv/data`")


def _tool_problems(name: str, given: Fields) -> Iterator[Problem]:
    remote, native = "url" in given, plain(given, "sandbox", "isolated") == "native"
    held = CapabilitySet(rule.value for rule in Lists(given, "", Origin("", 1, 1)).listed("grants"))
    for tool, located in record(given, "tools").items():
        entry: Fields = located.value
        if tool in (RESOURCES, PROMPTS):
            found, expected = f"a tool called `{tool}`", f"another name: reading its {tool} is the tool `{name}.{tool}`"
            yield Problem(key_origin(located), found, expected)
        if len(f"{name}.{tool}") > LONGEST_TOOL_NAME:
            found = f"`{name}.{tool}`"
            yield Problem(key_origin(located), found, f"a full name that fits {NAME_PATTERN}")
        effect = entry.get("effect")
        if native and effect is not None and not class_fits(effect.value, "write_limited"):
            found, expected = f"class {effect.value} of a native server", "at most write_limited: nothing enforces more"
            yield Problem(effect.origin, found, expected)
        for rule in (*plain(entry, "needs", ()), *plain(entry, "optional", ())):
            if not (remote or native) and not CapabilitySet((rule.value,)) <= held:
                found, expected = f"`{rule.value}` of `{name}.{tool}`", f"what `servers.{name}.grants` holds"
                yield Problem(rule.origin, found, expected, "its process cannot reach more than that")


def _connector_problems(name: str, located: Value, definitions: Mapping[str, Definition]) -> Iterator[Problem]:
    given: Fields = located.value
    ref: ConnectorRef | None = plain(given, "connector", None)
    definition = definitions.get(ref.name) if ref is not None else None
    if ref is None or definition is None:
        return
    lists = Lists(given, f"servers.{name}.", key_origin(located))
    placed = (*record(given, "secrets").values(), *record(given, "headers").values())
    references = (one.value.get("secret") if isinstance(one.value, Mapping) else one for one in placed)
    secrets = [(Capability(f"secret:read:{one.value}"), one.origin) for one in references if one is not None]
    for rule, origin in [(rule.capability, rule.origin) for rule in lists.capability_rules("grants")] + secrets:
        layer = definition.layer
        if layer is not None and rule.domain not in layer.silent and not CapabilitySet((rule,)) <= layer.allowed:
            found, expected = f"`{rule}` of server `{name}`", f"what `{layer.title}` allows"
            yield Problem(origin, found, expected, "narrow it, or add it to the definition")
    effects = [tool.value["effect"] for tool in record(given, "tools").values() if "effect" in tool.value]
    for effect, most in ((one, most) for one in effects for most, _ in definition.effects):
        if not class_fits(effect.value, most):
            found = f"class {effect.value} of server `{name}`"
            yield Problem(effect.origin, found, f"at most {most}, as its connector `{ref.name}` is defined")
