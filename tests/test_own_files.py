"""Files whose names come from outside: whatever a name leads to, reading it ends and takes bounded memory."""

import errno
import os
import socket
from pathlib import Path

import pytest

from licet.own_files import FileTooLarge, NotRegular, open_regular, read_most, read_regular, size_text


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
