"""Which arguments of a tool name a file or a URL, by their JSON Schema or by their name.

Code that was written for an agent framework opens files by itself, so nothing checks what it opens. `governed` ties
such arguments to what the tool declares: a call whose path or URL is not in its grant is refused before the code runs.
"""

from collections.abc import Collection, Mapping
from types import MappingProxyType
from typing import Any

from msgspec import Struct, field

from licet.core.algebra.domains import DOMAINS
from licet.core.late_pattern import late_pattern
from licet.core.limits import MOST_SCHEMA_NODES

FREE = "free"  # `args: {query: free}`: this argument names no file and no URL, so it is not tied
ASK = "ask"  # the keyword of a rule that makes some values ask a person; only at the argument itself
FLOW_WORDS = ("flow", "from", "of", "always")  # about where a value must come from; only at the argument itself
# Values of `scope` in the rules that are made here. A text that may be either must be held in both readings: only the
# code knows which one it takes.
PATH, URL, EITHER = "path", "url", "path or url"

# An argument is tied if its name is one of these, or ends in one after an underscore; `filePath` counts as `file_path`.
NAMES: Mapping[str, tuple[str, ...]] = {
    PATH: (
        *("path", "paths", "pathname", "filepath", "filepaths", "file", "files", "filename", "filenames", "file_name"),
        *("file_names", "dir", "dirs", "dirname", "directory", "directories", "folder", "folders", "cwd"),
    ),
    URL: ("url", "urls", "uri", "uris", "href", "hrefs"),
}
# The values of `format` in a JSON Schema that tie an argument, whatever its name is.
FORMATS: Mapping[str, tuple[str, ...]] = {
    PATH: ("path", "file-path", "directory-path"),
    URL: ("uri", "uri-reference", "iri", "iri-reference", "url"),
}
ALSO = "x-also-named"  # in a JSON Schema that is made for ties: the other names of a field
# What `scope` in a rule about an argument can name.
SCOPES = (
    "network",
    *(f"fs:{action}" for action in DOMAINS["fs"].actions if action != "*"),
    "process",
    "secret",
    "env",
)
SETTLES = ("scope", "enum", "const", "pattern")  # a rule of the manifest with one of these says what a text may be

_WORD_BEGINS = late_pattern(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])|[-.\s]+")
_NUMBERED = late_pattern(r"\[\d+\]$")
_SEVERAL = ("anyOf", "oneOf", "allOf")
_CONDITIONAL = ("if", "then", "else")
_REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")


class Ties(Struct, frozen=True):
    """What is known about the arguments of one tool. Places are written as `path`, `files[]` or `options.url`.

    `pair[0]` is the first of a list, and in an object with any names `files{}` are its values, `files{name}` its names.
    """

    rules: Mapping[str, Any] = field(default_factory=dict)  # by argument: a rule with `scope`: PATH, URL or EITHER
    tied: tuple[str, ...] = ()
    untied: tuple[str, ...] = ()  # places of text that are not tied, and that nobody has declared free


def without_own_words(rule: Any) -> Any:
    """A rule on an argument without its `ask` and what it says about flow: the values that a call may have at all."""
    own = (ASK, *FLOW_WORDS)
    return {key: value for key, value in rule.items() if key not in own} if isinstance(rule, Mapping) else rule


def is_about_flow(rule: Any) -> bool:
    """Whether a rule on an argument says nothing about its values, only where they must come from."""
    return isinstance(rule, Mapping) and bool(rule) and rule.keys() <= {*FLOW_WORDS}


def asking(args: Mapping[str, Any]) -> dict[str, Any]:
    """By argument: the schema of the values that are asked about, for the arguments whose rule has an `ask`."""
    return {name: rule[ASK] for name, rule in args.items() if isinstance(rule, Mapping) and ASK in rule}


def kind_of_name(*names: str) -> str:
    """What an argument of these names holds, by the published list: a path, a URL, either, or nothing.

    `path_or_url` is two names, and so is a field of a model with an alias.
    """
    plain = [part for name in names for part in _WORD_BEGINS.sub("_", name).lower().split("_or_")]
    found = [
        kind
        for kind, words in NAMES.items()
        if any(one == word or one.endswith(f"_{word}") for one in plain for word in words)
    ]
    return EITHER if len(found) > 1 else "".join(found)


def _kind_of(node: Any, name: str) -> str:
    also = node.get(ALSO) if isinstance(node, Mapping) else None
    return kind_of_name(name, *(one for one in also if isinstance(one, str)) if isinstance(also, list) else ())


