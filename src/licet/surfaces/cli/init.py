"""`licet init`: writes a manifest for the tools in source files, with nothing more than they declare.

Nothing is imported.
"""

import os
import re
import shlex
from pathlib import Path
from typing import NoReturn

import click
from msgspec.structs import replace

from licet.assemble import draft
from licet.assemble.trust import PolicyMoved, accept_policy
from licet.core.algebra.scope import Malformed
from licet.core.algebra.scope import name as checked_name
from licet.core.origin import Origin, Problem
from licet.core.policy.tool import ToolSpec
from licet.errors import LicetError
from licet.policy_files.load import load_manifest
from licet.policy_files.policy_paths import POLICY_DIRECTORY, WORKSPACE_FILE, policy_root
from licet.policy_files.source.find import find_tool, read_tools
from licet.surfaces.cli.discovery import PLACES
from licet.surfaces.cli.init_manifest import Sourced, manifest_text
from licet.surfaces.cli.init_proposal import Proposal, propose
from licet.surfaces.cli.options import FILE, json_option, misfit_problems, refuse
from licet.surfaces.cli.output import (
    counted,
    fail,
    is_output,
    is_special,
    problem_document,
    show,
    show_json,
    show_problems,
    write_file,
)
from licet.surfaces.cli.schema import not_ours, write_schema

_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def module_name(file: Path, root: Path) -> str | Problem:
    """Return the dotted module name of a file below a directory, or why it has none."""
    origin = Origin(str(file), 1, 1)
    try:
        below = Path(os.path.abspath(file)).relative_to(os.path.abspath(root))
    except ValueError:
        hint = "write the manifest into a directory above both, with -o"
        return Problem(origin, f"a file outside {root}", "a file below the directory of the manifest", hint)
    parts = list(below.with_suffix("").parts)
    if parts[-1] == "__init__":
        parts.pop()
    if parts and parts[0] == "src":  # the other directory that is searched for source
        parts = parts[1:]
    if file.suffix != ".py" or not all(map(_IDENTIFIER.fullmatch, parts)):
        return Problem(origin, f"the path {below}", "names that Python can import, ending in `.py`")
    if not parts:
        return Problem(
            origin, "the package itself", "a file below the manifest", "write the manifest above it, with -o"
        )
    return ".".join(parts)


NO_TOOL = "no tool"
_DECORATE = "decorate a function with `@tool(…)` from licet"
_GUESSED = "review the guesses above, put them in with `licet init {0} --write`, then run `licet init {0}` again"


@click.command(name="init")
@click.argument("files", metavar="FILE.py...", type=FILE, nargs=-1, required=True)
@click.option(
    "-o",
    "--output",
    metavar="FILE",
    type=FILE,
    help="Where to write; `-` only prints it.  [default: .licet/licet.yaml next to the first FILE.py]",
)
@click.option("--agent", metavar="NAME", help="The name of the agent.  [default: the name of the directory]")
@click.option("--force", is_flag=True, help="Replace the file if it exists.")
@click.option("--write", is_flag=True, help="Write proposed declarations into files without tools.")
@json_option
@click.pass_context
def command(
    ctx: click.Context,
    files: tuple[Path, ...],
    output: Path | None,
    agent: str | None,
    force: bool,
    write: bool,
    as_json: bool,
) -> None:
    """Write a manifest for the tools in some files.

    The files are read and never imported; the arguments of each `@tool(...)` count. The manifest, .licet/licet.yaml,
    names the tools and allows the hosts, paths, secrets and binaries that they declare, and no others. Its comments
    explain each part. The file manifest.schema.json next to it lets your editor complete and check it. Commit the
    directory with your project: no grant can ever write to it. The manifest is accepted, as with `licet trust`.

    For a file without tools, the command proposes declarations as a diff: the hosts, paths, programs and variables
    that its calls name. These are guesses for you to review. `--write` puts them into the file, and writes no
    manifest.

    \b
    Exit codes:
      0  written
      1  nothing was written: sources have errors or declare no tool, or the file exists already
      2  bad command line
    """
    printing = output is not None and is_output(output)
    target = files[0].parent / POLICY_DIRECTORY / WORKSPACE_FILE if output is None or printing else output
    if agent is not None:
        _check_agent(agent, ctx)
    tools, problems = _read(files, policy_root(target))
    proposals = [made for file in _without_tools(problems, files) if (made := propose(file)) is not None]
    if write:
        _write_proposals(proposals, as_json)
        return
    if proposals:
        _show_proposals(proposals, problems, as_json)
    if not printing:
        problems += _obstacles(target, force) or _schema_obstacles(_schema_folder(target))
    text = manifest_text(
        tools, agent or agent_name(policy_root(target)), [file.name for file in files], _schema(target)
    )
    if not _errors(problems):
        problems += _unfit(tools, text, target)
    if _errors(problems):
        refuse(problems, as_json)
    if not printing:
        write_schema("manifest", _schema_folder(target))
        write_file(target, text, replace=force)
        problems += _accept(target, text)
    if as_json:
        names = [tool.spec.name for tool in tools]
        warnings = [problem_document(problem) for problem in problems]
        show_json({"file": None if printing else str(target), "tools": names, "manifest": text, "problems": warnings})
        return
    show_problems(problems, err=True)
    if printing:
        click.echo(text, nl=False)
    else:
        show(f"wrote {target} for {counted(len(tools), 'tool')}")
        show(f"next: licet surface{'' if target in PLACES else f' {target}'}")


