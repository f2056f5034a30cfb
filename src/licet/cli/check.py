"""`licet check`: every problem of every file in one run, as text, JSON, or a SARIF 2.1.0 log for code review.

Problems as a SARIF 2.1.0 log, for code review and editors.
"""

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

import click
from msgspec.structs import replace

from licet import __version__
from licet.assemble import Places
from licet.assemble.never_writable import closed_to_grants, has_servers
from licet.assemble.policy_problems import (
    argument_name_problems,
    degraded_problems,
    idle_problems,
    misfit_problems,
    undeclared_problems,
)
from licet.cli.discovery import named_or_found
from licet.cli.options import FILE, Setting, organisations_above, read, report_options, setting_options
from licet.cli.output import (
    counted,
    first_problems,
    organisation_document,
    organisation_line,
    print_report,
    show_annotations,
    show_json,
    show_lines,
    show_problems,
    wants_json,
)
from licet.core.decision.argument_rules import untied_problems
from licet.core.decision.foreseen import (
    closed_address_problems,
    server_delete_problems,
    server_grant_problems,
    session_budget_problems,
    standing_problems,
    unpinned_problems,
)
from licet.core.decision.placing import handed_over, placing_problems, word_notes
from licet.core.policy.terms import APPROVED_IN_REVIEW
from licet.core.review.flow_warnings import flow_warnings
from licet.core.review.mixed_scripts import mixed_script_problems
from licet.core.review.risk import native_problems, unpermitted_problems
from licet.core.values import Origin, Problem
from licet.lint.judge import RULES, Finding
from licet.packages.locked_tools import pinned_here
from licet.policy_files.policy_paths import LOCK_FILE, policy_root


@click.command(name="check")
@click.argument("files", metavar="[FILE]...", type=FILE, nargs=-1)
@setting_options
@click.option("--locked", is_flag=True, help="Fail if there is no licet.lock, or for a difference as above.")
@report_options
@click.pass_context
def command(
    ctx: click.Context,
    files: tuple[Path, ...],
    setting: Setting,
    locked: bool,
    sarif: bool,
    github: bool,
) -> None:
    """Find every problem in policy files, in one run.

    FILE is a manifest, a workspace or a personality, in YAML or JSON; if left out, the policy in this directory:
    .licet/licet.yaml, or licet.yaml. Each problem is one line: its place, what was found, what was expected,
    and often how to fix it. Tools are read from source and never imported. A tool that declares more than its agent
    is allowed is a problem too, and so is an error that `licet lint` finds in its source; one about a declared use
    that fails at the level of the tool is a warning here, since the policy is right. With --locked, so is a
    difference from the licet.lock next to the file: of a manifest, a tool, its source, the command of a server, what
    that command asks for, or the code of a server. No server is started.

    \b
    Exit codes:
      0  no errors; there may be warnings
      1  at least one error, or a file that cannot be read
      2  bad command line
    """
    files = files or (named_or_found(None, "FILE...").path,)
    if locked and (setting.workspace or setting.personality):
        raise click.UsageError("--locked is about the policy alone, without --workspace and --personality")
    problems = sorted({problem for file in files for problem in problems_of(file, setting, locked=locked)}, key=_order)
    errors = sum(problem.severity == "error" for problem in problems)
    notes = sum(problem.severity == "note" for problem in problems)
    warnings = len(problems) - errors - notes
    first, rest = first_problems(problems)
    above = organisations_above(setting.organisation) if not errors else ()
    found = {"files": files, "errors": errors, "warnings": warnings, "problems": first}
    found = {**found, "problems_left_out": len(problems) - len(first), **organisation_document(above)}
    under = [f"checked under {organisation_line(above)}"] if above else []
    summary = [_summary(len(files), errors, warnings), *under]
    print_problems(found, first, rest, summary, sarif=sarif, github=github)
    ctx.exit(1 if errors else 0)


def problems_of(file: Path, setting: Setting, *, locked: bool = False) -> list[Problem]:
    """Everything that is wrong with a policy, or worth a look; `locked` compares it with its lock, too."""
    policy = read(file, setting)
    found = list(policy.problems)
    if locked:
        from licet.assemble.expected_lock import lock_problems  # loads what starts servers

        found = [problem for problem in found if os.path.basename(problem.origin.file) != LOCK_FILE]
        found += lock_problems(file, Places.here(setting.workdir or policy_root(file)))
    if policy.manifest is not None:
        places = Places.here(setting.workdir)
        closed = closed_to_grants(policy.manifest, places.workdir)
        found += misfit_problems(closed)
        found += argument_name_problems(policy.manifest)
        found += untied_problems(policy.manifest)
        found += idle_problems(policy.manifest)
        found += degraded_problems(policy.manifest)
        found += undeclared_problems(pinned_here(policy.manifest))
        found += native_problems(policy.manifest)
        found += unpermitted_problems(policy.manifest)
        found += unpinned_problems(policy.manifest)
        # About this machine. A policy and its lock are also checked on others, where nobody gives approvals.
        found += standing_problems(policy.manifest) if not locked else ()
        found += closed_address_problems(policy.manifest)
        found += mixed_script_problems(policy.manifest)
        found += server_delete_problems(replace(policy.manifest, standing=APPROVED_IN_REVIEW))
        found += session_budget_problems(policy.manifest)
        found += server_grant_problems(policy.manifest, places.workdir, places.home)
        found += placing_problems(policy.manifest, places.workdir, places.home)
        found += handed_over(policy.manifest)
        found += word_notes(policy.manifest)
        found += flow_warnings(policy.manifest)
        if has_servers(policy.manifest):
            from licet.assemble.server_process import conflict_problems  # loads what reads commands

            found += conflict_problems(policy.manifest, places.workdir, places.home)
        if policy.manifest.sources:
            from licet.lint.linter import source_problems  # not needed by policies without such tools

            found += source_problems(policy.manifest)
    return found


def _order(problem: Problem) -> tuple[str, int, int, str]:
    return problem.origin.file, problem.origin.line, problem.origin.column, str(problem)


def _summary(files: int, errors: int, warnings: int) -> str:
    found = [counted(number, noun) for number, noun in ((errors, "error"), (warnings, "warning")) if number]
    return ", ".join([counted(files, "file"), *found]) if found else f"{counted(files, 'file')}, fine"


SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
RULE = {
    "id": "policy",
    "name": "PolicyProblem",
    "shortDescription": {"text": "A policy file is wrong, or a tool does not fit the manifest that admits it."},
    "defaultConfiguration": {"level": "error"},
}


def print_problems(
    found: Mapping[str, object],
    first: Sequence[Problem],
    rest: str,
    summary: Sequence[str],
    *,
    sarif: bool,
    github: bool,
    first_rule: dict[str, Any] | None = RULE,
) -> None:
    """Print problems in the form that was asked for: what was `found` as JSON, SARIF, annotations, or text."""
    if sarif:
        show_json(sarif_log(first, first_rule))
    else:
        print_report(found, lambda _: (show_annotations if github else show_problems)(first))
    if not wants_json():
        show_lines([*filter(None, [rest]), *(() if sarif else summary)], err=True)


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
