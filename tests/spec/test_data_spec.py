"""Policy from Python data: the same meaning, checks and digest as files, and nothing but plain values."""

import json
from collections import ChainMap, OrderedDict, UserDict, namedtuple
from decimal import Decimal
from enum import IntEnum, StrEnum
from fractions import Fraction
from functools import reduce
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest
import yaml

from licet import (
    Backends,
    Capability,
    CapabilitySet,
    Deny,
    Gate,
    Manifest,
    ManifestError,
    Request,
    Use,
    decide,
    load_manifest,
    run,
    tool,
)
from licet.policy_files.load import read_policy

from .cases import HERE, MANIFEST, PERSONALITY, Case, Registration, Trouble, World, cases

WORKSPACE = "licet.yaml"
FULL = yaml.safe_load((HERE / "digest.yaml").read_text("utf-8"))["files"]
SOUND = (*cases(Case, "decisions.yaml", "effects.yaml", "ceilings.yaml", "connectors.yaml"),)
SOUND_WORLDS: tuple[World, ...] = (*SOUND, *cases(Registration, "registration.yaml"))


def from_files(files: dict[str, Any], root: str = ".") -> Manifest:
    return Manifest.from_data(files[MANIFEST], files.get(WORKSPACE), files.get(PERSONALITY), root=root)


def problems_of(data: Any, **more: Any) -> list[str]:
    """Every problem, as a place and what was found there."""
    with pytest.raises(ManifestError) as wrong:
        Manifest.from_data(data, **more)
    return [f"{problem.origin}: {problem.found}" for problem in wrong.value.problems]


