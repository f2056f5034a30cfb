"""Decides whether the arguments of a call keep the rules that a manifest has on them.

Values with a `scope` must name what the call holds.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import Any

from msgspec import Struct

from licet.core.algebra.domains import METHODS
from licet.core.algebra.set import CapabilitySet
from licet.core.algebra.use import InvalidUse, Use, use_of_path, use_of_url
from licet.core.canonical import canonical_json
from licet.core.decision.decision import Deny
from licet.core.decision.reach import Reach
from licet.core.decision.request import MOST_OF_A_GROUND, Ground, Reason, Request
from licet.core.origin import Origin

ArgumentCheck = Callable[[Mapping[str, Any]], str]  # returns what is wrong with arguments, or an empty text
_REASON: Reason = "ARGUMENT_NOT_ALLOWED"
_MOST_LIKELY = 20  # deletes in one question; nobody reads more, and any further one asks when it happens


def argument_denial(
    request: Request,
    reach: Reach,
    rules: Mapping[str, Any],
    check: ArgumentCheck | None,
    arguments: Mapping[str, Any],
    workdir: str,
    origin: Origin | None = None,
) -> Deny | None:
    """Deny a call whose arguments break a rule of one admission, which is written at `origin`; None if they do not."""
    if missing := [name for name in rules if name not in arguments]:
        return _denied(request, f"`{missing[0]}` must be given: the manifest has a rule on it")
    wrong = check(arguments) if check is not None else "nothing here can check the rules on its arguments"
    if wrong:
        ground = Ground(_REASON, wrong[:MOST_OF_A_GROUND])
        return Deny(request, (ground, *_broken(request.tool, rules, check, arguments, origin)))
    for value in tied(rules, arguments):
        try:
            use = use_of_argument(value, reach.grant, workdir)
        except InvalidUse as invalid:
            return _denied(request, f"`{value.argument}`: {invalid}")
        if not reach.grant.has(use):
            ground = Ground(_REASON, f"`{value.argument}` names what this call does not hold")
            return Deny(request, (ground, *reach.obstacles_of(use)), use)
    return None


def _denied(request: Request, text: str) -> Deny:
    return Deny(request, (Ground(_REASON, text[:MOST_OF_A_GROUND]),))


def _broken(
    tool: str,
    rules: Mapping[str, Any],
    check: ArgumentCheck | None,
    arguments: Mapping[str, Any],
    origin: Origin | None,
) -> Iterator[Ground]:
    """One ground for each broken rule. The operator sees them; the model sees only the first ground of a refusal."""
    for name, rule in rules.items():
        if check is not None and check({name: arguments[name]}):
            text = f"a rule on `{name}`: {canonical_json(rule).decode()}"
            fix = f"change `args.{name}` of `{tool}`" + (f" in {origin.file}" if origin else "")
            yield Ground(_REASON, text[:MOST_OF_A_GROUND], origin, fix)


# Names of arguments that hold paths, although their type is only text.
PATH_ARGUMENTS = frozenset(
    {
        *("path", "paths", "file", "files", "file_path", "file_paths", "filepath", "filename", "file_name"),
        *("directory", "dir", "folder", "source", "src", "source_path", "old_path", "target_path"),
    }
)
_PATH_FORMATS = frozenset({"path", "file-path", "directory-path"})


def likely_deletes(schema: Mapping[str, Any], arguments: Mapping[str, Any], workdir: str) -> tuple[Use, ...]:
    """The deletes that arguments make likely: of the paths in those whose schema or name says that they hold paths."""
    found: dict[Use, None] = {}
    for name, about in schema.get("properties", {}).items():
        value = arguments.get(name)
        if not (name in PATH_ARGUMENTS or _is_path(about)):
            continue
        for one in value if isinstance(value, list) else [value]:
            if type(one) is str and one:
                with suppress(InvalidUse):
                    found[use_of_path("delete", one, workdir)] = None
    return tuple(found)[:_MOST_LIKELY]


def _is_path(schema: Any) -> bool:
    """Whether a JSON Schema says that a value is a path, or a list of paths; or may be one, beside null."""
    if not isinstance(schema, Mapping):
        return False
    either = [*schema.get("anyOf", ()), schema.get("items")]
    return schema.get("format") in _PATH_FORMATS or any(map(_is_path, either))


# The JSON Schema keywords with the schemas of parts of a value. Other keywords only restrict the value itself.
DESCENDS = ("items", "properties", "prefixItems")


class Tied(Struct, frozen=True):
    """A value in an argument that has a rule with `scope`: the value must be covered by the grant."""

    argument: str
    scope: str
    value: Any


def tied(rules: Mapping[str, Any], arguments: Mapping[str, Any]) -> Iterator[Tied]:
    """Find every value in the arguments that has a rule with `scope`; missing and null values are skipped."""
    for name, rule in rules.items():
        if name in arguments:
            yield from _walk(name, rule, arguments[name])


def _walk(name: str, rule: Any, value: Any) -> Iterator[Tied]:
    if not isinstance(rule, Mapping) or value is None:
        return
    if scope := rule.get("scope"):
        for one in value if isinstance(value, list) else [value]:
            yield Tied(name, scope, one)
    if isinstance(value, list):
        first = rule.get("prefixItems", [])
        for place, one in enumerate(value):
            yield from _walk(name, first[place] if place < len(first) else rule.get("items"), one)
    if isinstance(value, Mapping):
        for key, one in rule.get("properties", {}).items():
            yield from _walk(name, one, value.get(key))


def use_of_argument(one: Tied, grant: CapabilitySet, workdir: str) -> Use:
    """The use that a value with a `scope` names; `InvalidUse` if it names none."""
    if type(one.value) is not str:
        raise InvalidUse(type(one.value).__name__, "text")
    domain, _, action = one.scope.partition(":")
    match domain:
        case "fs":
            return use_of_path(action, one.value, workdir)
        case "network":
            # A URL does not tell the method, so it is enough if the grant allows any method.
            asked = [use_of_url(method, one.value) for method in METHODS]
            # A refusal names a method that the call holds for other hosts, if there is one.
            held = 0
            for rule in grant.allow:
                held |= rule.atoms if rule.domain == "network" else 0
            likely = [use for use in asked if use.kind.atom & held]
            return next(filter(grant.has, asked), (likely or asked)[0])
        case "process":
            return Use(f"process:exec:{one.value}")
        case _:
            return Use(f"{domain}:read:{one.value}")
