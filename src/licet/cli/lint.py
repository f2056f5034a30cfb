"""`licet lint`: what the source of tools and their helpers touches, compared with what the tools declare."""

import os
from collections.abc import Sequence
from pathlib import Path

import click

from licet.cli.check import print_problems
from licet.cli.options import FILE, Setting, read_sound, report_options, setting_options
from licet.cli.output import counted, first_problems, problem_document
from licet.core.values import Problem
from licet.lint.judge import Finding
from licet.lint.linter import Lint, Report, tools_by_file
from licet.policy_files.policy_paths import shown_path
from licet.source.source_files import Project, python_files

_POLICIES = (".yaml", ".yml", ".json")


@click.command(name="lint")
@click.argument("paths", metavar="[PATH]...", type=FILE, nargs=-1)
@setting_options
@click.option("--all", "everything", is_flag=True, help="Also list what code does that belongs to no tool.")
@report_options
@click.pass_context
def command(
    ctx: click.Context,
    paths: tuple[Path, ...],
    setting: Setting,
    everything: bool,
    sarif: bool,
    github: bool,
) -> None:
    """Compare what the source of tools does with what they declare.

    PATH is a Python file, a directory, or a policy file, whose tools are then judged at the level that it gives them;
    if left out, the current directory. Each tool is followed into the functions of the project that it calls.
    Nothing is imported or run. `# licet: ignore[CODE] reason` suppresses a finding on its line.

    \b
    Exit codes:
      0  no errors; there may be warnings and notes
      1  at least one error, or a file that cannot be read
      2  bad command line
    """
    report = _report(paths or (Path(),), setting, everything=everything)
    first, rest = first_problems(report.findings)
    found = _document(report, first)
    print_problems(found, first, rest, [_summary(report)], sarif=sarif, github=github, first_rule=None)
    ctx.exit(1 if report.count("error") else 0)


def _report(paths: tuple[Path, ...], setting: Setting, *, everything: bool) -> Report:
    for path in paths:
        if not path.exists():
            raise click.UsageError(f"there is no {path}")
    policies = [path for path in paths if path.suffix in _POLICIES]
    sources = [str(path) for path in paths if path not in policies]
    lint = Lint(Project(shown_path, [os.getcwd(), os.path.join(os.getcwd(), "src")]))
    for path in policies:
        for file, tools in tools_by_file(read_sound(path, setting)).items():
            lint.add_tools(file, tools)
    for file in python_files(sources):
        lint.add_file(file, everything=everything)
    return lint.report()


def _summary(report: Report) -> str:
    counts = [counted(report.count(kind), kind) for kind in ("error", "warning", "note") if report.count(kind)]
    what = f"{counted(len(report.tools), 'tool')} in {counted(report.files, 'file')}"
    more = [f"{report.suppressed} suppressed"] if report.suppressed else []
    return ", ".join([what, *(counts or ["fine"]), *more])


def _document(report: Report, first: Sequence[Problem]) -> dict[str, object]:
    return {
        "files": report.files,
        "tools": [tool.spec.name for tool in report.tools],
        "errors": report.count("error"),
        "warnings": report.count("warning"),
        "notes": report.count("note"),
        "suppressed": report.suppressed,
        "findings": [
            {
                **problem_document(finding),
                "code": finding.code,
                "tools": finding.tools,
                "capability": finding.rule or None,
                "way": [{"name": hop.name, "called": hop.called} for hop in finding.way],
            }
            for finding in first
            if isinstance(finding, Finding)
        ],
        "findings_left_out": len(report.findings) - len(first),
    }
