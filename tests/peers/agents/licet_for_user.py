"""licet as who runs the agents has it: this one, or where root runs the tests a copy that every user may run."""

import os
import shutil
import subprocess
import sysconfig
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from ordinary_user import interpreter, opened

ROOT = Path(__file__).resolve().parents[3]
_UNWANTED = ("*mypy*", "ruff*", "*.pth", "pip", "setuptools", "grimp*", "componentize_py*", "wasmtime*", "hypothesis*")


@contextmanager
def licet_for_user() -> Iterator[str]:
    """The program `licet`, as long as a test needs it."""
    if os.getuid() != 0:
        yield str(Path(sysconfig.get_path("scripts"), "licet"))
        return
    place = Path(tempfile.mkdtemp(prefix="licet-for-user-", dir="/var/tmp"))
    try:
        place.chmod(0o755)
        python = interpreter(place)
        if python is None:
            pytest.skip("there is no Python here that another user can run")
        yield _copied(place, python)
    finally:
        shutil.rmtree(place, ignore_errors=True)


def _copied(place: Path, python: str) -> str:
    """Copy licet and what it imports, with compiled files: without them every start would compile all of it."""
    unwanted = shutil.ignore_patterns(*_UNWANTED)
    environment = place / "environment"
    venv = [python, "-I", "-m", "venv", "--without-pip", "--symlinks", str(environment)]
    subprocess.run(venv, check=True, capture_output=True)
    packages = next(environment.glob("lib/python*/site-packages"))
    shutil.copytree(sysconfig.get_paths()["purelib"], packages, ignore=unwanted, dirs_exist_ok=True)
    shutil.copytree(ROOT / "src" / "licet", packages / "licet", ignore=unwanted)
    licet = environment / "bin" / "licet"
    text = f"#!{environment / 'bin' / 'python'}\nimport sys\nfrom licet.cli import program\nsys.exit(program())\n"
    licet.write_text(text, "utf-8")
    licet.chmod(0o755)
    subprocess.run([environment / "bin" / "python", "-m", "compileall", "-q", packages / "licet"], check=True)
    opened(place)
    return str(licet)
