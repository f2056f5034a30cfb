"""`--manifest` for commands that look at what calls have left: the state that belongs to a manifest elsewhere."""

from pathlib import Path

import click

from licet.assemble.running import state_directory
from licet.surfaces.cli.options import FILE, Command

_MANIFEST = "licet.manifest"


def manifest_option(command: Command) -> Command:
    """Add `--manifest` to a command that has `--state`."""
    text = "Look at the state of this manifest, as `licet call MANIFEST` keeps it."
    option = click.option(
        "--manifest", metavar="FILE", type=FILE, is_eager=True, expose_value=False, callback=_remember, help=text
    )
    return option(command)


def of_manifest(ctx: click.Context, _: click.Parameter, state: Path | None) -> Path | None:
    """The state that was named, or that of the manifest that was."""
    manifest: Path | None = ctx.meta.get(_MANIFEST)
    if manifest is None:
        return state
    if state is not None:
        raise click.UsageError("give --manifest or --state, not both", ctx)
    return state_directory(manifest if manifest.is_dir() else manifest.parent)


def _remember(ctx: click.Context, param: click.Parameter, manifest: Path | None) -> None:
    if manifest is None:
        return
    if not manifest.exists():
        raise click.BadParameter(f"there is no {manifest}", ctx, param)
    ctx.meta[_MANIFEST] = manifest
