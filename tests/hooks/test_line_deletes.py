"""Lines of a session remove what its lines have made, though nobody has approved deletes, and nothing that is older."""

from pathlib import Path

import pytest

from attacks.walled_programs import needs_namespaces
from hooks.lines import Desk, policy

pytestmark = needs_namespaces


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    made = Desk(tmp_path, policy(approvals={"write": "manifest", "delete": "call"}))
    (made.project / "old").write_text("old\n")
    (made.project / "dir").mkdir()
    return made


def test_what_one_line_makes_the_next_may_remove(desk: Desk) -> None:
    assert desk.run("mkdir -p out/a; echo x > out/a/b; echo y > new; rm new; test ! -e new").code == 0
    removed = desk.run("rm -r out && ls -d out dir old")
    assert (removed.code, removed.stdout, removed.stderr) == (
        2,
        b"dir\nold\n",
        b"ls: cannot access 'out': No such file or directory\n",
    )


def test_the_agent_is_told_what_was_not_removed_and_who_can_approve_it(desk: Desk) -> None:
    desk.run("echo x > new")
    ended = desk.run("rm new; rm old; rmdir dir; git --version >/dev/null")
    said = ended.stderr.decode()
    assert {"dir", "old"} <= {path.name for path in desk.project.iterdir()}
    assert (
        f"licet: not deleted, since nobody has approved deletes, and it was there before: `{desk.project}/old`" in said
    )
    assert f"`{desk.project}/dir`" in said
    assert "licet receipts show" in said


def test_a_session_removes_nothing_that_was_made_before_it(desk: Desk) -> None:
    assert desk.run("echo x > new").code == 0
    other = Desk(desk.project.parent, policy(approvals={"write": "manifest", "delete": "call"}))
    other.session = f"{desk.session}-other"
    assert other.run("rm new").code == 1
    assert other.run("echo z > mine; rm mine").code == 0
    assert desk.run("rm new").code == 0


def test_what_a_line_leaves_in_scratch_the_next_may_remove(desk: Desk) -> None:
    assert desk.run("mkdir /tmp/a; echo x > /tmp/a/b; echo x > ~/c").code == 0
    assert desk.run("rm -r /tmp/a && rm ~/c && mv old old2 && mv old2 old").code == 0
