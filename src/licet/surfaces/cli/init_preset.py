"""The policies that `licet init --preset` writes: for programs that are run whole, with `licet run`."""

import os
import re
import shutil
import textwrap
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

import click
from msgspec import Struct

from licet.core.algebra.scope import inside
from licet.core.review.trusted import TRUSTED
from licet.policy_files.policy_paths import policy_root
from licet.policy_files.schema import FORMAT
from licet.surfaces.cli.discovery import PLACES
from licet.surfaces.cli.init_manifest import SCHEMA_LINE
from licet.surfaces.cli.init_target import agent_name, obstacles, schema_path, write_policy
from licet.surfaces.cli.options import refuse
from licet.surfaces.cli.output import is_output, problem_document, show, show_json, show_problems, write_file

PRESETS = ("coding",)


class CodingAgent(Struct, frozen=True):
    """A coding agent: its program and name, the hosts and keys of its models, and where it keeps its settings."""

    program: str
    name: str
    hosts: tuple[str, ...]
    keys: tuple[str, ...]  # environment variables
    settings: tuple[str, ...]


_ANTHROPIC, _OPENAI = ("api.anthropic.com", "ANTHROPIC_API_KEY"), ("api.openai.com", "OPENAI_API_KEY")
_GOOGLE = ("generativelanguage.googleapis.com", "GEMINI_API_KEY")
_BOTH = tuple(zip(_ANTHROPIC, _OPENAI, strict=True))
AGENTS = (
    CodingAgent("claude", "Claude Code", _ANTHROPIC[:1], _ANTHROPIC[1:], ("~/.claude", "~/.claude.json")),
    CodingAgent("codex", "Codex", _OPENAI[:1], _OPENAI[1:], ("~/.codex",)),
    CodingAgent("gemini", "Gemini CLI", _GOOGLE[:1], _GOOGLE[1:], ("~/.gemini",)),
    CodingAgent("aider", "Aider", _BOTH[0], _BOTH[1], ("~/.aider",)),
    CodingAgent("opencode", "OpenCode", _BOTH[0], _BOTH[1], ("~/.config/opencode",)),
)
_PROGRAMS = (
    *("sh", "bash", "git", "make", "cmake", "python3", "python", "pip", "uv", "pytest", "node", "npm", "npx", "cargo"),
    *("go", "ls", "cat", "grep", "rg", "find", "sed"),
)


def installed_agents() -> list[CodingAgent]:
    """The coding agents that are on the PATH."""
    return [agent for agent in AGENTS if shutil.which(agent.program)]


def coding_policy(name: str, schema: str, agents: Iterable[CodingAgent], project: Path) -> str:
    """A policy under which `licet run -- AGENT` works on one project."""
    found = list(agents)
    hosts = sorted({host for agent in found for host in agent.hosts})
    lines = [
        SCHEMA_LINE.format(schema),
        "#",
        "# Written by `licet init --preset coding`: for a coding agent that works in this directory.",
        "#   licet trust             (once, at a terminal: so that it may rename and delete files in the project)",
        "#   licet run -- AGENT",
        "# The agent and all that it starts are behind walls. They see this project, an empty home directory, and",
        "# what programs need to run; of your other files, your variables and the network they see nothing.",
        "# What it writes into the project is yours to review before you run it: docs/how-to/coding-agent.md.",
        "",
        f"licet: {FORMAT}  # the format of this file",
        f"agent: {name}",
        "",
        "capabilities:",
        "  tools: []  # programs are run with `licet run`; this agent has no tools of its own",
        "  max_side_effect_class: full",
        "",
        "  fs_reach:",
        "    read:",
        '      - "${workdir}"',
        *_interpreters(project),
        "    write:",
        '      - "${workdir}"',
        *_settings(found),
        "",
        *_denied(project),
        "",
        "  process:",
        "    # Programs that you may start with `licet run`. What these start in turn is behind the same walls:",
        "    # `licet run -- sh -c …` starts anything that can be read.",
        "    allowed_binaries:",
        *(f"      - {program}" for program in (*(agent.program for agent in found), *_PROGRAMS)),
        "",
        "  destinations:",
        "    # Hosts that may be connected to. Package registries and the host of your repository are not among them.",
        *_hosts(hosts),
        "",
        "  # Variables of yours that the agent sees, such as the key of its model. All others are hidden. `licet run`",
        "  # adds those that lead to its proxy, the only way to the network. Node uses it from version 22.21 on.",
        *_variables(found),
        "",
        "  # Nobody is asked about writes, since you have accepted this file. Agents and builds rename and delete",
        "  # files all the time: you agree to that in `licet trust`, for 30 days; without it you are asked once.",
        "  approvals: {write: manifest, delete: manifest, expires_seconds: 3600}",
        "  budget: {max_calls_per_day: 10000}  # starts of `licet run`; class full needs a limit",
        "",
        "  # A build and an agent fit into these. Time is not limited. Memory is that of each process.",
        "  limits: {memory_mb: 8192, processes: 4096, open_files: 65536, file_mb: 65536, scratch_mb: 4096}",
    ]
    return "\n".join(lines) + "\n"


