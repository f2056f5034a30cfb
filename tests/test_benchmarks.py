"""What pages say about speed is what one run showed; the record of it fits the code, and two checkouts are compared."""

import ast
import re
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parent.parent
sys.path.append(str(ROOT))  # benchmarks are in no distribution

from benchmarks import __main__ as command  # noqa: E402
from benchmarks import pages  # noqa: E402
from benchmarks.compare import Compared, Times, add_rows, compared_table, is_named, nanoseconds  # noqa: E402
from benchmarks.harness import PARTS, Effort, Row, Target, at_least, at_most, table  # noqa: E402
from benchmarks.record import FILE, Record, read_record, record_of, write_record  # noqa: E402

README = ROOT / "benchmarks" / "README.md"
GENERATED = re.compile(r"^<!-- generated: .*?^<!-- end -->", re.MULTILINE | re.DOTALL)
RECORD = Record(
    commit="0123abcd", date="2026-03-01", machine="x86_64", python="3.11.9", quick=False,
    rows={
        "decisions": [
            Row("one host, 10 rules", "floor", "1 µs", "2 µs", 0.5, at_most(1)),
            Row("one host, 10 rules", "vakt", "1 µs", "2 µs", 2.0),
        ],
        "governed": [
            Row("a whole governed call", "the four steps by hand", "1 ms", "2 µs", 500.0, at_most(8)),
            Row("a whole governed call", "tenuo guard", target=at_least(2), note="not installed"),
        ],
    },
)  # fmt: skip


def targets_in(module: str) -> set[Target]:
    """The targets that the source of a part has, of numbers and of constants of that module."""
    tree = ast.parse((ROOT / "benchmarks" / f"{module}.py").read_text("utf-8"))
    constants = {
        name.id: value
        for node in tree.body
        if isinstance(node, ast.Assign)
        for target in node.targets
        for name, value in _assigned(target, node.value)
        if isinstance(name, ast.Name)
    }
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)]
    found = set()
    for call in calls:
        if isinstance(call.func, ast.Name) and call.func.id in ("at_most", "at_least") and len(call.args) == 1:
            limit = call.args[0]
            if isinstance(limit, ast.Name):
                limit = constants[limit.id]
            value = eval(compile(ast.Expression(limit), module, "eval"))
            found.add(Target("at most" if call.func.id == "at_most" else "at least", float(value)))
    return found


def _assigned(target: ast.expr, value: ast.expr) -> list[tuple[ast.expr, ast.expr]]:
    """The names of an assignment, each with its value: `A, B = 1, 2` has two."""
    if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
        return list(zip(target.elts, value.elts, strict=True))
    return [(target, value)]


def code_targets(part: str) -> set[Target]:
    """The targets of a part, with those that it takes from another part."""
    tree = ast.parse((ROOT / "benchmarks" / f"{part}.py").read_text("utf-8"))
    taken = [node.module for node in tree.body if isinstance(node, ast.ImportFrom) and node.module]
    others = [name.removeprefix("benchmarks.") for name in taken if name.removeprefix("benchmarks.") in PARTS]
    return set().union(*map(targets_in, (part, *others)))


@pytest.mark.parametrize("part", PARTS)
def test_each_target_of_the_record_is_that_of_the_code(part: str) -> None:
    rows = read_record().rows.get(part, ())
    recorded = {Target(row.target.sense, float(row.target.limit)) for row in rows if row.target is not None}
    assert recorded - {at_most(1.0)} <= code_targets(part)


def spellings(target: Target) -> set[str]:
    """How a page may write the limit of a target."""
    limit = target.limit
    shown = {f"{limit:g}x", f"{limit:g} times", f"{limit:g} MB", f"{limit:g} s"}
    shown |= {f"1/{1 / limit:g}", f"{1 / limit:g}x"} if limit else set()
    return shown | ({"half of"} if limit in (0.5, 2.0) else set())


def test_each_target_of_the_code_stands_in_the_tables_of_targets() -> None:
    text = GENERATED.sub("", README.read_text("utf-8"))
    missing = {
        (part, str(target))
        for part in PARTS
        for target in code_targets(part)
        if target.limit not in (0, 1) and not any(shown in text for shown in spellings(target))
    }
    assert missing == set()


