"""Who chose the values of a call? Judges each argument with a role, or with origins of its own, by what is known.

A value whose origin is not allowed is unmet: a person is asked about exactly this call, or it is refused.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from msgspec import Struct, field

from licet.core.decision.reach import Reach
from licet.core.flow.indexed import Sought, sought
from licet.core.flow.judgement import Found, Met, Unmet, value_name
from licet.core.flow.labels import KEYS, scalars, text_of
from licet.core.flow.secret_values import Steps, TooManySecrets
from licet.core.flow.session_knowledge import Known
from licet.core.flow.text import normal
from licet.core.flow.written_values import Address, addresses_in, begins_as_path, is_own, path_parts
from licet.core.limits import LONGEST_JUDGED, MOST_RECORDS, SHORT_VALUE
from licet.core.policy.argument_ties import EITHER, FORMATS, PATH, URL, kind_of_name
from licet.core.policy.flow import BY_ANCHOR, ORIGINS, ArgumentFlow, Flow, FlowOrigin, Role, ToolFlow
from licet.core.policy.flow_terms import origins_of_role
from licet.core.values import Origin

CARRIES: tuple[Role, ...] = ("content", "to", "link")  # the roles of arguments that could carry a secret out
_KEY = f"/{KEYS}"
_MAYBE_PATHS: tuple[Role | None, ...] = ("link", "value", None)  # by their roles; a `ref` is one, and no other role is
# Whoever takes the one takes the other: a value does not become less acceptable because its label is raised.
_STRONGER: Mapping[FlowOrigin, tuple[FlowOrigin, ...]] = {
    "seen": ("identity",),
    "asked": ("named",),
    "identity": ("trusted",),
}


class Asking(Struct, frozen=True):
    """One call that is judged."""

    reach: Reach
    flow: Flow
    rules: ToolFlow
    arguments: Mapping[str, object]
    known: Known
    steps: Steps = field(default_factory=Steps)  # of the search for secrets
    records: list[str] = field(default_factory=list)  # those that were looked up, for a person

    def record_of(self, found: tuple[Found, ...]) -> str:
        """The record that a value stands in; empty if it stands in none, or after as many as a person reads."""
        where = next((one for one in found if one.receipt), None)
        if where is None or len(self.records) >= MOST_RECORDS:
            return ""
        self.records.append(self.known.record_of(where))
        return self.records[-1]

    @property
    def place_of_secrets(self) -> Origin:
        """Where the rules on secrets are written."""
        manifest = self.reach.manifest
        return manifest.places.get("flow.secrets", manifest.places.get("flow", manifest.origin))

    def place_of(self, argument: str) -> Origin | None:
        """Where the rule on an argument is written."""
        return next((one.origin for one in self.reach.admissions if argument in one.args), None)


def judged_arguments(asking: Asking) -> Iterator[Unmet | Met]:
    """Judge every value of every argument that has a rule, in the order of the rules."""
    tainted, has_secrets = asking.known.tainted, bool(asking.known.secrets_read)
    holds = tainted or any(rule.always for rules in asking.rules.arguments.values() for rule in rules)
    known_keys = names_in(asking.reach.spec.schema) if holds else frozenset()
    for argument, rules in asking.rules.arguments.items():
        value = asking.arguments.get(argument)
        if value is None:
            continue
        if has_secrets and any(rule.role in CARRIES for rule in rules):
            yield from _secrets_carried(asking, argument, value)
        for rule in rules:
            if (tainted or rule.always) and (rule.role is not None or rule.origins is not None):
                yield from _judged(asking, argument, value, rule, known_keys)


def _judged(
    asking: Asking, argument: str, value: object, rule: ArgumentFlow, known_keys: frozenset[str]
) -> Iterator[Unmet | Met]:
    if rule.role == "content" and rule.origins is None:
        for pointer, one in scalars(value):
            if not isinstance(one, bool):
                yield from _content(asking, argument, pointer, text_of(one))
        return
    allowed = allowed_origins(asking, argument, rule)
    for pointer, one in scalars(value):
        if pointer.endswith(_KEY) and one in known_keys:  # a name of the schema, which nobody chose
            continue
        found, is_met = _origins(asking, argument, one, rule, allowed)
        if is_met:
            yield Met(argument, pointer, found)
        else:
            yield unmet_origin(asking, argument, pointer, text_of(one), found, allowed)


def allowed_origins(asking: Asking, argument: str, rule: ArgumentFlow) -> tuple[FlowOrigin, ...]:
    """The origins that a rule takes for an argument of this call."""
    if rule.origins is not None:
        taken = rule.origins
    else:
        taken = origins_of_role(asking.flow, rule.role)
        if rule.role is not None and rule.role in BY_ANCHOR and _is_anchored(asking, argument, rule.role):
            taken = (*taken, *BY_ANCHOR[rule.role])
    is_strict = "strict" in asking.flow.presets
    accepted = {one for one in taken if not (is_strict and one == "identity")}
    for origin in reversed(ORIGINS):  # from the weakest on
        if origin in accepted:
            accepted.update(_STRONGER.get(origin, ()))
    return tuple(one for one in ORIGINS if one in accepted)


def _is_anchored(asking: Asking, argument: str, role: Role) -> bool:
    """Whether another argument of the call stands whole in the task, so that the user has asked for this much of it."""
    for name, value in asking.arguments.items():
        if name == argument or value is None or isinstance(value, bool):
            continue
        is_to = any(rule.role == "to" for rule in asking.rules.arguments.get(name, ()))
        if role == "to" and not is_to:
            continue
        found = [sought(one, "to") for _, one in scalars(value)]  # in any case of its letters
        if not found or not all(asking.known.stands_in_task(one) for one in found):
            continue
        names = (one is not None and len(one.text) >= SHORT_VALUE and not one.is_number for one in found)
        if role != "to" or all(names):
            return True
    return False


def _origins(
    asking: Asking, argument: str, value: object, rule: ArgumentFlow, allowed: tuple[FlowOrigin, ...]
) -> tuple[tuple[Found, ...], bool]:
    """The origins of a value, and whether one of them is allowed; of a path, also of its folder and its name."""
    one = sought(value, rule.role)
    found = asking.known.origins_of(one, rule.of, asking.flow.own)
    if _is_allowed(found, allowed):
        return found, True
    if one is None or one.url is not None or not _is_path(asking, argument, one.text, rule.role):
        return found, False
    parts = path_parts(one.text)
    if parts is None:
        return found, False
    pieces = [asking.known.origins_of(sought(part), rule.of, asking.flow.own) for part in parts]
    if all(_is_allowed(piece, allowed) for piece in pieces):
        return tuple(dict.fromkeys(each for piece in pieces for each in piece)), True
    return found, False


def _is_path(asking: Asking, argument: str, text: str, role: Role | None) -> bool:
    """Whether a value is a path: elsewhere two words that the task has would make an address, or another name."""
    if role == "ref":
        return True
    return role in _MAYBE_PATHS and (begins_as_path(text) or _holds_path(asking, argument))


def _holds_path(asking: Asking, argument: str) -> bool:
    """Whether an argument holds paths, by its name, its schema or a rule about it."""
    if kind_of_name(argument) == PATH:
        return True
    scopes = [rule.get("scope") for rule in _stated(asking, argument)]
    return any(one == PATH or str(one).startswith("fs:") for one in scopes) or _has_format(asking, argument, PATH)


def holds_url(asking: Asking, argument: str) -> bool:
    """Whether an argument may hold a URL, by its name, its schema or a rule about it."""
    if kind_of_name(argument) in (URL, EITHER):
        return True
    return any(rule.get("scope") in ("network", URL) for rule in _stated(asking, argument)) or _has_format(
        asking, argument, URL
    )


def _stated(asking: Asking, argument: str) -> list[Mapping[str, Any]]:
    """The rules of the tool and of its admissions about an argument."""
    all_rules = (asking.reach.spec.args, *(one.args for one in asking.reach.admissions))
    return [rule for rules in all_rules if isinstance(rule := rules.get(argument), Mapping)]


def _has_format(asking: Asking, argument: str, kind: str) -> bool:
    schema = asking.reach.spec.schema
    described = schema.get("properties", {}).get(argument) if schema is not None else None
    return any(part.get("format") in FORMATS[kind] for part in _parts(described))


def _parts(schema: object) -> Iterator[Mapping[str, Any]]:
    """A schema, and those in it that describe the same value or its items."""
    if isinstance(schema, Mapping):
        yield schema
        for inner in (*schema.get("anyOf", ()), *schema.get("oneOf", ()), schema.get("items")):
            yield from _parts(inner)


def _is_allowed(found: tuple[Found, ...], allowed: tuple[FlowOrigin, ...]) -> bool:
    return any(one.origin in allowed for one in found)


def _content(asking: Asking, argument: str, pointer: str, raw: str) -> Iterator[Unmet | Met]:
    """Judge the addresses in text that is free otherwise. Each must obey `value`, or be one of ours."""
    allowed = tuple(one for one in ORIGINS if one in origins_of_role(asking.flow, "value"))
    sent = raw.casefold()
    for address in addresses_in(normal(raw)):
        if _is_ours(address, asking.flow.own):
            continue
        # What a reader sees may have signs in between that the text which is compared does not have.
        one = _sought_address(address) if address.text.casefold() in sent else None
        found = asking.known.origins_of(one, (), asking.flow.own)
        if _is_allowed(found, allowed):
            yield Met(argument, pointer, found)
        else:
            yield unmet_origin(asking, argument, pointer, address.text, found, allowed, "holds an address that")


def _is_ours(address: Address, own: tuple[str, ...]) -> bool:
    if not own or address.kind == "account":
        return False
    return is_own(address.text if address.kind == "mail" else address.host, own)


def _sought_address(address: Address) -> Sought | None:
    if address.kind in ("account", "name"):  # the name may stand in the task as that of a file
        return sought(address.text)
    return sought(address.text, "link" if address.kind == "web" else "to")


def _secrets_carried(asking: Asking, argument: str, value: object) -> Iterator[Unmet]:
    unchecked = Unmet(
        "FLOW_SECRET",
        argument,
        text=f"{argument} cannot be checked: too many secrets were read",
        place=asking.place_of_secrets,
        fix=fix_of(asking),
    )
    if asking.known.is_full_of_secrets:
        yield unchecked
        return
    for pointer, one in scalars(value):
        try:
            held = asking.known.secrets_in(text_of(one), asking.steps) if not isinstance(one, bool) else None
        except TooManySecrets:
            yield unchecked
            return
        if held is not None:
            yield Unmet(
                "FLOW_SECRET",
                argument,
                pointer,
                value=text_of(one)[:LONGEST_JUDGED],
                found=(Found("seen", held.receipt, held.tool, held.pointer, "secret"),),
                text=f"{value_name(argument, pointer)} holds a secret",
                place=asking.place_of_secrets,
                fix=fix_of(asking),
            )


def fix_of(asking: Asking, other: str = "") -> str:
    """What helps: an approval of this call, unless nobody is asked about it, and what else would meet the rule."""
    approve = "approve this call" if asking.flow.otherwise == "ask" else ""
    return ", or ".join(filter(None, (approve, other)))


def unmet_origin(
    asking: Asking,
    argument: str,
    pointer: str,
    value: str,
    found: tuple[Found, ...],
    allowed: tuple[FlowOrigin, ...],
    what: str = "",
) -> Unmet:
    """An argument whose origin is not allowed, with the record that it stands in."""
    subject = value_name(argument, pointer)
    return Unmet(
        "FLOW_ORIGIN",
        argument,
        pointer,
        value[:LONGEST_JUDGED],
        asking.record_of(found),
        found,
        allowed,
        f"{subject} {what or ''}".rstrip() + " does not come from the task or a trusted result",
        asking.place_of(argument),
        fix_of(asking, f"name the value of `{subject}` in the task" if "task" in allowed else ""),
    )


def names_in(schema: Mapping[str, Any] | None) -> frozenset[str]:
    """The names that a schema gives to the parts of its objects, at any depth."""
    found: set[str] = set()
    rest: list[object] = [schema]
    while rest:
        one = rest.pop()
        if isinstance(one, Mapping):
            named = one.get("properties")
            if isinstance(named, Mapping):
                found.update(str(name) for name in named)
            rest.extend(one.values())
        elif isinstance(one, list | tuple):
            rest.extend(one)
    return frozenset(found)
