"""What a workspace says to every agent: declarations, connectors, and where anybody may connect."""

from collections.abc import Container, Iterator

from licet.backends.manifest_values import Fields, Lists, Problems, Value, key_origin, plain, record
from licet.core.connector import ConnectorRule, Connectors
from licet.core.manifest import ALL_BUT_NETWORK, EVERY_DOMAIN, Layer
from licet.core.needs import spec_of
from licet.core.origin import Origin, Problem
from licet.core.tool import ToolSpec

MOST_MODULES = 1000  # that a workspace names: each is looked for in several places, and closed to writing there


def declarations(shared: Fields, problems: Problems) -> tuple[dict[str, ToolSpec], dict[str, tuple[str, Origin]]]:
    """Tools that are declared inline, and where the others are declared."""
    tools: dict[str, ToolSpec] = {}
    sources: dict[str, tuple[str, Origin]] = {}
    for name, held in record(shared, "tools").items():
        given: Fields = held.value
        if ("from" in given) == ("needs" in given) or ("from" in given and len(given) > 1):
            found = "neither `from` nor `needs`" if not given.keys() & {"from", "needs"} else "`from` beside other keys"
            expected = "`from` alone, or `needs` with effect, sandbox, connector and cost_usd"
            problems.append(Problem(key_origin(held), found, expected, "`needs: []` is a tool that touches nothing"))
        elif "from" in given:
            if (source := given.get("from")) is not None:
                sources[name] = source.value, source.origin
        else:
            stated = {key: value.value for key, value in given.items() if key != "needs"}
            needs = [rule.value for rule in plain(given, "needs", ())]
            tools[name] = spec_of(name=name, needs=needs, **stated, origin=key_origin(held))
    modules = {reference.partition(":")[0] for reference, _ in sources.values()}
    if len(modules) > MOST_MODULES:
        found, expected = f"{len(modules)} different modules under `from`", f"at most {MOST_MODULES}"
        problems.append(Problem(key_origin(shared["tools"]), found, expected, "their source was not looked at"))
        return tools, {}
    return tools, sources


def read_connectors(ceiling: Lists, shared: Fields, app: str, workspace_file: str) -> Connectors:
    """The lists of connectors that apply to one agent of one app."""
    held = record(shared, "connectors")
    override: Fields = record(record(held, "app_overrides"), app)
    return Connectors(
        tenant=connector_lines(held.get("tenant_allowlist")),
        app=connector_lines(override.get("allow")) if "allow" in override else None,
        app_deny=connector_lines(override.get("deny")),
        profiles=(connector_lines(ceiling.keys.get("connectors")),),
        profile_places=((f"{ceiling.prefix}connectors", ceiling.origin.file),),
        app_name=app,
        workspace_file=workspace_file,
    )


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


def bundle_layers(shared: Fields, but: Container[str] = ()) -> tuple[Layer, ...]:
    """The lists of all bundles of a workspace but some."""
    bundles = record(shared, "bundles").items()
    layers = (bundle_layer(name, held.value) for name, held in bundles if name not in but)
    return tuple(layer for layer in layers if layer is not None)
