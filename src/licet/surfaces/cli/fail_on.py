"""The option `--fail-on`: which finding of a review ends a command with 1."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import click

from licet.core.review.changes import Changes
from licet.core.review.risk import RISK_LEVELS, Risk, at_least
from licet.core.review.surface import Surface
from licet.surfaces.cli.output import counted, show

_RISKS = tuple(f"risk:{level}" for level in RISK_LEVELS[:-1])
_MOST_LISTED = 10  # reasons for a failure


def fail_on_option(*words: str, default: str, text: str) -> Callable[[Any], Any]:
    """Add `--fail-on` with these words and `risk:LEVEL`."""
    names = click.Choice((*words, *_RISKS))
    return click.option("--fail-on", type=names, default=default, show_default=True, metavar="WHAT", help=text)


def failing_changes(fail_on: str, changes: Mapping[str, Changes]) -> Iterator[str]:
    """What makes changes a failure, for each agent: something grew, anything changed, or something of a risk grew."""
    for key, each in changes.items():
        if fail_on == "grown" and each.grown:
            yield f"{key}: {len(each.grown)} grown"
        elif fail_on == "changed" and each:
            yield f"{key}: {counted(len(each.grown) + len(each.shrunk) + len(each.changed), 'difference')}"
        for change in each.grown if fail_on.startswith("risk:") else ():
            if _counts(fail_on, change.risk):
                subject = "" if change.tool is None or f"`{change.tool}`" in change.text else f"{change.tool}: "
                yield f"{key}: {subject}{change.text} ({change.risk.level} risk: {change.risk.label})"


def failing_tools(fail_on: str, surfaces: Mapping[str, Surface]) -> Iterator[str]:
    """The tools, commands and servers of each agent whose risk makes a surface a failure."""
    for key, shown in surfaces.items():
        tools = [*shown.riskiest_first, *filter(None, (shown.commands,))]
        failing = [(tool.name, tool.risk) for tool in tools if _counts(fail_on, tool.risk)]
        if not failing and _counts(fail_on, shown.risk):
            failing = [("a server", shown.risk)]
        yield from (f"{key}: {name} ({risk.level} risk: {risk.label})" for name, risk in failing)


def exit_code(fail_on: str, failing: Iterable[str], *, silent: bool = False) -> int:
    """The exit code of a review. What made it fail goes to the standard error, unless the output has it already."""
    found = list(dict.fromkeys(failing))
    for line in () if silent else found[:_MOST_LISTED]:
        show(f"licet: --fail-on {fail_on}: {line}", err=True, colour="red")
    if found[_MOST_LISTED:] and not silent:
        show(f"licet: --fail-on {fail_on}: and {len(found) - _MOST_LISTED} more", err=True, colour="red")
    return 1 if found else 0


def _counts(fail_on: str, risk: Risk) -> bool:
    level = fail_on.partition(":")[2]
    return bool(level) and at_least(risk, level)
