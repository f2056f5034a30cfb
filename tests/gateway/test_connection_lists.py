"""What a client is shown: locked definitions under shown names, and whose resource a URI is."""

import asyncio
from typing import Any

import pytest

from licet.gateway import catalog
from licet.mcp.shown_names import Clash, Naming

from .scenes import both_eras, played, scene_of
from .scripted_backend import Scene, ScriptedBackend, prompt, resource, template, tool

LISTS = {
    "tools/list": "tools",
    "resources/list": "resources",
    "resources/templates/list": "resourceTemplates",
    "prompts/list": "prompts",
}


def large() -> ScriptedBackend:
    numbers = range(250)
    return ScriptedBackend(
        [tool(f"s.t{number}") for number in numbers],
        [resource("s", f"a://{number}") for number in numbers],
        [template("s", f"a://{number}/{{x}}") for number in numbers],
        [prompt("s", f"p{number}") for number in numbers],
    )


@pytest.fixture
def short_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catalog, "MOST_PAGE_ITEMS", 100)


@pytest.mark.parametrize(("method", "key"), LISTS.items())
@played(backend=large)
async def test_a_client_that_reads_one_page_sees_the_whole_list(scene: Scene, method: str, key: str) -> None:
    [answer] = await scene.request(method)
    assert len(answer["result"][key]) == 250
    assert "nextCursor" not in answer["result"]


@pytest.mark.parametrize(("most", "pages"), [(1, 250), (10_000, 3), (10**9, 1)])
def test_a_page_has_a_limit_of_bytes_too(monkeypatch: pytest.MonkeyPatch, most: int, pages: int) -> None:
    monkeypatch.setattr(catalog, "MOST_PAGE_BYTES", most)

    async def steps(scene: Scene) -> None:
        found: list[Any] = []
        params: dict[str, Any] = {}
        read = 0
        while True:
            [answer] = await scene.request("tools/list", params)
            found, read = [*found, *answer["result"]["tools"]], read + 1
            if "nextCursor" not in answer["result"]:
                break
            params = {"cursor": answer["result"]["nextCursor"]}
        assert [one["name"] for one in found] == [f"t{number}" for number in range(250)]
        assert read == pages

    scene_of(steps, "2025", large)


@pytest.mark.usefixtures("short_pages")
@pytest.mark.parametrize(("method", "key"), LISTS.items())
@played(backend=large)
async def test_longer_lists_come_in_pages_and_in_the_order_of_the_backend(
    scene: Scene, era: str, method: str, key: str
) -> None:
    pages: list[list[Any]] = []
    params: dict[str, Any] = {}
    while True:
        [answer] = await scene.request(method, params)
        pages.append(answer["result"][key])
        if "nextCursor" not in answer["result"]:
            break
        params = {"cursor": answer["result"]["nextCursor"]}
    assert [len(page) for page in pages] == [100, 100, 50]
    source = {"tools": "shown", "resources": "listed", "resourceTemplates": "patterns", "prompts": "drafts"}[key]
    expected = [item.definition for item in getattr(scene.backend, source)]
    assert [definition for page in pages for definition in page] == expected
    assert ("ttlMs" in answer["result"]) == (era == "2026")


@pytest.mark.parametrize(("method", "key"), LISTS.items())
@played()
async def test_an_empty_list_is_a_page_without_a_cursor(scene: Scene, method: str, key: str) -> None:
    scene.backend.shown = ()
    [answer] = await scene.request(method)
    assert answer["result"][key] == []
    assert "nextCursor" not in answer["result"]


async def cursor_of(scene: Scene, method: str) -> Any:
    [answer] = await scene.request(method)
    return answer["result"]["nextCursor"]


@pytest.mark.parametrize("cursor", ["", "0", "100", "x" * 10_000, 100, 0, ["a"], {"a": 1}, True])
@played("2025", backend=large)
async def test_a_made_up_cursor_is_refused(scene: Scene, cursor: Any) -> None:
    [answer] = await scene.request("tools/list", {"cursor": cursor})
    assert answer["error"]["code"] == -32602


