"""Commands that are no launchers: files by their hash, and programs of installed distributions by their version."""

import os
import shutil
import subprocess
import sys
import venv
from collections.abc import Mapping
from pathlib import Path

import pytest

from licet.packages.package_store import file_digest
from licet.packages.programs import installed_prefixes, runtime_of
from licet.packages.server_packages import Installed, LaunchError, PackageError, Resolved, installed, launch_of, resolve

from .made import GREET, needs_node, silent, write

HELLO = "print('hello')\n"


def resolved_in(directory: Path, command: list[str]) -> tuple[Resolved, Installed]:
    launch = launch_of(command)
    resolved = resolve(launch, directory / "store", progress=silent, directory=directory)
    how = installed(resolved, directory / "store", launch=launch, directory=directory)
    assert how is not None
    return resolved, how


def output(how: Installed, *words: str) -> str:
    return subprocess.run([*how.argv, *words], capture_output=True, text=True, check=True).stdout.strip()


def environment(root: Path, files: Mapping[str, str], version: str = "1.0") -> Path:
    """A virtual environment with one distribution, `demo`, whose RECORD lists the given files."""
    programs = root / "bin"
    library = root / "lib" / f"python3.{sys.version_info.minor}" / "site-packages"
    info = library / f"demo-{version}.dist-info"
    write(root, {"pyvenv.cfg": f"home = {Path(sys.executable).resolve().parent}\n"})
    programs.mkdir()
    os.symlink(os.path.realpath(sys.executable), programs / "python")
    placed = {name.replace("LIBRARY", str(library.relative_to(root))): text for name, text in files.items()}
    write(root, {name: text.replace("PYTHON", str(programs / "python")) for name, text in placed.items()})
    record = "".join(f"{os.path.relpath(root / name, library)},,\n" for name in placed)
    write(info, {"METADATA": f"Metadata-Version: 2.1\nName: Demo\nVersion: {version}\n", "RECORD": record})
    return root


# Files ----------------------------------------------------------------------------------------------------------------


def test_a_script_is_pinned_by_its_hash(tmp_path: Path) -> None:
    script = tmp_path / "server.py"
    script.write_text(HELLO)
    command = [sys.executable, "-u", "server.py", "--port", "1"]
    resolved, how = resolved_in(tmp_path, command)
    assert resolved == Resolved("file", program="server.py", digest=file_digest(script))
    assert how.argv == (sys.executable, "-P", "-u", str(script))
    assert output(how) == "hello"
    script.write_text(HELLO.replace("hello", "evil"))
    with pytest.raises(PackageError, match=r"and the lock says the file `server\.py` with sha256:"):
        installed(resolved, tmp_path, launch=launch_of(command), directory=tmp_path)


def test_a_script_does_not_open_its_directory(tmp_path: Path) -> None:
    write(tmp_path, {"server.py": HELLO, ".env": "TOKEN=x"})
    _, how = resolved_in(tmp_path, [sys.executable, "server.py"])
    assert not any(tmp_path.is_relative_to(path) for path in how.readable)
    assert str(tmp_path / "server.py") in how.readable


def test_a_lock_has_no_path_of_this_machine(tmp_path: Path) -> None:
    write(tmp_path, {"server.py": HELLO})
    resolved, _ = resolved_in(tmp_path, [sys.executable, str(tmp_path / "server.py")])
    assert str(tmp_path) not in repr(resolved)


@needs_node
def test_a_script_for_node_reads_node_modules_and_no_secrets(tmp_path: Path) -> None:
    left = {"node_modules/left/index.js": "module.exports = 'left'"}
    project = write(tmp_path, {**left, "package.json": "{}", "dist/index.js": "console.log(require('left'))"})
    _, how = resolved_in(project, ["node", "dist/index.js"])
    assert output(how) == "left"
    *own, node = how.readable
    assert own == [str(project / name) for name in ("dist/index.js", "package.json", "node_modules")]
    assert node == os.path.realpath(how.argv[0])


@needs_node
def test_an_installed_package_of_node_reads_itself(tmp_path: Path) -> None:
    script = "#!/usr/bin/env node\nconsole.log('hello')"
    package = write(tmp_path / "node_modules" / "@a" / "b", {"package.json": "{}", "dist/index.js": script})
    (tmp_path / "bin").mkdir()
    os.symlink(package / "dist" / "index.js", tmp_path / "bin" / "serve")
    resolved, how = resolved_in(tmp_path, ["bin/serve"])
    assert resolved == Resolved("file", program="index.js", digest=file_digest(package / "dist" / "index.js"))
    assert output(how) == "hello"
    assert {str(package), str(tmp_path / "node_modules")} <= set(how.readable)


def test_a_program_of_the_machine_is_pinned_by_its_hash(tmp_path: Path) -> None:
    resolved, how = resolved_in(tmp_path, ["true"])
    assert resolved.kind == "file"
    assert resolved.digest == file_digest(how.argv[0])


