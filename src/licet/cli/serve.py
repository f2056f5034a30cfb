"""`licet serve`: the tools of a workspace as an MCP server over stdio."""

from pathlib import Path

import click

from licet.assemble.states import State
from licet.cli.gateway import serve, served_policy, serving_options
from licet.cli.options import Setting
from licet.cli.output import fail
from licet.core.policy.manifest import Manifest
from licet.declare import Tool
from licet.errors import LicetError


@click.command(name="serve")
@serving_options
def command(
    manifest: Path | None,
    session: str | None,
    task: str,
    state: State | None,
    accepted: bool,
    secrets: Path | None,
    setting: Setting,
) -> None:
    """Offer the tools that MANIFEST admits as an MCP server, over standard input and output.

    The tools are those of `tools: {NAME: {from: …}}`. Each call is checked, runs behind the walls of its tool, and is
    recorded, as with `licet call`. A change of the policy is in force once a start would take it; until then every call
    is refused. Reports go to standard error. One connection is one session. `${workdir}` is the
    directory of the policy, unless --workdir names another.

    Under a policy with `flow:`, --task is what the user asked for, if who starts this knows it. A session that
    --session names counts as resumed: it may have read all kinds of text before.

    \b
      licet serve research.yaml
      licet serve research.yaml --task "Send the notes to dora@example.com"
    """
    policy, place, setting, source = served_policy(manifest, state, setting, accepted=accepted)
    from licet.assemble.importing import LoadedFiles, imported_tools

    loaded = LoadedFiles()

    def tools_of(policy: Manifest) -> list[Tool]:
        tools = imported_tools(policy, loaded)
        if not tools:
            raise NoTools(f"{policy.origin.file}: no tool here has a function: name one with `from:` under `tools`")
        return tools

    try:
        tools = tools_of(policy)
    except NoTools as error:
        fail(str(error))
    serve(policy, place, "whole", session, secrets, setting, source, tools, tools_of, task=task)


class NoTools(LicetError):
    """There is nothing to serve."""