def test_each_target_of_the_tables_is_one_of_the_code() -> None:
    text = GENERATED.sub("", README.read_text("utf-8"))
    section = text[text.index("## Targets") : text.index("## Results")]
    code = set().union(*map(code_targets, PARTS))
    known = set().union(*map(spellings, code)) | {"1x"}
    numbers = re.findall(r"(?<![\d.])\d+(?:\.\d+)?x|\b1/\d+", section)
    assert len(numbers) > 50
    assert [number for number in numbers if number not in known and number != SRT] == []


# `licet run` beside srt is compared by `make test-peers`, with a limit of its own.
SRT = "0.75x"


def test_srt_has_the_limit_that_the_page_has() -> None:
    assert SRT.rstrip("x") in (ROOT / "scripts" / "compare_srt.py").read_text("utf-8")


def test_the_sentence_counts_the_rows_of_the_table() -> None:
    text = README.read_text("utf-8")
    rows = [line for line in text.splitlines() if re.search(r"\s(<=|>=) \d\S*\s+(ok|MISSED|not measured)", line)]
    ended = [re.search(r"(ok|MISSED|not measured)", line)[1] for line in rows]  # type: ignore[index]
    assert f"{ended.count('ok')} of {len(rows)} targets are met." in text
    assert f"Missed: {ended.count('MISSED')}." in text or "MISSED" not in ended
    assert len(rows) > 90


def test_no_page_has_a_speed_of_its_own() -> None:
    for page in (README, ROOT / "README.md", *(ROOT / "docs").rglob("*.md")):
        own = GENERATED.sub("", page.read_text("utf-8"))
        own = own.replace("exit 1 if a target is missed", "")
        claims = re.findall(r"[^.\n]*\btargets? (?:above |of \S+ )?(?:is|are) (?:met|missed)[^.\n]*", own)
        assert claims == [], page
    for page in (ROOT / "docs" / "comparison.md", ROOT / "docs" / "support.md"):
        own = GENERATED.sub("", page.read_text("utf-8"))
        ratios = [text for text in re.findall(r"\d+(?:\.\d+)?x(?! of `srt)", own) if text not in OTHERS]
        assert ratios == [], page


OTHERS = {"1.7x", "2.1x", "0.75x"}  # of another gateway, and the limit beside srt: both measured elsewhere


def test_the_record_is_written_as_it_is_read(tmp_path: Path) -> None:
    write_record(RECORD, tmp_path / "record.json")
    assert read_record(tmp_path / "record.json") == RECORD
    write_record(read_record(), tmp_path / "again.json")
    assert (tmp_path / "again.json").read_text("utf-8") == FILE.read_text("utf-8")


def test_a_record_names_its_code_and_nothing_of_its_machine() -> None:
    row = Row("x", "y", note=f"no file {ROOT}/a in {Path.home()}/b")
    record = record_of({"files": [row]}, quick=True, now=datetime(2026, 3, 1, tzinfo=UTC))
    assert re.fullmatch(r"[0-9a-f]{8}\+?|unknown", record.commit)
    assert (record.date, record.quick, record.rows["files"][0].note) == ("2026-03-01", True, "no file /a in ~/b")


def test_pages_are_made_of_the_record() -> None:
    made = pages.parts(RECORD)
    assert made["../benchmarks/README.md"]["verdict"].startswith(
        "1 of 3 targets are met. Missed: 1.\n\n"
        "- a whole governed call, against the four steps by hand: 500x, target <= 8\n\n"
        "Not measured: 1, of a whole governed call.\n\nNot in this record: building, startup"
    )
    assert made["../benchmarks/README.md"]["run"] == (
        "One run of commit 0123abcd on 2026-03-01 (x86_64, Python 3.11.9).\n"
    )
    assert table(RECORD.all_rows()) in made["../benchmarks/README.md"]["results"]
    assert "| 1 µs | 0.50x of a set look-up; 2.00x as fast as vakt |" in made["support.md"]["speed"]
    assert "| one host, 10 rules | tenuo | not measured |" in made["comparison.md"]["speed"]
    assert "were not measured" in made["support.md"]["floods"]