# Distributions --------------------------------------------------------------------------------------------------------


def test_a_console_script_is_pinned_by_its_distribution(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = {"bin/demo-server": "#!PYTHON\nimport demo\ndemo.main()\n", "LIBRARY/demo.py": GREET}
    root = environment(tmp_path / "venv", files)
    monkeypatch.setenv("PATH", f"{root / 'bin'}:{os.environ['PATH']}")
    resolved, how = resolved_in(tmp_path, ["demo-server", "-x"])
    assert resolved == Resolved("distribution", "demo", "1.0", "demo-server")
    assert how.argv == (str(root / "bin" / "python"), "-P", str(root / "bin" / "demo-server"))
    assert output(how) == "hello"
    assert str(root) in how.readable
    (tmp_path / "venv").rename(tmp_path / "old")
    environment(tmp_path / "venv", files, version="2.0")
    with pytest.raises(
        PackageError, match=r"is `demo-server` of demo 2\.0, and the lock says `demo-server` of demo 1\.0"
    ):
        installed(resolved, tmp_path, launch=launch_of(["demo-server"]))


def test_a_console_script_behind_a_link_is_found(tmp_path: Path) -> None:
    files = {"bin/demo-server": "#!/bin/sh\n'''exec' \"PYTHON\" \"$0\" \"$@\"\n' '''\nprint('hello')\n"}
    root = environment(tmp_path / "venv with a space", files)
    os.symlink(root / "bin" / "demo-server", tmp_path / "demo-server")
    resolved, how = resolved_in(tmp_path, ["./demo-server"])
    assert resolved == Resolved("distribution", "demo", "1.0", "demo-server")
    assert output(how) == "hello"


def test_a_module_is_pinned_by_its_distribution(tmp_path: Path) -> None:
    root = environment(tmp_path / "venv", {"LIBRARY/demo/__main__.py": HELLO, "LIBRARY/demo/inner.py": HELLO})
    python = str(root / "bin" / "python")
    for module in ("demo", "demo.inner"):
        resolved, how = resolved_in(tmp_path, [python, "-I", "-m", module, "-x"])
        assert resolved == Resolved("distribution", "demo", "1.0", module)
        assert how.argv == (python, "-I", "-m", module)
        assert output(how) == "hello"
    with pytest.raises(LaunchError, match="lists a module `absent`"):
        resolve(launch_of([python, "-m", "absent"]), tmp_path, progress=silent)


@pytest.mark.parametrize("way", ["links", "copies", "a home that is no Python", "no home"])
def test_an_interpreter_reads_the_libraries_of_the_python_that_it_was_made_from(tmp_path: Path, way: str) -> None:
    """An environment of copies has no link to follow: its `pyvenv.cfg` names that Python."""
    base = write(tmp_path / "python", {"lib/python3.12/os.py": "", "bin/python3.12": "\x7fELF"})
    for folder in ("other/lib", "other/bin", "env/bin"):
        (tmp_path / folder).mkdir(parents=True)
    home = {"a home that is no Python": tmp_path / "other" / "bin", "no home": ""}.get(way, base / "bin")
    environment = write(tmp_path / "env", {"pyvenv.cfg": f"home = {home}\n"})
    python = environment / "bin" / "python"
    if way == "links":
        python.symlink_to(base / "bin" / "python3.12")
    else:
        python.write_bytes(b"\x7fELF")
    found = runtime_of(str(python))
    assert found[0] == str(environment)
    assert (str(base / "lib") in found) == (way in ("links", "copies"))
    assert str(tmp_path / "other" / "lib") not in found


def test_a_script_that_no_distribution_lists_is_a_file(tmp_path: Path) -> None:
    root = environment(tmp_path / "venv", {"bin/demo-server": "#!PYTHON\nprint('hello')\n"})
    write(root, {"bin/planted": f"#!{root / 'bin' / 'python'}\nprint('hello')\n"})
    resolved, _ = resolved_in(tmp_path, [str(root / "bin" / "planted")])
    assert resolved == Resolved("file", program="planted", digest=file_digest(root / "bin" / "planted"))


def test_a_program_of_this_environment_is_its_distribution(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", os.path.dirname(sys.executable))
    resolved, _ = resolved_in(tmp_path, ["pytest"])
    assert (resolved.kind, resolved.name, resolved.version) == ("distribution", "pytest", pytest.__version__)


# Refusals -------------------------------------------------------------------------------------------------------------

REFUSED = [
    (["absent-program"], "is not on PATH"),
    (["./absent"], "is no file"),
    ([sys.executable, "absent.py"], "is no file"),
    ([sys.executable, "."], "is no file"),
    (["./python", "server.py"], "is no interpreter"),
    (["shims/demo"], "is only a shim"),
]


@pytest.mark.parametrize(("command", "reason"), REFUSED, ids=[" ".join(case[0][-2:]) for case in REFUSED])
def test_a_command_that_starts_nothing_is_refused(tmp_path: Path, command: list[str], reason: str) -> None:
    # The interpreter is not asked what it is.
    write(tmp_path, {"server.py": HELLO, "python": "#!/bin/sh\ntouch ran\n", "shims/demo": "#!/bin/sh\n"})
    with pytest.raises(LaunchError) as refusal:
        resolve(launch_of(command), tmp_path, progress=silent, directory=tmp_path)
    assert reason in str(refusal.value)
    assert not (tmp_path / "ran").exists()


def test_a_container_is_refused(tmp_path: Path) -> None:
    with pytest.raises(LaunchError, match="`sandbox: native` alone"):
        resolve(launch_of(["docker", "run", "-i", "img"]), tmp_path, progress=silent)


def test_the_current_directory_on_path_is_not_searched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, {"demo": "#!/bin/sh\n"})
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", f".:{os.pathsep}:relative")
    with pytest.raises(LaunchError, match="is not on PATH"):
        resolve(launch_of(["demo"]), tmp_path, progress=silent)


def test_a_script_of_a_version_manager_is_asked_for_its_interpreter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, {"server.py": HELLO, "python3": f'#!/bin/sh\nexec "{sys.executable}" "$@"\n'})
    monkeypatch.setenv("PATH", str(tmp_path))
    _, how = resolved_in(tmp_path, ["python3", "server.py"])
    assert os.path.realpath(how.argv[0]) == os.path.realpath(sys.executable)
    assert output(how) == "hello"


