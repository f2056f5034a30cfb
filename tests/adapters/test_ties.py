"""Arguments of governed tools are tied to what these declare. The tools here really open what they are given."""

import json
import os
import urllib.request
from pathlib import Path
from typing import Annotated, Any

import pytest
from click.testing import CliRunner
from msgspec.structs import replace
from pydantic import AliasChoices, AliasPath, AnyUrl, BaseModel, ConfigDict, Field
from pydantic.dataclasses import dataclass
from typing_extensions import TypedDict

from gates import policy, receipts
from licet import Backends, Gate, RegistrationRefused, Tool, UntiedArgument
from licet.adapters import governed
from licet.adapters.foreign import Foreign, ForeignTool, _function, _own_copy
from licet.adapters.framework_calls import GateTools, Outcome
from licet.cli.app import licet
from licet.core.policy.tool import spec_of
from licet.policy_files.load import load_manifest


class Source(BaseModel):
    """A place, and others below it."""

    path: str
    others: list["Source"] = []


def read(path: str) -> str:
    """Read a file."""
    return Path(path).expanduser().read_text(encoding="utf-8")


def read_typed(where: Path) -> str:
    """Read a file, whose argument is no text."""
    return where.read_text(encoding="utf-8")


def read_all(paths: list[str]) -> str:
    """Read some files."""
    return "".join(map(read, paths))


def read_either(paths: list[str] | tuple[int, int]) -> str:
    """Read some files, or those of two numbers."""
    return read_all([str(one) for one in paths])


def read_model_or_any(path: Source | Any) -> str:
    """Read files that anything names."""
    return read_all([str(one) for one in path])


def read_optional(path: str | None = None) -> str:
    """Read a file, or nothing."""
    return "nothing" if path is None else read(path)


def read_default(path: str = "secret") -> str:
    """Read a file, with a default outside of what is declared."""
    return read(path)


def read_nested(source: Source) -> str:
    """Read files that a model names."""
    return read(source.path) + "".join(map(read_nested, source.others))


def load(url: str) -> str:
    """Load a URL, as libraries do: `file:` too."""
    with urllib.request.urlopen(url) as answer:
        return str(answer.read().decode())


