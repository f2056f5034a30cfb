"""`licet lock`: writes down what was reviewed, so that every gate and gateway refuses anything else."""

import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Literal, cast

import click
from msgspec import Struct
from msgspec.structs import replace

from licet.assemble.acceptance import PolicyMoved, accept_written_lock
from licet.assemble.backend_parts import secrets_file_problem
from licet.assemble.expected_lock import LockedPolicy, existing_lock, lock_place, locked_policy
from licet.assemble.policy_problems import missing_server_problems
from licet.cli.discovery import Named, named_or_found, require_trust
from licet.cli.limits import LOCK_CHANGES_SHOWN
from licet.cli.lock_servers import (
    Options,
    lock_setup,
    own_secrets_hint,
    refuse_servers,
    server_problems,
    show_servers,
    take_each,
)
from licet.cli.options import FILE, json_option, refuse, secrets_option
from licet.cli.output import counted, fail, print_report, show, show_lines, show_lock_changes, wants_json, write_file
from licet.core.policy.addresses import common_ranges
from licet.core.policy.lock import FORMAT, BadLock, Lock, lock_digest, with_other_platforms, write_lock
from licet.core.policy.lock_changes import lock_changes
from licet.core.values import Origin, Problem
from licet.mcp.server_definitions import NotTaken
from licet.mcp.shown_names import Naming, renamed, without_clashes
from licet.own_files import is_there
from licet.policy_files.policy_paths import WORKSPACE_FILE, shown_path
from licet.policy_files.trust import TrustListError, trusted_paths


class _Split(click.Command):
    """A command whose own arguments end at `--`; the rest starts a server."""

    def collect_usage_pieces(self, ctx: click.Context) -> list[str]:
        return ["[OPTIONS]", "[MANIFEST]...", "[SERVER [-- CMD...]]"]

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        place = args.index("--") if "--" in args else len(args)
        ctx.meta["command"] = tuple(args[place + 1 :])
        return super().parse_args(ctx, args[:place])


@click.command(name="lock", cls=_Split)
@click.argument("words", metavar="[MANIFEST]...", nargs=-1)
@click.option("--update", is_flag=True, help="Show what changed, and take it into the lock.")
@click.option("--upgrade", is_flag=True, help="As --update, and also take the newest packages that commands allow.")
@click.option("--yes", is_flag=True, help="With --update at a terminal: do not ask.")
@click.option("--init", "drafting", is_flag=True, help="Draft the entries of servers that have no `tools` yet.")
@click.option("--grant", "grants", metavar="RULE", multiple=True, help="With --init: let the server touch this too.")
@click.option(
    "--accept-hidden",
    "accepted",
    metavar="SERVER.NAME",
    multiple=True,
    help="Accept the hidden characters in this definition; you have looked at it.",
)
@secrets_option
@click.option("--workdir", metavar="DIR", type=FILE, help="The value of `${workdir}`.  [default: that of the policy]")
@json_option
@click.pass_context
def command(
    ctx: click.Context,
    words: tuple[str, ...],
    update: bool,
    upgrade: bool,
    yes: bool,
    drafting: bool,
    grants: tuple[str, ...],
    accepted: tuple[str, ...],
    secrets: Path | None,
    workdir: Path | None,
) -> None:
    """Write licet.lock next to a policy: what you reviewed. Every gate and gateway refuses anything else.

    The lock has the digest of each manifest, the digest and source hashes of each tool, the version and hash of each
    installed distribution that tools come from, and for each MCP server its command, what the command resolved to, and
    every definition that the server offers. To take these, each server is started three times behind walls made of its
    own `grants`, without writing; one with a `url` is connected to three times. One that speaks 2026-07-28 is also
    started as clients of 2025 do. MANIFEST is the policy in this
    directory if left out; if it has servers, you must have accepted it with `licet trust`. A lock that exists is never
    replaced without --update. If you have accepted the policy and the lock that was there, the new one is accepted too.

    \b
      licet lock research.yaml
      licet lock --update research.yaml
      licet lock --init files -- npx -y @modelcontextprotocol/server-filesystem '${workdir}'

    \b
    Exit codes:
      0  written, or the lock is as it should be
      1  the lock differs, or the files have errors: nothing was written. Or a server cannot be
         locked: the others are, and it keeps its entry from before, or has none; if no server
         can, nothing was written.
         With --init, the drafts of the servers that answered are written
      2  bad command line
    """
    cmd: tuple[str, ...] = ctx.meta["command"]
    options = Options(workdir, secrets, frozenset(accepted), update or upgrade, upgrade, yes, grants)
    if secrets is not None and (wrong := secrets_file_problem(secrets)):
        expected = "`NAME=value` lines that only their owner can read"
        refuse([Problem(Origin(str(secrets), 1, 1), "a file that is not fit for secrets", expected, wrong)])
    if drafting:
        if options.update or yes:
            raise click.UsageError("--init takes no --update, --upgrade or --yes: it writes no lock", ctx)
        from licet.cli.lock_init import draft_servers

        draft_servers(words, cmd, options)
        return
    if cmd or grants:
        raise click.UsageError("a command after `--`, and --grant, are for --init", ctx)
    _lock(words, options)


