"""`licet init`: writes a manifest for the tools in source files, with nothing more than they declare.

Nothing is imported.

What `licet init` finds by itself: tools in Python files, MCP servers of clients, and agent frameworks.

Files are read and never imported. Nothing is written here.
"""

import os
import re
import shlex
import sys
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import NoReturn

import click
from msgspec import Struct
from msgspec.structs import replace

from licet.assemble import draft
from licet.assemble.policy_problems import misfit_problems
from licet.cli.init_preset import PRESETS, agent_name, checked, obstacles, schema_path, write_policy, write_preset
from licet.cli.limits import PYTHON_FILE_BYTES, PYTHON_FILES
from licet.cli.options import FILE, json_option, refuse
from licet.cli.output import counted, fail, is_output, print_report, show, show_problems, wants_json, write_file
from licet.core.algebra.scope import Malformed, visible
from licet.core.algebra.scope import name as checked_name
from licet.core.policy.tool import ToolSpec
from licet.core.values import Origin, Problem
from licet.lint.linter import Proposal, propose
from licet.own_files import FileTooLarge, read_regular
from licet.policy_files.draft import Sourced, manifest_text
from licet.policy_files.policy_paths import PLACES, POLICY_DIRECTORY, WORKSPACE_FILE, NoHome, policy_root, shown_path
from licet.source.declarations import find_tool, read_tools
from licet.source.source_files import python_files

# A file with tools imports `tool` from licet, in one of these two ways.
_MAY_HAVE_TOOLS = re.compile(rb"^[ \t]*(?:from|import)[ \t]+licet\b", re.MULTILINE)
# The import by which a framework is known, its name, and the function of `licet.adapters` that serves it.
_FRAMEWORKS = (
    (rb"pydantic_ai", "pydantic-ai", "pydantic_ai.tools"),
    (rb"agents(?=[ \t]+import)", "openai-agents", "openai_agents.tools"),
    (rb"lang(?:chain|graph)\w*", "langchain", "langchain.tools"),
    (rb"claude_agent_sdk", "claude-agent-sdk", "claude_agent_sdk.tools"),
    (rb"openai", "openai", "openai_tools"),
    (rb"anthropic", "anthropic", "anthropic_tools"),
)


class ClientServers(Struct, frozen=True):
    """An MCP client of this user, its configuration, and how many servers it starts without licet."""

    client: str
    path: str
    servers: int


class Framework(Struct, frozen=True):
    """An agent framework that the project uses, the first file that imports it, and the adapter for it."""

    name: str
    file: str
    adapter: str


class Found(Struct, frozen=True):
    """What `look_around` found."""

    tools: dict[Path, int]  # files with tools, and how many each has
    clients: tuple[ClientServers, ...]
    frameworks: tuple[Framework, ...]
    is_cut: bool = False  # there were more Python files than are looked at

    def document(self) -> dict[str, object]:
        """The same as plain data."""
        return {
            "tools": {str(file): number for file, number in self.tools.items()},
            "clients": [{"client": one.client, "path": one.path, "servers": one.servers} for one in self.clients],
            "frameworks": [{"name": one.name, "file": one.file} for one in self.frameworks],
        }


def look_around(root: Path) -> Found:
    """Look below a directory, and at the configurations of MCP clients for it."""
    tools: dict[Path, int] = {}
    frameworks: dict[str, Framework] = {}
    paths = list(islice(python_files([str(root)]), PYTHON_FILES + 1))
    for path in paths[:PYTHON_FILES]:
        text = _text(path)
        for pattern, name, adapter in _FRAMEWORKS:
            if name not in frameworks and _imports(pattern, text):
                frameworks[name] = Framework(name, shown_path(path), adapter)
        if _MAY_HAVE_TOOLS.search(text) and (specs := read_tools(Path(shown_path(path))).specs):
            tools[Path(shown_path(path))] = len(specs)
    return Found(tools, tuple(_clients(root)), tuple(frameworks.values()), len(paths) > PYTHON_FILES)


def _imports(pattern: bytes, text: bytes) -> bool:
    return re.search(rb"^[ \t]*(?:from|import)[ \t]+" + pattern + rb"\b", text, re.MULTILINE) is not None


def _text(path: str) -> bytes:
    """The text of a file; empty if it is none, or too large for a file of source."""
    try:
        return read_regular(path, PYTHON_FILE_BYTES)
    except (OSError, FileTooLarge):
        return b""


def _clients(root: Path) -> Iterator[ClientServers]:
    from licet.clients.setup_plan import servers_without_gateway, surroundings  # loads much

    try:
        here = surroundings(root.resolve())
    except NoHome:
        return
    for place, servers in servers_without_gateway(here):
        if servers:
            yield ClientServers(place.client.name, str(place.path), servers)