def find(path: str, query: str, options: dict[str, str] | None = None) -> str:
    """Look for a text in a file."""
    return f"{query} {options}" if query in read(path) else "nothing"


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with notes, a secret next to them, and links from the notes to it."""
    home = tmp_path / "desk"
    (home / "notes").mkdir(parents=True)
    (home / "notes" / "a").write_text("Rain.", encoding="utf-8")
    (home / "secret").write_text("key", encoding="utf-8")
    (home / "notes" / "out").symlink_to(home)
    (home / "notes" / "same").symlink_to("a")
    (home / "notes" / "below").symlink_to(home / "notes" / "deep" / "er")
    (home / "notes" / "deep" / "er").mkdir(parents=True)
    (home / "notes" / "deep" / "a").write_text("Rain.", encoding="utf-8")
    (home / "away" / "er").mkdir(parents=True)
    (home / "away" / "a").write_text("key", encoding="utf-8")
    (home / "notes" / "link").symlink_to(home / "away" / "er")  # so `notes/link/../a` is `away/a`
    monkeypatch.chdir(home)
    monkeypatch.setenv("HOME", str(home))
    return home


def gate(desk: Path, tool: Tool, strict: bool = False, **capabilities: Any) -> Gate:
    return Gate(policy([tool], **capabilities), [tool], Backends.memory(), workdir=desk, strict=strict)


def call(desk: Path, function: Any, given: dict[str, Any], *, needs: str = "fs:read:${workdir}/notes") -> Outcome:
    tool = governed(function, needs=[needs], effect="read_only")
    reach: dict[str, Any] = {"fs_reach": {"read": ["${workdir}/notes"]}, "destinations": {"allow": ["notes.example"]}}
    return GateTools(gate(desk, tool, **reach), "s").call_blocking(tool.name, given)


ALLOWED: list[tuple[Any, dict[str, Any]]] = [
    (read, {"path": "notes/a"}),
    (read, {"path": "./notes/../notes//a"}),
    (read, {"path": "{desk}/notes/a"}),
    (read, {"path": "~/notes/a"}),
    (read, {"path": "notes/same"}),
    (read, {"path": "notes/below/../a"}),
    (read_either, {"paths": ["notes/a"]}),
    (read_model_or_any, {"path": ["notes/a"]}),
    (read_typed, {"where": "notes/a"}),
    (read_all, {"paths": ["notes/a"]}),
    (read_optional, {"path": "notes/a"}),
    (read_optional, {}),
    (read_optional, {"path": None}),
    (read_nested, {"source": {"path": "notes/a", "others": []}}),
    (load, {"url": "file://{desk}/notes/a"}),
    (load, {"url": "file://localhost{desk}/notes/a"}),
]
REFUSED: list[tuple[Any, dict[str, Any]]] = [
    (read, {"path": "secret"}),
    (read, {"path": "{desk}/secret"}),
    (read, {"path": "/etc/passwd"}),
    (read, {"path": "notes/../secret"}),
    (read, {"path": "notes/out/secret"}),
    (read, {"path": "notes/link/../a"}),
    (read, {"path": "./notes//link/./../a"}),
    (read, {"path": "{desk}/notes/link/../a"}),
    (read, {"path": "~/notes/link/../a"}),
    (load, {"url": "file://{desk}/notes/link/../a"}),
    (load, {"url": "file://{desk}/notes/link/%2e%2e/a"}),
    (read_either, {"paths": ["secret"]}),
    (read_model_or_any, {"path": ["secret"]}),
    (read_model_or_any, {"path": {"secret": 1}}),
    (read, {"path": "~/secret"}),
    (read, {"path": "~root/.profile"}),
    (read, {"path": "$HOME/secret"}),
    (read, {"path": " /etc/passwd"}),
    (read, {"path": "file://{desk}/secret"}),
    (read, {"path": "file:{desk}/secret"}),
    (read, {"path": "notes/a::file://{desk}/secret"}),
    (read, {"path": "https://notes.example/a"}),
    (read, {"path": ""}),
    (read_typed, {"where": "secret"}),
    (read_all, {"paths": ["notes/a", "secret"]}),
    (read_optional, {"path": "secret"}),
    (read_default, {}),
    (read_nested, {"source": {"path": "notes/a", "others": [{"path": "notes/a", "others": [{"path": "secret"}]}]}}),
    (load, {"url": "file://{desk}/secret"}),
    (load, {"url": "FILE://{desk}/notes/%2e%2e/secret"}),
    (load, {"url": "file://{desk}/notes/..%2fsecret"}),
    (load, {"url": "file://other.example{desk}/notes/a"}),
    (load, {"url": "notes/a"}),
    (load, {"url": "ftp://notes.example/a"}),
    (load, {"url": "http://127.0.0.1:9/"}),
]


def shown(one: Any) -> str:
    return str(getattr(one, "__name__", one))


def placed(given: Any, desk: Path) -> Any:
    match given:
        case str():
            return given.replace("{desk}", str(desk))
        case list():
            return [placed(one, desk) for one in given]
        case dict():
            return {key: placed(one, desk) for key, one in given.items()}
    return given


@pytest.mark.parametrize(("function", "given"), ALLOWED, ids=shown)
def test_what_a_tool_declares_can_be_named(desk: Path, function: Any, given: dict[str, Any]) -> None:
    outcome = call(desk, function, placed(given, desk))
    assert outcome.text in ("Rain.", "nothing")


@pytest.mark.parametrize(("function", "given"), REFUSED, ids=shown)
def test_what_a_tool_does_not_declare_is_refused_before_its_code_runs(
    desk: Path, function: Any, given: dict[str, Any]
) -> None:
    outcome = call(desk, function, placed(given, desk))
    assert outcome.result is not None
    assert (outcome.result.reason, outcome.result.code) == ("ARGUMENT_NOT_ALLOWED", "denied")
    assert str(desk) not in outcome.text.replace(str(placed(given, desk)), "") or "{desk}" in str(given)


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("https://notes.example/a", "ALLOWED"),
        ("https://other.example/a", "ARGUMENT_NOT_ALLOWED"),
        ("https://notes.example@other.example/a", "ARGUMENT_NOT_ALLOWED"),
        ("file:///etc/passwd", "ARGUMENT_NOT_ALLOWED"),
        ("//other.example/a", "ARGUMENT_NOT_ALLOWED"),
    ],
)
def test_a_url_must_be_of_a_declared_host(desk: Path, url: str, reason: str) -> None:
    def show(url: str) -> str:
        """Show a URL."""
        return url

    result = call(desk, show, {"url": url}, needs="network:https:get@notes.example").result
    assert result is not None
    assert result.reason == reason


# A text that is a URL for one reader, and a path for another ----------------------------------------------------------


def resolved(path: str) -> str:
    """Read a file by its path without `..`."""
    return read(str(Path(path).resolve()))


def resolved_typed(where: Path) -> str:
    """Read a file, whose argument can be no URL."""
    return resolved(str(where))


def resolved_url_or_path(url_or_path: str) -> str:
    """Read a file, which could be at a URL."""
    return resolved(url_or_path)


def resolved_path_or_url(path_or_url: str) -> str:
    """Read a file, which could be at a URL."""
    return resolved(path_or_url)


def resolved_either(path: AnyUrl | str) -> str:
    """Read a file, whose type says that it may be a URL."""
    return resolved(str(path))


def resolved_typed_url(url: Path) -> str:
    """Read a file, whose name says URL and whose type says path."""
    return resolved(str(url))


READERS = [resolved, resolved_typed, resolved_url_or_path, resolved_path_or_url, resolved_either, resolved_typed_url]
HELD = ["fs:read:${workdir}/notes", "network:https:get@notes.example"]


def call_with_both(
    desk: Path, function: Any, value: Any, args: dict[str, Any] | None = None, needs: list[str] = HELD
) -> str:
    tool = governed(function, needs=needs, effect="read_only", args=args)
    reach: dict[str, Any] = {"fs_reach": {"read": ["${workdir}"]}, "destinations": {"allow": ["notes.example"]}}
    (name,) = tool.schema["properties"]
    return GateTools(gate(desk, tool, **reach), "s").call_blocking(tool.name, {name: value}).text


@pytest.mark.parametrize("scheme", ["https:/", "HTTPS:/", "https:", "file:/"])
@pytest.mark.parametrize("function", READERS, ids=shown)
def test_a_url_of_a_held_host_that_is_a_path_elsewhere_is_refused(desk: Path, function: Any, scheme: str) -> None:
    assert call_with_both(desk, function, "notes/a") == "Rain."
    assert call_with_both(desk, function, f"{scheme}/notes.example/../../secret").startswith("ARGUMENT_NOT_ALLOWED")


def test_a_file_url_that_is_a_path_elsewhere_is_refused(desk: Path) -> None:
    copy = Path(f"{desk}{desk}/notes")
    copy.mkdir(parents=True)
    (copy / "a").write_text("key", encoding="utf-8")
    assert resolved(url := f"file:///..{desk}/notes/a") == "key"
    assert call_with_both(desk, resolved, url).startswith("ARGUMENT_NOT_ALLOWED")


@pytest.mark.parametrize(
    ("args", "needs", "is_held"),
    [
        (None, HELD[1:], False),  # its name says path
        ({"path": {"scope": "network"}}, HELD[1:], True),
        ({"path": {"scope": "network"}}, HELD, False),  # not as a path
        ({"path": {"scope": "network"}}, ["fs:read:${workdir}", *HELD[1:]], True),
        ({"path": {"scope": "network"}}, ["fs:read:${workdir}"], False),  # not as a URL
    ],
    ids=str,
)
def test_a_path_that_may_be_a_url_must_be_held_as_both(
    desk: Path, args: dict[str, Any] | None, needs: list[str], is_held: bool
) -> None:
    def show(path: str) -> str:
        """Show a path or a URL."""
        return path

    url = "https://notes.example/a"
    assert (call_with_both(desk, show, url, args, needs) == url) is is_held


# Fields with several names --------------------------------------------------------------------------------------------

BOTH = ConfigDict(populate_by_name=True)


class ByAlias(BaseModel):
    model_config = BOTH
    where: str = Field(alias="path")


class ByName(BaseModel):
    model_config = BOTH
    path: str = Field(alias="where")


class ByType(BaseModel):
    model_config = ConfigDict(validate_by_name=True, validate_by_alias=True)
    where: Path = Field(alias="loc")


class ByChoice(BaseModel):
    where: str = Field(validation_alias=AliasChoices("loc", AliasPath("file", 0), "path"))


class ByNameAlone(BaseModel):
    path: str = Field(validation_alias="loc")


@dataclass(config=BOTH)
class Placed:
    where: Annotated[str, Field(alias="path")]


class Fields(TypedDict):
    where: Annotated[str, Field(alias="path")]


class Inside(BaseModel):
    model_config = BOTH
    sources: list[ByAlias] = Field(alias="from")


def text_of(value: Any) -> str:
    """The one text in a model."""
    while not isinstance(value, str | Path):
        held = value if isinstance(value, list | dict) else vars(value)
        (value,) = held.values() if isinstance(held, dict) else held
    return str(value)


@pytest.mark.filterwarnings("ignore::licet.UntiedArgument")  # so that without a tie the file is read
@pytest.mark.parametrize(
    ("kind", "given"),
    [
        (ByAlias, {"path": "{}"}),
        (ByAlias, {"where": "{}"}),
        (ByName, {"path": "{}"}),
        (ByName, {"where": "{}"}),
        (ByType, {"loc": "{}"}),
        (ByType, {"where": "{}"}),
        (ByChoice, {"loc": "{}"}),
        (ByChoice, {"file": ["{}"]}),
        (ByChoice, {"path": "{}"}),
        (ByNameAlone, {"loc": "{}"}),
        (Placed, {"path": "{}"}),
        (Placed, {"where": "{}"}),
        (Fields, {"path": "{}"}),
        (Inside, {"from": [{"where": "{}"}]}),
        (Inside, {"sources": [{"path": "{}"}]}),
        (Annotated[str, Field(alias="path")], "{}"),
        (Annotated[str, Field(validation_alias="path")], "{}"),
    ],
    ids=str,
)
def test_a_field_is_tied_by_each_of_its_names_and_by_its_type(desk: Path, kind: Any, given: Any) -> None:
    def show(place: Any) -> str:
        """Read what a model names."""
        return read(text_of(place))

    show.__annotations__["place"] = kind
    tool = governed(show, needs=["fs:read:${workdir}/notes"], effect="read_only")
    reach: dict[str, Any] = {"fs_reach": {"read": ["${workdir}/notes"]}}
    tools = GateTools(gate(desk, tool, **reach), "s")
    (name,) = tool.schema["properties"]

    def called(path: str) -> str:
        return tools.call_blocking("show", {name: json.loads(json.dumps(given).replace("{}", path))}).text

    assert called("notes/a") == "Rain."
    assert called("secret").startswith("ARGUMENT_NOT_ALLOWED")
    gate(desk, tool, strict=True, **reach)  # nothing is left untied


@pytest.mark.filterwarnings("ignore::licet.UntiedArgument")
def test_a_parameter_is_tied_by_its_own_name_too(desk: Path) -> None:
    def show(path: Annotated[str, Field(alias="topic")]) -> str:
        """Read a file that is sent under another name."""
        return read(path)

    assert call(desk, show, {"topic": "notes/a"}).text == "Rain."
    assert call(desk, show, {"topic": "secret"}).text.startswith("ARGUMENT_NOT_ALLOWED")


def test_a_tool_that_declares_nothing_can_be_given_no_path(desk: Path) -> None:
    tools = GateTools(gate(desk, governed(read, needs=[], effect="read_only")), "s")
    assert tools.call_blocking("read", {"path": "notes/a"}).text.startswith("ARGUMENT_NOT_ALLOWED")


def test_relative_paths_begin_where_the_code_opens_them(desk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (desk / "other" / "notes").mkdir(parents=True)
    (desk / "other" / "notes" / "a").write_text("another file", encoding="utf-8")
    monkeypatch.chdir(desk / "other")
    assert call(desk, read, {"path": "notes/a"}).text.startswith("ARGUMENT_NOT_ALLOWED")


def test_a_deny_holds_for_an_argument_too(desk: Path) -> None:
    tool = governed(read, needs=["fs:read:${workdir}/notes"], effect="read_only")
    tools = GateTools(gate(desk, tool, deny=["fs:read:${workdir}/notes/a"]), "s")
    for path in ("notes/a", "notes/same"):  # a link, too
        assert tools.call_blocking("read", {"path": path}).text.startswith("ARGUMENT_NOT_ALLOWED")


@pytest.mark.parametrize("by", ["manifest", "tool"])
def test_an_argument_that_is_declared_free_is_not_tied(desk: Path, by: str) -> None:
    args = {"path": "free"}
    tool = governed(read, needs=["fs:read:${workdir}/notes"], effect="read_only", args=args if by == "tool" else None)
    tools = {"read": {"args": args}} if by == "manifest" else ["read"]
    assert GateTools(gate(desk, tool, tools=tools), "s").call_blocking("read", {"path": "secret"}).text == "key"


def test_an_argument_can_be_tied_by_the_tool_or_the_manifest(desk: Path) -> None:
    def show(topic: str) -> str:
        """Read a file under an unusual name."""
        return read(topic)

    rule, needs = {"topic": {"scope": "fs:read"}}, ["fs:read:${workdir}/notes"]
    by_tool = governed(show, needs=needs, effect="read_only", args=rule)
    by_manifest = governed(show, needs=needs, effect="read_only")
    for tool, tools in ((by_tool, ["show"]), (by_manifest, {"show": {"args": rule}})):
        called = GateTools(gate(desk, tool, strict=True, tools=tools), "s")
        assert called.call_blocking("show", {"topic": "notes/a"}).text == "Rain."
        for path in ("secret", "notes/out/secret", f"file://{desk}/secret", "~/secret"):
            assert called.call_blocking("show", {"topic": path}).text.startswith("ARGUMENT_NOT_ALLOWED")


@pytest.mark.parametrize(
    ("args", "wrong"),
    [
        ({"nothing": "free"}, "`nothing` in `args=` is not an argument of `read`"),
        ({"path": "open"}, 'must be "free", or'),
        ({"path": {"scope": "fs:open"}}, 'must be "free", or'),
        ({"path": {"enum": ["a"]}}, 'must be "free", or'),
    ],
    ids=str,
)
def test_a_wrong_word_about_an_argument_is_an_error(args: dict[str, Any], wrong: str) -> None:
    with pytest.raises(TypeError, match=wrong):
        governed(read, needs=[], effect="read_only", args=args)


# Schemas of frameworks, which can say more than type hints ------------------------------------------------------------

TEXT, NUMBER = {"type": "string"}, {"type": "integer"}
MODEL = {"type": "object", "properties": {"n": NUMBER}}
SCHEMAS: dict[str, tuple[Any, Any, Any]] = {  # of the argument `path`; a value that fits; one that names the secret
    "a list or a pair of numbers": (
        {"anyOf": [{"type": "array", "items": TEXT}, {"type": "array", "prefixItems": [NUMBER]}]},
        ["notes/a"],
        ["secret"],
    ),
    "a name that the schema does not list": (MODEL, {"n": 1}, {"n": 1, "x": "secret"}),
    "the same in a list": ({"type": "array", "items": MODEL}, [{"n": 1}], [{"x": "secret"}]),
    "the name itself": (MODEL, {}, {"secret": 1}),
    "an anchor": ({"$ref": "#text"}, "notes/a", "secret"),
    "a part with its own identity": (
        {"$id": "http://a.example/b", "$ref": "#/$defs/Number", "$defs": {"Number": TEXT}},
        "notes/a",
        "secret",
    ),
    "a schema that depends on a name": (
        {**MODEL, "dependentSchemas": {"n": {"properties": {"path": TEXT}}}},
        {"n": 1, "path": "notes/a"},
        {"n": 1, "path": "secret"},
    ),
}


@pytest.mark.parametrize("case", SCHEMAS)
def test_no_form_of_a_schema_lets_text_through_at_a_strict_gate(desk: Path, case: str) -> None:
    schema, fits, secret = SCHEMAS[case]
    ran: list[Any] = []

    async def run(arguments: dict[str, Any]) -> str:
        ran.append(arguments["path"])
        return "ran"

    defs = {"Text": {"$anchor": "text", **TEXT}, "Number": NUMBER}
    made = Foreign("show", "Show.", {"properties": {"path": schema}, "required": ["path"], "$defs": defs}, run)
    own = _own_copy(made)
    spec = spec_of(name="show", needs=["fs:read:${workdir}/notes"], effect="read_only", sandbox="native", schema=own)
    tool = ForeignTool(_function(made, own), replace(spec, governed=True))
    tools = GateTools(gate(desk, tool, strict=True, fs_reach={"read": ["${workdir}/notes"]}), "s")
    assert tools.call_blocking("show", {"path": fits}).text == "ran"
    assert tools.call_blocking("show", {"path": secret}).text.startswith("ARGUMENT_NOT_ALLOWED")
    assert ran == [fits]


# Text that is not tied ------------------------------------------------------------------------------------------------

FIND = governed(find, needs=["fs:read:${workdir}/notes"], effect="read_only")
NAMED = r"`find` declares fs, and takes text that is not tied to it: `query`, `options\{\}`"
LINES = r"write `find: \{args: \{query: free, options: free\}\}` under `capabilities.tools`"


def test_registration_names_text_that_is_not_tied_and_the_lines_to_write(desk: Path) -> None:
    with pytest.warns(UntiedArgument, match=f"{NAMED}; {LINES}") as warned:
        gate(desk, FIND)
    assert warned[0].filename == __file__


def test_a_strict_gate_refuses_it(desk: Path) -> None:
    with pytest.raises(RegistrationRefused, match=NAMED):
        gate(desk, FIND, strict=True)


def test_the_lines_settle_it(desk: Path) -> None:
    tools = {"find": {"args": {"query": "free", "options": "free"}}}
    called = GateTools(gate(desk, FIND, strict=True, tools=tools), "s")
    given = {"query": "Rain", "path": "notes/a", "options": {"x": "/etc"}}
    assert called.call_blocking("find", given).text == "Rain {'x': '/etc'}"


def test_text_of_a_tool_without_files_and_hosts_is_not_named(desk: Path) -> None:
    gate(desk, governed(find, needs=["env:read:LANG"], effect="read_only"), strict=True, env=["LANG"])


def test_the_operator_reads_how_to_untie_it_and_the_receipt_that_nothing_is_enforced(desk: Path) -> None:
    at = gate(desk, governed(read, needs=["fs:read:${workdir}/notes"], effect="read_only"))
    tools = GateTools(at, "s")
    refused = tools.call_blocking("read", {"path": os.path.join(desk, "secret")}).result
    assert refused is not None
    assert "write `read: {args: {path: free}}` under `capabilities.tools`" in refused.explain()
    assert tools.call_blocking("read", {"path": "notes/a"}).ok
    assert receipts(at)[-1].sandbox.layers == ("handles", "declared, not enforced")


# What reviews read from the source ------------------------------------------------------------------------------------

SOURCE = """
from pathlib import Path
from typing import Annotated, Any, Literal, Optional, Union

