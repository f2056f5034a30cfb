"""Files that licet writes: a crash or a full disk leaves the old text or the new one, and no link is followed.

Files whose names come from outside: whatever a name leads to, reading it ends and takes bounded memory.
"""

import errno
import os
import socket
import stat
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from licet.backends.ledger.state import write_last
from licet.backends.secrets import create_key, generated_key
from licet.cli.output import write_file
from licet.clients.known import read_own, replace_own, write_own
from licet.core.ledger.entry import Checkpoint, checkpoint_body
from licet.core.ledger.merkle import Frontier
from licet.own_files import (
    PLACEHOLDER_TIME,
    FileTooLarge,
    InUse,
    NotRegular,
    append,
    create_file,
    is_there,
    open_new,
    open_regular,
    read_most,
    read_regular,
    replace_file,
    size_text,
)
from licet.policy_files.trust import accept
from licet.sandbox.kernel import cover_watch
from licet.sandbox.programs.program_files import Placeholders


def make(kind: str, tmp_path: Path) -> Path:
    """Something that has the name of a file and is none."""
    path = tmp_path / "agent.yaml"
    match kind:
        case "a named pipe":
            os.mkfifo(path)
        case "a directory":
            path.mkdir()
        case "a socket":
            with socket.socket(socket.AF_UNIX) as server:
                server.bind(str(path))
        case _:
            path = Path("/dev/zero")
    return path


KINDS = ["a named pipe", "a directory", "a socket", "a device"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("through_link", [False, True])
def test_what_is_no_regular_file_is_not_read(tmp_path: Path, kind: str, through_link: bool) -> None:
    path = make(kind, tmp_path)
    if through_link:
        (tmp_path / "link").symlink_to(path)
        path = tmp_path / "link"
    with pytest.raises(NotRegular) as refusal:
        read_regular(path, 10)
    assert refusal.value.strerror == f"{kind}, not a regular file"
    assert refusal.value.filename == str(path)


def test_a_pipe_with_a_writer_is_not_read_either(tmp_path: Path) -> None:
    path = make("a named pipe", tmp_path)
    writer = os.open(path, os.O_RDWR)
    os.write(writer, b"agent: x")
    with pytest.raises(NotRegular):
        read_regular(path, 10)
    assert os.read(writer, 10) == b"agent: x"
    os.close(writer)


@pytest.mark.parametrize(("size", "fits"), [(0, True), (9, True), (10, True), (11, False), (1 << 21, False)])
def test_a_file_is_read_up_to_a_limit(tmp_path: Path, size: int, fits: bool) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"x" * size)
    if fits:
        assert read_regular(path, 10) == b"x" * size
        return
    with pytest.raises(FileTooLarge) as refusal:
        read_regular(path, 10)
    assert (refusal.value.errno, refusal.value.strerror) == (errno.EFBIG, "larger than 10 bytes")


def test_a_file_that_grows_while_it_is_read_ends_at_the_limit(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"x" * 5)
    with open_regular(path) as fd, path.open("ab") as more:
        more.write(b"y" * 100)
        more.flush()
        assert read_most(fd, 11) == b"x" * 5 + b"y" * 6


