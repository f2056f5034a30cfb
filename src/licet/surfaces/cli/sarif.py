"""Problems as a SARIF 2.1.0 log, for code review and editors."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any
from urllib.parse import quote

from licet import __version__
from licet.core.origin import Origin, Problem
from licet.surfaces.lint.findings import RULES, Finding

SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
RULE = {
    "id": "policy",
    "name": "PolicyProblem",
    "shortDescription": {"text": "A policy file is wrong, or a tool does not fit the manifest that admits it."},
    "defaultConfiguration": {"level": "error"},
}


def sarif_log(problems: Iterable[Problem], first_rule: dict[str, Any] | None = RULE) -> dict[str, Any]:
    """A SARIF log with one result for each problem, and the rules that the results have."""
    problems = list(problems)
    codes = sorted({problem.code for problem in problems if isinstance(problem, Finding)})
    rules = [*([first_rule] if first_rule else []), *map(_rule, codes)]
    places = {rule["id"]: number for number, rule in enumerate(rules)}
    driver = {"name": "licet", "version": __version__, "semanticVersion": __version__, "rules": rules}
    run = {
        "tool": {"driver": driver},
        "columnKind": "unicodeCodePoints",
        "results": [_result(problem, places) for problem in problems],
    }
    return {"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}


def _rule(code: str) -> dict[str, Any]:
    rule = RULES[code]
    words = "".join(word.capitalize() for word in rule.name.split("-"))
    return {"id": code, "name": words, "shortDescription": {"text": rule.about}}


def _result(problem: Problem, places: dict[str, int]) -> dict[str, Any]:
    text = f"found {problem.found}, expected {problem.expected}" + (f"; {problem.hint}" if problem.hint else "")
    rule = problem.code if isinstance(problem, Finding) else "policy"
    result: dict[str, Any] = {
        "ruleId": rule,
        "ruleIndex": places[rule],
        "level": problem.severity,
        "message": {"text": text + (problem.way_text if isinstance(problem, Finding) else "")},
        "locations": [{"physicalLocation": _location(problem.origin)}],
    }
    if isinstance(problem, Finding) and (calls := [hop for hop in problem.way if hop.called is not None]):
        result["relatedLocations"] = [
            {
                "id": number,
                "physicalLocation": _location(hop.called),
                "message": {"text": f"enters {hop.name}"},
            }
            for number, hop in enumerate(calls, 1)
            if hop.called is not None
        ]
    return result


def _location(origin: Origin) -> dict[str, Any]:
    return {
        "artifactLocation": {"uri": _uri(origin.file)},
        "region": {"startLine": origin.line, "startColumn": origin.column},
    }


def _uri(file: str) -> str:
    path = Path(file)
    return path.as_uri() if path.is_absolute() else quote(path.as_posix())
