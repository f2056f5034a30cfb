"""Every handle asks the grant before it looks for a backend: the same refusal whatever a gate was given."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from licet import Backends, Tool
from licet.core.decision.decision import CapabilityDenied
from licet.guard.grant import PART_OF_DOMAIN
from sandbox import undeclared_tools as tools
from sandbox.levels import WALLED, call, gate, needs_walls

LEVELS = ("native", *WALLED)

# The tool, the reason that it is refused with, and what it asked for.
CASES: list[tuple[Tool, str, str]] = [
    (tools.fetch, "HOST_NOT_ALLOWED", "network:https:get@site.test:443"),
    (tools.fetch_malformed, "HOST_NOT_ALLOWED", "network:https:get@site.test:443"),
    (tools.stream, "HOST_NOT_ALLOWED", "network:https:get@site.test:443"),
    (tools.fs_read, "PATH_NOT_REACHABLE", "fs:read:/box/a"),
    (tools.fs_write, "PATH_NOT_REACHABLE", "fs:write:/box/a"),
    (tools.fs_open, "PATH_NOT_REACHABLE", "fs:read:/box/a"),
    (tools.fs_list, "PATH_NOT_REACHABLE", "fs:read:/box"),
    (tools.fs_delete, "PATH_NOT_REACHABLE", "fs:delete:/box/a"),
    (tools.fs_rename, "PATH_NOT_REACHABLE", "fs:write:/box/b"),
    (tools.secret, "SECRET_NOT_DECLARED", "secret:read:KEY"),
    (tools.secret_ref, "SECRET_NOT_DECLARED", "secret:read:KEY"),
    (tools.process, "BINARY_NOT_ALLOWED", "process:exec:ls"),
    (tools.process_path, "BINARY_NOT_ALLOWED", "process:exec:/bin/ls"),
    (tools.process_waiting, "BINARY_NOT_ALLOWED", "process:exec:ls"),
    (tools.kv_get, "STORAGE_NOT_DECLARED", "storage:read:tool-private"),
    (tools.kv_set, "STORAGE_NOT_DECLARED", "storage:write:tool-private"),
    (tools.kv_list, "STORAGE_NOT_DECLARED", "storage:read:personality"),
    (tools.env, "ENV_NOT_ALLOWED", "env:read:PATH"),
    (tools.charge, "BUDGET_EXCEEDED", "tool:call:charge"),
]
LIBRARIES: list[tuple[Tool, str, str]] = [
    (tools.library_program, "BINARY_NOT_ALLOWED", "process:exec:ls"),
    (tools.library_connection, "HOST_NOT_ALLOWED", "network:tcp:site.test:80"),
]
PARTS = ("files", "http", "secrets", "kv", "processes", "environ")


class Broken:
    """A backend that fails, however it is asked."""

    in_memory = True

    def pin(self, *_: Any) -> None:
        """Files are told where grants begin when a gate is built."""

    def __getattr__(self, name: str) -> Any:
        raise RuntimeError(f"the backend was asked for `{name}`")


def _broken() -> Backends:
    parts: dict[str, Any] = {name: Broken() for name in PARTS if name != "kv"}  # a session asks its store when it opens
    return Backends(**parts)


def _without(name: str) -> dict[str, Any]:
    return {name: None}


BACKENDS: dict[str, Callable[[], Backends]] = {
    "none": Backends,
    "all in memory": Backends.memory,
    "broken": _broken,
    **{f"all but {name}": partial(Backends.memory, **_without(name)) for name in PARTS},
}


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("given", BACKENDS)
@pytest.mark.sampled(3)
def test_what_was_not_declared_is_refused_whatever_backends_there_are(tmp_path: Path, level: str, given: str) -> None:
    if level != "native":
        needs_walls()
    every = [tool for tool, _, _ in CASES]
    at = gate(tmp_path, level, *every, backends=BACKENDS[given]())
    found = {tool.name: call(at, tool.name) for tool in every}
    assert {name: result.reason for name, result in found.items()} == {tool.name: code for tool, code, _ in CASES}
    for tool, code, use in CASES:
        result = found[tool.name]
        denied = [event for event in result.events if isinstance(event, CapabilityDenied)]
        assert [(event.capability, event.reason) for event in denied] == [(use, code)], tool.name
        assert result.code == "execution_failed"
        assert result.receipt


@pytest.mark.parametrize("given", BACKENDS)
@pytest.mark.sampled(4)
def test_a_library_is_refused_by_the_grant_whatever_backends_there_are(tmp_path: Path, given: str) -> None:
    needs_walls()
    every = [tool for tool, _, _ in LIBRARIES]
    at = gate(tmp_path, "isolated", *every, backends=BACKENDS[given]())
    for tool, code, use in LIBRARIES:
        result = call(at, tool.name)
        denied = [event for event in result.events if isinstance(event, CapabilityDenied)]
        assert [(event.capability, event.reason) for event in denied] == [(use, code)], tool.name
        assert not result.ok


def test_the_cases_cover_every_part_that_a_capability_needs() -> None:
    assert {port for port, _ in PART_OF_DOMAIN.values()} == set(PARTS)