def _without_tools(problems: list[Problem], files: tuple[Path, ...]) -> list[Path]:
    """The files that can be read and have no tool."""
    named = {problem.origin.file for problem in problems if problem.found == NO_TOOL}
    return [file for file in dict.fromkeys(files) if str(file) in named]


def _show_proposals(proposals: list[Proposal], problems: list[Problem], as_json: bool) -> NoReturn:
    """Print the proposed declarations and exit: without tools there is no manifest to write."""
    hinted = {str(proposal.file) for proposal in proposals}
    errors = [
        replace(one, hint=_GUESSED.format(shlex.quote(one.origin.file)))
        if one.found == NO_TOOL and one.origin.file in hinted
        else one
        for one in problems
    ]
    if as_json:
        listed = [proposal.as_data() for proposal in proposals]
        show_json({"problems": [problem_document(problem) for problem in errors], "proposals": listed})
    else:
        for proposal in proposals:
            click.echo(proposal.diff, nl=False)
        show_problems(errors, err=True)
    click.get_current_context().exit(1)


def _write_proposals(proposals: list[Proposal], as_json: bool) -> None:
    """Put the proposed declarations into their files."""
    if not proposals:
        fail("no file without tools has functions to declare, so there is nothing to write", as_json)
    for proposal in proposals:
        write_file(proposal.file, proposal.after, replace=True)
    if as_json:
        show_json({"written": [proposal.as_data() for proposal in proposals]})
        return
    for proposal in proposals:
        show(f"wrote {counted(len(proposal.guesses), 'guessed declaration')} into {proposal.file}: review every line")
    show(f"next: licet init {' '.join(str(proposal.file) for proposal in proposals)}")


def _check_agent(agent: str, ctx: click.Context) -> None:
    try:
        checked_name(agent)
    except Malformed as wrong:
        raise click.BadParameter(str(wrong), ctx, param_hint="--agent") from None


def agent_name(folder: Path) -> str:
    """The name of a directory as the name of an agent."""
    words = re.findall(r"[A-Za-z0-9_.-]+", folder.resolve().name)
    return "-".join(words)[:128] or "agent"


