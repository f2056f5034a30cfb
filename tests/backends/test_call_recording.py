"""The recording of a gate: one line for each call that ran and each use, without secrets, for its owner alone."""

import json
import os
import stat
from pathlib import Path

import pytest

from licet import Backends, Context, Gate, Manifest, load_manifest, run, tool
from licet.core.decision.decision import CapabilityDenied, CapabilityGranted
from licet.core.review.recording_lines import RecordingStart, Touch, recording_start, touch
from licet.events import record_calls
from licet.tools import read_file

POLICY = {
    "agent": "desk",
    "capabilities": {
        "tools": {"read_file": {"sandbox": "native"}, "loud": {}},
        "native": ["read_file", "loud"],
        "fs_reach": {"read": ["${workdir}/notes"]},
        "secrets": ["TOKEN"],
    },
}


@tool(needs=["secret:read:TOKEN", "fs:read:*"], effect="read_only", sandbox="native")
async def loud(ctx: Context) -> str:
    """Names a file after a secret."""
    value = await ctx.secrets.get("TOKEN")
    try:
        return await ctx.fs.read(f"notes/{value}")
    except FileNotFoundError:
        return "no such file"


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    place = tmp_path.resolve()
    monkeypatch.chdir(place)
    monkeypatch.setenv("XDG_STATE_HOME", str(place / "state"))
    monkeypatch.setenv("TOKEN", "s3cr3t-value")
    (place / "notes").mkdir()
    (place / "notes" / "a").write_text("rain")
    (place / "desk.yaml").write_text(json.dumps(POLICY))
    return place


def lines_of(path: Path) -> tuple[RecordingStart, list[Touch]]:
    first, *others = path.read_bytes().splitlines()
    return recording_start(first), [touch(line) for line in others]


def test_calls_and_their_uses_are_recorded(desk: Path) -> None:
    manifest = load_manifest("desk.yaml")
    recording = record_calls(manifest)
    gate = Gate(manifest, [read_file, loud], Backends.local(), observers=[recording])
    receipts = [run(gate, "read_file", {"path": path}).receipt for path in ("notes/a", "desk.yaml")]
    receipts.append(run(gate, "unknown", {}).receipt)
    recording.close()
    start, touches = lines_of(recording.path)
    assert (start.source, start.agent, start.manifest) == ("gate", "desk", str(desk / "desk.yaml"))
    assert start.workdir == str(desk)
    assert [(one.call, one.tool, one.use, one.outcome) for one in touches] == [
        (receipts[0], "read_file", "tool:call:read_file", "used"),
        (receipts[0], "read_file", f"fs:read:{desk}/notes/a", "used"),
        (receipts[1], "read_file", "tool:call:read_file", "used"),
        (receipts[1], "read_file", f"fs:read:{desk}/desk.yaml", "refused"),
        (receipts[2], "unknown", "tool:call:unknown", "refused"),
    ]
    assert all(one.time >= start.started for one in touches)
    assert recording.path.parent.parent.parent == desk / "state" / "licet"
    assert stat.S_IMODE(recording.path.stat().st_mode) == 0o600


def test_secrets_are_not_recorded(desk: Path) -> None:
    manifest = load_manifest("desk.yaml")
    recording = record_calls(manifest, "recording.jsonl")
    gate = Gate(manifest, [read_file, loud], Backends.local(), observers=[recording])
    assert run(gate, "loud", {}).value == "no such file"
    text = recording.path.read_text()
    assert "secret:read:TOKEN" in text
    assert "s3cr3t-value" not in text


def test_a_recording_never_replaces_a_file(desk: Path) -> None:
    with pytest.raises(FileExistsError):
        record_calls(load_manifest("desk.yaml"), "desk.yaml")


def test_a_recording_that_cannot_be_written_ends_and_calls_go_on(desk: Path) -> None:
    manifest = Manifest.from_data(POLICY)
    recording = record_calls(manifest, "recording.jsonl")
    os.close(recording._file or 0)
    gate = Gate(manifest, [read_file, loud], Backends.local(), observers=[recording])
    recording._file = os.open("notes/a", os.O_RDONLY)  # writes to it fail
    assert run(gate, "read_file", {"path": "notes/a"}).value == "rain"
    assert recording.failed


def test_a_request_that_would_have_sent_a_key_away_is_marked(desk: Path) -> None:
    recording = record_calls(load_manifest("desk.yaml"))
    use, key = "network:https:post@evil.example.com:443", "secret:read:TOKEN"
    for event in (
        CapabilityGranted(use, "run"),
        CapabilityDenied(use, "run", "SECRET_NOT_DECLARED"),
        CapabilityDenied(use, "run", "HOST_NOT_ALLOWED"),
        CapabilityDenied(key, "run", "SECRET_NOT_DECLARED"),
    ):
        recording(event)
    recording.close()
    _, touches = lines_of(recording.path)
    assert [(one.use, one.outcome, one.sent_key is True) for one in touches] == [
        (use, "used", False),
        (use, "refused", True),
        (use, "refused", False),
        (key, "refused", False),
    ]