from framework import Wrapper, function_tool
from licet.adapters import governed
from licet.core.policy.tool import spec_of


@function_tool(strict=True)
def look({parameters}) -> str:
    \"\"\"Look at notes.\"\"\"
    return ""


note = governed({given}, needs=["fs:read:${{workdir}}/notes"], effect="read_only"{more})
"""
POLICY = """
agent: desk
tools: {look: {from: "desk_tools:note"}}
capabilities:
  tools: %s
  native: [look]
  fs_reach: {read: ["${workdir}/notes"]}
"""


def source(
    desk: Path, parameters: str = "path: str", given: str = "look", more: str = "", tools: str = "[look]"
) -> Any:
    (desk / "desk_tools.py").write_text(SOURCE.format(parameters=parameters, given=given, more=more), encoding="utf-8")
    (desk / "licet.yaml").write_text(POLICY % tools, encoding="utf-8")
    return CliRunner()


@pytest.mark.parametrize(
    ("parameters", "tied", "untied"),
    [
        ("path: str, n: int = 3", ["path"], []),
        ("where: Path, query: str", ["where"], ["query"]),
        ("where: 'Path | None' = None", ["where"], []),
        ("where: Optional[Path], what: Union[str, int]", ["where"], ["what"]),
        ("paths: list[str], words: list[str]", ["paths[]"], ["words[]"]),
        ("files: dict[str, Path], more: dict[str, str]", ["files{}"], ["files{name}", "more{}"]),
        ("url: Annotated[str, 'where'], kind: Literal['a', 'b']", ["url"], []),
        ("where: os.PathLike[str], any: Any, bare", ["where"], ["any", "bare"]),
        ("context: Wrapper[int], model: Model", [], []),
        ("odd: '(', more: (lambda: 3)()", [], []),
    ],
)
def test_reviews_show_what_is_tied(desk: Path, parameters: str, tied: list[str], untied: list[str]) -> None:
    cli = source(desk, parameters)
    shown = json.loads(cli.invoke(licet, ["surface", "--json"]).stdout)["tools"][0]
    assert (shown["tied"], shown["untied"]) == (tied, untied)
    checked = cli.invoke(licet, ["check"]).output
    assert ("takes text that is not tied to it" in checked) is bool(untied)


def test_check_and_surface_print_the_lines_to_write(desk: Path) -> None:
    cli = source(desk, "path: str, query: str")
    line = "write `look: {args: {query: free}}` under `capabilities.tools` in licet.yaml"
    checked = cli.invoke(licet, ["check"])
    assert (checked.exit_code, line in checked.output) == (0, True)
    shown = " ".join(cli.invoke(licet, ["surface"]).output.split())
    assert f"not tied `look` declares fs, and takes text that is not tied to it: `query`; {line}" in shown
    assert "tied look: path, to what it declares" in shown
    for settled in ({"tools": "{look: {args: {query: free}}}"}, {"more": ', args={"query": "free"}'}):
        cli = source(desk, "path: str, query: str", **settled)
        assert "1 file, fine" in cli.invoke(licet, ["check"]).output


@pytest.mark.parametrize(
    ("given", "more", "problem"),
    [
        ("Tool(look)", "", "whose tool is not a function of this file, expected its name, such as `name='note'`"),
        ("Tool(look)", ', name="look"', ""),
        ("look", ', args={"path": "open"}', "expected `free`, or a `scope`"),
        ("look", ", sandbox='restricted'", "`sandbox=` in `governed` of `note`"),
        ("look", ", connector=some()", "a literal"),
    ],
)
def test_a_declaration_that_cannot_be_read_is_a_problem(desk: Path, given: str, more: str, problem: str) -> None:
    checked = source(desk, given=given, more=more).invoke(licet, ["check"])
    assert (checked.exit_code, problem in checked.output) == (1 if problem else 0, True)


def test_freeing_an_argument_is_growth_and_tying_it_again_is_not(desk: Path) -> None:
    cli = source(desk)
    tied = desk / "tied.yaml"
    tied.write_text((desk / "licet.yaml").read_text(encoding="utf-8"), encoding="utf-8")
    source(desk, tools="{look: {args: {path: free}}}")
    assert load_manifest(tied).digest != load_manifest(desk / "licet.yaml").digest
    grown = cli.invoke(licet, ["diff", "tied.yaml", "licet.yaml"])
    shrunk = cli.invoke(licet, ["diff", "licet.yaml", "tied.yaml"])
    assert (grown.exit_code, shrunk.exit_code) == (1, 0)
    assert "rules on `path`" in grown.output
    assert "rules on `path`" in shrunk.output


@pytest.mark.parametrize(("path", "verdict"), [("notes/a", "allow"), ("/etc/passwd", "deny")])
def test_cases_of_a_policy_see_what_is_tied(desk: Path, path: str, verdict: str) -> None:
    cli = source(desk)
    case = f"- {{tool: look, args: {{path: {path}}}, verdict: {verdict}}}\n"
    (desk / "licet.test.yaml").write_text(f"policy: licet.yaml\ncases:\n{case}", encoding="utf-8")
    tried = cli.invoke(licet, ["test", "licet.test.yaml"])
    assert tried.exit_code == 0, tried.output
