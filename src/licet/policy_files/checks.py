"""Rules on arguments in a manifest: JSON Schema keywords and `scope`.

`ask` beside the keywords of an argument has a schema of its own: a value that fits it makes the call ask a person.
`flow`, `from`, `of` and `always` say where a value must come from, and are no JSON Schema either. An
unknown keyword is an error, since JSON Schema would ignore them and the rule would not be enforced. The word `free`
instead of keywords unties an argument of a tool without handles: see `core/policy/argument_ties.py`.

Checks wildcards over public suffixes: `*.com` is an error, `*.github.io` a warning. The list is offline data.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from licet.core.algebra.rules import Capability
from licet.core.decision.argument_rules import DESCENDS, denying
from licet.core.late_pattern import late_pattern
from licet.core.policy.argument_ties import ASK, FLOW_WORDS, FREE, SCOPES, asking, without_own_words
from licet.core.policy.flow import OF_ROLE, ORIGINS
from licet.core.values import Origin, Problem
from licet.declare.plain_json import plain_json
from licet.policy_files.limits import LONGEST_PATTERNS, LONGEST_SHOWN, MOST_PATTERNS
from licet.policy_files.shapes import Located, did_you_mean

if TYPE_CHECKING:
    from licet.declare.json_schema import SchemaCheck

# Keywords whose value is a schema, a list of schemas, or a mapping to schemas.
_ONE = ("items", "additionalProperties", "not", "contains", "propertyNames")
_SEVERAL = ("anyOf", "oneOf", "allOf", "prefixItems")
_NAMED = ("properties",)
_WORDS = (
    *("type", "enum", "const", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"),
    *("minLength", "maxLength", "pattern", "format", "minItems", "maxItems", "uniqueItems", "minContains"),
    *("maxContains", "required", "minProperties", "maxProperties", "title", "description", "scope"),
)
_PATTERN = '"pattern": '  # the key as it is written in JSON; inside a JSON string, its quotes would be escaped
_KNOWN = (*_WORDS, *_ONE, *_SEVERAL, *_NAMED)
_TOOL_FIELD = late_pattern(r"[^\s:]{1,128}:[^\s/:][^\s:]{0,254}")


def argument_problems(tools: Iterable[Located[Any] | None], known: list[Problem]) -> Iterator[Problem]:
    """Report everything in argument rules that could not be enforced. `known` are the problems found so far."""
    seen: set[str] = set()
    patterns = length = 0
    for name, located in (rule for args in tools if args is not None for rule in args.value.items()):
        if located.value == FREE:
            continue
        if not isinstance(located.value, dict):
            expected = f"JSON Schema keywords, such as `{{enum: [a, b]}}`, or the word `{FREE}`"
            yield Problem(located.origin, f"no mapping for `{name}`", expected)
            continue
        problems = [*_unknown(without_own_words(located.value), located.origin, known), *_unsound_ask(located, known)]
        problems += _unsound_flow(located.value, located.origin, known)
        yield from problems
        try:
            text = _text(located.value)
        except TypeError:  # a value that could not be read, which was reported already
            continue
        if problems or text in seen:
            continue
        seen.add(text)
        if _PATTERN in text:
            patterns, length = patterns + text.count(_PATTERN), length + len(text)
        if patterns > MOST_PATTERNS or length > LONGEST_PATTERNS:
            found = f"more than {MOST_PATTERNS} different patterns"
            if patterns <= MOST_PATTERNS:
                found = f"more than {LONGEST_PATTERNS} characters in different rules with patterns"
            yield Problem(located.origin, found, "fewer", "what follows was not compiled")
            return
        for rule in (without_own_words(located.value), *denying(asking({name: located.value})).values()):
            yield from _uncompilable(_text(rule), located.origin)


def _unsound_ask(located: Located[Any], known: list[Problem]) -> Iterator[Problem]:
    """Report an `ask` that is no schema, and what could not be enforced in it."""
    if not isinstance(asked := located.value.get(ASK, {}), Mapping):
        expected = 'JSON Schema keywords, such as `ask: {pattern: "^git push"}`; `{}` is every value'
        yield Problem(located.origin, "no mapping under `ask`", expected)
        return
    yield from _unknown(asked, located.origin, known, certain=False)


def _unsound_flow(rule: Mapping[str, Any], origin: Origin, known: list[Problem]) -> Iterator[Problem]:
    """Report what a rule says about the origin of an argument and could not be enforced."""
    role, origins, fields = rule.get("flow"), rule.get("from"), rule.get("of")
    taken = tuple(one for one in ORIGINS if one != "unknown")  # with it, a rule would take whatever a model writes
    if "flow" in rule and role not in OF_ROLE:
        hint = did_you_mean(str(role), OF_ROLE, known)
        yield Problem(origin, f"the role `{role}`", f"one of {', '.join(OF_ROLE)}", hint)
    if "from" in rule and not (isinstance(origins, list) and origins):
        yield Problem(origin, "no list under `from`", "the origins that are taken, such as `from: [task, trusted]`")
    for one in origins if isinstance(origins, list) else ():
        if one not in taken:
            hint = did_you_mean(str(one), taken, known)
            yield Problem(origin, f"the origin `{one}`", f"one of {', '.join(taken)}", hint)
    if "of" in rule and not (isinstance(fields, list) and fields):
        expected = 'the fields that give such ids, such as `of: ["list_files:id"]`'
        yield Problem(origin, "no list under `of`", expected)
    for one in fields if isinstance(fields, list) else ():
        if not isinstance(one, str) or _TOOL_FIELD.fullmatch(one) is None:
            expected = "a tool and its field, such as `list_files:id` or `files.list:owner/id`"
            yield Problem(origin, f"`{one}` under `of`", expected)
    if "of" in rule and role != "ref":
        yield Problem(origin, "`of` without `flow: ref`", "`flow: ref` beside it", "`of` says which ids a `ref` may be")
    if not isinstance(rule.get("always", False), bool):
        yield Problem(origin, f"`always: {rule['always']}`", "`true` or `false`")
    if "always" in rule and not {"flow", "from"} & rule.keys():
        yield Problem(origin, "`always` without `flow` and `from`", "what must hold from the start, such as `flow: to`")


def _unknown(schema: object, origin: Origin, known: list[Problem], *, certain: bool = True) -> Iterator[Problem]:
    """Report unknown keywords, and each `scope` that cannot be enforced.

    `certain` is False below keywords such as `not` and `anyOf`. A value need not match a schema there.
    """
    if not isinstance(schema, Mapping):
        return
    for key, value in schema.items():
        if key == ASK or key in FLOW_WORDS:
            yield Problem(origin, f"`{key}` inside another keyword", "it at the argument itself, beside other keywords")
        elif key not in _KNOWN:
            hint = did_you_mean(key, _KNOWN, known)
            yield Problem(origin, f"the keyword `{key}`", "a JSON Schema keyword that licet enforces, or `scope`", hint)
        elif key == "scope" and value not in SCOPES:
            hint = did_you_mean(str(value), SCOPES, known)
            yield Problem(origin, f"the scope `{value}`", f"one of {', '.join(SCOPES)}", hint)
        elif key == "scope" and not certain:
            found, expected = (
                "`scope` inside another keyword",
                f"it at the argument itself, or below {', '.join(DESCENDS)}",
            )
            yield Problem(origin, found, expected)
        else:
            inner = certain and key in DESCENDS
            several = value.values() if key in _NAMED and isinstance(value, Mapping) else value
            for one in [value] if key in _ONE else several if key in (*_SEVERAL, *_NAMED) else ():
                yield from _unknown(one, origin, known, certain=inner)


def _uncompilable(text: str, origin: Origin) -> Iterator[Problem]:
    try:
        _check_of(text)
    except ValueError as error:
        found = str(error).partition("\n")[0]
        found = found if len(found) <= LONGEST_SHOWN else f"{found[: LONGEST_SHOWN - 1]}…"
        hint = "`maxLength` says how long a text may be"
        yield Problem(origin, found, "a sound JSON Schema; patterns without look-around and long repetitions", hint)


def argument_check(rules: Mapping[str, Any]) -> Callable[[Mapping[str, Any]], str]:
    """A function that checks arguments against the rules of a tool.

    It returns an error message, which never contains the values, or an empty text.
    """
    checks = {name: _check_of(_text(schema)) for name, schema in rules.items()}

    def check(arguments: Mapping[str, Any]) -> str:
        wrong = [name for name, check in checks.items() if name in arguments and not _fits(check, arguments[name])]
        return "; ".join(f"`{name}` is outside what the manifest allows" for name in wrong)

    return check


def _fits(check: "SchemaCheck", value: Any) -> bool:
    fits = check.fits(value)
    return check.answer(plain_json(value)).fits is True if fits is None else fits


def _text(schema: object) -> str:
    return json.dumps(schema, default=dict)  # `default` is for read-only mappings


def _check_of(text: str) -> "SchemaCheck":
    # Only patterns are slow to compile. Caching other schemas would push patterns out of the cache.
    return compiled(text) if _PATTERN in text else _compile(text)


def _compile(text: str) -> "SchemaCheck":
    from licet.declare.json_schema import SchemaCheck

    # Patterns run in linear time. An unknown format is refused, since it would not be enforced.
    check = SchemaCheck(_with_types(_without_scope(json.loads(text))), rules=True)
    if check.unusable is not None:
        raise check.unusable
    return check


compiled = lru_cache(maxsize=MOST_PATTERNS)(_compile)


def _without_scope(schema: object) -> Any:
    """The schema without the keyword `scope`, which JSON Schema does not have. A property named `scope` stays."""
    if not isinstance(schema, Mapping):
        return schema
    plain = {}
    for key, value in schema.items():
        if key in _ONE:
            plain[key] = _without_scope(value)
        elif key in _SEVERAL and isinstance(value, list):
            plain[key] = [_without_scope(one) for one in value]
        elif key in _NAMED and isinstance(value, Mapping):
            plain[key] = {name: _without_scope(one) for name, one in value.items()}
        elif key != "scope":
            plain[key] = value
    return plain


# In JSON Schema a keyword accepts every value of another type: `maximum` accepts any text, `pattern` any number. Then
# a limit on a number could be avoided by passing it as text, which some type hints accept.
_KEYWORDS_OF_TYPE = {
    "number": ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"),
    "string": ("minLength", "maxLength", "pattern", "format"),
    "array": ("items", "prefixItems", "contains", "minItems", "maxItems", "uniqueItems", "minContains", "maxContains"),
    "object": ("properties", "required", "additionalProperties", "propertyNames", "minProperties", "maxProperties"),
}


def _with_types(schema: object) -> Any:
    """The schema with the `type` that its keywords are for, in all its parts. Null, an absent value, is accepted."""
    if not isinstance(schema, Mapping):
        return schema
    plain = {key: _inner_types(key, value) for key, value in schema.items()}
    types = [kind for kind, words in _KEYWORDS_OF_TYPE.items() if any(word in schema for word in words)]
    return plain if "type" in schema or not types else {**plain, "type": [*types, "null"]}


def _inner_types(key: str, value: object) -> Any:
    if key in _ONE:
        return _with_types(value) if key != "not" else value  # inside `not`, an added type would accept more
    if key in _SEVERAL and isinstance(value, list):
        return [_with_types(one) for one in value]
    if key in _NAMED and isinstance(value, Mapping):
        return {name: _with_types(one) for name, one in value.items()}
    return value


def suffix_problems(content: Located[Any] | None) -> Iterator[Problem]:
    """A problem for every wildcard that covers sites of unrelated owners."""
    waiting = [] if content is None else [content]
    while waiting:
        located = waiting.pop()
        value = located.value
        if type(value) is Capability:
            if value.key[:1] == "." and value.domain == "network" and _is_suffix(value.key[1:], _rules()[1]):
                yield _over_suffix(value.key[1:], located.origin)
        elif isinstance(value, tuple):
            waiting += value
        elif isinstance(value, Mapping):
            waiting += [child for child in value.values() if isinstance(child, Located)]


def is_shared_suffix(name: str) -> bool:
    """Whether the names directly below a name belong to different owners: a registry's suffix, or a company's."""
    return _is_suffix(name, _rules()[1])


def is_shared_domain(name: str) -> bool:
    """Whether the names below a name belong to different owners: a suffix, what is above one, or one of `_SHARED`."""
    return is_shared_suffix(name) or name in _above_suffixes() or name in _SHARED


def _over_suffix(suffix: str, origin: Origin) -> Problem:
    if _is_suffix(suffix, _rules()[0]):
        found, expected = f"`*.{suffix}`", "a wildcard below a name that somebody owns"
        return Problem(origin, found, expected, f"`{suffix}` is a public suffix: anyone can register a name there")
    found, expected = f"`*.{suffix}`", "a name below a shared suffix"
    return Problem(origin, found, expected, "its sites belong to different people", "warning")


def _is_suffix(name: str, rules: frozenset[str]) -> bool:
    """Whether a name is a public suffix, so that the names directly below it belong to different owners."""
    if "xn--" in name:  # the list has Unicode names
        try:
            name = name.encode().decode("idna")
        except UnicodeError:
            return False
    if f"*.{name.partition('.')[2]}" in rules:
        return f"!{name}" not in rules
    return name in rules or f"*.{name}" in rules


# Domains in which customers get names, and that the list lacks.
_SHARED = frozenset(
    (
        *(
            "googleusercontent.com",
            "storage.googleapis.com",
            "firebaseio.com",
            "cloudflarestorage.com",
            "backblazeb2.com",
        ),
        *("r2.cloudflarestorage.com", "wasabisys.com", "aliyuncs.com", "myqcloud.com", "myhuaweicloud.com"),
        *("oraclecloud.com", "akamaized.net", "akamaihd.net", "edgekey.net", "edgesuite.net", "fastly.net"),
        *("cloudflareaccess.com", "sharepoint.com", "atlassian.net", "zendesk.com", "force.com", "my.salesforce.com"),
        *("auth0.com", "okta.com", "snowflakecomputing.com", "mongodb.net", "ngrok.dev", "gitpod.io"),
        *("nip.io", "sslip.io", "xip.io", "traefik.me", "localtest.me", "lvh.me"),
    )
)


@lru_cache(1)
def _above_suffixes() -> frozenset[str]:
    """Every name above a suffix of the list, in ASCII as in hosts, and as the list has it."""
    found: set[str] = set()
    for rule in _rules()[1]:
        name = rule.partition(".")[2]
        while name and not rule.startswith("//") and name not in found:
            found |= {name, name if name.isascii() else name.encode("idna").decode()}
            name = name.partition(".")[2]
    return frozenset(found)


@lru_cache(1)
def _rules() -> tuple[frozenset[str], frozenset[str]]:
    """The rules of domain registries, and these together with the rules of companies that give names to customers."""
    from publicsuffixlist import PSLFILE

    text = Path(PSLFILE).read_text("utf-8")
    registries, companies = text.split("===END ICANN DOMAINS===")
    official, every = frozenset(registries.split("\n")), frozenset(companies.split("\n"))
    return official, official | every
