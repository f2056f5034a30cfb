"""Builds a `Manifest` from checked documents: what each key means, and the checks across keys. Reads no files.

A document that already has problems is read as far as possible, so that one run reports all of them. The caller then
drops the manifest.

Combines policy documents (a manifest, a workspace, a personality) into one manifest.

A document may come from a file (`load`) or from Python data (`data`). Both use this module.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Literal

from msgspec import Struct
from msgspec.structs import force_setattr, replace

from licet.core.algebra.domains import DOMAINS
from licet.core.algebra.rules import Capability, capability
from licet.core.decision.fixes import bundle_problems
from licet.core.decision.folding import bundles_of
from licet.core.policy import keys
from licet.core.policy.flow_terms import asked_words, in_flow_order
from licet.core.policy.inspection import met_inspect, stand_ins
from licet.core.policy.layer import EVERY_DOMAIN, OUTPUT, OWN_STORAGE, Layer, Rule
from licet.core.policy.manifest import Manifest
from licet.core.policy.manifest_fields import TITLE, Organisation
from licet.core.policy.terms import (
    Admission,
    Approvals,
    Budget,
    Bundle,
    Example,
    MaxEffect,
    Natives,
    Roster,
    WriteApproval,
)
from licet.core.policy.tool import LISTS
from licet.core.values import Origin, Problem, key_bytes
from licet.policy_files.checks import argument_problems, suffix_problems
from licet.policy_files.flow_reader import flow_places, flow_problems
from licet.policy_files.inspection_reader import bundle_problems as bundle_placing_problems
from licet.policy_files.inspection_reader import ceiling_problems, count_problems
from licet.policy_files.nodes import Mapping as MappingNode
from licet.policy_files.nodes import Node, Scalar
from licet.policy_files.schema import FORMAT, SHAPES, WORKSPACE_FIELDS
from licet.policy_files.shapes import Located, check, did_you_mean, number_of
from licet.policy_files.workspace_reader import (
    NONE,
    Fields,
    Lists,
    Problems,
    Value,
    app_problems,
    bundle_layer,
    connector_lines,
    data,
    declarations,
    key_origin,
    numbers,
    plain,
    read_connectors,
    read_definitions,
    record,
    server_places,
    server_problems,
    stated,
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
    problems += flow_problems(given)
    return replace(
        manifest,
        origin=content.origin,
        version=plain(given, "version", ""),
        app=app,
        examples=tuple(_examples(given)),
        values={**manifest.values, **_values({"flow": given["flow"]} if given.get("flow") is not None else {})},
        places={**manifest.places, **flow_places(given)},
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
    problems += flow_problems(given)
    places = {**manifest.places, **flow_places(given)}
    return replace(manifest, origin=content.origin, personality=name, places=places)


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
    problems += (*count_problems(given, ""), *flow_problems(given))
    effect = given.get("max_side_effect_class")
    return Organisation(
        origin=content.origin,
        layers=layers,
        max_effect=MaxEffect(effect.value, effect.origin, True) if effect is not None else None,
        connectors=connector_lines(connectors["allow"]) if "allow" in connectors else None,
        approvals=stated_approvals(approvals),
        budget=Budget(**{key: value.value for key, value in budget.items()}),
        inspect=met_inspect(data(given["inspect"]), ()) if given.get("inspect") is not None else (),
        flow=data(given["flow"]) if given.get("flow") is not None else {},
        places={key: key_origin(located) for key, located in (*given.items(), *budget.items())}
        | flow_places(given)
        | {f"approvals.{key}": key_origin(located) for key, located in approvals.items()}
        | {f"connectors.{key}": key_origin(located) for key, located in connectors.items()},
    )


def _read_ceiling(
    ceiling: Lists,
    kind: Literal["manifest", "personality"],
    agent: str,
    app: str | None,
    workspace: Value | None,
    problems: Problems,
) -> Manifest:
    shared: Fields = workspace.value if workspace is not None else NONE
    bundles = {name: _bundle(name, located) for name, located in record(shared, "bundles").items()}
    for name, located in record(shared, "bundles").items():
        problems += _shared_key_problems(record(located.value, "approvals"))
        problems += bundle_placing_problems(name, located.value)
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
    signers, names = _approver_keys(approvals)
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
            signers,
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
        | {f"stand_ins.{name}": key_origin(located) for name, located in record(ceiling.keys, "stand_ins").items()}
        | dict(server_places(shared)),
        values=_values(ceiling.keys),
        servers={name: data(server) for name, server in record(shared, "servers").items()},
        gateway_names=plain(record(shared, "gateway"), "names", ""),
    )
    problems += _cost_warnings(manifest)
    problems += ceiling_problems(ceiling.keys, ceiling.prefix, manifest.layers[-1].allowed)
    return manifest


def _values(given: Fields) -> dict[str, object]:
    """The values of the keys that have no field of their own."""
    return {key.name: key.read(data(given[key.name])) for key in keys.VALUED if given.get(key.name) is not None}


def _own_layer(
    ceiling: Lists, kind: Literal["manifest", "personality"], admissions: Mapping[str, tuple[Admission, ...]]
) -> Layer:
    always = [Rule(rule, ceiling.origin, "in every ceiling") for rule in OWN_STORAGE]
    admitted = [
        Rule(Capability(f"tool:call:{tool}"), given[0].origin, f"{ceiling.prefix}tools")
        for tool, given in admissions.items()
    ]
    hosts = ("safety", "network") if "safety" in ceiling.keys else ("destinations",)
    allows = (
        *ceiling.capability_rules(*hosts, "allow"),
        *(rule for key, kinds in LISTS.items() for kind in kinds for rule in ceiling.scope_rules(kind, key)),
        *ceiling.scope_rules("fs:write", OUTPUT),
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
    safety = kind == "personality" and "destinations" not in ceiling.keys and "grants" not in ceiling.keys
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
        inspect=met_inspect(data(given["inspect"]), ()) if given.get("inspect") is not None else (),
        stand_ins=stand_ins(data(given["stand_ins"])) if given.get("stand_ins") is not None else None,
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
        args={name: in_flow_order(rule) for name, rule in data(args).items()} if (args := given.get("args")) else {},
        asked_by=asked_words(data(words)) if (words := given.get("asked_by")) is not None else (),
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
        if spec is None or spec.cost_usd is not None:
            continue
        budgets = [manifest.budget, *(bundle.budget for bundle in bundles_of(manifest, admissions))]
        counts = any(one.max_cost_usd is not None or one.max_cost_usd_per_day is not None for one in budgets)
        limited = counts or any(admission.max_cost_usd is not None for admission in admissions)
        if limited:
            found, expected = f"`{name}` without `cost_usd`", "a cost, since the budget counts money"
            yield Problem(spec.origin or manifest.origin, found, expected, "it counts as 0", "warning")


Kind = Literal["workspace", "manifest", "personality", "organisation"]


def a_kind(kind: Kind) -> str:
    """A kind of document with its article."""
    return f"{'an' if kind == 'organisation' else 'a'} {kind}"


class PolicyDocument(Struct, frozen=True):
    """The result of reading a policy file: its kind, all problems in order, and the manifest if there are no errors."""

    kind: Kind
    manifest: Manifest | None
    problems: tuple[Problem, ...]
    partial: Manifest | None = None  # what could be read in spite of errors; only for finding more problems

    def __post_init__(self) -> None:
        placed = sorted(
            dict.fromkeys(self.problems), key=lambda one: (one.origin.file, one.origin.line, one.origin.column)
        )
        force_setattr(self, "problems", tuple(placed))

    @property
    def sound(self) -> bool:
        """Whether there are no errors; warnings do not count."""
        return all(problem.severity == "warning" for problem in self.problems)


class NewerFormat(Exception):
    """A document of a newer format. No other problem is reported for it, since this version would misread it."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem)
        self.problem = problem


