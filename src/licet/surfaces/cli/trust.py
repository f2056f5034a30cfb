"""`licet trust`: accept the policy of a directory, so that `licet run` and `licet call` use it when none is named."""

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
from msgspec.structs import asdict, replace

from licet.assemble import Places
from licet.assemble.trust import PolicyMoved, accept_policy, accepted_before, further_changes
from licet.core.algebra.set import CapabilitySet
from licet.core.policy.layer import OWN_STORAGE, meet_written_layers
from licet.core.policy.manifest import Manifest
from licet.core.review.diff import diff
from licet.core.review.surface import surface
from licet.policy_files.trust_list import TrustListError, accepted, forget
from licet.policy_files.user_directories import NoHome
from licet.surfaces.cli.diff import show_changes
from licet.surfaces.cli.discovery import named_or_found
from licet.surfaces.cli.options import FILE, Setting, json_option, read_sound
from licet.surfaces.cli.output import fail, shortened, show, show_json


@click.command(name="trust")
@click.argument("file", type=FILE, required=False)
@click.option("--yes", is_flag=True, help="Do not ask. Needed without a terminal and with --json.")
@click.option("--list", "listing", is_flag=True, help="List what was accepted.")
@click.option("--remove", is_flag=True, help="Take the policy off the list.")
@json_option
@click.pass_context
def command(ctx: click.Context, file: Path | None, yes: bool, listing: bool, remove: bool, as_json: bool) -> None:
    """Accept a policy, so that commands use it when you name none.

    FILE is the policy in this directory if left out: .licet/licet.yaml, or licet.yaml. The command shows everything
    that it allows, or what changed since you accepted it last. After any change of its meaning, and in any other
    directory, you are asked again. The code of its tools is not part of a policy.

    \b
      licet trust
      licet trust --list
      licet trust --remove

    \b
    Exit codes:
      0  accepted, listed or removed
      1  not accepted, or not on the list; or the files have errors
      2  bad command line
    """
    if (listing and (remove or yes or file is not None)) or (remove and yes):
        raise click.UsageError("--list takes no other option or FILE, and --remove takes no --yes", ctx)
    try:
        if listing:
            _list(as_json)
        elif remove:
            _remove(ctx, file, as_json)
        else:
            _accept(ctx, file, yes, as_json)
    except (TrustListError, PolicyMoved, NoHome) as wrong:
        fail(str(wrong), as_json)


def _list(as_json: bool) -> None:
    entries = sorted(accepted().values(), key=lambda entry: entry.path)
    if as_json:
        show_json({"accepted": [asdict(entry) for entry in entries]})
        return
    for entry in entries:
        show(f"{entry.path}  {entry.digest}  {entry.when}")
    if not entries:
        show("no policy has been accepted", err=True)


def _remove(ctx: click.Context, file: Path | None, as_json: bool) -> None:
    path = named_or_found(file, "FILE").path
    found = forget(path)
    if as_json:
        show_json({"file": os.path.realpath(path), "removed": found})
    else:
        show(f"{path} {'is no longer accepted' if found else 'was not accepted'}", err=not found)
    ctx.exit(0 if found else 1)


def _accept(ctx: click.Context, file: Path | None, yes: bool, as_json: bool) -> None:
    asks = not yes and not as_json and sys.stdin.isatty()
    if not yes and not asks:  # a script that only wants to read must not accept anything
        raise click.UsageError("there is no terminal to ask at: add `--yes`, or use `licet surface` to only look", ctx)
    path = named_or_found(file, "FILE").path
    manifest = read_sound(path, Setting(), as_json)
    entry = accepted().get(os.path.realpath(path))
    if entry is not None and entry.digest == manifest.digest:
        _report(path, manifest, as_json, f"{path} is already accepted")
        return
    before = accepted_before(path, manifest, Places.here())
    changes = diff(before.manifest, manifest) if before is not None else None
    further = further_changes(before.manifest, manifest) if before is not None else []
    if not as_json:
        short = shortened(None)
        if before is None or changes is None:
            _show_all(manifest, short)
        else:
            show(f"{path}, since it was accepted:")
            show_changes(changes, lambda text: short(text.replace(before.prefix, "before: ")))
            for line in further:
                show(short(line))
    if asks and not click.confirm("accept it?", err=True):
        show("nothing was accepted", err=True)
        ctx.exit(1)
    accept_policy(path, manifest)
    document = None if changes is None else {**changes.document(), "further": further}
    _report(path, manifest, as_json, f"accepted {path}", {"changes": document})


def _show_all(manifest: Manifest, short: Callable[[str], str]) -> None:
    """Print what a policy allows to its tools today, and the most that it allows to any tool."""
    from licet.surfaces.cli.surface_table import print_surface

    # As it will be once it is accepted: then the file itself may approve writes.
    print_surface(surface(replace(manifest, pinned="licet trust")), short)
    ceiling = meet_written_layers(manifest.layers)
    own = CapabilitySet(OWN_STORAGE)
    show("")
    show("the most that it allows, whatever its tools declare:")
    for rule in ceiling.allow:
        if rule.domain not in ("tool", "connector") and not own.has(rule):
            show(f"  {short(str(rule))}")
    for rule in ceiling.deny:
        show(f"  except {short(str(rule))}")


def _report(path: Path, manifest: Manifest, as_json: bool, text: str, more: dict[str, Any] | None = None) -> None:
    if as_json:
        show_json({"file": os.path.realpath(path), "digest": manifest.digest, "accepted": True, **(more or {})})
    else:
        show(text)