def agreed_files(ctx: click.Context, found: Found, output: Path | None, yes: bool) -> tuple[Path, ...]:
    """The files with tools that were found, if somebody agrees; otherwise the command ends here."""
    if not wants_json():
        _show_found(found)
    target = output or Path(POLICY_DIRECTORY, WORKSPACE_FILE)
    nothing = {"file": None, "found": found}
    if not found.tools:
        print_report(nothing, lambda _: _show_no_tools(found))
        ctx.exit(1)
    if yes or is_output(target):
        return tuple(found.tools)
    if wants_json() or not sys.stdin.isatty():
        print_report(nothing, lambda _: show(f"nothing was written: `licet init --yes` writes {target}"))
        ctx.exit(0)
    if not click.confirm(f"write {target} for {counted(sum(found.tools.values()), 'tool')}?", default=True, err=True):
        ctx.exit(0)
    return tuple(found.tools)


def _show_no_tools(found: Found) -> None:
    show("no tools here, so nothing was written: name a file with functions, and declarations are proposed")
    show_next_steps(found, "")


def _show_found(found: Found) -> None:
    """What was found, one line each."""
    for file, number in found.tools.items():
        show(f"  {'tools':<12}{number} in {file}")
    for framework in found.frameworks:
        show(f"  {'framework':<12}{framework.name}, in {framework.file}")
    for client in found.clients:
        show(f"  {'MCP servers':<12}{client.servers} of {client.client}, in {visible(client.path)}")
    if found.is_cut:
        show(f"  {'note':<12}only the first {PYTHON_FILES} Python files were looked at")


def show_next_steps(found: Found, named: str) -> None:
    """What a user will want to do next, with what is here."""
    steps = [(f"licet lock{named}", "before others use it: pins what you reviewed")] if found.tools else []
    for framework in found.frameworks:
        text = f"licet.adapters.{framework.adapter}(gate, session=…)"
        steps.append((text, f"gives the tools to {framework.name} (docs/adapters.md)"))
    if found.clients:
        number = sum(client.servers for client in found.clients)
        steps.append(("licet init --mcp", f"puts {counted(number, 'MCP server')} behind the gateway"))
    if not found.tools:
        steps.append(("licet init FILE.py", "proposes declarations for the functions of a file"))
        steps.append(("licet init --preset coding", "a policy for a coding agent that you run in this directory"))
        steps.append(("licet demo", "shows what licet does"))
    width = max((len(step) for step, _ in steps), default=0)
    for step, why in steps:
        show(f"      {step:<{width}}  {why}")


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
@click.argument("files", metavar="[FILE.py]...", type=FILE, nargs=-1)
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
@click.option("--mcp", is_flag=True, help="Put the gateway into the configurations of MCP clients instead.")
@click.option("--undo", is_flag=True, help="With --mcp: take it out of them again.")
@click.option(
    "--preset", type=click.Choice(PRESETS), help="Write a policy for a program that is run whole: a coding agent."
)
@click.option("--yes", is_flag=True, help="Do not ask. Needed without a terminal and with --json.")
@json_option
@click.pass_context
def command(
    ctx: click.Context,
    files: tuple[Path, ...],
    output: Path | None,
    agent: str | None,
    force: bool,
    write: bool,
    mcp: bool,
    undo: bool,
    preset: str | None,
    yes: bool,
) -> None:
    """Write a manifest for the tools in some files.

    Without a file it looks around: for tools below this directory, for agent frameworks, and for MCP servers in the
    configurations of your clients. It says what it found, asks before it writes, and names the next steps.

    The files are read and never imported; the arguments of each `@tool(...)` count. The manifest, .licet/licet.yaml,
    names the tools and allows the hosts, paths, secrets and binaries that they declare, and no others. Its comments
    explain each part. The file manifest.schema.json next to it lets your editor complete and check it. Commit the
    directory with your project: no grant can ever write to it. The manifest is accepted, as with `licet trust`.

    For a file without tools, the command proposes declarations as a diff: the hosts, paths, programs and variables
    that its calls name. These are guesses for you to review. `--write` puts them into the file, and writes no
    manifest.

    With `--preset coding` it takes no files either, and writes a policy for `licet run -- AGENT`, where AGENT is a
    coding agent such as `claude` or `codex`: this project, and the host of the agent's model.

    With `--mcp` it takes no files. It finds the configurations of Claude Desktop and Code, Cursor, VS Code, Codex,
    Gemini and Zed, shows what it would change, and asks for each file: their MCP servers move into the policy, and
    `licet gateway` takes their place. Tokens go to a file that only you can read.

    \b
      licet init
      licet init tools.py
      licet init --preset coding
      licet init --mcp
      licet init --mcp --undo

    \b
    Exit codes:
      0  written, or with --mcp shown
      1  nothing was written: sources have errors or declare no tool, or the file exists already
      2  bad command line
    """
    if mcp:
        _govern_clients(ctx, files, output, agent, force or write or preset is not None, undo, yes)
        return
    if undo:
        raise click.UsageError("--undo needs --mcp", ctx)
    if agent is not None:
        _check_agent(agent, ctx)
    if preset is not None:
        if files or write:
            raise click.UsageError("--preset takes no FILE.py and no --write", ctx)
        write_preset(output or Path(POLICY_DIRECTORY, WORKSPACE_FILE), agent, force)
        return
    found = None
    if not files:
        found = look_around(Path())
        files = agreed_files(ctx, found, output, yes)
    printing = output is not None and is_output(output)
    inside = Path() if found is not None else files[0].parent
    target = inside / POLICY_DIRECTORY / WORKSPACE_FILE if output is None or printing else output
    tools, problems = _read(files, policy_root(target))
    proposals = [made for file in _without_tools(problems, files) if (made := propose(file)) is not None]
    if write:
        _write_proposals(proposals)
        return
    if proposals:
        _show_proposals(proposals, problems)
    if not printing:
        problems += obstacles(target, force)
    text = manifest_text(
        tools, agent or agent_name(policy_root(target)), [file.name for file in files], schema_path(target)
    )
    if not _errors(problems):
        problems += _unfit(tools, text, target)
    if _errors(problems):
        refuse(problems)
    if not printing:
        problems += write_policy(target, text, replaces=force)
        problems += checked(target, problems)
    names = [tool.spec.name for tool in tools]
    document = {"file": None if printing else target, "tools": names, "manifest": text, "problems": problems}

    def show_written(_: object) -> None:
        show_problems(problems, err=True)
        if printing:
            click.echo(text, nl=False)
            return
        show(f"wrote {target} for {counted(len(tools), 'tool')}")
        named = "" if target in PLACES else f" {target}"
        show(f"next: licet surface{named}")
        if found is not None:
            show_next_steps(found, named)

    print_report({**document, **({"found": found} if found is not None else {})}, show_written)


