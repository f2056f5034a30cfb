"""Warnings about `flow:` that need the tools: what is not protected, what is believed too easily, what does not exist.

All of them are warnings, since a tool may be meant so. What is wrong in a file by itself is an error of its reader.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from licet.core.algebra.set import CapabilitySet
from licet.core.decision.reach import Reach, reach_of
from licet.core.late_pattern import late_pattern
from licet.core.policy import keys
from licet.core.policy.argument_ties import FORMATS, kind_of_name
from licet.core.policy.flow import ArgumentFlow, Flow
from licet.core.policy.flow_terms import argument_flow, label_at
from licet.core.policy.manifest import Manifest
from licet.core.policy.tool import ToolSpec
from licet.core.values import Origin, Problem, near_hint

LONG_ID = 12  # characters of an id that does not stand for another kind of thing by chance
_NETWORK = CapabilitySet(("network:*:*",))
_ADDRESSES = (*(word for words in FORMATS.values() for word in words), "email", "idn-email", "uuid")
_CREDENTIAL = late_pattern(r"(?:^|[_-])(?:password|passwd|passphrase|pin|secret|token|api_?key|credentials?)$")


def flow_warnings(manifest: Manifest) -> Iterator[Problem]:
    """A warning for each thing about `flow:` that is probably not meant so."""
    flow = keys.FLOW.of(manifest)
    rules = {name: _rules_of(manifest, name) for name in manifest.admissions}
    if not flow:
        yield from _off(manifest, rules)
        return
    yield from _names(manifest, flow)
    labels = {
        label
        for entries in flow.results.values()
        for one in entries
        for label in (one.label, *dict(one.fields).values())
    }
    labels |= {one.label for one in flow.sources}
    sends = any(rule.role == "to" for of_tool in rules.values() for _, _, rule in of_tool)
    if "identity" in labels and sends and not flow.own:
        place = _place(manifest, "flow.results", "flow")
        found, expected = (
            "`identity` labels and `flow: to`, but no `own`",
            "the domains of the operator under `flow.own`",
        )
        hint = "without it, nobody who has written is a `to` without a question"  # under `strict`
        if "strict" not in flow.presets:
            hint = (
                "anybody who has ever written may be a `to`, with `own` too: only `strict`, with `own`, prevents that"
            )
        yield Problem(place, found, expected, hint, "warning")
    for name, of_tool in rules.items():
        reach = reach_of(manifest, name)
        if reach is not None:
            yield from _tool_warnings(manifest, flow, reach, of_tool)
        for origin, argument, rule in of_tool:
            yield from _id_warnings(manifest, flow, name, argument, rule, origin)


Rules = tuple[tuple[Origin, str, ArgumentFlow], ...]


def _rules_of(manifest: Manifest, tool: str) -> Rules:
    stated = (
        (one.origin, name, argument_flow(rule)) for one in manifest.admissions[tool] for name, rule in one.args.items()
    )
    return tuple((origin, name, rule) for origin, name, rule in stated if rule is not None)


def _off(manifest: Manifest, rules: Mapping[str, Rules]) -> Iterator[Problem]:
    expected, hint = "a preset, without which nothing of this is asked about", "write `preset: guarded` under `flow`"
    if keys.FLOW.name in manifest.values:
        yield Problem(_place(manifest, "flow.preset", "flow"), "`flow` that is off", expected, hint, "warning")
        return
    asked = [one.origin for admissions in manifest.admissions.values() for one in admissions if one.asked_by]
    for origin in [*(origin for of_tool in rules.values() for origin, _, _ in of_tool), *asked][:1]:
        found = "what arguments must come from or tasks must say, but no `flow`"
        yield Problem(origin, found, expected, hint, "warning")


def _names(manifest: Manifest, flow: Flow) -> Iterator[Problem]:
    """Tools and arguments that do not exist: nothing they say has an effect."""
    known = manifest.admissions.keys() | manifest.unassigned.keys()
    for tool, entries in flow.results.items():
        place = _place(manifest, f"flow.results.{tool}", "flow")
        if tool not in known:
            yield _no_tool(place, tool, "flow.results", known)
        taken = manifest.tools[tool].parameters if tool in manifest.tools else None
        for argument in dict.fromkeys(name for entry in entries for name, _ in entry.under):
            if taken is not None and argument not in taken:
                found = f"`{argument}` under `flow.results.{tool}`"
                yield Problem(place, found, f"an argument of `{tool}`", near_hint(argument, taken), "warning")
    for tool in dict.fromkeys(secret.tool for secret in flow.secrets if secret.tool):
        if tool not in known:
            yield _no_tool(_place(manifest, "flow.secrets", "flow"), tool, "flow.secrets", known)


def _no_tool(place: Origin, tool: str, key: str, known: Any) -> Problem:
    return Problem(place, f"`{tool}` under `{key}`", "a tool that this agent has", near_hint(tool, known), "warning")


def _tool_warnings(manifest: Manifest, flow: Flow, reach: Reach, rules: Rules) -> Iterator[Problem]:
    name, origin = reach.spec.name, reach.admissions[0].origin
    ruled = {argument for _, argument, _ in rules}
    guarded = {"guarded", "strict", "watch"} & {*flow.presets}
    if guarded and reach.effect not in (None, "read_only"):
        texts = _texts(reach.spec)
        if texts is None and not ruled:
            found, expected = f"`{name}`, which writes, without `flow` on any argument", "a role for its arguments"
            yield Problem(origin, found, expected, "whoever wrote what a session reads may choose them all", "warning")
        elif texts and not ruled & {*texts}:
            listed = ", ".join(f"`{text}`" for text in texts)
            found, expected = f"`{name}`, which writes, without `flow` on {listed}", "a role, such as `flow: content`"
            yield Problem(origin, found, expected, "whoever wrote what a session reads may choose it", "warning")
    believed = [label for entry in flow.results.get(name, ()) for label in (entry.label, *dict(entry.fields).values())]
    if "authored" in believed and reach.grant & _NETWORK:
        place = _place(manifest, f"flow.results.{name}", "flow")
        found, expected = f"`authored` for `{name}`, which reaches the network", "a tool whose text the operator wrote"
        yield Problem(place, found, expected, "anybody may have written what it fetches", "warning")
    secret = [argument for _, argument, rule in rules if rule.role == "value" and _CREDENTIAL.search(argument.lower())]
    # The presets that need no labels need no words either: under them each write is asked about by itself.
    why = f"sets `{secret[0]}`" if secret else "is destructive" if guarded and reach.effect == "destructive" else ""
    if why and not any(one.asked_by for one in reach.admissions):
        hint = "a hijacked session may otherwise choose among all that its task and its tools have named"
        yield Problem(
            origin, f"`{name}`, which {why}, without `asked_by`", "words that its task must have", hint, "warning"
        )


def _id_warnings(
    manifest: Manifest, flow: Flow, tool: str, argument: str, rule: ArgumentFlow, origin: Origin
) -> Iterator[Problem]:
    known = manifest.admissions.keys()
    for one in rule.of:
        giver, _, field = one.partition(":")
        if giver not in known:
            yield _no_tool(origin, giver, f"args.{argument}.of` of `{tool}", known)
        elif giver in flow.results and all(label_at(e, field) in ("untrusted", "ack") for e in flow.results[giver]):
            place, expected = origin, "a field that is labelled trusted or identity"
            hint = f"no value passes for `{argument}` through it: label it under `flow.results.{giver}`"
            yield Problem(place, f"`{one}` under `of` of `{argument}`", expected, hint, "warning")
    if rule.role == "ref" and not rule.of and not _is_unmistakable(manifest, tool, argument):
        found, expected = f"`flow: ref` on `{argument}` of `{tool}` without `of`", "the fields that give such ids"
        hint = "a short id of one kind passes for another kind: `of: [TOOL:FIELD]`, or `minLength: 12` if ids are long"
        yield Problem(origin, found, expected, hint, "warning")


def _is_unmistakable(manifest: Manifest, tool: str, argument: str) -> bool:
    """Whether a value is an address, a path or long, by the schema of the tool or by a rule of the manifest."""
    spec = manifest.tools.get(tool)
    schema = _schema(spec) if spec is not None else None
    declared = (schema or {}).get("properties", {}).get(argument)
    nodes = [declared, *(one.args.get(argument) for one in manifest.admissions.get(tool, ()))]
    nodes += [one.get("items") for one in nodes if isinstance(one, Mapping)]
    said = [one for one in nodes if isinstance(one, Mapping)]
    long = any(isinstance(one.get("minLength"), int) and one["minLength"] >= LONG_ID for one in said)
    return (
        bool(kind_of_name(argument)) or long or any(one.get("format") in _ADDRESSES or "scope" in one for one in said)
    )


def _schema(spec: ToolSpec) -> Mapping[str, Any] | None:
    return spec.schema if spec.schema is not None else spec.sketch


def _texts(spec: ToolSpec) -> tuple[str, ...] | None:
    """The arguments that may be text; None if they are not known."""
    schema = _schema(spec)
    if schema is None:
        return spec.parameters
    return tuple(name for name, node in schema.get("properties", {}).items() if _takes_text(node))


def _takes_text(node: Any) -> bool:
    if not isinstance(node, Mapping):
        return node is not False
    if isinstance(node.get("enum"), list) or "const" in node:
        return False
    several = [one for key in ("anyOf", "oneOf") if isinstance(node.get(key), list) for one in node[key]]
    if several:
        return any(map(_takes_text, several))
    types = node.get("type")
    kinds = {types} if isinstance(types, str) else {*types} if isinstance(types, list) else {"string"}
    return "string" in kinds or "object" in kinds or ("array" in kinds and _takes_text(node.get("items", True)))


def _place(manifest: Manifest, *ways: str) -> Origin:
    return next((manifest.places[way] for way in ways if way in manifest.places), manifest.origin)
