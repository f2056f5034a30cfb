"""`licet surface`: everything an agent can reach, as a table, as JSON or as a picture."""

import os
from pathlib import Path

import click

from licet.assemble import Places
from licet.assemble.never_writable import closed_paths, closed_to_grants
from licet.core.scope import visible
from licet.core.surface import surface
from licet.surfaces.cli.found import named_or_found
from licet.surfaces.cli.options import FILE, Setting, json_option, read_sound, setting_options
from licet.surfaces.cli.show import shortened, show, show_json
from licet.surfaces.cli.writing import is_output, is_special, write_file


@click.command(name="surface")
@click.argument("manifest", type=FILE, required=False)
@setting_options
@json_option
@click.option("--svg", metavar="FILE", type=FILE, help="Draw a map instead, into a file; `-` is standard output.")
def command(
    manifest: Path | None,
    setting: Setting,
    as_json: bool,
    svg: Path | None,
) -> None:
    """Show everything that an agent can reach, tool by tool.

    MANIFEST is the policy in this directory if left out: .licet/licet.yaml, or licet.yaml.

    Exact, and from the files alone: a tool reaches what it needs and every ceiling allows. A tool that no file
    declares is shown with the most that any declaration could give it; one that cannot be called reaches nothing.
    Where a binary is allowed, the last row says what `licet run` gives any command, whatever tools declare.
    What no grant ever writes (policy, code of tools, interpreter, libraries, licet's state) is one line; --json has
    every path of it, with the reason.

    \b
    Exit codes:
      0  shown
      1  the files are wrong
      2  a command line that makes no sense
    """
    if as_json and svg is not None:
        raise click.UsageError("--json and --svg exclude each other")
    if svg is not None and svg.suffix != ".svg" and os.path.lexists(svg) and not (is_output(svg) or is_special(svg)):
        raise click.UsageError(f"{visible(str(svg))} exists and is not called .svg: it is not replaced")
    policy = read_sound(named_or_found(manifest, "MANIFEST").path, setting, as_json)
    places = Places.here(setting.workdir)  # a path says where it is only together with these
    shown = surface(policy, closed_to_grants(policy, places.workdir))
    if as_json:
        closed = [
            {"path": one.path, "why": one.why, "readable": one.readable} for one in closed_paths(policy, places.workdir)
        ]
        show_json({**shown.document(), "never_writable": closed, "workdir": places.workdir, "home": places.home})
    elif svg is not None:
        from licet.surfaces.svg import svg_map

        picture = svg_map(shown, shortened(setting.workdir))
        if is_output(svg):
            click.echo(picture)
        else:
            write_file(svg, picture, replace=True)
            show(f"wrote {svg}", err=True)
    else:
        from licet.surfaces.cli.table import print_surface

        print_surface(shown, shortened(setting.workdir))
