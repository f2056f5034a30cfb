"""A shell line gets a stand-in for a key that is in its agent's environment, and never the key."""

from pathlib import Path

import pytest

from attacks.walled_programs import needs_namespaces
from hooks.lines import Desk, policy
from licet.hooks.tickets import AgentShell

pytestmark = needs_namespaces

KEY = "ghp_" + "Ab3" * 12
HOST = "api.example.com"
STAND_INS = {"CODE_TOKEN": {"secret": "CODE_TOKEN", "hosts": [HOST]}}


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    made = Desk(tmp_path, policy(inspect=[HOST], secrets=["CODE_TOKEN"], stand_ins=STAND_INS))
    made.variables["CODE_TOKEN"] = KEY
    return made


def test_a_line_has_a_stand_in(desk: Desk) -> None:
    ended = desk.run("echo $CODE_TOKEN; env; cat /proc/self/environ")
    shown = ended.stdout.split()[0].decode()
    assert shown.startswith("ghp_"), ended.stderr
    assert len(shown) == len(KEY)
    assert KEY.encode() not in ended.stdout


def test_a_kept_shell_forgets_the_stand_in_of_the_line_before(desk: Desk) -> None:
    desk.shell = AgentShell("/bin/bash", "shell")
    first = desk.run("export OTHER=kept; echo $CODE_TOKEN").stdout.split()
    second = desk.run("echo $CODE_TOKEN $OTHER").stdout.split()
    assert second[1:] == [b"kept"]
    assert second[0].startswith(b"ghp_")
    assert first[0] != second[0]


def test_a_key_that_the_agent_does_not_have_refuses_the_line(desk: Desk) -> None:
    del desk.variables["CODE_TOKEN"]
    ended = desk.run("echo ran")
    assert ended.code == 125
    assert ended.stdout == b""
    assert b"no backend knows CODE_TOKEN" in ended.stderr
