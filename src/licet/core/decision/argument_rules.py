"""Decides whether the arguments of a call keep the rules that a manifest has on them.

Values with a `scope` must name what the call holds. Arguments of a tool without handles are tied in the same way, by
`core/policy/argument_ties.py`, and are read as such code reads them: a path may be a `file:` URL, and begin with `~/`.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from msgspec import Struct

from licet.core.algebra.domains import METHODS
from licet.core.algebra.rules import InvalidUse, Use, use_of_path, use_of_url
from licet.core.algebra.set import CapabilitySet
from licet.core.decision.decision import Deny
from licet.core.decision.fixes import tools_key
from licet.core.decision.reach import Reach, reach_of
from licet.core.decision.request import Ground, Reason, Request
from licet.core.late_pattern import late_pattern
from licet.core.limits import MOST_DELETES_ASKED, MOST_OF_A_GROUND
from licet.core.policy.argument_ties import EITHER, FORMATS, FREE, PATH, URL, Ties, kind_of_name, ties_of
from licet.core.policy.manifest import Manifest
from licet.core.policy.tool import ToolSpec
from licet.core.values import Origin, Problem, data_json

ArgumentCheck = Callable[[Mapping[str, Any]], str]  # returns what is wrong with arguments, or an empty text
_REASON: Reason = "ARGUMENT_NOT_ALLOWED"
_ACTIONS = ("read", "write", "delete")
_SCHEME = late_pattern(r"([A-Za-z][A-Za-z0-9+.-]+):")  # two letters at least, since one is a drive
_FILE_URL = late_pattern(r"file://(?:localhost)?(/[^?#\\]*)", re.IGNORECASE)
_ESCAPED = late_pattern(rb"%([0-9A-Fa-f]{2})")


class PathReading(Struct, frozen=True):
    """How paths in arguments are read: relative ones begin at `base`, and those with `~/` at `home`."""

    base: str
    home: str = ""
    # Whether code without handles gets the value: it opens URLs and paths by itself, as it likes to read them.
    by_code: bool = False


def argument_denial(
    request: Request,
    reach: Reach,
    rules: Mapping[str, Any],
    check: ArgumentCheck | None,
    arguments: Mapping[str, Any],
    reading: PathReading,
    origin: Origin | None = None,
) -> Deny | None:
    """Deny a call whose arguments break a rule of one admission, which is written at `origin`; None if they do not."""
    if missing := [name for name in rules if name not in arguments]:
        return _denied(request, f"`{missing[0]}` must be given: the manifest has a rule on it")
    wrong = check(arguments) if check is not None else "nothing here can check the rules on its arguments"
    if wrong:
        ground = Ground(_REASON, wrong[:MOST_OF_A_GROUND])
        return Deny(request, (ground, *_broken(request.tool, rules, check, arguments, origin)))
    return _scope_denial(request, reach, rules, arguments, reading)


def asked_arguments(
    asking: Mapping[str, Any], refuses: ArgumentCheck | None, arguments: Mapping[str, Any]
) -> tuple[str, ...]:
    """The arguments whose value fits a schema under `ask`. `refuses` is the check of `denying(asking)`.

    Where it cannot be told whether a value fits, the argument asks.
    """
    return tuple(name for name in asking if name in arguments and (refuses is None or refuses({name: arguments[name]})))


def denying(asking: Mapping[str, Any]) -> dict[str, Any]:
    """Rules that deny exactly the values that are asked about: whoever can check the one can check the other."""
    return {name: {"not": schema} for name, schema in asking.items()}


def tie_denial(
    request: Request, reach: Reach, ties: Ties, arguments: Mapping[str, Any], reading: PathReading
) -> Deny | None:
    """Deny a call of a tool without handles whose arguments name a path or a URL that it does not hold."""
    # The schema of a tool that was read from source only has what could be read, so it does not describe every text.
    is_described = _touched(reach.spec) and reach.spec.schema is not None
    if is_described and (argument := next(unknown_texts(ties.rules, arguments), None)) is not None:
        text = f"`{argument}` has text at a place that its schema does not describe, so it is tied to nothing"
        return _denied(request, text, untying(reach, argument))
    return _scope_denial(request, reach, ties.rules, arguments, reading, untie=True)


def _scope_denial(
    request: Request,
    reach: Reach,
    rules: Mapping[str, Any],
    arguments: Mapping[str, Any],
    reading: PathReading,
    *,
    untie: bool = False,
) -> Deny | None:
    for value in tied(rules, arguments):
        fix = untying(reach, value.argument) if untie else ""
        try:
            uses = uses_of_argument(value, reach.grant, reading)
        except InvalidUse as invalid:
            return _denied(request, f"`{value.argument}`: {invalid}", fix)
        for use in uses:
            if not reach.grant.has(use):
                return unheld(request, reach, value.argument, use, fix)
    return None


def unheld(request: Request, reach: Reach, argument: str, use: Use, fix: str = "") -> Deny:
    """The refusal of an argument that names something that the call does not hold."""
    ground = Ground(_REASON, f"`{argument}` names what this call does not hold", fix=fix)
    return Deny(request, (ground, *reach.obstacles_of(use)), use)


def untying(reach: Reach, argument: str) -> str:
    """The edit that unties an argument."""
    written = f"write `{reach.spec.name}: {{args: {{{argument}: {FREE}}}}}` under `capabilities.tools`"
    return f"if `{argument}` names no file and no URL: {written} in {reach.admissions[0].origin.file}"


def spec_ties(spec: ToolSpec, rules: Sequence[Mapping[str, Any]] = ()) -> Ties | None:
    """What is tied of the arguments of a tool without handles; None for other tools, and if nothing is known."""
    schema = spec.schema if spec.schema is not None else spec.sketch
    return ties_of(schema, spec.args, rules) if spec.governed and schema is not None else None


def ties_under(reach: Reach) -> Ties | None:
    """What is tied of the arguments of a tool under a manifest, which may declare some of them free."""
    return spec_ties(reach.spec, [admission.args for admission in reach.admissions])


def untied_ground(reach: Reach, ties: Ties) -> Ground | None:
    """Why a strict gate refuses a tool: it touches files or hosts, and text in its arguments is not tied to these."""
    touched = _touched(reach.spec)
    if not touched or not ties.untied:
        return None
    names = list(dict.fromkeys(re.split(r"[.\[{]", place)[0] for place in ties.untied))
    shown = ", ".join(f"`{place}`" for place in ties.untied)
    text = f"`{reach.spec.name}` declares {' and '.join(touched)}, and takes text that is not tied to it: {shown}"
    free, scope = (
        ", ".join(f"{name}: {word}" for name in names) for word in (FREE, f"{{scope: {_likely(reach.spec)}}}")
    )
    where = f"under `{tools_key(reach.manifest)}` in {reach.admissions[0].origin.file}"
    fix = (
        f"write `{reach.spec.name}: {{args: {{{free}}}}}` {where} if it names no file and no URL, "
        f"or `{{args: {{{scope}}}}}` to tie it"
    )
    return Ground(_REASON, text, reach.admissions[0].origin, fix, f"args.{names[0]}")


def _touched(spec: ToolSpec) -> list[str]:
    return sorted({rule.domain for rule in spec.touches.allow} & {"fs", "network"})


def untied_problems(manifest: Manifest) -> Iterator[Problem]:
    """A warning for each tool with text in its arguments that is neither tied nor declared free."""
    for name in manifest.admissions:
        reach = reach_of(manifest, name)
        ties = ties_under(reach) if reach is not None else None
        ground = untied_ground(reach, ties) if reach is not None and ties is not None else None
        if ground is not None:
            found, expected = f"that {ground.text}", "every such text tied, or declared free"
            yield Problem(ground.origin or manifest.origin, found, expected, ground.fix, "warning")


def _likely(spec: ToolSpec) -> str:
    for action in _ACTIONS:
        if any(rule.domain == "fs" and rule.action in (action, "*") for rule in spec.touches.allow):
            return f'"fs:{action}"'
    return "network"


def _denied(request: Request, text: str, fix: str = "") -> Deny:
    return Deny(request, (Ground(_REASON, text[:MOST_OF_A_GROUND], fix=fix),))


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
            text = f"a rule on `{name}`: {data_json(rule).decode()}"
            fix = f"change `args.{name}` of `{tool}`" + (f" in {origin.file}" if origin else "")
            yield Ground(_REASON, text[:MOST_OF_A_GROUND], origin, fix)


def likely_deletes(schema: Mapping[str, Any], arguments: Mapping[str, Any], workdir: str) -> tuple[Use, ...]:
    """The deletes that arguments make likely: of the paths in those whose schema or name says that they hold paths."""
    found: dict[Use, None] = {}
    for name, about in schema.get("properties", {}).items():
        value = arguments.get(name)
        if not (kind_of_name(name) in (PATH, EITHER) or _is_path(about)):
            continue
        for one in value if isinstance(value, list) else [value]:
            if type(one) is str and (use := _delete_of(one, workdir)) is not None:
                found[use] = None
    return tuple(found)[:MOST_DELETES_ASKED]


def _delete_of(path: str, workdir: str) -> Use | None:
    try:
        return use_of_path("delete", path, workdir) if path else None
    except InvalidUse:
        return None


def _is_path(schema: object) -> bool:
    """Whether a JSON Schema says that a value is a path, or a list of paths; or may be one, beside null."""
    if not isinstance(schema, Mapping):
        return False
    either = [*schema.get("anyOf", ()), schema.get("items")]
    return schema.get("format") in FORMATS[PATH] or any(map(_is_path, either))


# The JSON Schema keywords with the schemas of parts of a value. Other keywords only restrict the value itself.
DESCENDS = ("items", "properties", "prefixItems")


class Tied(Struct, frozen=True):
    """A value in an argument that has a rule with `scope`: the value must be covered by the grant."""

    argument: str
    scope: str
    value: Any


def tied(rules: Mapping[str, Any], arguments: Mapping[str, Any]) -> Iterator[Tied]:
    """Find every value in the arguments that has a rule with `scope`; missing and null values are skipped."""
    return (one for one in _found(rules, arguments) if one.scope)


def unknown_texts(rules: Mapping[str, Any], arguments: Mapping[str, Any]) -> Iterator[str]:
    """The arguments with text that no rule describes. Rules made from a schema describe all that it accepts."""
    return (one.argument for one in _found(rules, arguments) if not one.scope)


def _found(rules: Mapping[str, Any], arguments: Mapping[str, Any]) -> Iterator[Tied]:
    for name, rule in rules.items():
        if name in arguments:
            yield from _walk(name, [rule], arguments[name])


_BY_CODE = {PATH, URL, EITHER}  # scopes of `core/policy/argument_ties.py`; all others are of manifests
_KNOWN: Mapping[str, Any] = {"text": True}  # for parts of a value that is described as a whole


def _walk(name: str, rules: Sequence[Any], value: Any) -> Iterator[Tied]:
    """Visit each part of a value once, with all rules that describe it; text without any is found with no scope."""
    if value is None:
        return
    applied = _with_parts(rules)
    scopes = dict.fromkeys(rule["scope"] for rule in applied if rule.get("scope"))
    if EITHER in scopes or {PATH, URL} <= scopes.keys():
        scopes = {EITHER: None, **{scope: None for scope in scopes if scope not in _BY_CODE}}
    by_parts = isinstance(value, Mapping | list)
    fixed = any(value in rule.get("fixed", ()) for rule in applied)
    is_number = not by_parts and not isinstance(value, str) and (fixed or any("number" in rule for rule in applied))
    for scope in scopes:
        if scope not in _BY_CODE:
            yield from (Tied(name, scope, one) for one in (value if isinstance(value, list) else [value]))
        elif not by_parts and not is_number:
            yield Tied(name, scope, value)
    if isinstance(value, str) and not (scopes or fixed or any("text" in rule for rule in applied)):
        yield Tied(name, "", value)
    if not by_parts:
        return
    whole: list[Any] = [_KNOWN] if fixed or scopes.keys() - _BY_CODE else []
    words = ("properties", "additionalProperties") if isinstance(value, Mapping) else ("items", "prefixItems")
    if not any(word in rule for rule in applied for word in words):
        # A type hint made this of a text, such as `Json`: what the rule says about the text is for all that is in it.
        whole += ({"scope": scope} for scope in scopes if scope in _BY_CODE)
        whole += (_KNOWN for rule in applied if "text" in rule)
    if isinstance(value, Mapping):
        for key, one in value.items():
            if not any(key in rule.get("properties", ()) for rule in applied):  # others may themselves be paths
                yield from _walk(name, [*whole, *(rule.get("propertyNames") for rule in applied)], key)
            yield from _walk(name, [*whole, *(_rule_of_value(rule, key) for rule in applied)], one)
    else:
        for place, one in enumerate(value):
            yield from _walk(name, [*whole, *(_rule_of_item(rule, place) for rule in applied)], one)


def _with_parts(rules: Sequence[Any]) -> list[Mapping[str, Any]]:
    """Rules, and those in their `allOf`, each once, since a rule may contain itself."""
    found: dict[int, Mapping[str, Any]] = {}
    rest = list(reversed(rules))
    while rest:
        rule = rest.pop()
        if isinstance(rule, Mapping) and id(rule) not in found:
            found[id(rule)] = rule
            rest.extend(reversed(rule.get("allOf", ())))
    return list(found.values())


def _rule_of_value(rule: Mapping[str, Any], key: str) -> Any:
    named = rule.get("properties", {})
    return named[key] if key in named else rule.get("additionalProperties")


def _rule_of_item(rule: Mapping[str, Any], place: int) -> Any:
    first = rule.get("prefixItems", ())
    return first[place] if place < len(first) else rule.get("items")


def uses_of_argument(one: Tied, grant: CapabilitySet, reading: PathReading) -> tuple[Use, ...]:
    """The uses that a value with a `scope` names, all of which must be held; `InvalidUse` if it names none."""
    domain, _, action = one.scope.partition(":")
    if domain not in ("fs", "network", *_BY_CODE) or not reading.by_code:
        return (use_of_argument(one, grant, reading),)
    text, actions = _plain(one.value), (action,) if action else _ACTIONS
    of_host = (_use_of_url(text, grant),) if _is_web(text) and domain in ("network", URL, EITHER) else ()
    if of_host and not (domain == EITHER and any(rule.domain == "fs" for rule in grant.allow)):
        return of_host
    paths = _paths_by_code(text, domain)
    return (*of_host, *(_use_of_path(path, actions, grant, reading) for path in paths))


def opened_paths(one: Tied, reading: PathReading) -> tuple[str, ...]:
    """The paths of `uses_of_argument` in `fs` as code opens them: absolute, with each `..` as it is written.

    After a link, `..` is the directory above the link's target. Uses do not show that: they look at no files.
    """
    domain = one.scope.partition(":")[0]
    if not reading.by_code:
        return (_absolute(one.value, reading),) if domain == "fs" else ()
    if domain not in ("fs", *_BY_CODE) or (_is_web(text := _plain(one.value)) and domain == URL):
        return ()
    return tuple(_absolute(path, reading) for path in _paths_by_code(text, domain))


def _absolute(path: str, reading: PathReading) -> str:
    if path.partition("/")[0] == "~":
        return reading.home + path[1:]
    return path if path.startswith("/") else f"{reading.base}/{path}"


def _is_web(text: str) -> bool:
    scheme = _SCHEME.match(text)
    return scheme is not None and scheme[1].lower() in ("http", "https")


def _paths_by_code(text: str, domain: str) -> tuple[str, ...]:
    """The paths that a text names for code that opens paths and URLs by itself; `InvalidUse` if it names none."""
    scheme = _SCHEME.match(text)
    if domain == EITHER and _is_web(text):
        return (text,)  # `https://host/../../a` is `a` for code that resolves it as a path
    if domain == "network":
        raise InvalidUse(text, "a URL that begins with http: or https:")
    if scheme and scheme[1].lower() == "file":
        return _paths_of_file_url(text)
    if scheme or "://" in text:
        urls = "file:" if domain in ("fs", PATH) else "http:, https: or file:"
        hint = f"a path, or a URL that begins with {urls} (`./a:b` is a file of that name)"
        raise InvalidUse(text, hint)
    if domain == URL:
        raise InvalidUse(text, "a URL that begins with http:, https: or file:")
    if text[:1] == "$" or (text[:1] == "~" and text.partition("/")[0] != "~"):
        raise InvalidUse(text, "a path without variables and names of users (`./$a` is a file of that name)")
    return (text or ".",)


def _plain(value: object) -> str:
    if type(value) is not str:
        raise InvalidUse(type(value).__name__, "text")
    if value != value.strip():
        raise InvalidUse(value, "a path or a URL without spaces around it")
    return value


def _paths_of_file_url(text: str) -> tuple[str, ...]:
    """The path of a file URL; if it has escapes, also as it is without replacing these."""
    found = _FILE_URL.fullmatch(text)
    if found is None:
        raise InvalidUse(text, "a file URL with an absolute path, such as `file:///srv/data`")
    if ".." in found[1].split("/"):  # for code that resolves the text as a path, these lead elsewhere
        raise InvalidUse(text, "a file URL without `..`")
    raw = found[1].encode("utf-8", "surrogateescape")
    path = _ESCAPED.sub(lambda escape: bytes((int(escape[1], 16),)), raw).decode("utf-8", "surrogateescape")
    return tuple(dict.fromkeys((path, found[1])))


def _use_of_path(path: str, actions: Sequence[str], grant: CapabilitySet, reading: PathReading) -> Use:
    """The use of a path. The argument does not tell the action, so it is enough if one of them is held."""
    asked = [use_of_path(action, path, reading.base, reading.home) for action in actions]
    held = {rule.action for rule in grant.allow if rule.domain == "fs"}
    likely = [use for use in asked if use.action in held]
    return next(filter(grant.has, asked), (likely or asked)[0])


def use_of_argument(one: Tied, grant: CapabilitySet, reading: PathReading) -> Use:
    """The use that a value with a `scope` of the manifest names, as handles read it; `InvalidUse` if it names none."""
    if type(one.value) is not str:
        raise InvalidUse(type(one.value).__name__, "text")
    domain, _, action = one.scope.partition(":")
    match domain:
        case "fs":
            return use_of_path(action, one.value, reading.base, reading.home)
        case "network":
            return _use_of_url(one.value, grant)
        case "process":
            return Use(f"process:exec:{one.value}")
        case _:
            return Use(f"{domain}:read:{one.value}")


def _use_of_url(url: str, grant: CapabilitySet) -> Use:
    """The use of a URL. It does not tell the method, so it is enough if the grant allows any method."""
    asked = [use_of_url(method, url) for method in METHODS]
    # A refusal names a method that the call holds for other hosts, if there is one.
    held = 0
    for rule in grant.allow:
        held |= rule.atoms if rule.domain == "network" else 0
    likely = [use for use in asked if use.kind.atom & held]
    return next(filter(grant.has, asked), (likely or asked)[0])