def _lock(words: tuple[str, ...], options: Options) -> None:
    named = [Named(FILE.convert(word, None, None)) for word in words] or [named_or_found(None, "MANIFEST...")]
    place = _one_place(named)
    old = _old_lock(place, options)
    files = _with_listed(named, old, place)
    policy = locked_policy([one.path for one in files])
    if policy.problems:
        refuse(list(policy.problems))
    missing = [one for manifest in policy.manifests.values() for one in missing_server_problems(manifest, "error")]
    if missing:
        refuse(missing)
    # A lock that cannot be read is not used, and what takes its place is shown as a whole.
    _require_trust(named, files, policy, options, lock=old is not None or not is_there(place))
    degraded = any(manifest.allow_degraded for manifest in policy.manifests.values())
    before = old.servers if old is not None else {}
    private = (text for manifest in policy.manifests.values() for text in common_ranges(manifest.private))
    setup = lock_setup(named[0].path, options, degraded=degraded, private=tuple(dict.fromkeys(private)))
    found, wrong = take_each(policy.servers, policy.origins, setup, options, before)
    hint = own_secrets_hint(named[0].path, (policy.servers[name] for name in wrong), options)
    if wrong and not found:
        refuse_servers(policy.origins, wrong, hint)
    kept = {name: before[name] for name in wrong if name in before}
    taken = {name: one for name in policy.servers if (one := found.get(name) or kept.get(name)) is not None}
    names = {manifest.gateway_names for manifest in policy.manifests.values()} - {""}
    how = cast("Naming | Literal['']", names.pop() if len(names) == 1 else "")
    new = replace(policy.lock, servers=without_clashes(taken, how))
    new = with_other_platforms(new, old) if old is not None else new
    for line in _notes(new):
        show(line, err=True, colour="yellow")
    changes = [*lock_changes(old or Lock(format=FORMAT), new)]
    changes += renamed(old.servers, new.servers, how) if old is not None else ()
    failed = Failed(policy.origins, wrong, frozenset(kept))
    if not wants_json():
        failed.show()
    if hint:
        show(hint, err=True)
    _finish(place, policy, old, new, changes, options, failed)


class Failed(Struct, frozen=True):
    """The servers that cannot be locked. They keep no other server from it."""

    origins: Mapping[str, Origin]
    wrong: Mapping[str, NotTaken]
    kept: frozenset[str]  # those with an entry from before

    def show(self) -> None:
        """Print why, and what the lock has of them."""
        show_servers(self.origins, self.wrong)
        for name in self.wrong:
            text = "keeps its entry from before" if name in self.kept else "has no entry: nothing of it can be called"
            show(f"the server `{name}` {text}", err=True, colour="yellow")


def _one_place(named: Sequence[Named]) -> Path:
    places = list(dict.fromkeys(lock_place(one.path) for one in named))
    if len(places) > 1:
        listed = " and ".join(str(place.parent) for place in places)
        raise click.UsageError(f"a lock is for the manifests of one directory, and these lie in {listed}")
    return places[0]


def _old_lock(place: Path, options: Options) -> Lock | None:
    try:
        return existing_lock(place)
    except BadLock as wrong:
        if not options.update:
            fix = "`licet lock --update` writes it anew, and shows all of it"
            fail(f"{place}: found {wrong}, expected a lock; {fix}")
        return None


def _with_listed(named: Sequence[Named], old: Lock | None, place: Path) -> list[Named]:
    """The manifests that were named, and those that the lock has: it must not lose any that is still there."""
    known = {os.path.basename(os.path.realpath(one.path)) for one in named}
    listed = [Path(place.parent, name) for name in (old.manifests if old is not None else ()) if name not in known]
    others = [Named(FILE.convert(str(path), None, None), by_hand=False) for path in listed if is_there(path)]
    first = [one for one in named if one.by_hand or not _is_workspace(one.path) or not others]
    return [*first, *others]


def _is_workspace(path: Path) -> bool:
    from licet.policy_files.load import read_policy

    return path.name == WORKSPACE_FILE and read_policy(path).kind == "workspace"