def _read(files: tuple[Path, ...], root: Path) -> tuple[list[Sourced], list[Problem]]:
    """The tools of all files, each with the reference that a manifest in `root` finds it by."""
    tools: list[Sourced] = []
    problems: list[Problem] = []
    first: dict[str, ToolSpec] = {}
    for file in dict.fromkeys(files):
        source = read_tools(file)
        problems += source.problems
        if not source.specs:
            if not _errors(source.problems):
                problems.append(Problem(Origin(str(file), 1, 1), NO_TOOL, "at least one", _DECORATE))
            continue
        module = module_name(file, root)
        if isinstance(module, Problem):
            problems.append(module)
            continue
        for spec in source.specs:
            origin = spec.origin or Origin(str(file), 1, 1)
            if spec.name in first:
                hint = f"the first is at {first[spec.name].origin}"
                problems.append(Problem(origin, f"a second tool called `{spec.name}`", "each name once", hint))
                continue
            first[spec.name] = spec
            reference = f"{module}:{source.functions[spec.name]}"
            found = find_tool(reference, [root], name=spec.name, origin=origin)
            if isinstance(found, Problem):
                problems.append(found)
            tools.append(Sourced(spec, reference))
    return tools, problems


def _obstacles(target: Path, force: bool) -> list[Problem]:
    """The reasons why the file cannot be written."""
    origin = Origin(str(target), 1, 1)
    workspace = target.parent / WORKSPACE_FILE
    inside = target.parent.name == POLICY_DIRECTORY  # it is made if it does not exist
    if not (policy_root(target) if inside else target.parent).is_dir():
        return [Problem(origin, f"no directory {target.parent}", "one that exists", "make it first")]
    if is_special(target):  # the schema would be written to /dev as well
        return [Problem(origin, "something that is not a file", "a new file", "-o - only prints")]
    if target.exists() and not force:
        return [Problem(origin, "a file that is there already", "a new one", "--force replaces it; -o - only prints")]
    above = policy_root(target) / WORKSPACE_FILE
    if inside and target.name == WORKSPACE_FILE and os.path.lexists(above):
        expected = f"none, since commands would find {target} instead"
        hint = f"move it there, or replace it with -o {above} --force; -o - only prints"
        return [Problem(Origin(str(above), 1, 1), "a file that is there already", expected, hint)]
    if target.name != WORKSPACE_FILE and workspace.exists():
        hint = f"write to {workspace}, or into another directory"
        return [Problem(origin, f"a {WORKSPACE_FILE} next to it, which would be its workspace", "none", hint)]
    return []


def _schema_folder(target: Path) -> Path:
    return policy_root(target) / POLICY_DIRECTORY


def _schema(target: Path) -> str:
    """The path of the schema, relative to a policy file."""
    name = "manifest.schema.json"
    return name if target.parent.name == POLICY_DIRECTORY else f"{POLICY_DIRECTORY}/{name}"


def _accept(target: Path, text: str) -> list[Problem]:
    """Accept the policy that was just written, since its author has seen it; warn if that cannot be stored."""
    try:
        manifest = load_manifest(target)
        if target.read_text(encoding="utf-8") != text:
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


def _schema_obstacles(folder: Path) -> list[Problem]:
    """The reasons why the schema cannot be written: a project from elsewhere may contain a link in its place."""
    hint = "move it out of the way; -o - only prints the manifest"
    if folder.is_symlink() or (folder.exists() and not folder.is_dir()):
        found = "a link" if folder.is_symlink() else "something that is no directory"
        return [Problem(Origin(str(folder), 1, 1), found, "a directory for the schema, or none", hint)]
    foreign = not_ours("manifest", folder)
    return [replace(foreign, hint=hint)] if foreign else []


def _unfit(tools: list[Sourced], text: str, target: Path) -> list[Problem]:
    """The problems that `licet check` would report for the new file, at the places of the tools that cause them."""
    specs = [tool.spec for tool in tools]
    policy = draft(text, str(target), specs)
    problems = list(policy.problems)
    if policy.manifest is not None:
        problems += misfit_problems(policy.manifest)
    if not problems or len(tools) == 1:
        origin = specs[0].origin
        return [Problem(origin, one.found, one.expected, one.hint, one.severity) for one in problems if origin]
    return [problem for tool in tools for problem in _unfit([tool], manifest_text([tool], "any", [], ""), target)]


def _errors(problems: list[Problem] | tuple[Problem, ...]) -> bool:
    return any(problem.severity == "error" for problem in problems)
