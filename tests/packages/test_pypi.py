"""Packages of PyPI: installed from wheels that a test made, by the real pip, without an index."""

import subprocess
import sys
import sysconfig
import zipfile
from collections.abc import Mapping
from pathlib import Path

import pytest
from msgspec.structs import replace

from licet.packages.clients import has_module
from licet.packages.package_store import file_digest
from licet.packages.pypi import platform_tag
from licet.packages.server_packages import (
    PackageError,
    Resolved,
    install,
    install_missing,
    installed,
    launch_of,
    resolve,
)

from .made import refused, sdist, silent, started, wheel

SAYS = """
import sys, demo_parts
def main():
    print("demo", demo_parts.VALUE, *sys.argv[1:], sys.flags.isolated)
"""


@pytest.fixture(autouse=True)
def wheels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The directory that pip finds wheels in, and nowhere else."""
    directory = tmp_path / "wheels"
    directory.mkdir()
    found_in(directory, monkeypatch)
    return directory


def found_in(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(directory))
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, Resolved]:
    """A package with a dependency, in a store: the wheels, the store, and what was pinned."""
    root = tmp_path_factory.mktemp("demo")
    directory, store = root / "wheels", root / "store"
    wheel(directory, "demo-parts", "2.0", files={"demo_parts.py": "VALUE = 2"})
    wheel(directory, "demo-parts", "3.0", files={"demo_parts.py": "VALUE = 3"})
    scripts = {"demo": "demo:main", "other": "demo:main"}
    files = {"demo.py": SAYS, "broken.py": "def", "demo-1.0.data/scripts/shell": "#!/bin/sh\necho shell\n"}
    wheel(directory, "demo", requires=["demo-parts<3"], files=files, scripts=scripts)
    wheel(directory, "more")
    said: list[str] = []
    with pytest.MonkeyPatch.context() as patch:
        found_in(directory, patch)
        patch.setenv("PIP_USER", "1")  # a configuration that would install elsewhere, build, and leave packages out
        patch.setenv("PIP_NO_BINARY", ":all:")
        patch.setenv("PIP_NO_DEPS", "1")
        resolved = resolve(launch_of(["uvx", "--with", "more", "Demo"]), store, progress=said.append)
    assert said == ["asking pip for demo and more", "installing demo 1.0 and 2 packages that it needs, from wheels"]
    return directory, store, resolved


def test_a_package_is_pinned_and_started(demo: tuple[Path, Path, Resolved]) -> None:
    directory, store, resolved = demo
    pins = {
        "demo==1.0": file_digest(directory / "demo-1.0-py3-none-any.whl"),
        "demo-parts==2.0": file_digest(directory / "demo_parts-2.0-py3-none-any.whl"),
        "more==1.0": file_digest(directory / "more-1.0-py3-none-any.whl"),
    }
    assert resolved == Resolved("pypi", "demo", "1.0", "demo", {platform_tag(): pins})
    assert started(resolved, store, "hello", "-x") == "demo 2 hello -x 1"
    assert started(replace(resolved, program="shell"), store) == "shell"
    assert started(replace(resolved, program="more"), store) == "hello"


def test_a_package_does_not_see_the_packages_of_licet(demo: tuple[Path, Path, Resolved]) -> None:
    _, store, resolved = demo
    how = installed(resolved, store)
    assert how is not None
    assert has_module(how.argv[0], "demo_parts")
    assert not has_module(how.argv[0], "msgspec")
    assert not has_module(how.argv[0], "pip")


def test_what_is_read_is_the_package_and_its_python(demo: tuple[Path, Path, Resolved]) -> None:
    _, store, resolved = demo
    how = installed(resolved, store)
    assert how is not None
    package, python, library = how.readable
    assert Path(package).parent == store / "pypi" / "demo"
    assert Path(python) == Path(sys.executable).resolve()
    assert Path(sysconfig.get_path("stdlib")).resolve().is_relative_to(Path(library).resolve())
    assert not list(Path(package).rglob("*demo*.whl"))


def test_no_file_of_a_package_names_the_directory_it_was_made_in(demo: tuple[Path, Path, Resolved]) -> None:
    _, store, resolved = demo
    how = installed(resolved, store)
    assert how is not None
    package = Path(how.readable[0])
    files = [path for path in package.rglob("*") if path.is_file()]
    assert [path for path in files if b"/.new-" in path.read_bytes()] == []
    assert list(package.rglob("demo.*.pyc"))
    assert str(package).encode() in (package / "environment" / "bin" / "demo").read_bytes()


def test_a_changed_package_is_not_started(demo: tuple[Path, Path, Resolved]) -> None:
    _, store, resolved = demo
    how = installed(resolved, store)
    assert how is not None
    module = next(Path(how.readable[0]).rglob("demo.py"))
    text = module.read_text()
    try:
        module.chmod(0o644)
        module.write_text(text.replace("demo", "evil", 1))
        with pytest.raises(PackageError, match=r"demo\.py` is different"):
            installed(resolved, store)
    finally:
        module.write_text(text)
        module.chmod(0o444)


def test_a_changed_package_is_installed_again_and_an_unchanged_one_is_not(
    demo: tuple[Path, Path, Resolved], monkeypatch: pytest.MonkeyPatch
) -> None:
    directory, store, resolved = demo
    found_in(directory, monkeypatch)
    launch = launch_of(["uvx", "--with", "more", "demo"])
    said: list[str] = []
    how = installed(resolved, store)
    assert how is not None
    assert install_missing(launch, resolved, store, progress=said.append) == resolved
    assert said == []
    assert resolve(launch, store, progress=said.append) == resolved  # as without a lock: versions are chosen again
    assert said == ["asking pip for demo and more", "demo 1.0 is installed already"]
    said.clear()
    package = Path(how.readable[0])
    package.chmod(0o755)
    (package / "new.py").write_text("")
    assert install_missing(launch, resolved, store, progress=said.append) == resolved
    assert "`new.py` is new" in said[0]
    assert installed(resolved, store) == how
    assert not (package / "new.py").exists()


def test_another_integrity_is_another_package(demo: tuple[Path, Path, Resolved]) -> None:
    _, store, resolved = demo
    pins = dict(resolved.integrity[platform_tag()])
    pins["demo-parts==2.0"] = f"sha256:{'0' * 64}"
    assert installed(replace(resolved, integrity={platform_tag(): pins}), store) is None
    assert installed(replace(resolved, integrity={"linux-other-cp311": pins}), store) is None
    assert installed(replace(resolved, version="1.1"), store) is None
    with pytest.raises(PackageError, match="has no program `absent`"):
        installed(replace(resolved, program="absent"), store)


# A lock on another machine --------------------------------------------------------------------------------------------


def test_a_lock_installs_the_same_wheels_elsewhere(
    demo: tuple[Path, Path, Resolved], wheels: Path, tmp_path: Path
) -> None:
    directory, _, resolved = demo
    for path in directory.iterdir():
        (wheels / path.name).write_bytes(path.read_bytes())
    wheel(wheels, "demo-parts", "2.5", files={"demo_parts.py": "VALUE = 2.5"})  # newer, and not in the lock
    launch, store = launch_of(["uvx", "--with", "more", "demo"]), tmp_path / "elsewhere"
    assert install(launch, resolved, store, progress=silent) == resolved
    assert started(resolved, store) == "demo 2 1"
    # The wheel of the same version has other contents now.
    wheel(wheels, "demo-parts", "2.0", files={"demo_parts.py": "VALUE = 'evil'"})
    with pytest.raises(PackageError, match="hash"):
        install(launch, resolved, tmp_path / "third", progress=silent)


def test_a_lock_of_another_platform_gives_the_versions(
    demo: tuple[Path, Path, Resolved], wheels: Path, tmp_path: Path
) -> None:
    directory, _, resolved = demo
    for path in directory.iterdir():
        (wheels / path.name).write_bytes(path.read_bytes())
    wheel(wheels, "demo-parts", "2.5", files={"demo_parts.py": "VALUE = 2.5"})
    wheel(wheels, "demo", "1.1", requires=["demo-parts<3"])
    pins = resolved.integrity[platform_tag()]
    foreign = replace(resolved, integrity={"macos-arm64-cp311": pins})
    launch, store = launch_of(["uvx", "--with", "more", "demo"]), tmp_path / "elsewhere"
    with pytest.raises(
        PackageError, match=r"has no wheels of demo 1\.0 for this platform, .*: run `licet lock --update`"
    ):
        install(launch, foreign, store, progress=silent)
    both = install_missing(launch, foreign, store, progress=silent)
    assert both == replace(resolved, integrity={"macos-arm64-cp311": pins, platform_tag(): pins})


@pytest.mark.parametrize(
    "pins",
    [
        {"demo @ file:///srv/x": f"sha256:{'0' * 64}"},
        {"-r /srv/x": f"sha256:{'0' * 64}"},
        {"demo==1.0": "sha256:0 --index-url=http://host.test"},
        {"demo==1.0\n--pre": f"sha256:{'0' * 64}"},
    ],
    ids=["url", "flag", "hash", "line"],
)
def test_a_lock_cannot_give_pip_other_words(pins: Mapping[str, str], tmp_path: Path) -> None:
    good = {"demo==1.0": f"sha256:{'1' * 64}"}  # otherwise the lock would not be about the command
    resolved = Resolved("pypi", "demo", "1.0", "demo", {platform_tag(): {**good, **pins}})
    with pytest.raises(PackageError, match=r"is no wheel of PyPI|licet\.lock says pypi demo 1\.0 with the files of"):
        install(launch_of(["uvx", "demo"]), resolved, tmp_path, progress=silent)


def test_a_lock_of_another_package_is_refused(tmp_path: Path) -> None:
    with pytest.raises(
        PackageError, match=r"the command says pypi demo, and licet\.lock says pypi other 1\.0: run `licet lock`"
    ):
        install(launch_of(["uvx", "demo"]), Resolved("pypi", "other", "1.0"), tmp_path, progress=silent)


# Refusals -------------------------------------------------------------------------------------------------------------


def test_a_source_distribution_is_built_elsewhere_and_not_here(wheels: Path, tmp_path: Path) -> None:
    evidence = tmp_path / "built"
    sdist(wheels, "demo", evidence)
    wheel(wheels, "front", requires=["demo"])
    text = refused("uvx front", tmp_path / "store")
    assert "front 1.0 needs `demo`, of which the index has no wheel that fits this machine" in text
    assert "building a package runs its code" in text
    assert not evidence.exists()
    # Plain pip builds it to learn its version.
    pip = [sys.executable, "-I", "-m", "pip", "download", "-q", "--dest", str(tmp_path), "front"]
    subprocess.run(pip, check=False, capture_output=True)
    assert evidence.exists()


def test_an_importing_pth_runs_elsewhere_and_is_not_installed_here(wheels: Path, tmp_path: Path) -> None:
    evidence = tmp_path / "ran"
    line = f"import os; open({str(evidence)!r}, 'w').close()"
    path = wheel(wheels, "evil", files={"evil.py": "", "evil.pth": line})
    wheel(wheels, "demo", requires=["evil"])
    assert "evil-1.0-py3-none-any.whl is not installed: `evil.pth` has the line" in refused(
        "uvx demo", tmp_path / "store"
    )
    assert not evidence.exists()
    # Unpacked into an ordinary environment, it runs at the next start of Python.
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(tmp_path / "plain")], check=True)
    python, library = (next((tmp_path / "plain").glob(found)) for found in ("bin/python", "lib/*/site-packages"))
    with zipfile.ZipFile(path) as archive:
        archive.extractall(library)
    subprocess.run([str(python), "-I", "-c", ""], check=True)
    assert evidence.exists()


def test_only_programs_of_the_packages_that_are_named_are_started(wheels: Path, tmp_path: Path) -> None:
    wheel(wheels, "inner")
    wheel(wheels, "demo", requires=["inner"], scripts={"one": "demo:main", "two": "demo:main"})
    text = refused("uvx --from demo inner", tmp_path / "store")
    assert "has no program `inner`: it has `one`, `two`" in text
