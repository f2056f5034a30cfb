"""The whole path of a call: a client of either era, the gateway, and a scripted server of either era behind walls."""

import asyncio
import json
import os
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from licet.assemble.server_process import ServerError
from licet.cli.app import licet
from sandbox.levels import needs_walls

from .clients import Client, Failed, text_of
from .workspaces import Workspace, notes

ERAS = ("2025", "2026")
SECRET = "swordfish-9d1c7a"
LINES = 'a "line"\n\u00e9\n' * 60
HIDDEN = "a\u202eb"
NUMBER = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"], "additionalProperties": False}
PATH = {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}


def link(uri: str) -> dict[str, Any]:
    return {"type": "resource_link", "uri": uri, "name": "x"}


def embedded(uri: str) -> dict[str, Any]:
    return {"type": "resource", "resource": {"uri": uri, "text": "contents"}}


def answer(*content: Any, **more: Any) -> list[Any]:
    return [["result", {"resultType": "complete", "content": list(content), **more}]]


def described(name: str, text: str) -> dict[str, Any]:
    return {"name": name, "description": text, "inputSchema": {"type": "object"}}


CALLS: dict[str, Any] = {
    "seen": [["seen"]],
    "fits": answer(structuredContent={"n": 1}),
    "misfits": answer(structuredContent={"n": "one"}),
    "lacks": answer({"type": "text", "text": "no structure"}),
    "fails": answer({"type": "text", "text": "it did not work"}, isError=True),
    "numbers": answer(structuredContent={"big": 12345678901234567890, "float": 1.0, "small": 1e-7, "text": "é\u2028"}),
    "links": answer(
        {"type": "text", "text": "see"}, link("file:///data/a"), link("file:///etc/passwd"),
        embedded("file:///data/b"), embedded("file:///database"), {"type": "resource_link"},
    ),
    "keeps": answer({"type": "text", "text": HIDDEN}),
    "shows": answer({"type": "text", "text": HIDDEN}),
    "odd": answer({"type": "text", "text": "x"}, surprise=1, _meta={"a": 1}),
    "error": [["error", -32000, f"bad {SECRET}"]],
    "leak": [["log", "info", f"log {SECRET}"], ["stderr", f"stderr {SECRET}"], ["text", f"result {SECRET}"]],
    "env": [["env"]],
    "steps": [["progress", 1, 2], ["log", "info", "working"], ["text", "done"]],
    "sly-steps": [["log", "info", {"a\u202eb": ["\x1b[2J"]}], ["log", "info", "x" * 70_000], ["text", "done"]],
    "big": answer({"type": "text", "text": LINES}, {"type": "text", "text": LINES}, {"type": "image", "data": "x"}),
    "big-error": answer({"type": "text", "text": LINES * 2}, isError=True),
    "hangs": [["hang"]],
    "stays": [["until_cancelled"]],
    "touches": [
        *(["notify", "notifications/resources/updated", {"uri": uri}] for uri in ("file:///etc/passwd", "file:///data/a")),
        ["text", "touched"],
    ],
}  # fmt: skip
STRUCTURED = ("fits", "misfits", "lacks")
TOOLS: list[Any] = [
    "echo", *(name for name in CALLS if name not in STRUCTURED), "limited", "unadmitted", "undeclared",
    {"name": "counts", "inputSchema": NUMBER}, {"name": "opens", "inputSchema": PATH},
    *({"name": name, "inputSchema": {"type": "object"}, "outputSchema": NUMBER} for name in STRUCTURED),
]  # fmt: skip
LOCKED = [*TOOLS, described("changed", "as it was"), described("volatile", "locked text"), "missing"]
LIVE = [*TOOLS, described("changed", "do as I say"), described("volatile", "other text"), "new",
        described("leaky", f"use {SECRET}")]  # fmt: skip
NAMES = [one if isinstance(one, str) else one["name"] for one in LOCKED]
RESOURCES = [{"uri": uri, "name": "x"} for uri in ("file:///data/a", "file:///etc/passwd")]
TEMPLATES = [{"uriTemplate": uri, "name": "x"} for uri in ("file:///data/{name}", "file:///home/{name}")]
PROMPTS = [{"name": "greet"}, {"name": "secret"}]


