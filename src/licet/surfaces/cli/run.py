"""`licet run`: any command under a manifest, behind walls, with this terminal's input and output."""

import sys
import threading
from pathlib import Path

import click

from licet.assemble.program import UnknownTool, program_gate
from licet.assemble.running import run, state_directory
from licet.core.scope import Malformed
from licet.errors import ManifestError, RegistrationRefused
from licet.guard.ports import Finished
from licet.guard.result import Result
from licet.sandbox import probe
from licet.surfaces.cli.call import result_document, show_refusal, sound_manifest
from licet.surfaces.cli.json_text import json_text
from licet.surfaces.cli.options import FILE, Setting, json_option, setting_options
from licet.surfaces.cli.show import show

REFUSED = 125
LATE = 124  # as `timeout` says it


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
        gate = program_gate(policy, state_directory(manifest.parent), ended, name=name, workdir=workdir)
    except UnknownTool as wrong:
        raise click.BadParameter(str(wrong), ctx, param_hint="--tool") from None
    except click.exceptions.Exit:  # what is wrong with the files has been shown
        ctx.exit(REFUSED)
    except (ManifestError, RegistrationRefused, Malformed) as wrong:
        show(str(wrong), err=True, colour="red")
        ctx.exit(REFUSED)
    result = run(gate, gate.tools[0].name, {"command": words})
    ctx.exit(_tell(result, ended, as_json))


def _tell(result: Result, ended: list[Finished], as_json: bool) -> int:
    """Say on stderr what has to be said, and find the exit code; stdout is the program's."""
    late = (bool(ended) and ended[-1].timed_out) or result.reason == "LIMIT_TIME"
    code = LATE if late else _code(ended[-1].returncode) if ended and result.ok else REFUSED
    limit = ended[-1].limit if ended else ""
    if as_json:
        sys.stdout.flush()
        told = {"exit_code": code, "timed_out": late, "limit": limit or None}
        click.echo(json_text({**result_document(result), **told}), err=True)
    elif late:
        show("licet: the command ran for longer than its limit, and was ended", err=True, colour="red")
    elif not result.ok:
        show_refusal(result)
    elif limit:
        show(f"licet: the command ended at a limit of the manifest: {limit}", err=True, colour="red")
    return code


def _code(returncode: int) -> int:
    return returncode if returncode >= 0 else 128 - returncode
