"""Runs the tests of the gateway with official SDKs and public servers: python scripts/gateway_peers.py [TEST…].

Everything is installed below .venv-peers, once, in the versions of peers.toml. What cannot be installed is reported,
and its tests are skipped.
"""

import json
import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

from adapter_peers import ROOT, environment

PEERS = ROOT / ".venv-peers"
INSTALLED_WITHIN = 600  # seconds; a registry that does not answer keeps npm waiting
VARIABLES = {"mcp1": "LICET_MCP1_PYTHON", "mcp2": "LICET_MCP2_PYTHON"}


def node_packages(wanted: list[str], name: str = "npm") -> Path | None:
    """The directory with these packages of npm; None if there is no Node, or they cannot be installed."""
    folder = PEERS / name
    record = folder / "licet-environment.json"
    if not (shutil.which("node") and shutil.which("npm")):
        print(f"· there is no Node here: skipped without {', '.join(wanted)}")
        return None
    if record.exists() and json.loads(record.read_text(encoding="utf-8")) == wanted:
        return folder
    print(f"· .venv-peers/{name}: installing {', '.join(wanted)}", flush=True)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    npm = ["npm", "install", "--silent", "--no-audit", "--no-fund", "--ignore-scripts", "--prefix", str(folder)]
    try:
        done = subprocess.run([*npm, *wanted], check=False, capture_output=True, text=True, timeout=INSTALLED_WITHIN)
    except subprocess.TimeoutExpired:
        print(f"· packages of npm could not be installed: skipped (npm did not end within {INSTALLED_WITHIN} s)")
        return None
    if done.returncode:
        lines = (done.stderr or done.stdout).strip().splitlines() or ["npm gave no reason"]
        print(f"· packages of npm could not be installed: skipped ({lines[-1][:200]})")
        return None
    record.write_text(json.dumps(wanted), encoding="utf-8")
    return folder


def main(arguments: list[str]) -> int:
    """Install the peers, and run the tests with them; the exit code of the tests."""
    pins = tomllib.loads((ROOT / "scripts" / "peers.toml").read_text(encoding="utf-8"))
    given = {"LICET_PEERS_STORE": str(PEERS / "store")}
    for name, wanted in pins["python"].items():
        if python := environment(name, wanted):
            given[VARIABLES[name]] = str(python)
    if folder := node_packages(pins["npm"]["packages"]):
        given["LICET_NPM"] = str(folder)
    print("· the gateway with official SDKs and public servers (the first run installs the servers)", flush=True)
    pytest = [sys.executable, "-m", "pytest", "-rs", "-n", os.environ.get("WORKERS") or "auto"]
    tests = ["tests/peers/mcp_peers", "tests/peers/examples"]
    return subprocess.run(
        [*pytest, *(arguments or tests)], check=False, cwd=ROOT, env={**os.environ, **given}
    ).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