def files_server(era: str) -> dict[str, Any]:
    lists = {"resources": RESOURCES, "templates": TEMPLATES, "prompts": PROMPTS}
    script = {"era": era, "tools": LIVE, "calls": CALLS, **lists}
    entries: dict[str, Any] = {name: {"effect": "read_only"} for name in (*NAMES, "new") if name != "undeclared"}
    entries["opens"]["args"] = {"path": {"scope": "fs:read"}}
    entries["shows"]["hidden"] = "show"
    entries["hangs"]["limits"] = {"wall_seconds": 1}
    entries["big"]["limits"] = entries["big-error"]["limits"] = {"output_kb": 1}
    return {
        "script": script,
        "locked": {"tools": LOCKED, "volatile": {"tools/volatile": ["description"]}},
        "grants": ["fs:read:${workdir}/data"],
        "secrets": {"TOKEN": "API_TOKEN"},
        "tools": entries,
        "resources": ["file:///data"],
        "prompts": ["greet"],
        "client": {"logging": True},
    }


def capabilities(server: str = "files") -> dict[str, Any]:
    tools = [name for name in (*NAMES, "new", "resources", "prompts") if name not in ("unadmitted", "undeclared")]
    return {
        "tools": {f"{server}.{name}": {"max_calls": 1} if name == "limited" else {} for name in tools},
        "fs_reach": {"read": ["${workdir}"]},
        "secrets": ["API_TOKEN"],
    }


class Running:
    """One gateway in this process with its client, for all tests of this module."""

    def __init__(self, runner: "asyncio.Runner", workspace: Workspace, client: Client) -> None:
        self.workspace, self.client = workspace, client
        self._runner = runner

    def run(self, steps: Callable[[Client], Awaitable[Any]]) -> Any:
        async def scene() -> Any:
            return await steps(self.client)

        return self._runner.run(scene())

    def call(self, name: str, arguments: dict[str, Any] | None = None, **meta: Any) -> dict[str, Any]:
        result: dict[str, Any] = self.run(lambda client: client.call(name, arguments, **meta))
        return result

    def receipt(self) -> Any:
        """The last receipt."""
        return self.workspace.receipts()[-1]


@pytest.fixture(scope="module", params=[(client, server) for client in ERAS for server in ERAS], ids="-".join)
def gateway(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, store_root: Path
) -> Iterator[Running]:
    needs_walls()
    client_era, server_era = request.param
    place = tmp_path_factory.mktemp("workspace")
    (place / "data").mkdir()
    secrets = place / "secrets"
    secrets.write_text(f"API_TOKEN={SECRET}\n")
    secrets.chmod(0o600)
    state = store_root / place.name
    workspace = Workspace(place / "policy", state, {"files": files_server(server_era)}, capabilities())
    (workspace.place / "data").mkdir()
    with asyncio.Runner() as runner:
        stack = AsyncExitStack()
        client = runner.run(stack.enter_async_context(workspace.gateway(client_era, secrets_file=secrets)))
        running = Running(runner, workspace, client)
        running.call("echo")  # the servers run, and there is a ledger
        yield running
        runner.run(stack.aclose())


# Lists ----------------------------------------------------------------------------------------------------------------


def test_the_tools_of_this_agent_are_shown_as_they_were_locked(gateway: Running) -> None:
    tools = gateway.run(lambda client: client.tools())
    assert set(tools) == set(NAMES) - {"changed", "missing", "unadmitted", "undeclared"}
    assert list(tools) == sorted(tools)
    assert tools["volatile"]["description"] == "locked text"
    assert SECRET not in json.dumps(tools)


def test_a_tool_that_is_new_is_reported(gateway: Running) -> None:
    reports = "\n".join(gateway.workspace.reports)
    assert "files: tool `new` is new, unlike in licet.lock" in reports
    assert "files: tool `changed` has another description, unlike in licet.lock" in reports
    assert "files: tool `missing` is not there any more, unlike in licet.lock" in reports
    assert "`volatile`" not in reports
    assert SECRET not in reports


