"""Which arguments name a path or a URL, by the JSON Schema of a tool and by their names."""

from typing import Any

import pytest

from licet.core.policy.argument_ties import EITHER, FORMATS, NAMES, PATH, URL, kind_of_name, ties_of

TEXT = {"type": "string"}
TREE = {
    "type": "object",
    "properties": {"path": TEXT, "children": {"type": "array", "items": {"$ref": "#/$defs/Tree"}}},
    "additionalProperties": False,
}

OBJECT = {"type": "object"}
DEFS = {
    "Tree": TREE,
    "Text": {**TEXT, "$anchor": "text"},
    "Number": {"type": "integer"},
    "Note": {"type": "object", "properties": {"text": TEXT}},
    "Loop": {"$ref": "#/$defs/Loop"},
}


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        *((word, kind) for kind, words in NAMES.items() for word in words),
        ("file_path", PATH),
        ("filePath", PATH),
        ("FilePath", PATH),
        ("source-path", PATH),
        ("outputDIR", PATH),
        ("HTMLFile", PATH),
        ("base_url", URL),
        ("imageURL", URL),
        ("path_or_url", EITHER),
        ("urlOrFile", EITHER),
        # near misses
        ("profile", ""),
        ("pathway", ""),
        ("path_kind", ""),
        ("curl", ""),
        ("redirect", ""),
        ("query", ""),
        ("", ""),
    ],
)
def test_the_name_of_an_argument_is_on_the_published_list_or_not(name: str, kind: str) -> None:
    assert kind_of_name(name) == kind


@pytest.mark.parametrize(("schema", "tied", "untied"), [
    ({"path": TEXT}, ["path"], []),
    ({"query": TEXT}, [], ["query"]),
    ({"path": {"type": "integer"}}, [], []),
    ({"path": {"enum": ["a", "b"]}}, [], []),
    ({"query": {"type": "string", "const": "a"}}, [], []),
    ({"where": {"type": "string", "format": "path"}}, ["where"], []),
    *(({"where": {"type": "string", "format": word}}, ["where"], []) for words in FORMATS.values() for word in words),
    ({"where": {"type": "string", "format": "date"}}, [], ["where"]),
    ({"path": {"anyOf": [TEXT, {"type": "null"}]}}, ["path"], []),
    ({"path": {"type": ["string", "null"]}}, ["path"], []),
    ({"where": {"anyOf": [{"type": "string", "format": "file-path"}, TEXT]}}, ["where"], []),
    ({"paths": {"type": "array", "items": TEXT}}, ["paths[]"], []),
    ({"words": {"type": "array", "items": TEXT}}, [], ["words[]"]),
    ({"words": {"type": "array"}}, [], ["words[]"]),
    ({"paths": {"prefixItems": [TEXT, {"type": "integer"}], "items": False, "type": "array"}}, ["paths[0]"], []),
    ({"pair": {"type": "array", "prefixItems": [{**TEXT, "format": "path"}, TEXT]}}, ["pair[0]"],
        ["pair[1]", "pair[]"]),
    ({"pair": {"type": "array", "prefixItems": [{"type": "integer"}] * 2, "maxItems": 2}}, [], []),
    ({"options": {"type": "object", "properties": {"url": TEXT, "note": TEXT}}}, ["options.url"], ["options.note"]),
    ({"path": {"type": "object", "properties": {"note": TEXT}}}, [], ["path.note"]),
    ({"files": {"type": "object", "additionalProperties": TEXT}}, [], ["files{}"]),
    ({"files": {"type": "object", "additionalProperties": {"type": "string", "format": "path"}}}, ["files{}"],
        ["files{name}"]),
    ({"sizes": {"type": "object", "additionalProperties": {"type": "integer"}}}, [], ["sizes{name}"]),
    ({"sizes": {"additionalProperties": {"type": "integer"}, "propertyNames": {"enum": ["a"]}, **OBJECT}}, [], []),
    ({"options": {"type": "object"}}, [], ["options{}"]),
    ({"options": {"type": "object", "additionalProperties": False}}, [], []),
    ({"path": {}}, ["path"], []),
    ({"query": True}, [], ["query"]),
    ({"query": False}, [], []),
    ({"tree": {"$ref": "#/$defs/Tree"}}, ["tree.path"], []),
    ({"url": {"$ref": "#/$defs/Missing"}}, ["url"], []),
    ({"query": {"$ref": "#text"}}, [], ["query"]),  # an anchor
    ({"query": {"$dynamicRef": "#text"}}, [], ["query"]),
    ({"query": {"$ref": "#/$defs/Te%78t"}}, [], ["query"]),
    ({"query": {"$ref": 3}}, [], ["query"]),
    ({"query": {"$id": "x:y", "$ref": "#/$defs/Number", "$defs": {"Number": TEXT}}}, [], ["query"]),
    ({"note": {"$ref": "#/$defs/Note"}, "more": {"$ref": "#/$defs/Note"}}, [], ["note.text", "more.text"]),
    ({"a": {**OBJECT, "properties": {}, "then": {"properties": {"b": TEXT}}}}, [], ["a.b", "a{}"]),
    ({"a": {"properties": {"b": False}, **OBJECT, "dependentSchemas": {"b": {"properties": {"c": TEXT}}}}}, [],
        ["a.c"]),
    ({"a": {"properties": {"b": False}, **OBJECT, "unevaluatedProperties": TEXT}}, [], ["a{}"]),
    ({"url": {"$ref": "https://elsewhere.example/schema"}}, ["url"], []),
    ({"path": {"allOf": [{"$ref": "#/$defs/Text"}], "default": "x"}}, ["path"], []),
    ({"path": {"type": "string", "anyOf": [{"minLength": 1}, {"pattern": "a"}]}}, ["path"], []),
    ({"a": {"type": "object", "properties": {"url": TEXT}, "anyOf": [{"required": ["url"]}, {"required": []}]}},
        ["a.url"], []),
], ids=str)  # fmt: skip
def test_paths_and_urls_are_tied_at_any_depth(schema: dict[str, Any], tied: list[str], untied: list[str]) -> None:
    found = ties_of({"properties": schema, "$defs": DEFS})
    assert (list(found.tied), list(found.untied)) == (tied, untied)


