"""`licet surface`: everything that agents can reach, as a table, as JSON, as a picture or as a page."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from licet.assemble import Places
from licet.assemble.never_writable import closed_paths, closed_to_grants
from licet.cli.discovery import named_or_found
from licet.cli.options import FILE, Setting, json_option, read_sound, setting_options
from licet.cli.output import is_output, is_special, print_report, shortened, show, wants_json, write_file
from licet.cli.surface_table import print_agents, print_surface, print_tools, print_workspace
from licet.cli.versions import exit_code, fail_on_option, failing_tools, manifests_of
from licet.core.algebra.scope import visible
from licet.core.policy.manifest import Manifest
from licet.core.review.diff import reached_in
from licet.core.review.surface import Surface, surface
from licet.packages.locked_tools import pinned_here


@click.command(name="surface")
@click.argument("manifests", metavar="[MANIFEST|DIRECTORY]...", type=FILE, nargs=-1)
@setting_options
@click.option(
    "--by",
    type=click.Choice(("tool", "agent", "workspace")),
    default="tool",
    show_default=True,
    help="One row for each tool, for each agent, or for each host, path and secret of all agents.",
)
@fail_on_option(
    "none",
    default="none",
    text="Exit with 1 if something has this risk or a higher one: `risk:critical`, `risk:high`, `risk:medium` or "
    "`risk:low`.",
)
@json_option
@click.option("--svg", metavar="FILE", type=FILE, help="Write a map as SVG to a file; `-` is standard output.")
@click.option("--html", metavar="FILE", type=FILE, help="Write a page for a report to a file; `-` is standard output.")
@click.pass_context
def command(
    ctx: click.Context,
    manifests: tuple[Path, ...],
    setting: Setting,
    by: str,
    fail_on: str,
    svg: Path | None,
    html: Path | None,
) -> None:
    """Show everything that an agent can reach, tool by tool, riskiest first.

    MANIFEST is the policy in this directory if left out: .licet/licet.yaml, or licet.yaml. Several manifests are shown
    together, and a directory stands for all manifests of agents in it and in its .licet.

    The answer is exact and comes from the files alone: a tool reaches what it declares and the policy allows. A tool
    that no file declares is shown with the most that any declaration could give it. A tool that cannot be called
    reaches nothing. If a binary is allowed that no tool needs, the last row shows what any command of `licet run`
    reaches. Paths that no grant ever writes (policy, code of tools, interpreter, libraries, licet's state) are one
    line; --json lists them.

    \b
    Exit codes:
      0  shown
      1  the files have errors, or see --fail-on
      2  bad command line
    """
    if sum((wants_json(), svg is not None, html is not None)) > 1:
        raise click.UsageError("--json, --svg and --html exclude each other")
    for file, suffix in ((svg, ".svg"), (html, ".html")):
        if file is not None:
            check_target(file, suffix)
    policies = _policies(manifests, setting)
    if svg is not None and len(policies) > 1:
        raise click.UsageError("--svg draws one agent: name one manifest, or use --html")
    places = Places.here(setting.workdir)  # readers of the JSON need both to interpret a path
    shown = {key: surface(policy, closed_to_grants(policy, places.workdir)) for key, policy in policies.items()}
    short = shortened(setting.workdir)
    if svg is not None:
        from licet.map.draw import svg_map

        write_out(svg, svg_map(next(iter(shown.values())), short))
    elif html is not None:
        from licet.map.pages import surface_page

        write_out(html, surface_page(shown, short))
    else:
        documents = {key: _document(shown[key], policy, places) for key, policy in policies.items()}
        one = len(manifests) < 2 and len(shown) == 1 and not any(path.is_dir() for path in manifests)
        found = documents[next(iter(documents))] if one else {"agents": documents, "reach": reached_in(shown)}
        print_report(found, lambda _: _print(shown, by, short))
    ctx.exit(exit_code(fail_on, failing_tools(fail_on, shown)))


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


def _policies(named: tuple[Path, ...], setting: Setting) -> dict[str, Manifest]:
    """The manifests that were named, by the names of their files."""
    found: dict[str, Manifest] = {}
    for path in named or (named_or_found(None, "MANIFEST").path,):
        files = manifests_of(path) if path.is_dir() else (path,)
        if not files:
            raise click.UsageError(f"there is no manifest of an agent in {visible(str(path))}")
        found |= {str(file): pinned_here(read_sound(file, setting)) for file in files}
    return found


def _document(shown: Surface, policy: Manifest, places: Places) -> dict[str, Any]:
    closed = closed_paths(policy, places.workdir)
    return {**shown.document(), "never_writable": closed, "workdir": places.workdir, "home": places.home}


def _print(shown: dict[str, Surface], by: str, short: Callable[[str], str]) -> None:
    if by == "agent":
        print_agents(shown, short)
    elif by == "workspace":
        print_workspace(shown, short)
    elif len(shown) == 1:
        print_surface(next(iter(shown.values())), short)
    else:
        print_tools(shown, short)
