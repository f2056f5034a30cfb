"""`licet hook`: answers one event of a coding agent. `licet hooks install` puts a faster client in its place."""

import asyncio
import os
import sys

import click

from licet.hooks.resident_client import decides, known_name

REFUSED = 2  # what every agent takes for a refusal, if there is text on standard error


@click.command(name="hook")
@click.argument("agent")
@click.argument("event")
def command(agent: str, event: str) -> None:
    """Answer one EVENT of a coding AGENT: its JSON on standard input, the answer in the agent's own dialect.

    Agents call this; `licet hooks install` sets it up. AGENT is claude, codex, gemini, copilot, opencode or cursor, and
    EVENT is what that agent calls it. Nothing on standard output and exit code 0 is no objection. Before a call, every
    error is a refusal.

    \b
      licet hook claude PreToolUse < event.json
      licet hook codex PostToolUse < event.json
    """
    try:
        code = answer(agent, event)
    except click.UsageError:
        raise
    except BaseException as error:  # whatever else happens, a call does not run, and other events stop nobody
        click.echo(f"licet: the hook failed: {type(error).__name__}", err=True)
        code = REFUSED if decides(known_name(agent), event) else 0
    click.get_current_context().exit(code)


def answer(agent: str, event: str) -> int:
    """Read the payload, print the answer, and return the exit code."""
    from licet.hooks.agents import UnknownAgent, agent_named
    from licet.hooks.limits import PAYLOAD_BYTES
    from licet.hooks.resident_hook import start_directory

    try:
        name = agent_named(agent).name
    except UnknownAgent as wrong:
        raise click.UsageError(str(wrong)) from None
    payload = sys.stdin.buffer.read(PAYLOAD_BYTES + 1)

    from licet.sandbox.programs.early_supervisor import supervisor_ahead

    async def run() -> int:
        from licet.hooks.answering import service_alone

        printed = await service_alone().hook(name, event, payload, os.fsdecode(start_directory(name)))
        sys.stdout.buffer.write(printed.output)
        sys.stdout.buffer.flush()
        sys.stderr.buffer.write(printed.errors)
        sys.stderr.buffer.flush()
        return printed.code

    with supervisor_ahead():  # it tests the walls, which the gate asks for, while this process imports and reads
        return asyncio.run(run())
