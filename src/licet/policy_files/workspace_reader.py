"""What a workspace says to every agent: declarations, connectors, and where anybody may connect."""

from collections.abc import Container, Iterator, Mapping

from licet.core.algebra.capability import Capability
from licet.core.algebra.set import CapabilitySet
from licet.core.origin import Origin, Problem
from licet.core.policy.connector import ConnectorRef, ConnectorRule, Connectors, Versions, version_range
from licet.core.policy.connector_definition import Definition
from licet.core.policy.effects import class_fits
from licet.core.policy.layer import ALL_BUT_NETWORK, EVERY_DOMAIN, Layer
from licet.core.policy.tool import ToolSpec, spec_of
from licet.policy_files.fields import Fields, Lists, Problems, Value, key_origin, plain, record, stated
from licet.policy_files.shapes import nearest

_MOST_NAMED = 20  # apps that one message names
MOST_MODULES = 1000  # that a workspace names: each is looked for in several places, and closed to writing there


def declarations(shared: Fields, problems: Problems) -> tuple[dict[str, ToolSpec], dict[str, tuple[str, Origin]]]:
    """Tools that are declared inline, and where the others are declared."""
    tools: dict[str, ToolSpec] = {}
    sources: dict[str, tuple[str, Origin]] = {}
    for name, held in record(shared, "tools").items():
        given: Fields = held.value
        if ("from" in given) == ("needs" in given) or ("from" in given and len(given) > 1):
            found = "neither `from` nor `needs`" if not given.keys() & {"from", "needs"} else "`from` beside other keys"
            expected = "`from` alone, or `needs` with optional, effect, sandbox, connector and cost_usd"
            problems.append(Problem(key_origin(held), found, expected, "`needs: []` is a tool that touches nothing"))
        elif "from" in given:
            if (source := given.get("from")) is not None:
                sources[name] = source.value, source.origin
        else:
            said = {key: value.value for key, value in given.items() if key not in ("needs", "optional")}
            needs, optional = ([rule.value for rule in plain(given, key, ())] for key in ("needs", "optional"))
            tools[name] = spec_of(name=name, needs=needs, optional=optional, **said, origin=key_origin(held))
    modules = {reference.partition(":")[0] for reference, _ in sources.values()}
    if len(modules) > MOST_MODULES:
        found, expected = f"{len(modules)} different modules under `from`", f"at most {MOST_MODULES}"
        problems.append(Problem(key_origin(shared["tools"]), found, expected, "their source was not looked at"))
        return tools, {}
    return tools, sources


def read_connectors(ceiling: Lists, shared: Fields, app: str | None, workspace_file: str) -> Connectors:
    """The lists of connectors that apply to one agent of one app; a personality has none (None)."""
    held = record(shared, "connectors")
    override: Fields = record(record(held, "app_overrides"), app or "")
    # A personality alone cannot say which app it is for, so it must not use what an override may take from that app.
    unknown = app is None and "app_overrides" in held and bool(ceiling.listed("connectors"))
    around = shared.get("connectors")
    whole = key_origin(around) if around is not None else Origin(workspace_file, 1, 1) if workspace_file else None
    tenant, allow, own = held.get("tenant_allowlist"), override.get("allow"), ceiling.keys.get("connectors")
    return Connectors(
        tenant=connector_lines(tenant),
        app=connector_lines(allow) if unknown or "allow" in override else None,
        app_deny=connector_lines(override.get("deny")),
        profiles=(connector_lines(own),),
        profile_places=((f"{ceiling.prefix}connectors", key_origin(own) if own is not None else ceiling.origin),),
        app_name=app or "",
        workspace_file=workspace_file,
        tenant_place=key_origin(tenant) if tenant is not None else whole,
        app_place=key_origin(allow) if allow is not None else whole,
    )


def app_problems(given: Fields, ceiling: Lists, shared: Fields) -> Iterator[Problem]:
    """A manifest whose `app` the workspace does not know, or that leaves it out where connectors depend on it."""
    known = record(shared, "connectors").get("app_overrides")
    if known is None:
        return
    app, listed = given.get("app"), ceiling.keys.get("connectors")
    names = ", ".join(f"`{name}`" for name in [*known.value][:_MOST_NAMED]) or "none yet"
    more = f" and {len(known.value) - _MOST_NAMED} more" if len(known.value) > _MOST_NAMED else ""
    expected = f"an app of `connectors.app_overrides` ({names}{more})"
    if app is not None and app.value not in known.value:
        near = nearest(app.value, known.value, [])
        hint = f"{near}; or " if near else ""
        yield Problem(app.origin, f"the app `{app.value}`", expected, f"{hint}add `{app.value}: {{}}` there")
    elif app is None and listed is not None and listed.value:
        hint = "add `app:`; a name becomes known with `NAME: {}` there"
        yield Problem(key_origin(listed), "connectors of a manifest without `app`", expected, hint)