def ties_of(
    schema: Mapping[str, Any], own: Mapping[str, Any] = MappingProxyType({}), rules: Collection[Mapping[str, Any]] = ()
) -> Ties:
    """Tie the arguments of a JSON Schema. `own` are the rules of the tool on its arguments, `rules` the manifest's."""
    reader = _Reader(schema)
    found: dict[str, Any] = {}
    for name, held in schema.get("properties", {}).items():
        stated = [one[name] for one in (own, *rules) if name in one]
        if FREE in stated:
            continue
        before = len(reader.untied)
        rule = reader.argument(held, name)
        if any(isinstance(one, Mapping) and one.get("scope") == "network" for one in stated):
            rule = {"allOf": [rule, {"scope": URL}]}  # somebody says that it may be a URL, whatever its name is
        found[name] = {"allOf": [rule, own[name]]} if name in own else rule  # the manifest's rules are checked apart
        if any(_settles(one) for one in stated):
            del reader.untied[before:]
        if any(isinstance(one, Mapping) and "scope" in one for one in stated):
            reader.tied.append(name)
    tied = dict.fromkeys(reader.tied)
    return Ties(found, tuple(tied), tuple(one for one in dict.fromkeys(reader.untied) if one not in tied))


def _settles(rule: Any) -> bool:
    if not isinstance(rule, Mapping):
        return False
    inner = (*rule.get("properties", {}).values(), rule.get("items"), *rule.get("prefixItems", ()))
    return any(word in rule for word in SETTLES) or any(map(_settles, inner))


