"""`licet diff`: what an agent can reach more or less of than before. Compares meanings, not texts."""

from collections.abc import Callable
from pathlib import Path

import click

from licet.core.origin import Origin
from licet.core.review.changes import Change, Changes
from licet.core.review.diff import diff
from licet.surfaces.cli.discovery import named_or_found
from licet.surfaces.cli.options import FILE, Setting, json_option, read_sound
from licet.surfaces.cli.output import shortened, show, show_json

SIGNS = {"grown": ("+", "red"), "shrunk": ("−", "green"), "changed": ("~", "yellow")}


@click.command(name="diff")
@click.argument("old", type=FILE)
@click.argument("new", type=FILE, required=False)
@click.option(
    "--fail-on",
    type=click.Choice(("grown", "changed", "none")),
    default="grown",
    show_default=True,
    help="Exit with 1 if something grew, if anything changed, or never.",
)
@click.option("--old-workspace", metavar="FILE", type=FILE, help="The workspace of OLD, if not next to it.")
@click.option("--new-workspace", metavar="FILE", type=FILE, help="The workspace of NEW, if not next to it.")
@click.option("--workspace", metavar="FILE", type=FILE, help="One workspace for both.")
@click.option("--personality", metavar="FILE", type=FILE, help="A second policy file for both.")
@click.option("--workdir", metavar="DIR", type=FILE, help="The value of `${workdir}` in both.")
@json_option
@click.pass_context
def command(
    ctx: click.Context,
    old: Path,
    new: Path | None,
    fail_on: str,
    old_workspace: Path | None,
    new_workspace: Path | None,
    workspace: Path | None,
    personality: Path | None,
    workdir: Path | None,
    as_json: bool,
) -> None:
    """Show exactly what grew and what shrank between two versions of an agent.

    The command compares what tools and `licet run` can reach, and what decides about it: classes, levels, approvals,
    budgets, limits, argument rules, descriptions, schemas. What the policy allows and no tool needs today counts too,
    as `the ceiling allows …`. Moving a rule to another file or writing it differently is no difference. Each
    version is read with the `licet.yaml` next to it. NEW is the policy in this directory if left out.

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
    new = named_or_found(new, "NEW").path
    before = read_sound(old, Setting(old_workspace or workspace, personality, workdir), as_json)
    after = read_sound(
        named_or_found(new, "NEW").path, Setting(new_workspace or workspace, personality, workdir), as_json
    )
    changes = diff(before, after)
    if as_json:
        digests = {"old": before.digest, "new": after.digest}
        show_json({**digests, **changes.document()})
    else:
        show_changes(changes, shortened(workdir))
    failed = {"grown": bool(changes.grown), "changed": bool(changes), "none": False}[fail_on]
    ctx.exit(1 if failed else 0)


def show_changes(changes: Changes, short: Callable[[str], str]) -> None:
    """Print what grew, shrank and changed, one line each; `short` shortens the paths in them."""
    sides = (("grown", changes.grown), ("shrunk", changes.shrunk), ("changed", changes.changed))
    for side, found in sides:
        sign, colour = SIGNS[side]
        for change in found:
            show(f"{sign} {short(_text(change))}", colour=colour)
    counts = [f"{len(found)} {side}" for side, found in sides if found]
    show(", ".join(counts) or "no difference", err=True)


def _text(change: Change) -> str:
    named = change.tool is None or change.text.startswith(f"`{change.tool}`")
    subject = "" if named else f"{change.tool}: "
    return subject + change.text + _place(change.origin)


def _place(origin: Origin | None) -> str:
    return f"  ({origin})" if origin else ""
