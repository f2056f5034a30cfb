"""The tables of coding agents: their tools, the names of tools of servers, and what patches and prompts name."""

import subprocess
import sys
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from licet.hooks.agent_event import AgentTool, Kind, Unreadable
from licet.hooks.agents import AGENTS, NAMES, UnknownAgent, agent_named
from licet.hooks.agents.dialect import McpTool, meanings
from licet.hooks.agents.patch_text import patched_files

TOOLS = [(agent, tool) for agent, dialect in AGENTS.items() for tool in dialect.tools.values()]


@pytest.mark.parametrize(("agent", "tool"), TOOLS, ids=[f"{agent}.{tool.name}" for agent, tool in TOOLS])
def test_a_row_names_what_its_kind_needs(agent: str, tool: AgentTool) -> None:
    assert tool.kind in get_args(Kind)
    assert tool.kind != "server", "tools of servers are no row"
    assert tool.about
    assert not tool.about.endswith(".")
    assert set(tool.optional) <= set(tool.paths)
    assert bool(tool.urls) == (tool.kind == "fetch")
    assert bool(tool.text) == (tool.kind in {"shell", "patch"}) or tool.kind == "typed"
    assert not tool.patterns or tool.kind == "search"
    assert tool.paths or tool.undecided or tool.kind not in {"read", "search", "write", "delete"}
    assert set(tool.optional) == set(tool.paths) or not tool.here
    assert not set(tool.data) & {*tool.paths, *tool.patterns, *tool.urls, *tool.undecided, tool.text, tool.directory}
    assert not set(tool.undecided) & {*tool.paths, *tool.urls, tool.text, tool.directory}
    assert tool.kind != "patch" or AGENTS[agent].patched_files is not None


@pytest.mark.parametrize("agent", NAMES)
def test_an_agent_is_described(agent: str) -> None:
    dialect = AGENTS[agent]
    assert dialect.name == agent
    assert list(dialect.tools) == [tool.name for tool in dialect.tools.values()]
    assert {"session begins", "prompt", "before a call", "after a call", "session ends"} <= {
        event.moment for event in dialect.events.values() if event.installed
    }
    assert any(tool.kind == "shell" for tool in dialect.tools.values())
    assert all(place.path.startswith(("~/", "./", "/")) for place in dialect.places)
    assert {"user", "project"} <= {place.scope for place in dialect.places}
    assert {seen.how for seen in dialect.seen} == {"documented"} or agent != "cursor"


def test_the_rows_of_an_agent_have_names_of_their_own() -> None:
    for agent in NAMES:
        rows = sys.modules[f"licet.hooks.agents.{agent}"]._TOOLS if AGENTS[agent] else ()
        assert len({row.name for row in rows}) == len(rows)


@pytest.mark.parametrize("agent", NAMES)
@pytest.mark.parametrize(
    "changed", [str.lower, str.upper, "{} ".format, " {}".format, "{}\u200b".format, "{}\0".format]
)
def test_a_name_that_is_spelled_otherwise_is_unknown(agent: str, changed: Any) -> None:
    dialect = AGENTS[agent]
    shell = next(tool.name for tool in dialect.tools.values() if tool.kind == "shell")
    other = changed(shell)
    assert (other in dialect.tools) == (other == shell)
    assert other == shell or meanings(dialect, other, []) == []


def test_a_cyrillic_letter_makes_another_tool() -> None:
    assert meanings(AGENTS["claude"], "Bаsh", ["echo"]) == []  # the second letter is not Latin


