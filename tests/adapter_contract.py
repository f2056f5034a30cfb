"""What holds for the adapter of every agent framework: each plays this contract with an agent of its own."""

from pathlib import Path
from typing import Any

import pytest

import licet.adapters
from gates import DONE, Behind, gate_of, receipts, signed
from licet import Gate

NOTE = {"name": "a", "text": "Sun."}
REFUSED = "APPROVAL_REQUIRED: this call of note needs the approval of a person"


class AdapterContract:
    """Inherit this in a class whose name begins with `Test`."""

    file_reader: Any  # a tool `read_file(file_path)` as the framework writes it, which opens the file by itself

    def answer(self, gate: Gate, name: str, given: dict[str, Any]) -> str:
        """What the model is told when an agent of this framework makes a call."""
        raise NotImplementedError

    @pytest.mark.parametrize(
        ("name", "given", "text"),
        [
            ("add", {"a": 1, "b": 2}, "3"),
            ("desk_weather_today", {"city": "oslo"}, '{"city":"oslo","sky":"rain"}'),
            ("read", {"path": "/etc/passwd"}, "PATH_NOT_REACHABLE: read not permitted for /etc/passwd"),
        ],
    )
    def test_results_and_refusals_reach_the_model(self, name: str, given: dict[str, Any], text: str) -> None:
        assert self.answer(gate_of(), name, given) == text

    @pytest.mark.parametrize("people", [1, 2])
    def test_a_policy_that_wants_signatures_takes_no_yes_from_the_framework(self, people: int) -> None:
        gate = gate_of(parts={"approver": (behind := Behind())}, approvals=signed(people))
        assert self.answer(gate, "note", NOTE) == REFUSED
        assert (len(behind.asked), DONE) == (1, [])
        assert "has no signature" in str(receipts(gate)[-1].rules)

    @pytest.mark.parametrize(
        ("path", "text"),
        [
            ("notes/a", "Rain."),
            ("/etc/passwd", "ARGUMENT_NOT_ALLOWED: `file_path` names what this call does not hold"),
        ],
    )
    def test_a_path_outside_of_what_a_tool_of_the_framework_declares_is_refused(
        self, path: str, text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (tmp_path / "notes").mkdir()
        (tmp_path / "notes" / "a").write_text("Rain.", encoding="utf-8")
        monkeypatch.chdir(tmp_path)
        reader = licet.adapters.governed(self.file_reader, needs=["fs:read:${workdir}/notes"], effect="read_only")
        assert self.answer(gate_of([reader], workdir=str(tmp_path)), "read_file", {"file_path": path}) == text
