"""The Python of `licet.tools.python` is built once, kept, and checked at each use. A quick builder stands in here."""

import errno
import importlib.metadata
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from effort import LONG
from licet.guard.execution import SandboxUnavailable
from licet.wasm.python import build
from licet.wasm.python.build import BuildFailed, Report, inputs_digest, kept_runner, runner


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The directory in which the component is kept, of this test alone."""
    pytest.importorskip("wasmtime")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    return tmp_path / "licet" / "wasm" / "python"


class Builds:
    """A builder that counts its builds. As with the real one, their bytes differ."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self, target: Path, report: Report) -> None:
        self.count += 1
        report("building", 0.5)
        target.write_bytes(b"\0asm build %d" % self.count)


def names(place: Path) -> list[str]:
    return sorted(path.name for path in place.iterdir())


def test_it_is_built_once_and_named_by_what_it_was_built_from(place: Path) -> None:
    builds, said = Builds(), list[str]()
    assert kept_runner() is None
    first = runner(lambda phase, part: said.append(phase), builds)
    assert first.file == str(place / f"{inputs_digest()}.wasm")
    assert (first.inputs, first.size) == (inputs_digest(), 12)
    assert (first.module.file, first.module.sha256) == (first.file, first.sha256)
    assert said == ["building"]
    assert (runner(builder=builds), kept_runner(), builds.count) == (first, first, 1)
    assert names(place) == sorted(f"{inputs_digest()}.{ending}" for ending in ("json", "lock", "wasm"))


def test_it_is_closed_to_others(place: Path) -> None:
    made = Path(runner(builder=Builds()).file)
    assert place.stat().st_mode & 0o777 == 0o700
    assert made.stat().st_mode & 0o777 == 0o400


def _swap(file: Path) -> None:
    file.chmod(0o600)
    file.write_bytes(b"\0asm other!!")
    file.chmod(0o400)


def _link(file: Path) -> None:
    other = file.with_name("elsewhere")
    file.rename(other)
    file.symlink_to(other)


def _garble(file: Path) -> None:
    file.with_suffix(".json").write_text("{")


def _another_format(file: Path) -> None:
    note = file.with_suffix(".json")
    note.write_text(note.read_text().replace('"format":1', '"format":99'))


def _cut(file: Path) -> None:
    mode = file.stat().st_mode
    file.chmod(0o600)  # only root may write it as it is
    os.truncate(file, 3)
    file.chmod(mode)


@pytest.mark.who
@pytest.mark.parametrize(
    "damage",
    [
        _swap,
        _link,
        _garble,
        _another_format,
        lambda file: file.chmod(0o666),
        lambda file: os.link(file, file.with_name("second")),
        _cut,
        lambda file: file.unlink(),
        lambda file: file.with_suffix(".json").unlink(),
    ],
    ids=["swapped", "link", "note", "format", "writable", "linked", "cut", "gone", "no note"],
)
def test_what_is_not_as_it_was_made_is_built_again(damage: Callable[[Path], None]) -> None:
    builds = Builds()
    damage(Path(runner(builder=builds).file))
    assert kept_runner() is None
    again = runner(builder=builds)
    assert builds.count == 2
    assert kept_runner() == again
    assert Path(again.file).read_bytes() == b"\0asm build 2"


def _fails(target: Path, report: Report) -> None:
    target.write_bytes(b"half")
    raise BuildFailed("componentize-py ended with 1: no such world")


def _fills_the_disk(target: Path, report: Report) -> None:
    target.write_bytes(b"half")
    raise OSError(errno.ENOSPC, "No space left on device")


def _makes_nothing(target: Path, report: Report) -> None:
    pass


def _is_interrupted(target: Path, report: Report) -> None:
    target.write_bytes(b"half")
    raise KeyboardInterrupt("stopped")


@pytest.mark.parametrize(
    ("builder", "error", "said"),
    [
        (_fails, BuildFailed, "componentize-py ended with 1: no such world"),
        (_fills_the_disk, BuildFailed, "No space left on device"),
        (_makes_nothing, BuildFailed, "No such file"),
        (_is_interrupted, KeyboardInterrupt, "stopped"),
    ],
)
def test_a_build_that_fails_says_what_failed_and_leaves_nothing(
    place: Path, builder: build.Builder, error: type[BaseException], said: str
) -> None:
    with pytest.raises(error, match=said):
        runner(builder=builder)
    assert names(place) == [f"{inputs_digest()}.lock"]
    assert runner(builder=Builds()).size == 12


KILLED = """
import os, signal
from licet.wasm.python.build import runner
def build(target, report):
    target.write_bytes(b"half")
    os.kill(os.getpid(), signal.SIGKILL)
runner(builder=build)
"""


def test_what_a_killed_build_left_is_removed_by_the_next(place: Path) -> None:
    subprocess.run([sys.executable, "-c", KILLED], check=False)
    assert [name for name in names(place) if name.startswith(".new-")]
    runner(builder=Builds())
    assert [name for name in names(place) if name.startswith(".new-")] == []


def test_two_at_once_build_once_and_the_second_is_told_that_it_waits() -> None:
    begun, waits, end = threading.Event(), threading.Event(), threading.Event()
    builds, found, said = Builds(), list[build.Runner](), list[str]()

    def slow(target: Path, report: Report) -> None:
        begun.set()
        end.wait()
        builds(target, report)

    def tell(phase: str, part: float) -> None:
        said.append(phase)
        waits.set()

    first = threading.Thread(target=lambda: found.append(runner(builder=slow)))
    second = threading.Thread(target=lambda: found.append(runner(tell, builds)))
    first.start()
    begun.wait()
    second.start()
    assert waits.wait(60)
    end.set()
    first.join()
    second.join()
    assert (builds.count, found[0]) == (1, found[1])
    assert said == ["waiting for another process that builds it"]


def test_without_the_builder_the_error_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    real = importlib.metadata.version

    def version(name: str) -> str:
        if name == "componentize-py":
            raise importlib.metadata.PackageNotFoundError(name)
        return real(name)

    monkeypatch.setattr(importlib.metadata, "version", version)
    with pytest.raises(BuildFailed, match=r"pip install 'licet\[wasm-build\]', then run `licet wasm build`"):
        runner()
    runner(builder=Builds())
    assert runner().size == 12  # what is built can be used


def test_without_a_home_the_error_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("XDG_DATA_HOME")
    monkeypatch.setenv("HOME", "")
    with pytest.raises(SandboxUnavailable, match="set HOME or XDG_DATA_HOME"):
        runner(builder=Builds())


def test_a_directory_that_is_a_link_is_not_used(place: Path, tmp_path: Path) -> None:
    place.parent.mkdir(parents=True)
    (tmp_path / "elsewhere").mkdir()
    place.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(SandboxUnavailable, match="not a directory of this user"):
        runner(builder=Builds())


@pytest.mark.skipif(not LONG, reason="a real build takes 15 seconds")
def test_the_real_builder_makes_a_component_that_is_kept(place: Path) -> None:
    pytest.importorskip("componentize_py")
    made = runner()
    assert Path(made.file).read_bytes()[:8] == b"\0asm\x0d\0\x01\0"
    assert kept_runner() == made
    assert len(names(place)) == 3
