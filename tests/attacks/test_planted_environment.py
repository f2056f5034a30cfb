"""An environment inside what a grant may write: what is planted there for the start of Python runs in no interpreter.

The host plants the files itself, after it has started: a tool would do it in an earlier call, as far as rules let it.
"""

import json
import os
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

import pytest

import licet
from licet.sandbox import probe

pytestmark = pytest.mark.skipif(bool(probe.support().missing("restricted")), reason="no walls here")

HOST = """
import json, sys
from pathlib import Path
from licet import Backends, Gate, load_manifest, run
from clerks import add, ask

gate = Gate(load_manifest("m.yaml"), [add, ask], Backends.local("state"), unchecked_imports=True)
for name, text in json.loads(sys.argv[1]).items():
    Path(name).parent.mkdir(parents=True, exist_ok=True)
    Path(name).write_text(text)
results = [run(gate, "add", {"a": 1, "b": 2}), run(gate, "ask", {})]
print(json.dumps([[result.value, result.error] for result in results]))
"""
TOOLS = '''
import far_away
from licet import Context, tool

@tool(capabilities={}, effect="read_only", sandbox="restricted")
def add(a: int, b: int) -> int:
    """Add up."""
    import sys
    assert exit and help and sys.prefix != sys.base_prefix
    return far_away.plus(a, b)

@tool(capabilities={"process": {"allowed_binaries": ["true"]}}, effect="read_only", sandbox="restricted")
async def ask(ctx: Context) -> int:
    """Start a program."""
    return (await ctx.process.spawn("true", [])).exit_code
'''
MANIFEST: dict[str, Any] = {
    "agent": "clerk",
    "version": "1.0",
    "capabilities": {"tools": {"add": {}, "ask": {}}, "process": {"allowed_binaries": ["true"]},
        "fs_reach": {"write": ["${workdir}"]}},
}  # fmt: skip


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A work tree with a virtual environment in it, whose packages are reached by the paths in a `.pth` file."""
    place = tmp_path_factory.mktemp("desk").resolve()
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", place / ".venv"], check=True, timeout=120)
    (place / "far").mkdir()
    (place / "far" / "far_away.py").write_text("def plus(a, b):\n    return a + b\n")
    where = [sysconfig.get_path("purelib"), str(Path(licet.__file__).parents[1]), str(place / "far")]
    (site_packages(place) / "paths.pth").write_text("\n".join(where))
    (place / "host.py").write_text(HOST)
    (place / "clerks.py").write_text(TOOLS)
    (place / "m.yaml").write_text(json.dumps(MANIFEST))
    return place


def site_packages(place: Path) -> Path:
    return next((place / ".venv").glob("lib/python*/site-packages"))


PLANTED = {
    "a .pth file": "{site}/planted.pth",
    "sitecustomize": "{site}/sitecustomize.py",
    "usercustomize": "{site}/usercustomize.py",
    "a .pth file of this user": "{home}/.local/lib/python{version}/site-packages/planted.pth",
    "usercustomize of this user": "{home}/.local/lib/python{version}/site-packages/usercustomize.py",
}


@pytest.mark.parametrize("path", PLANTED.values(), ids=PLANTED)
@pytest.mark.sampled(1)
def test_what_is_planted_for_the_start_of_python_does_not_run(desk: Path, tmp_path: Path, path: str) -> None:
    mark, version = tmp_path / "ran", f"{sys.version_info.major}.{sys.version_info.minor}"
    file = path.format(site=site_packages(desk), home=tmp_path, version=version)
    plant = json.dumps({file: f"import os; os.close(os.open({str(mark)!r}, os.O_CREAT))"})
    environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "LANG": "C.UTF-8"}
    python = str(desk / ".venv" / "bin" / "python")
    try:
        ran = subprocess.run(
            [python, "host.py", plant],
            cwd=desk,
            env=environment,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert not mark.exists()
        assert ran.returncode == 0, ran.stderr
        (added, _), (asked, refused) = json.loads(ran.stdout)
        assert added == 3  # and so is what only a `.pth` file leads to
        assert asked == 0 or "SANDBOX_UNAVAILABLE" in refused
        subprocess.run([python, "-c", ""], env=environment, check=False, timeout=120)
        assert mark.exists() or "usercustomize" in path or ".local" in path  # it would have run with `site`
    finally:
        Path(file).unlink(missing_ok=True)
