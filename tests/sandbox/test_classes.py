"""Side-effect classes at both ends: what each lets a tool do through handles, and behind walls without any."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from licet import Gate
from licet.backends.approvals.terminal import MemoryApprover
from licet.backends.memory import Answer
from licet.errors import Refused
from loopback import serving
from sandbox import class_tools as tools
from sandbox.levels import call, gate, local_backends, needs_walls

CLASSES = ("read_only", "write_limited", "full", "destructive")
NO = "no: PermissionError"


@pytest.fixture(autouse=True)
def walls() -> None:
    needs_walls()


@pytest.fixture
def port() -> Iterator[int]:
    with serving(lambda _: Answer(200, [], b"hello")) as server:
        yield server.port


def at_class(place: Path, level: str, effect: str, port: int, approver: MemoryApprover) -> Gate:
    grants = [f"fs:*:{place}/work", f"network:tcp:127.0.0.1:{port}", f"network:*:127.0.0.1:{port}"]
    (place / "work").mkdir()
    (place / "work" / "file").write_text("old")
    more: dict[str, Any] = {"grants": grants, "private": ["127.0.0.0/8"], "budget": {"max_calls_per_session": 9}}
    backends = local_backends(place / "state", approver=approver)
    return gate(place, level, tools.directly, tools.by_handles, backends=backends, effect=effect, **more)


def answer(at: Gate, tool: str, what: str, place: Path, port: int) -> str:
    said: str = call(at, tool, {"what": what, "path": str(place / "work" / "file"), "port": port}).unwrap()
    return said


# What a tool at `isolated` can do past its handles. The kernel cannot ask a person about one delete, so only a call
# that was agreed to as a whole deletes directly.
DIRECTLY = {
    "read": ("done", "done", "done", "done"),
    "write": (NO, "done", "done", "done"),
    "create": (NO, "done", "done", "done"),
    "delete": (NO, NO, NO, "done"),
    "connect": (NO, "done", "done", "done"),
}


@pytest.mark.parametrize("effect", CLASSES)
@pytest.mark.parametrize("what", DIRECTLY)
@pytest.mark.sampled(4)
def test_a_class_holds_behind_the_wall(tmp_path: Path, port: int, what: str, effect: str) -> None:
    at = at_class(tmp_path, "isolated", effect, port, MemoryApprover(lambda _: "approved"))
    assert answer(at, "directly", what, tmp_path, port) == DIRECTLY[what][CLASSES.index(effect)]
    file = tmp_path / "work" / "file"
    changed = not file.exists() or file.read_text() != "old" or file.with_name("file.new").exists()
    assert changed == (what in ("write", "create", "delete") and DIRECTLY[what][CLASSES.index(effect)] == "done")


BEYOND = "no: SIDE_EFFECT_EXCEEDED"
BY_HANDLES = {
    "read": ("done", "done", "done", "done"),
    "write": (BEYOND, "done", "done", "done"),
    "delete": (BEYOND, BEYOND, "done", "done"),
    "GET": ("done", "done", "done", "done"),
    "POST": (BEYOND, "done", "done", "done"),
    "DELETE": (BEYOND, BEYOND, "done", "done"),
    "PROPFIND": (BEYOND, BEYOND, "done", "done"),
}


@pytest.mark.parametrize("effect", CLASSES)
@pytest.mark.parametrize("what", BY_HANDLES)
@pytest.mark.sampled(5)
def test_a_class_holds_for_each_use_of_a_handle_and_asks_about_what_it_must(
    tmp_path: Path, port: int, what: str, effect: str
) -> None:
    approver = MemoryApprover(lambda _: "approved")
    at = at_class(tmp_path, "restricted", effect, port, approver)
    assert answer(at, "by_handles", what, tmp_path, port) == BY_HANDLES[what][CLASSES.index(effect)]
    asked = [bool(question.approval.use) for question in approver.asked]
    # The manifest approves writes; no manifest approves deletes, or a destructive call.
    expected = [False] if effect == "destructive" else []
    # The question about a destructive call covers the delete that its path foresees.
    if (what == "DELETE" and effect in ("full", "destructive")) or (what, effect) == ("delete", "full"):
        expected.append(True)
    assert asked == expected


@pytest.mark.parametrize("effect", ["full", "destructive"])
def test_a_delete_that_nobody_agrees_to_does_not_happen(tmp_path: Path, port: int, effect: str) -> None:
    approver = MemoryApprover(lambda one: "denied" if one.approval.use or one.acts else "approved")
    at = at_class(tmp_path, "restricted", effect, port, approver)
    if effect == "destructive":  # the call asks anyway, and names the delete that its path foresees
        with pytest.raises(Refused, match="APPROVAL_DENIED"):
            answer(at, "by_handles", "delete", tmp_path, port)
    else:
        assert answer(at, "by_handles", "delete", tmp_path, port) == "no: APPROVAL_DENIED"
    assert (tmp_path / "work" / "file").read_text() == "old"


DELETES = {
    "each asks": ("call", True, NO, []),
    "once a session": ("session", True, "done", [True]),
    "in the policy, which nobody approved": ("manifest", True, "done", [True]),
    "by grants": ("session", False, "done", [True]),
}


@pytest.mark.parametrize("case", DELETES)
def test_a_full_tool_deletes_past_its_handles_if_that_was_approved_before(tmp_path: Path, case: str) -> None:
    delete, written, expected, asked = DELETES[case]
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "file").write_text("old")
    approver = MemoryApprover(lambda _: "approved")
    allowed: dict[str, Any] = {"grants": [f"fs:*:{tmp_path}/work"]}
    if written:
        allowed = {"grants": [], "fs_reach": {"read": [f"{tmp_path}/work"], "write": [f"{tmp_path}/work"]}}
    at = gate(
        tmp_path,
        "isolated",
        tools.directly,
        backends=local_backends(tmp_path / "state", approver=approver),
        effect="full",
        approvals={"write": "manifest", "delete": delete},
        budget={"max_calls_per_session": 9},
        destinations={"allow": ["*"]},
        **allowed,
    )
    assert answer(at, "directly", "delete", tmp_path, 1) == expected
    assert (tmp_path / "work" / "file").exists() is (expected == NO)
    assert [question.approval.deletes for question in approver.asked] == asked
