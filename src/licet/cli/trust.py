"""`licet trust`: accept the policy of a directory and its lock, so that commands use them when none is named."""

import os
import sys
from collections.abc import Callable
from pathlib import Path

import click
from msgspec import Struct
from msgspec.structs import replace

from licet.assemble import Places
from licet.assemble.acceptance import (
    PolicyMoved,
    Review,
    accept_policy,
    deletes_to_approve,
    give_standing,
    review_of,
    state_of,
    with_standing,
    withdraw_all,
)
from licet.assemble.states import DirectoryState, State
from licet.cli.diff import show_changes
from licet.cli.discovery import named_or_found
from licet.cli.options import FILE, Setting, json_option, read_sound, state_option
from licet.cli.output import counted, fail, print_report, shortened, show, show_lines, show_lock_changes, wants_json
from licet.core.algebra.set import CapabilitySet
from licet.core.decision.approval import time_text
from licet.core.limits import MOST_STANDING_DAYS
from licet.core.policy.layer import OWN_STORAGE, meet_written_layers
from licet.core.policy.manifest import Manifest
from licet.core.policy.terms import StandingApproval
from licet.core.review.surface import surface
from licet.guard.ports import LedgerUnavailable, Unavailable
from licet.policy_files.policy_paths import LOCK_FILE, NoHome, policy_root
from licet.policy_files.trust import Accepted, TrustListError, acceptance, accepted, forget, lock_state