@pytest.mark.parametrize(
    ("agent", "tool", "servers", "found"),
    [
        ("claude", "mcp__a_b__c", ["a_b", "a"], [("a_b", "c")]),
        ("claude", "mcp__a__b__c", ["a", "a__b"], [("a", "b__c"), ("a__b", "c")]),
        ("claude", "mcp__my_server__t", ["my server", "my.server"], [("my server", "t"), ("my.server", "t")]),
        ("claude", "mcp__claude_ai_Mail__t", ["claude.ai Mail"], [("claude.ai Mail", "t")]),
        ("claude", "mcp__a__", ["a"], []),
        ("claude", "MCP__a__b", ["a"], []),
        ("claude", "a__b", ["a"], []),
        ("codex", "mcp__my_server__t", ["my-server"], [("my-server", "t")]),
        ("gemini", "mcp_a_b_c", ["a", "a_b"], [("a", "b_c"), ("a_b", "c")]),
        ("gemini", "mcp_" + "a" * 26 + "..." + "b" * 30, ["a" * 26], []),
        ("copilot", "a-b-c", ["a", "a-b", "b"], [("a", "b-c"), ("a-b", "c")]),
        ("opencode", "a_b_c", ["a", "a_b"], [("a", "b_c"), ("a_b", "c")]),
        ("cursor", "MCP:touch", ["echo"], [("echo", "touch")]),
        ("cursor", "MCP:touch", ["echo", "files"], [("echo", "touch"), ("files", "touch")]),
        ("cursor", "MCP:echo:touch", ["echo"], [("echo", "touch")]),
    ],
)
def test_the_name_of_a_tool_of_a_server(agent: str, tool: str, servers: list[str], found: list[Any]) -> None:
    expected = [McpTool(server, name) for server, name in found]
    assert meanings(AGENTS[agent], tool, servers) == expected
    assert not expected or AGENTS[agent].may_be_mcp(tool)


def test_a_server_can_take_the_name_of_a_built_in_tool() -> None:
    dialect = AGENTS["opencode"]
    assert dialect.may_be_mcp("apply_patch")
    assert meanings(dialect, "apply_patch", ["apply"]) == [dialect.tools["apply_patch"], McpTool("apply", "patch")]


def test_the_server_that_the_payload_names_settles_it() -> None:
    assert meanings(AGENTS["claude"], "mcp__a__b__c", ["a", "a__b"], "a__b") == [McpTool("a__b", "c")]
    assert meanings(AGENTS["claude"], "mcp__a__b__c", ["a"], "b") == []


@given(name=st.text(max_size=20), servers=st.lists(st.text(max_size=6), max_size=3), agent=st.sampled_from(NAMES))
def test_any_name_has_meanings_or_none(name: str, servers: list[str], agent: str) -> None:
    assert all(one.server in servers for one in meanings(AGENTS[agent], name, servers) if isinstance(one, McpTool))


@pytest.mark.parametrize("name", NAMES)
def test_an_agent_is_found_by_its_name(name: str) -> None:
    assert agent_named(name) is AGENTS[name]


def test_claude_has_a_second_name() -> None:
    assert agent_named("claude-code") is AGENTS["claude"]


@pytest.mark.parametrize(
    ("text", "hint"),
    [("cluade", "did you mean `claude`?"), ("Claude", "did you mean `claude`?"), ("vim", ""), ("", "")],
)
def test_another_name_is_no_agent(text: str, hint: str) -> None:
    with pytest.raises(UnknownAgent) as wrong:
        agent_named(text)
    assert hint in str(wrong.value)


