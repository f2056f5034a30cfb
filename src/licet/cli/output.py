"""What commands print and write: problems, JSON, refusals, colours, and files that are replaced atomically.

Invisible and control characters are always escaped.
"""

import json
import os
import re
import stat
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any, NoReturn, Protocol, TypeVar, runtime_checkable

import click
from msgspec import UNSET, Struct

from licet.assemble import Places
from licet.assemble.policy_problems import MOST_PROBLEMS, MisfitProblem
from licet.core.algebra.scope import visible
from licet.core.decision.validate import Misfit
from licet.core.late_pattern import late_pattern
from licet.core.policy.manifest_fields import Organisation
from licet.core.values import Origin, Problem, milliseconds
from licet.own_files import create_file, replace_file

if TYPE_CHECKING:
    from licet.guard.result import Result

_Found = TypeVar("_Found")
_COLOUR = {"error": "red", "warning": "yellow", "note": "cyan"}
_SPENT = late_pattern(r"would exceed (max_\w+)")
_RANK = {"error": 0, "warning": 1, "note": 2}


def show(text: str, *, err: bool = False, colour: str | None = None) -> None:
    """Print one line, in a colour if the stream is a terminal."""
    line = visible(text)
    styled = bool(colour) and coloured(err=err)
    click.echo(click.style(line, fg=colour) if styled else line, err=err, color=styled or None)


def shortened(workdir: Path | None) -> Callable[[str], str]:
    """A function that replaces the working and home directory in a text by `${workdir}` and `~`."""
    places = Places.here(workdir)
    both = (("${workdir}", places.workdir), ("~", places.home))
    named = [(name, place) for name, place in both if place not in ("/", "")]

    def short(text: str) -> str:
        for name, place in named:
            text = re.sub(rf"(?<![\w.-]){re.escape(place)}(?![\w.-])", lambda _, name=name: name, text)  # type: ignore[misc]
        return text

    return short


JSON = "licet.json"  # in the `meta` of a click context, if `--json` was given


def wants_json() -> bool:
    """Whether this run prints JSON, and no text for people on the standard output."""
    context = click.get_current_context(silent=True)
    return context is not None and bool(context.meta.get(JSON))


def print_report(found: _Found, text: Callable[[_Found], object], *, err: bool = False) -> None:
    """Print what a command found: as JSON, or as `text` prints it for people.

    What it found is a Struct, whose fields are the JSON, or a mapping. See `plain` for the values in it.
    """
    if wants_json():
        sys.stdout.flush()  # what a program printed comes before the report about it
        show_json(found, err=err)
    else:
        text(found)


def show_json(value: object, *, err: bool = False) -> None:
    """Print JSON in ASCII, so that no text from a file can control a terminal."""
    click.echo(json.dumps(plain(value), indent=2), err=err)


def first_and_others(found: Iterable[Mapping[str, object]]) -> dict[str, object]:
    """The first of several reports as plain data, with the others in it. Most often there are none."""
    first, *others = found
    return {**first, **({"others": others} if others else {})}


@runtime_checkable
class _HasDocument(Protocol):
    def document(self) -> object: ...


def plain(value: object) -> object:
    """A value as plain data: a Struct by its fields without those that are `UNSET`, or as its `document` says."""
    match value:
        case None | bool() | int() | float() | str():
            return value
        case Mapping():
            return {str(key): plain(one) for key, one in value.items()}
        case Problem():
            return problem_document(value)
        case Origin():
            return place_document(value)
        case PurePath():
            return str(value)
        case _HasDocument():
            return plain(value.document())
        case Struct():
            fields = {name: getattr(value, name) for name in value.__struct_fields__}
            return {name: plain(one) for name, one in fields.items() if one is not UNSET}
        case Iterable():
            return list(map(plain, value))
    raise TypeError(f"a report cannot have a {type(value).__name__}")


def fail(text: str, more: Iterable[str] = ()) -> NoReturn:
    """Print why a command failed, with more lines below it, and exit with 1."""
    lines = [text, *more]
    print_report({"error": "\n".join(lines)}, lambda _: show_lines(lines, err=True, colour="red"))
    click.get_current_context().exit(1)


def show_lines(lines: Iterable[str], *, err: bool = False, colour: str | None = None) -> None:
    """Print several lines."""
    for line in lines:
        show(line, err=err, colour=colour)


