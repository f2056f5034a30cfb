"""`licet diff`: what agents can reach more or less of than before. Compares meanings, not texts."""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import click
from msgspec.structs import replace

from licet.cli.options import FILE, Setting, json_option, organisations_above
from licet.cli.output import (
    organisation_document,
    organisation_line,
    print_report,
    shortened,
    show,
    show_annotation,
    wants_json,
)
from licet.cli.versions import Compared, compared_versions, exit_code, fail_on_option, failing_changes
from licet.core.policy.lock_changes import still_version
from licet.core.review.changes import Change, Changes, Side
from licet.core.review.diff import diff_agents, joined
from licet.core.review.risk import riskiest
from licet.core.values import Origin

SIGNS: dict[Side, tuple[str, str]] = {"grown": ("+", "red"), "shrunk": ("−", "green"), "changed": ("~", "yellow")}
SIDES: tuple[Side, ...] = ("grown", "shrunk", "changed")


@click.command(name="diff")
@click.argument("words", metavar="OLD [NEW] [MANIFEST]", nargs=-1, required=True)
@fail_on_option(
    "grown",
    "changed",
    "none",
    default="grown",
    text="Exit with 1 if something grew (`grown`), if anything changed (`changed`), if something grew that has this "
    "risk or a higher one (`risk:critical`, `risk:high`, `risk:medium`, `risk:low`), or never (`none`).",
)
@click.option(
    "--by",
    type=click.Choice(("tool", "agent", "workspace")),
    default="tool",
    show_default=True,
    help="Every change of each agent, one line for each agent, or every change once with its agents.",
)
@click.option("--old-workspace", metavar="FILE", type=FILE, help="The workspace of OLD, if not next to it.")
@click.option("--new-workspace", metavar="FILE", type=FILE, help="The workspace of NEW, if not next to it.")
@click.option("--workspace", metavar="FILE", type=FILE, help="One workspace for both.")
@click.option("--personality", metavar="FILE", type=FILE, help="A second policy file for both.")
@click.option("--workdir", metavar="DIR", type=FILE, help="The value of `${workdir}` in both.")
@json_option
@click.option("--github", is_flag=True, help="Print annotations for GitHub Actions.")
@click.option("--html", metavar="FILE", type=FILE, help="Write a page for a report to a file; `-` is standard output.")
@click.pass_context
def command(
    ctx: click.Context,
    words: tuple[str, ...],
    fail_on: str,
    by: str,
    old_workspace: Path | None,
    new_workspace: Path | None,
    workspace: Path | None,
    personality: Path | None,
    workdir: Path | None,
    github: bool,
    html: Path | None,
) -> None:
    """Show exactly what grew and what shrank between two versions of an agent, riskiest first.

    The command compares what tools and `licet run` can reach, and what decides about it: classes, levels, approvals,
    budgets, limits, argument rules, descriptions, schemas. What the policy allows and no tool needs today counts too,
    as `the ceiling allows …`. Moving a rule to another file or writing it differently is no difference, and neither is
    what the organisation of this machine says, which is no part of a policy. Each version is read with the `licet.yaml`
    next to it. NEW is the policy in this directory if left out.

    \b
    OLD and NEW are files, directories or git revisions:
      licet diff old.yaml new.yaml
      licet diff ../before .                     all manifests of two directories
      licet diff HEAD                            what is not committed yet
      licet diff main HEAD research.yaml         one manifest in two revisions

    \b
      +  grew: calls can do more, or fewer checks stop them
      −  shrank
      ~  changed in another way

    \b
    Exit codes:
      0  nothing grew (see --fail-on)
      1  something grew, or the files have errors
      2  bad command line
    """
    if sum((wants_json(), github, html is not None)) > 1:
        raise click.UsageError("--json, --github and --html exclude each other")
    if html is not None:
        from licet.cli.surface import check_target

        check_target(html, ".html")
    settings = (
        Setting(old_workspace or workspace, personality, workdir, alone=True),
        Setting(new_workspace or workspace, personality, workdir, alone=True),
    )
    above = organisations_above()
    with compared_versions(words, settings) as versions:
        changes = diff_agents(versions.old.agents, versions.new.agents)
        short = versions.worded(shortened(workdir))
        if github:
            _annotate(changes, versions)
        elif html is not None:
            _write_page(html, versions, changes, short)
        else:

            def text(_: object) -> None:
                _show(changes, by, short, headed=not versions.single)
                if above:
                    show(f"not in it: {organisation_line(above)} narrows both on this machine", err=True)
                for key, version in _same_versions(versions).items():
                    show(f"{key}: {still_version(version)}", err=True, colour="yellow")

            print_report({**_document(versions, changes), **organisation_document(above)}, text)
        failing = map(short, failing_changes(fail_on, changes))
        # The text ends with how much grew and changed, on the standard error too, and the JSON has all of it.
        code = exit_code(fail_on, failing, silent=not (fail_on.startswith("risk:") or github or html))
    ctx.exit(code)


