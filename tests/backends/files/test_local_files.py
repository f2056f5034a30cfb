"""Files of this machine: links, special files, hard links and failing disks, by openat2 and by walking."""

import os
import random
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from descriptors import left_open, open_files
from licet.backends.files import local
from licet.backends.files.local import LocalFiles
from licet.core.algebra.set import CapabilitySet
from licet.guard.held_paths import HeldPaths
from licet.guard.ports import Escaped, Stat


@pytest.fixture(params=[True, False], ids=["openat2", "walk"])
def files(request: pytest.FixtureRequest) -> Iterator[LocalFiles]:
    made = LocalFiles(openat2=request.param)
    before = open_files()
    yield made
    assert left_open(before) == set()


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A granted directory next to one that is not granted, at a path without links."""
    place = tmp_path.resolve()
    (place / "out").mkdir()
    (place / "out" / "secret").write_bytes(b"CANARY")
    inside = place / "root"
    (inside / "dir" / "deep").mkdir(parents=True)
    (inside / "private").mkdir()
    (inside / "ok").write_bytes(b"OK")
    (inside / "dir" / "ok").write_bytes(b"OK")
    (inside / "private" / "key").write_bytes(b"CANARY")
    return inside


def held(*roots: Path | str, deny: tuple[Path | str, ...] = ()) -> HeldPaths:
    return HeldPaths(CapabilitySet([f"fs:*:{root}" for root in roots], [f"fs:*:{path}" for path in deny]))


def read(files: LocalFiles, path: Path, grant: HeldPaths) -> bytes:
    with files.open(str(path), "rb", grant) as file:
        return file.read()


INSIDE = [
    ("link", "ok", "link"),
    ("link", "dir", "link/ok"),
    ("dir/link", "../ok", "dir/link"),
    ("dir/link", "../dir/./deep/../ok", "dir/link"),
    ("link", "dir/deep/..", "link/ok"),
    ("link", "dir/", "link/ok"),
    ("link", "dir/deep/../", "link/ok"),
    ("dir/up", "..", "dir/up/dir/up/ok"),
    ("link", "/".join(["dir", ".."] * 50) + "/ok", "link"),
]


@pytest.mark.parametrize(("link", "to", "path"), INSIDE)
def test_links_that_stay_inside_are_followed(files: LocalFiles, root: Path, link: str, to: str, path: str) -> None:
    (root / link).symlink_to(to)
    assert read(files, root / path, held(root)) == b"OK"
    assert files.stat(str(root / path), held(root)).kind == "file"


def test_a_link_to_a_file_that_ends_in_a_slash_leads_nowhere(files: LocalFiles, root: Path) -> None:
    (root / "link").symlink_to("ok/")
    (root / "other").symlink_to("dir/")
    with pytest.raises(NotADirectoryError):
        read(files, root / "link", held(root))
    assert files.list(str(root / "other"), held(root, deny=(root / "dir" / "deep",))) == ["ok"]


OUTSIDE = [
    ("link", "../out/secret", "link"),
    ("link", "../out", "link/secret"),
    ("link", "../root/ok", "link"),
    ("dir/link", "../../out/secret", "dir/link"),
    ("link", "dir/../../out/secret", "link"),
    ("link", "/etc/passwd", "link"),
    ("link", "{root}/ok", "link"),
    ("link", "/proc/self/root", "link/etc/passwd"),
    ("link", "link", "link"),
    ("link", "private/key", "link"),
    ("link", "private", "link/key"),
    ("dir/link", "../private", "dir/link/key"),
]


@pytest.mark.parametrize(("link", "to", "path"), OUTSIDE)
def test_links_that_lead_outside_or_to_what_is_denied_are_refused(
    files: LocalFiles, root: Path, link: str, to: str, path: str
) -> None:
    (root / link).symlink_to(to.format(root=root))
    grant = held(root, deny=(root / "private",))
    with pytest.raises(Escaped):
        read(files, root / path, grant)
    with pytest.raises(Escaped):
        files.stat(str(root / path), grant)
    with pytest.raises(Escaped):
        files.open(str(root / path), "wb", grant)
    with pytest.raises(Escaped):
        files.write(str(root / path), b"x", grant)
    assert (root.parent / "out" / "secret").read_bytes() == b"CANARY"
    assert (root / "private" / "key").read_bytes() == b"CANARY"


def test_a_directory_behind_a_link_is_listed_and_changed(files: LocalFiles, root: Path) -> None:
    (root / "link").symlink_to("dir")
    grant = held(root, deny=(root / "dir" / "deep",))
    assert files.list(str(root / "link"), grant) == ["ok"]
    files.write(str(root / "link" / "new"), b"new", grant)
    files.mkdir(str(root / "link" / "more" / "x"), grant)
    files.mkdir(str(root / "link"), grant)
    files.rename(str(root / "link" / "new"), str(root / "moved"), grant)
    files.delete(str(root / "link" / "ok"), grant)
    assert (root / "moved").read_bytes() == b"new"
    assert sorted(path.name for path in (root / "dir").iterdir()) == ["deep", "more"]
    for act in (files.delete, lambda path, grant: files.rename(path, str(root / "x"), grant)):
        with pytest.raises(Escaped):
            act(str(root / "link" / "deep"), grant)


@pytest.mark.parametrize("to", ["ok", "none", "../out/secret", "../out/new"])
def test_a_link_as_the_last_component_is_never_followed(files: LocalFiles, root: Path, to: str) -> None:
    (root / "link").symlink_to(to)
    link, grant = str(root / "link"), held(root)
    for mode in ("wb", "ab", "xb", "r+b"):
        with pytest.raises((Escaped, FileExistsError)):
            files.open(link, mode, grant)
    with pytest.raises(Escaped):
        files.write(link, b"x", grant)
    files.rename(link, f"{link}2", grant)
    assert os.readlink(f"{link}2") == to
    files.delete(f"{link}2", grant)
    assert sorted(path.name for path in root.iterdir()) == ["dir", "ok", "private"]
    assert (root / "ok").read_bytes() == b"OK"
    assert sorted(path.name for path in (root.parent / "out").iterdir()) == ["secret"]


def test_directories_are_not_made_through_links_that_lead_outside(files: LocalFiles, root: Path) -> None:
    (root / "link").symlink_to("../out")
    for path in ("link", "link/x", "link/x/y"):
        with pytest.raises(Escaped):
            files.mkdir(str(root / path), held(root))
    (root / "dangling").symlink_to("none")
    with pytest.raises(FileExistsError):
        files.mkdir(str(root / "dangling"), held(root))
    assert [path.name for path in (root.parent / "out").iterdir()] == ["secret"]


def test_to_read_and_write_through_a_link_both_must_be_held_where_it_leads(files: LocalFiles, root: Path) -> None:
    (root / "dir" / "link").symlink_to("../private")
    grant = HeldPaths(CapabilitySet([f"fs:read:{root}", f"fs:write:{root / 'dir'}"]))
    assert read(files, root / "dir" / "link" / "key", grant) == b"CANARY"
    with pytest.raises(Escaped):
        files.open(str(root / "dir" / "link" / "key"), "r+b", grant)


def test_the_outermost_rule_is_the_root() -> None:
    grant = HeldPaths(CapabilitySet(["fs:read:/srv", "fs:*:/srv/dir", "fs:read:/srv/dir/deep"]))
    assert grant.root("read", "/srv/dir/deep/x") == "/srv"
    assert grant.root("write", "/srv/dir/deep/x") == "/srv/dir"
    assert HeldPaths(CapabilitySet(["fs:read:*"])).root("read", "/srv") == "/"
    with pytest.raises(Escaped):
        grant.root("delete", "/srv")


def test_an_invalid_path_is_never_held() -> None:
    everything = held("*")
    assert everything.covers("read", "/srv")
    assert not everything.covers("read", "/srv/\0")
    assert not everything.covers("read", "/" + "x" * 5000)


def test_a_name_that_no_rule_can_hold_is_part_of_a_tree(files: LocalFiles, root: Path) -> None:
    (root / "a*b ").write_bytes(b"OK")
    files.rename(str(root / "a*b "), str(root / "c*d "), held(root))
    assert read(files, root / "c*d ", held(root)) == b"OK"


# Roots ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("known", [True, False], ids=["pinned", "found when needed"])
@pytest.mark.parametrize("openat2", [True, False], ids=["openat2", "walk"])
def test_a_root_may_be_written_through_a_link(openat2: bool, known: bool, root: Path) -> None:
    (root.parent / "short").symlink_to("root")
    written = root.parent / "short" / "dir"
    files = LocalFiles(openat2=openat2, roots=[str(written)] if known else None)
    grant = held(written, deny=(written / "deep",))
    assert read(files, written / "ok", grant) == b"OK"
    files.write(str(written / "new"), b"new", grant)
    assert files.list(str(written), grant) == ["new", "ok"]
    (root / "dir" / "link").symlink_to("deep")
    (root / "dir" / "deep" / "key").write_bytes(b"CANARY")
    with pytest.raises(Escaped):
        read(files, written / "link" / "key", grant)


@pytest.mark.parametrize("known", [True, False], ids=["pinned", "found when needed"])
@pytest.mark.parametrize("openat2", [True, False], ids=["openat2", "walk"])
def test_a_root_that_becomes_a_link_does_not_redirect(openat2: bool, known: bool, root: Path) -> None:
    inner, grant = root / "dir", held(root / "dir")
    files = LocalFiles(openat2=openat2, roots=[str(inner)] if known else None)
    (inner / "link").symlink_to("ok")
    assert read(files, inner / "link", grant) == b"OK"
    inner.rename(root / "old")
    inner.symlink_to(root.parent / "out")
    for path in ("secret", "link"):
        with pytest.raises(Escaped):
            read(files, inner / path, grant)
    with pytest.raises(Escaped):
        files.write(str(inner / "new"), b"x", grant)
    with pytest.raises(Escaped):
        files.list(str(inner), grant)
    assert [path.name for path in (root.parent / "out").iterdir()] == ["secret"]


def test_where_roots_are_known_others_may_hold_no_links(root: Path) -> None:
    (root.parent / "short").symlink_to("root")
    files = LocalFiles(roots=[])
    with pytest.raises(Escaped):
        read(files, root.parent / "short" / "ok", held(root.parent / "short"))
    assert read(files, root / "ok", held(root)) == b"OK"


def test_a_single_file_is_a_root_too(files: LocalFiles, root: Path) -> None:
    (root.parent / "short").symlink_to("root")
    path = root.parent / "short" / "ok"
    files.write(str(path), b"new", held(path))
    assert read(files, path, held(path)) == b"new"


def test_a_deny_holds_under_the_other_name_of_its_place(files: LocalFiles, root: Path) -> None:
    (root.parent / "short").symlink_to("root")
    grant = held(root, deny=(root.parent / "short" / "private",))
    with pytest.raises(Escaped):
        read(files, root / "private" / "key", grant)
    with pytest.raises(Escaped):
        files.rename(str(root / "private"), str(root / "x"), grant)
    other = held(root.parent / "short", deny=(root / "private",))
    with pytest.raises(Escaped):
        read(files, root.parent / "short" / "private" / "key", other)
    assert read(files, root.parent / "short" / "ok", other) == b"OK"
    inner = held(root.parent / "short", deny=(root / "dir" / "deep",))
    with pytest.raises(Escaped):
        files.rename(str(root.parent / "short" / "dir"), str(root.parent / "short" / "x"), inner)


# Special files -------------------------------------------------------------------------------------------------------


@contextmanager
def open_directory(path: Path) -> Iterator[int]:
    fd = os.open(path, os.O_RDONLY)
    try:
        yield fd
    finally:
        os.close(fd)


def test_special_files_are_refused_without_blocking(files: LocalFiles, root: Path) -> None:
    os.mkfifo(root / "fifo")
    with socket.socket(socket.AF_UNIX) as server, open_directory(root) as fd:
        server.bind(f"/proc/self/fd/{fd}/socket")  # a path of a socket is short
        for name in ("fifo", "socket"):
            path, grant = str(root / name), held(root)
            for mode in ("rb", "wb", "ab", "r+b"):
                with pytest.raises(Escaped):
                    files.open(path, mode, grant)
            with pytest.raises(Escaped):
                files.stat(path, grant)
            with pytest.raises(Escaped):
                files.write(path, b"x", grant)
            with pytest.raises(Escaped):
                files.rename(path, str(root / "x"), grant)


@pytest.mark.parametrize("path", ["/dev/null", "/dev/zero", "/dev/tty", "/dev/ptmx"])
@pytest.mark.parametrize("grant", ["*", "/dev"])
def test_devices_are_refused_even_where_rules_name_them(files: LocalFiles, path: str, grant: str) -> None:
    for mode in ("rb", "wb"):
        with pytest.raises(Escaped):
            files.open(path, mode, held(grant))


def test_a_grant_of_everything_does_not_mean_the_kernel(files: LocalFiles) -> None:
    for path in ("/proc/self/environ", f"/proc/{os.getpid()}/environ", "/proc/version", "/sys/kernel/ostype"):
        with pytest.raises(Escaped):
            files.open(path, "rb", held("*"))
    assert read(files, Path("/proc/version"), held("/proc/version")).startswith(b"Linux")


# Hard links ----------------------------------------------------------------------------------------------------------


def test_a_file_with_two_names_is_read_but_not_written(files: LocalFiles, root: Path) -> None:
    os.link(root.parent / "out" / "secret", root / "hard")
    path, grant = str(root / "hard"), held(root)
    assert read(files, root / "hard", grant) == b"CANARY"
    for mode in ("wb", "ab", "r+b"):
        with pytest.raises(Escaped):
            files.open(path, mode, grant)
    with pytest.raises(Escaped):
        files.write(path, b"x", grant)
    assert (root.parent / "out" / "secret").read_bytes() == b"CANARY"
    files.delete(path, grant)
    assert (root.parent / "out" / "secret").exists()


def test_another_name_of_a_denied_file_is_not_read(files: LocalFiles, root: Path) -> None:
    os.link(root / "private" / "key", root / "hard")
    grant = held(root, deny=(root / "private" / "key",))
    with pytest.raises(Escaped):
        read(files, root / "hard", grant)
    with pytest.raises(Escaped):
        files.stat(str(root / "hard"), grant)


# Writing all or nothing ----------------------------------------------------------------------------------------------


def test_a_replaced_file_keeps_its_mode_and_a_new_one_gets_the_usual(files: LocalFiles, root: Path) -> None:
    (root / "ok").chmod(0o604)
    mask = os.umask(0o027)
    try:
        files.write(str(root / "ok"), b"x", held(root))
        files.write(str(root / "new"), b"x", held(root))
    finally:
        os.umask(mask)
    assert ((root / "ok").stat().st_mode & 0o777, (root / "new").stat().st_mode & 0o777) == (0o604, 0o640)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no full disk here")
def test_a_full_disk_leaves_the_old_content_and_no_rest(
    files: LocalFiles, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    full = os.open("/dev/full", os.O_WRONLY)
    monkeypatch.setattr(local, "_write_all", lambda fd, data: os.write(full, data))
    with pytest.raises(OSError, match="No space left"):
        files.write(str(root / "ok"), b"x", held(root))
    os.close(full)
    assert (root / "ok").read_bytes() == b"OK"
    assert sorted(path.name for path in root.iterdir()) == ["dir", "ok", "private"]


def test_a_reader_of_the_old_file_keeps_it(files: LocalFiles, root: Path) -> None:
    with files.open(str(root / "ok"), "rb", held(root)) as file:
        files.write(str(root / "ok"), b"newer", held(root))
        assert file.read() == b"OK"


# Choosing ------------------------------------------------------------------------------------------------------------


def test_where_openat2_is_missing_paths_are_walked(monkeypatch: pytest.MonkeyPatch, root: Path) -> None:
    from licet.backends.files import resolver

    monkeypatch.setattr(resolver, "_NUMBER", 100_000)
    with pytest.raises(OSError, match="not implemented"):
        LocalFiles(openat2=True)
    assert read(LocalFiles(), root / "ok", held(root)) == b"OK"


@pytest.mark.who
def test_a_directory_that_cannot_be_listed_can_be_walked_through(root: Path) -> None:
    if os.geteuid() == 0:
        pytest.skip("the superuser can list everything")
    (root / "dir").chmod(0o311)
    try:
        for openat2 in (True, False):
            assert read(LocalFiles(openat2=openat2), root / "dir" / "ok", held(root)) == b"OK"
    finally:
        (root / "dir").chmod(0o755)


def test_a_path_with_a_null_is_not_cut(files: LocalFiles, root: Path) -> None:
    with pytest.raises(ValueError, match="null"):
        files.open(f"{root}/ok\0.txt", "rb", held(root))


# Both ways are one ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(60))
@pytest.mark.sampled(9)
def test_both_ways_agree_on_any_tangle_of_links(root: Path, seed: int) -> None:
    """Random directories, files and links: both ways must read, list and refuse the same, and stay inside."""
    chance = random.Random(seed)
    names = ["a", "b", "c"]
    places = [root]
    for _ in range(12):
        path = chance.choice(places) / chance.choice(names)
        if os.path.lexists(path):
            continue
        kind = chance.random()
        if kind < 0.4:
            path.mkdir()
            places.append(path)
        elif kind < 0.55:
            path.write_text(str(path.relative_to(root)))
        else:
            steps = chance.choices([*names, *names, "..", "..", ".", "private", "ok"], k=chance.randint(1, 5))
            path.symlink_to("/".join(steps) + chance.choice(["", "", "/"]))
    grant = held(root, deny=(root / "private",))
    ways = [LocalFiles(openat2=True), LocalFiles(openat2=False)]
    for _ in range(150):
        asked = "/".join([str(root), *chance.choices([*names, "ok", "key"], k=chance.randint(1, 5))])
        answers = []
        for files in ways:
            found: list[object] = []
            for act in (files.stat, files.list, lambda path, grant, way=files: read(way, Path(path), grant)):
                try:
                    found.append(act(asked, grant))
                except (OSError, Escaped) as wrong:
                    found.append(type(wrong).__name__)
            answers.append(found)
        assert answers[0] == answers[1], asked
        assert b"CANARY" not in answers[0]
        assert answers[0][0] == "Escaped" or Path(asked).exists() == isinstance(answers[0][0], Stat), asked


class Asked(HeldPaths):
    """Counts how often a path is checked."""

    count = 0

    def covers(self, action: str, path: str) -> bool:
        self.count += 1
        return super().covers(action, path)

    def root(self, action: str, path: str) -> str:
        self.count += 1
        return super().root(action, path)


@pytest.mark.parametrize("depth", [3, 60])
def test_a_deep_directory_asks_the_grant_once_and_not_for_each_parent(
    files: LocalFiles, root: Path, depth: int
) -> None:
    held, path = Asked(CapabilitySet([f"fs:write:{root}"])), f"{root}{'/b' * depth}"
    files.mkdir(path, held)
    assert os.path.isdir(path)
    assert held.count == 1
