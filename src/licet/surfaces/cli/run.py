"""`licet run`: any command under a manifest, behind walls, with this terminal's input and output.

One program under a manifest: the gate around it, and how its end is told. What `licet run` does with its words.

What `licet run` takes an interpreter of its own for, started before all that it takes to read the command line.

It loads beside us: it tries out the walls, and then waits for the program that it is to supervise.
"""

import json
import os
import signal
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn

import click

from licet import sandbox
from licet.assemble.gate import run, state_directory, state_option
from licet.assemble.program import UnknownTool, program_gate
from licet.core.algebra.scope import Malformed, visible
from licet.core.decision.decision import CapabilityDenied
from licet.core.decision.reach import Reach
from licet.core.policy.manifest import POLICY
from licet.errors import ManifestError, Refused, RegistrationRefused
from licet.guard.execution import Finished, limit_name
from licet.guard.handles.files import held_paths
from licet.guard.result import Result
from licet.policy_files.policy_paths import policy_root
from licet.sandbox.programs.attached import AttachedStreams
from licet.sandbox.programs.supervisor_client import Supervisor, start_early
from licet.surfaces.cli.discovery import NOTHING_HERE, Named, check_setting, find_policy, require_trust
from licet.surfaces.cli.options import FILE, Setting, json_option, setting_options, sound_manifest
from licet.surfaces.cli.output import fail, result_document, show, show_refusal