@click.command(name="trust")
@click.argument("file", type=FILE, required=False)
@click.option(
    "--yes", is_flag=True, help="Do not ask. Needed without a terminal and with --json. Gives no standing approval."
)
@click.option(
    "--days",
    type=click.IntRange(1, MOST_STANDING_DAYS),
    default=MOST_STANDING_DAYS,
    show_default=True,
    help="End a standing approval of deletes after so many days.",
)
@click.option(
    "--workdir",
    metavar="DIR",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="What ${workdir} stands for in the paths of a standing approval.  [default: this directory]",
)
@state_option("The state of the calls that a standing approval is for.")
@click.option("--list", "listing", is_flag=True, help="List what was accepted.")
@click.option("--remove", is_flag=True, help="Take the policy off the list.")
@json_option
@click.pass_context
def command(
    ctx: click.Context,
    file: Path | None,
    yes: bool,
    days: int,
    workdir: Path | None,
    state: State | None,
    listing: bool,
    remove: bool,
) -> None:
    """Accept a policy and its licet.lock, so that commands use them when you name none.

    FILE is the policy in this directory if left out: .licet/licet.yaml, or licet.yaml. The command shows everything
    that it allows, and what its lock says about servers: the packages that are started, and the texts that models
    read. If you accepted it before, it shows what changed. After any change of its meaning or of the lock, and in any
    other directory, you are asked again; a change that `licet lock` makes is accepted by running it. The code of its
    tools is not part of a policy.

    A policy that says `approvals: {delete: manifest}` asks for a standing approval of deletes: you are shown the paths,
    and asked about that alone. It is given at a terminal only, never by --yes, and ends after 30 days at most.
    `licet approvals` lists and withdraws it.

    \b
      licet trust
      licet trust --days 7
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
            _list()
        elif remove:
            _remove(ctx, file, state)
        else:
            _accept(ctx, file, yes, Standing(days, workdir, state))
    except (TrustListError, PolicyMoved, NoHome, Unavailable, LedgerUnavailable) as wrong:
        fail(str(wrong))


def _list() -> None:
    entries = sorted(accepted().values(), key=lambda entry: entry.path)
    print_report({"accepted": entries}, lambda _: _show_list(entries))


def _show_list(entries: list[Accepted]) -> None:
    for entry in entries:
        lock = {None: "not with its lock", "": "without a lock"}.get(entry.lock, f"lock {entry.lock}")
        show(f"{entry.path}  {entry.digest}  {lock}  {entry.when}")
    if not entries:
        show("no policy has been accepted", err=True)


def _remove(ctx: click.Context, file: Path | None, state: State | None) -> None:
    path = named_or_found(file, "FILE").path
    found, withdrawn = forget(path), withdraw_all(path, state)

    def text(_: object) -> None:
        show(f"{path} {'is no longer accepted' if found else 'was not accepted'}", err=not found)
        show_lines(f"the standing approval {name} of its deletes is withdrawn" for name in withdrawn)

    more = {"withdrawn": withdrawn} if withdrawn else {}
    print_report({"file": os.path.realpath(path), "removed": found, **more}, text)
    ctx.exit(0 if found else 1)


_MOST_EXCEPTIONS = 20  # more are counted: they only narrow what is agreed to


class Standing(Struct, frozen=True):
    """The options of `licet trust` about a standing approval of deletes."""

    days: int
    workdir: Path | None
    state: State | None
    anywhere: bool = False  # for each directory that the policy may hold in, which it then calls `${workdir}`


def _accept(ctx: click.Context, file: Path | None, yes: bool, wanted: Standing) -> None:
    asks = not yes and not wants_json() and sys.stdin.isatty()
    if not yes and not asks:  # a script that only wants to read must not accept anything
        text = "there is no terminal to ask at: add `--yes`, which gives no standing approval of deletes, or use"
        raise click.UsageError(f"{text} `licet surface` to only look", ctx)
    path = named_or_found(file, "FILE").path
    if wanted.workdir is None and wanted.state is None:
        wanted = replace(wanted, anywhere=_is_default_of_hooks(path))
    manifest = read_sound(path, Setting(workdir=wanted.workdir, alone=True))
    if acceptance(path, manifest.digest, lock_state(manifest)).answer == "accepted":
        _report(path, manifest, f"{path} is already accepted")
        stand(path, manifest, wanted, asks=asks)
        return
    found = review_of(path, manifest)
    if not wants_json():
        show_review(path, manifest, found)
    if asks and not click.confirm("accept it?", err=True):
        show("nothing was accepted", err=True)
        ctx.exit(1)
    accept_policy(path, manifest)
    _report(path, manifest, f"accepted {path}", found)
    stand(path, manifest, wanted, asks=asks)


def stand(path: Path, manifest: Manifest, wanted: Standing, *, asks: bool) -> None:
    """Ask for the standing approval that a policy says it has; at a terminal only, and about nothing else."""
    manifest = _as_approved(manifest, wanted)
    deletes = deletes_to_approve(manifest)
    if not deletes or manifest.lock_problem is not None:
        return
    state = wanted.state or DirectoryState(state_of(path))
    standing = _standing_of(path, manifest, wanted)
    if standing is not None:
        if not wants_json():
            until = time_text(standing.expires)
            show(f"its deletes are covered until {until} by the standing approval {standing.id}")
        return
    if not asks:
        text = "its deletes are not approved: runs delete what they made; `licet trust` at a terminal approves the rest"
        show(text, err=True, colour="yellow")
        return
    places, short = Places.here(policy_root(path) if wanted.anywhere else wanted.workdir), shortened(None)
    show("")
    show("its tools of class full, and its servers, may then delete and rename files below these without asking:")
    for rule in deletes.allow:
        show(f"  {short(str(rule))}")
    if len(deletes.deny) > _MOST_EXCEPTIONS:
        show(f"  except what {len(deletes.deny)} rules of the policy deny, most since other programs run or trust it")
    else:
        show_lines(f"  except {short(str(rule))}" for rule in deletes.deny)
    if wanted.anywhere:
        show("${workdir} is each directory that a coding agent is started in, where it has no policy of its own")
    show(f"this holds for {counted(wanted.days, 'day')}, for this policy as it is now, on this machine")
    show("a yes lets them delete and rename there without being asked; with a no they delete only what they have made")
    if not click.confirm("give this standing approval?", err=True):
        show(
            "no standing approval was given: programs delete only what they have made, and tools ask once a session",
            err=True,
        )
        return
    kept = give_standing(manifest, places, state, wanted.days)
    if kept.keys is not None:
        show(f"{kept.request.id} needs {kept.quorum} of {len(kept.keys)} signatures before it counts; each signs with")
        show(f"  licet approvals approve {kept.request.id}{state.option} --key FILE")
    else:
        show(f"standing approval {kept.request.id}, until {time_text(kept.request.expires)}")


def lacks_standing(path: Path, manifest: Manifest, wanted: Standing) -> bool:
    """Whether a policy asks for a standing approval that nobody has given."""
    manifest = _as_approved(manifest, wanted)
    is_asked = bool(deletes_to_approve(manifest)) and manifest.lock_problem is None
    return is_asked and _standing_of(path, manifest, wanted) is None


def _as_approved(manifest: Manifest, wanted: Standing) -> Manifest:
    """The policy with the paths that a standing approval names: those of its files, if it is for any directory."""
    return (manifest.loaded or manifest) if wanted.anywhere else manifest


def _standing_of(path: Path, manifest: Manifest, wanted: Standing) -> StandingApproval | None:
    known = replace(manifest, standing=None, standing_problem="")
    found = with_standing(known, path, wanted.state or state_of(path)).standing
    if found is None or not wanted.anywhere:
        return found
    return found if {str(rule) for rule in deletes_to_approve(manifest).allow} <= set(found.deletes) else None


def _is_default_of_hooks(path: Path) -> bool:
    """Whether a policy is the one that hooks of coding agents use where a directory has none of its own."""
    from licet.hooks.policy_choice import NoPolicy, read_policies

    try:
        default = read_policies().default
    except (NoPolicy, NoHome):
        return False
    return bool(default) and os.path.realpath(path) == os.path.realpath(default)


def show_review(path: Path, manifest: Manifest, found: Review) -> None:
    """Print what is to be accepted."""
    short = shortened(None)
    if found.changes is None:
        _show_all(manifest, short)
    elif not found.is_same:
        show(f"{path}, since it was accepted:")
        show_changes(found.changes, lambda text: short(text.replace(found.prefix, "before: ")))
        for line in found.further:
            show(short(line))
    else:
        show(f"{path} is as it was accepted")
    if found.lock:
        show("")
        show(f"{LOCK_FILE} next to it, {'since it was accepted' if found.changes is not None else 'all that it says'}:")
        show_lock_changes(found.lock)
    if manifest.lock_problem is not None:
        show(str(manifest.lock_problem), err=True, colour="yellow")


def _show_all(manifest: Manifest, short: Callable[[str], str]) -> None:
    """Print what a policy allows to its tools today, and the most that it allows to any tool."""
    from licet.cli.surface import print_surface

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


def _report(path: Path, manifest: Manifest, text: str, found: Review | None = None) -> None:
    about = {"file": os.path.realpath(path), "digest": manifest.digest, "lock": lock_state(manifest), "accepted": True}
    print_report({**about, **(found.document() if found else {})}, lambda _: show(text))
