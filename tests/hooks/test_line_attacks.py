"""What a line does to reach the agent's shell, the next line's host or another session: none of it leaves the walls."""

import os
import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from attacks.walled_programs import needs_programs
from hooks.lines import Desk, policy
from licet.hooks.tickets import AgentShell
from licet.sandbox import scratch

pytestmark = needs_programs


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Desk]:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    made = Desk(tmp_path)
    made.shell = AgentShell("/bin/bash", "directory")
    yield made
    assert scratch.end_session(f"claude/{made.session}")


def test_a_directory_with_quotes_and_commands_in_its_name_is_only_a_name(desk: Desk) -> None:
    name = "it's $(touch planted) `touch planted` \"; touch planted; \\"
    (desk.project / name).mkdir()
    assert desk.run("cd it*").directory == str(desk.project / name)
    assert desk.run("pwd; exit 5", desk.project / name).stdout.decode() == f"{desk.project}/{name}\n"


@pytest.mark.parametrize(
    "name",
    ["a\nb", "\x1b[2Jcleared", "bell\x07", "left\u202eright", "end\n"],
    ids=["line", "escape", "bell", "bidi", "end"],
)
def test_a_directory_with_control_characters_is_not_told(desk: Desk, name: str) -> None:
    (desk.project / name).mkdir()
    assert desk.run(f"cd -- {shlex.quote(name)} && echo there").stdout == b"there\n"
    assert desk.run(f"cd -- {shlex.quote(name)}").directory == str(desk.project)


@pytest.mark.parametrize(
    "text",
    [
        "{outside}",
        "/etc",
        "/",
        "sub",
        "",
        "{project}/missing",
        "{project}/file",
        "{project}/sub/../..",
        "{project}/out",
    ],
)
def test_a_directory_that_a_line_only_claims_changes_nothing(desk: Desk, text: str) -> None:
    (desk.project / "sub").mkdir()
    (desk.project / "file").touch()
    outside = desk.project.parent / "outside"
    outside.mkdir()
    (desk.project / "out").symlink_to(outside)
    claimed = text.format(outside=outside, project=desk.project)
    # In place of the builtin that writes the directory: what it prints goes to the file.
    said = desk.run(f"builtin() {{ printf '%s\\n' '{claimed}'; }}")
    assert (said.directory, said.code) == (str(desk.project), 0)
    honest = desk.run(f"builtin() {{ printf '%s\\n' '{desk.project}/sub'; }}")
    assert honest.directory == f"{desk.project}/sub"  # it could have gone there


def test_a_link_or_a_pipe_in_place_of_the_directory_file_is_not_read(desk: Desk) -> None:
    (desk.project / "sub").mkdir()
    (desk.project / "text").write_text(f"{desk.project}/sub\n")
    for plant in (f"ln -s {desk.project}/text", "mkfifo", "mkdir"):
        swap = f'{{ f=$(readlink /proc/self/fd/3); }} 3>&1; rm -f "$f"; {plant} "$f"; ls -ld "$f" >> $TMPDIR/planted'
        assert desk.run(f"builtin() {{ {swap}; }}").directory == str(desk.project)
    planted = desk.run("cat $TMPDIR/planted").stdout.splitlines()
    assert [line[:1] for line in planted] == [b"l", b"p", b"d"]


def test_the_directory_of_a_linked_path_is_the_real_one(desk: Desk) -> None:
    (desk.project / "sub").mkdir()
    (desk.project / "link").symlink_to("sub")
    assert desk.run("cd link").directory == f"{desk.project}/sub"


def test_a_fake_state_runs_behind_the_walls_alone(desk: Desk, tmp_path: Path) -> None:
    desk.shell = AgentShell("/bin/bash", "shell")
    planted = tmp_path / "planted"
    desk.run("export A=1")
    line = f"printf 'touch {planted}; B=2\\n# complete\\n' > /.licet/shell; exit 0"
    assert desk.run(line).code == 0
    assert desk.run("echo $B").stdout == b"2\n"  # as if it had been exported: by the shell inside
    assert not planted.exists()
    desk.run("export A=3; rm -f /.licet/*; ln -s /etc/passwd /.licet/shell; exit")
    assert desk.run("echo still here").stdout == b"still here\n"


def test_nothing_of_licet_is_in_reach_of_a_line(desk: Desk) -> None:
    desk.run("true")
    places = [desk.state, desk.tickets.directory, scratch.sessions_parent()]
    looks = "; ".join(f"ls -A {place} 2>/dev/null; touch {place}/x 2>/dev/null && echo wrote" for place in places)
    assert desk.run(looks).stdout == b""


def test_links_in_scratch_lead_nowhere_on_the_host(desk: Desk, tmp_path: Path) -> None:
    """What is mounted in scratch, such as a project below `/tmp`, cannot be replaced by a line for the next one."""
    first = str(desk.project).split("/")[2]
    moved = desk.run(
        f"cd /; mv /tmp/{first} /tmp/away; rm -rf /tmp/{first}; ln -s {tmp_path}/elsewhere /tmp/{first}; ls /tmp"
    )
    if str(desk.project).startswith("/tmp/"):
        assert first.encode() in moved.stdout.split()
        assert b"busy" in moved.stderr
    assert desk.run("pwd").stdout.decode() == f"{desk.project}\n"
    assert not (tmp_path / "elsewhere").exists()


def test_a_denied_file_stays_closed_in_every_line(desk: Desk) -> None:
    (desk.project / ".env").write_text("KEY=secret")
    for _ in range(2):
        said = desk.run("cat .env; mv .env x; ln .env $TMPDIR/e; cp .env $TMPDIR/f; cat $TMPDIR/*")
        assert b"secret" not in said.stdout + said.stderr


def test_a_shell_that_a_rule_denies_is_refused(tmp_path: Path) -> None:
    desk = Desk(tmp_path, policy(deny=["process:exec:bash"]))
    said = desk.run("echo never")
    assert (said.code, said.stdout) == (125, b"")
    desk.shell = AgentShell("/bin/dash")
    assert desk.run("echo runs").stdout == b"runs\n"
    assert scratch.end_session(f"claude/{desk.session}")


@pytest.mark.who
def test_a_policy_without_programs_has_shell_lines(tmp_path: Path) -> None:
    """The shell is allowed by being this tool, and what it starts is behind the same walls."""
    desk = Desk(tmp_path, policy(process={"allowed_binaries": []}))
    shutil.copy("/usr/bin/env", desk.project / "own")
    assert desk.run("./own printf works").stdout == b"works"
    assert scratch.end_session(f"claude/{desk.session}")
    assert os.path.isdir(desk.project)
