"""Makes the recording of a gate or gateway, in the state directory of its policy.

Records what the calls of a gate use, as an observer of its events. `licet learn` reads the file.

A recording is a draft for review and no evidence: the ledger has that. The file is only for its owner (0600). Events
have no secrets that licet knows, so neither has a recording.
"""

import os
import time
from pathlib import Path
from typing import Literal

from msgspec import UNSET

from licet.assemble.review import Places, state_directory
from licet.core.decision.decision import CapabilityDenied, CapabilityGranted, Event, SandboxEntered
from licet.core.policy.manifest import Manifest
from licet.core.review.recording_lines import BadRecording, RecordingStart, Touch, recording_line, use_of_text
from licet.own_files import append, open_new
from licet.policy_files.policy_paths import policy_root


class CallRecording:
    """An observer that writes a line for each use of each call, and one for the call itself when its tool runs.

    If the file cannot be written, recording ends and calls go on: `failed` then says why.
    """

    def __init__(self, path: str | os.PathLike[str], start: RecordingStart) -> None:
        self.path = Path(path)
        self.failed = ""
        self.lines = 0
        self.path.parent.mkdir(0o700, parents=True, exist_ok=True)
        self._file: int | None = open_new(self.path)
        self._write(recording_line(start))

    def __call__(self, event: Event) -> None:
        """Record one event, if it is a use or the start of a tool."""
        if isinstance(event, SandboxEntered):
            self._touch(f"tool:call:{event.tool_name}", event, "used")
        elif isinstance(event, CapabilityGranted) and not event.capability.startswith("tool:call:"):
            self._touch(event.capability, event, "used")
        elif isinstance(event, CapabilityDenied):
            self._touch(event.capability, event, "refused")

    def _touch(self, use: str, event: Event, outcome: Literal["used", "refused"]) -> None:
        try:
            use_of_text(use)
        except BadRecording:  # a request that named nothing, or one with a redacted part
            return
        moment = int(event.time.timestamp() * 1000) if event.time is not None else 0
        line = Touch(
            time=moment,
            call=event.receipt,
            tool=event.tool_name,
            use=use,
            outcome=outcome,
            sent_key=True if event.reason == "SECRET_NOT_DECLARED" and use.startswith("network:") else UNSET,
        )
        self._write(recording_line(line))
        self.lines += 1

    def _write(self, line: bytes) -> None:
        if self._file is None:
            return
        try:
            append(self._file, line)
        except OSError as wrong:
            self.failed = wrong.strerror or str(wrong)
            self.close()

    def close(self) -> None:
        """Close the file. Later events are not recorded."""
        if self._file is not None:
            os.close(self._file)
            self._file = None


RECORDINGS = "recordings"


def record_calls(
    manifest: Manifest,
    path: str | Path | None = None,
    *,
    workdir: str | Path | None = None,
    source: Literal["gate", "gateway"] = "gate",
) -> CallRecording:
    """An observer for a gate that records what its calls use, for `licet learn`.

        gate = Gate(manifest, tools, observers=[record_calls(manifest)])

    The recording is a new file in the state directory of the policy, or `path`.
    """
    places = Places.here(workdir)
    file = Path(manifest.files[0]).absolute() if manifest.files else None
    started = time.time_ns()
    if path is None:
        folder = state_directory(policy_root(file) if file is not None else Path(places.workdir)) / RECORDINGS
        path = folder / f"{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}-{source}-{started % 10**9:09}.jsonl"
    start = RecordingStart(
        source=source,
        started=started // 1_000_000,
        agent=manifest.agent,
        manifest=str(file or ""),
        workdir=places.workdir,
        home=places.home,
    )
    return CallRecording(path, start)