class Document(Struct, frozen=True):
    """One checked document; `content` is None if it could not be read."""

    origin: Origin  # of its start
    kind: Kind
    content: Located[Any] | None

    @property
    def name(self) -> str:
        """The path of the file, or a phrase such as `the workspace data`."""
        return self.origin.file

    @property
    def workspace_keys(self) -> list[str]:
        """Its keys that belong to a workspace; a manifest may have them, too."""
        return [key for key in WORKSPACE_FIELDS if self.content is not None and key in self.content.value]

    def wrong_kind(self, expected: str) -> Problem:
        """The problem of a document whose kind is not the expected one."""
        return Problem(self.origin, a_kind(self.kind), expected)


def checked_document(origin: Origin, node: Node | None, problems: list[Problem], kind: Kind | None = None) -> Document:
    """Check a document against the schema of its kind. If the kind is not given, its keys tell it."""
    kind = kind or kind_of(node)
    return Document(origin, kind, None if node is None else check(SHAPES[kind], node, problems))


def kind_of(node: Node | None) -> Kind:
    keys = node.entries.keys() if isinstance(node, MappingNode) else set()
    if keys & {"id", "toolset", "safety"}:
        return "personality"
    if keys & {"agent", "capabilities"} or not keys & WORKSPACE_FIELDS.keys():
        return "manifest"
    return "workspace"