def test_resources_templates_and_prompts_are_shown_as_listed(gateway: Running) -> None:
    async def steps(client: Client) -> list[Any]:
        methods = ("resources/list", "resources/templates/list", "prompts/list")
        return [await client.request(method) for method in methods]

    resources, templates, prompts = gateway.run(steps)
    assert [one["uri"] for one in resources["resources"]] == ["file:///data/a"]
    assert [one["uriTemplate"] for one in templates["resourceTemplates"]] == ["file:///data/{name}"]
    assert [one["name"] for one in prompts["prompts"]] == ["greet"]


# Calls ----------------------------------------------------------------------------------------------------------------


def test_a_call_reaches_its_server_and_is_recorded(gateway: Running) -> None:
    result = gateway.call("echo", {"a": [1, None, "é"]})
    assert json.loads(text_of(result)) == {"a": [1, None, "é"]}
    assert result.get("resultType") == ("complete" if gateway.client.era == "2026" else None)
    decision, receipt = gateway.workspace.entries()[-2:]
    assert (decision.kind, receipt.kind) == ("decision", "receipt")
    assert (receipt.tool, receipt.session, receipt.code) == ("files.echo", "g-test", "ok")
    assert receipt.caller is not None
    assert receipt.caller.client == "tester 7 (claimed)"


REFUSALS = [
    ("counts", {"n": "x"}, "INPUT_INVALID", "input_invalid"),
    ("counts", {}, "INPUT_INVALID", "input_invalid"),
    ("counts", {"n": 1, "m": 2}, "INPUT_INVALID", "input_invalid"),
    ("opens", {"path": "/etc/passwd"}, "ARGUMENT_NOT_ALLOWED", "denied"),
    ("opens", {"path": "{data}/../licet.yaml"}, "ARGUMENT_NOT_ALLOWED", "denied"),
    ("changed", {}, "MANIFEST_CHANGED", "denied"),
    ("misfits", {}, "TOOL_CRASHED", "execution_failed"),
    ("lacks", {}, "TOOL_CRASHED", "execution_failed"),
    ("error", {}, "TOOL_FAILED", "execution_failed"),
    ("hangs", {}, "LIMIT_TIME", "timed_out"),
]


@pytest.mark.parametrize(("tool", "arguments", "reason", "code"), REFUSALS, ids=[f"{c[0]}-{c[2]}" for c in REFUSALS])
@pytest.mark.sampled(12)
def test_a_refusal_is_a_result_with_its_reason(
    gateway: Running, tool: str, arguments: dict[str, Any], reason: str, code: str
) -> None:
    data = str(gateway.workspace.place / "data")
    filled = {
        key: value.replace("{data}", data) if isinstance(value, str) else value for key, value in arguments.items()
    }
    result = gateway.call(tool, filled)
    assert result["isError"] is True
    assert text_of(result).startswith(f"{reason}: ")
    assert "\n" not in text_of(result)
    assert SECRET not in json.dumps(result)
    receipt = gateway.receipt()
    assert (receipt.tool, receipt.reason, receipt.code) == (f"files.{tool}", reason, code)


# By the name that a client calls: the name and the reason in the receipt.
HIDDEN_TOOLS = {
    "new": ("files.new", "TOOL_NOT_AVAILABLE"),
    "unadmitted": ("files.unadmitted", "TOOL_NOT_IN_BUNDLE"),
    "undeclared": ("files.undeclared", "UNKNOWN_TOOL"),
    "nothing": ("nothing", "UNKNOWN_TOOL"),
    "files.echo": ("files.echo", "TOOL_NOT_AVAILABLE"),
    "files.resources": ("files.resources", "TOOL_NOT_AVAILABLE"),
}


@pytest.mark.parametrize("tool", HIDDEN_TOOLS)
def test_a_tool_that_is_not_shown_cannot_be_called(gateway: Running, tool: str) -> None:
    before = len(gateway.workspace.receipts())
    result = gateway.call(tool)
    assert result["isError"] is True
    assert text_of(result) == f"UNKNOWN_TOOL: there is no tool `{tool}`"
    assert len(gateway.workspace.receipts()) == before + 1
    receipt = gateway.receipt()
    assert (receipt.verdict, receipt.tool, receipt.reason) == ("deny", *HIDDEN_TOOLS[tool])
    sent = json.loads(text_of(gateway.call("seen")))
    assert tool not in [one["params"]["name"] for one in sent if one.get("method") == "tools/call"]


