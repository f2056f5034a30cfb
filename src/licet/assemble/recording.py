"""Makes the recording of a gate or gateway, in the state directory of its policy."""

import time
from pathlib import Path
from typing import Literal

from licet.assemble.review import Places
from licet.assemble.state import state_directory
from licet.backends.call_recording import CallRecording
from licet.core.policy.manifest import Manifest
from licet.core.review.recording import RecordingStart
from licet.policy_files.policy_paths import policy_root

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
