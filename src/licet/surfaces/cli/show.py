"""Text on a terminal and in a pipe: problems, JSON and colours, with everything invisible made visible."""

import os
import re
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, NoReturn

import click

from licet.assemble import Places
from licet.core.origin import Origin, Problem
from licet.core.scope import visible
from licet.core.validate import Misfit
from licet.surfaces.cli.json_text import json_text
from licet.values import dataclass

MOST_PROBLEMS = 1000  # that are shown of a run: more help nobody, and a hostile file could have a million


def show(text: str, *, err: bool = False, colour: str | None = None) -> None:
    """Print one line of text that may come from a file, in a colour where colours are wanted."""
    line = visible(text)
    click.echo(click.style(line, fg=colour) if colour and coloured(err=err) else line, err=err)


def shortened(workdir: Path | None) -> Callable[[str], str]:
    """A function that writes `${workdir}` and `~` again where their directories stand, for people; JSON keeps both."""
    places = Places.here(workdir)
    both = (("${workdir}", places.workdir), ("~", places.home))
    named = [(name, place) for name, place in both if place not in ("/", "")]

    def short(text: str) -> str:
        for name, place in named:
            text = re.sub(rf"(?<![\w.-]){re.escape(place)}(?![\w.-])", lambda _, name=name: name, text)  # type: ignore[misc]
        return text

    return short


def show_json(value: Any) -> None:
    """Print JSON, in ASCII: no character of a file can act on a terminal."""
    click.echo(json_text(value))


def fail(text: str, as_json: bool) -> NoReturn:
    """Say why a command cannot do what it was asked for, and end it with 1."""
    if as_json:
        show_json({"error": text})
    else:
        show(text, err=True, colour="red")
    click.get_current_context().exit(1)


def first_problems(problems: Sequence[Problem]) -> tuple[list[Problem], str]:
    """As many problems as are shown, errors before warnings, in their order; and what is said about the rest."""
    if len(problems) <= MOST_PROBLEMS:
        return list(problems), ""
    ranked = sorted(range(len(problems)), key=lambda place: (problems[place].severity == "warning", place))
    kept = [problems[place] for place in sorted(ranked[:MOST_PROBLEMS])]
    return kept, f"{len(problems) - MOST_PROBLEMS} more are not shown: mend these first"


def show_problems(problems: Iterable[Problem], *, err: bool = False) -> None:
    """Print problems one to a line, each with the place that editors and terminals can jump to."""
    for problem in problems:
        line = visible(str(problem))
        place = visible(problem.origin.full)
        if coloured(err=err) and line.startswith(place):
            severity = click.style(problem.severity, fg="red" if problem.severity == "error" else "yellow", bold=True)
            line = line.replace(f"{place}: {problem.severity}", f"{click.style(place, bold=True)}: {severity}", 1)
        click.echo(line, err=err)


def coloured(*, err: bool = False) -> bool:
    """Whether colours are wanted: only on a terminal, and not where `NO_COLOR` is set."""
    stream = sys.stderr if err else sys.stdout  # None if it is closed
    return (
        stream is not None and stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    )


@dataclass(frozen=True, slots=True)
class MisfitProblem(Problem):
    """A problem that is a misfit of a tool, and has it as data too."""

    misfit: Misfit | None = None


def problem_document(problem: Problem) -> dict[str, Any]:
    """A problem as plain data."""
    misfit = problem.misfit if isinstance(problem, MisfitProblem) else None
    return {
        **place_document(problem.origin),
        "severity": problem.severity,
        "found": problem.found,
        "expected": problem.expected,
        "hint": problem.hint or None,
        "message": str(problem),
        **({"misfit": misfit_document(misfit)} if misfit else {}),
    }


def misfit_document(misfit: Misfit) -> dict[str, str]:
    """A misfit as plain data."""
    return {key: getattr(misfit, key) for key in ("tool", "category", "capability", "message", "fix")}


def place_document(origin: Origin) -> dict[str, Any]:
    """A place as plain data."""
    return {"file": origin.file, "line": origin.line, "column": origin.column}


def counted(number: int, noun: str) -> str:
    """A number and its noun: `1 file`, `3 errors`."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
