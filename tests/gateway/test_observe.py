"""`licet gateway --observe`: calls that the policy refuses run and are noted, walls stay, and only a flag starts it."""

import asyncio
import json
from collections.abc import Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from licet.cli.app import licet
from licet.core.review.recording_lines import recording_start, touch
from licet.gateway.gateway import gateway_servers
from licet.gateway.observation import closing_lines, observation
from licet.mcp.shown_names import naming
from sandbox.levels import needs_walls

from .clients import Client, text_of
from .test_stdio import played
from .workspaces import AGENT, Workspace, connected

NUMBER = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"], "additionalProperties": False}
PATH = {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}
ADMITTED = ("echo", "writes", "counts", "opens", "limited", "changed", "reads", "structured", "hangs")


def described(name: str, text: str) -> dict[str, Any]:
    return {"name": name, "description": text, "inputSchema": {"type": "object"}}


LOCKED: list[Any] = [
    "echo", "unadmitted", "undeclared", "writes", "limited", "reads", "hangs", described("changed", "as it was"),
    {"name": "counts", "inputSchema": NUMBER}, {"name": "opens", "inputSchema": PATH},
    {"name": "structured", "inputSchema": {"type": "object"}, "outputSchema": NUMBER},
]  # fmt: skip
LIVE = [one for one in LOCKED if not isinstance(one, dict) or one["name"] != "changed"] + [
    described("changed", "is another"),
    "new",
]
RESOURCES = [{"uri": "file:///data/a", "name": "x"}]


def server(era: str, outside: Path) -> dict[str, Any]:
    entries: dict[str, Any] = {name: {"effect": "read_only"} for name in (*ADMITTED, "unadmitted", "new")}
    entries["writes"] = {"effect": "write_limited", "approval": "call"}
    entries["opens"]["args"] = {"path": {"scope": "fs:read"}}
    entries["hangs"]["limits"] = {"wall_seconds": 1}
    entries["reads"]["cost_usd"] = 0.25
    calls = {
        "reads": [["read", str(outside)]],
        "structured": [["result", {"content": [], "structuredContent": {"n": "one"}}]],
        "hangs": [["hang"]],
    }
    return {
        "script": {"era": era, "tools": LIVE, "calls": calls, "resources": RESOURCES},
        "locked": {"tools": LOCKED},
        "grants": ["fs:read:${workdir}/data", "fs:write:${workdir}/data"],
        "tools": entries,
    }


CAPABILITIES: dict[str, Any] = {
    "tools": {f"s.{name}": {"max_calls": 1} if name == "limited" else {} for name in ADMITTED},
    "max_side_effect_class": "write_limited",
    "fs_reach": {"read": ["${workdir}"], "write": ["${workdir}/data"]},
    "approvals": {"write": "call"},
}


@asynccontextmanager
async def observing(
    workspace: Workspace, era: str = "2025", seconds: float = 600.0, is_open: bool = False, **about: Any
) -> Any:
    """A client of a gateway in this process that observes, and its backend."""
    observed = await observation(
        workspace.manifest, seconds, is_open=is_open, report=workspace.reports.append, workdir=workspace.place
    )
    backend = gateway_servers(
        workspace.manifest, workspace.state, session="g-test", report=workspace.reports.append,
        workdir=workspace.place, observed=observed,
    )  # fmt: skip
    async with connected(backend, naming(list(backend._servers), ""), era, **about) as client:
        yield client, backend


class Scene:
    """One gateway that observes, for all tests of this module that change nothing in it."""

    def __init__(self, runner: "asyncio.Runner", workspace: Workspace, client: Client) -> None:
        self.workspace, self.client, self._runner = workspace, client, runner

    def request(self, method: str, params: Mapping[str, Any]) -> tuple[dict[str, Any], Any]:
        result = self._runner.run(self.client.request(method, params))
        return result, next(reversed(self.workspace.receipts()), None)

    def call(self, name: str, arguments: Mapping[str, Any] | None = None) -> tuple[dict[str, Any], Any]:
        return self.request("tools/call", {"name": name, "arguments": dict(arguments or {})})


def workspace_of(place: Path, state: Path, era: str = "2025") -> Workspace:
    outside = place / "outside"
    outside.write_text("not yours")
    workspace = Workspace(place / "policy", state, {"s": server(era, outside)}, CAPABILITIES)
    (workspace.place / "data").mkdir()
    return workspace