@pytest.mark.usefixtures("short_pages")
@played("2025", backend=large)
async def test_a_cursor_of_another_or_a_changed_list_is_refused(scene: Scene) -> None:
    for cursor in (await cursor_of(scene, "prompts/list"), f"{await cursor_of(scene, 'tools/list')}0"):
        [answer] = await scene.request("tools/list", {"cursor": cursor})
        assert answer["error"]["code"] == -32602
    cursor = await cursor_of(scene, "tools/list")
    scene.backend.shown = [*scene.backend.shown[1:], tool("s.new")]
    [answer] = await scene.request("tools/list", {"cursor": cursor})
    assert answer["error"]["code"] == -32602


@pytest.mark.usefixtures("short_pages")
@played("2025", backend=large)
async def test_an_absent_cursor_may_be_null(scene: Scene) -> None:
    [answer] = await scene.request("tools/list", {"cursor": None})
    assert len(answer["result"]["tools"]) == 100


# Names ----------------------------------------------------------------------------------------------------------------


def several() -> ScriptedBackend:
    return ScriptedBackend(
        [tool("a.echo"), tool("b.echo", execution={"taskSupport": "required"}, _meta={"x": 1}, title="Echo")],
        [resource("a", "a://doc"), resource("b", "b://doc"), resource("a", "both://doc"), resource("b", "both://doc")],
        [template("a", "a://{+path}"), template("b", "b://items/{id}"), template("b", "a://b/{id}")],
        [prompt("a", "draft.one"), prompt("b", "draft")],
    )


@both_eras
def test_tools_of_several_servers_are_called_by_their_shown_names(era: str) -> None:
    async def steps(scene: Scene) -> None:
        [answer] = await scene.request("tools/list")
        assert [shown["name"] for shown in answer["result"]["tools"]] == ["a__echo", "b__echo"]
        assert answer["result"]["tools"][1].keys() == {"name", "title", "description", "inputSchema"}
        await scene.call("b__echo", {"x": 1}, 2)
        assert scene.backend.happened == [("call", "b.echo", {"x": 1})]
        for unknown in ("echo", "b.echo", "c__echo", "B__echo"):
            [answer] = await scene.call(unknown, {}, 3)
            assert answer["result"]["isError"] is True
        assert len(scene.backend.happened) == 1

    scene_of(steps, era, several, "prefixed")


def test_prompts_are_got_by_their_shown_names() -> None:
    async def steps(scene: Scene) -> None:
        [answer] = await scene.request("prompts/list")
        assert [shown["name"] for shown in answer["result"]["prompts"]] == ["a__draft_one", "b__draft"]
        [answer] = await scene.request("prompts/get", {"name": "a__draft_one", "arguments": {"x": "1"}})
        assert answer["result"] == {"description": "d", "messages": []}
        await scene.request("prompts/get", {"name": "b__draft"})
        assert scene.backend.happened == [("prompt", "a", "draft.one", {"x": "1"}), ("prompt", "b", "draft", {})]
        for unknown in ("draft", "a.draft.one", "", 1):
            [answer] = await scene.request("prompts/get", {"name": unknown})
            assert answer["error"]["code"] == -32602

    scene_of(steps, "2025", several, "prefixed")


@pytest.mark.parametrize(
    ("tools", "prompts", "names"),
    [
        (["a.echo", "b.echo"], [], "plain"),
        (["a.x.y", "a.x_y"], [], "prefixed"),
        ([], [("a", "p"), ("b", "p")], "plain"),
        ([], [("a", "p q"), ("a", "p.q")], "prefixed"),
    ],
)
def test_no_connection_begins_with_a_clash(tools: list[str], prompts: list[tuple[str, str]], names: Naming) -> None:
    async def begin() -> None:
        Scene(ScriptedBackend([tool(name) for name in tools], prompts=[prompt(*both) for both in prompts]), names)

    with pytest.raises(Clash):
        asyncio.run(begin())


@played("2025")
async def test_a_later_clash_refuses_the_call(scene: Scene) -> None:
    scene.backend.shown = [tool("a.echo"), tool("b.echo")]
    [answer] = await scene.call("echo")
    assert answer["result"]["isError"] is True
    assert scene.backend.happened == []
    assert "Clash" in scene.backend.events[0].reason


