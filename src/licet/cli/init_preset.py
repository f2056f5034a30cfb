"""The policies that `licet init --preset` writes: for programs that are run whole, with `licet run`.

Where `licet init` writes a policy: its obstacles, its schema, its agent, and its place on the trust list.
"""

import os
import re
import shutil
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import click
from msgspec import Struct
from msgspec.structs import replace

from licet.assemble.acceptance import PolicyMoved, accept_policy
from licet.cli.options import Setting, refuse
from licet.cli.output import is_output, is_special, print_report, show, show_problems, write_file
from licet.cli.schema import not_ours, write_schema
from licet.core.algebra.scope import inside
from licet.core.review.sensitive import INSTRUCTIONS, SWITCHES, TRUSTED, Whereabouts
from licet.core.values import Origin, Problem
from licet.errors import LicetError
from licet.own_files import is_there, make_way, read_regular
from licet.policy_files.draft import CodingNeeds, closable, coding_text
from licet.policy_files.limits import MOST_BYTES
from licet.policy_files.load import load_own_manifest
from licet.policy_files.policy_paths import PLACES, POLICY_DIRECTORY, WORKSPACE_FILE, policy_root
from licet.policy_files.secret_files import SecretFiles, secret_files
from licet.policy_files.trusted_paths import named_by_git


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


