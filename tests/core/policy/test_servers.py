"""MCP servers as values: which resources a prefix covers, what a process holds, what annotations mean."""

from typing import Any

import pytest

from core.tables import grouped
from licet.core.algebra.set import CapabilitySet
from licet.core.policy.servers import (
    ClientTerms,
    Server,
    ServerToolEntry,
    annotated_effect,
    below,
    server_of,
    stricter,
    tool_parts,
)

BELOW = {
    ("file:///srv/data", "file:///srv/data"): True,
    ("file:///srv/data/a/b", "file:///srv/data"): True,
    ("file:///srv/data/a", "file:///srv/data/"): True,
    ("file:///srv/data?x", "file:///srv/data"): True,
    ("file:///srv/data#x", "file:///srv/data"): True,
    ("memo://notes/1", "memo:"): True,
    ("file:///srv/database", "file:///srv/data"): False,
    ("file:///srv", "file:///srv/data"): False,
    ("FILE:///srv/data", "file:///srv/data"): False,
    ("file:///srv/data/../etc", "file:///srv/data"): False,
    ("file:///srv/data/..", "file:///srv/data"): False,
    ("file:///srv/data/./a", "file:///srv/data"): False,
    ("file:///srv/data/%2e%2e/etc", "file:///srv/data"): False,
    ("file:///srv/data/%25252e%25252e/etc", "file:///srv/data"): False,
    ("file:///srv/data/a%2Fb", "file:///srv/data"): False,
    ("file:///srv/data/a%5cb", "file:///srv/data"): False,
    ("file:///srv/data\\..\\etc", "file:///srv/data"): False,
    ("file:///srv/data/a b", "file:///srv/data"): False,
    ("file:///srv/data/\n", "file:///srv/data"): False,
    ("/srv/data", "/srv/data"): False,
}


@pytest.mark.parametrize(("pair", "expected"), BELOW.items(), ids=map(str, BELOW))
def test_a_prefix_covers_whole_segments(pair: tuple[str, str], expected: bool) -> None:
    assert below(*pair) is expected
    assert Server(name="s", resources=(pair[1],)).shows_resource(pair[0]) is expected


def test_what_is_not_listed_is_not_shown() -> None:
    server = Server(name="s", prompts=("greet",))
    assert (server.shows_prompt("greet"), server.shows_prompt("gree")) == (True, False)
    assert not server.shows_resource("file:///a")
    everything = Server(name="s", resources="*", prompts="*")
    assert everything.shows_prompt("x")
    assert everything.shows_resource("file:///a/../b")


def test_variables_and_secrets_count_as_grants() -> None:
    server = Server(name="s", grants=("fs:read:/srv",), env=("LANG",), secrets={"TOKEN": "github/token"})
    assert server.holds == CapabilitySet(["fs:read:/srv", "env:read:LANG", "secret:read:github/token"])
    remote = Server(name="s", url="https://a.example", headers={"Authorization": "k"})
    assert remote.holds == CapabilitySet(["secret:read:k", "network:https:get@a.example:443"])
    assert [one.kind for one in (server, remote, Server(name="s", sandbox="native"))] == [
        "isolated",
        "remote",
        "native",
    ]


ANNOTATIONS: list[tuple[dict[str, Any], str]] = grouped({
    "read_only": [{}, {"readOnlyHint": True}, {"destructiveHint": "true", "readOnlyHint": 0}],
    "write_limited": [{"readOnlyHint": False}],
    "full": [{"destructiveHint": True}, {"readOnlyHint": True, "destructiveHint": True}],
})  # fmt: skip


@pytest.mark.parametrize(("annotations", "least"), ANNOTATIONS)
def test_annotations_only_tighten(annotations: dict[str, Any], least: Any) -> None:
    assert annotated_effect(annotations) == least
    for stated in ("read_only", "write_limited", "full", "destructive"):
        assert stricter(stated, annotated_effect(annotations)) in (stated, least)
    assert stricter("destructive", "read_only") == stricter("read_only", "destructive") == "destructive"


def test_a_server_is_shown_only_what_its_entry_allows() -> None:
    assert ClientTerms().capabilities == {}
    modes: dict[str, Any] = {"form": {}, "url": {}}
    everything = ClientTerms("ask", "allow", ("/srv",), True).capabilities
    assert everything == {"sampling": {}, "elicitation": modes, "roots": {}}


def test_an_entry_of_a_tool_comes_before_that_of_all() -> None:
    server = server_of("s", {"command": ["x"], "tools": {"a": {"effect": "full"}, "*": {"effect": "read_only"}}})
    assert server.entry("a") == ServerToolEntry(effect="full")
    assert server.entry("b") == ServerToolEntry(effect="read_only")
    assert Server(name="s").entry("a") is None


@pytest.mark.parametrize(
    ("name", "parts"),
    [("s.a", ("s", "a")), ("s.a.b", ("s", "a.b")), ("s", None), ("s.", None), ("t.a", None), (".a", None)],
)
def test_a_full_name_names_a_server_and_its_tool(name: str, parts: tuple[str, str] | None) -> None:
    assert tool_parts(name, {"s": 1}) == parts
