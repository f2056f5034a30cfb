"""Archives of npm: what is unpacked of them, where, and how much."""

import gzip
import io
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from licet.packages.archives import Bounds, unpack_tarball
from licet.packages.clients import PackageError


def member(name: str, kind: bytes = tarfile.REGTYPE, link: str = "", mode: int = 0o644) -> tarfile.TarInfo:
    made = tarfile.TarInfo(name)
    made.type, made.linkname, made.mode = kind, link, mode
    return made


def packed(path: Path, *members: tuple[tarfile.TarInfo, bytes]) -> Path:
    with tarfile.open(path, "w:gz", format=tarfile.PAX_FORMAT) as archive:
        for one, data in members:
            one.size = len(data)
            archive.addfile(one, io.BytesIO(data))
    return path


def unpacked(tmp_path: Path, tarball: Path) -> dict[str, bytes]:
    unpack_tarball(tarball, tmp_path / "in" / "demo", "demo@1.0.0", Bounds())
    return {str(path.relative_to(tmp_path)): path.read_bytes() for path in tmp_path.glob("in/**/*") if path.is_file()}


def refused(tmp_path: Path, tarball: Path) -> str:
    before = {path for path in tmp_path.rglob("*") if not path.is_relative_to(tmp_path / "in")}
    with pytest.raises(PackageError) as refusal:
        unpacked(tmp_path, tarball)
    assert {path for path in tmp_path.rglob("*") if not path.is_relative_to(tmp_path / "in")} == before
    return str(refusal.value)


def test_files_are_unpacked_without_the_first_directory(tmp_path: Path) -> None:
    long = "/".join(["directory"] * 30)
    tarball = packed(
        tmp_path / "x.tgz",
        (member("package", tarfile.DIRTYPE), b""),
        (member("package/index.js", mode=0o755), b"1"),
        (member(f"package/{long}/ü.js"), b"x" * 512),
        (member("other/lib/a.js"), b"3"),
        (member("alone"), b"dropped, as npm does"),
    )
    found = {"in/demo/index.js": b"1", f"in/demo/{long}/ü.js": b"x" * 512, "in/demo/lib/a.js": b"3"}
    assert unpacked(tmp_path, tarball) == found
    assert (tmp_path / "in/demo/index.js").stat().st_mode & 0o111
    assert not (tmp_path / "in/demo/lib/a.js").stat().st_mode & 0o111


def test_links_and_devices_are_left_out_and_nothing_is_written_through_them(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret").write_text("secret")
    tarball = packed(
        tmp_path / "x.tgz",
        (member("package/to", tarfile.SYMTYPE, str(outside)), b""),
        (member("package/to/planted"), b"planted"),
        (member("package/hard", tarfile.LNKTYPE, str(outside / "secret")), b""),
        (member("package/fifo", tarfile.FIFOTYPE), b""),
        (member("package/null", tarfile.CHRTYPE), b""),
    )
    assert unpacked(tmp_path, tarball) == {"in/demo/to/planted": b"planted"}
    assert [path.name for path in outside.iterdir()] == ["secret"]


NAMES = {
    "package/../../planted": "leads out",
    "../planted": "leads out",
    "/planted": "leads out",
    "package/..\\planted": "leads out",
    "package//planted": "plain path",
    "package/./planted": "plain path",
    "./package/planted": "plain path",
    "package/plan\nted": "control character",
    f"package/{'a' * 256}": "too long",
}


@pytest.mark.parametrize(("name", "reason"), NAMES.items())
def test_a_name_that_is_no_plain_path_is_refused(tmp_path: Path, name: str, reason: str) -> None:
    assert reason in refused(tmp_path, packed(tmp_path / "x.tgz", (member(name), b"")))


def test_a_name_that_is_there_twice_is_refused(tmp_path: Path) -> None:
    tarball = packed(tmp_path / "x.tgz", (member("package/a"), b"1"), (member("package/a"), b"2"))
    assert "exists" in refused(tmp_path, tarball)


def of_zeros(path: Path) -> None:
    zeros = bytes(10 << 20)
    packed(path, *((member(f"package/{number}"), zeros) for number in range(8)))


def of_a_header(path: Path) -> None:
    """Python reads the whole of such a header into memory."""
    header = member("package/x", tarfile.XHDTYPE)
    header.size = 200 << 20
    with gzip.open(path, "wb", compresslevel=1) as file:
        file.write(header.tobuf())
        for _ in range(200):
            file.write(bytes(1 << 20))


def of_headers(path: Path) -> None:
    one = member("package/x", tarfile.XHDTYPE).tobuf()
    with gzip.open(path, "wb") as file:
        file.write(one * 5000)


def of_holes(path: Path) -> None:
    """A sparse file: 10 GB that are not in the archive."""
    sparse = member("package/x")
    sparse.pax_headers = {"GNU.sparse.size": str(10 << 30), "GNU.sparse.numblocks": "0"}
    packed(path, (sparse, b""))


def cut(path: Path) -> None:
    packed(path, (member("package/x"), bytes(1 << 16)))
    path.write_bytes(path.read_bytes()[:-40])


def not_compressed(path: Path) -> None:
    with tarfile.open(path, "w") as archive:
        archive.addfile(member("package/x"), io.BytesIO())


@pytest.mark.parametrize("make", [of_zeros, of_a_header, of_headers, of_holes, cut, not_compressed])
def test_an_archive_that_is_no_ordinary_one_is_refused(tmp_path: Path, make: Callable[[Path], None]) -> None:
    make(tmp_path / "x.tgz")
    assert "demo@1.0.0 is" in refused(tmp_path, tmp_path / "x.tgz")