def _govern_clients(
    ctx: click.Context,
    files: tuple[Path, ...],
    output: Path | None,
    agent: str | None,
    other: bool,
    undo: bool,
    yes: bool,
) -> None:
    from licet.cli.init_mcp import Asking, set_up_clients, undo_clients  # not needed for tools

    if files or other or (output is not None and is_output(output)):
        raise click.UsageError("--mcp takes no FILE.py, --force, --write or `-o -`", ctx)
    if agent is not None:
        _check_agent(agent, ctx)
    if undo:
        undo_clients(output, Asking(yes))
    else:
        set_up_clients(output, agent, Asking(yes))


def _without_tools(problems: list[Problem], files: tuple[Path, ...]) -> list[Path]:
    """The files that can be read and have no tool."""
    named = {problem.origin.file for problem in problems if problem.found == NO_TOOL}
    return [file for file in dict.fromkeys(files) if str(file) in named]


def _show_proposals(proposals: list[Proposal], problems: list[Problem]) -> NoReturn:
    """Print the proposed declarations and exit: without tools there is no manifest to write."""
    hinted = {str(proposal.file) for proposal in proposals}
    errors = [
        replace(one, hint=_GUESSED.format(shlex.quote(one.origin.file)))
        if one.found == NO_TOOL and one.origin.file in hinted
        else one
        for one in problems
    ]

    def text(_: object) -> None:
        for proposal in proposals:
            click.echo(proposal.diff, nl=False)
        show_problems(errors, err=True)

    print_report({"problems": errors, "proposals": (proposal.as_data() for proposal in proposals)}, text)
    click.get_current_context().exit(1)


def _write_proposals(proposals: list[Proposal]) -> None:
    """Put the proposed declarations into their files."""
    if not proposals:
        fail("no file without tools has functions to declare, so there is nothing to write")
    for proposal in proposals:
        write_file(proposal.file, proposal.after, replace=True)

    def text(_: object) -> None:
        for one in proposals:
            show(f"wrote {counted(len(one.guesses), 'guessed declaration')} into {one.file}: review every line")
        show(f"next: licet init {' '.join(str(proposal.file) for proposal in proposals)}")

    print_report({"written": (proposal.as_data() for proposal in proposals)}, text)


def _check_agent(agent: str, ctx: click.Context) -> None:
    try:
        checked_name(agent)
    except Malformed as wrong:
        raise click.BadParameter(str(wrong), ctx, param_hint="--agent") from None


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
