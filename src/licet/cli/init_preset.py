"""The policies that `licet init --preset` writes: for programs that are run whole, with `licet run`.

Where `licet init` writes a policy: its obstacles, its schema, its agent, and its place on the trust list.
"""

import os
import re
import shutil
import textwrap
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

import click
from msgspec import Struct
from msgspec.structs import replace

from licet.assemble.acceptance import PolicyMoved, accept_policy
from licet.cli.discovery import PLACES
from licet.cli.options import refuse
from licet.cli.output import (
    is_output,
    is_special,
    problem_document,
    show,
    show_json,
    show_problems,
    write_file,
)
from licet.cli.schema import not_ours, write_schema
from licet.core.algebra.scope import inside
from licet.core.review.sensitive import TRUSTED
from licet.core.values import Origin, Problem
from licet.errors import LicetError
from licet.own_files import is_there, make_way, read_regular
from licet.policy_files.draft import SCHEMA_LINE
from licet.policy_files.limits import MOST_BYTES
from licet.policy_files.load import load_own_manifest
from licet.policy_files.policy_paths import POLICY_DIRECTORY, WORKSPACE_FILE, policy_root
from licet.policy_files.schema import FORMAT


def agent_name(folder: Path) -> str:
    """The name of a directory as the name of an agent."""
    words = re.findall(r"[A-Za-z0-9_.-]+", folder.resolve().name)
    return "-".join(words)[:128] or "agent"


def obstacles(target: Path, force: bool) -> list[Problem]:
    """The reasons why the policy, or the schema next to it, cannot be written."""
    return _file_obstacles(target, force) or _schema_obstacles(_schema_folder(target))


def write_policy(target: Path, text: str, *, replaces: bool = False) -> list[Problem]:
    """Write a policy and the schema next to it, and accept it; warns if it could not be accepted."""
    write_schema("manifest", _schema_folder(target))
    write_file(target, text, replace=replaces)
    return _accept_written(target, text)


def _file_obstacles(target: Path, force: bool) -> list[Problem]:
    origin = Origin(str(target), 1, 1)
    workspace = target.parent / WORKSPACE_FILE
    inside = target.parent.name == POLICY_DIRECTORY  # it is made if it does not exist
    if not (policy_root(target) if inside else target.parent).is_dir():
        return [Problem(origin, f"no directory {target.parent}", "one that exists", "make it first")]
    if is_special(target):  # the schema would be written to /dev as well
        return [Problem(origin, "something that is not a file", "a new file", "-o - only prints")]
    try:
        make_way(target)
    except OSError as wrong:
        return [Problem(origin, "a placeholder for a closed name", "a new file", wrong.strerror or "")]
    if target.exists() and not force:
        return [Problem(origin, "a file that is there already", "a new one", "--force replaces it; -o - only prints")]
    above = policy_root(target) / WORKSPACE_FILE
    if inside and target.name == WORKSPACE_FILE and is_there(above):
        expected = f"none, since commands would find {target} instead"
        hint = f"move it there, or replace it with -o {above} --force; -o - only prints"
        return [Problem(Origin(str(above), 1, 1), "a file that is there already", expected, hint)]
    if target.name != WORKSPACE_FILE and is_there(workspace):
        hint = f"write to {workspace}, or into another directory"
        return [Problem(origin, f"a {WORKSPACE_FILE} next to it, which would be its workspace", "none", hint)]
    return []


def _schema_folder(target: Path) -> Path:
    """The directory of the schema for editors."""
    return policy_root(target) / POLICY_DIRECTORY


def schema_path(target: Path) -> str:
    """The path of the schema, relative to a policy file."""
    name = "manifest.schema.json"
    return name if target.parent.name == POLICY_DIRECTORY else f"{POLICY_DIRECTORY}/{name}"


def _schema_obstacles(folder: Path) -> list[Problem]:
    """The reasons why the schema cannot be written: a project from elsewhere may contain a link in its place."""
    hint = "move it out of the way; -o - only prints the manifest"
    if folder.is_symlink() or (folder.exists() and not folder.is_dir()):
        found = "a link" if folder.is_symlink() else "something that is no directory"
        return [Problem(Origin(str(folder), 1, 1), found, "a directory for the schema, or none", hint)]
    foreign = not_ours("manifest", folder)
    return [replace(foreign, hint=hint)] if foreign else []


def _accept_written(target: Path, text: str) -> list[Problem]:
    """Accept the policy that was just written, since its author has seen it; warn if that cannot be stored."""
    try:
        manifest = load_own_manifest(target)
        if read_regular(target, MOST_BYTES) != text.encode():
            raise PolicyMoved("it was changed at once")
        accept_policy(target, manifest)
    except (LicetError, OSError) as wrong:
        hint = "commands use it where it is named, or once `licet trust` has accepted it"
        return [
            Problem(
                Origin(str(target), 1, 1),
                f"a policy that could not be accepted ({wrong})",
                "one that is",
                hint,
                "warning",
            )
        ]
    return []


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
    from licet.packages.programs import installed_prefixes  # reads packages, which takes long to import
    from licet.sandbox.programs.program_files import SYSTEM

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