def show_lock_changes(changes: Sequence[str], most: int | None = None) -> None:
    """Print what a lock changes. The lines hold texts of servers, so they are made visible, as all lines are."""
    colours = {"+": "green", "-": "red", "~": "yellow", "!": "yellow"}
    for line in changes[:most]:
        show(line, colour=colours.get(line[:1]))
    if most is not None and len(changes) > most:
        show(f"{len(changes) - most} more lines are not shown: `--json` has all of them")


def first_problems(problems: Sequence[Problem]) -> tuple[list[Problem], str]:
    """The first problems, errors before warnings, and a line about the rest."""
    if len(problems) <= MOST_PROBLEMS:
        return list(problems), ""
    ranked = sorted(range(len(problems)), key=lambda place: (_RANK[problems[place].severity], place))
    kept = [problems[place] for place in sorted(ranked[:MOST_PROBLEMS])]
    return kept, f"{len(problems) - MOST_PROBLEMS} more are not shown: fix these first"


def show_problems(problems: Iterable[Problem], *, err: bool = False) -> None:
    """Print one problem per line, each with a place that editors can jump to."""
    for problem in problems:
        line = visible(str(problem))
        place = visible(problem.origin.full)
        if coloured(err=err) and line.startswith(place):
            severity = click.style(problem.severity, fg=_COLOUR[problem.severity], bold=True)
            line = line.replace(f"{place}: {problem.severity}", f"{click.style(place, bold=True)}: {severity}", 1)
        click.echo(line, err=err, color=coloured(err=err) or None)


def show_annotations(problems: Iterable[Problem]) -> None:
    """Print problems as workflow commands of GitHub Actions, which shows them next to the lines of a change."""
    for problem in problems:
        kind = {"error": "error", "warning": "warning", "note": "notice"}[problem.severity]
        text = str(problem).removeprefix(f"{problem.origin.full}: {problem.severity}: ")
        show_annotation(kind, problem.origin, f"licet {getattr(problem, 'code', 'check')}", text)


def show_annotation(kind: str, origin: Origin | None, title: str, text: str) -> None:
    """Print one workflow command: an `error`, a `warning` or a `notice`."""
    place = {"file": origin.file, "line": origin.line, "col": origin.column} if origin else {}
    listed = ",".join(
        f"{key}={_escaped(visible(str(value)), ':,')}" for key, value in {**place, "title": title}.items()
    )
    click.echo(f"::{kind} {listed}::{_escaped(visible(text))}")


def _escaped(text: str, also: str = "") -> str:
    for character in "%\r\n" + also:  # the percent sign first, since it starts the others
        text = text.replace(character, f"%{ord(character):02X}")
    return text


def coloured(*, err: bool = False) -> bool:
    """Whether to print colours: on a terminal, or with `FORCE_COLOR`; never with `NO_COLOR`."""
    stream = sys.stderr if err else sys.stdout  # None if it is closed
    if stream is None or os.environ.get("NO_COLOR"):
        return False
    if os.environ.get("FORCE_COLOR"):
        return os.environ["FORCE_COLOR"] != "0"
    return stream.isatty() and os.environ.get("TERM") != "dumb"


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


def counted(number: int, noun: str, several: str = "") -> str:
    """A number and its noun: `1 file`, `3 errors`; `several` is a plural that does not end in `s` alone."""
    return f"{number} {noun}" if number == 1 else f"{number} {several or f'{noun}s'}"


def show_refusal(result: "Result", state: str, ways_out: Iterable[str] = ()) -> None:
    """Explain on stderr why a call was refused.

    `state` is the `--state` option that a command needs to find the receipt; empty if it needs none.
    """
    first, *rest, receipt = result.explain().splitlines()
    show(first, err=True, colour="red")
    for line in (*rest, *_other_session(result), *ways_out, receipt):
        show(line, err=True)
    if state and result.receipt:
        show(f"  to see it     licet explain {result.receipt}{state}", err=True)


def _other_session(result: "Result") -> Iterator[str]:
    """The advice to start another session, if this one has ended or has spent its budget; a day's budget is not its."""
    spent = _SPENT.search(result.explain()) if result.reason == "BUDGET_EXCEEDED" else None
    if result.reason == "SESSION_ENDED" or (spent and not spent[1].endswith("_per_day")):
        yield "  or            start another session with `--new-session`, or with `--session ID`"