@pytest.mark.parametrize(
    ("own", "rules", "tied", "untied"),
    [
        ({}, [], ["path"], ["query", "more"]),
        ({"query": "free"}, [], ["path"], ["more"]),
        ({}, [{"query": "free"}], ["path"], ["more"]),
        ({}, [{}, {"path": "free"}], [], ["query", "more"]),
        ({"query": {"scope": "fs:read"}}, [], ["path", "query"], ["more"]),
        ({}, [{"query": {"scope": "fs:read"}}], ["path", "query"], ["more"]),
        ({}, [{"query": {"enum": ["a"]}}, {"more": {"pattern": "^a$"}}], ["path"], []),
        ({}, [{"query": {"maxLength": 9}}], ["path"], ["query", "more"]),
    ],
    ids=str,
)
def test_free_unties_and_rules_of_the_manifest_settle(
    own: dict[str, Any], rules: list[dict[str, Any]], tied: list[str], untied: list[str]
) -> None:
    found = ties_of({"properties": {"path": TEXT, "query": TEXT, "more": TEXT}}, own, rules)
    assert (list(found.tied), list(found.untied)) == (tied, untied)


def test_settling_one_argument_does_not_hide_another_of_the_same_type() -> None:
    schema = {"properties": {"one": {"$ref": "#/$defs/Note"}, "other": {"$ref": "#/$defs/Note"}}, "$defs": DEFS}
    assert ties_of(schema, {}, [{"one": {"properties": {"text": {"enum": ["a"]}}}}]).untied == ("other.text",)


def test_a_schema_that_refers_to_itself_ends() -> None:
    found = ties_of({"properties": {"a": {"$ref": "#/$defs/A"}}, "$defs": {"A": {"$ref": "#/$defs/A"}}})
    assert (found.tied, found.untied) == ((), ())


def test_what_is_too_large_to_read_is_not_tied() -> None:
    many = {"type": "array", "prefixItems": [{"type": "integer"}] * 6000}
    assert ties_of({"properties": {"numbers": many}}).untied == ("numbers[]",)
