"""`licet run`: any command under a manifest, behind walls, with this terminal's input and output."""

import sys
import threading
from collections.abc import Awaitable
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import click

from licet.assemble.running import Backends, Gate, imported_tools, run, state_directory
from licet.backends.http import HttpClient
from licet.backends.processes import LocalProcesses
from licet.core.effects import Level
from licet.core.manifest import Manifest, Seat
from licet.core.scope import Malformed
from licet.core.tool import ToolSpec
from licet.declare import Context, Tool, tool
from licet.errors import ManifestError, RegistrationRefused
from licet.guard.ports import Command, Finished, SandboxUnavailable, ToolCall, Walls
from licet.guard.result import Result
from licet.sandbox import probe
from licet.sandbox.walls import ProgramWalls
from licet.surfaces.cli.call import result_document, sound_manifest
from licet.surfaces.cli.json_text import json_text
from licet.surfaces.cli.options import FILE, Setting, json_option, setting_options
from licet.surfaces.cli.show import show

REFUSED = 125
LATE = 124  # as `timeout` says it
_NAME = "run"
_EVERYTHING = ("fs:*:*", "network:*:*", "process:exec:*", "env:read:*")


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
@click.argument("manifest", type=FILE, default=Path("licet.yaml"))
@click.option("--tool", "name", metavar="NAME", help="Hold only what this tool of the manifest holds.")
@setting_options
@json_option
@click.pass_context
def command(
    ctx: click.Context,
    manifest: Path,
    name: str | None,
    workspace: Path | None,
    personality: Path | None,
    workdir: Path | None,
    as_json: bool,
) -> None:
    """Run any command under a manifest: it reaches what the manifest allows, and nothing else.

    Whatever it starts is behind the same walls. The manifest must allow the program itself, under
    `process.allowed_binaries`. Requests go through a proxy that checks each one; nothing else leads to the network.

    \b
      licet run agent.yaml -- git status
      licet run agent.yaml --tool fetch_weather -- curl -sS http://api.weather.gov
      licet run -- make test                      (with the `licet.yaml` that is here)

    \b
    Exit codes:
      that of CMD, or 128 and the number of the signal that ended it
      124  it ran for longer than the manifest's `wall_seconds`
      125  refused, or the files are wrong; CMD was not run
      2    a command line that makes no sense
    """
    words: list[str] = ctx.meta["command"]
    if not words:
        raise click.UsageError("expected a command after `--`, such as `licet run agent.yaml -- git status`", ctx)
    threading.Thread(target=probe.support, daemon=True).start()  # walls are tried out while the manifest is read
    try:
        policy = sound_manifest(manifest, Setting(workspace, personality, workdir), as_json)
        ended: list[Finished] = []
        gate = _gate(policy, name, workdir, manifest, _Attached(ended))
    except click.exceptions.Exit:  # what is wrong with the files has been shown
        ctx.exit(REFUSED)
    except (ManifestError, RegistrationRefused, Malformed) as wrong:
        show(str(wrong), err=True, colour="red")
        ctx.exit(REFUSED)
    result = run(gate, name or _NAME, {"command": words})
    ctx.exit(_tell(result, ended, as_json))


def _tell(result: Result, ended: list[Finished], as_json: bool) -> int:
    """Say on stderr what has to be said, and find the exit code; stdout is the program's."""
    late = (bool(ended) and ended[-1].timed_out) or result.reason == "LIMIT_TIME"
    code = LATE if late else _code(ended[-1].returncode) if ended and result.ok else REFUSED
    if as_json:
        sys.stdout.flush()
        click.echo(json_text({**result_document(result), "exit_code": code, "timed_out": late}), err=True)
    elif late:
        show("licet: the command ran for longer than its limit, and was ended", err=True, colour="red")
    elif not result.ok:
        first, *rest = result.explain().splitlines()
        show(first, err=True, colour="red")
        for line in rest:
            show(line, err=True)
    return code


def _code(returncode: int) -> int:
    return returncode if returncode >= 0 else 128 - returncode


class _Attached(LocalProcesses):
    """Programs with the input and output of this process."""

    def __init__(self, ended: list[Finished]) -> None:
        super().__init__()
        self._ended = ended

    async def run(self, command: Command, walls: Walls) -> Finished:
        """Run a program, and remember how it ended."""
        finished = await self.run_attached(command, walls)
        self._ended.append(finished)
        return finished


class _Here:
    """Runs one function of licet itself, which does nothing but start a program; the program is behind walls."""

    def __init__(self, programs: ProgramWalls) -> None:
        self._programs = programs

    def layers(self, level: Level) -> tuple[str, ...]:
        """What is in force around the program."""
        return self._programs.layers()

    def walls(self, held: Any) -> Walls:
        """The walls of the program."""
        return self._programs.walls(held)

    def run(self, level: Level, call: ToolCall, context: Any) -> Awaitable[Any]:
        """Start the program."""
        if call.tool.fn is not _program:
            raise SandboxUnavailable("only programs are run here")
        work: Awaitable[Any] = _program(context, **call.arguments)
        return work


async def _program(ctx: Context, command: list[str]) -> int:
    """A command, with the input and output of the terminal."""
    program, *arguments = command
    ended = await ctx.process.spawn(program, arguments)
    return ended.returncode


def _gate(policy: Manifest, name: str | None, workdir: Path | None, path: Path, programs: LocalProcesses) -> Gate:
    http = HttpClient()
    state, sandbox = state_directory(path.parent), _Here(ProgramWalls(http))
    backends = Backends.local(state, http=http, processes=programs, sandbox=sandbox)
    template = tool(needs=_EVERYTHING, name=_NAME, effect=policy.max_effect, sandbox="isolated")(_program)
    if name is None:
        seats = MappingProxyType({**policy.seats, _NAME: (Seat(policy.origin),)})
        policy = replace(policy, seats=seats, loaded=policy.loaded or policy)
        return Gate(policy, [template], backends, workdir=workdir)
    spec = _spec(policy, name)
    own = Tool(_program, replace(spec, schema=template.spec.schema))
    return Gate(policy, [own], backends, workdir=workdir)


def _spec(policy: Manifest, name: str) -> ToolSpec:
    """What the manifest or the source of a tool declares about it."""
    for known in imported_tools(replace(policy, sources=_only(policy, name))):
        return known.spec
    if name in policy.tools:
        return policy.tools[name]
    raise click.BadParameter(f"the manifest knows no tool `{name}`", param_hint="--tool")


def _only(policy: Manifest, name: str) -> MappingProxyType[str, Any]:
    return MappingProxyType({name: policy.sources[name]} if name in policy.sources else {})
