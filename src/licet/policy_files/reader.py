"""Builds a `Manifest` from checked documents: what each key means, and the checks across keys. Reads no files.

A document that already has problems is read as far as possible, so that one run reports all of them. The caller then
drops the manifest.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from msgspec.structs import replace

from licet.core.algebra.capability import Capability
from licet.core.canonical import key_bytes
from licet.core.decision.bundle_rules import bundles_of
from licet.core.origin import Origin, Problem
from licet.core.policy.bundle import Bundle, Roster
from licet.core.policy.layer import EVERY_DOMAIN, OWN_STORAGE, Layer, Rule
from licet.core.policy.manifest import Manifest
from licet.core.policy.organisation import TITLE, Organisation
from licet.core.policy.terms import Admission, Approvals, Budget, Example, MaxEffect, Natives, WriteApproval
from licet.core.policy.tool import LISTS
from licet.policy_files.argument_rules import argument_problems
from licet.policy_files.fields import (
    NONE,
    Fields,
    Lists,
    Problems,
    Value,
    data,
    key_origin,
    numbers,
    plain,
    record,
    stated,
)
from licet.policy_files.server_reader import server_places, server_problems
from licet.policy_files.shapes import did_you_mean
from licet.policy_files.workspace_reader import (
    app_problems,
    bundle_layer,
    connector_lines,
    declarations,
    read_connectors,
    read_definitions,
    workspace_layer,
)

_DEFINE_BUNDLE = "define it under `bundles` in the workspace: `licet.yaml`, or `Manifest.from_data(…, workspace=…)`"


def read_manifest(content: Value, workspace: Value | None, problems: Problems) -> Manifest:
    """Read a manifest together with its workspace."""
    given: Fields = content.value
    located = given.get("capabilities")
    ceiling = Lists(
        located.value if located else NONE, "capabilities.", key_origin(located) if located else content.origin
    )
    app = plain(given, "app", "")
    problems += app_problems(given, ceiling, workspace.value if workspace is not None else NONE)
    manifest = _read_ceiling(ceiling, "manifest", plain(given, "agent", ""), app, workspace, problems)
    return replace(
        manifest,
        origin=content.origin,
        version=plain(given, "version", ""),
        app=app,
        examples=tuple(_examples(given)),
    )


def read_personality(content: Value, workspace: Value | None, problems: Problems) -> Manifest:
    """Read a personality. Without a manifest, it is itself the manifest of an agent with its name."""
    given: Fields = content.value
    if "safety" in given and "destinations" in given:
        found, expected = (
            "`safety.network` together with `destinations`",
            "one of the two, since they are the same list",
        )
        problems.append(Problem(key_origin(given.get("safety", content)), found, expected))
    name = plain(given, "id", "")
    manifest = _read_ceiling(Lists(given, "", content.origin), "personality", name, None, workspace, problems)
    return replace(manifest, origin=content.origin, personality=name)


def read_organisation(content: Value, problems: Problems) -> Organisation:
    """Read an organisation file with the readers of a workspace and a manifest."""
    given: Fields = content.value
    connectors, approvals, budget = (record(given, key) for key in ("connectors", "approvals", "budget"))
    denied = tuple(
        Rule(Capability(f"connector:use:{item.value}"), item.origin, "connectors.deny")
        for item in plain(connectors, "deny", ())
    )
    layers = tuple(workspace_layer(given, problems, "organisation", TITLE))
    if denied:
        origin = key_origin(connectors["deny"])
        layers += (Layer("organisation", TITLE, origin, (), denied, EVERY_DOMAIN),)
    problems += _shared_key_problems(approvals)
    effect = given.get("max_side_effect_class")
    return Organisation(
        origin=content.origin,
        layers=layers,
        max_effect=MaxEffect(effect.value, effect.origin, True) if effect is not None else None,
        connectors=connector_lines(connectors["allow"]) if "allow" in connectors else None,
        approvals=stated_approvals(approvals),
        budget=Budget(**{key: value.value for key, value in budget.items()}),
        places={key: key_origin(located) for key, located in (*given.items(), *budget.items())}
        | {f"approvals.{key}": key_origin(located) for key, located in approvals.items()}
        | {f"connectors.{key}": key_origin(located) for key, located in connectors.items()},
    )


def _read_ceiling(
    ceiling: Lists, kind: Any, agent: str, app: str | None, workspace: Value | None, problems: Problems
) -> Manifest:
    shared: Fields = workspace.value if workspace is not None else NONE
    bundles = {name: _bundle(name, located) for name, located in record(shared, "bundles").items()}
    for located in record(shared, "bundles").values():
        problems += _shared_key_problems(record(located.value, "approvals"))
    admissions, unassigned, roster = _admissions(ceiling, f"the {kind}", bundles, problems)
    connectors = read_connectors(ceiling, shared, app, workspace.origin.file if workspace is not None else "")
    definitions = read_definitions(shared)
    problems += server_problems(shared, definitions)
    tools, sources = declarations(shared, problems)
    native = ceiling.listed("native")
    for item in native:
        if (
            item.value not in admissions
            and item.value not in unassigned
            and item.value not in record(shared, "servers")
        ):
            hint = did_you_mean(item.value, admissions, problems)
            problems.append(Problem(item.origin, f"`{item.value}`", "a tool that this agent has", hint, "warning"))
    approvals, budget = record(ceiling.keys, "approvals"), record(ceiling.keys, "budget")
    keys, names = _approver_keys(approvals)
    problems += _shared_key_problems(approvals)
    quorum = plain(approvals, "quorum", 1)
    effect = ceiling.keys.get("max_side_effect_class")
    manifest = Manifest(
        agent=agent,
        origin=ceiling.origin,
        layers=(*workspace_layer(shared, problems), _own_layer(ceiling, kind, admissions)),
        admissions=admissions,
        unassigned=unassigned,
        bundles=bundles,
        rosters=(roster,),
        tools=tools,
        sources=sources,
        max_effects=(
            MaxEffect(effect.value, effect.origin, True) if effect else MaxEffect("read_only", ceiling.origin, False),
        ),
        private=(tuple(item.value for item in ceiling.listed("private")),),
        natives=(Natives(frozenset(item.value for item in native), ceiling.origin, f"{ceiling.prefix}native"),),
        connectors=connectors,
        definitions=definitions,
        approvals=Approvals(
            plain(approvals, "write", "session"),
            plain(approvals, "expires_seconds", 300),
            quorum,
            keys,
            plain(approvals, "delete", "call"),
            plain(approvals, "through_client", False),
            names,
        ),
        budget=Budget(**{key: value.value for key, value in budget.items()}),
        limits=numbers(ceiling.keys.get("limits")),
        allow_degraded=plain(record(ceiling.keys, "sandbox"), "allow_degraded", False),
        record=plain(ceiling.keys, "record", "digests"),
        places={key: key_origin(located) for key, located in (*budget.items(), *ceiling.keys.items())}
        | {f"approvals.{key}": key_origin(located) for key, located in approvals.items()}
        | {f"limits.{key}": key_origin(located) for key, located in record(ceiling.keys, "limits").items()}
        | dict(server_places(shared)),
        servers={name: data(server) for name, server in record(shared, "servers").items()},
        gateway_names=plain(record(shared, "gateway"), "names", ""),
    )
    problems += _cost_warnings(manifest)
    return manifest


def _own_layer(ceiling: Lists, kind: Any, admissions: Mapping[str, tuple[Admission, ...]]) -> Layer:
    always = [Rule(rule, ceiling.origin, "in every ceiling") for rule in OWN_STORAGE]
    admitted = [
        Rule(Capability(f"tool:call:{tool}"), given[0].origin, f"{ceiling.prefix}tools")
        for tool, given in admissions.items()
    ]
    hosts = ("safety", "network") if "safety" in ceiling.keys else ("destinations",)
    allows = (
        *ceiling.capability_rules(*hosts, "allow"),
        *(rule for key, kinds in LISTS.items() for kind in kinds for rule in ceiling.scope_rules(kind, key)),
        *(
            Rule(Capability(f"storage:*:{item.value}"), item.origin, f"{ceiling.prefix}storage")
            for item in ceiling.listed("storage")
        ),
        *ceiling.capability_rules("grants"),
        *always,
        *admitted,
    )
    denies = (*ceiling.capability_rules(*hosts, "deny"), *ceiling.capability_rules("deny"))
    # This layer does not decide about connectors: they have versions, and a layer of their own for each tool.
    safety = kind == "personality" and not {"destinations", "grants"} & ceiling.keys.keys()
    return Layer(kind, f"the {kind}", ceiling.origin, allows, denies, frozenset({"connector"}), safety)


Admissions = dict[str, tuple[Admission, ...]]


def _admissions(
    ceiling: Lists, title: str, bundles: Mapping[str, Bundle], problems: Problems
) -> tuple[Admissions, Admissions, Roster]:
    """Return the admissions in force, by tool, those of tools whose bundle is not assigned, and the roster.

    The roster says which bundles this ceiling assigns and which tools it names, and where.
    """
    admissions: Admissions = {}
    unassigned: Admissions = {}
    assigned = {item.value: item for item in ceiling.listed("bundles")}
    for item in assigned.values():
        bundle = bundles.get(item.value)
        if bundle is None:
            hint = did_you_mean(item.value, bundles, problems) or _DEFINE_BUNDLE
            problems.append(Problem(item.origin, f"the bundle `{item.value}`", "a bundle of the workspace", hint))
            continue
        for tool, origin in bundle.tools.items():
            if tool in admissions:
                found = f"`{tool}` in `{item.value}` and in `{admissions[tool][0].bundle}`"
                problems.append(Problem(origin, found, "a tool in one of the assigned bundles"))
                continue
            admissions[tool] = (replace(bundle.admission, origin=origin),)
    bundled = {tool for bundle in bundles.values() for tool in bundle.tools}
    named, listed = _named_tools(ceiling, problems), isinstance(plain(ceiling.keys, "tools", ()), tuple)
    for tool, admission in named.items():
        if tool in bundled and tool not in admissions:
            unassigned[tool] = (admission,)
        elif tool not in admissions or not listed:  # a name alone adds nothing to the admission by its bundle
            admissions[tool] = (*admissions.get(tool, ()), admission)
    stated = record(ceiling.keys, "approvals").get("write")
    default: WriteApproval = "session" if stated is None else stated.value
    origin = ceiling.origin if stated is None else stated.origin
    key = f"{ceiling.prefix}approvals.write"
    places = {tool: admission.origin for tool, admission in named.items()}
    return (
        {tool: _with_approval(given, default, origin, key) for tool, given in admissions.items()},
        {tool: _with_approval(given, default, origin, key) for tool, given in unassigned.items()},
        Roster(title, ceiling.origin, ceiling.prefix, frozenset(assigned), places, ceiling.key("tools")),
    )


def _named_tools(ceiling: Lists, problems: Problems) -> dict[str, Admission]:
    """The admissions under `tools`, by tool."""
    located = ceiling.keys.get("tools")
    if located is None:
        return {}
    if isinstance(located.value, tuple):
        # If a name is listed twice, the origin is that of the first one.
        places = {item.value: item.origin for item in reversed(located.value)}
        return {item.value: Admission(places[item.value]) for item in located.value}
    problems += argument_problems((entry.value.get("args") for entry in located.value.values()), problems)
    return {
        tool: _tool_admission(entry, f"{ceiling.key('tools')}.{tool}.approval") for tool, entry in located.value.items()
    }


def _with_approval(
    admissions: tuple[Admission, ...], default: WriteApproval, origin: Origin, key: str
) -> tuple[Admission, ...]:
    """The admissions of a tool, with the `approvals.write` of the ceiling unless an admission states its own."""
    if any(admission.approval for admission in admissions if not admission.bundle):
        return admissions
    first, *others = admissions
    if first.approval is None:
        return (replace(first, approval=default, approval_origin=origin, approval_key=key), *others)
    # The bundle states an approval, too. Both apply, so the stricter one decides.
    return (
        *admissions,
        Admission(first.origin, first.bundle, approval=default, approval_origin=origin, approval_key=key),
    )


def _bundle(name: str, located: Value) -> Bundle:
    given: Fields = located.value
    budget, approvals = record(given, "budget"), record(given, "approvals")
    write = approvals.get("write")
    asks = write is not None and write.value != "manifest"  # `manifest` is the loosest value, so it changes nothing
    private = given.get("private")
    return Bundle(
        name=name,
        origin=key_origin(located),
        tools={tool.value: tool.origin for tool in plain(given, "tools", ())},
        admission=Admission(
            key_origin(located),
            name,
            effects=stated(given, "side_effect_class"),
            levels=stated(given, "sandbox"),
            layer=bundle_layer(name, given),
            limits=numbers(given.get("limits")),
            approval=write.value if write is not None and asks else None,
            approval_origin=write.origin if write is not None and asks else None,
            approval_key=f"bundles.{name}.approvals.write",
        ),
        budget=Budget(**{key: value.value for key, value in budget.items()}),
        approvals=stated_approvals(approvals),
        connectors=connector_lines(given.get("connectors")) if "connectors" in given else None,
        private=None if private is None else tuple(item.value for item in private.value),
        places={key: key_origin(item) for key, item in given.items()}
        | {f"budget.{key}": key_origin(item) for key, item in budget.items()}
        | {f"approvals.{key}": key_origin(item) for key, item in approvals.items()},
    )


def _approver_keys(approvals: Fields) -> tuple[tuple[str, ...] | None, dict[str, str]]:
    """The keys of approvers, None if there is no list, and the names of their owners."""
    listed = approvals.get("keys")
    if listed is None:
        return None, {}
    if isinstance(listed.value, Mapping):
        names = {item.value: name for name, item in listed.value.items()}
        return tuple(names), names
    return tuple(item.value for item in listed.value), {}


def _shared_key_problems(approvals: Fields) -> Iterator[Problem]:
    """A problem for each name whose key belongs to another name, too: one person would be shown as another."""
    listed = approvals.get("keys")
    owners: dict[bytes | None, str] = {}
    for name, item in listed.value.items() if listed is not None and isinstance(listed.value, Mapping) else ():
        first = owners.setdefault(key_bytes(item.value), name)
        if first != name:
            yield Problem(item.origin, f"the key of `{first}` again, for `{name}`", "a key of their own for each")


def stated_approvals(approvals: Fields) -> dict[str, Any]:
    """The approval keys that are stated, for a bundle or an organisation: the others do not narrow."""
    keys, names = _approver_keys(approvals)
    listed = ({} if keys is None else {"keys": keys}) | ({"names": names} if names else {})
    return {key: data(value) for key, value in approvals.items()} | listed


def _tool_admission(entry: Value, approval_key: str) -> Admission:
    given: Fields = entry.value
    return Admission(
        key_origin(entry),
        effects=stated(given, "side_effect_class"),
        levels=stated(given, "sandbox"),
        args=data(args) if (args := given.get("args")) is not None else {},
        approval=plain(given, "approval", None),
        approval_origin=located.origin if (located := given.get("approval")) is not None else None,
        approval_key=approval_key,
        max_calls=plain(given, "max_calls", None),
        max_cost_usd=plain(given, "max_cost_usd", None),
        limits=numbers(given.get("limits")),
    )


def _examples(given: Fields) -> Iterator[Example]:
    examples = record(given, "examples")
    for key, matches in (("match", True), ("no_match", False)):
        for item in examples[key].value if key in examples else ():
            yield Example(plain(item.value, "tool", ""), str(plain(item.value, "use", "")), matches, item.origin)


def _cost_warnings(manifest: Manifest) -> Iterator[Problem]:
    """Warn about tools without a cost if a budget limits money."""
    for name, admissions in manifest.admissions.items():
        spec = manifest.tools.get(name)
        budgets = [manifest.budget, *(bundle.budget for bundle in bundles_of(manifest, admissions))]
        counts = any(one.max_cost_usd is not None or one.max_cost_usd_per_day is not None for one in budgets)
        limited = counts or any(admission.max_cost_usd is not None for admission in admissions)
        if limited and spec is not None and spec.cost_usd is None:
            found, expected = f"`{name}` without `cost_usd`", "a cost, since the budget counts money"
            yield Problem(spec.origin or manifest.origin, found, expected, "it counts as 0", "warning")
