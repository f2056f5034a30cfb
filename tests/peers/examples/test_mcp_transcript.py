"""The transcript of examples/mcp is what happens with the real servers."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from licet.sandbox import probe

EXAMPLES = Path(__file__).resolve().parents[3] / "examples"

pytestmark = [
    pytest.mark.skipif("LICET_PEERS_STORE" not in os.environ, reason="asks registries: make test-peers"),
    pytest.mark.skipif("LICET_NPM" not in os.environ, reason="there is no Node here"),
]


def test_the_transcript_is_what_happens() -> None:
    if not probe.support().namespaces:
        pytest.skip("servers are refused without namespaces")
    played = subprocess.run(
        [sys.executable, str(EXAMPLES / "transcripts.py"), "--check", "mcp"], capture_output=True, text=True,
        env={**os.environ, "XDG_DATA_HOME": os.environ["LICET_PEERS_STORE"]}, timeout=600, check=False,
    )  # fmt: skip
    assert (played.returncode, played.stdout) == (0, ""), played.stdout + played.stderr