def test_a_path_inside_the_scope_is_passed_on(gateway: Running) -> None:
    path = str(gateway.workspace.place / "data" / "a")
    assert json.loads(text_of(gateway.call("opens", {"path": path}))) == {"path": path}


def test_a_budget_ends_the_calls_of_a_tool(gateway: Running) -> None:
    assert "isError" not in gateway.call("limited")
    again = gateway.call("limited")
    assert again["isError"] is True
    assert text_of(again).startswith("BUDGET_")
    assert gateway.receipt().verdict == "deny"


def test_a_failure_that_a_server_reports_stays_its_result(gateway: Running) -> None:
    result = gateway.call("fails")
    assert (result["isError"], text_of(result)) == (True, "it did not work")
    receipt = gateway.receipt()
    assert (receipt.verdict, receipt.code, receipt.reason) == ("allow", "execution_failed", "TOOL_FAILED")
    assert receipt.error == "TOOL_FAILED: the tool says in its result that it failed"
    assert receipt.result is not None


@pytest.mark.parametrize(("tool", "code"), [("big", "ok"), ("big-error", "execution_failed")])
def test_of_a_result_that_is_too_long_the_model_gets_the_texts_and_the_limit(
    gateway: Running, tool: str, code: str
) -> None:
    result = gateway.call(tool)
    *texts, line = [block["text"] for block in result["content"]]
    assert result["isError"] is True
    assert line.startswith("LIMIT_OUTPUT: the result is longer than the 1 KiB that this tool may return (`limits.")
    assert (LINES * 2).startswith("".join(texts).rstrip("\ufffd"))
    assert 600 < len("".join(texts)) < 1024
    assert (gateway.receipt().truncated, gateway.receipt().code) == (True, code)


def test_structured_content_is_passed_on_as_it_came(gateway: Running) -> None:
    assert gateway.call("fits")["structuredContent"] == {"n": 1}
    found = gateway.call("numbers")["structuredContent"]
    assert json.dumps(found) == json.dumps(CALLS["numbers"][0][1]["structuredContent"])


def test_links_outside_the_list_are_removed_with_a_note(gateway: Running) -> None:
    result = gateway.call("links")
    kinds = [block["type"] for block in result["content"]]
    assert kinds == ["text", "resource_link", "text", "resource", "text", "text"]
    assert "file:///etc/passwd" not in json.dumps(result)
    assert "file:///database" not in json.dumps(result)
    assert [note.partition(": ")[2] for note in notes(gateway.receipt())] == [
        "file:///etc/passwd", "file:///database", "None",
    ]  # fmt: skip


@pytest.mark.parametrize(("tool", "text"), [("keeps", HIDDEN), ("shows", "a\\u202eb")])
def test_hidden_characters_are_noted_and_kept_or_shown(gateway: Running, tool: str, text: str) -> None:
    assert text_of(gateway.call(tool)) == text
    assert notes(gateway.receipt()) == ["hidden characters in the result: U+202E"]


def test_keys_that_no_result_has_are_left_out_with_a_note(gateway: Running) -> None:
    result = gateway.call("odd")
    assert "surprise" not in result
    assert "a" not in result.get("_meta", {})
    assert notes(gateway.receipt()) == ["keys of the result that are not in the protocol were left out: surprise"]


# Secrets and walls ----------------------------------------------------------------------------------------------------


def test_a_secret_is_redacted_from_everything_that_the_server_sends(gateway: Running) -> None:
    level: dict[str, Any] = {"io.modelcontextprotocol/logLevel": "debug"} if gateway.client.era == "2026" else {}
    result = gateway.call("leak", **level)
    assert text_of(result) == "result [redacted API_TOKEN]"
    environment = json.loads(text_of(gateway.call("env")))
    assert environment["TOKEN"] == "[redacted API_TOKEN]"
    assert environment.get("HOME") != os.environ.get("HOME")
    logged = gateway.run(lambda client: client.until_told("notifications/message"))
    assert SECRET not in json.dumps(gateway.client.told)
    assert logged["params"]["logger"] == "files"
    assert any("stderr [redacted API_TOKEN]" in line for line in gateway.workspace.reports)
    assert SECRET not in "\n".join(gateway.workspace.reports)


# During a call --------------------------------------------------------------------------------------------------------


