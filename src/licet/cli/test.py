"""`licet test`: run the examples of manifests and the cases of test files, and list rules that none of them uses."""

from collections.abc import Sequence
from pathlib import Path

import click

from licet.assemble import Places
from licet.assemble.policy_tests import Report, run_examples
from licet.cli.discovery import find_policy, nothing_here
from licet.cli.options import FILE, Setting, json_option, setting_options
from licet.cli.output import counted, first_problems, place_document, print_report, show, show_lines, show_problems
from licet.core.review.examples import Outcome

_NOTHING = "there is nothing to run: write `examples:` in the manifest, or `cases:` in .licet/tests/NAME.yaml"
_RULELESS = "there is no rule to cover: the policy allows nothing and denies nothing by a rule of its own"


@click.command(name="test")
@click.argument("paths", metavar="[MANIFEST|DIR|FILE]...", type=FILE, nargs=-1)
@setting_options
@click.option("--coverage", is_flag=True, help="List the rules that no example exercises, and the percentage covered.")
@click.option(
    "--fail-under",
    metavar="PERCENT",
    type=click.FloatRange(0, 100),
    help="Fail if fewer rules are covered; means --coverage too.",
)
@json_option
@click.pass_context
def command(
    ctx: click.Context,
    paths: tuple[Path, ...],
    setting: Setting,
    coverage: bool,
    fail_under: float | None,
) -> None:
    """Check that a policy decides its examples as they say.

    Runs the `match:` and `no_match:` examples of a manifest, and the cases of the test files in .licet/tests. A path
    is a manifest, a test file, or the directory of a project; if left out, the policy in this directory. Tools are
    read from source, and no code of theirs is imported or run.

    Each failure is one line: the place of the example, the verdict that was found, and the rules that decided.
    `licet explain` shows what would change it.

    \b
    Exit codes:
      0  every example passed
      1  an example failed or cannot be decided, a file has errors, or too few rules are covered
      2  bad command line
    """
    if not paths:
        if find_policy() is None:
            raise click.UsageError(f"Missing argument 'MANIFEST': {nothing_here()}.", ctx)
        paths = (Path(),)
    places = Places.here(setting.workdir)
    report = run_examples(paths, places, setting.workspace, setting.personality, setting.organisation)
    nothing = not report.outcomes and not report.problems
    coverage = coverage or fail_under is not None
    ruleless = coverage and not report.rules and not nothing and not report.problems
    uncovered = fail_under is not None and report.covered < fail_under and not ruleless
    wrong = [text for text, is_so in ((_NOTHING, nothing), (_RULELESS, ruleless)) if is_so]
    wrong += [f"expected at least {fail_under:g} % of the rules to be covered"] if uncovered else []
    print_report(_document(report, coverage=coverage), lambda _: _show(report, wrong, coverage=coverage))
    ctx.exit(1 if report.failed or report.problems or nothing or ruleless or uncovered else 0)


def _show(report: Report, wrong: Sequence[str], *, coverage: bool) -> None:
    first, rest = first_problems(report.problems)
    show_problems(first)
    if rest:
        show(rest, err=True)
    for outcome in report.failed:
        show(str(outcome), colour="red")
    if coverage:
        for rule in sorted(report.rules - report.exercised):
            show(str(rule), colour="yellow")
    passed, failed = len(report.outcomes) - len(report.failed), len(report.failed)
    errors = [counted(len(report.problems), "error")] if report.problems else []
    show(", ".join([f"{passed} passed, {failed} failed", *errors]), err=True)
    if coverage and report.rules:
        covered = f"{len(report.exercised)} of {counted(len(report.rules), 'rule')} covered"
        show(f"{covered}, {_percentage(report):g} %", err=True)
    show_lines(wrong, err=True, colour="red")


def _percentage(report: Report) -> float:
    return int(report.covered * 10) / 10  # rounded down, so that only 100 is shown as 100


def _document(report: Report, *, coverage: bool) -> dict[str, object]:
    first, _ = first_problems(report.problems)
    return {
        "passed": len(report.outcomes) - len(report.failed),
        "failed": len(report.failed),
        "errors": len(report.problems),
        "cases": [_case(outcome) for outcome in report.outcomes],
        "problems": first,
        **({"coverage": _coverage(report)} if coverage else {}),
    }


def _coverage(report: Report) -> dict[str, object]:
    missing = sorted(report.rules - report.exercised)
    return {
        "rules": len(report.rules),
        "covered": len(report.exercised),
        "percent": _percentage(report),
        "missing": [{**place_document(rule.origin), "kind": rule.kind, "text": rule.text} for rule in missing],
    }


def _case(outcome: Outcome) -> dict[str, object]:
    case = outcome.case
    return {
        **place_document(case.origin),
        "name": case.name or None,
        "tool": case.tool,
        "use": case.use or None,
        "args": case.args,
        "expected": {"verdicts": list(case.verdicts), "reason": case.reason or None},
        "verdict": outcome.decision.verdict,
        "reason": outcome.reason or None,
        "passed": outcome.passed,
        "rules": [{"text": rule.text, "origin": rule.origin} for rule in outcome.rules],
        "message": str(outcome),
    }