class _Reader:
    """Makes rules from the parts of one schema. A rule may contain itself, as a schema may.

    A rule describes every place where the schema accepts text, and how: `scope` ties it, `text` leaves it untied, and
    `fixed` lists what it may be. Each alternative is a rule of its own in `allOf`, so that none hides another. A call
    with text at a place that no rule describes is refused: see `unknown_texts` in `core/decision/argument_rules.py`.
    """

    def __init__(self, schema: Mapping[str, Any]) -> None:
        self._schema = schema
        self._has_bases = _has_bases(schema)
        self._rules: dict[tuple[str, str], dict[str, Any]] = {}  # by reference and kind
        self._left = MOST_SCHEMA_NODES
        self.tied: list[str] = []
        self.untied: list[str] = []

    def argument(self, node: Any, name: str) -> dict[str, Any]:
        """The rule for one argument."""
        self._rules = {}  # a place that two arguments share is named for both
        return self._rule(node, _kind_of(node, name), name)

    def _rule(self, node: Any, kind: str, place: str, *, typed: bool = False) -> dict[str, Any]:
        """The rule for what a schema accepts. `kind`: what the name says; `typed`: a schema around it has the type."""
        self._left -= 1
        if self._left < 0:  # nothing is known about the rest, so it is not tied
            return self._anything("", _NUMBERED.sub("[]", place))
        if not isinstance(node, Mapping):
            return {} if node is False else self._anything(kind, place)  # `true` accepts everything
        several = [one for key in _SEVERAL if isinstance(node.get(key), list) for one in node[key]]
        inner = typed or "type" in node
        parts = [self._referred(node[key], kind, place) for key in _REFERENCES if key in node]
        parts += [self._rule(one, kind, place, typed=inner) for one in several]
        typed = typed or bool(parts)
        # A value need not fit these, so they add what they name, and say nothing about the type.
        depending = node.get("dependentSchemas")
        sometimes = [*depending.values()] if isinstance(depending, Mapping) else []
        sometimes += [node[key] for key in _CONDITIONAL if key in node]
        parts += [self._rule(one, kind, place, typed=True) for one in sometimes if isinstance(one, Mapping)]
        rule = self._own_rule(node, kind, place, typed=typed)
        return {**rule, "allOf": parts} if parts else rule

    def _referred(self, reference: Any, kind: str, place: str) -> dict[str, Any]:
        if not isinstance(reference, str):
            return self._anything(kind, place)
        if (reference, kind) not in self._rules:
            self._rules[reference, kind] = made = dict[str, Any]()  # known before it is read, since it may name itself
            node = True if self._has_bases else _found(self._schema, reference)
            made.update(self._rule(node, kind, place))
        return self._rules[reference, kind]

    def _own_rule(self, node: Mapping[str, Any], kind: str, place: str, *, typed: bool) -> dict[str, Any]:
        if "const" in node or isinstance(node.get("enum"), list):
            return {"fixed": [node["const"]] if "const" in node else node["enum"]}
        types = node.get("type")
        accepts = {types} if isinstance(types, str) else set(types) if isinstance(types, list) else set()
        said = next((one for one, words in FORMATS.items() if node.get("format") in words), "")
        if said == URL and kind in (
            PATH,
            EITHER,
        ):  # text with the format of a path is never a URL, whatever its name is
            said = EITHER
        rule: dict[str, Any] = {}
        if types is None and not typed:  # what it says about one type leaves the others open
            rule = dict(self._anything(said or kind, place))
        elif "string" in accepts or (types is None and "format" in node):
            rule = self._text(said or kind, place)
        if accepts & {"integer", "number", "boolean"}:
            rule["number"] = True
        if "items" in node or "prefixItems" in node or "array" in accepts:
            rule.pop("items", None)
            rule.update(self._items(node, kind, place))
        if "properties" in node or "object" in accepts:
            rule = {key: held for key, held in rule.items() if key not in ("additionalProperties", "propertyNames")}
            rule.update(self._properties(node, place))
        return rule

    def _text(self, scope: str, place: str) -> dict[str, Any]:
        (self.tied if scope else self.untied).append(place)
        return {"scope": scope} if scope else {"text": True}

    def _anything(self, scope: str, place: str) -> dict[str, Any]:
        """The rule for any value: all text in it is tied or not, also the names in an object."""
        made = self._text(scope, place)
        made.update(items=made, additionalProperties=made, propertyNames=made)
        return made

    def _items(self, node: Mapping[str, Any], kind: str, place: str) -> dict[str, Any]:
        first, most = node.get("prefixItems"), node.get("maxItems")
        first = first if isinstance(first, list) else []
        rule: dict[str, Any] = {}
        if first:
            rule["prefixItems"] = [self._rule(one, kind, f"{place}[{at}]") for at, one in enumerate(first)]
        if "items" in node or not (isinstance(most, int) and most <= len(first)):
            rule["items"] = self._rule(node.get("items", True), kind, f"{place}[]")
        return rule

    def _properties(self, node: Mapping[str, Any], place: str) -> dict[str, Any]:
        """The rule for an object. Names that it neither lists nor opens are left out, so text there is refused.

        JSON Schema accepts further names where `additionalProperties` is missing. Most schemas of models leave it out
        and mean no others: naming all these as untied would make the list useless.
        """
        named, values, names = node.get("properties", {}), f"{place}{{}}", f"{place}{{name}}"
        held = {name: self._rule(one, _kind_of(one, name), f"{place}.{name}") for name, one in named.items()}
        others = [*node.get("patternProperties", {}).values()]
        others += [node[key] for key in ("additionalProperties", "unevaluatedProperties") if key in node]
        if not (named or others):
            others = [True]
        # Only a format can tie these values, since their names are not known.
        parts = [self._rule(one, "", values) for one in others if one is not False]
        if not parts:
            return {"properties": held}
        before = len(self.untied)
        kept = self._rule(node.get("propertyNames", {"type": "string"}), "", names)  # a name may itself be a path
        if values in self.untied[:before]:
            del self.untied[before:]  # one place is enough
        return {"properties": held, "additionalProperties": {"allOf": parts}, "propertyNames": kept}


def _has_bases(schema: Mapping[str, Any]) -> bool:
    """Whether a part of a schema has an identity of its own: references in it then do not begin at the whole."""
    words = ("$id", "$schema", *(("id",) if "draft-04" in str(schema.get("$schema")) else ()))
    rest: list[Any] = list(schema.values())
    while rest:
        one = rest.pop()
        if isinstance(one, Mapping):
            if any(isinstance(one.get(word), str) for word in words):
                return True
            rest.extend(one.values())
        elif isinstance(one, list):
            rest.extend(one)
    return False


def _found(schema: Any, reference: str) -> Any:
    """The part of a schema that a reference such as `#/$defs/Place` names; `True` (anything) if it is not known."""
    if (reference != "#" and not reference.startswith("#/")) or "%" in reference:  # an anchor, or another document
        return True
    for word in reference.split("/")[1:]:
        key = word.replace("~1", "/").replace("~0", "~")
        if not isinstance(schema, Mapping) or key not in schema:
            return True
        schema = schema[key]
    return schema
