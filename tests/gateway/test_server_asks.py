"""What servers ask of the client: denied, allowed, or asked about first; roots narrowed; never outside of a call."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from licet.assemble.gate import stored_approvals
from licet.core.ledger.entry import LinkedEntry
from sandbox.levels import needs_walls

from .clients import Client
from .workspaces import Workspace

ERAS = [(client, server) for client in ("2025", "2026") for server in ("2025", "2026")]
all_eras = pytest.mark.parametrize(("client_era", "server_era"), ERAS, ids=["-".join(pair) for pair in ERAS])
SAMPLING, FORM, ROOTS = "sampling/createMessage", "elicitation/create", "roots/list"
PARAMS: dict[str, dict[str, Any]] = {
    SAMPLING: {"messages": [{"role": "user", "content": {"type": "text", "text": "hi"}}], "maxTokens": 10},
    FORM: {"message": "your name?", "requestedSchema": {"type": "object", "properties": {"name": {"type": "string"}}}},
    ROOTS: {},
}
SAMPLED = {"role": "assistant", "content": {"type": "text", "text": "the answer"}, "model": "m"}
FILLED = {"action": "accept", "content": {"name": "Ada"}}
ANSWERS: dict[str, Any] = {SAMPLING: lambda _: SAMPLED, FORM: lambda _: FILLED, ROOTS: lambda _: {"roots": []}}
TOOLS = {"sample": SAMPLING, "form": FORM, "roots": ROOTS}


def asking(era: str, **client: Any) -> dict[str, Any]:
    """A server whose tools ask the client."""
    calls: dict[str, Any] = {"seen": [["seen"]]}
    for name, method in TOOLS.items():
        ask = ["ask", method, PARAMS[method]] if era == "2025" else ["input", {"k": [method, PARAMS[method]]}]
        calls[name] = [ask]
    return {
        "script": {"era": era, "tools": ["seen", *TOOLS], "calls": calls},
        "grants": ["fs:read:${workdir}/data"],
        "tools": {"*": {"effect": "read_only"}},
        "client": client,
    }


def made(place: Path, state: Path, servers: dict[str, Any], **more: Any) -> Workspace:
    needs_walls()
    (place / "data").mkdir()
    tools = [f"{name}.{tool}" for name in servers for tool in ("seen", *TOOLS)]
    return Workspace(place, state, servers, {"tools": tools, "fs_reach": {"read": ["${workdir}"]}, **more})


def played(
    workspace: Workspace, era: str, steps: Callable[[Client], Awaitable[Any]], answers: dict[str, Any] | None = None
) -> tuple[Any, list[str]]:
    """What the steps return, and the methods that the client was asked."""

    async def scene() -> tuple[Any, list[str]]:
        async with workspace.gateway(era, answers=ANSWERS if answers is None else answers) as client:
            found = await steps(client)
            return found, [method for method, _ in client.asked]

    return asyncio.run(scene())


def asks_of(entry: LinkedEntry) -> list[tuple[str, str, str, int]]:
    """What a receipt has of questions: kind of event, what it is about, the text, and the number."""
    kinds = ("ServerAsked", "ServerAnswered", "ServerAskRefused", "ApprovalAsked", "ApprovalAnswered")
    found = [event for event in entry.events if event.kind in kinds]
    return [(one.kind, str(one.capability or ""), str(one.rule or ""), one.count or 0) for one in found]


def announced(seen: str) -> dict[str, Any]:
    """The client capabilities that a server was shown."""
    first = next(one for one in json.loads(seen) if one.get("method") in ("initialize", "server/discover"))
    params: dict[str, Any] = first["params"]
    found = params.get("capabilities", params.get("_meta", {}).get("io.modelcontextprotocol/clientCapabilities"))
    return dict(found)


@all_eras
@pytest.mark.parametrize("tool", TOOLS)
def test_nothing_may_be_asked_by_default(
    tmp_path: Path, store_path: Path, client_era: str, server_era: str, tool: str
) -> None:
    workspace = made(tmp_path, store_path, {"s": asking(server_era)})

    async def steps(client: Client) -> tuple[str, str]:
        return await client.say(tool), await client.say("seen")

    (said, seen), asked = played(workspace, client_era, steps)
    assert asked == []
    assert "Method not found" in said
    assert announced(seen) == {}


@all_eras
@pytest.mark.parametrize("tool", ["sample", "form"])
def test_what_is_allowed_is_passed_on_and_noted(
    tmp_path: Path, store_path: Path, client_era: str, server_era: str, tool: str
) -> None:
    workspace = made(tmp_path, store_path, {"s": asking(server_era, sampling="allow", elicitation="allow")})

    async def steps(client: Client) -> tuple[str, str]:
        return await client.say(tool), await client.say("seen")

    (said, seen), asked = played(workspace, client_era, steps)
    assert asked == [TOOLS[tool]]
    assert ("the answer" if tool == "sample" else "Ada") in said
    assert announced(seen) == {"sampling": {}, "elicitation": {"form": {}, "url": {}}}
    asks = asks_of(workspace.receipts()[0])
    what = "sampling" if tool == "sample" else "elicitation"
    assert [(kind, about, number) for kind, about, _, number in asks] == [
        ("ServerAsked", f"client:{what}:s", 1),
        ("ServerAnswered", f"client:{what}:s", 1),
    ]


# What a server sends, and what the person reads.
MESSAGES = [
    (FORM, {"message": "your name?"}, "message", "The MCP server `s` asks: your name?"),
    (FORM, {"message": "a\u202eb"}, "message", "The MCP server `s` asks: a\\u202eb"),
    (FORM, {"message": "a\nMay it run?"}, "message", "The MCP server `s` asks:\n> a\n> May it run?"),
    (FORM, {"message": 7}, "message", "The MCP server `s` asks: "),
    (FORM, {"message": "x" * 5000}, "message", f"The MCP server `s` asks: {'x' * 4000}…"),
    (SAMPLING, {}, "systemPrompt", "This request comes from the MCP server `s`."),
    (SAMPLING, {"systemPrompt": "Go."}, "systemPrompt", "This request comes from the MCP server `s`.\n\nGo."),
]  # fmt: skip


@pytest.mark.parametrize(("method", "more", "key", "read"), MESSAGES)
@pytest.mark.sampled(4)
def test_a_question_says_which_server_asks(
    tmp_path: Path, store_path: Path, method: str, more: dict[str, Any], key: str, read: str
) -> None:
    server = asking("2025", sampling="allow", elicitation="allow")
    server["script"]["calls"]["form"] = [["ask", method, {**PARAMS[method], **more}]]
    workspace = made(tmp_path, store_path, {"s": server})
    seen: list[Any] = []

    async def steps(client: Client) -> None:
        await client.say("form")
        seen.extend(client.asked)

    played(workspace, "2025", steps)
    assert [params[key] for _, params in seen] == [read]


@all_eras
def test_what_the_client_did_not_announce_is_refused_to_a_server(
    tmp_path: Path, store_path: Path, client_era: str, server_era: str
) -> None:
    workspace = made(tmp_path, store_path, {"s": asking(server_era, sampling="allow", elicitation="allow")})

    async def steps(client: Client) -> tuple[str, str]:
        return await client.say("sample"), await client.say("seen")

    (said, seen), asked = played(workspace, client_era, steps, {FORM: ANSWERS[FORM]})
    assert "Method not found" in said
    assert asked == []
    assert announced(seen) == {"sampling": {}, "elicitation": {"form": {}, "url": {}}}  # as when it was locked


@all_eras
def test_a_page_is_asked_for_where_elicitation_is_allowed(
    tmp_path: Path, store_path: Path, client_era: str, server_era: str
) -> None:
    server = asking(server_era, elicitation="allow")
    page = {"mode": "url", "message": "log in", "url": "https://example.com/login", "elicitationId": "mine"}
    ask = ["ask", FORM, page] if server_era == "2025" else ["input", {"k": [FORM, page]}]
    server["script"]["calls"]["form"] = [ask]
    workspace = made(tmp_path, store_path, {"s": server})

    async def scene() -> tuple[str, str, list[Any]]:
        about: Any = {"answers": {FORM: lambda _: {"action": "accept"}}, "capabilities": {"elicitation": {"url": {}}}}
        async with workspace.gateway(client_era, **about) as client:
            return await client.say("form"), await client.say("seen"), list(client.asked)

    said, seen, [(_, asked)] = asyncio.run(scene())
    assert "accept" in said
    assert announced(seen) == {"elicitation": {"form": {}, "url": {}}}
    assert (asked["mode"], asked["url"]) == ("url", "https://example.com/login")
    assert asks_of(workspace.receipts()[0])[0][2].startswith("elicitation (url at example.com), sha256:")


@all_eras
def test_ask_needs_an_approval_of_exactly_this_question(
    tmp_path: Path, store_path: Path, client_era: str, server_era: str
) -> None:
    workspace = made(tmp_path, store_path, {"s": asking(server_era, sampling="ask")})

    async def steps(client: Client) -> tuple[str, str, str]:
        first = await client.say("sample")
        store = stored_approvals(workspace.state)
        [waiting] = await store.list()
        named = {**PARAMS[SAMPLING], "systemPrompt": "This request comes from the MCP server `s`."}
        assert (waiting.request.tool, waiting.arguments) == ("s.sampling", named)
        await store.approve(waiting)
        return first, await client.say("sample"), await client.say("sample")

    answers = {SAMPLING: ANSWERS[SAMPLING]}
    (first, second, third), asked = played(workspace, client_era, steps, answers)
    assert asked == [SAMPLING]
    for said in (first, third):
        assert "sampling needs an approval, and there is none" in said
    assert "the answer" in second
    kinds = ["ServerAsked", "ApprovalAsked", "ApprovalAnswered", "ServerAnswered"]
    assert [[kind for kind, *_ in asks_of(one)] for one in workspace.receipts()] == [kinds] * 3
    refused, answered, again = ([rule for _, _, rule, _ in asks_of(one)] for one in workspace.receipts())
    assert refused[2].startswith("absent; request a-")
    assert answered[2].startswith("approved by command; a-")
    assert again[2].startswith("absent; request a-")


@pytest.mark.parametrize(("answer", "asked"), [(True, [FORM, SAMPLING]), (False, [FORM])])
@all_eras
def test_ask_can_be_approved_through_the_client(
    tmp_path: Path, store_path: Path, client_era: str, server_era: str, answer: bool, asked: list[str]
) -> None:
    terms = {"approvals": {"through_client": True}}
    workspace = made(tmp_path, store_path, {"s": asking(server_era, sampling="ask")}, **terms)
    answers = {**ANSWERS, FORM: lambda _: {"action": "accept", "content": {"approve": answer}}}
    said, questions = played(workspace, client_era, lambda client: client.say("sample"), answers)
    assert questions == asked
    assert ("the answer" in said) == answer


def test_the_time_of_a_person_does_not_count(tmp_path: Path, store_path: Path) -> None:
    server = asking("2025", elicitation="allow")
    server["tools"] = {"*": {"effect": "read_only", "limits": {"wall_seconds": 1}}}
    workspace = made(tmp_path, store_path, {"s": server})

    async def slow(_: Any) -> dict[str, Any]:
        await asyncio.sleep(1.5)
        return FILLED

    said, _ = played(workspace, "2025", lambda client: client.say("form"), {FORM: slow})
    assert "Ada" in said


@pytest.mark.parametrize("client_era", ["2025", "2026"])
def test_a_server_that_is_not_called_asks_nobody_while_another_one_is(
    tmp_path: Path, store_path: Path, client_era: str
) -> None:
    """A server that waits for another server's call could put its own question into that call."""
    question = {"jsonrpc": "2.0", "id": "mine", "method": SAMPLING, "params": PARAMS[SAMPLING]}
    sly = asking("2025", sampling="allow")
    sly["script"]["opened"] = [["line", json.dumps(question)]]
    busy = asking("2025", elicitation="allow")
    workspace = made(tmp_path, store_path, {"sly": sly, "busy": busy})

    async def steps(client: Client) -> str:
        await client.say("busy__form")
        return await client.say("sly__seen")

    seen, asked = played(workspace, client_era, steps)
    assert asked == [FORM]
    [answer] = [one for one in json.loads(seen) if one.get("id") == "mine"]
    assert "only during a call of this server" in answer["error"]["message"]


