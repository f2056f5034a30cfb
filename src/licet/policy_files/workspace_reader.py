"""Reads the parts of a workspace that all agents share: declarations, connectors and destinations."""

from collections.abc import Container, Iterator

from licet.core.origin import Origin, Problem
from licet.core.policy.connector import ConnectorRule, Connectors, Versions, version_range
from licet.core.policy.connector_definition import Definition
from licet.core.policy.layer import ALL_BUT_NETWORK, EVERY_DOMAIN, Layer, LayerKind
from licet.core.policy.tool import ToolSpec, spec_of
from licet.policy_files.fields import Fields, Lists, Problems, Value, key_origin, plain, record, stated
from licet.policy_files.shapes import did_you_mean

_MOST_NAMED = 20  # apps that one message lists
MOST_MODULES = 1000  # each is searched in several directories, and closed for writing there


def declarations(shared: Fields, problems: Problems) -> tuple[dict[str, ToolSpec], dict[str, tuple[str, Origin]]]:
    """The tools that are declared inline, and the `from:` references of the others with their origins."""
    tools: dict[str, ToolSpec] = {}
    sources: dict[str, tuple[str, Origin]] = {}
    for name, located in record(shared, "tools").items():
        given: Fields = located.value
        if ("from" in given) == ("needs" in given) or ("from" in given and len(given) > 1):
            found = (
                "neither `from` nor `needs`"
                if not given.keys() & {"from", "needs"}
                else "`from` together with other keys"
            )
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
    names = ", ".join(f"`{name}`" for name in [*overrides.value][:_MOST_NAMED]) or "none yet"
    more = f" and {len(overrides.value) - _MOST_NAMED} more" if len(overrides.value) > _MOST_NAMED else ""
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
