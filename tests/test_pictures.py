"""The pictures of the README are those that the examples make now."""

import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).resolve().parent.parent / "scripts" / "pictures.py"


def test_the_pictures_are_up_to_date() -> None:
    drawn = subprocess.run([sys.executable, SCRIPT, "--check"], capture_output=True, text=True, check=False)
    assert drawn.returncode == 0, drawn.stderr