_CHANGES = ("write", "delete")
_CLOSED = ((".env", ("*",), "it often holds passwords"), *((one.path, _CHANGES, one.why) for one in TRUSTED))
# What programs of yours act on without a question, and what an agent has no need to make: closed, there or not. The
# others are often made in the course of the work, such as `.venv` or the files of CI.
_MADE: dict[str, str | None] = {  # with the text of a file; None for a directory
    ".git": None,
    ".claude": None,
    ".codex": None,
    ".gemini": None,
    ".opencode": None,
    ".cursor": None,
    ".vscode": None,
    ".mcp.json": '{"mcpServers": {}}\n',
}


def _denied(project: Path) -> Iterator[str]:
    """What the agent may not read, or not change."""
    closed = [entry for entry in _CLOSED if entry[0] in _MADE or os.path.lexists(project / entry[0])]
    left = [path for path, _, _ in _CLOSED if path not in {entry[0] for entry in closed}]
    yield "  # What the agent may not read, or not change. Add what is here and not for a model."
    yield from _wrapped("Not here, and left open; to be denied once they are there and you rely on them:", left)
    yield "  deny:"
    for path, actions, why in closed:
        for action in actions:
            yield f'    - "fs:{action}:${{workdir}}/{path}"  # {why}'


def make_closed(project: Path) -> list[str]:
    """Make what the policy closes and is missing, empty: a name that exists can be closed for good. Returns the names.

    Without them a program would find empty ones in their place, which `licet run` makes and removes each time.
    """
    made = []
    for name, text in _MADE.items():
        path = project / name
        if os.path.lexists(path):
            continue
        with suppress(OSError, click.ClickException):  # `licet run` does without them
            if text is None:
                path.mkdir()
            else:
                write_file(path, text, replace=False)
            made.append(name if text is not None else f"{name}/")
    return made


def _wrapped(opening: str, names: Iterable[str]) -> Iterator[str]:
    text = f"{opening} {', '.join(f'`{name}`' for name in names)}."
    yield from textwrap.wrap(text, 116, initial_indent="  # ", subsequent_indent="  # ", break_on_hyphens=False)


def _settings(agents: list[CodingAgent]) -> Iterator[str]:
    paths = [f"`{path}`" for agent in agents for path in agent.settings]
    if paths:
        yield "    # To let it use your login and settings, add HOME to `env` below and its directory to both lists:"
        yield f"    # {', '.join(paths)}."
        yield "    # Whatever it writes there can make your next session outside of these walls start programs."


def _interpreters(project: Path) -> Iterator[str]:
    """Lines for interpreters that nobody could read otherwise, such as those of pyenv, uv and nvm."""
    from licet.backends.packages.programs import installed_prefixes  # reads packages, which takes long to import
    from licet.sandbox.programs.files import SYSTEM

    home, root = os.path.expanduser("~"), os.path.abspath(project)
    for prefix in installed_prefixes(project):
        is_wide = inside(home, (prefix,)) or inside(root, (prefix,))
        if is_wide or inside(prefix, (root, *SYSTEM)) or not _PLAIN.fullmatch(prefix):
            continue
        shown = f"~{prefix[len(home) :]}" if inside(prefix, (home,)) else prefix
        yield f'      - "{shown}"  # an interpreter that programs here start'


_PLAIN = re.compile(r"[\w/.+@, -]+")  # in a rule, other signs may have a meaning of their own


def _hosts(hosts: list[str]) -> Iterator[str]:
    if not hosts:
        yield "    # Add the host of the model, such as `- api.anthropic.com`."
        yield "    allow: []"
        return
    yield "    allow:"
    yield from (f"      - {host}" for host in hosts)


def _variables(agents: list[CodingAgent]) -> Iterator[str]:
    wanted = sorted({key for agent in agents for key in agent.keys})
    yield f"  env: [{', '.join(['TERM', 'LANG', 'PATH', *wanted])}]"


def write_preset(target: Path, agent: str | None, force: bool, as_json: bool) -> None:
    """Write the policy of a coding agent."""
    name, agents = agent or agent_name(policy_root(target)), installed_agents()
    text = coding_policy(name, schema_path(target), agents, policy_root(target))
    printing = is_output(target)
    problems = [] if printing else obstacles(target, force)
    if problems:
        refuse(problems, as_json)
    if not printing:
        problems += write_policy(target, text, replaces=force)
    made = [] if printing else make_closed(policy_root(target))
    if as_json:
        warnings = [problem_document(problem) for problem in problems]
        show_json({"file": None if printing else str(target), "manifest": text, "made": made, "problems": warnings})
        return
    show_problems(problems, err=True)
    if printing:
        click.echo(text, nl=False)
        return
    program = agents[0].program if agents else "AGENT"
    show(f"wrote {target}{' for ' + ', '.join(one.name for one in agents) if agents else ''}: read it, and adapt it")
    if made:
        show(f"made, empty, because they are closed to the agent: {', '.join(made)}")
    named = "" if target in PLACES else f" {target}"
    show(f"next: licet trust{named}  (once, at a terminal: agree to renames and deletes in the project, for 30 days)")
    show(f"      licet run{named} -- {program}")
    show(
        "an agent that is not under `allowed_binaries` is refused: add its program there, its host under `destinations`"
    )
    show("and the name of its key under `env`, and accept the policy again with `licet trust`")
