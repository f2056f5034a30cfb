"""The MCP clients whose configurations are known, and where these are on Linux, macOS and Windows.

A place is only a path. There may be no file.

Reads and replaces files of this user: no links, nothing of other users, and never a file that changed meanwhile.
"""

import hashlib
import os
import stat
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path, PurePath, PurePosixPath, PureWindowsPath
from typing import Literal

from msgspec import Struct

from licet.clients.jsonc import ConfigFormat, Jsonc, KeyPath
from licet.clients.limits import CONFIG_BYTES
from licet.clients.toml_tables import Toml
from licet.errors import LicetError
from licet.own_files import NotRegular, open_regular, read_most, replace_file

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


class Unusable(LicetError):
    """A file that is not read or not written. The text has the reason and the fix."""


class Seen(Struct, frozen=True):
    """A file as it was read."""

    path: Path
    data: bytes
    mode: int

    @property
    def text(self) -> str:
        """The content as text; raises `Unusable` if it is not UTF-8."""
        try:
            return self.data.decode("utf-8")
        except UnicodeDecodeError:
            raise Unusable(f"{self.path} is not UTF-8: save it as UTF-8") from None


def digest(data: bytes) -> str:
    """The SHA-256 of some bytes."""
    return hashlib.sha256(data).hexdigest()


def read_own(path: Path, base: Path) -> Seen | None:
    """Read a regular file of this user; None if there is none. No part of its path below `base` may be a link.

    A project from elsewhere could otherwise have one of its files lead to another file of this user.
    """
    below = path.relative_to(base) if path.is_relative_to(base) else Path(path.name)
    parts = [path, *list(path.parents)[: len(below.parts) - 1]]
    if link := next((part for part in reversed(parts) if part.is_symlink()), None):
        raise Unusable(f"{link} is a link: edit the file that it leads to by hand")
    try:
        with open_regular(path, links=False) as number:
            about = os.fstat(number)
            _check_owner(path, about)
            data = read_most(number, CONFIG_BYTES + 1)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except NotRegular as wrong:
        raise Unusable(f"{path} is {wrong.strerror}") from None
    except OSError as wrong:
        raise Unusable(f"{path} cannot be read: {wrong.strerror}") from None
    if len(data) > CONFIG_BYTES:
        raise Unusable(f"{path} is larger than {CONFIG_BYTES >> 20} MiB")
    return Seen(path, data, stat.S_IMODE(about.st_mode))


def _check_owner(path: Path, about: os.stat_result) -> None:
    if hasattr(os, "geteuid") and about.st_uid != os.geteuid():
        raise Unusable(f"{path} belongs to another user: run this command as that user")


def replace_own(seen: Seen, data: bytes, base: Path) -> None:
    """Replace a file by new bytes, if it is still what was read. Its mode stays."""
    now = read_own(seen.path, base)
    if now is None or now.data != seen.data:
        raise Unusable(f"{seen.path} changed meanwhile: close its client, and try again")
    write_own(seen.path, data, keep_mode=True)


def write_own(path: Path, data: bytes, *, keep_mode: bool = False) -> None:
    """Write a file that only this user can read, or with `keep_mode` those who could read the one that is there."""
    try:
        replace_file(path, data, keep_mode=keep_mode)
    except OSError as wrong:
        raise Unusable(f"{path} cannot be written: {wrong.strerror}") from None


def own_directory(path: Path) -> Path:
    """Make a directory that only this user can read."""
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as wrong:
        raise Unusable(f"the directory {path} cannot be made: {wrong.strerror}") from None
    return path
