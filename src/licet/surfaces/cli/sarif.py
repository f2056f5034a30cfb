"""Problems as a SARIF 2.1.0 log, the format that code review tools and editors read."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any
from urllib.parse import quote

from licet import __version__
from licet.core.origin import Problem

SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
RULE = {
    "id": "policy",
    "name": "PolicyProblem",
    "shortDescription": {"text": "A policy file is wrong, or a tool does not fit the manifest that admits it."},
    "defaultConfiguration": {"level": "error"},
}


def sarif_log(problems: Iterable[Problem]) -> dict[str, Any]:
    """A SARIF log with one result for each problem."""
    driver = {"name": "licet", "version": __version__, "semanticVersion": __version__, "rules": [RULE]}
    run = {
        "tool": {"driver": driver},
        "columnKind": "unicodeCodePoints",
        "results": [_result(problem) for problem in problems],
    }
    return {"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}


def _result(problem: Problem) -> dict[str, Any]:
    place = {
        "artifactLocation": {"uri": _uri(problem.origin.file)},
        "region": {"startLine": problem.origin.line, "startColumn": problem.origin.column},
    }
    text = f"found {problem.found}, expected {problem.expected}" + (f"; {problem.hint}" if problem.hint else "")
    return {
        "ruleId": RULE["id"],
        "ruleIndex": 0,
        "level": problem.severity,
        "message": {"text": text},
        "locations": [{"physicalLocation": place}],
    }


def _uri(file: str) -> str:
    path = Path(file)
    return path.as_uri() if path.is_absolute() else quote(path.as_posix())
