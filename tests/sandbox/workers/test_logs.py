"""What a walled tool prints reaches the operator, cut and without secrets; the model still sees one line."""

from pathlib import Path
from typing import Any

import pytest

from licet import Backends, Gate
from licet.backends.memory import MemoryLedger
from licet.backends.secrets import MemorySecrets
from licet.events import Event, ToolPrinted
from licet.guard.limits import MOST_OF_LOGS
from sandbox import printing_tools as tools
from sandbox.levels import WALLED, call, gate, needs_walls

SECRET = "tok-8d7f6a5b4c3d2e1f"


@pytest.fixture(autouse=True)
def walls() -> None:
    needs_walls()


def opened(folder: Path, level: str, *which: Any) -> Gate:
    backends = Backends.memory(secrets=MemorySecrets({"TOKEN": SECRET}), ledger=MemoryLedger())
    return gate(folder, level, *which, backends=backends)


@pytest.mark.parametrize("level", WALLED)
def test_output_and_error_reach_the_operator_and_not_the_model(tmp_path: Path, level: str) -> None:
    at = opened(tmp_path, level, tools.speak)
    result = call(at, "speak", {"how": "print"})
    assert result.value == "done"
    assert result.logs == "out\nerr \\u001b[31m\nraw\n"


def test_a_secret_is_redacted(tmp_path: Path) -> None:
    result = call(opened(tmp_path, "restricted", tools.speak), "speak", {"how": "secret"})
    assert result.logs == "it is [redacted TOKEN]\n"
    assert SECRET not in str(result.events)


def test_a_traceback_starts_in_the_code_of_the_tool(tmp_path: Path) -> None:
    result = call(opened(tmp_path, "restricted", tools.speak), "speak", {"how": "raise"})
    assert result.error == "TOOL_FAILED: ValueError: no"
    first, second, *_ = result.logs.splitlines()
    assert first == "Traceback (most recent call last):"
    assert second.startswith(f'  File "{tools.__file__}", line ')
    assert result.logs.rstrip().endswith("ValueError: no")


def test_what_a_tool_printed_before_it_died_is_there(tmp_path: Path) -> None:
    result = call(opened(tmp_path, "restricted", tools.speak), "speak", {"how": "die"})
    assert (result.reason, result.logs) == ("TOOL_CRASHED", "last words\n")


def test_a_flood_is_cut_and_ends_nothing(tmp_path: Path) -> None:
    result = call(opened(tmp_path, "restricted", tools.speak), "speak", {"how": "flood"})
    assert result.value == "done"
    assert MOST_OF_LOGS <= len(result.logs) <= MOST_OF_LOGS + 100
    assert result.logs.endswith("… (the tool printed more, which was not kept)\n")


def test_each_call_of_a_reused_worker_has_its_own(tmp_path: Path) -> None:
    at = opened(tmp_path, "restricted", tools.again)
    assert [call(at, "again", {"text": text}).logs for text in ("one", "two")] == ["one\n", "two\n"]


def test_observers_see_it_and_the_ledger_does_not_keep_it(tmp_path: Path) -> None:
    seen: list[Event] = []
    at = opened(tmp_path, "restricted", tools.speak)
    watched = Gate(at.manifest, at.tools, at.ports, workdir=tmp_path, observers=[seen.append])
    result = call(watched, "speak", {"how": "print"})
    (printed,) = [event for event in seen if isinstance(event, ToolPrinted)]
    assert (printed.rule, printed.receipt) == (result.logs, result.receipt)
    assert isinstance(at.ports.ledger, MemoryLedger)
    assert "raw" not in str(at.ports.ledger.entries)
