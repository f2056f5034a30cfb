"""The option `--fail-on`: which finding of a review ends a command with 1."""

from collections.abc import Callable, Iterable
from typing import Any

import click

from licet.core.review.changes import Changes
from licet.core.review.risk import RISK_LEVELS, Risk, at_least

_RISKS = tuple(f"risk:{level}" for level in RISK_LEVELS[:-1])


def fail_on_option(*words: str, default: str, text: str) -> Callable[[Any], Any]:
    """Add `--fail-on` with these words and `risk:LEVEL`."""
    names = click.Choice((*words, *_RISKS))
    return click.option("--fail-on", type=names, default=default, show_default=True, metavar="WHAT", help=text)


def changes_fail(fail_on: str, changes: Iterable[Changes]) -> bool:
    """Whether changes are a failure: something grew, anything changed, or something of a risk grew."""
    every = list(changes)
    if fail_on.startswith("risk:"):
        return risks_fail(fail_on, (change.risk for one in every for change in one.grown))
    return {"grown": any(one.grown for one in every), "changed": any(every), "none": False}[fail_on]


def risks_fail(fail_on: str, risks: Iterable[Risk]) -> bool:
    """Whether one of these risks is of the level of `risk:LEVEL` or above; never with another word."""
    level = fail_on.partition(":")[2]
    return bool(level) and any(at_least(risk, level) for risk in risks)