# Roots ----------------------------------------------------------------------------------------------------------------


def roots_of(place: Path) -> list[dict[str, str]]:
    uris = (
        f"file://{place}/data", f"file://{place}/data/inner", f"file://{place}/other", f"file://{place}/data/../other",
        f"file://{place}/data/%2e%2e/other", f"file://host{place}/data", f"https://example.com{place}/data", "file:///",
        f"file://{place}/database", f"file://{place}/data?x", "file://[",
    )  # fmt: skip
    return [{"uri": uri} for uri in uris]


@all_eras
def test_a_server_is_told_only_of_roots_that_are_listed_and_granted(
    tmp_path: Path, store_path: Path, client_era: str, server_era: str
) -> None:
    workspace = made(tmp_path, store_path, {"s": asking(server_era, roots=["${workdir}"])})
    answers = {ROOTS: lambda _: {"roots": roots_of(workspace.place)}}
    said, asked = played(workspace, client_era, lambda client: client.say("roots"), answers)
    assert asked == [ROOTS]
    found = [uri for uri in (one["uri"] for one in roots_of(workspace.place)) if f'"{uri}"' in said]
    assert found == [f"file://{workspace.place}/data", f"file://{workspace.place}/data/inner"]


@all_eras
@pytest.mark.parametrize("listed", [["${workdir}/other"], ["/srv"]], ids=str)
def test_a_server_is_announced_the_roots_of_its_policy_and_told_of_those_that_it_may_read(
    tmp_path: Path, store_path: Path, client_era: str, server_era: str, listed: list[str]
) -> None:
    """`licet lock` announces them, too: what a server offers may depend on it."""
    workspace = made(tmp_path, store_path, {"s": asking(server_era, roots=listed)})
    answers = {ROOTS: lambda _: {"roots": roots_of(workspace.place)}}

    async def steps(client: Client) -> tuple[str, str]:
        return await client.say("roots"), await client.say("seen")

    (said, seen), asked = played(workspace, client_era, steps, answers)
    assert announced(seen) == {"roots": {}}
    assert '"roots": []' in said
    assert asked == []