def result_document(result: "Result") -> dict[str, Any]:
    """The result of a call, as plain data."""
    around = result.programs
    return {
        "ok": result.ok,
        "verdict": result.verdict,
        "tool": result.tool,
        "value": result.value,
        "code": result.code,
        "reason": result.reason,
        "capability": result.capability or None,
        "error": result.error or None,
        "explanation": None if result.ok else result.explain(),
        "receipt": result.receipt,
        **({"repeats": result.repeats} if result.repeats else {}),
        "approvals": [
            {
                "by": list(one.by),
                "request": one.request or None,
                "use": one.approval.use or None,
                **({"deletes": True} if one.approval.deletes else {}),
                **({"standing": True} if one.standing else {}),
            }
            for one in result.approvals
        ],
        "cost_usd": str(result.cost_usd),
        "duration_ms": milliseconds(result.duration_ms),
        "truncated": result.truncated,
        "logs": result.logs,
        "sandbox": {
            "access": result.access.document() if result.access is not None else None,
            "layers": list(result.layers),
            "programs": {
                "access": result.program_access.document(),
                "layers": list(around.in_force),
                "missing": list(around.missing),
            }
            if around
            else None,
        },
        "events": [
            {
                "kind": type(event).__name__,
                "capability": event.capability,
                "tool_name": event.tool_name,
                "reason": event.reason or None,
                "rule": event.rule or None,
                "time": event.time.isoformat(timespec="milliseconds") if event.time is not None else None,
                "duration_ms": milliseconds(event.duration_ms),
            }
            for event in result.events
        ],
    }


def is_output(path: Path) -> bool:
    """Whether a path is the standard output: `-`, or a path such as /dev/stdout."""
    if str(path) == "-":
        return True
    try:
        return os.path.samestat(path.stat(), os.fstat(sys.stdout.fileno()))
    except (OSError, ValueError):  # the path does not exist, or the output has no file descriptor
        return False


def is_special(path: Path) -> bool:
    """Whether a path is a device, a pipe or a socket, which is written to and never replaced."""
    try:
        mode = path.stat().st_mode
    except OSError:
        return False
    return not (stat.S_ISREG(mode) or stat.S_ISDIR(mode))


def write_file(path: Path, text: str, *, replace: bool) -> None:
    """Write a text file atomically. An existing file is kept unless `replace` is set.

    The new file gets the mode of the old one. A link is replaced, not its target. A device or pipe, such as /dev/null,
    is written to.
    """
    try:
        if is_special(path):
            number = os.open(path, os.O_WRONLY | os.O_NOCTTY | os.O_CLOEXEC)
            with os.fdopen(number, "w", encoding="utf-8") as stream:
                stream.write(text)
        elif replace:
            replace_file(path, text.encode(), 0o666, keep_mode=True)
        else:
            create_file(path, text.encode(), 0o666)
    except OSError as error:
        raise click.ClickException(f"cannot write {path}: {error.strerror}") from None


def check_target(file: Path, suffix: str) -> None:
    """Refuse to replace a file that is no picture or page."""
    if file.suffix != suffix and os.path.lexists(file) and not (is_output(file) or is_special(file)):
        raise click.UsageError(f"{visible(str(file))} exists and does not end in {suffix}, so it is not replaced")


def write_out(file: Path, text: str) -> None:
    """Write a picture or a page to a file, or to the standard output."""
    if is_output(file):
        click.echo(text, nl=not text.endswith("\n\n"))
    else:
        write_file(file, text, replace=True)
        show(f"wrote {file}", err=True)


def make_folder(path: Path) -> None:
    """Make a directory and its missing parents."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise click.ClickException(f"cannot make the directory {path}: {error.strerror}") from None


def organisation_line(above: Iterable[Organisation]) -> str:
    """Organisation files for people to read, each with its digest."""
    return ", ".join(f"{one.origin.file} ({one.digest})" for one in above)


def organisation_document(above: Iterable[Organisation]) -> dict[str, Any]:
    """Organisation files as plain data; empty if there are none."""
    listed = [{"file": one.origin.file, "digest": one.digest} for one in above]
    return {"organisations": listed} if listed else {}