@pytest.fixture(scope="module", params=[("2025", "2026"), ("2026", "2025")], ids="-".join)
def scene(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, store_root: Path
) -> Iterator[Scene]:
    needs_walls()
    client_era, server_era = request.param
    place = tmp_path_factory.mktemp("observed")
    workspace = workspace_of(place, store_root / place.name, server_era)
    with asyncio.Runner() as runner:
        stack = AsyncExitStack()
        client, _ = runner.run(stack.enter_async_context(observing(workspace, client_era)))
        yield Scene(runner, workspace, client)
        runner.run(stack.aclose())


# Calls ----------------------------------------------------------------------------------------------------------------

# The tool, its arguments, what the policy would have said, and with which reasons.
CALLS: list[tuple[str, dict[str, Any], str, tuple[str, ...]]] = [
    ("echo", {}, "allow", ()),
    ("counts", {"n": 1}, "allow", ()),
    ("unadmitted", {}, "deny", ("TOOL_NOT_IN_BUNDLE",)),
    ("undeclared", {}, "deny", ("UNKNOWN_TOOL",)),
    ("writes", {}, "ask", ("APPROVAL_REQUIRED",)),
    ("counts", {"n": "one"}, "deny", ("INPUT_INVALID",)),
    ("opens", {"path": "/etc/passwd"}, "deny", ("ARGUMENT_NOT_ALLOWED",)),
    ("changed", {}, "deny", ("MANIFEST_CHANGED",)),
    ("new", {}, "deny", ("UNKNOWN_TOOL", "MANIFEST_CHANGED")),
]


@pytest.mark.parametrize(("tool", "arguments", "verdict", "reasons"), CALLS)
def test_a_call_runs_and_its_receipt_says_what_the_policy_would_have_said(
    scene: Scene, tool: str, arguments: dict[str, Any], verdict: str, reasons: tuple[str, ...]
) -> None:
    result, receipt = scene.call(tool, arguments)
    assert json.loads(text_of(result)) == arguments
    assert (receipt.tool, receipt.verdict, receipt.reason, receipt.code) == (f"s.{tool}", "allow", "ALLOWED", "ok")
    assert (receipt.observed.verdict, receipt.observed.reasons, receipt.observed.walls) == (verdict, reasons, True)
    assert bool(receipt.observed.rules) is bool(reasons)
    assert receipt.manifest == scene.workspace.manifest.digest
    decision: Any = scene.workspace.entries()[-2]
    assert (decision.kind, decision.id) == ("decision", receipt.id)
    assert decision.observed.reasons == tuple(
        one for one in reasons if one != "MANIFEST_CHANGED"
    )  # known before it ran


def test_the_calls_beyond_a_budget_run_and_are_noted(scene: Scene) -> None:
    found = [scene.call("limited")[1].observed.reasons for _ in range(3)]
    assert found == [(), ("BUDGET_EXCEEDED",), ("BUDGET_EXCEEDED",)]


def test_every_tool_of_a_server_is_shown_as_locked_if_it_is_locked(scene: Scene) -> None:
    shown = {one["name"]: one for one in scene.request("tools/list", {})[0]["tools"]} if scene.call("echo") else {}
    assert shown.keys() == {*ADMITTED, "unadmitted", "undeclared", "new"}
    assert shown["changed"]["description"] == "as it was"


def test_a_resource_that_is_not_listed_is_read_and_noted(scene: Scene) -> None:
    listed, _ = scene.request("resources/list", {})
    assert [one["uri"] for one in listed["resources"]] == ["file:///data/a"]
    _, receipt = scene.request("resources/read", {"uri": "file:///data/a"})
    assert (receipt.tool, receipt.code) == ("s.resources", "ok")
    assert receipt.observed.reasons == ("UNKNOWN_TOOL", "ARGUMENT_NOT_ALLOWED")


def test_structured_content_that_does_not_fit_passes_and_is_noted(scene: Scene) -> None:
    result, receipt = scene.call("structured")
    assert result["structuredContent"] == {"n": "one"}
    assert "TOOL_CRASHED" in receipt.observed.reasons


def test_the_time_limit_of_a_call_stays(scene: Scene) -> None:
    result, receipt = scene.call("hangs")
    assert result["isError"]
    assert (receipt.reason, receipt.code) == ("LIMIT_TIME", "timed_out")


