"""The package store: what is put there stays as it was, and a change is noticed at the next start."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from licet.packages.package_store import Files, PackageError, building, kept, place, put

from .made import write

INTEGRITY = {"any": {"demo@1.0.0": "sha512-x"}}

DIE = """
import os, sys
from pathlib import Path
from licet.packages.package_store import building
with building(Path(sys.argv[1]), "npm", "demo") as new:
    (new / "half").write_text("")
    os._exit(1)
"""
PUT = """
import sys
from pathlib import Path
from licet.packages.package_store import Files, building, place, put
store, integrity = Path(sys.argv[1]), {"any": {"demo@1.0.0": "sha512-x"}}
for _ in range(10):
    with building(store, "npm", "demo") as new:
        (new / "index.js").write_text("hello")
        target = place(store, "npm", "demo", "1.0.0", "linux-x64", integrity)
        put(new, store, target, Files(platform="linux-x64", integrity=integrity, programs={}))
"""


def listing() -> Files:
    return Files(platform="linux-x64", integrity=INTEGRITY, programs={"demo": ("node", "lib/index.js")})


def stored(store: Path, text: str = "hello") -> Path:
    """Put a small package: two files, one of them in a directory, and a link."""
    target = place(store, "npm", "demo", "1.0.0", "linux-x64", INTEGRITY)
    with building(store, "npm", "demo") as new:
        write(new, {"lib/index.js": text, "read.me": "read"})
        os.symlink("index.js", new / "lib" / "main.js")
        put(new, store, target, listing())
    return target


def make_writable(target: Path) -> None:
    for folder, _, names in os.walk(target):
        os.chmod(folder, 0o755)
        for name in names:
            if not os.path.islink(os.path.join(folder, name)):
                os.chmod(os.path.join(folder, name), 0o644)


def test_a_package_is_kept_read_only(tmp_path: Path) -> None:
    target = stored(tmp_path)
    assert kept(tmp_path, target, INTEGRITY, verify=True) is not None
    modes = [path.lstat().st_mode & 0o222 for path in (target, *target.rglob("*")) if not path.is_symlink()]
    assert len(modes) == 5
    assert set(modes) == {0}


def test_nothing_is_kept_where_nothing_was_put(tmp_path: Path) -> None:
    assert kept(tmp_path, place(tmp_path, "npm", "demo", "1.0.0", "linux-x64", INTEGRITY), INTEGRITY) is None


SCRIPT, LINK = "lib/index.js", "lib/main.js"


def rewrite_and_set_the_time_back(target: Path) -> None:
    before = (target / SCRIPT).stat()
    (target / SCRIPT).write_text("hullo")
    os.utime(target / SCRIPT, ns=(before.st_atime_ns, before.st_mtime_ns))


def turn_a_link(target: Path) -> None:
    (target / LINK).unlink()
    os.symlink("/srv/elsewhere.js", target / LINK)


def replace_a_file_by_a_link(target: Path) -> None:
    (target / SCRIPT).rename(target.parent / "moved.js")
    os.symlink(target.parent / "moved.js", target / SCRIPT)


CHANGES: dict[str, tuple[Callable[[Path], object], str]] = {
    "rewrite": (lambda target: (target / SCRIPT).write_text("hullo"), "`lib/index.js` is different"),
    "rewrite and set the time back": (rewrite_and_set_the_time_back, "`lib/index.js` is different"),
    "add": (lambda target: (target / "lib/sitecustomize.py").touch(), "`lib/sitecustomize.py` is new"),
    "remove": (lambda target: (target / "read.me").unlink(), "`read.me` is missing"),
    "turn a link": (turn_a_link, "`lib/main.js` is different"),
    "replace a file by a link": (replace_a_file_by_a_link, "`lib/index.js` is different"),
    "remove the list": (lambda target: (target / "files.json").unlink(), "files.json is missing"),
    "break the list": (lambda target: (target / "files.json").write_text("{}"), "files.json cannot be read"),
}


@pytest.mark.parametrize(("change", "noticed"), CHANGES.values(), ids=CHANGES)
def test_a_change_is_noticed_and_mended(tmp_path: Path, change: Callable[[Path], object], noticed: str) -> None:
    target = stored(tmp_path)
    make_writable(target)
    assert kept(tmp_path, target, INTEGRITY) is not None  # other modes and times, but the same content
    change(target)
    with pytest.raises(PackageError) as refusal:
        kept(tmp_path, target, INTEGRITY)
    assert noticed in str(refusal.value)
    assert "`licet lock`" in str(refusal.value)
    assert stored(tmp_path) == target
    assert kept(tmp_path, target, INTEGRITY, verify=True) is not None
    assert [path.name for path in target.parent.iterdir() if path.name.startswith(".new-")] == []


def test_the_list_of_another_package_is_refused(tmp_path: Path) -> None:
    target = stored(tmp_path)
    with pytest.raises(PackageError, match="another integrity"):
        kept(tmp_path, target, {"any": {"demo@1.0.0": "sha512-y"}})


@pytest.mark.parametrize("above", ["", "..", "../.."])
def test_a_package_that_others_may_change_is_refused(tmp_path: Path, above: str) -> None:
    target = stored(tmp_path)
    os.chmod(target / above, 0o777)
    with pytest.raises(PackageError, match="another user may change"):
        kept(tmp_path, target, INTEGRITY)


def test_a_package_that_is_there_and_unchanged_stays(tmp_path: Path) -> None:
    before = stored(tmp_path).stat().st_ino
    assert stored(tmp_path, "something else").stat().st_ino == before


def test_a_build_that_fails_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(IsADirectoryError), building(tmp_path, "npm", "demo") as new:
        new.write_text("a directory is no file")
    assert [path.name for path in (tmp_path / "npm" / "demo").iterdir()] == [".lock"]


def test_a_build_that_died_is_removed_by_the_next(tmp_path: Path) -> None:
    died = subprocess.run([sys.executable, "-c", DIE, str(tmp_path)], check=False)
    assert died.returncode == 1
    parent = tmp_path / "npm" / "demo"
    assert len(list(parent.glob(".new-*/half"))) == 1
    with building(tmp_path, "npm", "demo") as first, building(tmp_path, "npm", "demo") as second:
        assert set(parent.glob(".new-*")) == {first, second}  # the dead one is gone; the first was not taken for dead


def test_several_processes_may_put_the_same_package(tmp_path: Path) -> None:
    processes = [subprocess.Popen([sys.executable, "-c", PUT, str(tmp_path)]) for _ in range(4)]
    assert [process.wait() for process in processes] == [0] * 4
    target = place(tmp_path, "npm", "demo", "1.0.0", "linux-x64", INTEGRITY)
    assert sorted(path.name for path in target.parent.iterdir()) == [".lock", target.name]
    assert kept(tmp_path, target, INTEGRITY, verify=True) is not None


@pytest.mark.parametrize(
    ("name", "version"),
    [("../x", "1.0"), ("/srv/x", "1.0"), ("a/b", "1.0"), ("@a/../b", "1.0"), ("x", "../1.0"), ("x", ""), ("", "1.0")],
)
def test_a_name_from_a_lock_that_leads_elsewhere_is_refused(tmp_path: Path, name: str, version: str) -> None:
    with pytest.raises(PackageError, match="is no package"):
        place(tmp_path, "npm", name, version, "linux-x64", INTEGRITY)


def test_the_place_depends_on_everything_that_is_installed(tmp_path: Path) -> None:
    other = {"any": {**INTEGRITY["any"], "more@1.0.0": "sha512-y"}}
    places = {place(tmp_path, "npm", "demo", "1.0.0", "linux-x64", one) for one in (INTEGRITY, other)}
    places |= {place(tmp_path, "npm", "demo", "1.0.0", "linux-arm64", INTEGRITY)}
    assert len(places) == 3