def _document(versions: Compared, changes: dict[str, Changes]) -> dict[str, Any]:
    """The changes as plain data: of one agent as they are, of several by the name of their file."""

    def one(key: str) -> dict[str, Any]:
        digests = {
            side: version.agents[key].digest if key in version.agents else None
            for side, version in (("old", versions.old), ("new", versions.new))
        }
        same = {"same_version": _same_versions(versions)[key]} if key in _same_versions(versions) else {}
        return {**digests, **same, **_placed(changes[key], versions.worded(str)).document()}

    keys = list(changes)
    return one(keys[0]) if versions.single else {"agents": {key: one(key) for key in keys}}


def _same_versions(versions: Compared) -> dict[str, str]:
    """The agents whose policy changed while the version that it states did not, with that version."""
    old, new = versions.old.agents, versions.new.agents
    return {
        key: new[key].version
        for key in new
        if key in old
        and new[key].version
        and new[key].version == old[key].version
        and new[key].digest != old[key].digest
    }


def _placed(changes: Changes, say: Callable[[str], str]) -> Changes:
    """The changes with their places as a reader knows them."""

    def placed(change: Change) -> Change:
        origin = replace(change.origin, file=say(change.origin.file)) if change.origin else None
        return replace(change, origin=origin)

    return Changes(*(tuple(map(placed, getattr(changes, side))) for side in SIDES))


def _annotate(changes: dict[str, Changes], versions: Compared) -> None:
    for key, each in changes.items():
        for change in _placed(each, versions.worded(str)).grown:
            kind = "error" if change.risk.level == "critical" else "warning"
            title = f"licet diff: {change.risk.level} risk"
            show_annotation(kind, change.origin, title, f"{key}: {_text(replace(change, origin=None))}")


def _write_page(file: Path, versions: Compared, changes: dict[str, Changes], short: Callable[[str], str]) -> None:
    from licet.cli.surface import write_out
    from licet.core.review.surface import surface
    from licet.map.pages import diff_page

    now = {key: surface(manifest) for key, manifest in versions.new.agents.items()}
    write_out(file, diff_page(changes, now, short, (versions.old.title, versions.new.title)))


def _show(changes: dict[str, Changes], by: str, short: Callable[[str], str], *, headed: bool) -> None:
    if by == "tool" and not headed:
        show_changes(next(iter(changes.values())), short)
        return
    if by == "workspace":
        for side in SIDES:
            for change, keys in joined(changes, side):
                show(f"{SIGNS[side][0]} {short(_text(change))}  [{', '.join(keys)}]", colour=SIGNS[side][1])
    else:
        for key, each in sorted(changes.items(), key=lambda item: riskiest(c.risk for c in item[1].grown).rank):
            if each or by == "agent":
                show(f"agent {key}: {summary_of((each,))}")
            for side in SIDES if by == "tool" else ():
                _show_side(each, side, short)
    show(summary_of(changes.values()), err=True)


def show_changes(changes: Changes, short: Callable[[str], str]) -> None:
    """Print what grew, shrank and changed, one line each; `short` shortens the paths in them."""
    for side in SIDES:
        _show_side(changes, side, short)
    show(summary_of((changes,)), err=True)


def _show_side(changes: Changes, side: Side, short: Callable[[str], str]) -> None:
    sign, colour = SIGNS[side]
    for change in getattr(changes, side):
        show(f"{sign} {short(_text(change))}", colour=colour)


def summary_of(changes: Iterable[Changes]) -> str:
    """How much grew, shrank and changed, and the riskiest thing that grew."""
    every = list(changes)
    counts = [f"{number} {side}" for side in SIDES if (number := sum(len(getattr(one, side)) for one in every))]
    grown = [change.risk for one in every for change in one.grown]
    risk = f"; riskiest: {riskiest(grown)}" if grown else ""
    return ", ".join(counts) + risk if counts else "no difference"


def _text(change: Change) -> str:
    named = change.tool is None or change.text.startswith(f"`{change.tool}`")
    subject = "" if named else f"{change.tool}: "
    return subject + change.text + _place(change.origin)


def _place(origin: Origin | None) -> str:
    return f"  ({origin})" if origin else ""
