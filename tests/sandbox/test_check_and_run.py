"""One tool under one set of capabilities: checked before it starts, walled as always, with events and a receipt."""

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest

import licet
from licet import Backends, CapabilitySet, Result, Tool, check_and_run
from licet.backends.files.memory import MemoryFiles
from licet.core.decision.decision import CapabilityDenied
from sandbox import single_tools as tools
from sandbox.levels import needs_walls


def called(tool: Tool, arguments: dict[str, Any] | None = None, *allow: str, **more: Any) -> Result:
    return asyncio.run(check_and_run(tool, arguments, allow=CapabilitySet(allow), **more))


def memory() -> Backends:
    return Backends.memory(files=MemoryFiles({"/srv/data/a": b"hello", "/srv/other": b"no", "/srv/out/y": b""}))


# Covered --------------------------------------------------------------------------------------------------------------


def test_a_tool_that_touches_nothing_needs_no_capability_and_no_backend() -> None:
    needs_walls()
    result = called(tools.add, {"a": 1, "b": 2})
    assert (result.value, result.error) == (3, "")
    assert [type(event).__name__ for event in result.events][:2] == ["SessionOpened", "CapabilityGranted"]
    assert result.receipt
    assert result.layers  # the walls that stood around it


@pytest.mark.parametrize("backends", [None, Backends.memory(files=None)])
def test_the_advice_about_missing_backends_names_a_parameter_of_check_and_run(backends: Backends | None) -> None:
    result = called(tools.reader, {"path": "/srv/data/a"}, "fs:read:/srv", backends=backends)
    assert result.reason == "BACKEND_MISSING"
    assert "pass `backends=Backends.local()`" in result.explain()
    assert "gate" not in result.explain()


@pytest.mark.parametrize("allow", ["fs:read:/srv/data", "fs:read:/srv", "fs:*:*"])
def test_a_need_that_the_set_covers_runs(allow: str) -> None:
    needs_walls()
    result = called(tools.reader, {"path": "/srv/data/a"}, allow, backends=memory())
    assert (result.value, result.error) == ("hello", "")


def test_a_wider_set_gives_no_more_than_the_tool_declares() -> None:
    needs_walls()
    result = called(tools.reader, {"path": "/srv/other"}, "fs:*:*", backends=memory())
    assert result.error == "PATH_NOT_REACHABLE: read not permitted for /srv/other"


@pytest.mark.parametrize("tool", [tools.file_writer, tools.by_keys])
def test_a_need_of_everything_takes_what_the_set_has_of_it(tool: Tool) -> None:
    needs_walls()
    backends = memory()
    assert called(tool, {"path": "/srv/out/x"}, "fs:write:/srv/out", backends=backends).value == "written"
    refused = called(tool, {"path": "/srv/data/a"}, "fs:write:/srv/out", backends=backends)
    assert refused.error == "PATH_NOT_REACHABLE: write not permitted for /srv/data/a"
    assert "add `fs:write:/srv/data/a` to `allow`" in refused.explain()


def test_an_optional_need_is_held_where_the_set_has_it_and_denies_nothing_where_not() -> None:
    needs_walls()
    backends = memory()
    needed, optional = {"path": "/srv/data/a"}, {"path": "/srv/other"}
    assert called(tools.reads_more, needed, "fs:read:/srv/data", backends=backends).value == "hello"
    assert called(tools.reads_more, optional, "fs:read:/srv", backends=backends).value == "no"
    assert called(tools.reads_more, optional, "fs:read:/srv/data", backends=backends).reason == "PATH_NOT_REACHABLE"
    assert called(tools.reads_more, needed, "fs:read:/srv/other", backends=backends).code == "denied"


def test_denies_of_the_set_hold() -> None:
    needs_walls()
    allow = CapabilitySet(["fs:read:/srv"], deny=["fs:read:/srv/data/a"])
    result = asyncio.run(check_and_run(tools.reader, {"path": "/srv/data/a"}, allow=allow, backends=memory()))
    assert result.reason == "PATH_NOT_REACHABLE"
    assert "remove `fs:read:/srv/data/a` from the denies of `allow`" in result.explain()


def test_the_kernel_keeps_code_without_handles_to_the_set(tmp_path: Path) -> None:
    needs_walls()
    for name in ("inside", "outside"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "a").write_text(name)
    backends = Backends.local(tmp_path / "state")
    inside = called(tools.direct, {"path": f"{tmp_path}/inside/a"}, f"fs:read:{tmp_path}/inside", backends=backends)
    outside = called(tools.direct, {"path": f"{tmp_path}/outside/a"}, f"fs:read:{tmp_path}/inside", backends=backends)
    backends.close()
    assert inside.value == "inside"
    assert "PermissionError" in outside.error


