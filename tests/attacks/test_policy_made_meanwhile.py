"""A program waits behind walls for a lock or a policy that its user makes beside the policy in use, and rewrites it."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from attacks.walled_programs import needs_namespaces
from licet import ManifestError, load_manifest
from pins import trust

NAMES = ("licet.lock", "licet.yaml", ".licet")
INIT = ("init", "--preset", "coding")
WAIT = """
while ! test -e stop; do
  for path in licet.lock licet.yaml .licet .licet/licet.yaml .licet/new agent.yaml; do
    echo evil > $path; rm -rf $path; mv $path moved; ln -s agent.yaml $path; echo evil > other && mv -T other $path
    mkdir empty && mv -T empty $path; ln $path second && echo evil > second
  done
  echo made > made
  sleep 0.1
done 2> /dev/null
rm -r made
"""


def policy(root: Path) -> dict[str, object]:
    reach = {"read": [str(root)], "write": [str(root)]}
    process = {"allowed_binaries": ["sh"]}
    budget = {"max_calls_per_session": 10}
    effect = "destructive"
    limits = {"max_side_effect_class": effect, "fs_reach": reach, "process": process, "budget": budget}
    return {"agent": "a", "capabilities": limits}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    place = tmp_path.resolve() / "project"
    place.mkdir()
    (place / "agent.yaml").write_text(json.dumps(policy(place)))
    trust(place / "agent.yaml", place.parent / "state")
    return place


def started(root: Path, *words: str) -> "subprocess.Popen[str]":
    command = [sys.executable, "-c", "from licet.cli import program; program()", *words]
    environment = {**os.environ, "XDG_STATE_HOME": str(root.parent / "state")}
    pipe = subprocess.PIPE
    return subprocess.Popen(command, cwd=root, env=environment, stdin=-3, stdout=pipe, stderr=pipe, text=True)


def licet(root: Path, *words: str) -> tuple[int, str]:
    with started(root, *words) as process:
        out, err = process.communicate(timeout=120)
    return process.returncode, out + err


@contextmanager
def running(root: Path) -> Iterator["subprocess.Popen[str]"]:
    """A program that attacks until there is a file `stop`, after a person has agreed to its deletes."""
    words = ("run", "agent.yaml", "--", "sh", "-c", WAIT)
    assert licet(root, *words)[0] == 125
    waiting = json.loads(licet(root, "approvals", "list", "--json")[1])["requests"]
    assert licet(root, "approvals", "approve", waiting[-1]["id"], "--yes")[0] == 0
    with started(root, *words) as process:
        try:
            while not (root / "made").exists():
                assert process.poll() is None, process.communicate()
                time.sleep(0.05)
            yield process
        finally:
            (root / "stop").touch()


@needs_namespaces
def test_a_program_cannot_write_the_policy_that_is_made_while_it_runs(root: Path) -> None:
    given = (root / "agent.yaml").read_bytes()
    with running(root) as process:
        time.sleep(0.2)  # for the attacks on what stands for the names
        assert [name for name in NAMES if (root / name).is_dir()] == [*NAMES]
        found = load_manifest(root / "agent.yaml")
        assert (found.lock, found.lock_problem) == (None, None)
        with pytest.raises(ManifestError, match="no file there"):
            load_manifest(root / "licet.yaml")
        for words in (("lock", "agent.yaml"), ("lock", "--update", "agent.yaml"), (*INIT, "-o", "licet.yaml")):
            code, said = licet(root, *words)
            assert (code, "a program is running behind walls here" in said) == (1, True), said
        assert "no licet.lock" in licet(root, "check", "--locked", "agent.yaml")[1]
        assert "while a program runs behind walls" in licet(root, "check", "licet.yaml")[1]
        assert "no licet.yaml here" in licet(root, "check")[1]
        assert licet(root, "trust", "agent.yaml", "--yes")[0] == 0
        assert licet(root, *INIT)[0] == 0  # into the directory that is mounted
        made = (root / ".licet" / "licet.yaml").read_bytes()
        time.sleep(0.5)
    assert process.wait(120) == 0
    assert (root / ".licet" / "licet.yaml").read_bytes() == made
    assert (root / "agent.yaml").read_bytes() == given
    assert not {"licet.lock", "licet.yaml", "made"} & {path.name for path in root.iterdir()}
    assert licet(root, "lock", "agent.yaml")[0] == 0
    assert load_manifest(root / "agent.yaml").lock is not None


@needs_namespaces
def test_what_a_killed_host_has_left_is_in_nobodys_way(root: Path) -> None:
    with running(root) as process:
        process.send_signal(signal.SIGKILL)
        process.wait(60)
    assert (root / "licet.lock").is_dir()
    assert licet(root, *INIT, "-o", "licet.yaml")[0] == 0
    assert (root / "licet.yaml").is_file()
    (root / "licet.yaml").unlink()
    code, said = licet(root, "lock", "agent.yaml")
    assert (code, (root / "licet.lock").is_file()) == (0, True), said