# The command ----------------------------------------------------------------------------------------------------------


def ran(monkeypatch: pytest.MonkeyPatch, *words: str) -> int:
    monkeypatch.setattr("sys.argv", ["benchmarks", *words])
    return command.main()


def test_a_cheap_part_is_measured_and_some_of_its_rows_shown(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(Effort, "quick", lambda: Effort(rounds=2, slice_ns=100_000, processes=1))
    ran(monkeypatch, "--quick", "--only", "replace a small", "files")
    shown = capsys.readouterr().out
    assert "replace a small file" in shown
    assert "read a small file" not in shown
    ran(monkeypatch, "--quick", "--only", "REPLACE a small")
    assert "replace a small file" in capsys.readouterr().out


def test_a_complete_run_becomes_the_record(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(Effort, "quick", lambda: Effort(rounds=2, slice_ns=100_000, processes=1))
    monkeypatch.setattr(command, "PARTS", ("files",))
    monkeypatch.setattr(command, "FILE", tmp_path / "record.json")
    ran(monkeypatch, "--quick", "--write")
    record = read_record(tmp_path / "record.json")
    assert (list(record.rows), record.quick, record.note) == (["files"], True, "")
    assert record.row("read a small file", "open().read()") is not None
    made = pages.parts(record)
    assert made["../benchmarks/README.md"]["run"].startswith("One run with `--quick` of commit ")


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["--write", "files"], "one complete run"),
        (["--write", "--only", "x"], "one complete run"),
        (["--only", "no such row"], "no row of the record has no such row"),
    ],
)
def test_what_cannot_be_done_is_said(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], words: list[str], why: str
) -> None:
    with pytest.raises(SystemExit):
        ran(monkeypatch, *words)
    assert why in capsys.readouterr().err


def test_a_part_that_fails_ends_no_other_and_counts_as_not_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    class Broken:
        @staticmethod
        def measure(_: Effort) -> Sequence[Row]:
            raise OSError("no such program\nmore")

    monkeypatch.setattr(command, "import_module", lambda _: Broken)
    (row,) = command.measure(["files"], ["x"], Effort.quick())["files"]
    assert (row.what, row.note, row.verdict) == ("all rows of files", "OSError: no such program", "not measured")


# Two checkouts --------------------------------------------------------------------------------------------------------


def printed(what: str, licet: str, ratio: float | None) -> dict[str, Any]:
    return {"what": what, "against": "floor", "licet": licet, "ratio": ratio}


def test_the_least_times_of_both_are_compared() -> None:
    here: dict[tuple[str, str], Times] = {}
    there: dict[tuple[str, str], Times] = {}
    for times, one, two in ((here, "1.05 ms", "1.1 ms"), (there, "1 ms", "2 ms")):
        for text in (one, two):
            add_rows(times, [printed("a call", text, 2.0), printed("memory", "5 MB", 1.0)])
    rows = [Compared(*key, times, there[key]) for key, times in here.items()]
    assert [round(row.change, 3) for row in rows] == [1.05, 0.0]
    assert [row.is_slower for row in rows] == [False, False]
    slower = Compared("a call", "floor", Times([1.06e6], [2.1]), Times([1e6], [2.0]))
    assert slower.is_slower
    assert compared_table([slower]).splitlines()[1].split() == [
        *("a", "call", "floor", "1.06", "ms", "1", "ms", "1.060", "2.10x", "2.00x", "SLOWER")
    ]


@pytest.mark.parametrize(
    ("text", "took"), [("0.649 µs", 649.0), ("12 ns", 12.0), ("1.5 s", 1.5e9), ("5 MB", None), ("", None)]
)
def test_a_time_is_read_from_its_text(text: str, took: float | None) -> None:
    assert nanoseconds(text) == pytest.approx(took)


def test_rows_are_named_by_a_part_of_their_name() -> None:
    assert is_named("A whole governed call", ["governed"])
    assert not is_named("a raw URL", ["governed", "host"])
    assert is_named("anything", [])
