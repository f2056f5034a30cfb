"""Measures flow with a public suite of hijacked agents: python scripts/flow_suite.py [OPTION…].

The suite is installed below .venv-peers, once, in the version of peers.toml. No model is asked: its own calls and the
attacker's are made through a gate. The options are those of `tests/peers/flow/measure.py`; where the suite cannot be
installed, this says so and measures nothing.
"""

import os
import subprocess
import sys
import tomllib

from adapter_peers import ROOT, environment


def main(options: list[str]) -> int:
    """Install the suite, and measure with it; the exit code says whether a floor was missed."""
    pins = tomllib.loads((ROOT / "scripts" / "peers.toml").read_text(encoding="utf-8"))
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    python = environment("flow", [*pins["flow"]["packages"], *project["project"]["dependencies"], "pytest>=9,<10"])
    if python is None:
        return 0
    print("· flow, with a public suite of hijacked agents", flush=True)
    inside = {**os.environ, "PYTHONPATH": os.pathsep.join((str(ROOT / "src"), str(ROOT / "tests")))}
    command = [str(python), "-m", "peers.flow.measure", *options]
    return subprocess.run(command, check=False, cwd=ROOT, env=inside).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
