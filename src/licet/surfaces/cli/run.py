"""`licet run`: any command under a manifest, behind walls, with this terminal's input and output."""

from pathlib import Path

import click

from licet.surfaces.cli import ahead
from licet.surfaces.cli.options import FILE, Setting, json_option, setting_options


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
    with ahead.supervisor() as ready:
        from licet.sandbox import probe
        from licet.surfaces.cli.one_program import run_program

        if ready is not None:
            probe.expect(ready.tried)
        code = run_program(ctx, manifest, name, setting, words, as_json, ready)
    ctx.exit(code)
