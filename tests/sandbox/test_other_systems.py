"""On macOS and Windows everything imports, `native` works, WASM tools too on macOS, and walls refuse clearly."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from sandbox import foreign_host

TESTS = str(Path(__file__).parents[1])


@pytest.mark.skipif(sys.platform != "linux", reason="it is made of Linux by taking things away")
@pytest.mark.parametrize("system", foreign_host.LACKING)
@pytest.mark.sampled(1)
def test_without_linux_native_works_and_walls_refuse(system: str, tmp_path: Path) -> None:
    ended = subprocess.run(
        [sys.executable, str(foreign_host.__file__), system, str(tmp_path)],
        capture_output=True, text=True, timeout=600, env={**os.environ, "PYTHONPATH": TESTS},
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr
    said = json.loads(ended.stdout)
    assert said["modules"] > 100
    assert said["native"] == [5, 5]
    for level in ("restricted", "isolated"):
        code, reason, error = said[level]
        assert (code, reason) == ("not_available", "SANDBOX_UNAVAILABLE")
        assert f"`{level}` cannot be kept here: this system is not Linux" in error
        assert "only `native` runs" in error
    if system == "darwin":  # wasmtime needs no walls of the kernel
        error, value, *layers = said["wasm"]
        assert (error, value) == ("", 5)
        assert [layer.partition("-")[0] for layer in layers] == ["handles", "process", "wasmtime"]
    code, reason, error = said["program"]
    assert (code, reason) == ("execution_failed", "BACKEND_MISSING")
    assert said["doctor"] == {"restricted": False, "isolated": False, "native": True}
