"""How the component of the Python runner is built: what its name depends on, and what a failure says."""

import shutil
from pathlib import Path

import pytest

from effort import LONG
from licet.wasm import python
from licet.wasm.python.build import BuildFailed, _version, build, inputs_digest

SOURCE = Path(python.__file__).parent
FILES = sorted(path.relative_to(SOURCE).as_posix() for path in (SOURCE / "guest").glob("*.py")) + ["runner.wit"]


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    return Path(shutil.copytree(SOURCE, tmp_path / "copy"))


def test_the_digest_is_the_same_for_the_same_inputs(copy: Path) -> None:
    assert inputs_digest(copy) == inputs_digest() == inputs_digest()
    assert len(inputs_digest()) == 64


@pytest.mark.parametrize("name", FILES)
def test_the_digest_changes_with_each_file_of_the_guest(copy: Path, name: str) -> None:
    with (copy / name).open("a") as file:
        file.write("\n")
    assert inputs_digest(copy) != inputs_digest()


def test_a_missing_package_names_its_extra() -> None:
    with pytest.raises(BuildFailed, match=r"no-such-package is not installed: pip install 'licet\[wasm-build\]'"):
        _version("no-such-package", "wasm-build")


def test_a_target_that_cannot_be_written_is_an_error_of_the_build(tmp_path: Path) -> None:
    pytest.importorskip("componentize_py")
    (tmp_path / "file").write_text("")
    with pytest.raises(BuildFailed, match="could not be stored"):
        build(tmp_path / "file" / "runner.wasm")


@pytest.mark.skipif(not LONG, reason="takes some seconds: LICET_LONG=1")
def test_a_guest_that_cannot_be_imported_leaves_no_file_and_says_why(copy: Path, tmp_path: Path) -> None:
    pytest.importorskip("componentize_py")
    (copy / "guest" / "modules.py").write_text("MODULES = ('no_such_module',)\n")
    seen: list[tuple[str, float]] = []
    with pytest.raises(BuildFailed, match="no_such_module"):
        build(tmp_path / "out" / "runner.wasm", lambda phase, part: seen.append((phase, part)), copy)
    assert [*(tmp_path / "out").iterdir()] == []
    assert seen[0] == ("preparing", 0.0)
    assert [part for _, part in seen] == sorted(part for _, part in seen)
