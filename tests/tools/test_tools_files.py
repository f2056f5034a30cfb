"""The ready-made file tools: what they do with real files through a gate, and what they say when they do not."""

import functools
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from counted import work
from guard.gates import call, gate
from licet import Backends, Gate, Manifest, Result, Tool, tools
from licet.testing import InThisProcess
from licet.tools import edit_file, list_dir, read_file, search_files, write_file
from licet.tools.file_search import Glob, StepMeter, TooManySteps, ignore_rules, is_ignored
from licet.tools.limits import MOST_ENTRIES, MOST_TEXT

FILES = (read_file, write_file, edit_file, list_dir, search_files)


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("files").resolve()
    (folder / "work").mkdir()
    yield folder
    gate_of.cache_clear()


@pytest.fixture
def folder(shared: Path) -> Path:
    """A folder whose gates serve all tests, with an empty folder `work`."""
    for path in (shared / "work").iterdir():
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()
    return shared


@functools.cache
def gate_of(folder: Path, name: str) -> Gate:
    """A gate for a file tool that may touch everything in the folder `work`, on the real file system."""
    work = folder / "work"
    reach = {"read": [str(work)], "write": [str(work)]}
    return gate(
        folder, getattr(tools, name), backends=Backends.local(folder / "state", sandbox=InThisProcess()),
        fs_reach=reach, deny=[f"fs:*:{work}/private"],
    )  # fmt: skip


def ask(folder: Path, tool: Tool, **arguments: Any) -> Result:
    """One call of a file tool."""
    # The workdir is where the tests' policy lies; what is given here is below `work`.
    given = {key: f"work/{value}" if key == "path" else value for key, value in arguments.items()}
    return call(gate_of(folder, tool.name), tool.name, given)


def write(folder: Path, **files: str | bytes) -> Path:
    for name, content in files.items():
        path = folder / "work" / name.replace("__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
    return folder


@pytest.mark.parametrize("tool", [getattr(tools, name) for name in tools.__all__], ids=lambda tool: tool.name)
def test_each_tool_takes_everything_from_the_ceiling_and_is_restricted(tool: Tool) -> None:
    assert all(str(need).endswith(":*") for need in tool.needs.allow)
    # What model-written Python does is known to nobody before it runs: the manifest states its class.
    assert tool.effect in (("read_only", "write_limited") if tool.name != "python" else (None,))
    assert tool.sandbox == "restricted"
    assert tool.description.endswith(".")
    assert tool.fn.__module__.startswith("licet.tools.")


def test_a_personality_lists_them_by_name_alone(tmp_path: Path) -> None:
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "a").write_text("Rain.", encoding="utf-8")
    given = {"id": "desk", "toolset": ["read_file", "list_dir"], "fs_reach": {"read": [str(tmp_path / "notes")]}}
    backends = Backends.local(tmp_path / "state")
    with backends:
        at = Gate(Manifest.from_data(given), [read_file, list_dir], backends, workdir=tmp_path)
        assert call(at, "read_file", {"path": "notes/a"}).value == "Rain."
        assert call(at, "read_file", {"path": "/etc/passwd"}).capability == "fs:read:/etc/passwd"


# read_file ------------------------------------------------------------------------------------------------------------

LINES = "one\ntwo\r\nthree\nfour"

READS: dict[str, tuple[dict[str, int], str]] = {
    "the whole": ({}, LINES),
    "from a line on": ({"offset": 2}, "three\nfour"),
    "some lines": ({"offset": 1, "limit": 2}, "two\r\nthree\n"),
    "the first": ({"limit": 1}, "one\n"),
    "more than there is": ({"limit": 99}, LINES),
    "after the end": ({"offset": 99}, ""),
}


@pytest.mark.parametrize(("given", "expected"), READS.values(), ids=READS)
def test_a_file_is_read_by_lines(folder: Path, given: dict[str, int], expected: str) -> None:
    assert ask(write(folder, a=LINES), read_file, path="a", **given).unwrap() == expected


