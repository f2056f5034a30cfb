"""`licet hooks`: installs the hooks of coding agents, says what they see and tests them, and removes them."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import click

from licet.assemble.states import State
from licet.cli.options import FILE, STATE, Command, json_option
from licet.cli.output import print_report, show, show_lines
from licet.core.policy.servers import CODING_AGENTS

_NAMES = click.Choice(CODING_AGENTS)


def agent_option(text: str) -> Callable[[Command], Command]:
    """Add `--agent` to a command."""
    return click.option("--agent", "named", type=_NAMES, multiple=True, help=text)


@click.group(name="hooks")
def command() -> None:
    """Put one policy over the coding agents of this machine: Claude Code, Codex, Gemini, Copilot, OpenCode, Cursor.

    Their reads, edits and fetches are decided by the policy of the project, and their shell lines run behind walls.
    What needs a person is asked in the agent where that is safe, and else refused with the command that approves it.

    \b
      licet hooks install                      (shows each edit, and asks)
      licet hooks install --agent claude --yes
      licet hooks status                       (each hook is made to refuse a harmless call)
      licet hooks status --json
      licet hooks state postgresql://hooks@db.example.com/licet
      licet hooks remove

    \b
    Exit codes:
      0  done; or, for status: every hook is installed, reaches this licet, and refuses
      1  nothing was changed, or something is wrong
      2  bad command line
    """


@command.command(name="install")
@agent_option("Install for this agent alone; may be repeated.  [default: all that are on this machine]")
@click.option(
    "--scope",
    type=click.Choice(("user", "project", "managed")),
    help="Where hooks are written.  [default: managed for root and an agent that has it, else user]",
)
@click.option(
    "--policy", metavar="FILE", type=FILE, help="The policy of this project.  [default: the one that is here]"
)
@click.option("--yes", is_flag=True, help="Do not ask. A policy that was there before is not accepted by this.")
@json_option
def install_command(named: tuple[str, ...], scope: Any, policy: Path | None, yes: bool) -> None:
    """Install hooks: shows what is written to each file, and asks; writes a policy where there is none.

    Agents are found by their programs on PATH, and by their settings in your home directory. The policy of this
    directory holds for agents that are started in it or below it; one for every other directory is written too, below
    $XDG_CONFIG_HOME/licet. Rules of yours about shell lines that deny or ask are written into the policy, since an
    agent judges only the line that licet makes of them.

    \b
      licet hooks install
      licet hooks install --agent claude --agent codex --yes
      licet hooks install --scope project --policy strict.yaml
    """
    from licet.cli.hooks_setup import install

    install(named, scope, policy, yes=yes)


@command.command(name="state")
@click.argument("state", metavar="[DIR|ADDRESS]", type=STATE, required=False)
@click.option("--own", is_flag=True, help="Go back to a state directory for each policy.")
@json_option
def state_command(state: State | None, own: bool) -> None:
    """Name the state of all hooks, such as a database that many nodes share; without words, show it.

    Hooks take it from here alone, and never from $LICET_STATE: settings of a project may set variables of an agent. A
    password of the database is in ~/.pgpass.

    \b
      licet hooks state postgresql://hooks@db.example.com/licet
      licet hooks state --own
    """
    from licet.cli.hooks_setup import name_state

    name_state(state, own=own)


@command.command(name="remove")
@agent_option("Remove from this agent alone; may be repeated.  [default: all]")
@click.option("--scope", type=click.Choice(("user", "project", "managed")), help="Remove from there alone.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@json_option
def remove_command(named: tuple[str, ...], scope: Any, yes: bool) -> None:
    """Take out what `licet hooks install` wrote, and nothing else; policies stay.

    A file that nobody has changed since gets its former bytes. Of any other, our entries alone are taken out. With the
    hooks of the last agent, the resident ends with the lines that it runs, and what was kept of sessions is removed.

    \b
      licet hooks remove
      licet hooks remove --agent gemini --yes
    """
    from licet.cli.hooks_setup import remove

    remove(named, scope, yes=yes)


@command.command(name="status")
@agent_option("Look at this agent alone; may be repeated.  [default: all that are on this machine]")
@click.option("--no-canary", is_flag=True, help="Do not make hooks refuse a test call.")
@json_option
def status_command(named: tuple[str, ...], no_canary: bool) -> None:
    """Say what each agent's hook sees, whether it reaches this licet, and what could switch it off.

    Each hook is run once, as its settings say, with a call that no policy allows: a tool that does not exist.

    \b
      licet hooks status
      licet hooks status --agent codex --json
      licet hooks status --no-canary

    \b
    Exit codes:
      0  every hook is installed, reaches this licet, and refuses
      1  an agent has no hooks or something else is wrong, as the last line says
      2  bad command line
    """
    from licet.cli.hooks_setup import directories
    from licet.hooks.answering import client_words
    from licet.hooks.install import find_agents
    from licet.hooks.status import status_of

    here = directories()
    agents = find_agents(here, named)
    found = status_of(agents, here, client_words(), canary=not no_canary)
    wrong = [_why(one) for one in found.agents if not one.is_well] if found.agents else ["no agent is here"]
    wrong += ["no accepted policy holds here" for one in found.policies[:1] if not one.accepted]

    def text(_: object) -> None:
        _show_status(found)
        if wrong:
            alone = "" if named[:1] and not named[1:] else " (`--agent NAME` looks at that agent alone)"
            show(f"exit code 1: {'; '.join(wrong)}{alone}", colour="yellow")

    print_report(found, text)
    click.get_current_context().exit(1 if wrong else 0)


def _why(one: Any) -> str:
    return f"{one.product} {'is not as it should be: see above' if one.installed else 'has no hooks'}"


def _show_status(found: Any) -> None:
    if not found.agents:
        show("no coding agent was found on PATH, and none has settings here", err=True)
    for one in found.agents:
        _show_agent(one)
    for policy in found.policies:
        state = "accepted" if policy.accepted else policy.problem
        show(f"policy of {policy.where}: {policy.policy or 'none'}", colour=None if policy.accepted else "yellow")
        show(f"  {state}")
    if not found.residents:
        show("resident: none runs; the next event starts one")
    for resident in found.residents:
        about = ", ".join(f"{key} {value}" for key, value in resident.items() if key != "name")
        show(f"resident: {about}")


def _show_agent(one: Any) -> None:
    version = f" {one.version}" if one.version else ""
    show(f"{one.product}{version}: {one.program or 'no program on PATH'}  (tried: {', '.join(one.tried)})")
    for place in one.installed:
        points = "this licet" if place.is_this else f"another licet ({' '.join(place.client)})"
        show(f"  hooks    {place.file} ({place.scope}) → {points}", colour=None if place.is_this else "yellow")
        for event in place.missing:
            show(f"           no hook for {event}", colour="yellow")
        show_lines((f"           {what}" for what in place.wrong), colour="yellow")
    if not one.installed:
        show("  hooks    not installed", colour="yellow")
    for canary in one.canaries:
        colour = {"refused": "green", "not seen": "red"}.get(canary.outcome)
        show(f"  canary   {canary.outcome} (by {canary.how}): {canary.why}", colour=colour)
    show_lines((f"  off      {what}" for what in one.switches), colour="red")
    show_lines((f"  problem  {what}" for what in one.problems), colour="yellow")
    show_lines((f"  note     {what}" for what in one.notes), colour="yellow")
    calls = one.calls
    show(f"  decided  {_short(calls.decided)}")
    show(f"  behind walls  {_short(calls.rewritten)}")
    show(f"  refused unless named  {_short(calls.refused)}")
    show(f"  asked    {calls.asked}")
    show_lines(f"  not seen {what}" for what in (*calls.unseen, *calls.unseen_tools))
    if one.runs_after_failure:
        show(f"  a call runs although its hook failed after: {'; '.join(one.runs_after_failure)}", colour="yellow")
        show(f"           walls that do not depend on it: licet run -- {one.program_name}")
        show("           (first name the host and the key of its model in the policy)")
    show("")


def _short(names: Sequence[str], most: int = 12) -> str:
    more = f", and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more if names else "none"
