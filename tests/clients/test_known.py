"""Where each client has its configuration, on each system."""

import pytest

from licet.clients.known import Surroundings, System, places

POSIX = {
    ("Cursor", "user"): "/home/a/.cursor/mcp.json",
    ("Codex", "user"): "/home/a/.codex/config.toml",
    ("Gemini", "user"): "/home/a/.gemini/settings.json",
    ("Claude Code", "user"): "/home/a/.claude.json",
    ("Claude Code", "project"): "/p/.mcp.json",
    ("Cursor", "project"): "/p/.cursor/mcp.json",
    ("VS Code", "project"): "/p/.vscode/mcp.json",
    ("Codex", "project"): "/p/.codex/config.toml",
    ("Gemini", "project"): "/p/.gemini/settings.json",
    ("Zed", "project"): "/p/.zed/settings.json",
    ("Zed", "user"): "/home/a/.config/zed/settings.json",
}
LIBRARY = "/home/a/Library/Application Support"
ROAMING = "C:\\Users\\a\\AppData\\Roaming"
EXPECTED: dict[System, dict[tuple[str, str], str]] = {
    "linux": {
        **POSIX,
        ("Claude Desktop", "user"): "/home/a/.config/Claude/claude_desktop_config.json",
        ("VS Code", "user"): "/home/a/.config/Code/User/mcp.json",
        ("VS Code Insiders", "user"): "/home/a/.config/Code - Insiders/User/mcp.json",
    },
    "darwin": {
        **POSIX,
        ("Claude Desktop", "user"): f"{LIBRARY}/Claude/claude_desktop_config.json",
        ("VS Code", "user"): f"{LIBRARY}/Code/User/mcp.json",
        ("VS Code Insiders", "user"): f"{LIBRARY}/Code - Insiders/User/mcp.json",
    },
    "windows": {
        ("Claude Desktop", "user"): f"{ROAMING}\\Claude\\claude_desktop_config.json",
        ("VS Code", "user"): f"{ROAMING}\\Code\\User\\mcp.json",
        ("VS Code Insiders", "user"): f"{ROAMING}\\Code - Insiders\\User\\mcp.json",
        ("Zed", "user"): f"{ROAMING}\\Zed\\settings.json",
        ("Cursor", "user"): "C:\\Users\\a\\.cursor\\mcp.json",
        ("Codex", "user"): "C:\\Users\\a\\.codex\\config.toml",
        ("Gemini", "user"): "C:\\Users\\a\\.gemini\\settings.json",
        ("Claude Code", "user"): "C:\\Users\\a\\.claude.json",
        ("Claude Code", "project"): "C:\\p\\.mcp.json",
        ("Cursor", "project"): "C:\\p\\.cursor\\mcp.json",
        ("VS Code", "project"): "C:\\p\\.vscode\\mcp.json",
        ("Codex", "project"): "C:\\p\\.codex\\config.toml",
        ("Gemini", "project"): "C:\\p\\.gemini\\settings.json",
        ("Zed", "project"): "C:\\p\\.zed\\settings.json",
    },
}


def found(here: Surroundings) -> dict[tuple[str, str], str]:
    return {(place.client.name, place.scope): str(place.path) for place in places(here)}


@pytest.mark.parametrize("system", EXPECTED)
def test_every_system_has_its_places(system: System) -> None:
    home, project = ("C:\\Users\\a", "C:\\p") if system == "windows" else ("/home/a", "/p")
    assert found(Surroundings(system, {}, home, project)) == EXPECTED[system]


def test_variables_move_the_places() -> None:
    environ = {"XDG_CONFIG_HOME": "/c", "CODEX_HOME": "/x", "CLAUDE_CONFIG_DIR": "/k", "APPDATA": "D:\\r"}
    moved = found(Surroundings("linux", environ, "/home/a", "/p"))
    assert moved["Zed", "user"] == "/c/zed/settings.json"
    assert moved["VS Code", "user"] == "/c/Code/User/mcp.json"
    assert moved["Codex", "user"] == "/x/config.toml"
    assert moved["Claude Code", "user"] == "/k/.claude.json"
    assert found(Surroundings("windows", environ, "C:\\a", "C:\\p"))["Zed", "user"] == "D:\\r\\Zed\\settings.json"


def test_a_relative_variable_counts_for_nothing() -> None:
    moved = found(Surroundings("linux", {"XDG_CONFIG_HOME": "here"}, "/home/a", "/p"))
    assert moved["Zed", "user"] == "/home/a/.config/zed/settings.json"


def test_in_the_home_directory_each_file_is_listed_once() -> None:
    paths = [place.path for place in places(Surroundings("linux", {}, "/home/a", "/home/a"))]
    assert len(paths) == len(set(paths))


def test_servers_of_one_project_are_looked_up_in_the_file_of_the_user() -> None:
    (place,) = (one for one in places(Surroundings("linux", {}, "/h", "/p")) if str(one.path) == "/h/.claude.json")
    assert place.tables == (("mcpServers",), ("projects", "/p", "mcpServers"))
