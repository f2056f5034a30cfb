"""May this call be made after what the session has read? The judgement of one call, by the key `flow:` of a policy.

Three rules: who chose the arguments, may what was read leave, did the task ask for it. A judgement can only narrow:
what is unmet is asked about or refused, and nothing that another rule refuses is allowed by it.
"""

from collections.abc import Iterator, Mapping
from decimal import Decimal
from typing import Any

from licet.core.algebra.set import CapabilitySet
from licet.core.decision.flow_arguments import Asking, fix_of, holds_url, judged_arguments, names_in, unmet_origin
from licet.core.decision.reach import Reach
from licet.core.flow.indexed import sought
from licet.core.flow.judgement import Found, Judgement, Met, Unmet
from licet.core.flow.labels import KEYS, scalars, text_of
from licet.core.flow.session_knowledge import Known, from_task
from licet.core.flow.text import folded
from licet.core.limits import MOST_FOUND
from licet.core.policy.flow import ORIGINS, ArgumentFlow, Flow, FlowOrigin, SecretSource, ToolFlow
from licet.core.policy.flow_terms import argument_flow
from licet.core.policy.layer import WRITES

__all__ = [
    "Found",
    "Judgement",
    "Met",
    "Unmet",
    "from_task",
    "judge",
    "readers_ceiling",
    "tool_flow",
]

# What a session may still do after it has read a secret that nobody may receive: everything but writes and the network.
_KEEPS = CapabilitySet(
    (
        *("fs:read:*", "process:exec:*", "env:read:*", "secret:read:*", "storage:read:*"),
        *("tool:call:*", "connector:use:*"),
    )
)
_NETWORK_READS = CapabilitySet(("network:read:*",))
_KNOWN: tuple[FlowOrigin, ...] = tuple(one for one in ORIGINS if one != "unknown")


def tool_flow(reach: Reach) -> ToolFlow:
    """What all admissions of a tool say about the origins of its arguments, and the words that must ask for it."""
    found: dict[str, dict[ArgumentFlow, None]] = {}
    asked_by: dict[tuple[str, ...], None] = {}
    for admission in reach.admissions:
        for name, rule in admission.args.items():
            if (stated := argument_flow(rule)) is not None:
                found.setdefault(name, {})[stated] = None
        if admission.asked_by:
            asked_by[admission.asked_by] = None
    return ToolFlow(arguments={name: tuple(rules) for name, rules in found.items()}, asked_by=tuple(asked_by))


def judge(reach: Reach, flow: Flow, arguments: Mapping[str, object], known: Known) -> Judgement:
    """Judge a call with validated arguments by what its session knows."""
    if not flow:
        return Judgement()
    asking = Asking(reach, flow, tool_flow(reach), arguments, known)
    unmet = [*_secrets_kept(asking), *_asked_for(asking), *_two_of_three(asking)]
    met: list[Met] = []
    for one in judged_arguments(asking) if asking.rules.arguments else ():
        if isinstance(one, Met):
            met.append(one)
        else:
            unmet.append(one)
    return Judgement(tuple(dict.fromkeys(unmet)), tuple(dict.fromkeys(met)), known.tainted_by, not flow.only_watches)


# Readers --------------------------------------------------------------------------------------------------------------


def readers_ceiling(flow: Flow, secrets_read: tuple[SecretSource, ...]) -> CapabilitySet | None:
    """What a session may still hold after it has read secrets; None if it has read none.

    Text can be encoded anew where no comparison sees it, so this is about the session and not about its text: what has
    read a secret writes, and speaks to the network, only where the readers of every such secret are.
    """
    ceiling: CapabilitySet | None = None
    for source in secrets_read if flow else ():
        readable = _KEEPS | CapabilitySet(source.readers)
        ceiling = readable if ceiling is None else ceiling & readable
    return ceiling


