"""A tool sees the same at every level: values, handles, refusals, errors, and what is left in the receipt."""

import asyncio
import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from licet import Backends, Result, Tool
from licet.backends.files.memory import MemoryFiles
from licet.backends.memory import Answer, MemoryHttp
from licet.backends.secrets import MemorySecrets
from licet.guard.execution import Command, Finished, Layers
from licet.guard.ports import Exchange
from licet.sandbox.native import InProcess
from licet.sandbox.programs.function_programs import MemoryProcesses
from licet.sandbox.workers.engine import Workers
from sandbox import argument_tools as given
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


async def echo(command: Command) -> Finished:
    if command.argv[1:] == ("late",):
        await asyncio.sleep(3600)
    return Finished(3, b"out \xff\n", "err ü".encode())


class Open:
    """Walls for functions that stand for programs: there is nothing to put around one."""

    layers = Layers((), ())

    def load_code(self) -> None:
        """Nothing is needed."""

    def walls(self, held: Any) -> "Open":
        return self

    def around(self, command: Command) -> Command:
        return command


def backends() -> Backends:
    programs: Any = Open()
    return Backends.memory(
        sandbox=Workers(InProcess(), programs),
        files=MemoryFiles(),
        http=MemoryHttp(site, {"site.test": ["93.184.216.34"], "www.site.test": ["93.184.216.34"]}),
        secrets=MemorySecrets({"KEY": "s3cr3t-value"}),
        environ={"HOME_TOWN": "Oslo", "PATH": "/bin"},
        processes=MemoryProcesses({"/bin/echo": echo}),
    )


NAMED = {"Name": "a", "amount": "2.50", "password": "pä\n55", "more": [1, {"a": None}]}
ARGUMENTS: dict[str, tuple[Tool, dict[str, Any]]] = {
    "aliased": (given.aliased, {"order": NAMED, "from": "here"}),
    "several names": (given.several_names, {"choice": {"val": 3}, "b": "1.10"}),
    "secrets": (given.secrets, {"password": "hunter2", "key": "hünter3"}),
    "moments": (
        given.moments,
        {"day": "2024-02-29", "at": "2024-05-01T12:00:00.123456+02:00", "span": "P1DT0.5S", "zone": "10:00:00Z"},
    ),
    "numbers": (
        given.numbers,
        {"amount": "1.10", "many": ["1E+3", 0.1, 7], "either": "0.30", "whole": 1 << 70, "half": -0.0},
    ),
    "numbers as numbers": (given.numbers, {"amount": 0.1, "many": [], "either": 5, "whole": -1, "half": 5e-324}),
    "words": (given.words, {"color": "red", "size": 3, "letter": 1, "either": "red"}),
    "many": (given.many, {"sizes": [3, 1, 1], "fixed": ["1.0", "1.00"], "pair": [1, "a"], "named": {"7": "red"}}),
    "octets": (
        given.octets,
        {"raw": "aüb", "encoded": "aGVsbG8=", "inner": "[1, 2]", "it": "00000000-0000-4000-8000-000000000000"},
    ),
    "turned": (given.turned, {"once": 1, "before": "a", "trimmed": "  Ab ", "made": 2}),
    "shapes": (given.shapes, {"animal": {"kind": "dog"}, "point": {"x": 1}, "orders": [NAMED, {"Name": "b"}]}),
    "left out": (given.left_out, {"day": "2024-02-29"}),
}

ORDER = {"name": "a", "amount": "1.5", "when": "2024-05-01"}
CALLS: dict[str, tuple[Tool, dict[str, Any]]] = {
    "typed": (tools.typed, {"order": ORDER, "color": "red", "sizes": [1]}),
    "files": (tools.files, {}),
    "files_async": (tools.files_async, {}),
    "fetches": (tools.fetches, {}),
    "fetch_blocking": (tools.fetch_blocking, {}),
    "the_rest": (tools.the_rest, {}),
    "lists": (tools.lists, {}),
    "programs": (tools.programs, {}),
    "programs_blocking": (tools.programs_blocking, {}),
    "times": (tools.times, {}),
    "lets_through": (tools.lets_through, {}),
    **ARGUMENTS,
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
@pytest.mark.sampled(10)
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
    assert at_native("aliased", tmp_path)[1][1] == ["str", "'here'"]
    assert at_native("secrets", tmp_path)[1][0] == ["SecretStr", "hunter2"]
    assert at_native("numbers", tmp_path)[1][0] == ["Decimal", "Decimal('1.10')"]
    assert at_native("octets", tmp_path)[1][1] == ["bytes", "b'hello'"]
    assert at_native("turned", tmp_path)[1][0] == ["int", "2"]
    fine = [3, "out \ufffd\n", "err ü", list(b"out \xff\n"), list("err ü".encode()), False, False, ""]
    assert at_native("programs", tmp_path)[1] == [fine, [-9, "", "", [], [], False, True, "LIMIT_TIME"], False, False]
    assert at_native("programs_blocking", tmp_path)[1] == [fine]
    assert [len(one[1]) for one in at_native("lists", tmp_path)[1][4:6]] == [261, 261]
    assert at_native("times", tmp_path)[1][:-2] == ["INPUT_INVALID"] * 16