class _Split(click.Command):
    """A command whose own words end at `--`; what follows is not ours to read."""

    def collect_usage_pieces(self, ctx: click.Context) -> list[str]:
        """The words of the usage line."""
        return ["[OPTIONS]", "[MANIFEST]", "--", "CMD..."]

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Read our own words, and keep the rest."""
        place = args.index("--") if "--" in args else len(args)
        ctx.meta["command"] = args[place + 1 :]
        return super().parse_args(ctx, args[:place])


@click.command(name="run", cls=_Split)
@click.argument("manifest", type=FILE, required=False)
@click.option("--tool", "name", metavar="NAME", help="Hold only what this tool of the manifest holds.")
@setting_options
@json_option
@click.pass_context
def command(
    ctx: click.Context,
    manifest: Path | None,
    name: str | None,
    setting: Setting,
    as_json: bool,
) -> None:
    """Run any command under a manifest: it reaches what the manifest allows, and nothing else.

    Whatever it starts is behind the same walls. The manifest must allow the program itself, under
    `process.allowed_binaries`. Requests go through a proxy that checks each one; nothing else leads to the network.
    MANIFEST is the policy in this directory if left out: .licet/licet.yaml, or licet.yaml, once you have accepted it
    with `licet trust`.

    \b
      licet run agent.yaml -- git log --oneline
      licet run agent.yaml --tool fetch_weather -- curl -sS http://api.weather.gov
      licet run -- make test                      (with the policy of this directory)

    \b
    Exit codes:
      that of CMD, or 128 and the number of the signal that ended it
      124  it ran for longer than the manifest's `wall_seconds`
      125  refused, or the files are wrong; CMD was not run
      2    a command line that makes no sense
    """
    words: list[str] = ctx.meta["command"]
    if not words:
        raise click.UsageError("expected a command after `--`, such as `licet run agent.yaml -- git log`", ctx)
    with supervisor() as ready:
        from licet.sandbox import probe

        if ready is not None:
            probe.expect(ready.tried)
        code = run_program(ctx, manifest, name, setting, words, as_json, ready)
    ctx.exit(code)


REFUSED = 125
MOST_TOLD = 10  # refusals that are told when a program has ended
UNWRITTEN = 1  # where the command itself has ended well
LATE = 124  # as `timeout` says it


def run_program(
    ctx: click.Context,
    manifest: Path | None,
    name: str | None,
    setting: Setting,
    words: list[str],
    as_json: bool,
    ready: Supervisor | None,
) -> int:
    """Run a program with what the manifest allows, or with what a tool of it holds: the exit code of the command."""
    try:
        named = _named(manifest, as_json)
        check_setting(named, setting)
        policy = sound_manifest(named.path, setting, as_json)
        require_trust(named, policy, as_json)
        ended: list[Finished] = []
        held: set[str] = set()
        state = state_directory(policy_root(named.path))
        attached = AttachedStreams()
        gate = program_gate(
            policy, state, ended, name=name, attached=attached, workdir=setting.workdir, ready=ready, held=held
        )
    except UnknownTool as wrong:
        raise click.BadParameter(str(wrong), ctx, param_hint="--tool") from None
    except click.exceptions.Exit:  # what is wrong with the files has been shown
        return REFUSED
    except Refused as wrong:  # the lock next to the policy holds another digest
        show(wrong.explain(), err=True, colour="red")
        return REFUSED
    except (ManifestError, RegistrationRefused, Malformed) as wrong:
        show(str(wrong), err=True, colour="red")
        return REFUSED
    tool = gate.tools[0].name
    in_time = False
    before = signal.signal(signal.SIGTERM, _terminated)
    try:
        result = run(gate, tool, {"command": words})
        in_time = not (result.reason == "LIMIT_TIME" or (ended and ended[-1].timed_out))
    finally:
        attached.finish(wait=in_time)
        signal.signal(signal.SIGTERM, before)
    code = _tell(result, ended, gate.policy.tools[tool].seconds, state_option(state), attached.lost, as_json)
    if code and result.ok and not as_json:
        degraded = bool(result.programs and result.programs.missing)
        _show_hints(_hints(gate.policy.tools[tool].reach, held, degraded=degraded))
    return code


def _named(manifest: Path | None, as_json: bool) -> Named:
    """The manifest, or the policy of this directory; the command ends if there is neither: CMD is not run."""
    if manifest is not None:
        return Named(manifest)
    found = find_policy()
    if found is None:
        fail(f"licet: {NOTHING_HERE}", as_json)
    return Named(found, by_hand=False)


def _terminated(number: int, _: object) -> NoReturn:
    """End in order: the command is ended, its receipt is written, and the terminal is left as it was."""
    raise SystemExit(128 + number)


def _tell(result: Result, ended: list[Finished], seconds: float, state: str, lost: str | None, as_json: bool) -> int:
    """Say on stderr what has to be said, and find the exit code; stdout is the program's.

    `lost` says which of its output could not be passed on.
    """
    late = (bool(ended) and ended[-1].timed_out) or result.reason == "LIMIT_TIME"
    code = LATE if late else _code(ended[-1].exit_code) if ended and result.ok else REFUSED
    code = code or (UNWRITTEN if lost else 0)
    limit = ended[-1].reason if ended else ""
    if as_json:
        sys.stdout.flush()
        told = {"exit_code": code, "timed_out": late, "limit": limit or None, "lost": lost}
        click.echo(json.dumps({**result_document(result), **told}, indent=2), err=True)
    elif late:
        text = f"licet: the command ran for longer than {seconds:g} s (`limits.wall_seconds`), and was ended"
        show(text, err=True, colour="red")
    elif not result.ok:
        show_refusal(result, state)
    elif limit:
        text = f"licet: the command ended at a limit of the manifest: {limit}, {limit_name(limit)}"
        show(text, err=True, colour="red")
    if lost and not as_json:
        show(f"licet: {lost}", err=True, colour="red")
    if result.ok and not as_json:
        _tell_refusals(result, state)
    return code


def _tell_refusals(result: Result, state: str) -> None:
    """What the proxy refused while the program ran: that makes of it what it likes, and often says nothing."""
    refused = (event for event in result.events if isinstance(event, CapabilityDenied))
    told = list(dict.fromkeys(f"licet: refused {event.capability}: {event.rule}" for event in refused))
    for line in told[:MOST_TOLD]:
        show(visible(line), err=True, colour="red")
    if told:
        more = f"{len(told) - MOST_TOLD} more, and " if len(told) > MOST_TOLD else ""
        show(f"licet: {more}all that was checked: licet receipts show {result.receipt}{state}", err=True)


def _hints(reach: Reach | None, held: set[str], *, degraded: bool) -> Iterator[str]:
    """What walls of this call may have made a program fail, which itself says only that it was not permitted."""
    if reach is None or reach.effect in (None, "read_only"):
        return
    # Most programs fail for reasons of their own: only a person is told this, and not each line of a log.
    watched = sys.stderr is not None and sys.stderr.isatty()
    if watched and reach.effect != "destructive" and held_paths(reach.grant).allowed("write"):
        yield f"programs of class {reach.effect} neither rename nor delete files; `git` and `sed -i` need destructive"
    if held:
        more = f" and {len(held) - MOST_TOLD} more" if len(held) > MOST_TOLD else ""
        names = ", ".join(f"`{visible(path)}`" for path in sorted(held)[:MOST_TOLD])
        yield f"closed files lie in {names}{more}: moves and hard links into or out of there fail, copies do not"
    yield from _without_new_names(reach, degraded=degraded)


def _without_new_names(reach: Reach, *, degraded: bool) -> Iterator[str]:
    """The directories in which the program could make no new names."""
    rules = (rule for layer in reach.layers if layer.kind == "policy files" for rule in layer.denies)
    # A private root lays a mount over a closed name, if there is something under that name.
    missing = {rule.capability.key for rule in rules if rule.key == POLICY and not os.path.lexists(rule.capability.key)}
    found = [
        directory
        for directory in held_paths(reach.grant).directories_with_closed_names()
        if degraded or directory in map(os.path.dirname, missing)
    ]
    for directory in found[:MOST_TOLD]:
        why = "without namespaces, and with closed names in it" if degraded else "for policy could be planted in it"
        way = "write below it, or through a tool with `ctx.fs`" if degraded else "keep policy in .licet/ to change that"
        yield f"no new names can be made directly in `{visible(directory)}`, {why}: {way}"


def _show_hints(hints: Iterable[str]) -> None:
    for number, hint in enumerate(hints):
        if not number:
            show("licet: if the command failed because something was not permitted:", err=True)
        show(f"  - {hint}", err=True)


def _code(returncode: int) -> int:
    return returncode if returncode >= 0 else 128 - returncode


_begun: list[Supervisor | None] = []


def begin() -> None:
    """Start it; whoever is next to enter `supervisor` has it."""
    _fill_streams()
    _begun.append(start_early(os.path.dirname(os.path.abspath(sandbox.__file__))))


@contextmanager
def supervisor() -> Iterator[Supervisor | None]:
    """The one that was started; None where there can be none, which the first program then hears."""
    if not _begun:
        begin()
    started = _begun.pop()
    try:
        yield started
    finally:
        if started is not None:
            started.discard()


def _fill_streams() -> None:
    """Put an empty pipe where a stream is closed: what is opened next would have its number, and be the command's."""
    for stream in (0, 1, 2):
        try:
            os.fstat(stream)
        except OSError:
            ends = reading, writing = os.pipe()
            os.dup2(writing if stream else reading, stream)
            for end in ends:
                if end != stream:
                    os.close(end)
