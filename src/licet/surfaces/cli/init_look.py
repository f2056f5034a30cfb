"""What `licet init` finds by itself: tools in Python files, MCP servers of clients, and agent frameworks.

Files are read and never imported. Nothing is written here.
"""

import re
import sys
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import click
from msgspec import Struct

from licet.core.algebra.scope import visible
from licet.policy_files.policy_paths import POLICY_DIRECTORY, WORKSPACE_FILE, shown_path
from licet.policy_files.source.find import read_tools
from licet.policy_files.user_directories import NoHome
from licet.regular_files import FileTooLarge, read_regular
from licet.surfaces.cli.output import counted, is_output, show, show_json
from licet.surfaces.lint.files import python_files

MOST_FILES = 5_000  # Python files that are looked at
_LARGEST = 2 << 20  # bytes of one file

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
    paths = list(islice(python_files([str(root)]), MOST_FILES + 1))
    for path in paths[:MOST_FILES]:
        text = _text(path)
        for pattern, name, adapter in _FRAMEWORKS:
            if name not in frameworks and _imports(pattern, text):
                frameworks[name] = Framework(name, shown_path(path), adapter)
        if _MAY_HAVE_TOOLS.search(text) and (specs := read_tools(Path(shown_path(path))).specs):
            tools[Path(shown_path(path))] = len(specs)
    return Found(tools, tuple(_clients(root)), tuple(frameworks.values()), len(paths) > MOST_FILES)


def _imports(pattern: bytes, text: bytes) -> bool:
    return re.search(rb"^[ \t]*(?:from|import)[ \t]+" + pattern + rb"\b", text, re.MULTILINE) is not None


def _text(path: str) -> bytes:
    """The text of a file; empty if it is none, or too large for a file of source."""
    try:
        return read_regular(path, _LARGEST)
    except (OSError, FileTooLarge):
        return b""


def _clients(root: Path) -> Iterator[ClientServers]:
    from licet.surfaces.cli.init_mcp_plan import servers_without_gateway, surroundings  # loads much

    try:
        here = surroundings(root.resolve())
    except NoHome:
        return
    for place, servers in servers_without_gateway(here):
        if servers:
            yield ClientServers(place.client.name, str(place.path), servers)


def agreed_files(ctx: click.Context, found: Found, output: Path | None, yes: bool, as_json: bool) -> tuple[Path, ...]:
    """The files with tools that were found, if somebody agrees; otherwise the command ends here."""
    if not as_json:
        _show_found(found)
    target = output or Path(POLICY_DIRECTORY, WORKSPACE_FILE)
    if not found.tools:
        if as_json:
            show_json({"file": None, "found": found.document()})
        else:
            show("no tools here, so nothing was written: name a file with functions, and declarations are proposed")
            show_next_steps(found, "")
        ctx.exit(1)
    if yes or is_output(target):
        return tuple(found.tools)
    if as_json or not sys.stdin.isatty():
        if as_json:
            show_json({"file": None, "found": found.document()})
        else:
            show(f"nothing was written: `licet init --yes` writes {target}")
        ctx.exit(0)
    if not click.confirm(f"write {target} for {counted(sum(found.tools.values()), 'tool')}?", default=True, err=True):
        ctx.exit(0)
    return tuple(found.tools)


def _show_found(found: Found) -> None:
    """What was found, one line each."""
    for file, number in found.tools.items():
        show(f"  {'tools':<12}{number} in {file}")
    for framework in found.frameworks:
        show(f"  {'framework':<12}{framework.name}, in {framework.file}")
    for client in found.clients:
        show(f"  {'MCP servers':<12}{client.servers} of {client.client}, in {visible(client.path)}")
    if found.is_cut:
        show(f"  {'note':<12}only the first {MOST_FILES} Python files were looked at")


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