def test_a_name_that_was_not_shown_is_refused(scene: Scene) -> None:
    for name in ("nothing", "s.echo"):
        result, receipt = scene.call(name)
        assert result["isError"]
        assert (receipt.verdict, receipt.observed.verdict) == ("deny", "deny")


def test_the_commands_show_that_a_call_was_observed(scene: Scene) -> None:
    _, receipt = scene.call("unadmitted")

    def said(*words: str) -> str:
        result = CliRunner().invoke(licet, [*words, "--state", str(scene.workspace.state)])
        assert result.exit_code == 0, result.output
        return result.output

    assert "ALLOWED (observed: TOOL_NOT_IN_BUNDLE)" in said("receipts", "list")
    for words in (("receipts", "show", receipt.id), ("explain", receipt.id)):
        assert "the policy was not enforced; it would have refused it: TOOL_NOT_IN_BUNDLE" in said(*words)
    documents = json.loads(said("receipts", "list", "--json"))
    assert '"reasons": ["TOOL_NOT_IN_BUNDLE"]' in json.dumps(documents)


def test_the_ledger_is_verified_as_any_other(scene: Scene) -> None:
    scene.call("echo")
    result = CliRunner().invoke(licet, ["receipts", "verify", "--state", str(scene.workspace.state)])
    assert "wrong" not in result.output


# Walls ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_open", [False, True])
def test_a_server_gets_out_of_its_walls_only_if_they_are_open(tmp_path: Path, store_path: Path, is_open: bool) -> None:
    needs_walls()
    workspace = workspace_of(tmp_path, store_path / "state")

    async def steps() -> str:
        async with observing(workspace, is_open=is_open) as (client, _):
            await client.call("unadmitted")
            return text_of(await client.call("reads"))

    assert ("not yours" in asyncio.run(steps())) is is_open
    receipts: list[Any] = list(workspace.receipts())
    for receipt in receipts:
        assert receipt.observed.walls is not is_open
        assert (receipt.sandbox.level == "native") is is_open
    assert [receipt.cost_usd for receipt in receipts] == ["0", "0.25"]  # what the policy admits still has its cost


# Servers without a lock -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("era", ["2025", "2026"])
def test_a_server_without_a_lock_is_used_as_it_is_now(tmp_path: Path, store_path: Path, era: str) -> None:
    needs_walls()
    workspace = workspace_of(tmp_path, store_path / "state", era)
    (workspace.place / "licet.lock").unlink()

    async def steps() -> list[str]:
        async with observing(workspace, era) as (client, _):
            return [text_of(await client.call(name)) for name in ("echo", "new", "changed")]

    assert asyncio.run(steps()) == ["{}"] * 3
    receipts: list[Any] = list(workspace.receipts())
    assert [one.observed.reasons for one in receipts] == [(), ("TOOL_NOT_IN_BUNDLE",), ()]
    assert not (workspace.place / "licet.lock").exists()
    assert "s: it is not in licet.lock: run `licet lock` before you use it without --observe" in workspace.reports


# Its end --------------------------------------------------------------------------------------------------------------


def test_when_the_time_is_over_calls_are_refused_and_servers_are_ended(tmp_path: Path, store_path: Path) -> None:
    needs_walls()
    workspace = workspace_of(tmp_path, store_path / "state")

    async def steps() -> tuple[str, list[str]]:
        async with observing(workspace, seconds=0.01) as (client, backend):
            while not any("the time for observing is over" in one for one in workspace.reports):
                await asyncio.sleep(0.01)
            await asyncio.wait([backend._ending])
            assert all(one._upstream is None for one in backend.running.values())
            return text_of(await client.call("echo")), list(closing_lines(backend._observing))

    said, lines = asyncio.run(steps())
    assert said.startswith("SESSION_ENDED: this gateway only observed")
    assert [(one.verdict, one.reason) for one in workspace.receipts()] == [("deny", "SESSION_ENDED")]
    assert lines == ["observed 0 calls: the policy would have refused 0"]


# The command ----------------------------------------------------------------------------------------------------------