def _secrets_kept(asking: Asking) -> Iterator[Unmet]:
    ceiling = readers_ceiling(asking.flow, asking.known.secrets_read)
    if ceiling is not None and not asking.reach.grant <= ceiling:
        text = f"{asking.reach.spec.name} could send what was read to somebody who may not read it"
        known, found = asking.known, dict[Found, None]()
        for source, read_in in zip(known.secrets_read, known.secrets_read_in, strict=True):
            if not asking.reach.grant <= (readers_ceiling(asking.flow, (source,)) or asking.reach.grant):
                found[Found("seen", read_in, source.tool or source.use, "", "secret")] = None
        fix = fix_of(asking, "add its readers under `flow.secrets`")
        yield Unmet("FLOW_SECRET", found=(*found,)[:MOST_FOUND], text=text, place=asking.place_of_secrets, fix=fix)


def _origin(asking: Asking) -> Any:
    return asking.reach.admissions[0].origin if asking.reach.admissions else None


# Words ----------------------------------------------------------------------------------------------------------------


def _asked_for(asking: Asking) -> Iterator[Unmet]:
    if not asking.rules.asked_by or not asking.known.tainted:
        return
    said = asking.known.task_words
    for prefixes in asking.rules.asked_by:
        wanted = tuple(folded(prefix) for prefix in prefixes if prefix)
        if not any(word.startswith(wanted) for word in said):
            text = f"the task does not ask for {asking.reach.spec.name}"
            fix = fix_of(asking, "ask for it in the task")
            yield Unmet("FLOW_NOT_ASKED_FOR", text=text, place=_origin(asking), fix=fix)


# Presets for workspaces without labels --------------------------------------------------------------------------------


def _two_of_three(asking: Asking) -> Iterator[Unmet]:
    """The rules of `rule_of_two` and `trifecta`: untrusted text, and a write, or a request that the model composed."""
    known, presets = asking.known, asking.flow.presets
    if not {"rule_of_two", "trifecta"} & {*presets} or not known.tainted:
        return
    if "rule_of_two" not in presets and not (known.secrets_read or known.private_by):
        return
    grant = asking.reach.grant
    # A tool in this process may declare a write, and hold nothing: its code does it without asking.
    if grant & WRITES or asking.reach.effect not in (None, "read_only"):
        text = f"{asking.reach.spec.name} may write, after text that somebody else wrote"
        yield Unmet("FLOW_ORIGIN", text=text, place=_origin(asking), fix=fix_of(asking))
    elif grant & _NETWORK_READS:
        yield from _composed_requests(asking)


def _composed_requests(asking: Asking) -> Iterator[Unmet]:
    """The text of a request that stands whole in neither the task nor a result, with the keys that no schema names.

    Any of it may become a part of the address. A URL must be known as one. Free are values that the schema lists,
    booleans and numbers.
    """
    schema = asking.reach.spec.schema
    named = names_in(schema)
    for name, argument in asking.arguments.items():
        listed = _listed_in(schema, name)
        for pointer, value in scalars(argument):
            text = text_of(value)
            if isinstance(value, bool | int | float | Decimal) or text == "" or text in listed:
                continue
            if pointer.endswith(f"/{KEYS}") and text in named:
                continue
            is_url = text.strip().casefold().startswith(("http://", "https://")) or holds_url(asking, name)
            one = sought(value, "link" if is_url else None)
            if not asking.known.has(one):
                found = asking.known.origins_of(one)
                what = "is an address that" if is_url else ""
                yield unmet_origin(asking, name, pointer, text, found, _KNOWN, what)


def _listed_in(schema: Mapping[str, Any] | None, argument: str) -> frozenset[str]:
    """The texts that a schema lists for an argument, at any depth of it: nobody composed them."""
    whole: Mapping[str, Any] = schema or {}
    found: set[str] = set()
    rest: list[Any] = [whole.get("properties", {}).get(argument)]
    referred: set[str] = set()
    while rest:
        one = rest.pop()
        if isinstance(one, Mapping):
            listed = one.get("enum")
            values = [*(listed if isinstance(listed, list | tuple) else ()), one.get("const")]
            found.update(value for value in values if isinstance(value, str))
            rest.extend(one.values())
            reference = one.get("$ref")
            if isinstance(reference, str) and reference.startswith("#/$defs/") and reference not in referred:
                referred.add(reference)
                rest.append(whole.get("$defs", {}).get(reference.removeprefix("#/$defs/")))
        elif isinstance(one, list | tuple):
            rest.extend(one)
    return frozenset(found)