def refuse_newer(node: Node | None) -> None:
    """Raise `NewerFormat` if a document is written for a newer version of licet."""
    entry = node.entries.get("licet") if isinstance(node, MappingNode) else None
    if entry is None or not isinstance(entry.node, Scalar):
        return
    number = number_of(entry.node)
    if number is not None and number > FORMAT:
        found, expected = f"format {entry.node.text}", f"format {FORMAT}, the newest that this licet reads"
        raise NewerFormat(Problem(entry.key_origin, found, expected, "upgrade licet, or write the file for this one"))


def workspace_conflicts(main: Document, shared: Document) -> Iterator[Problem]:
    """A problem if a manifest has workspace keys, although there is a separate workspace."""
    if main.kind == "manifest" and main.content is not None and (own := main.workspace_keys):
        origin = main.content.value.get(own[0], main.content).key_origin or main.content.origin
        name = shared.name.rpartition("/")[2]
        expected = f"workspace keys in one place, here or in {name}"
        hint = f"move it to {name}, or remove {name}: its rules for all agents would not apply here"
        yield Problem(origin, f"the workspace key `{own[0]}` although there is a separate workspace", expected, hint)


def combined(
    main: Document, shared: Document | None, second: Document | None, problems: list[Problem]
) -> Manifest | None:
    """Read a manifest with its workspace, and narrow it by a personality; None if a document is unreadable.

    If there are problems, the result is incomplete and must be used only to find more problems.
    """
    documents = {one.name: one for one in (main, shared, second) if one is not None}
    manifest: Manifest | None = None
    workspace = None if shared is None else shared.content
    if main.content is not None and (shared is None or workspace is not None):
        read = read_personality if main.kind == "personality" else read_manifest
        manifest = read(main.content, workspace, problems)
    if second is not None and second.content is not None and second.kind != "personality":
        problems.append(second.wrong_kind("a personality"))
        del documents[second.name]
    elif second is not None and second.content is not None:
        other = read_personality(second.content, workspace, problems)
        manifest = manifest.meet(other) if manifest is not None else None
    for one in documents.values():
        problems += suffix_problems(one.content)
    if manifest is not None and main.kind == "manifest":  # a personality alone: the manifest may assign the bundle
        problems += bundle_problems(manifest)
    return manifest


def with_protected_paths(manifest: Manifest, closed: dict[str, str]) -> Manifest:
    """The manifest with a layer that denies writing these paths to every tool; `closed` maps each to the reason."""
    rules = tuple(
        Rule(capability("fs", DOMAINS["fs"].actions[action], key, None), manifest.origin, why)
        for key, why in closed.items()
        for action in ("write", "delete")
    )
    layer = Layer("protected paths", "licet itself", manifest.origin, denies=rules, silent=EVERY_DOMAIN)
    return replace(manifest, layers=(*manifest.layers, layer))