def test_the_command_says_what_it_does_and_what_it_saw(tmp_path: Path, store_path: Path) -> None:
    needs_walls()
    workspace = workspace_of(tmp_path, store_path / "state")

    async def steps(client: Client, _: Any) -> None:
        for name in ("echo", "unadmitted", "unadmitted", "changed"):
            await client.say(name)
        await client.request("tools/call", {"name": "opens", "arguments": {"path": "/etc/passwd"}})

    _, errors, code = played(workspace, steps, "--observe", "--for", "90m")
    assert code == 0
    for line in (
        "licet: OBSERVING for 1h 30m: what ",
        "licet: observed 5 calls: the policy would have refused 4\n",
        "licet:   2x TOOL_NOT_IN_BUNDLE  s.unadmitted\n",
        "licet:   1x MANIFEST_CHANGED  s.changed\n",
    ):
        assert line in errors
    assert "OPEN" not in errors
    (recording,) = (workspace.state / "recordings").iterdir()
    assert f"licet: recorded in {recording}: `licet learn {recording}` drafts the policy for it\n" in errors
    start, *lines = recording.read_bytes().splitlines()
    assert recording_start(start).source == "gateway"
    # The argument was refused, and the call ran in spite of it.
    assert [(one.use, one.outcome) for one in map(touch, lines)] == [
        ("tool:call:s.echo", "used"),
        ("tool:call:s.unadmitted", "used"),
        ("tool:call:s.unadmitted", "used"),
        ("tool:call:s.changed", "used"),
        ("fs:read:/etc/passwd", "used"),
        ("tool:call:s.opens", "used"),
    ]
    said = CliRunner().invoke(licet, ["learn", str(recording), "--json"])
    assert said.exit_code == 0, said.output
    (found,) = json.loads(said.stdout)["policies"]
    assert found["added"] == ["fs:read:/etc/passwd", "tool:call:s.unadmitted"]
    assert {one["rule"] for one in found["unused"]} >= {"tool:call:s.writes", "tool:call:s.reads"}


WRONG = [
    (["--observe"], "--observe needs --for DURATION"),
    (["--observe", "--open"], "--observe needs --for DURATION"),
    (["--for", "1h"], "--for and --open are options of --observe"),
    (["--open"], "--for and --open are options of --observe"),
    (["--observe", "--for", "0m"], "`0m` is no duration"),
    (["--observe", "--for", "1 hour"], "`1 hour` is no duration"),
    (["--observe", "--for", "٣m"], "is no duration"),
    (["--observe", "--for", "25h"], "`25h` is longer than 24h"),
    (["--observe", "--for", "9" * 5000 + "w"], "is longer than 24h"),
]


@pytest.mark.parametrize(("words", "text"), WRONG)
def test_a_command_line_that_observes_without_an_end_is_refused(words: list[str], text: str) -> None:
    result = CliRunner().invoke(licet, ["gateway", "agent.yaml", *words])
    assert result.exit_code == 2
    assert text in " ".join(result.output.split())


# Where a policy file could say it, as a path of keys.
KEYS = [("observe",), ("capabilities", "observe"), ("gateway", "observe"), ("servers", "s", "observe")]


@pytest.mark.parametrize("keys", KEYS)
def test_no_key_of_a_policy_file_observes(tmp_path: Path, keys: tuple[str, ...]) -> None:
    content: dict[str, Any] = {"agent": "a", "capabilities": {}, "servers": {"s": {"command": ["x"]}}}
    place = content
    for key in keys[:-1]:
        place = place.setdefault(key, {})
    place[keys[-1]] = True
    (tmp_path / AGENT).write_text(json.dumps(content))
    result = CliRunner().invoke(licet, ["gateway", str(tmp_path / AGENT)])
    assert result.exit_code == 1
    assert "observe" in result.output


def test_no_variable_of_the_environment_observes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    content = {"agent": "a", "capabilities": {"tools": ["s.t"]}, "servers": {"s": {"command": ["x"]}}}
    (tmp_path / AGENT).write_text(json.dumps(content))
    for name in ("LICET_OBSERVE", "LICET_GATEWAY_OBSERVE", "GATEWAY_OBSERVE", "OBSERVE"):
        monkeypatch.setenv(name, "1")
        monkeypatch.setenv(name.replace("OBSERVE", "FOR"), "1h")
    state = str(tmp_path / "state")
    result = CliRunner().invoke(licet, ["gateway", str(tmp_path / AGENT), "--state", state])
    assert result.exit_code == 1
    assert "OBSERVING" not in result.output
    assert "the server `s` is not in licet.lock: run `licet lock`" in result.output