def test_a_long_file_is_read_in_parts_that_say_where_to_go_on(folder: Path) -> None:
    whole = "".join(f"{number:07}\n" for number in range(MOST_TEXT // 8 + 10))
    write(folder, a=whole)
    first = ask(folder, read_file, path="a").unwrap()
    text, mark, _ = first.rpartition("[more: go on with offset=32768]\n")
    assert (len(text), bool(mark)) == (MOST_TEXT, True)
    assert text + ask(folder, read_file, path="a", offset=32768).unwrap() == whole


UNREADABLE: dict[str, tuple[str | bytes, dict[str, int], str]] = {
    "no text": (b"\xff\xfe\x00", {}, "work/a is not a text in UTF-8"),
    "one endless line": ("x" * (MOST_TEXT + 1), {}, "line 1 of work/a is longer than 262144 bytes"),
    "a negative offset": ("x", {"offset": -1}, "expected an `offset` of 0 or more"),
    "no lines": ("x", {"limit": 0}, "a `limit` of 1 or more"),
}


@pytest.mark.parametrize(("content", "given", "said"), UNREADABLE.values(), ids=UNREADABLE)
def test_what_is_not_read_is_said(folder: Path, content: str | bytes, given: dict[str, int], said: str) -> None:
    result = ask(write(folder, a=content), read_file, path="a", **given)
    assert (result.code, result.reason) == ("execution_failed", "TOOL_FAILED")
    assert said in result.error


@pytest.mark.parametrize("path", ["work/../agent.yaml", "work/private/key", "/etc/hostname"])
@pytest.mark.parametrize(
    ("tool", "more"),
    [(read_file, {}), (list_dir, {}), (search_files, {"pattern": "x"}), (write_file, {"text": "x"}),
     (edit_file, {"old": "x", "new": "y"})],
    ids=lambda value: value.name if isinstance(value, Tool) else "",
)  # fmt: skip
def test_no_tool_reaches_further_than_the_manifest(folder: Path, path: str, tool: Tool, more: dict[str, str]) -> None:
    write(folder, private__key="x")
    at = gate_of(folder, tool.name)
    policy = (folder / "agent.yaml").read_bytes()
    result = call(at, tool.name, {"path": path, **more})
    assert (result.ok, result.reason) == (False, "PATH_NOT_REACHABLE")
    assert (folder / "work/private/key").read_text() == "x"
    assert (folder / "agent.yaml").read_bytes() == policy


# write_file, edit_file, list_dir --------------------------------------------------------------------------------------


def test_a_file_is_written_with_the_directories_it_needs(folder: Path) -> None:
    assert ask(folder, write_file, path="a/b/c.txt", text="é").unwrap() == {"path": "work/a/b/c.txt", "bytes": 2}
    assert (folder / "work/a/b/c.txt").read_text() == "é"
    assert ask(folder, write_file, path="a/b/c.txt", text="").unwrap()["bytes"] == 0
    assert (folder / "work/a/b/c.txt").read_text() == ""


EDITS: dict[str, tuple[str, dict[str, Any], str | None]] = {
    "once": ("a b c", {"old": "b", "new": "x"}, "a x c"),
    "away": ("a b c", {"old": " b", "new": ""}, "a c"),
    "a counted number": ("a b a", {"old": "a", "new": "x", "count": 2}, "x b x"),
    "line ends stay": ("a\r\nb\r\n", {"old": "b", "new": "c"}, "a\r\nc\r\n"),
    "not there": ("a b c", {"old": "d", "new": "x"}, None),
    "there twice": ("a b a", {"old": "a", "new": "x"}, None),
    "there once, not twice": ("a b", {"old": "a", "new": "x", "count": 2}, None),
    "over itself": ("aaa", {"old": "aa", "new": "x"}, None),
    "over itself, counted": ("aaa", {"old": "aa", "new": "x", "count": 2}, None),
    "nothing": ("a", {"old": "", "new": "x"}, None),
    "no change": ("a", {"old": "a", "new": "a"}, None),
    "never": ("a", {"old": "a", "new": "b", "count": 0}, None),
    "a thousand times": ("a" * 1000, {"old": "a", "new": "b", "count": 1000}, "b" * 1000),
    "more often": ("a" * 1001, {"old": "a", "new": "b", "count": 1001}, None),
    "as long as it may be": ("a" * 16, {"old": "a", "new": "é" * 327_680, "count": 16}, "é" * 16 * 327_680),
    "longer than it may be": ("a" * 16 + "b", {"old": "a", "new": "é" * 327_680, "count": 16}, None),
}


@pytest.mark.parametrize(("before", "given", "after"), EDITS.values(), ids=EDITS)
def test_an_edit_is_exact_or_does_not_happen(
    folder: Path, before: str, given: dict[str, Any], after: str | None
) -> None:
    result = ask(write(folder, a=before), edit_file, path="a", **given)
    assert (folder / "work/a").read_bytes().decode() == (before if after is None else after)
    assert result.ok == (after is not None)
    if after is None:
        assert result.reason == "TOOL_FAILED"


def test_an_edit_that_is_ambiguous_says_so(folder: Path) -> None:
    result = ask(write(folder, a="x x x"), edit_file, path="a", old="x", new="y")
    assert "`old` is there more than 1 times in work/a, and 1 was expected; nothing was changed" in result.error


def test_an_edit_that_would_fill_the_memory_does_not_begin(folder: Path) -> None:
    result = ask(write(folder, a="a" * 1000), edit_file, path="a", old="a", new="b" * 1_000_000, count=1000)
    assert "work/a would have 1000000000 bytes, more than 10485760; nothing was changed" in result.error


def test_a_text_that_overlaps_itself_is_not_looked_for_further(folder: Path) -> None:
    result = ask(write(folder, a="a" * 5000), edit_file, path="a", old="a" * 2000, new="b", count=1000)
    assert "`old` is there twice in one place in work/a; nothing was changed" in result.error


def test_a_directory_is_listed_with_kinds_and_sizes(folder: Path) -> None:
    write(folder, a="123", d__b="")
    (folder / "work/gone").symlink_to("nowhere")
    (folder / "work/out").symlink_to("/etc")
    os.mkfifo(folder / "work/pipe")
    write(folder, private__key="x")
    assert ask(folder, list_dir, path="").unwrap() == {
        "entries": [
            {"name": "a", "kind": "file", "size": 3},
            {"name": "d", "kind": "directory"},
            {"name": "gone", "kind": "other"},
            {"name": "out", "kind": "other"},
            {"name": "pipe", "kind": "other"},
        ],
        "more": False,
    }


def test_a_long_directory_is_cut_and_says_so(folder: Path) -> None:
    write(folder, **{f"f{number}": "" for number in range(MOST_ENTRIES + 1)})
    listed = ask(folder, list_dir, path=".").unwrap()
    assert (len(listed["entries"]), listed["more"]) == (MOST_ENTRIES, True)


def test_a_name_that_is_no_text_is_shown_as_one(folder: Path) -> None:
    with open(os.fsencode(folder / "work") + b"/\xff", "wb"):
        pass
    (entry,) = ask(folder, list_dir, path=".").unwrap()["entries"]
    assert entry["name"] == "\\udcff"


# search_files ---------------------------------------------------------------------------------------------------------


def found(result: Result) -> list[tuple[str, int]]:
    places = [(match["path"], match["line"]) for match in result.unwrap()["matches"]]
    assert all(path.startswith("work/") for path, _ in places)  # so that `read_file` can take it
    return [(path.removeprefix("work/"), line) for path, line in places]


TEXT = "Apple\napple pie\npineapple\nGRÜẞE\ncrab-apple\n"

SEARCHES: dict[str, tuple[dict[str, Any], list[int]]] = {
    "as it is": ({"pattern": "apple"}, [2, 3, 5]),
    "in any case": ({"pattern": "APPLE", "ignore_case": True}, [1, 2, 3, 5]),
    "a whole word": ({"pattern": "apple", "whole_word": True}, [2, 5]),
    "a whole word in any case": ({"pattern": "apple", "whole_word": True, "ignore_case": True}, [1, 2, 5]),
    "letters that fold to two": ({"pattern": "grüsse", "ignore_case": True}, [4]),
    "no regular expression": ({"pattern": "a..le"}, []),
    "special characters": ({"pattern": "b-a"}, [5]),
}


@pytest.mark.parametrize(("given", "lines"), SEARCHES.values(), ids=SEARCHES)
def test_a_text_is_found(folder: Path, given: dict[str, Any], lines: list[int]) -> None:
    assert found(ask(write(folder, a=TEXT), search_files, path=".", **given)) == [("a", line) for line in lines]


def test_a_word_after_one_that_only_contains_it_is_found(folder: Path) -> None:
    write(folder, a="pineapple apple", b="xa-a-a", c="apples\napple_\napple5\npineapple")
    assert found(ask(folder, search_files, path=".", pattern="apple", whole_word=True)) == [("a", 1)]
    assert found(ask(folder, search_files, path=".", pattern="a-a", whole_word=True)) == [("b", 1)]


GLOBS: dict[str, tuple[str, list[str]]] = {
    "everything": ("*", ["a.md", "src/b.py", "src/deep/c.py", "top.py"]),
    "by name": ("*.py", ["src/b.py", "src/deep/c.py", "top.py"]),
    "by path": ("src/*.py", ["src/b.py"]),
    "at any depth": ("src/**/*.py", ["src/b.py", "src/deep/c.py"]),
    "below": ("src/**", ["src/b.py", "src/deep/c.py"]),
    "one letter": ("?.md", ["a.md"]),
    "a class": ("[ab].*", ["a.md", "src/b.py"]),
}


@pytest.mark.parametrize(("glob", "paths"), GLOBS.values(), ids=GLOBS)
def test_files_are_chosen_by_a_glob(folder: Path, glob: str, paths: list[str]) -> None:
    write(folder, **{"a.md": "x", "src__b.py": "x", "src__deep__c.py": "x", "top.py": "x"})
    assert [path for path, _ in found(ask(folder, search_files, path=".", pattern="x", glob=glob))] == paths


def test_ignore_files_are_respected_unless_told_otherwise(folder: Path) -> None:
    write(
        folder,
        **{
            ".gitignore": "# comment x\n*.log\n!keep.log\n/build\nlogs/\nback\n!back/\n",
            ".ignore": "!again.log\n",
            "a.log": "x", "keep.log": "x", "again.log": "x", "build__a": "x", "sub__build__a": "x", "logs__a": "x",
            "sub__.gitignore": "a\n/only\n", "sub__a": "x", "sub__only": "x", "sub__deep__only": "x", "only": "x",
            "back__a": "x", ".git__config": "x", "sub__.hg__a": "x",
        },
    )  # fmt: skip
    kept = ["again.log", "back/a", "keep.log", "only", "sub/deep/only"]
    assert [path for path, _ in found(ask(folder, search_files, path=".", pattern="x"))] == [".gitignore", *kept]
    everything = found(ask(folder, search_files, path=".", pattern="x", include_ignored=True))
    assert {"a.log", "build/a", "logs/a", "sub/a", "sub/only"} <= {path for path, _ in everything}
    assert not any(".git/" in path or ".hg/" in path for path, _ in everything)


def test_binary_large_and_unreachable_files_are_passed_over(folder: Path) -> None:
    write(folder, a="x", binary=b"x\0", large=b"x" * (4 << 20) + b"x", private__key="x", latin=b"\xffx")
    (folder / "work/out").symlink_to("/etc")
    (folder / "work/loop").symlink_to(".")
    result = ask(folder, search_files, path=".", pattern="x")
    assert found(result) == [("a", 1), ("latin", 1)]
    denied = [event.capability for event in result.events if type(event).__name__ == "CapabilityDenied"]
    assert denied == [f"fs:read:{folder / 'work' / 'out'}"]  # a link that leads outside; nothing else was even tried


def test_a_single_file_can_be_searched(folder: Path) -> None:
    assert found(ask(write(folder, a="y\nx"), search_files, path="a", pattern="x")) == [("a", 2)]


def test_results_are_capped_and_say_what_to_do(folder: Path) -> None:
    result = ask(write(folder, a="x\n" * 10), search_files, path=".", pattern="x", max_matches=4).unwrap()
    assert len(result["matches"]) == 4
    assert result["more"].startswith("there are more than 4 matches")
    exactly = ask(folder, search_files, path=".", pattern="x", max_matches=10).unwrap()
    assert (len(exactly["matches"]), "more" in exactly) == (10, False)


def test_of_a_long_line_the_part_around_the_match_is_shown(folder: Path) -> None:
    (match,) = ask(write(folder, a="a" * 5000 + "x" + "b" * 5000), search_files, path=".", pattern="x").unwrap()[
        "matches"
    ]
    assert len(match["text"]) == 302
    assert "axb" in match["text"]


@pytest.mark.parametrize("pattern", ["", "a\nb", "x" * 501])
def test_a_pattern_is_one_line_of_some_length(folder: Path, pattern: str) -> None:
    assert "expected a `pattern` of one line" in ask(write(folder, a=""), search_files, path=".", pattern=pattern).error


TOO_MUCH: dict[str, dict[str, str]] = {
    "patterns that try every way": {".gitignore": f"?*{'a' * 100}b\n" * 500},
    "more lines than anyone writes": {".gitignore": "x\n" * 3000, ".ignore": "y\n" * 3000},
    "long files in many places": {f"{number}__.gitignore": "#" * 200_000 for number in range(60)},
}


@pytest.mark.parametrize("files", TOO_MUCH.values(), ids=TOO_MUCH)
def test_ignore_files_that_take_too_long_end_the_search_which_says_so(folder: Path, files: dict[str, str]) -> None:
    write(folder, **{"a" * 250: "needle", **files})
    cut = ask(folder, search_files, path=".", pattern="needle").unwrap()
    assert "the ignore files take too long" in cut["more"]
    assert len(ask(folder, search_files, path=".", pattern="needle", include_ignored=True).unwrap()["matches"]) == 1


def test_a_glob_that_takes_too_long_ends_the_search_which_says_so(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("licet.tools.file_search.MOST_STEPS", 100_000)
    write(folder, **{"a" * 245 + str(number): "needle" for number in range(20)})
    cut = ask(folder, search_files, path=".", pattern="needle", glob=f"?*{'a' * 200}b*").unwrap()
    assert cut["more"].startswith("`glob` or the ignore files take too long")


# Globs ----------------------------------------------------------------------------------------------------------------

MATCHES: list[tuple[str, str, bool]] = [
    ("*", "a", True),
    ("*", "a/b", False),
    ("**", "a/b", True),
    ("**/a", "a", True),
    ("**/a", "x/y/a", True),
    ("a/**/b", "a/b", True),
    ("a/**/b", "a/x/y/b", True),
    ("a/**/b", "a/x/y/c", False),
    ("a*c", "abbc", True),
    ("a*c", "abbcd", False),
    ("[a-c]?", "bz", True),
    ("[a-c]?", "dz", False),
    ("[!a]", "b", True),
    ("[^a]", "a", False),
    ("[]a]", "]", True),
    ("[a-]", "-", True),
    ("[a", "[a", True),
    ("[c-da-bx]", "b", True),
    ("[c-da-bx]", "e", False),
    ("[a-zc-d]", "y", True),
    ("[!a-zc-d]", "y", False),
    ("[z-ab]", "c", False),
    ("[z-ab]", "b", True),
    ("\\*", "*", True),
    ("\\*", "a", False),
    ("*.tar.*", "a.tar.gz", True),
    ("x" * 1001, "x" * 1001, False),
]


def plenty() -> StepMeter:
    return StepMeter(10**9, 10**9)


@pytest.mark.parametrize(("pattern", "path", "matches"), MATCHES, ids=[f"{a[:9]} {b[:9]}" for a, b, _ in MATCHES])
def test_a_glob_matches(pattern: str, path: str, matches: bool) -> None:
    assert Glob(pattern).matches(path.split("/"), plenty()) is matches


def test_no_glob_takes_long() -> None:
    # As a regular expression, each of these would be tried in more ways than there are seconds.
    assert not Glob("*a" * 400 + "b").matches(["a" * 255], plenty())
    assert not Glob("**/a/" * 150 + "b").matches(["a"] * 200, plenty())


def test_the_steps_of_matching_are_counted() -> None:
    meter = StepMeter(in_all=100, at_once=60)
    glob = Glob("?*aab")
    assert not glob.matches(["a" * 10], meter)
    assert 10 < meter.now < 60
    with pytest.raises(TooManySteps):
        glob.matches(["a" * 100], meter)
    meter = StepMeter(in_all=100, at_once=60)
    meter.take(60)
    meter.rest()
    meter.take(40)
    meter.rest()
    with pytest.raises(TooManySteps):
        meter.take(1)


def test_a_class_costs_one_step_however_long_it_is() -> None:
    short, long = Glob("?*[b-c]"), Glob(f"?*[{'b-c' * 300}]")
    assert work(lambda: long.matches(["a" * 200], plenty())) == work(lambda: short.matches(["a" * 200], plenty()))


IGNORES: list[tuple[str, str, bool, bool]] = [
    ("foo", "a/foo", False, True),
    ("/foo", "a/foo", False, False),
    ("/foo", "foo", False, True),
    ("a/foo", "a/foo", False, True),
    ("a/foo", "x/a/foo", False, False),
    ("foo/", "foo", False, False),
    ("foo/", "x/foo", True, True),
    ("a/**", "a", True, False),
    ("a/**", "a/b", True, True),
    ("**/a", "x/a", False, True),
    ("#x", "#x", False, False),
    ("\\#x", "#x", False, True),
    ("\\!x", "!x", False, True),
    ("x  ", "x", False, True),
    ("x\\ ", "x ", False, True),
    ("*.o\n!a.o", "a.o", False, False),
    ("!a.o\n*.o", "a.o", False, True),
    ("/", "a", True, False),
    ("", "a", False, False),
    ("\ufefffoo", "foo", False, True),
]


@pytest.mark.parametrize(("text", "path", "directory", "ignored"), IGNORES)
def test_ignore_files_mean_what_they_mean_to_git(text: str, path: str, directory: bool, ignored: bool) -> None:
    assert is_ignored(ignore_rules(text, 0), path.split("/"), directory, plenty()) is ignored


def test_an_ignore_file_counts_from_its_own_directory() -> None:
    rules = ignore_rules("/foo", 1)
    assert is_ignored(rules, ["sub", "foo"], False, plenty())
    assert not is_ignored(rules, ["sub", "deep", "foo"], False, plenty())
