"""`--manifest` for commands that look at what calls have left: the state that belongs to a manifest elsewhere."""

import os
from pathlib import Path

import click

from licet.assemble.running import state_directory
from licet.backends.policy_paths import policy_root
from licet.surfaces.cli.options import FILE, Command

MANIFEST = "licet.manifest"  # what `--manifest` named, among the notes of a command


def manifest_option(command: Command) -> Command:
    """Add `--manifest` to a command that has `--state`."""
    text = "Look at the state of this manifest, as `licet call MANIFEST` keeps it."
    option = click.option(
        "--manifest", metavar="FILE", type=FILE, is_eager=True, expose_value=False, callback=_remember, help=text
    )
    return option(command)


def of_manifest(ctx: click.Context, _: click.Parameter, state: Path | None) -> Path | None:
    """The state that was named, or that of the manifest that was."""
    manifest: Path | None = ctx.meta.get(MANIFEST)
    if manifest is None:
        return state
    if state is not None:
        raise click.UsageError("give --manifest or --state, not both", ctx)
    return state_directory(manifest if os.path.isdir(manifest) else policy_root(manifest))


def wrong_state(state: Path, new: bool) -> str:
    """Why a directory of state cannot be looked into; nothing if it can, or if it is `new` and not made yet."""
    try:
        with os.scandir(state):
            return ""
    except FileNotFoundError:
        return "" if new else f"there is no directory {state}"
    except OSError as error:
        return f"{state} cannot be read: {error.strerror}"


def _remember(ctx: click.Context, param: click.Parameter, manifest: Path | None) -> None:
    if manifest is None:
        return
    if not os.path.exists(manifest):
        raise click.BadParameter(f"there is no {manifest}", ctx, param)
    ctx.meta[MANIFEST] = manifest
