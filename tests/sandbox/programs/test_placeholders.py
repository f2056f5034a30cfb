"""Closed names that do not exist: they stay closed while programs run, and new names beside them can be made."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from attacks.walled_programs import Programs, needs_namespaces, place
from licet.sandbox.programs.program_files import Placeholders


def programs(where: Path, closed: str, action: str = "write") -> Programs:
    rules = [f"fs:{action}:{where}/in" for action in ("read", "write", "delete")]
    deny = [f"fs:{action}:{where}/in/{closed}"]
    return Programs("namespaces", rules, deny=deny, effect="full", deletes="session")


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """A file or directory that somebody has locked alone."""
    fd = os.open(path, os.O_RDONLY)
    fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    try:
        yield
    finally:
        os.close(fd)


CLOSED = (".claude", ".mcp.json", "node_modules", "deep/er/.vscode", "node_modules/.bin", ".npmrc", "with space")
# Every way to get a file to a name.
WAYS = {
    "write": "echo x > {0}",
    "mkdir": "mkdir -p {0}/x && echo x > {0}/x/y",
    "rename": "echo x > other && mv -T other {0}",
    "link": "ln -s other {0}",
    "hard link": "echo x > other && ln other {0}",
    "replace": "rm -rf {0} && echo x > {0}",
    "move away": "mv {0} gone && echo x > {0}",
    "move the directory away": "mv $(dirname {0}) gone && mkdir -p $(dirname {0}) && echo x > {0}",
}


@needs_namespaces
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("closed", CLOSED)
@pytest.mark.sampled(4)
def test_a_closed_name_cannot_be_made(closed: str, way: str, tmp_path: Path) -> None:
    where = place(tmp_path)
    line = f"cd {where}/in; " + WAYS[way].format(f"'{closed}'" if " " in closed else closed)
    if way == "write":  # without walls it can
        Programs("open", ["process:exec:*"]).run("sh", "-c", line.replace(closed, "file"))
        assert (where / "in" / "file").read_text() == "x\n"
    programs(where, closed).run("sh", "-c", line)
    assert not os.path.lexists(where / "in" / closed)


@needs_namespaces
@pytest.mark.parametrize("action", ["write", "*"])
@pytest.mark.parametrize("closed", [".claude", ".env", "a/b/c"])
@pytest.mark.sampled(2)
def test_names_beside_it_can_be_made_renamed_and_deleted(closed: str, action: str, tmp_path: Path) -> None:
    where = place(tmp_path)
    beside = (where / "in" / closed).parent
    line = f"cd {beside} && echo x > new && mkdir d && mv new d/new && rm -r d && echo y > kept"
    ended = programs(where, closed, action).run("sh", "-c", line)
    assert (ended.exit_code, ended.stderr_bytes) == (0, b"")
    assert (beside / "kept").read_text() == "y\n"
    assert not os.path.lexists(where / "in" / closed)


@needs_namespaces
def test_what_was_there_stays_as_it_was(tmp_path: Path) -> None:
    where = place(tmp_path)
    (where / "in" / ".claude").mkdir()
    (where / "in" / ".mcp.json").touch()
    for closed in (".claude", ".mcp.json"):
        assert programs(where, closed).run("sh", "-c", f"cd {where}/in; echo x > {closed}; rm -r {closed}").exit_code
    assert (where / "in" / ".claude").is_dir()
    assert (where / "in" / ".mcp.json").read_bytes() == b""


def test_a_placeholder_stays_until_the_last_has_released_it(tmp_path: Path) -> None:
    folder, file = tmp_path / ".claude", tmp_path / "deep" / ".mcp.json"
    names = [str(folder), str(file)]
    first, second, third = Placeholders(), Placeholders(), Placeholders()
    for one in (first, second):
        one.hold(names)
    assert folder.is_dir()
    assert file.is_file()
    first.release()
    third.hold(names)
    second.release()
    assert folder.is_dir()
    assert file.is_file()
    third.release()
    assert not folder.exists()
    assert not file.exists()
    third.release()  # once more is nothing


def test_one_that_a_killed_host_has_left_is_removed_by_the_next(tmp_path: Path) -> None:
    left, later = Placeholders(), Placeholders()
    left.hold([str(tmp_path / ".env")])
    for held in left._held:
        os.close(held.fd)
    later.hold([str(tmp_path / ".env")])
    later.release()
    assert list(tmp_path.iterdir()) == []


def test_directories_that_a_killed_host_has_left_are_removed_by_the_next(tmp_path: Path) -> None:
    left, later = Placeholders(), Placeholders()
    left.hold([str(tmp_path / "deep" / "er" / ".vscode")])
    for held in left._held:
        os.close(held.fd)
    later.hold([str(tmp_path / "deep" / "er" / ".vscode"), str(tmp_path / "deep" / ".npmrc")])
    later.release()
    assert list(tmp_path.iterdir()) == []


def test_directories_go_with_the_last_of_several_programs(tmp_path: Path) -> None:
    file, beside = str(tmp_path / "deep" / ".npmrc"), str(tmp_path / "deep" / ".env")
    first, second, third = Placeholders(), Placeholders(), Placeholders()
    first.hold([file])
    second.hold([file, beside])
    first.release()
    third.hold([file])
    second.release()  # its second name goes, and with it the time of the directory
    third.release()
    assert list(tmp_path.iterdir()) == []


def test_a_directory_that_was_made_stays_with_what_somebody_has_put_into_it(tmp_path: Path) -> None:
    name, own = str(tmp_path / "deep" / ".vscode"), tmp_path / "deep" / "own"
    first, second = Placeholders(), Placeholders()
    first.hold([name])
    second.hold([name])
    own.write_text("")
    first.release()
    second.release()
    assert os.lstat(tmp_path / "deep").st_mtime_ns > 1 << 60  # and is no placeholder
    own.unlink()
    Placeholders().hold([])
    assert own.parent.is_dir()


def test_a_program_that_locks_the_directory_opens_no_name_to_the_next_one(tmp_path: Path) -> None:
    name = str(tmp_path / "commondir")
    first, second = Placeholders(), Placeholders()
    assert first.hold([name]) == []
    with locked(tmp_path):
        assert second.hold([name]) == []
    first.release()
    assert os.path.lexists(name)  # or the mount of the second would end with it
    second.release()
    assert not os.path.lexists(name)


def test_a_name_that_cannot_be_held_counts_as_missing(tmp_path: Path) -> None:
    there, missing, real = (str(tmp_path / name) for name in ("commondir", "config.worktree", "hooks"))
    os.mkdir(real)
    left, later = Placeholders(), Placeholders()
    left.hold([there])
    for held in left._held:
        os.close(held.fd)
    with locked(Path(there)), locked(tmp_path):
        assert later.hold([there, missing, real]) == [there, missing]


@needs_namespaces
def test_beside_a_placeholder_that_is_not_held_no_name_can_be_made(tmp_path: Path) -> None:
    where = place(tmp_path)
    left = Placeholders()
    left.hold([f"{where}/in/.env"])
    for held in left._held:
        os.close(held.fd)
    with locked(where / "in" / ".env"):
        ended = programs(where, ".env").run("sh", "-c", f"cd {where}/in; echo x > new; echo x > .env")
    assert ended.exit_code != 0
    assert not (where / "in" / "new").exists()
    assert (where / "in" / ".env").read_bytes() == b""


def test_what_somebody_has_written_to_meanwhile_stays(tmp_path: Path) -> None:
    made = Placeholders()
    made.hold([str(tmp_path / name) for name in (".claude", ".env", "replaced.json", "touched.json")])
    (tmp_path / ".claude" / "settings.json").write_text("{}")
    (tmp_path / ".env").write_text("A=1")
    (tmp_path / "replaced.json").unlink()
    (tmp_path / "replaced.json").touch()
    (tmp_path / "touched.json").touch()
    made.release()
    assert sorted(path.name for path in tmp_path.iterdir()) == [".claude", ".env", "replaced.json", "touched.json"]


def test_no_link_is_followed_and_a_directory_that_may_not_be_written_is_left(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    (tmp_path / "link").symlink_to("there")
    (tmp_path / "dangling").symlink_to("nowhere")
    made = Placeholders()
    made.hold([str(tmp_path / "link" / "x"), str(tmp_path / "dangling"), "/proc/x"])
    made.release()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["dangling", "link", "there"]
    assert list((tmp_path / "there").iterdir()) == []