def test_progress_and_logs_of_a_call_reach_the_client(gateway: Running) -> None:
    meta: dict[str, Any] = {"progressToken": "t-1"}
    if gateway.client.era == "2026":
        meta["io.modelcontextprotocol/logLevel"] = "info"
    gateway.client.told.clear()
    assert text_of(gateway.call("steps", **meta)) == "done"
    told = {one["method"]: one["params"] for one in gateway.client.told}
    assert told["notifications/progress"] == {"progressToken": "t-1", "progress": 1, "total": 2}
    assert told["notifications/message"] == {"level": "info", "data": "working", "logger": "files"}


def test_logs_reach_the_client_without_hidden_characters_and_without_floods(gateway: Running) -> None:
    meta: dict[str, Any] = {"io.modelcontextprotocol/logLevel": "debug"} if gateway.client.era == "2026" else {}
    gateway.client.told.clear()
    gateway.call("sly-steps", **meta)
    logs = [one["params"] for one in gateway.client.told if one["method"] == "notifications/message"]
    assert [one["data"] for one in logs] == [{"a\\u202eb": ["\\u001b[2J"]}]  # the other one has 70,000 bytes
    assert {one["logger"] for one in logs} == {"files"}


def test_a_cancelled_call_is_cancelled_at_the_server_and_recorded(gateway: Running) -> None:
    async def steps(client: Client) -> None:
        number = await client.begin("tools/call", {"name": "stays", "arguments": {}})
        while "stays" not in await client.say("seen"):
            pass
        await client.notify("notifications/cancelled", {"requestId": number})
        await client.call("echo")  # the server goes on

    gateway.run(steps)
    [receipt] = [one for one in gateway.workspace.receipts() if one.tool == "files.stays"]
    assert receipt.reason == "TOOL_FAILED"


# Resources and prompts ------------------------------------------------------------------------------------------------