# The same as files ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("world", SOUND_WORLDS, ids=lambda world: world.name)
@pytest.mark.sampled(35)
def test_the_digest_is_that_of_the_same_files(world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    personality = world.write(tmp_path)
    data = {name: yaml.safe_load(text) for name, text in world.files.items() if name.endswith(".yaml")}
    assert from_files(data).digest == load_manifest(MANIFEST, personality=personality).digest


def test_every_key_of_policy_files_is_taken(tmp_path: Path) -> None:
    for name, data in FULL.items():
        (tmp_path / name).write_text(json.dumps(data), "utf-8")
    assert from_files(FULL).digest == load_manifest(tmp_path / MANIFEST).digest


def _plain(case: Trouble) -> dict[str, Any] | None:
    """The files of a case as data, if they are mappings that JSON can say."""
    try:
        data = {name: yaml.safe_load(text) for name, text in case.files.items()}
        json.dumps(data, allow_nan=False)
    except (yaml.YAMLError, ValueError, TypeError):
        return None
    whole = MANIFEST in data and all(isinstance(held, dict) and held for held in data.values())
    return data if whole and all(name.endswith(".yaml") for name in data) else None


TROUBLES = {case.name: data for case in cases(Trouble, "problems.yaml") if (data := _plain(case)) is not None}


@pytest.mark.parametrize("files", TROUBLES.values(), ids=TROUBLES)
@pytest.mark.sampled(33)
def test_the_problems_are_those_of_the_same_files(
    files: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    names = {name: name.replace(".yaml", ".json") for name in files}
    for name, data in files.items():
        Path(names[name]).write_text(json.dumps(data), "utf-8")
    read = read_policy(names[MANIFEST], names.get(WORKSPACE), names.get(PERSONALITY))
    in_files = [problem for problem in read.problems if problem.severity == "error"]
    try:
        from_files(files)
        in_data = []
    except ManifestError as wrong:
        in_data = list(wrong.problems)

    said = [(problem.found, problem.expected.replace("licet.json", "the workspace data")) for problem in in_files]
    assert sorted(said) == sorted((problem.found, problem.expected) for problem in in_data)
    for problem in in_data:
        document = {"the data": MANIFEST, "the workspace data": WORKSPACE, "the personality data": PERSONALITY}
        assert resolves(files[document[problem.origin.file]], problem.origin.pointer)


def resolves(data: Any, pointer: str) -> bool:
    """Whether a JSON pointer leads to a value, read as RFC 6901 says."""
    keys = [key.replace("~1", "/").replace("~0", "~") for key in pointer.split("/")[1:]]
    reduce(lambda held, key: held[int(key) if isinstance(held, list) else key], keys, data)
    return True


def test_there_are_problems_to_compare() -> None:
    assert len(TROUBLES) > 60


# Places ---------------------------------------------------------------------------------------------------------------


def test_all_problems_come_at_once_in_the_order_of_the_data() -> None:
    data = {
        "agent": "a b",
        "capabilities": {"fs_reach": {"read": ["data"]}, "budget": {"max_cost_usd": -1}, "a/b~c": 1},
        "version": 1.0,
    }
    assert problems_of(data, workspace={"bundles": {"x": {"tools": ["a b"]}}}) == [
        "/agent: `a b`",
        "/capabilities/fs_reach/read/0: `data`",
        "/capabilities/budget/max_cost_usd: a number `-1`",
        "/capabilities/a~1b~0c: the key `a/b~c`",
        "/version: a number `1.0`",
        "the workspace data /bundles/x/tools/0: `a b`",
    ]


def test_a_refusal_names_the_place_and_the_data_to_edit() -> None:
    @tool(needs=["network:*:*"], effect="read_only", sandbox="restricted")
    def look() -> str:
        """Look."""
        return ""

    manifest = Manifest.from_data(
        {"agent": "a", "capabilities": {"tools": ["look"], "destinations": {"allow": ["a.test"], "deny": ["b.test"]}}}
    )
    denied = decide(Request("look", (Use("network:https:get@b.test"),)), manifest.declare([look.spec]))
    assert isinstance(denied, Deny)
    assert [str(rule) for rule in denied.rules] == [
        "denied by network:*:b.test (/capabilities/destinations/deny/0)",
        "the manifest does not allow it (/capabilities)",
    ]
    assert denied.rules[0].fix == "remove `b.test` from `capabilities.destinations.deny` in the data"


# Values that only Python has ------------------------------------------------------------------------------------------


class Odd(str):
    """Text that compares, hashes and prints otherwise than it reads."""

    def __str__(self) -> str:
        return "something else"

    def __eq__(self, other: object) -> bool:
        return False

    def __hash__(self) -> int:
        return 7


class Name(StrEnum):
    AGENT = "helper"


class Count(IntEnum):
    FEW = 3


Pair = namedtuple("Pair", "one two")


def manifest_of(**capabilities: Any) -> Manifest:
    return Manifest.from_data({"agent": "a", "capabilities": capabilities})


@pytest.mark.parametrize(
    ("odd", "plain"),
    [
        ({"env": ("PATH", "LANG")}, {"env": ["PATH", "LANG"]}),
        ({"env": Pair("PATH", "LANG")}, {"env": ["PATH", "LANG"]}),
        ({"env": [Odd("PATH")]}, {"env": ["PATH"]}),
        ({Odd("env"): ["PATH"]}, {"env": ["PATH"]}),
        ({"secrets": [Name.AGENT]}, {"secrets": ["helper"]}),
        ({"fs_reach": MappingProxyType({"read": ["/srv"]})}, {"fs_reach": {"read": ["/srv"]}}),
        ({"fs_reach": OrderedDict(read=["/srv"])}, {"fs_reach": {"read": ["/srv"]}}),
        ({"limits": {"wall_seconds": 3.0}}, {"limits": {"wall_seconds": 3}}),
        ({"limits": {"wall_seconds": Count.FEW}}, {"limits": {"wall_seconds": 3}}),
        ({"budget": {"max_cost_usd": 0.1}}, {"budget": {"max_cost_usd": Decimal("0.10")}}),
        ({"budget": {"max_cost_usd": Decimal("5E+2")}}, {"budget": {"max_cost_usd": 500}}),
        ({"budget": {"max_cost_usd": -0.0}}, {"budget": {"max_cost_usd": 0}}),
    ],
    ids=str,
)
def test_other_spellings_of_plain_values_mean_the_same(odd: Any, plain: Any) -> None:
    assert manifest_of(**odd).digest == manifest_of(**plain).digest


class Raising(UserDict[str, Any]):
    """A mapping whose items cannot be read."""

    def items(self) -> Any:
        raise KeyError("agent")


class Single(UserDict[str, Any]):
    """A mapping whose items are no pairs."""

    def items(self) -> Any:
        return [("agent",)]


@pytest.mark.parametrize("odd", [Raising(agent="a"), Single(agent="a")], ids=["raising", "no pairs"])
def test_a_view_of_something_that_is_no_dict_is_a_problem(odd: Any) -> None:
    for data in (MappingProxyType(odd), {"agent": "a", "capabilities": MappingProxyType(odd)}):
        with pytest.raises(ManifestError, match="a mapping whose items cannot be read"):
            Manifest.from_data(data)


def nested(depth: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(depth):
        value = [value]
    return value


def repeated(depth: int) -> list[Any]:
    """A short program for a list of `10 ** depth` values, of which a few thousand are as long as a file may be."""
    value: list[Any] = ["PATH" * 100]
    for _ in range(depth):
        value = [value] * 10
    return value


CYCLE: list[Any] = []
CYCLE.append(CYCLE)
ENV = "/capabilities/env"


@pytest.mark.parametrize(
    ("env", "problem"),
    [
        ({"PATH"}, f"{ENV}: a value of type `set`"),
        (frozenset(["PATH"]), f"{ENV}: a value of type `frozenset`"),
        ([b"PATH"], f"{ENV}/0: a value of type `bytes`"),
        ([Path("/bin")], f"{ENV}/0: a value of type `{type(Path()).__name__}`"),
        ([Fraction(1, 2)], f"{ENV}/0: a value of type `Fraction`"),
        ([1j], f"{ENV}/0: a value of type `complex`"),
        ([Capability("env:read:PATH")], f"{ENV}/0: a value of type `Capability`"),
        (CapabilitySet(["env:read:PATH"]), f"{ENV}: a value of type `CapabilitySet`"),
        (iter(["PATH"]), f"{ENV}: a value of type `list_iterator`"),
        (ChainMap({}), f"{ENV}: a value of type `ChainMap`"),
        ([None], f"{ENV}/0: a null `null`"),
        ([True], f"{ENV}/0: a boolean `true`"),
        ([7], f"{ENV}/0: a number `7`"),
        ([float("nan")], f"{ENV}/0: `nan`"),
        ([float("-inf")], f"{ENV}/0: `-inf`"),
        ([Decimal("sNaN")], f"{ENV}/0: `sNaN`"),
        ([10**5000], f"{ENV}/0: `18446744073709551616`"),
        ([Decimal("1e400")], f"{ENV}/0: `1E+400`"),
        (["PA\u202eTH"], f"{ENV}/0: U+202E (right-to-left override) in `PA\\u202eTH`"),
        (["PA\ud800TH"], f"{ENV}/0: U+D800 (half of a surrogate pair) in `PA\\ud800TH`"),
        ([""], f"{ENV}/0: an empty text"),
        ({1: 2}, f"{ENV}: a key of type `int`"),
        ({None: 2}, f"{ENV}: a key of type `NoneType`"),
        ({"": 2}, f"{ENV}: an empty key"),
        ({"a\u200bb": 2}, f"{ENV}: U+200B (zero width space) in `a\\u200bb`"),
        ({Odd("read"): 1, "read": 1}, f"{ENV}/read: the key `read` a second time"),
        (CYCLE, f"{ENV}/0: a value that contains itself"),
        (nested(40), f"{ENV}{'/0' * 30}: nesting deeper than 32"),
        (nested(100_000), f"{ENV}{'/0' * 30}: nesting deeper than 32"),
        (repeated(20), ": more data"),
        ({"k" * 100_000: ["x"] * 1000}, "the data: long keys around many values"),
    ],
    ids=lambda value: value[:60] if isinstance(value, str) else "",
)
def test_what_no_file_can_say_is_refused_where_it_stands(env: Any, problem: str) -> None:
    assert problem in "\n".join(problems_of({"agent": "a", "capabilities": {"env": env}}))


def test_data_is_as_long_as_a_file_at_most() -> None:
    assert problems_of({"agent": "a", "version": "x" * (1 << 20)}) == ["/version: more data"]


def test_an_object_that_claims_to_be_a_dict_is_none() -> None:
    pretender = type("Pretender", (), {"__class__": property(lambda _: dict)})
    assert problems_of(pretender()) == ["the data: a value of type `Pretender`"]


def test_a_path_or_a_text_is_not_repeated() -> None:
    (problem,) = problems_of("agent: a\ntoken: hunter2")
    assert problem == "the data: text"


def test_changing_the_data_afterwards_changes_nothing() -> None:
    paths, arguments = ["/srv"], {"enum": [3]}
    data: dict[str, Any] = {
        "agent": "a",
        "tools": {"t": {"needs": ["fs:read:/srv"]}},
        "capabilities": {"fs_reach": {"read": paths}, "tools": {"t": {"args": {"n": arguments}}}},
    }
    manifest = Manifest.from_data(data)
    before = manifest.digest, manifest.ceiling, dict(manifest.admissions["t"][0].args["n"])
    paths.append("/")
    arguments["enum"].append(4)
    data["capabilities"]["env"] = ["*"]
    fresh = Manifest.from_data({**data, "capabilities": {**data["capabilities"], "fs_reach": {"read": ["/srv"]}}})
    assert (manifest.digest, manifest.ceiling, dict(manifest.admissions["t"][0].args["n"])) == before
    assert fresh.digest != manifest.digest


# Several documents ----------------------------------------------------------------------------------------------------


def test_a_workspace_alone_is_no_manifest() -> None:
    assert problems_of({"bundles": {"b": {"tools": ["t"]}}}) == ["the data: a workspace"]


def test_a_personality_is_a_manifest_of_its_own_and_narrows_one() -> None:
    person = {"id": "p", "toolset": ["t"], "fs_reach": {"read": ["/srv/a"]}}
    alone = Manifest.from_data(person)
    both = Manifest.from_data({"agent": "a", "capabilities": {"fs_reach": {"read": ["/srv"]}}}, personality=person)
    assert alone.personality == both.personality == "p"
    assert both.ceiling.has("fs:read:/srv/a/x")
    assert not both.ceiling.has("fs:read:/srv/b")


def test_a_newer_format_is_said_alone() -> None:
    (problem,) = problems_of({"licet": 2, "agent": "a", "anything": 1})
    assert problem == "/licet: format 2"


# Files and code -------------------------------------------------------------------------------------------------------


def test_code_is_named_with_its_directory_or_not_at_all(tmp_path: Path) -> None:
    data = {"agent": "a", "tools": {"t": {"from": "pkg.mod:t"}}, "capabilities": {"tools": ["t"]}}
    assert problems_of(data) == ["/tools/t/from: `from: pkg.mod:t`"]
    manifest = Manifest.from_data(data, root=tmp_path)
    assert manifest.sources["t"][0] == "pkg.mod:t"
    written = Manifest.from_data(
        {**data, "capabilities": {"tools": ["t"], "fs_reach": {"write": [str(tmp_path)]}}}, root=tmp_path
    )
    assert written.ceiling.has(f"fs:write:{tmp_path}/out")
    assert not written.ceiling.has(f"fs:write:{tmp_path}/pkg/mod.py")


def test_no_file_is_looked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path(WORKSPACE).write_text("nonsense: [")
    assert Manifest.from_data({"agent": "a"}).files == ()


@tool(needs=["fs:read:/srv/data"], effect="read_only", sandbox="native")
def known() -> str:
    """Say something."""
    return "known"


def test_a_gate_takes_a_manifest_from_data() -> None:
    data = {"agent": "a", "capabilities": {"tools": ["known"], "native": ["known"], "fs_reach": {"read": ["/srv"]}}}
    gate = Gate(Manifest.from_data(data), [known], Backends.memory())
    assert run(gate, "known").value == "known"


def test_a_bundle_that_is_not_there_belongs_into_the_workspace() -> None:
    with pytest.raises(ManifestError, match=r"`Manifest\.from_data\(…, workspace=…\)`"):
        Manifest.from_data({"agent": "a", "capabilities": {"bundles": ["desk"]}})
