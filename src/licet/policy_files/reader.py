"""From checked files to a `Manifest`: what each key means, and what keys must agree on. Nothing is read from disk.

A file that already has problems is read as far as it goes, so that one run reports everything; its manifest is dropped.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from msgspec.structs import replace

from licet.core.algebra.capability import Capability
from licet.core.decision.bundle_rules import bundles_of
from licet.core.origin import Origin, Problem
from licet.core.policy.bundle import Bundle, Roster
from licet.core.policy.layer import OWN_STORAGE, Layer, Rule
from licet.core.policy.manifest import Manifest
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
from licet.policy_files.shapes import nearest
from licet.policy_files.workspace_reader import (
    app_problems,
    bundle_layer,
    connector_lines,
    declarations,
    read_connectors,
    read_definitions,
    server_problems,
    workspace_layer,
)

_DEFINE_BUNDLE = "define it under `bundles` in the workspace: `licet.yaml`, or `Manifest.from_data(…, workspace=…)`"


def read_manifest(content: Value, workspace: Value | None, problems: Problems) -> Manifest:
    """The manifest that a file and its workspace say."""
    given: Fields = content.value
    held = given.get("capabilities")
    ceiling = Lists(held.value if held else NONE, "capabilities.", key_origin(held) if held else content.origin)
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
    """The ceiling that a personality says; alone it is a manifest for an agent of its name."""
    given: Fields = content.value
    if "safety" in given and "destinations" in given:
        found, expected = "`safety.network` beside `destinations`", "one spelling of the same list"
        problems.append(Problem(key_origin(given.get("safety", content)), found, expected))
    name = plain(given, "id", "")
    manifest = _read_ceiling(Lists(given, "", content.origin), "personality", name, None, workspace, problems)
    return replace(manifest, origin=content.origin, personality=name)


def _read_ceiling(
    ceiling: Lists, kind: Any, agent: str, app: str | None, workspace: Value | None, problems: Problems
) -> Manifest:
    shared: Fields = workspace.value if workspace is not None else NONE
    bundles = {name: _bundle(name, held) for name, held in record(shared, "bundles").items()}
    admissions, unassigned, roster = _seats(ceiling, f"the {kind}", bundles, problems)
    connectors = read_connectors(ceiling, shared, app, workspace.origin.file if workspace is not None else "")
    definitions = read_definitions(shared)
    problems += server_problems(shared, definitions)
    tools, sources = declarations(shared, problems)
    native = ceiling.listed("native")
    for item in native:
        if item.value not in admissions and item.value not in unassigned:
            hint = nearest(item.value, admissions, problems)
            problems.append(Problem(item.origin, f"`{item.value}`", "a tool that this agent has", hint, "warning"))
    approvals, budget = record(ceiling.keys, "approvals"), record(ceiling.keys, "budget")
    listed = approvals.get("keys")
    keys = None if listed is None else tuple(item.value for item in listed.value)
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
            plain(approvals, "write", "session"), plain(approvals, "expires_seconds", 300), quorum, keys
        ),
        budget=Budget(**{key: value.value for key, value in budget.items()}),
        limits=numbers(ceiling.keys.get("limits")),
        allow_degraded=plain(record(ceiling.keys, "sandbox"), "allow_degraded", False),
        record=plain(ceiling.keys, "record", "digests"),
        places={key: key_origin(held) for key, held in (*budget.items(), *ceiling.keys.items())}
        | {f"approvals.{key}": key_origin(held) for key, held in approvals.items()}
        | {f"limits.{key}": key_origin(held) for key, held in record(ceiling.keys, "limits").items()},
        servers={name: data(server) for name, server in record(shared, "servers").items()},
    )
    problems += _uncounted(manifest)
    return manifest


def _own_layer(ceiling: Lists, kind: Any, admissions: Mapping[str, tuple[Admission, ...]]) -> Layer:
    always = [Rule(rule, ceiling.origin, "in every ceiling") for rule in OWN_STORAGE]
    admitted = [
        Rule(Capability(f"tool:call:{tool}"), held[0].origin, f"{ceiling.prefix}tools")
        for tool, held in admissions.items()
    ]
    hosts = ("safety", "network") if "safety" in ceiling.keys else ("destinations",)
    allows = (
        *ceiling.whole_rules(*hosts, "allow"),
        *(rule for key, kinds in LISTS.items() for kind in kinds for rule in ceiling.rules(kind, key)),
        *(
            Rule(Capability(f"storage:*:{item.value}"), item.origin, f"{ceiling.prefix}storage")
            for item in ceiling.listed("storage")
        ),
        *ceiling.whole_rules("grants"),
        *always,
        *admitted,
    )
    denies = (*ceiling.whole_rules(*hosts, "deny"), *ceiling.whole_rules("deny"))
    # Connectors have versions; their lists are a layer of their own, made for each tool.
    return Layer(kind, f"the {kind}", ceiling.origin, allows, denies, frozenset({"connector"}))


Admissions = dict[str, tuple[Admission, ...]]


def _seats(
    ceiling: Lists, title: str, bundles: Mapping[str, Bundle], problems: Problems
) -> tuple[Admissions, Admissions, Roster]:
    """Every tool that is admitted; every one that is named while its bundle is not assigned; and who says so."""
    admissions: Admissions = {}
    unassigned: Admissions = {}
    assigned = {item.value: item for item in ceiling.listed("bundles")}
    for item in assigned.values():
        bundle = bundles.get(item.value)
        if bundle is None:
            hint = nearest(item.value, bundles, problems) or _DEFINE_BUNDLE
            problems.append(Problem(item.origin, f"the bundle `{item.value}`", "a bundle of the workspace", hint))
            continue
        for tool, origin in bundle.tools.items():
            if tool in admissions:
                found = f"`{tool}` in `{item.value}` and in `{admissions[tool][0].bundle}`"
                problems.append(Problem(origin, found, "a tool in one of the assigned bundles"))
                continue
            admissions[tool] = (replace(bundle.admission, origin=origin),)
    bundled = {tool for bundle in bundles.values() for tool in bundle.tools}
    named, listed = _named(ceiling, problems), isinstance(plain(ceiling.keys, "tools", ()), tuple)
    for tool, admission in named.items():
        if tool in bundled and tool not in admissions:
            unassigned[tool] = (admission,)
        elif tool not in admissions or not listed:  # a mere name says no more than its bundle does
            admissions[tool] = (*admissions.get(tool, ()), admission)
    stated = record(ceiling.keys, "approvals").get("write")
    default: WriteApproval = "session" if stated is None else stated.value
    origin = ceiling.origin if stated is None else stated.origin
    key = f"{ceiling.prefix}approvals.write"
    places = {tool: admission.origin for tool, admission in named.items()}
    return (
        {tool: _asked(held, default, origin, key) for tool, held in admissions.items()},
        {tool: _asked(held, default, origin, key) for tool, held in unassigned.items()},
        Roster(title, ceiling.origin, ceiling.prefix, frozenset(assigned), places),
    )


def _named(ceiling: Lists, problems: Problems) -> dict[str, Admission]:
    """What a ceiling says about single tools, under their names."""
    held = ceiling.keys.get("tools")
    if held is None:
        return {}
    if isinstance(held.value, tuple):
        places = {item.value: item.origin for item in reversed(held.value)}  # of a name that stands twice, the first
        return {item.value: Admission(places[item.value]) for item in held.value}
    problems += argument_problems((entry.value.get("args") for entry in held.value.values()), problems)
    return {tool: _named_seat(entry, f"{ceiling.prefix}tools.{tool}.approval") for tool, entry in held.value.items()}


def _asked(
    admissions: tuple[Admission, ...], default: WriteApproval, origin: Origin, key: str
) -> tuple[Admission, ...]:
    """The admissions of a tool, one of them saying how this ceiling wants to be asked."""
    if any(admission.approval for admission in admissions if not admission.bundle):
        return admissions
    first, *others = admissions
    if first.approval is None:
        return (replace(first, approval=default, approval_origin=origin, approval_key=key), *others)
    # The bundle states one too: both count, and the stricter one decides.
    return (
        *admissions,
        Admission(first.origin, first.bundle, approval=default, approval_origin=origin, approval_key=key),
    )


def _bundle(name: str, held: Value) -> Bundle:
    given: Fields = held.value
    budget, approvals = record(given, "budget"), record(given, "approvals")
    write = approvals.get("write")
    asks = write is not None and write.value != "manifest"  # the loosest word narrows nothing
    private = given.get("private")
    return Bundle(
        name=name,
        origin=key_origin(held),
        tools={tool.value: tool.origin for tool in plain(given, "tools", ())},
        admission=Admission(
            key_origin(held),
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
        approvals={key: data(value) for key, value in approvals.items()},
        connectors=connector_lines(given.get("connectors")) if "connectors" in given else None,
        private=None if private is None else tuple(item.value for item in private.value),
        places={key: key_origin(item) for key, item in given.items()}
        | {f"budget.{key}": key_origin(item) for key, item in budget.items()}
        | {f"approvals.{key}": key_origin(item) for key, item in approvals.items()},
    )


def _named_seat(entry: Value, approval_key: str) -> Admission:
    given: Fields = entry.value
    return Admission(
        key_origin(entry),
        effects=stated(given, "side_effect_class"),
        levels=stated(given, "sandbox"),
        args=data(args) if (args := given.get("args")) is not None else {},
        approval=plain(given, "approval", None),
        approval_origin=held.origin if (held := given.get("approval")) is not None else None,
        approval_key=approval_key,
        max_calls=plain(given, "max_calls", None),
        max_cost_usd=plain(given, "max_cost_usd", None),
        limits=numbers(given.get("limits")),
    )


def _examples(given: Fields) -> Iterator[Example]:
    held = record(given, "examples")
    for key, matches in (("match", True), ("no_match", False)):
        for item in held[key].value if key in held else ():
            yield Example(plain(item.value, "tool", ""), str(plain(item.value, "use", "")), matches, item.origin)


def _uncounted(manifest: Manifest) -> Iterator[Problem]:
    """Tools that spend nothing where money is counted."""
    for name, admissions in manifest.admissions.items():
        spec = manifest.tools.get(name)
        budgets = [manifest.budget, *(bundle.budget for bundle in bundles_of(manifest, admissions))]
        counts = any(one.max_cost_usd is not None or one.max_cost_usd_per_day is not None for one in budgets)
        limited = counts or any(admission.max_cost_usd is not None for admission in admissions)
        if limited and spec is not None and spec.cost_usd is None:
            found, expected = f"`{name}` without `cost_usd`", "a cost, since the budget counts money"
            yield Problem(spec.origin or manifest.origin, found, expected, "it counts as 0", "warning")