def test_calls_with_the_same_backends_share_a_session_if_they_name_it() -> None:
    needs_walls()
    backends = memory()
    assert called(tools.remember, {"word": "a"}, backends=backends).value == ["a"]
    assert called(tools.remember, {"word": "b"}, backends=backends).value == ["a", "b"]
    assert called(tools.remember, {"word": "c"}, backends=backends, session="another").value == ["c"]


def test_nothing_is_left_running_and_nothing_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    needs_walls()
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    called(tools.add, {"a": 1, "b": 2})
    assert os.listdir(tmp_path) == []


# Denied before it starts ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("tool", "allow", "reason", "capability"),
    [
        (tools.reader, [], "PATH_NOT_REACHABLE", "fs:read:/srv/data"),
        (tools.reader, ["fs:write:/srv/data", "network:*:*"], "PATH_NOT_REACHABLE", "fs:read:/srv/data"),
        (tools.reader, ["fs:read:/srv/data/a"], "PATH_NOT_REACHABLE", "fs:read:/srv/data"),
        (tools.file_writer, ["fs:read:*", "network:http:get"], "PATH_NOT_REACHABLE", "fs:write:*"),
        (tools.by_keys, ["fs:read:*"], "PATH_NOT_REACHABLE", "fs:delete:*"),
        (tools.connected, [], "CONNECTOR_NOT_ALLOWED", "connector:use:github"),
        (tools.connected, ["connector:use:slack"], "CONNECTOR_NOT_ALLOWED", "connector:use:github"),
    ],
    ids=str,
)
def test_a_need_that_is_not_covered_is_denied_by_its_name(
    tool: Tool, allow: list[str], reason: str, capability: str
) -> None:
    result = called(tool, {"path": "/srv/data/a"}, *allow, backends=memory())
    assert (result.code, result.reason, result.value) == ("denied", reason, None)
    assert capability in result.error
    denied = [event for event in result.events if isinstance(event, CapabilityDenied)]
    lacking = ["fs:delete:*", "fs:write:*"] if tool is tools.by_keys else [capability]
    assert [(event.capability, event.tool_name) for event in denied] == [(one, tool.name) for one in lacking]
    assert "to `allow`" in result.explain()
    assert not any(type(event).__name__ == "SandboxEntered" for event in result.events)


@pytest.mark.parametrize(
    ("tool", "reason"),
    [
        (tools.full, "SIDE_EFFECT_EXCEEDED"),
        (tools.destructive, "SIDE_EFFECT_EXCEEDED"),
        (tools.native, "NATIVE_NOT_ALLOWED"),
        (tools.silent, "SIDE_EFFECT_EXCEEDED"),
    ],
    ids=lambda value: getattr(value, "name", ""),
)
def test_what_needs_a_manifest_is_denied(tool: Tool, reason: str) -> None:
    result = called(tool, {}, "fs:*:*", "network:*:*", "process:exec:*", backends=memory())
    assert (result.code, result.reason) == ("denied", reason)
    assert ("under a manifest" in result.explain()) == (tool is not tools.silent)


def test_a_set_that_names_tools_admits_only_these() -> None:
    result = called(tools.add, {"a": 1, "b": 2}, "tool:call:other")
    assert result.reason == "TOOL_NOT_IN_BUNDLE"
    assert "add `tool:call:add` to `allow`" in result.explain()
    refused = asyncio.run(check_and_run(tools.add, {}, allow=CapabilitySet([], deny=["tool:call:add"])))
    assert refused.reason == "TOOL_NOT_IN_BUNDLE"


def test_no_backends_is_said_as_such() -> None:
    result = called(tools.reader, {"path": "/srv/data/a"}, "fs:read:/srv")
    assert (result.code, result.reason) == ("not_available", "BACKEND_MISSING")
    assert "Tool reader declares capabilities but no capability backends are configured" in result.error


def test_arguments_are_checked_as_always() -> None:
    assert called(tools.add, {"a": "one"}).code == "input_invalid"


# Misused --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("tool", "allow", "message"),
    [
        (lambda: 1, CapabilitySet(), "expected a tool declared with `@tool`"),
        ("add", CapabilitySet(), "expected a tool declared with `@tool`"),
        (tools.add, "fs:read:/srv", "found a text"),
    ],
)
def test_what_is_no_tool_or_no_set_is_a_type_error(tool: Any, allow: Any, message: str) -> None:
    with pytest.raises(TypeError, match=message):
        asyncio.run(check_and_run(tool, {}, allow=allow))


def test_it_is_the_one_new_public_name() -> None:
    assert "check_and_run" in licet.__all__
    assert not hasattr(licet, "check_and_execute")
