"""The policy of `licet run`: one that was named or found, the flags alone, or one that the flags narrow."""

import shlex
from pathlib import Path

import click
from msgspec import Struct

from licet.assemble.flags import (
    BadFlag,
    Flags,
    Typed,
    TypedApproval,
    made_manifest,
    manifest_text,
    narrowed,
    saved_text,
    understood,
)
from licet.assemble.review import Places
from licet.core.policy.manifest import Manifest
from licet.policy_files.organisation import under_organisation
from licet.policy_files.policy_paths import policy_root, shown_path
from licet.surfaces.cli.discovery import PLACES, Named, check_setting, find_policy, nothing_here, require_trust
from licet.surfaces.cli.options import Setting, sound_manifest
from licet.surfaces.cli.output import fail, show, show_problems


class RunOptions(Struct, frozen=True):
    """How a command is run."""

    ask: bool = False
    session: str = "main"
    purpose: str | None = None
    secrets: Path | None = None
    state: Path | None = None
    flags: Flags = Flags()
    save: Path | None = None


class ChosenPolicy(Struct, frozen=True):
    """The policy of a run, the directory whose state it uses, and what the flags have to do with it."""

    policy: Manifest
    root: Path
    typed: Typed
    approver: TypedApproval | None = None  # if the flags alone are the policy


def chosen_policy(
    ctx: click.Context,
    manifest: Path | None,
    name: str | None,
    setting: Setting,
    program: str,
    wanted: RunOptions,
    as_json: bool,
) -> ChosenPolicy:
    """The policy that was named or found, narrowed by the flags; without one, the flags alone.

    Exits without running CMD if there is nothing to go by. Raises `BadFlag`, and what loading a policy raises.
    """
    flags, places = wanted.flags, Places.here(setting.workdir)
    typed = understood(flags, places)
    _check_combination(ctx, manifest, flags, wanted.save)
    text = manifest_text(typed, program, places) if flags else ""
    found = manifest or find_policy()
    made = made_manifest(text, typed.write if found is None else ()) if flags else None  # a policy closes its own
    if found is not None:
        named = Named(found, by_hand=manifest is not None)
        if wanted.save is not None:
            raise click.UsageError(f"--save writes flags that stand alone; here they only narrow {found}", ctx)
        check_setting(named, setting)
        policy = sound_manifest(named.path, setting, as_json)
        require_trust(named, policy, as_json)
        if made is not None:
            policy = narrowed(policy, made)
            if not as_json:
                show(f"licet: the flags narrow {named.path}", err=True)
        return ChosenPolicy(policy, policy_root(named.path), typed)
    if made is None:
        fail(f"licet: {nothing_here()}; or say what the command may reach, such as `--allow-read .`", as_json)
    if name is not None or setting.workspace or setting.personality:
        raise click.UsageError("--tool, --workspace and --personality need a policy, and there is none here", ctx)
    if wanted.save is not None:
        _save(wanted.save, saved_text(text, typed, program), as_json, writes=bool(typed.write))
    _make_missing(typed, as_json)
    if setting.organisation is not None:
        made = under_organisation(made, setting.organisation)
    return ChosenPolicy(made, Path.cwd(), typed, TypedApproval(made))


def _check_combination(ctx: click.Context, manifest: Path | None, flags: Flags, save: Path | None) -> None:
    if save is not None and not flags:
        raise click.UsageError("--save needs flags to write, such as `--allow-read .`", ctx)
    # A second path after a flag is read as the name of a policy.
    if flags and manifest is not None and manifest.suffix not in (".yaml", ".yml", ".json"):
        text = f"`{manifest}` is no policy file: each path, host or variable needs a flag of its own"
        raise click.UsageError(f"{text}, such as `--allow-read a --allow-read b`", ctx)


def _save(file: Path, text: str, as_json: bool, *, writes: bool) -> None:
    """Write the flags as a policy, and accept it: who typed the flags knows what it allows.

    Typing them approves deletes for one run. A file never does: for that there is `licet trust`.
    """
    from licet.surfaces.cli.init_target import obstacles, write_policy

    if problems := obstacles(file, force=False):
        raise click.UsageError(f"--save: {problems[0].origin.file}: found {problems[0].found}, expected a new file")
    warnings = write_policy(file, text)
    if not as_json:
        show_problems(warnings, err=True)
        named = "" if file in PLACES else f" {shlex.quote(str(file))}"
        show(f"licet: wrote {file}; `licet run{named} -- …` uses it", err=True)
        if writes:
            why = "the flags approve them for this run alone, and a file approves none"
            show(f"licet: next: `licet trust{named}`, to agree to renames and deletes for 30 days: {why}", err=True)


def _make_missing(typed: Typed, as_json: bool) -> None:
    """Make the directories of `--allow-write` that do not exist: the kernel can only allow what is there."""
    for path in typed.missing:
        try:
            path.mkdir()
        except OSError as error:
            raise BadFlag("--allow-write", f"cannot make the directory {path}: {error.strerror}") from None
        if not as_json:
            show(f"licet: made the directory {shown_path(path)}, for --allow-write", err=True)
