"""`licet allow` and standing approvals, and attempts to use it from behind walls, with a terminal of one's own."""

import json
import sys
from pathlib import Path

import pytest

import warm
from attacks.walled_programs import needs_walls
from cli.terminals import at_terminal
from command_line import enter_project, run
from pins import STANDING, give_standing, trust

POLICY = """\
agent: a
capabilities:
  max_side_effect_class: full
  fs_reach: {read: ["${workdir}"], write: ["${workdir}/out"]}
  process: {allowed_binaries: [cat]}
  sandbox: {allow_degraded: true}
  approvals: {write: manifest, delete: manifest}
  budget: {max_calls_per_day: 100}
"""
AGREE = ((b"like this? [y/N]",), b"y\n")


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = enter_project(tmp_path, monkeypatch)
    (folder / "licet.yaml").write_text(POLICY)
    for name in ("out", "more"):
        (folder / name).mkdir()
    (tmp_path / "beside").mkdir()
    return folder


def standing() -> dict[str, str]:
    listed = json.loads(run("approvals", "list", "--json").stdout)["requests"]
    return {one["id"]: one["manifest"] for one in listed if one["holds_for"] == "standing"}


def digest() -> str:
    found: str = json.loads(run("surface", "--json").stdout)["digest"]
    return found


@pytest.mark.parametrize(
    ("words", "goes_on"),
    [
        (("read", "../beside"), True),
        (("env:read:LANG",), True),
        (("write", "more"), False),
        (("delete", "more"), False),
        (("https://a.example",), False),
    ],
)
def test_a_standing_approval_goes_on_where_nothing_more_is_written(
    here: Path, words: tuple[str, ...], goes_on: bool
) -> None:
    trust(Path("licet.yaml"))
    give_standing(Path("licet.yaml"), [f"fs:delete:{here}/out"])
    before = json.loads(run("approvals", "list", "--json").stdout)["requests"][0]
    code, said = at_terminal(("allow", *words), AGREE)
    assert code == 0, said
    assert ("the delete still needs an approval" in said) == (words[0] == "delete")
    bound = {name for name, manifest in standing().items() if manifest == digest()}
    assert bool(bound) == goes_on
    assert (f"{STANDING}, goes on until it ends" in said) == goes_on
    assert (f"{STANDING}, ends: `licet trust` gives one again" in said) != goes_on
    if goes_on:
        (after,) = (
            one for one in json.loads(run("approvals", "list", "--json").stdout)["requests"] if one["id"] in bound
        )
        assert (after["expires"], after["deletes"]) == (before["expires"], before["deletes"])


WITH_A_TERMINAL = """
import os, pty, sys
child, terminal = pty.fork()
if not child:
    os.execv(sys.executable, [sys.executable, "-m", "licet", "allow", *sys.argv[1:]])
os.write(terminal, b"y\\n")
said = b""
try:
    while piece := os.read(terminal, 4096):
        said += piece
except OSError:
    pass
print(said.decode(), os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


@needs_walls
def test_from_behind_walls_nothing_is_allowed_with_a_terminal_of_its_own_and_a_yes(here: Path) -> None:
    policy = POLICY.replace("[cat]", f'["{sys.executable}"]').replace('read: ["${workdir}"]', 'read: ["/"]')
    policy = policy.replace("delete: manifest", "delete: session").replace('"${workdir}/out"', '"${workdir}"')
    policy = policy.replace(": full", ": write_limited")
    (here / "licet.yaml").write_text(policy)
    trust(Path("licet.yaml"))
    code, said = at_terminal(("allow", "env:read:LANG"), ((b"[y/N]",), b"n\n"))
    assert (code, "change licet.yaml like this?" in said) == (1, True)  # it would, for a person
    (here / "evil.py").write_text(WITH_A_TERMINAL)
    ended = warm.run(warm.PROGRAM, ("run", "--", sys.executable, "evil.py", "env:read:LANG"))
    assert "licet.yaml cannot be written from here" in ended.stdout, ended.stdout + ended.stderr
    assert "inside `licet run`" in ended.stdout
    assert (here / "licet.yaml").read_text() == policy