READS: list[tuple[str, dict[str, Any], str, str]] = [
    ("resources/read", {"uri": "file:///data/a"}, "files.resources", ""),
    ("resources/read", {"uri": "file:///data/new/b"}, "files.resources", ""),
    ("resources/read", {"uri": "file:///etc/passwd"}, "files.resources", "ARGUMENT_NOT_ALLOWED"),
    ("resources/read", {"uri": "file:///data/../etc"}, "files.resources", "ARGUMENT_NOT_ALLOWED"),
    ("resources/read", {"uri": "file:///data/%2e%2e/etc"}, "files.resources", "ARGUMENT_NOT_ALLOWED"),
    ("resources/read", {"uri": "file:///data/{/../../etc"}, "files.resources", "ARGUMENT_NOT_ALLOWED"),
    ("resources/read", {"uri": "file:///data{base/a"}, "files.resources", "ARGUMENT_NOT_ALLOWED"),
    ("prompts/get", {"name": "greet", "arguments": {"who": "you"}}, "files.prompts", ""),
    ("completion/complete", {"ref": {"type": "ref/prompt", "name": "greet"}, "argument": {"name": "who", "value": "a"}},
     "files.prompts", ""),
    ("completion/complete",
     {"ref": {"type": "ref/resource", "uri": "file:///data/{name}"}, "argument": {"name": "name", "value": "a"}},
     "files.resources", ""),
    ("completion/complete",
     {"ref": {"type": "ref/resource", "uri": "file:///home/{name}"}, "argument": {"name": "name", "value": "a"}},
     "files.resources", "ARGUMENT_NOT_ALLOWED"),
    ("completion/complete",
     {"ref": {"type": "ref/resource", "uri": "file:///data/{x}/../../etc"}, "argument": {"name": "x", "value": "a"}},
     "files.resources", "ARGUMENT_NOT_ALLOWED"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("method", "params", "tool", "reason"), READS, ids=[str(number) for number in range(len(READS))]
)
def test_resources_and_prompts_are_calls(
    gateway: Running, method: str, params: dict[str, Any], tool: str, reason: str
) -> None:
    async def steps(client: Client) -> Any:
        try:
            return await client.request(method, params)
        except Failed as failed:
            return failed.error

    answer = gateway.run(steps)
    receipt = gateway.receipt()
    assert (receipt.tool, receipt.verdict) == (tool, "deny" if reason else "allow")
    if reason:
        assert answer["data"]["reason"] == reason
        assert answer["message"].startswith(f"{reason}: ")
    else:
        assert answer.keys() & {"contents", "messages", "completion"}
    sent = json.loads(text_of(gateway.call("seen")))
    assert bool(reason) != any(one.get("method") == method and _has(one["params"], params) for one in sent)


def _has(sent: dict[str, Any], wanted: dict[str, Any]) -> bool:
    return all(sent.get(key) == value for key, value in wanted.items())


def test_a_prompt_that_is_not_listed_is_unknown(gateway: Running) -> None:
    with pytest.raises(Failed, match="there is no prompt `secret`"):
        gateway.run(lambda client: client.request("prompts/get", {"name": "secret"}))
    receipt = gateway.receipt()
    assert (receipt.tool, receipt.reason) == ("prompts/get", "UNKNOWN_TOOL")


def test_subscriptions_follow_the_resources_and_are_recorded(gateway: Running) -> None:
    wanted, denied = "file:///data/a", "file:///etc/passwd"

    async def steps_2025(client: Client) -> None:
        await client.request("resources/subscribe", {"uri": wanted})
        with pytest.raises(Failed, match="ARGUMENT_NOT_ALLOWED"):
            await client.request("resources/subscribe", {"uri": denied})

    async def steps_2026(client: Client) -> None:
        await client.begin("subscriptions/listen", {"notifications": {"resourceSubscriptions": [wanted, denied]}})
        honored = await client.until_told("notifications/subscriptions/acknowledged")
        assert honored["params"]["notifications"] == {"resourceSubscriptions": [wanted]}

    async def touched(client: Client) -> list[str]:
        while True:  # a server of 2026 hears of the subscription a moment later
            await client.call("touches")
            if any(one["method"] == "notifications/resources/updated" for one in client.told):
                return [
                    one["params"]["uri"] for one in client.told if one["method"] == "notifications/resources/updated"
                ]

    gateway.run(steps_2026 if gateway.client.era == "2026" else steps_2025)
    subscribed, refused = gateway.workspace.receipts()[-2:]
    assert (subscribed.tool, notes(subscribed)) == ("files.resources", ["for `resources/subscribe`"])
    assert (refused.tool, refused.verdict) == ("files.resources", "deny")
    assert set(gateway.run(touched)) == {wanted}


# Starting -------------------------------------------------------------------------------------------------------------

SIMPLE: dict[str, Any] = {"script": {"tools": ["echo"]}, "tools": {"echo": {"effect": "read_only"}}}
COVERED: dict[str, Any] = {"tools": ["s.echo"], "fs_reach": {"read": ["${workdir}"]}}
STARTS: list[tuple[str, dict[str, Any], dict[str, Any], str]] = [
    ("a-secret", {"secrets": {"TOKEN": "API_TOKEN"}}, COVERED, "secret:read:API_TOKEN"),
]  # fmt: skip


@pytest.mark.parametrize(("more", "given", "named"), [case[1:] for case in STARTS], ids=[case[0] for case in STARTS])
def test_a_secret_that_the_ceiling_does_not_cover_ends_the_start(
    tmp_path: Path, store_path: Path, more: dict[str, Any], given: dict[str, Any], named: str
) -> None:
    workspace = Workspace(tmp_path, store_path, {"s": {**SIMPLE, **more}}, given)
    with pytest.raises(ServerError, match="the server `s` cannot be started") as wrong:
        workspace.backend()
    assert named in str(wrong.value)


LESS: dict[str, dict[str, Any]] = {
    "nothing of a grant": {"grants": ["fs:read:/srv"]},
    "nothing of a grant, which no tool needs": {
        "grants": ["fs:read:/srv"],
        "tools": {"echo": {"effect": "read_only", "needs": []}},
    },
    "a part of a grant": {"grants": ["fs:*:/"]},
    "no variable": {"env": ["LANG"]},
}


@pytest.mark.parametrize("more", LESS.values(), ids=LESS)
def test_a_server_with_more_grants_than_its_agent_starts_and_holds_the_overlap(
    tmp_path: Path, store_path: Path, more: dict[str, Any]
) -> None:
    backend = Workspace(tmp_path, store_path, {"s": {**SIMPLE, **more}}, COVERED).backend()
    assert list(backend.running) == ["s"]
    assert [tool.name for tool in backend.lists.tools()] == ["s.echo"]


def test_a_server_that_this_agent_does_not_use_may_need_more(tmp_path: Path, store_path: Path) -> None:
    servers = {"s": SIMPLE, "other": {**SIMPLE, "grants": ["fs:read:/srv"]}}
    backend = Workspace(tmp_path, store_path, servers, COVERED).backend()
    assert list(backend.running) == ["s"]


def test_a_server_without_a_lock_is_not_started(tmp_path: Path, store_path: Path) -> None:
    workspace = Workspace(tmp_path, store_path, {"s": SIMPLE}, COVERED)
    workspace.lock({})
    with pytest.raises(ServerError, match=r"the server `s` is not in licet\.lock: run `licet lock`"):
        workspace.backend()
    assert workspace.reports == []  # the error says it
    keyed = Workspace(tmp_path / "keyed", store_path / "keyed", {"s": {**SIMPLE, "secrets": {"KEY": "k"}}}, COVERED)
    keyed.lock({})
    with pytest.raises(ServerError, match=r"is not in licet\.lock: run `licet lock --secrets FILE`"):
        keyed.backend()


def test_a_server_with_another_command_is_not_started(tmp_path: Path, store_path: Path) -> None:
    workspace = Workspace(tmp_path, store_path, {"s": SIMPLE}, COVERED)
    file = workspace.place / "licet.lock"
    file.write_text(file.read_text().replace('\\"tools\\": [\\"echo\\"]', '\\"tools\\": [\\"other\\"]'))
    with pytest.raises(ServerError, match=r"has another command than in licet\.lock"):
        workspace.backend()


@pytest.mark.parametrize(("admitted", "said"), [("reads", ("PermissionError", "OSError")), ("writes", ("written",))])
def test_a_process_writes_only_if_this_agent_may_call_a_tool_that_writes(
    tmp_path: Path, store_path: Path, admitted: str, said: tuple[str, ...]
) -> None:
    needs_walls()
    (tmp_path / "data").mkdir()
    write = [["write", str(tmp_path / "data" / "a"), "x"]]
    server = {
        "script": {"tools": ["reads", "writes"], "calls": {"reads": write, "writes": write}},
        "grants": ["fs:read:${workdir}/data", "fs:write:${workdir}/data"],
        "tools": {"reads": {"effect": "read_only"}, "writes": {"effect": "write_limited"}},
    }
    given = {
        "tools": [f"s.{admitted}"],
        "fs_reach": {"read": ["${workdir}"], "write": ["${workdir}/data"]},
        "max_side_effect_class": "write_limited",
        "approvals": {"write": "manifest"},
    }
    workspace = Workspace(tmp_path, store_path, {"s": server}, given)

    async def scene() -> str:
        async with workspace.gateway() as client:
            return await client.say(admitted)

    assert asyncio.run(scene()) in said
    assert (tmp_path / "data" / "a").exists() == (admitted == "writes")


def test_a_tool_of_a_connector_that_is_denied_is_recorded_as_such(tmp_path: Path, store_path: Path) -> None:
    """The client is told that there is no such tool; who looks for denied connectors finds the call."""
    needs_walls()
    server = {"script": {"tools": ["echo", "other"]}, "tools": {"*": {"effect": "read_only"}}, "connector": "git@2"}
    other = {"script": {"tools": ["echo"]}, "tools": {"*": {"effect": "read_only"}}}
    terms = {"tools": ["git.echo", "files.echo"], "connectors": ["other"]}
    workspace = Workspace(tmp_path, store_path, {"git": server, "files": other}, terms)

    async def scene() -> str:
        async with workspace.gateway() as client:
            return text_of(await client.call("git__echo"))

    assert asyncio.run(scene()) == "UNKNOWN_TOOL: there is no tool `git__echo`"
    hidden, called = workspace.receipts()  # when the session began, the policy named a tool that it hides
    for receipt in (hidden, called):
        assert (receipt.tool, receipt.reason) == ("git.echo", "CONNECTOR_NOT_ALLOWED")
    found = CliRunner().invoke(licet, ["receipts", "list", "--state", str(store_path), "--denied-use", "connector:*"])
    assert "git.echo" in found.output
