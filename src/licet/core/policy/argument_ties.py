"""Which arguments of a tool name a file or a URL, by their JSON Schema or by their name.

Code that was written for an agent framework opens files by itself, so nothing checks what it opens. `governed` ties
such arguments to what the tool declares: a call whose path or URL is not in its grant is refused before the code runs.
"""

import re
from collections.abc import Collection, Mapping
from types import MappingProxyType
from typing import Any

from msgspec import Struct, field

FREE = "free"  # `args: {query: free}`: this argument names no file and no URL, so it is not tied
PATH, URL = "path", "url"  # values of `scope` in the rules that are made here; see `core/decision/arguments.py`

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
SETTLES = ("scope", "enum", "const", "pattern")  # a rule of the manifest with one of these says what a text may be

_WORD_BEGINS = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])|[-.\s]+")
_SEVERAL = ("anyOf", "oneOf", "allOf")
_FIXED = ("enum", "const")
_MOST_NODES = 5000  # parts of a schema that are read


class Ties(Struct, frozen=True):
    """What is known about the arguments of one tool. Places are written as `path`, `files[]` or `options.url`."""

    rules: Mapping[str, Any] = field(default_factory=dict)  # by argument: a rule whose `scope` is `path` or `url`
    tied: tuple[str, ...] = ()
    untied: tuple[str, ...] = ()  # places of text that are not tied, and that nobody has declared free


def kind_of_name(name: str) -> str:
    """What an argument of this name holds, by the published list: `path`, `url`, or nothing."""
    plain = _WORD_BEGINS.sub("_", name).lower()
    for kind, words in NAMES.items():
        if any(plain == word or plain.endswith(f"_{word}") for word in words):
            return kind
    return ""


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
        found[name] = reader.rule(held, kind_of_name(name), name)
        if name in own:  # the manifest's rules are checked apart
            found[name].setdefault("allOf", []).append(own[name])
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
    """Makes rules from the parts of one schema. A rule may contain itself, as a schema may."""

    def __init__(self, schema: Mapping[str, Any]) -> None:
        self._schema = schema
        self._rules: dict[tuple[str, str], dict[str, Any]] = {}  # by reference and kind
        self._left = _MOST_NODES
        self.tied: list[str] = []
        self.untied: list[str] = []

    def rule(self, node: Any, kind: str, place: str) -> dict[str, Any]:
        """The rule for the values that a schema accepts; `kind` is what the name of the argument says."""
        rule: dict[str, Any] = {}
        self._add(node, kind, place, rule)
        return rule

    def _add(self, node: Any, kind: str, place: str, rule: dict[str, Any], *, typed: bool = False) -> None:
        """Add what a schema says about a value. `typed`: a schema around it states the type already."""
        self._left -= 1
        if self._left < 0:  # nothing is known about the rest, so it is not tied
            self.untied.append(place)
            return
        if not isinstance(node, Mapping):
            if node is not False:  # `true` accepts everything
                self._add_text({}, kind, place, rule)
            return
        reference = node.get("$ref")
        alternatives = [one for key in _SEVERAL if isinstance(node.get(key), list) for one in node[key]]
        if isinstance(reference, str):
            rule.setdefault("allOf", []).append(self._referred(reference, kind, place))
        for one in alternatives:
            self._add(one, kind, place, rule, typed=typed or "type" in node)
        self._add_own(node, kind, place, rule, typed=typed or bool(alternatives) or reference is not None)

    def _referred(self, reference: str, kind: str, place: str) -> dict[str, Any]:
        if (reference, kind) not in self._rules:
            self._rules[reference, kind] = made = dict[str, Any]()  # known before it is read, since it may name itself
            self._add(_found(self._schema, reference), kind, place, made)
        return self._rules[reference, kind]

    def _add_own(self, node: Mapping[str, Any], kind: str, place: str, rule: dict[str, Any], *, typed: bool) -> None:
        types = node.get("type")
        accepts = {types} if isinstance(types, str) else set(types) if isinstance(types, list) else set()
        any_text = "string" in accepts or (types is None and (not typed or "format" in node))
        if any_text and not any(word in node for word in _FIXED):
            self._add_text(node, kind, place, rule)
        if "items" in node or "prefixItems" in node or "array" in accepts:
            self._add_items(node, kind, place, rule)
        if "properties" in node or "object" in accepts:
            self._add_properties(node, kind, place, rule)

    def _add_text(self, node: Mapping[str, Any], kind: str, place: str, rule: dict[str, Any]) -> None:
        said = next((one for one, words in FORMATS.items() if node.get("format") in words), "")
        if scope := said or kind:
            rule["scope"] = scope if rule.get("scope", scope) == scope else PATH  # a path may be a URL, too
            self.tied.append(place)
        else:
            self.untied.append(place)

    def _add_items(self, node: Mapping[str, Any], kind: str, place: str, rule: dict[str, Any]) -> None:
        first = node.get("prefixItems")
        if isinstance(first, list):
            rule["prefixItems"] = [self.rule(one, kind, f"{place}[]") for one in first]
        self._add(node.get("items", True), kind, f"{place}[]", rule.setdefault("items", {}))

    def _add_properties(self, node: Mapping[str, Any], kind: str, place: str, rule: dict[str, Any]) -> None:
        named = node.get("properties", {})
        held: dict[str, Any] = rule.setdefault("properties", {})
        for name, one in named.items():
            self._add(one, kind_of_name(name), f"{place}.{name}", held.setdefault(name, {}))
        others = [*node.get("patternProperties", {}).values(), node.get("additionalProperties", not named)]
        for one in others:  # the names are not known, and may themselves be paths: only a format can tie the values
            self._add(one, "", f"{place}{{}}", rule.setdefault("additionalProperties", {}))


def _found(schema: Any, reference: str) -> Any:
    """The part of a schema that a reference such as `#/$defs/Place` names; `True` (anything) if there is none."""
    if not reference.startswith("#"):
        return True
    for word in reference.removeprefix("#").split("/")[1:]:
        key = word.replace("~1", "/").replace("~0", "~")
        if not isinstance(schema, Mapping) or key not in schema:
            return True
        schema = schema[key]
    return schema