def test_more_than_one_read_gives_all_of_a_file(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(bytes(range(256)) * (3 << 12))
    assert read_regular(path, 4 << 20) == bytes(range(256)) * (3 << 12)


def test_a_sparse_file_of_a_terabyte_takes_no_memory(tmp_path: Path) -> None:
    path = tmp_path / "file"
    with path.open("wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(FileTooLarge):
        read_regular(path, 1 << 20)


# They have the type of a regular file and the size 0; one waits for the next message, the other goes on for terabytes.
@pytest.mark.parametrize("path", ["/proc/kmsg", "/proc/self/pagemap", "/proc/self/mem"])
def test_an_endless_file_of_the_kernel_ends_at_the_limit(path: str) -> None:
    with pytest.raises(OSError, match=r"."):
        read_regular(path, 1 << 20)


@pytest.mark.parametrize("target", ["file", "absent"])
def test_a_link_is_refused_where_links_are(tmp_path: Path, target: str) -> None:
    (tmp_path / "file").write_bytes(b"x")
    (tmp_path / "link").symlink_to(target)
    with pytest.raises(NotRegular, match="a link, not a regular file"):
        read_regular(tmp_path / "link", 10, links=False)
    assert read_regular(tmp_path / "file", 10, links=False) == b"x"


def test_a_missing_file_is_told_as_missing(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        read_regular(tmp_path / "absent", 10)


def test_no_descriptor_stays_open(tmp_path: Path) -> None:
    before = os.listdir("/proc/self/fd")
    for kind in KINDS:
        (tmp_path / kind).mkdir()
        with pytest.raises(NotRegular):
            read_regular(make(kind, tmp_path / kind), 10)
    assert os.listdir("/proc/self/fd") == before


@pytest.mark.parametrize(
    ("size", "text"), [(10, "10 bytes"), (65_536, "64 KiB"), (1 << 20, "1 MiB"), (1025, "1025 bytes")]
)
def test_sizes_are_written_as_people_do(size: int, text: str) -> None:
    assert size_text(size) == text


# What licet writes: each writer, with the old text, the new one, and the file that holds it ---------------------------

KEY = generated_key()
Writer = Callable[[Path, str], object]


def _head(path: Path, number: str) -> None:
    body = checkpoint_body(number * 32, 0, Frontier().root, "2026-03-01T12:00:00.000000Z", KEY.public)
    write_last(str(path), Checkpoint(0, body, KEY.sign(body)), Frontier())


def _trust(path: Path, text: str) -> None:
    os.environ["XDG_STATE_HOME"] = str(path.parent.parent)
    accept("/srv/agent.yaml", text, {}, datetime(2026, 3, 1, tzinfo=UTC))


def _client(path: Path, text: str) -> None:
    seen = read_own(path, path.parent)
    if seen is None:
        write_own(path, text.encode())
    else:
        replace_own(seen, text.encode(), path.parent)


REPLACE: dict[str, Writer] = {
    "any": lambda path, text: replace_file(path, text.encode()),
    "policy": lambda path, text: write_file(path, text, replace=True),
    "trust list": _trust,
    "end of a ledger": _head,
    "client": _client,
}
CREATE: dict[str, Writer] = {
    "any": lambda path, _: create_file(path, b"whole"),
    "policy": lambda path, _: write_file(path, "whole", replace=False),
    "key": lambda path, _: create_key(str(path), KEY),
}
WRITERS = [(how, name) for how, writers in (("replace", REPLACE), ("create", CREATE)) for name in writers]


@pytest.fixture(params=WRITERS, ids=" a file: ".join)
def written(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Writer, Path]:
    """A writer, and its file, which has an old text if it is one that is replaced."""
    monkeypatch.setenv("XDG_STATE_HOME", "")
    how, name = request.param
    (folder := tmp_path / "licet").mkdir(mode=0o700)
    path = folder / ("trust" if name == "trust list" else "file")
    write = {"replace": REPLACE, "create": CREATE}[how][name]
    if how == "replace":
        write(path, "1")
    return write, path


def _text(path: Path) -> bytes | None:
    return path.read_bytes() if path.exists() else None


STEPS = ("open", "write", "fsync", "replace", "link", "unlink")


def _until(step: int, write: Writer, path: Path, ends: Callable[[], object]) -> int:
    """Write, in a process of its own that comes to an end before one of its steps. Returns how it ended."""
    child = os.fork()
    if not child:
        left = iter(range(step))
        for name in STEPS:
            real = getattr(os, name)

            def counted(*given: Any, real: Callable[..., Any] = real, **named: Any) -> Any:
                if next(left, None) is None:
                    ends()
                return real(*given, **named)

            setattr(os, name, counted)
        try:
            write(path, "2")
        except BaseException:
            os._exit(1)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def _full() -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")
def test_a_crash_at_any_step_leaves_the_old_text_or_the_new_one(written: tuple[Writer, Path]) -> None:
    write, path = written
    seen = [_text(path)]
    for step in range(100):
        ended = _until(step, write, path, lambda: os._exit(9))
        if (text := _text(path)) != seen[-1]:
            seen.append(text)
        if not ended:
            break
        assert ended == 9
        if not seen[0]:
            path.unlink(missing_ok=True)
    assert step >= 4
    assert len(set(seen)) == 2


def test_the_text_is_on_the_disk_before_it_has_the_name_and_the_name_at_the_end(
    written: tuple[Writer, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    write, path = written
    steps: list[str] = []
    for name in ("fsync", "replace", "link"):
        real = getattr(os, name)

        def noted(first: Any, *more: Any, name: str = name, real: Callable[..., Any] = real) -> Any:
            folder = name == "fsync" and stat.S_ISDIR(os.fstat(first).st_mode)
            if name == "fsync" or os.fspath(more[0]) == os.fspath(path):
                steps.append(f"{name} of the directory" if folder else name)
            return real(first, *more)

        monkeypatch.setattr(os, name, noted)
    write(path, "2")
    assert steps[-3] == "fsync"
    assert steps[-2] in ("replace", "link")
    assert steps[-1] == "fsync of the directory"


def test_a_full_disk_leaves_the_old_text_and_no_draft(
    written: tuple[Writer, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    write, path = written
    before, names = _text(path), os.listdir(path.parent)
    monkeypatch.setattr(os, "fsync", lambda _: _full())
    with pytest.raises(Exception, match="No space left on device"):
        write(path, "2")
    assert _text(path) == before
    assert set(os.listdir(path.parent)) - set(names) <= {"trust.lock", "trusted"}


def test_a_link_is_not_followed(written: tuple[Writer, Path], tmp_path: Path) -> None:
    write, path = written
    before = _text(path)
    (tmp_path / "target").write_bytes(before or b"other")
    path.unlink(missing_ok=True)
    path.symlink_to(tmp_path / "target")
    with suppress(Exception):  # most refuse it, and the others replace it
        write(path, "2")
    assert (tmp_path / "target").read_bytes() == (before or b"other")


def test_a_placeholder_that_a_program_needs_stays(tmp_path: Path) -> None:
    held, path = Placeholders(), tmp_path / "a.yaml"
    assert held.hold([str(path)]) == []
    for write in (create_file, replace_file):
        with pytest.raises(InUse):
            write(path, b"new")
    assert not is_there(path)
    assert path.exists()
    held.release()
    assert os.listdir(tmp_path) == []


def test_a_placeholder_that_was_left_makes_way(tmp_path: Path) -> None:
    for write in (create_file, replace_file):
        path = tmp_path / f"{write.__name__}.yaml"
        path.touch(0o600)
        os.utime(path, ns=(PLACEHOLDER_TIME, PLACEHOLDER_TIME))
        write(path, b"new")
        assert path.read_bytes() == b"new"


@pytest.mark.parametrize("umask", [0o022, 0o077])
def test_a_mode_is_narrowed_by_the_umask_and_kept_from_the_old_file(tmp_path: Path, umask: int) -> None:
    before = os.umask(umask)
    try:
        create_file(tmp_path / "a", b"", 0o644)
        replace_file(tmp_path / "b", b"", 0o666, keep_mode=True)
        modes = [stat.S_IMODE((tmp_path / name).stat().st_mode) for name in "ab"]
        assert modes == [0o644 & ~umask, 0o666 & ~umask]
        (tmp_path / "b").chmod(0o664)
        replace_file(tmp_path / "b", b"", keep_mode=True)
        assert stat.S_IMODE((tmp_path / "b").stat().st_mode) == 0o664
        replace_file(tmp_path / "b", b"")
        assert stat.S_IMODE((tmp_path / "b").stat().st_mode) == 0o600
    finally:
        os.umask(before)


@pytest.mark.parametrize("links", [True, False], ids=["links", "no links"])
def test_what_is_there_is_never_created_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, links: bool) -> None:
    if not links:  # as on FAT
        monkeypatch.setattr(os, "link", lambda *_: os.rmdir("/proc/self"))
    (tmp_path / "dangling").symlink_to("absent")
    (tmp_path / "there").write_bytes(b"old")
    for name in ("dangling", "there"):
        with pytest.raises(FileExistsError):
            create_file(tmp_path / name, b"new")
    create_file(tmp_path / "new", b"new")
    assert (tmp_path / "new").read_bytes() == b"new"
    assert (tmp_path / "there").read_bytes() == b"old"
    assert sorted(os.listdir(tmp_path)) == ["dangling", "new", "there"]


def test_a_line_is_appended_as_a_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fd, real = open_new(tmp_path / "lines"), os.write
    append(fd, b"one\n")
    with monkeypatch.context() as short:
        short.setattr(os, "write", lambda number, data: real(number, data[:2]) if len(data) > 2 else _full())
        with pytest.raises(OSError, match="No space left"):
            append(fd, b"two\n")
    append(fd, b"three\n")
    os.close(fd)
    assert (tmp_path / "lines").read_bytes() == b"one\nthree\n"
    assert stat.S_IMODE((tmp_path / "lines").stat().st_mode) == 0o600


def test_what_is_made_during_a_run_is_as_old_as_any_placeholder() -> None:
    assert cover_watch.PLACEHOLDER_TIME == PLACEHOLDER_TIME
