"""Clients that do not end, or write without end, and version managers that start what a project says."""

import asyncio
import os
import shutil
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from attacks.programs import alive, until
from licet.backends.git_tree import find_revision
from licet.packages.clients import PackageError, client_environment, in_thread, native_program, run_client

from .made import write

WRITES = """
import itertools
for number in itertools.count():
    with open(f"part-{number}", "wb") as file:
        file.write(bytes(1 << 20))
"""
LONG = """
import os, resource, time
while resource.getrlimit(resource.RLIMIT_FSIZE)[0] == resource.RLIM_INFINITY:
    time.sleep(0.01)
os.truncate(os.open("x", os.O_CREAT | os.O_RDWR), (1 << 30) + 1)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="the system does not tell what a process has written")
def test_a_client_that_writes_without_end_is_ended(tmp_path: Path) -> None:
    with pytest.raises(PackageError, match="unpacking failed: more than 20 MiB were written for it"):
        run_client([sys.executable, "-c", WRITES], tmp_path, client_environment(), "unpacking", most_written=20 << 20)


@pytest.mark.skipif(sys.platform != "linux", reason="the system cannot bound another process")
def test_no_file_of_a_client_gets_longer_than_a_gibibyte(tmp_path: Path) -> None:
    with pytest.raises(PackageError, match="File too large"):
        run_client([sys.executable, "-c", LONG], tmp_path, client_environment(), "fetching")


def test_what_a_client_says_last_is_the_reason(tmp_path: Path) -> None:
    script = "import sys; sys.exit('no\\x1b[31m such thing')"
    with pytest.raises(PackageError) as refusal:
        run_client([sys.executable, "-c", script], tmp_path, client_environment(), "asking")
    assert str(refusal.value).startswith("asking failed:\n  no")
    assert "\x1b" not in str(refusal.value)


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_what_a_client_started_ends_with_it_though_the_client_has_ended(tmp_path: Path) -> None:
    line = "sleep 600 & echo $! > pid; exit 0"  # it holds the output open
    with pytest.raises(PackageError, match="took longer than"):
        asyncio.run(
            in_thread(0.5, lambda: run_client(["/bin/sh", "-c", line], tmp_path, client_environment(), "asking"))
        )
    left = int((tmp_path / "pid").read_text())
    try:
        until(lambda: not alive(left), 5)
    finally:
        with suppress(ProcessLookupError):
            os.kill(left, signal.SIGKILL)


# As those of asdf, pyenv and others do: in the directory that a variable or the current directory says.
SHIM = """#!/bin/sh
cd "${{PYENV_DIR:-.}}"
[ -f .tool-versions ] && exec "$(cat .tool-versions)" "$@"
exec {real} "$@"
"""


@pytest.mark.parametrize(("name", "variable"), [("python3", False), ("python3", True), ("git", False)])
def test_a_version_manager_starts_nothing_of_the_project(
    name: str, variable: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.path.realpath(sys.executable) if name == "python3" else shutil.which("git")
    if real is None:
        pytest.skip("there is no git here")
    shim, project = tmp_path / "shims" / name, tmp_path / "project"
    write(shim.parent, {name: SHIM.format(real=real)})
    write(project, {"evil": f"#!/bin/sh\ntouch {tmp_path}/ran\n", ".tool-versions": str(project / "evil")})
    monkeypatch.setenv("PATH", f"{shim.parent}:/usr/bin:/bin")
    monkeypatch.chdir(tmp_path if variable else project)
    if variable:
        monkeypatch.setenv("PYENV_DIR", str(project))
    subprocess.run([shim], check=True)
    (tmp_path / "ran").unlink()
    if name == "git":
        make = "init -q && git -c user.name=me -c user.email=me@example.com commit -q --allow-empty -m First"
        subprocess.run(["/bin/sh", "-c", f"{real} {make}"], check=True, env={"PATH": os.path.dirname(real)})
        assert find_revision("HEAD", Path()) is not None
    else:
        assert native_program(name) == real
    assert not (tmp_path / "ran").exists()
