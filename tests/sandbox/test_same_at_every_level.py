"""A tool sees the same at every level: values, handles, refusals, errors, and what is left in the receipt."""

import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from licet import Backends, Result, Tool
from licet.backends.memory_files import MemoryFiles
from licet.backends.memory_http import Answer, MemoryHttp
from licet.backends.memory_secrets import MemorySecrets
from licet.guard.ports import Exchange
from sandbox import same_tools as tools
from sandbox.levels import WALLED, call, gate, needs_walls


def site(exchange: Exchange) -> Answer:
    if exchange.url.endswith("/none"):
        raise OSError("nobody")
    if exchange.url.endswith("/pieces"):
        return Answer(200, [("content-type", "text/plain")], [b"one", b"two", b"three"])
    if exchange.method == "POST":
        return Answer(200, [("content-type", "application/json")], exchange.body)
    sent = dict(exchange.headers).get("X-Key", "")
    return Answer(200, [("x-a", "1")], json.dumps({"secret arrived": sent == "s3cr3t-value"}).encode())


def backends() -> Backends:
    return Backends.memory(
        files=MemoryFiles(),
        http=MemoryHttp(site, {"site.test": ["93.184.216.34"], "www.site.test": ["93.184.216.34"]}),
        secrets=MemorySecrets({"KEY": "s3cr3t-value"}),
        environ={"HOME_TOWN": "Oslo", "PATH": "/bin"},
    )


ORDER = {"name": "a", "amount": "1.5", "when": "2024-05-01"}
CALLS: dict[str, tuple[Tool, dict[str, Any]]] = {
    "typed": (tools.typed, {"order": ORDER, "color": "red", "sizes": [1]}),
    "files": (tools.files, {}),
    "files_async": (tools.files_async, {}),
    "fetches": (tools.fetches, {}),
    "fetch_blocking": (tools.fetch_blocking, {}),
    "the_rest": (tools.the_rest, {}),
    "lets_through": (tools.lets_through, {}),
    **{f"fails: {kind}": (tools.fails, {"kind": kind}) for kind in ("error", "exit", "object", "generator", "own")},
}  # fmt: skip


def outcome(result: Result) -> tuple[Any, ...]:
    events = [(type(event).__name__, event.capability, event.reason) for event in result.events]
    return result.ok, result.value, result.code, result.reason, result.error, str(result.cost_usd), events


@cache
def at_native(case: str, place: Path) -> tuple[Any, ...]:
    which, arguments = CALLS[case]
    return outcome(call(gate(place, "native", which, backends=backends()), which.name, arguments))


@pytest.mark.parametrize("level", WALLED)
@pytest.mark.parametrize("case", CALLS)
def test_a_tool_sees_the_same_behind_walls(tmp_path: Path, case: str, level: str) -> None:
    needs_walls()
    which, arguments = CALLS[case]
    expected = at_native(case, tmp_path)
    assert outcome(call(gate(tmp_path, level, which, backends=backends()), which.name, arguments)) == expected
    assert expected[0] == (not case.startswith(("fails", "lets"))), expected


def test_what_crosses_at_native_is_what_the_cases_are_about(tmp_path: Path) -> None:
    """The comparison above would hold for two equal failures too."""
    assert at_native("typed", tmp_path)[1][0] == "Order"
    assert at_native("files_async", tmp_path)[1] == [1515, "333", "65555", 4]
    assert at_native("fetches", tmp_path)[1][6] == ["one", "two", "three"]