def read_definitions(shared: Fields) -> dict[str, Definition]:
    """What a workspace says its connectors are."""
    definitions = {}
    for name, held in record(record(shared, "connectors"), "definitions").items():
        given, origin, prefix = held.value, key_origin(held), f"connectors.definitions.{name}"
        lists = Lists(given, f"{prefix}.", origin)
        rules = (*lists.whole_rules("hosts"), *lists.rules("secret:read", "secrets"))
        narrowed = {domain for key, domain in (("hosts", "network"), ("secrets", "secret")) if key in given}
        layer = Layer("definition", prefix, origin, rules, silent=EVERY_DOMAIN - narrowed) if narrowed else None
        said: str = plain(given, "version", "")
        versions, version = version_range(said) if said else "", said if said[:1].isdigit() else ""
        place = held_version.origin if (held_version := given.get("version")) is not None else origin
        about = Versions(name, place, versions, version, plain(given, "distribution", ""))
        definitions[name] = Definition(about, layer, stated(given, "side_effect_class"))
    return definitions


def server_problems(shared: Fields, definitions: Mapping[str, Definition]) -> Iterator[Problem]:
    """Where a server holds more than the definition of its connector says."""
    for name, held in record(shared, "servers").items():
        given: Fields = held.value
        ref: ConnectorRef | None = plain(given, "connector", None)
        definition = definitions.get(ref.name) if ref is not None else None
        if ref is None or definition is None:
            continue
        lists = Lists(given, f"servers.{name}.", key_origin(held))
        secrets = [(Capability(f"secret:read:{one.value}"), one.origin) for one in record(given, "secrets").values()]
        held_rules = [(rule.capability, rule.origin) for rule in lists.whole_rules("grants")] + secrets
        for rule, origin in held_rules:
            layer = definition.layer
            if layer is not None and rule.domain not in layer.silent and not CapabilitySet((rule,)) <= layer.allowed:
                found, expected = f"`{rule}` of server `{name}`", f"what `{layer.title}` allows"
                yield Problem(origin, found, expected, "narrow it, or add it to the definition")
        for effect, most in ((one, most) for one in _effects(given) for most, _ in definition.effects):
            if not class_fits(effect.value, most):
                found = f"class {effect.value} of server `{name}`"
                yield Problem(effect.origin, found, f"at most {most}, as its connector `{ref.name}` is defined")


def _effects(server: Fields) -> Iterator[Value]:
    for tool in record(server, "tools").values():
        if (effect := tool.value.get("effect")) is not None:
            yield effect


def connector_lines(held: Value | None) -> tuple[ConnectorRule, ...]:
    """The lines of an allowlist."""
    lines = []
    for item in held.value if held is not None else ():
        given = item.value
        name, versions = (
            (given, "") if isinstance(given, str) else (plain(given, "connector", ""), plain(given, "version", ""))
        )
        lines.append(ConnectorRule(name, versions, item.origin))
    return tuple(lines)


def workspace_layer(shared: Fields, problems: Problems) -> Iterator[Layer]:
    """Where the workspace lets its agents connect, if it says anything about it."""
    held = shared.get("destinations")
    if held is None:
        return
    narrowing = Lists(held.value, "destinations.", key_origin(held))
    if "default" in held.value and "allow" not in held.value:
        found, expected = "`default: deny` without an `allow` list", "an `allow` list, since absent it does not narrow"
        hint = "write `allow: []` to reach nothing, or leave `default` out"
        problems.append(Problem(key_origin(held.value.get("default", held)), found, expected, hint))
    allows, denies = tuple(narrowing.whole_rules("allow")), tuple(narrowing.whole_rules("deny"))
    if "allow" in held.value:
        yield Layer("workspace", "the workspace", narrowing.origin, allows, denies, ALL_BUT_NETWORK)
    elif denies:
        yield Layer("workspace", "the workspace", narrowing.origin, (), denies, EVERY_DOMAIN)


def bundle_layer(name: str, bundle: Fields) -> Layer | None:
    """Where the tools of a bundle may connect, if it says anything about it."""
    held = bundle.get("destinations")
    if held is None:
        return None
    narrowing = Lists(bundle, f"bundles.{name}.", key_origin(held))
    rules = tuple(narrowing.whole_rules("destinations"))
    return Layer("bundle", f"bundles.{name}", narrowing.origin, rules, (), ALL_BUT_NETWORK)


def shared_layers(shared: Fields, but: Container[str] = ()) -> tuple[Layer, ...]:
    """The lists of all bundles of a workspace but some, and of its connectors."""
    bundles = record(shared, "bundles").items()
    layers = [bundle_layer(name, held.value) for name, held in bundles if name not in but]
    layers += [definition.layer for definition in read_definitions(shared).values()]
    return tuple(layer for layer in layers if layer is not None)