def test_a_file_is_not_found_without_its_command(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="pass `launch`"):
        installed(Resolved("file", program="server.py", digest="sha256:"), tmp_path)


# What `pyvenv.cfg` of a project may name: files (with `*` a program), the mode, and whether it is believed.
NAMED = {
    "a Python": (("bin/python3.12*", "lib/python3.12/os.py"), 0o755, True),
    "a Node": (("bin/node*", "include/node/node.h"), 0o755, True),
    "no library": (("bin/python3.12*",), 0o755, False),
    "a library of another version": (("bin/python3.12*", "lib/python3.11/os.py"), 0o755, False),
    "a script in its place": (("bin/python3.12", "lib/python3.12/os.py"), 0o755, False),
    "no interpreter": (("secret", "lib/python3.12/os.py"), 0o755, False),
    "one that everybody may write": (("bin/python3.12*", "lib/python3.12/os.py"), 0o777, False),
}


@pytest.mark.parametrize("case", NAMED)
def test_only_the_directory_of_an_interpreter_is_one(case: str, tmp_path: Path) -> None:
    files, mode, believed = NAMED[case]
    prefix, project = tmp_path / "prefix", tmp_path / "project"
    for name in files:
        path = prefix / name.rstrip("*")
        path.parent.mkdir(parents=True, exist_ok=True)
        if name.endswith("*"):
            shutil.copy("/bin/true", path)
        else:
            path.write_text("#!/bin/sh\n")
    prefix.chmod(mode)
    write(project, {".venv/pyvenv.cfg": f"home = {prefix}/bin\n"})
    assert (str(prefix) in installed_prefixes(project)) == believed


@pytest.mark.parametrize("named", ["PATH", "VIRTUAL_ENV"])
@pytest.mark.parametrize(("mode", "believed"), [(0o755, True), (0o777, False)])
def test_the_active_environment_is_one_of_them(
    named: str, mode: int, believed: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    environment = tmp_path / "env"
    venv.create(environment, with_pip=False, symlinks=True)
    environment.chmod(mode)
    monkeypatch.delenv("VIRTUAL_ENV", raising=False)
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    assert str(environment) not in installed_prefixes(tmp_path / "project")
    monkeypatch.setenv(named, f"{environment}/bin" if named == "PATH" else str(environment))
    assert (str(environment) in installed_prefixes(tmp_path / "project")) == believed


def test_links_lead_to_an_interpreter_by_all_their_names(tmp_path: Path) -> None:
    prefix, linked = tmp_path / "cpython-3.12.4", tmp_path / "cpython-3.12"
    write(prefix, {"lib/python3.12/os.py": ""})
    (prefix / "bin").mkdir()
    shutil.copy("/bin/true", prefix / "bin" / "python3.12")
    linked.symlink_to(prefix.name)
    programs = tmp_path / "project" / "env" / "bin"
    programs.mkdir(parents=True)
    (programs.parent / "pyvenv.cfg").write_text(f"home = {prefix}/bin\n")
    (programs / "python3").symlink_to(linked / "bin" / "python3.12")
    (programs / "python").symlink_to("python3")
    assert {str(prefix), str(linked)} <= {*installed_prefixes(tmp_path / "project")}