def test_one_agent_does_not_load_the_others() -> None:
    program = """
import sys
from licet.hooks.agents import agent_named
agent_named("gemini")
print(*sorted(name for name in sys.modules if name.startswith("licet.hooks.agents.")))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    found = {name.rpartition(".")[2] for name in done.stdout.split()}
    assert found & set(NAMES) == {"gemini"}


# Patches -------------------------------------------------------------------------------------------------------------


def in_patch(*lines: str) -> str:
    return "\n".join(["*** Begin Patch", *lines, "*** End Patch"])


def test_a_patch_names_each_of_its_files() -> None:
    text = in_patch(
        "*** Add File: a b/new.py",
        "+*** Delete File: text.py",
        "*** Update File: old.py",
        "*** Move to: moved.py",
        "@@ def f():",
        " *** Add File: context.py",
        "-x",
        "+y",
        "*** End of File",
        "*** Delete File: /gone.py",
    )
    expected = [("add", "a b/new.py"), ("update", "old.py"), ("move", "moved.py"), ("delete", "/gone.py")]
    assert [(file.action, file.path) for file in patched_files(text)] == expected
    assert patched_files(f"\n {text}\n") == patched_files(text) == patched_files(text.replace("\n", "\r\n"))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "*** Begin Patch",
        "*** End Patch",
        in_patch(),
        in_patch("+x"),
        "<<'EOF'\n" + in_patch("*** Delete File: a") + "\nEOF",
        "\ufeff" + in_patch("*** Delete File: a"),
        in_patch("*** Delete File: a") + "\n*** Delete File: b",
        in_patch("*** Delete File: a", "+x"),
        in_patch("*** Delete File:a"),
        in_patch("*** delete file: a"),
        in_patch("*** Rename File: a"),
        in_patch("*** Environment ID: remote", "*** Delete File: a"),
        in_patch("*** Add File: a", "x"),
        in_patch("*** Add File: a", " *** Add File: b"),
        in_patch("*** Move to: b"),
        in_patch("*** Add File: a", "*** Move to: b"),
        in_patch("*** Update File: a", "@@", "*** Move to: b"),
        in_patch("*** Update File: a", "@@", " *** End Patch", "*** Delete File: b"),
        in_patch("*** Update File: a", "@@", "\t*** Delete File: b"),
        in_patch("*** Delete File: "),
        in_patch("*** Delete File: a "),
        in_patch("*** Delete File:  a"),
        in_patch("*** Delete File: a\x0b"),
        in_patch("*** Delete File: a\u2028b"),
        in_patch("*** Delete File: a\rb"),
        in_patch("*** Delete File: a\0"),
        in_patch("*** Delete File: a\u00a0"),
        in_patch("*** Delete File: ~/a"),
    ],
)
def test_a_patch_that_readers_may_understand_otherwise_is_unreadable(text: str) -> None:
    with pytest.raises(Unreadable):
        patched_files(text)


LINE = st.sampled_from(
    ["*** Add File: a", "*** Delete File: b", "*** Update File: c", "*** Move to: d", "+x", " y", "@@"]
)


@given(lines=st.lists(LINE | st.text(max_size=12), max_size=8))
def test_a_patch_never_names_fewer_files_than_its_headers(lines: list[str]) -> None:
    headers = ("*** Add File:", "*** Delete File:", "*** Update File:", "*** Move to:")
    text = in_patch(*lines)
    try:
        found = patched_files(text)
    except Unreadable:
        return
    named = [line for line in text.split("\n") if line.startswith(headers)]
    assert [line.partition(": ")[2].removesuffix("\r") for line in named] == [file.path for file in found]


# URLs ----------------------------------------------------------------------------------------------------------------


def fetched(agent: str, tool: str, arguments: dict[str, Any]) -> list[str]:
    dialect = AGENTS[agent]
    return list(dialect.urls(dialect.tools[tool], arguments))


def test_every_url_in_a_prompt_is_found() -> None:
    prompt = "compare https://a.test/x?y=1,\n HTTP://b.test:8080/ and\thttps://[::1]/\ufeffhttps://c.test, please"
    expected = ["https://a.test/x?y=1,", "HTTP://b.test:8080/", "https://[::1]/", "https://c.test,"]
    assert fetched("gemini", "web_fetch", {"prompt": prompt}) == expected


def test_a_page_of_a_repository_is_fetched_from_another_host() -> None:
    found = fetched("gemini", "web_fetch", {"prompt": "read https://github.com/o/r/blob/main/a.py"})
    assert found[0] == "https://github.com/o/r/blob/main/a.py"
    assert found[1].startswith("https://raw.githubusercontent.com/")


@pytest.mark.parametrize(
    "prompt",
    ["", "no address", "ftp://a.test", "(https://a.test)", "x:https://a.test", "https://ä.test", "https://a\\b.test"]
    + ["https:///a.test", "https://a.test\x1f", "https://\u200ba.test", "file:///etc/passwd https://a.test"],
)
def test_a_prompt_whose_urls_are_unsure_is_unreadable(prompt: str) -> None:
    with pytest.raises(Unreadable):
        fetched("gemini", "web_fetch", {"prompt": prompt})


@pytest.mark.parametrize(("agent", "tool"), [("claude", "WebFetch"), ("opencode", "webfetch")])
def test_an_address_that_the_agent_raises_needs_both(agent: str, tool: str) -> None:
    assert fetched(agent, tool, {"url": "http://a.test/"}) == ["http://a.test/", "https://a.test/"]
    assert fetched(agent, tool, {"url": "https://a.test/"}) == ["https://a.test/"]


@pytest.mark.parametrize("agent", NAMES)
@pytest.mark.parametrize("value", [None, "", 1, ["https://a.test"]])
def test_a_fetch_without_an_address_is_unreadable(agent: str, value: object) -> None:
    dialect = AGENTS[agent]
    for tool in (tool for tool in dialect.tools.values() if tool.kind == "fetch"):
        with pytest.raises(Unreadable):
            dialect.urls(tool, {name: value for name in tool.urls if value is not None})
