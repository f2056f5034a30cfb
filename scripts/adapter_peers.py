"""Runs the tests of the adapters against the real agent frameworks: python scripts/adapter_peers.py [NAME…].

Each framework has an environment of its own below .venv-peers, in its newest and its previous minor version. An
environment is made once; it is made again if its line in `PEERS` changes. What cannot be installed is reported and
skipped.
"""

import json
import os
import subprocess
import sys
import tomllib
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TESTS = ROOT / "tests" / "peers" / "adapters"
PEERS = {
    "pydantic-ai": ("test_pydantic_ai.py", "pydantic-ai-slim>=2.66,<2.67"),
    "pydantic-ai-previous": ("test_pydantic_ai.py", "pydantic-ai-slim>=2.63,<2.64"),
    "openai-agents": ("test_openai_agents.py", "openai-agents>=0.24,<0.25"),
    "openai-agents-previous": ("test_openai_agents.py", "openai-agents>=0.23,<0.24"),
    "langchain": ("test_langchain.py", "langchain>=1.4,<1.5"),
    "langchain-previous": ("test_langchain.py", "langchain>=1.3,<1.4"),
    "langgraph-previous": ("test_langchain.py", "langchain>=1.2,<1.3", "langgraph>=1.1,<1.2"),
    "claude-agent-sdk": ("test_claude_agent_sdk.py", "claude-agent-sdk>=0.2.182,<0.3"),
    # This version does not say that it cannot use mcp 2.
    "claude-agent-sdk-previous": ("test_claude_agent_sdk.py", "claude-agent-sdk>=0.1.81,<0.2", "mcp<2"),
}


def environment(name: str, wanted: list[str]) -> Path | None:
    """The Python of an environment with these packages; None if they cannot be installed."""
    folder = ROOT / ".venv-peers" / name
    record, python = folder / "licet-environment.json", folder / "bin" / "python"
    if record.exists() and json.loads(record.read_text(encoding="utf-8")) == wanted:
        return python
    print(f"· .venv-peers/{name}: installing {wanted[0]}", flush=True)
    venv.create(folder, clear=True, with_pip=True)
    pip = [str(python), "-I", "-m", "pip", "--disable-pip-version-check", "--no-input", "install", "--quiet"]
    # Only wheels, because installing one runs none of its code.
    done = subprocess.run([*pip, "--only-binary=:all:", *wanted], check=False, capture_output=True, text=True)
    if done.returncode:
        lines = done.stderr.strip().splitlines() or ["pip gave no reason"]
        print(f"· {wanted[0]} could not be installed: skipped ({lines[-1][:200]})")
        return None
    record.write_text(json.dumps(wanted), encoding="utf-8")
    return python


def main(names: list[str]) -> int:
    """Run the tests of the named peers, or of all; the number of those that failed."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    needed = [*project["project"]["dependencies"], "pytest>=9,<10"]
    failed = 0
    for name in names or PEERS:
        file, *packages = PEERS[name]
        python = environment(name, [*packages, *needed])
        if python is None:
            continue
        print(f"· adapters with {', '.join(packages)}", flush=True)
        # The conftest of all tests needs packages that are not here, and warnings of a framework are its own.
        command = [str(python), "-m", "pytest", f"--confcutdir={TESTS}", "-W", "default", "-p", "no:cacheprovider"]
        inside = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
        done = subprocess.run([*command, str(TESTS / file)], check=False, cwd=ROOT, env=inside)
        failed += done.returncode != 0
    return failed


if __name__ == "__main__":
    unknown = [name for name in sys.argv[1:] if name not in PEERS]
    sys.exit(f"unknown: {', '.join(unknown)}; known: {', '.join(PEERS)}" if unknown else main(sys.argv[1:]))