# Resources ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("uri", "server"),
    [
        ("a://doc", "a"),
        ("b://doc", "b"),
        ("a://other/x", "a"),
        ("b://items/7", "b"),
        ("both://doc", None),  # listed by two servers: one could answer in the place of the other
        ("a://b/7", None),  # templates of two servers
        ("c://doc", None),
        ("b://other", None),
        ("", None),
    ],
)
def test_a_uri_goes_to_the_one_server_that_offers_it(uri: str, server: str | None) -> None:
    async def steps(scene: Scene) -> None:
        [answer] = await scene.request("resources/read", {"uri": uri})
        if server:
            assert answer["result"] == {"contents": [{"uri": uri, "text": "hi"}]}
            assert scene.backend.happened == [("read", server, uri)]
        else:
            assert answer["error"]["code"] == -32602
            assert scene.backend.happened == []

    scene_of(steps, "2025", several, "prefixed")


def test_an_ambiguous_uri_names_its_servers() -> None:
    async def steps(scene: Scene) -> None:
        [answer] = await scene.request("resources/read", {"uri": "both://doc"})
        assert answer["error"]["message"] == "resource `both://doc` is offered by a and by b"

    scene_of(steps, "2025", several, "prefixed")


@played("2025", backend=lambda: ScriptedBackend(resources=[resource("s", "a://b")]))
async def test_an_unlisted_uri_goes_to_the_only_server_with_resources(scene: Scene) -> None:
    await scene.request("resources/read", {"uri": "x://unlisted"})
    assert scene.backend.happened == [("read", "s", "x://unlisted")]


@both_eras
def test_a_refused_resource_is_an_error_with_its_reason(era: str) -> None:
    async def steps(scene: Scene) -> None:
        [answer] = await scene.request("resources/read", {"uri": "a://secret"})
        assert answer["error"] == {
            "code": -32602,
            "message": "PATH_NOT_REACHABLE: read not permitted",
            "data": {"reason": "PATH_NOT_REACHABLE"},
        }

    scene_of(steps, era, several, "prefixed")


def test_a_resource_of_2026_is_not_kept_and_of_2025_says_nothing_of_that() -> None:
    async def modern(scene: Scene) -> None:
        [answer] = await scene.request("resources/read", {"uri": "a://doc"})
        assert (answer["result"]["ttlMs"], answer["result"]["cacheScope"]) == (0, "private")
        assert [event.name for event in scene.backend.events] == ["resources/read odd"]

    async def older(scene: Scene) -> None:
        [answer] = await scene.request("resources/read", {"uri": "a://doc"})
        assert answer["result"].keys() == {"contents"}

    scene_of(modern, "2026", several, "prefixed")
    scene_of(older, "2025", several, "prefixed")


@pytest.mark.parametrize(
    ("ref", "server", "passed"),
    [
        (
            {"type": "ref/prompt", "name": "a__draft_one", "title": "x"},
            "a",
            {"type": "ref/prompt", "name": "draft.one"},
        ),
        ({"type": "ref/resource", "uri": "b://items/{id}"}, "b", {"type": "ref/resource", "uri": "b://items/{id}"}),
        ({"type": "ref/resource", "uri": "a://b/{id}"}, "b", {"type": "ref/resource", "uri": "a://b/{id}"}),
        ({"type": "ref/prompt", "name": "draft"}, None, None),
        ({"type": "ref/resource", "uri": "c://{x}"}, None, None),
        ({"type": "ref/tool", "name": "a__echo"}, None, None),
        ({"type": "ref/prompt"}, None, None),
        ("a__draft_one", None, None),
        (None, None, None),
    ],
)
def test_completions_follow_what_they_complete(ref: Any, server: str | None, passed: Any) -> None:
    async def steps(scene: Scene) -> None:
        argument, context = {"name": "x", "value": "a"}, {"arguments": {"y": "1"}}
        params = {"ref": ref, "argument": argument, "context": context}
        [answer] = await scene.request("completion/complete", params)
        if server:
            assert answer["result"] == {"completion": {"values": ["a"]}}
            assert scene.backend.happened == [("complete", server, passed, argument, context)]
        else:
            assert answer["error"]["code"] == -32602
            assert scene.backend.happened == []

    scene_of(steps, "2025", several, "prefixed")