def checked(target: Path, known: list[Problem]) -> list[Problem]:
    """What `licet check` says of a policy that was written, and is not `known` yet."""
    from licet.cli.check import problems_of  # loads what reads sources

    found = {(problem.origin.line, problem.found) for problem in known}
    return [one for one in problems_of(target, Setting()) if (one.origin.line, one.found) not in found]


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
    except NotADirectoryError:  # what is in place of the policy directory is named as such
        return _schema_obstacles(target.parent)
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
_GITHUB = ("api.github.com", "*.githubcopilot.com")
_BOTH = tuple(zip(_ANTHROPIC, _OPENAI, strict=True))
AGENTS = (
    CodingAgent("claude", "Claude Code", _ANTHROPIC[:1], _ANTHROPIC[1:], ("~/.claude", "~/.claude.json")),
    CodingAgent("codex", "Codex", _OPENAI[:1], _OPENAI[1:], ("~/.codex",)),
    CodingAgent("gemini", "Gemini CLI", _GOOGLE[:1], _GOOGLE[1:], ("~/.gemini",)),
    CodingAgent("copilot", "Copilot CLI", _GITHUB, ("COPILOT_GITHUB_TOKEN",), ("~/.copilot",)),
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


def coding_policy(
    name: str,
    schema: str,
    agents: Iterable[CodingAgent],
    project: Path,
    tools: Mapping[str, Mapping[str, Any]] | None = None,
    *,
    everywhere: bool = False,
) -> str:
    """A policy under which `licet run -- AGENT` works on one project.

    With `tools` it is for hooks of agents, which reach their models without it: it names neither hosts nor keys of
    models, since every shell line would have them. One that holds `everywhere` is for directories that are not there
    yet, so nothing is left open because it is missing now.
    """
    secrets = SecretFiles((), True) if everywhere else secret_files(os.path.realpath(project))
    found, hooks, root = list(agents), tools is not None, os.path.realpath(project)
    needs = CodingNeeds(
        programs=(*(agent.program for agent in found), *_PROGRAMS),
        hosts=[] if hooks else sorted({host for agent in found for host in agent.hosts}),
        variables=[] if hooks else sorted({key for agent in found for key in agent.keys}),
        settings=[path for agent in found for path in agent.settings],
        interpreters=list(_interpreters(project)),
        packages=list(_packages(found, project)),
        closed=[path for path in closable() if (everywhere and path == _ENV) or _is_closed(project, path)],
        secrets=[path for path in secrets.paths if path != _ENV],
        is_searched=secrets.is_whole,
        everywhere=everywhere,
        led={os.path.relpath(path, root): why for path, why in named_by_git(root, os.path.expanduser("~")).items()},
        tools=tools,
    )
    return coding_text(name, schema, needs)


# What is made, of the names that are closed there or not: what most projects have sooner or later.
_MADE: dict[str, str | None] = {  # with the text of a file; None for a directory
    ".git": None,
    ".vscode": None,
    **{one.path: None for one in SWITCHES if one.is_directory},
    ".opencode/.gitignore": "node_modules\npackage.json\npackage-lock.json\nbun.lock\n.gitignore",  # or it cannot start
    ".mcp.json": '{"mcpServers": {}}\n',
}
# Closed, there or not. The others are made in the course of the work, such as `.venv`, and closed if they are there.
_ALWAYS = {trusted.path for trusted in TRUSTED if trusted.closing == "always"}
_ENV = ".env"  # a policy for any directory closes it always: it is there in many
_INSTRUCTIONS = {trusted.path for trusted in TRUSTED if trusted.why == INSTRUCTIONS}


def _is_closed(project: Path, name: str) -> bool:
    """Whether the policy closes a name."""
    # Were such a link closed, as `CLAUDE.md` often is one, nothing in its directory could be removed.
    if name in _INSTRUCTIONS and os.path.islink(project / name):
        return False
    return name in _ALWAYS or os.path.lexists(project / name)


def make_closed(project: Path) -> list[str]:
    """Make what the policy closes and is missing, empty: a name that exists can be closed for good. Returns the names.

    Without them a program would find empty ones in their place, which `licet run` makes and removes each time.
    """
    made = []
    for name, text in _MADE.items():
        path = project / name
        if os.path.lexists(path) or (path.parent != project and path.parent.is_symlink()):
            continue
        with suppress(OSError, click.ClickException):  # `licet run` does without them
            if text is None:
                path.mkdir(parents=True)
            else:
                write_file(path, text, replace=False)
            made.append(name if text is not None else f"{name}/")
    return made


def _interpreters(project: Path) -> Iterator[str]:
    """The directories of interpreters that nobody could read otherwise, such as those of pyenv, uv and nvm."""
    from licet.packages.programs import installed_prefixes  # reads packages, which takes long to import

    yield from _to_be_named(installed_prefixes(project), project)


def _packages(agents: Iterable[CodingAgent], project: Path) -> Iterator[str]:
    """The directories of npm that hold agents, such as `~/.npm-global/lib/node_modules`.

    An agent of npm is a script that starts files of other packages next to its own.
    """
    from licet.packages.programs import installed_prefixes

    found: dict[str, None] = {}
    for agent in agents:
        file = os.path.realpath(shutil.which(agent.program) or "")
        above, name, _ = file.partition("/node_modules/")
        if name and not inside(file, installed_prefixes(project)):
            found[f"{above}/node_modules"] = None
    yield from _to_be_named(found, project)


def _to_be_named(directories: Iterable[str], project: Path) -> Iterator[str]:
    """Those of some directories that a rule must name, and may: neither readable anyway, nor around what is private."""
    from licet.sandbox.programs.program_files import SYSTEM

    home, root = os.path.expanduser("~"), os.path.abspath(project)
    for directory in directories:
        is_wide = inside(home, (directory,)) or inside(root, (directory,))
        if is_wide or inside(directory, (root, *SYSTEM)) or not _PLAIN.fullmatch(directory):
            continue
        yield Whereabouts("", home).short(directory)


_PLAIN = re.compile(r"[\w/.+@, -]+")  # in a rule, other signs may have a meaning of their own


def write_preset(target: Path, agent: str | None, force: bool) -> None:
    """Write the policy of a coding agent."""
    name, agents = agent or agent_name(policy_root(target)), installed_agents()
    text = coding_policy(name, schema_path(target), agents, policy_root(target))
    printing = is_output(target)
    problems = [] if printing else obstacles(target, force)
    if problems:
        refuse(problems)
    if not printing:
        problems += write_policy(target, text, replaces=force)
    made = [] if printing else make_closed(policy_root(target))
    problems += [] if printing else checked(target, problems)
    found = {"file": None if printing else target, "manifest": text, "made": made, "problems": problems}
    if printing:
        print_report(found, lambda _: click.echo(text, nl=False))
    else:
        print_report(found, lambda _: _show_written(target, agents, made, problems))


def _show_written(target: Path, agents: list[CodingAgent], made: list[str], problems: list[Problem]) -> None:
    show_problems(problems, err=True)
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
