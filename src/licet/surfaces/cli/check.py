"""`licet check`: every problem of every file in one run, for people, for programs (`--json`) and for code review
(`--sarif`).
"""

from pathlib import Path

import click

from licet.assemble import Places
from licet.assemble.never_writable import closed_to_grants
from licet.core.foreseen import closed_address_problems, unpinned_problems
from licet.core.origin import Problem
from licet.core.wide import native_problems, unpermitted_problems
from licet.surfaces.cli.found import named_or_found
from licet.surfaces.cli.options import FILE, Setting, json_option, setting_options
from licet.surfaces.cli.policy import (
    argument_name_problems,
    degraded_problems,
    idle_problems,
    misfit_problems,
    read,
    undeclared_problems,
)
from licet.surfaces.cli.show import counted, first_problems, problem_document, show, show_json, show_problems


@click.command(name="check")
@click.argument("files", metavar="[FILE]...", type=FILE, nargs=-1)
@setting_options
@json_option
@click.option("--sarif", is_flag=True, help="Print SARIF 2.1.0, for code review and editors.")
@click.pass_context
def command(
    ctx: click.Context,
    files: tuple[Path, ...],
    setting: Setting,
    as_json: bool,
    sarif: bool,
) -> None:
    """Find everything that is wrong in policy files, in one run.

    FILE is a manifest, a workspace or a personality, in YAML or JSON; if left out, the policy in this directory:
    .licet/licet.yaml, or licet.yaml. Each problem is one line: where it is, what was found, what was expected, and
    often the way out. Tools are read from their source, never imported; one that asks for more than its agent is
    allowed is a problem too.

    \b
    Exit codes:
      0  fine; warnings do not count
      1  at least one error, a file that cannot be read included
      2  a command line that makes no sense
    """
    if as_json and sarif:
        raise click.UsageError("--json and --sarif exclude each other")
    files = files or (named_or_found(None, "FILE...").path,)
    problems = sorted({problem for file in files for problem in _problems(file, setting)}, key=_order)
    errors = sum(problem.severity == "error" for problem in problems)
    warnings = len(problems) - errors
    first, rest = first_problems(problems)
    if as_json:
        names = [str(file) for file in files]
        listed = [problem_document(problem) for problem in first]
        left_out = len(problems) - len(first)
        show_json(
            {"files": names, "errors": errors, "warnings": warnings, "problems": listed, "problems_left_out": left_out}
        )
    elif sarif:
        from licet.surfaces.cli.sarif import sarif_log

        show_json(sarif_log(first))
    else:
        show_problems(first)
    if rest and not as_json:
        show(rest, err=True)
    if not (as_json or sarif):
        show(_summary(len(files), errors, warnings), err=True)
    ctx.exit(1 if errors else 0)


def _problems(file: Path, setting: Setting) -> list[Problem]:
    policy = read(file, setting)
    found = list(policy.problems)
    if policy.manifest is not None:
        closed = closed_to_grants(policy.manifest, Places.here(setting.workdir).workdir)
        found += misfit_problems(closed)
        found += argument_name_problems(policy.manifest)
        found += idle_problems(policy.manifest)
        found += degraded_problems(policy.manifest)
        found += undeclared_problems(policy.manifest)
        found += native_problems(policy.manifest)
        found += unpermitted_problems(policy.manifest)
        found += unpinned_problems(policy.manifest)
        found += closed_address_problems(policy.manifest)
    return found


def _order(problem: Problem) -> tuple[str, int, int, str]:
    return problem.origin.file, problem.origin.line, problem.origin.column, str(problem)


def _summary(files: int, errors: int, warnings: int) -> str:
    found = [counted(number, noun) for number, noun in ((errors, "error"), (warnings, "warning")) if number]
    return ", ".join([counted(files, "file"), *found]) if found else f"{counted(files, 'file')}, fine"
