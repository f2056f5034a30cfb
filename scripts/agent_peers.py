"""Runs the tests with the real coding agents of npm: python scripts/agent_peers.py [TEST…].

They are installed below .venv-peers, once, in the versions of peers.toml, and reach nothing but a model that the tests
play. Where there is no Node, or they cannot be installed, the tests are skipped.
"""

import os
import subprocess
import sys
import tomllib
from pathlib import Path

from gateway_peers import node_packages

ROOT = Path(__file__).parent.parent


def main(arguments: list[str]) -> int:
    """Install the agents, and run the tests with them; the exit code of the tests."""
    pins = tomllib.loads((ROOT / "scripts" / "peers.toml").read_text(encoding="utf-8"))
    folder = node_packages(pins["agents"]["packages"], "agents")
    if folder is None:
        return 0
    print("· coding agents, with a played model", flush=True)
    pytest = [sys.executable, "-m", "pytest", "-rs", "-n", os.environ.get("WORKERS") or "auto"]
    given = {**os.environ, "LICET_AGENTS": str(folder)}
    return subprocess.run(
        [*pytest, *(arguments or ["tests/peers/agents"])], check=False, cwd=ROOT, env=given
    ).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