def _require_trust(
    named: Sequence[Named], files: Iterable[Named], policy: LockedPolicy, options: Options, *, lock: bool
) -> None:
    """Start servers only for a policy that was named, or that this user has accepted: its grants are its own choice.

    Its lock too: what that pins is what is installed and started, and the other manifests that it lists have servers.
    """
    known: set[str] = set()
    for one in sorted(files, key=lambda file: not file.by_hand):
        manifest = policy.manifests[os.path.basename(os.path.realpath(one.path))]
        if manifest.servers.keys() - known or (policy.servers and one in named):
            require_trust(one, manifest, lock=lock)
        known |= manifest.servers.keys()


def _notes(lock: Lock) -> Iterable[str]:
    """What a reviewer should know about servers that were taken."""
    for name, server in lock.servers.items():
        for one, why in server.refused.items():
            yield f"{name}: {one} is left out: {why}"
        for version in server.other_versions:
            for one, why in sorted(server.in_version(version).refused.items() - server.refused.items()):
                yield f"{name}: {one} is left out for clients of protocol {version}: {why}"
        for one, texts in server.volatile.items():
            yield f"{name}: {one} changes by itself ({', '.join(texts)}): clients are shown the text of today"


# Writing --------------------------------------------------------------------------------------------------------------


def _finish(
    place: Path, policy: LockedPolicy, old: Lock | None, new: Lock, changes: list[str], options: Options, failed: Failed
) -> None:
    ctx = click.get_current_context()
    shown = shown_path(place)
    if lock_digest(old) == lock_digest(new):  # as they are written: equality in Python takes `true` for `1`
        text = f"{shown} is as it should be: {_counts(new)}"
        _report(shown, new, changes, failed, written=False, text=text)
        ctx.exit(1 if failed.wrong else 0)
    is_broken = old is None and is_there(place)
    if old is not None or is_broken:
        if not wants_json():
            show_lock_changes(changes, LOCK_CHANGES_SHOWN)
        if not options.update:
            text = f"{shown} differs: nothing was written; `licet lock --update` takes what is shown"
            _report(shown, new, changes, failed, written=False, text=text, err=True)
            ctx.exit(1)
        asks = not options.yes and not wants_json() and is_terminal()
        if asks and not click.confirm("take it into the lock?", err=True):
            show("nothing was written", err=True)
            ctx.exit(1)
    write_file(place, write_lock(new).decode(), replace=True)
    entered = _enter(place, policy, old, new, shown_whole=is_broken)
    text = f"wrote {shown}: {_counts(new)}"
    _report(shown, new, changes, failed, written=True, text=text, entered=entered)
    ctx.exit(1 if failed.wrong else 0)


def _enter(place: Path, policy: LockedPolicy, old: Lock | None, new: Lock, *, shown_whole: bool) -> list[str]:
    """Accept the written lock together with each policy that is on the trust list; returns the files of these.

    Where a policy or the lock before was not accepted, accepting is left to `licet trust`, which shows all of it.
    """
    entered = []
    for name, manifest in policy.manifests.items():
        path = place.with_name(name)
        try:
            if os.path.realpath(path) not in trusted_paths():
                continue
            if accept_written_lock(path, manifest, old, new, shown_whole=shown_whole):
                entered.append(shown_path(path))
                continue
            why = "it is not accepted as it is now"
        except (TrustListError, PolicyMoved) as wrong:
            why = str(wrong)
        show(f"{shown_path(path)}: {why}: review and accept it with `licet trust`", err=True, colour="yellow")
    return entered


def is_terminal() -> bool:
    """Whether there is a person to ask."""
    return sys.stdin is not None and sys.stdin.isatty()


def _report(
    shown: str,
    lock: Lock,
    changes: list[str],
    failed: Failed,
    *,
    written: bool,
    text: str,
    err: bool = False,
    entered: Sequence[str] = (),
) -> None:
    def show_outcome(_: object) -> None:
        show(text, err=err)
        show_lines(f"accepted {file} with this lock" for file in entered)

    servers = {
        name: {"tools": one.in_all_versions("tools"), "refused": one.refused} for name, one in lock.servers.items()
    }
    found = {"file": shown, "written": written, "manifests": lock.manifests, "tools": sorted(lock.tools)}
    problems = {"problems": server_problems(failed.origins, failed.wrong)} if failed.wrong else {}
    found = {**found, "servers": servers, "accepted": entered, "changes": changes, **problems}
    print_report(found, show_outcome)


def _counts(lock: Lock) -> str:
    numbers = [(len(lock.manifests), "manifest"), (len(lock.tools), "tool"), (len(lock.servers), "server")]
    offered = sum(len(server.tools) for server in lock.servers.values())
    text = ", ".join(counted(number, noun) for number, noun in numbers if number)
    return f"{text} with {counted(offered, 'tool')}" if lock.servers else text
