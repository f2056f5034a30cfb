"""An installation of licet with the small service of `service.py`, so that residents and clients run as they will.

Its interpreter, its home and its state are its own. Only `licet.hooks` and the entry points are copied: some tests
change them.
"""

import os
import re
import subprocess
import sys
import sysconfig
from collections.abc import Mapping
from pathlib import Path

import licet

HERE = Path(__file__).parent
SOURCE = Path(licet.__file__).parent
PATIENCE = 120  # seconds: something that hangs, not something that is slow
_MAIN = "import sys\nfrom licet.hooks.answering import _alone\n_alone(sys.argv[1:])\n"


class Installation:
    """A virtual environment with a licet, and a home."""

    def __init__(self, root: Path, **limits: float) -> None:
        self.root = root
        self.home = root / "home"
        self.python = root / "bin" / "python"
        packages = root / "lib" / f"python{sys.version_info.major}.{sys.version_info.minor}" / "site-packages"
        self.licet = packages / "licet"
        for directory in (self.home, root / "bin", self.licet):
            directory.mkdir(parents=True)
        base = os.path.realpath(sys.executable)
        self.python.symlink_to(base)
        (root / "pyvenv.cfg").write_text(f"home = {os.path.dirname(base)}\ninclude-system-site-packages = false\n")
        (packages / "others.pth").write_text(sysconfig.get_path("purelib") + "\n")
        for entry in SOURCE.iterdir():
            if entry.name not in ("hooks", "__init__.py", "__main__.py", "__pycache__"):
                (self.licet / entry.name).symlink_to(entry)
        (self.licet / "__init__.py").write_bytes((SOURCE / "__init__.py").read_bytes())
        (self.licet / "__main__.py").write_text(_MAIN)
        self.hooks = self.licet / "hooks"
        self.hooks.mkdir()
        for file in (SOURCE / "hooks").glob("*.py"):
            (self.hooks / file.name).write_bytes(file.read_bytes())
        (self.hooks / "answering.py").write_bytes((HERE / "service.py").read_bytes())
        self.limit(**limits)

    def limit(self, **limits: float) -> None:
        """Write other limits."""
        file = self.hooks / "limits.py"
        text = file.read_text()
        for name, value in limits.items():
            text, count = re.subn(rf"^{name} = \S+( << \d+)?", f"{name} = {value}", text, flags=re.MULTILINE)
            assert count == 1
        file.write_text(text)

    def words(self, *words: str) -> list[str]:
        """The command of a client."""
        return [str(self.python), "-I", "-S", str(self.hooks / "resident_client.py"), *words]

    def environment(self, **more: str) -> dict[str, str]:
        return {"HOME": str(self.home), "PATH": os.environ["PATH"], **more}

    def hook(
        self, payload: bytes = b"{}", agent: str = "claude", event: str = "PreToolUse", *,
        environment: Mapping[str, str] | None = None, cwd: Path | None = None,
    ) -> subprocess.CompletedProcess[bytes]:  # fmt: skip
        """Run a client for an event."""
        return subprocess.run(
            self.words("hook", agent, event), input=payload, capture_output=True, timeout=PATIENCE,
            env=environment or self.environment(), cwd=cwd or self.home, check=False,
        )  # fmt: skip

    @property
    def place(self) -> Path:
        return self.home / ".local" / "state" / "licet" / "resident"

    def run(self, code: str) -> str:
        """What a program of this installation prints."""
        done = subprocess.run(
            [str(self.python), "-I", "-c", code], capture_output=True, text=True, env=self.environment(), check=True,
            timeout=PATIENCE,
        )  # fmt: skip
        return done.stdout