@pytest.mark.parametrize("server_era", ["2025", "2026"])
def test_a_server_is_announced_the_same_whatever_the_client_can_do(
    tmp_path: Path, store_path: Path, server_era: str
) -> None:
    allowed = asking(server_era, roots=["${workdir}"], sampling="allow", elicitation="ask")
    workspace = made(tmp_path, store_path, {"s": allowed})

    async def steps(client: Client) -> list[str]:
        return [await client.say(tool) for tool in ("seen", "roots", "sample", "form")]

    (seen, roots, sampled, form), asked = played(workspace, "2025", steps, {})
    assert announced(seen) == {"roots": {}, "sampling": {}, "elicitation": {"form": {}, "url": {}}}
    assert '"roots": []' in roots
    assert "Method not found: sampling/createMessage" in sampled
    assert "Method not found: elicitation/create" in form
    assert asked == []


def test_a_server_may_ask_a_client_of_2025_for_roots_when_it_starts(tmp_path: Path, store_path: Path) -> None:
    server = asking("2025", roots=["${workdir}"])
    server["script"]["opened"] = [["line", json.dumps({"jsonrpc": "2.0", "id": "mine", "method": ROOTS})]]
    workspace = made(tmp_path, store_path, {"s": server})
    answers = {ROOTS: lambda _: {"roots": roots_of(workspace.place)}}

    async def steps(client: Client) -> list[Any]:
        while not (found := [one for one in json.loads(await client.say("seen")) if one.get("id") == "mine"]):
            pass
        return found

    [answer], _ = played(workspace, "2025", steps, answers)
    assert len(answer["result"]["roots"]) == 2


@all_eras
@pytest.mark.parametrize("tool", TOOLS)
def test_a_question_that_is_denied_is_in_the_receipt(
    tmp_path: Path, store_path: Path, client_era: str, server_era: str, tool: str
) -> None:
    workspace = made(tmp_path, store_path, {"s": asking(server_era)})
    played(workspace, client_era, lambda client: client.say(tool))
    [receipt] = workspace.receipts()
    [(kind, about, rule, _)] = asks_of(receipt)
    name = {"sample": "sampling", "form": "elicitation", "roots": "roots"}[tool]
    assert (kind, about, rule) == ("ServerAskRefused", f"client:{name}:s", f"`client.{name}` does not allow it")
