"""Test files: what they may hold, every mistake with its place, and which policy they are about."""

from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest

from licet.core.review.examples import Case
from licet.core.values import Problem
from licet.policy_files.load import CASES, case_files, is_case_file, read_case_file
from licet.policy_files.shapes import json_schema

GOOD = """\
cases:
  - {tool: read, use: "fs:read:${workdir}/a", verdict: allow}
  - name: a stranger is not paid
    tool: pay
    args: {to: eve, amount: 1.5, tags: [a, {b: null}]}
    verdict: deny
    reason: ARGUMENT_NOT_ALLOWED
"""


def written(folder: Path, text: str, name: str = ".licet/tests/a.yaml") -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def policy(folder: Path, name: str = "licet.yaml") -> Path:
    return written(folder, "agent: a\n", name)


def test_a_test_file_holds_cases_with_their_places(tmp_path: Path) -> None:
    policy(tmp_path)
    path, problems = written(tmp_path, GOOD), list[Problem]()
    read = read_case_file(path, problems)
    assert read is not None
    assert problems == []
    first, second = read.cases
    assert (first.origin.file, first.origin.line, second.origin.line) == (str(path), 2, 3)
    assert first == Case(first.origin, "read", ("allow",), "fs:read:${workdir}/a")
    args = {"to": "eve", "amount": 1.5, "tags": ["a", {"b": None}]}
    name = "a stranger is not paid"
    assert second == Case(second.origin, "pay", ("deny",), "", args, "ARGUMENT_NOT_ALLOWED", name)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("cases: [{verdict: allow}]", "1:9: error: found a mapping without it, expected the key `tool`"),
        ("cases: [{tool: t}]", "1:9: error: found a mapping without it, expected the key `verdict`"),
        ("cases: [{tool: t, verdict: alow}]", "did you mean `allow`?"),
        ("cases: [{tool: t, verdict: deny, reason: HOST}]", "1:42: error: found `HOST`, expected"),
        ("cases: [{tool: t, verdict: deny, reason: ALLOWED}]", "1:42: error: found `ALLOWED`, expected"),
        (
            "cases: [{tool: t, verdict: ask, reason: FROZEN}]",
            "1:33: error: found `reason` with the verdict ask, expected",
        ),
        ("cases: [{tool: t, verdict: allow, use: 'fs:read:*'}]", "without a wildcard"),
        ("cases: [{tool: t, verdict: allow, use: 'fs:read:~/*'}]", "without a wildcard"),
        ("cases: [{tool: t, verdict: allow, args: [a]}]", "1:41: error: found a list, expected a mapping"),
        ("cases: [{tool: t, verdict: allow, arg: {}}]", "did you mean `args`?"),
        ("cases: {}", "1:8: error: found a mapping, expected a list"),
        ("cases: []\npolicy: 7", "2:9: error: found a number `7`, expected the path of a manifest"),
        ("cases: []\nlicet: 2", "2:1: error: found format 2, expected format 1"),
        ("case: []", "1:1: error: found another file, expected a test file"),
        ("cases: [", "1:9: error: found"),
    ],
)
def test_every_mistake_has_its_place(tmp_path: Path, text: str, problem: str) -> None:
    policy(tmp_path)
    problems: list[Problem] = []
    assert read_case_file(written(tmp_path, text), problems) is None
    assert [problem in str(one) for one in problems] == [True]


def test_a_file_that_is_no_test_file_is_not_quoted(tmp_path: Path) -> None:
    problems: list[Problem] = []
    assert read_case_file(written(tmp_path, "token: 'hunter2", "secrets.yaml"), problems) is None
    assert "hunter2" not in str(problems[0])


@pytest.mark.parametrize(
    ("files", "test_file", "stated", "about"),
    [
        (["licet.yaml"], ".licet/tests/a.yaml", "", "licet.yaml"),
        (["licet.yaml", ".licet/licet.yaml"], ".licet/tests/a.yaml", "", ".licet/licet.yaml"),
        (["licet.yaml", "other.yaml"], ".licet/tests/a.yaml", "../../other.yaml", "other.yaml"),
        (["other.yaml"], "checks/a.yaml", "../other.yaml", "other.yaml"),
        (["licet.yaml"], "tests/a.yaml", "", None),
        ([], ".licet/tests/a.yaml", "", None),
    ],
)
def test_a_file_is_about_the_policy_that_it_names_or_that_of_its_project(
    tmp_path: Path, files: list[str], test_file: str, stated: str, about: str | None
) -> None:
    for name in files:
        policy(tmp_path, name)
    text = f"policy: {stated}\ncases: []\n" if stated else "cases: []\n"
    problems: list[Problem] = []
    read = read_case_file(written(tmp_path, text, test_file), problems)
    assert (read and read.policy) == (about and tmp_path / about)
    assert ["found no `policy`" in str(one) for one in problems] == ([] if about else [True])


def test_the_test_files_of_a_policy_are_in_the_directory_of_its_project(tmp_path: Path) -> None:
    for name in (
        ".licet/tests/b.yml",
        ".licet/tests/a.yaml",
        ".licet/tests/c.txt",
        ".licet/tests/tests.schema.json",
        ".licet/d.yaml",
        "tests/e.yaml",
    ):
        written(tmp_path, GOOD, name)
    names = ["a.yaml", "b.yml"]
    for one in (tmp_path / "licet.yaml", tmp_path / ".licet" / "licet.yaml", tmp_path / "research.yaml"):
        assert [path.name for path in case_files(one)] == names
    assert case_files(tmp_path / "elsewhere" / "licet.yaml") == ()


def test_a_test_file_is_told_from_a_policy_by_its_key(tmp_path: Path) -> None:
    assert is_case_file(written(tmp_path, GOOD))
    assert not is_case_file(policy(tmp_path))
    assert not is_case_file(tmp_path / "missing.yaml")


@pytest.mark.parametrize(
    ("document", "valid"),
    [
        ({"cases": [{"tool": "t", "verdict": "deny", "reason": "FROZEN", "args": {"a": [1]}}]}, True),
        ({"cases": [{"tool": "t", "verdict": "no"}]}, False),
        ({"policy": "../a.yaml"}, False),
    ],
)
def test_the_schema_for_editors_says_the_same(document: Any, valid: bool) -> None:
    assert jsonschema_rs.is_valid(json_schema(CASES, "licet tests", "x"), document) == valid
