"""The MCP clients whose configurations are known, and where these are on Linux, macOS and Windows.

A place is only a path. There may be no file.
"""

from collections.abc import Callable, Iterator, Mapping
from pathlib import PurePath, PurePosixPath, PureWindowsPath
from typing import Literal

from msgspec import Struct

from licet.surfaces.clients.jsonc import Jsonc
from licet.surfaces.clients.spans import ConfigFormat, KeyPath
from licet.surfaces.clients.toml_tables import Toml

System = Literal["linux", "darwin", "windows"]
Scope = Literal["user", "project"]
JSONC, TOML = Jsonc(), Toml()


class Client(Struct, frozen=True):
    """One client: its name, its format, the table of its servers, and what is particular about its entries."""

    name: str
    form: ConfigFormat
    table: KeyPath
    project_file: str = ""  # relative to the project; empty if it has none
    gateway_keys: Mapping[str, str] = {}  # what an entry of its own needs besides `command` and `args`
    bare_variables: bool = False  # whether `$NAME` in a value is a variable, besides `${NAME}`
    project_directory: str = ""  # its variable for the project; empty if it starts the project's servers there
    url_is_sse: bool = False  # whether `url` without a type is the older transport


class Place(Struct, frozen=True):
    """A file that a client reads its servers from. `base` is the home or project directory that it lies below."""

    client: Client
    scope: Scope
    path: PurePath
    base: PurePath
    tables: tuple[KeyPath, ...]


class Surroundings(Struct, frozen=True):
    """What decides where configurations are: the system, the environment, and two directories."""

    system: System
    environ: Mapping[str, str]
    home: str
    project: str

    @property
    def path(self) -> Callable[..., PurePath]:
        """The kind of paths of the system."""
        return PureWindowsPath if self.system == "windows" else PurePosixPath

    def application(self) -> PurePath:
        """The directory where applications keep their settings."""
        home = self.path(self.home)
        match self.system:
            case "darwin":
                return home / "Library" / "Application Support"
            case "windows":
                return self._stated("APPDATA") or home / "AppData" / "Roaming"
            case _:
                return self.config()

    def config(self) -> PurePath:
        """The directory that `XDG_CONFIG_HOME` names, or `.config`."""
        return self._stated("XDG_CONFIG_HOME") or self.path(self.home) / ".config"

    def stated_or_home(self, variable: str, below_home: str = "") -> PurePath:
        """The directory that a variable names, or one below the home directory."""
        return self._stated(variable) or self.path(self.home) / below_home

    def _stated(self, variable: str) -> PurePath | None:
        stated = self.path(self.environ.get(variable, ""))
        return stated if stated.is_absolute() else None


_STDIO = {"type": "stdio"}
_WORKSPACE = "${workspaceFolder}"
CLAUDE_DESKTOP = Client("Claude Desktop", JSONC, ("mcpServers",))
CLAUDE_CODE = Client("Claude Code", JSONC, ("mcpServers",), ".mcp.json", _STDIO)
CURSOR = Client("Cursor", JSONC, ("mcpServers",), ".cursor/mcp.json", project_directory=_WORKSPACE)
VS_CODE = Client("VS Code", JSONC, ("servers",), ".vscode/mcp.json", _STDIO, project_directory=_WORKSPACE)
VS_CODE_INSIDERS = Client("VS Code Insiders", JSONC, ("servers",), gateway_keys=_STDIO)
CODEX = Client("Codex", TOML, ("mcp_servers",), ".codex/config.toml")
GEMINI = Client("Gemini", JSONC, ("mcpServers",), ".gemini/settings.json", bare_variables=True, url_is_sse=True)
ZED = Client("Zed", JSONC, ("context_servers",), ".zed/settings.json")

CLIENTS = (CLAUDE_DESKTOP, CLAUDE_CODE, CURSOR, VS_CODE, VS_CODE_INSIDERS, CODEX, GEMINI, ZED)


def places(here: Surroundings) -> Iterator[Place]:
    """Every place where a known client may have its configuration: those of the user, then those of the project."""
    home, project = here.path(here.home), here.path(here.project)
    for client, path in _user_files(here):
        tables: tuple[KeyPath, ...] = (client.table,)
        if client is CLAUDE_CODE:  # servers of one project that only this user has are in the same file
            tables = (client.table, ("projects", str(project), *client.table))
        yield Place(client, "user", path, home, tables)
    for client in CLIENTS:
        path = project / client.project_file
        # In the home directory, the file of the project is that of the user.
        if client.project_file and project != home:
            yield Place(client, "project", path, project, (client.table,))


def _user_files(here: Surroundings) -> Iterator[tuple[Client, PurePath]]:
    home, application = here.path(here.home), here.application()
    yield CLAUDE_DESKTOP, application / "Claude" / "claude_desktop_config.json"
    yield CLAUDE_CODE, here.stated_or_home("CLAUDE_CONFIG_DIR") / ".claude.json"
    yield CURSOR, home / ".cursor" / "mcp.json"
    yield VS_CODE, application / "Code" / "User" / "mcp.json"
    yield VS_CODE_INSIDERS, application / "Code - Insiders" / "User" / "mcp.json"
    yield CODEX, here.stated_or_home("CODEX_HOME", ".codex") / "config.toml"
    yield GEMINI, home / ".gemini" / "settings.json"
    zed = application / "Zed" if here.system == "windows" else here.config() / "zed"
    yield ZED, zed / "settings.json"
