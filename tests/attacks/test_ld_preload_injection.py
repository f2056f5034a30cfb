"""A variable makes the loader, a shell or an interpreter run the caller's code inside a permitted program."""

import subprocess
from pathlib import Path

import pytest

from attacks.granted import refused
from attacks.programs import programs, spawned


@pytest.mark.parametrize("rules", [(), ("env:read:LANG",), ("env:read:*",)], ids=["nothing", "another", "all"])
def test_the_loader_takes_no_orders(tmp_path: Path, rules: tuple[str, ...]) -> None:
    library = str(tmp_path / "evil.so")
    evil = {"LD_PRELOAD": library}
    # The loader looks for the library, and says so as there is none: with one, it would run it.
    assert library in subprocess.run(["/bin/cat"], env=evil, input="", capture_output=True, text=True).stderr

    handle = programs("process:exec:cat", *rules)
    assert refused(handle.spawn("cat", env=evil)) == "ENV_NOT_ALLOWED"


def test_the_host_s_own_environment_does_not_come_along(tmp_path: Path) -> None:
    host = {"LD_PRELOAD": str(tmp_path / "evil.so"), "AWS_SECRET_ACCESS_KEY": "hunter2", "LANG": "C"}
    attack = subprocess.run(["/usr/bin/env"], env=host, capture_output=True, text=True, check=True)
    assert "hunter2" in attack.stdout

    handle = programs("process:exec:env", "env:read:LANG", environ=host)
    finished = spawned(handle, "env")
    assert finished.stdout_bytes == b"LANG=C\n"
    assert finished.stderr_bytes == b""
    assert spawned(programs("process:exec:env", "env:read:*", environ=host), "env").stdout_bytes == b""


@pytest.mark.parametrize("name", ["BASH_ENV", "ENV", "GIT_CONFIG_COUNT", "PYTHONSTARTUP", "LD_AUDIT", "GCONV_PATH"])
def test_other_variables_that_run_code_are_no_different(name: str) -> None:
    handle = programs("process:exec:env", "env:read:LANG", "env:read:*")
    assert refused(handle.spawn("env", env={name: "/tmp/evil"})) == "ENV_NOT_ALLOWED"


def test_a_shell_reads_the_caller_s_file_without_the_guard(tmp_path: Path) -> None:
    evil = tmp_path / "evil"
    evil.write_text("echo STOLEN\n")
    shell = "/bin/bash" if Path("/bin/bash").exists() else "/bin/sh"
    attack = subprocess.run(
        [shell, *(["-c", ":"] if shell == "/bin/bash" else ["-i"])],
        env={"BASH_ENV": str(evil), "ENV": str(evil)},
        input="",
        capture_output=True,
        text=True,
    )
    assert "STOLEN" in attack.stdout
    handle = programs(f"process:exec:{shell}")
    assert refused(handle.spawn(shell, ["-c", ":"], env={"BASH_ENV": str(evil)})) == "ENV_NOT_ALLOWED"
