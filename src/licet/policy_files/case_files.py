"""Reads test files: the cases that a policy must decide as they say.

They are the YAML and JSON files in `.licet/tests`. A file elsewhere must name its policy.
"""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

from msgspec import Struct

from licet.core.decision.request import Reason
from licet.core.review.examples import Case
from licet.core.values import Origin, Problem
from licet.policy_files.load import read_bytes
from licet.policy_files.manifest_reader import NewerFormat, refuse_newer
from licet.policy_files.nodes import Mapping, Node, read_nodes
from licet.policy_files.policy_paths import POLICY_DIRECTORY, SUFFIXES, WORKSPACE_FILE, policy_root
from licet.policy_files.schema import FORMAT_FIELDS, NAME, USE
from licet.policy_files.shapes import AnyJson, Field, ListOf, MappingOf, OneOf, Record, TextShape, check
from licet.policy_files.workspace_reader import Value, plain

TESTS = "tests"  # the directory of test files, below `.licet`
_EXPECTED = "a test file: `cases`, each with `tool` and `verdict`"
_VERDICTS = ("allow", "deny", "ask")
_REASONS = tuple(reason for reason in get_args(Reason) if reason != "ALLOWED")

_ARGUMENT = TextShape(expected="the name of an argument")
CASE = Record(
    {
        "name": Field(TextShape(expected="a sentence about the case")),
        "tool": Field(NAME, required=True),
        "use": Field(USE),
        "args": Field(MappingOf(_ARGUMENT, AnyJson()), description="the arguments of a call, checked by the policy"),
        "verdict": Field(OneOf(_VERDICTS), required=True),
        "reason": Field(OneOf(_REASONS), description="the reason code that a denied case must have"),
    }
)
CASES = Record(
    {
        "policy": Field(
            TextShape(expected="the path of a manifest, from the directory of this file"),
            description="the manifest that the cases are about; in `.licet/tests`, that of the project if left out",
        ),
        "cases": Field(ListOf(CASE), required=True, description="calls and uses, each with the verdict it must get"),
        **FORMAT_FIELDS,
    }
)
DESCRIPTION = "A licet test file: cases that a policy must decide as they say."


class CaseFile(Struct, frozen=True):
    """A test file. `policy` is the path of the manifest that its cases are about."""

    policy: Path
    cases: tuple[Case, ...]


def is_case_file(path: Path) -> bool:
    """Whether a file has the key `cases` at its top level, which no policy file has."""
    data = read_bytes(path, _EXPECTED, [])
    return data is not None and _has_cases(read_nodes(data, str(path))[0])


def read_case_file(path: Path, problems: list[Problem]) -> CaseFile | None:
    """Read a test file; None, and at least one problem, if anything in it is wrong."""
    found: list[Problem] = []
    if (data := read_bytes(path, _EXPECTED, problems)) is None:
        return None
    node, syntax = read_nodes(data, str(path))
    try:
        refuse_newer(node)
    except NewerFormat as newer:
        problems.append(newer.problem)
        return None
    if node is None or not _has_cases(node):
        # Outside `.licet/tests` it may be any file, also one with secrets: nothing of it is quoted.
        other = Problem(Origin(str(path), 1, 1), "another file", _EXPECTED)
        problems.append(syntax[0] if syntax and _in_tests(path) else other)
        return None
    found += syntax
    content = check(CASES, node, found)
    policy = None if content is None else _policy(path, content, found)
    cases = () if content is None else tuple(_cases(content, found))
    problems += found
    return None if found or policy is None else CaseFile(policy, cases)


def case_files(policy: Path) -> tuple[Path, ...]:
    """The test files of the policy's project, sorted by name."""
    folder = policy_root(policy) / POLICY_DIRECTORY / TESTS
    try:
        found = sorted(one for one in folder.iterdir() if one.suffix in SUFFIXES and one.is_file())
    except OSError:
        return ()
    return tuple(one for one in found if not one.name.endswith(".schema.json"))  # of `licet schema`


def policy_of(root: Path) -> Path | None:
    """The policy file of a project: `.licet/licet.yaml`, or else `licet.yaml`; None if there is neither."""
    places = (root / POLICY_DIRECTORY / WORKSPACE_FILE, root / WORKSPACE_FILE)
    return next(filter(os.path.lexists, places), None)


def _has_cases(node: Node | None) -> bool:
    return isinstance(node, Mapping) and "cases" in node.entries


def _in_tests(path: Path) -> bool:
    folder = path.absolute().parent
    return folder.name == TESTS and folder.parent.name == POLICY_DIRECTORY


def _policy(path: Path, content: Value, problems: list[Problem]) -> Path | None:
    if (named := content.value.get("policy")) is not None:
        return Path(os.path.normpath(path.parent / named.value))
    if "policy" in content.value:  # a value that was refused
        return None
    root = Path(os.path.normpath(path.parent / ".." / ".."))
    found = policy_of(root) if _in_tests(path) else None
    if found is None:
        hint = "name it, from the directory of this file: `policy: ../research.yaml`"
        problems.append(Problem(content.origin, "no `policy`", "the manifest that the cases are about", hint))
    return found


def _cases(content: Value, problems: list[Problem]) -> Iterator[Case]:
    for item in plain(content.value, "cases", ()):
        given = item.value
        args = given.get("args")
        verdict, reason = plain(given, "verdict", ""), given.get("reason")
        if reason is not None and verdict != "deny":
            found, expected = (
                f"`reason` with the verdict {verdict}",
                "`verdict: deny`, since only a refusal has a reason",
            )
            problems.append(Problem(reason.key_origin or reason.origin, found, expected))
        yield Case(
            item.origin,
            plain(given, "tool", ""),
            (verdict,),
            str(plain(given, "use", "")),
            None if args is None else {name: located.value for name, located in args.value.items()},
            plain(given, "reason", ""),
            plain(given, "name", ""),
        )
