"""`licet completion`: the script that completes `licet` in a shell."""

import click

from licet.cli.options import json_option
from licet.cli.output import print_report

SHELLS = ("bash", "zsh", "fish")


@click.command(name="completion")
@click.argument("shell", type=click.Choice(SHELLS))
@json_option
@click.pass_context
def command(ctx: click.Context, shell: str) -> None:
    """Print the script that completes `licet` in your shell.

    \b
      bash  eval "$(licet completion bash)"         in ~/.bashrc
      zsh   eval "$(licet completion zsh)"          in ~/.zshrc
      fish  licet completion fish > ~/.config/fish/completions/licet.fish
    """
    from click.shell_completion import ShellComplete, get_completion_class

    completion = get_completion_class(shell)
    if completion is None:  # cannot be for the shells above
        raise click.UsageError(f"no completion for {shell}")
    root = ctx.find_root().command
    # Not the `source` of the subclass: for bash it would start a shell only to read its version.
    script = ShellComplete.source(completion(root, {}, "licet", "_LICET_COMPLETE"))
    print_report({"shell": shell, "script": script}, lambda _: click.echo(script))
