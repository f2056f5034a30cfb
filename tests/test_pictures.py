"""The pictures of the README are those that the examples make now."""

import re
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

from licet.sandbox import probe

ROOT = Path(__file__).resolve().parent.parent
SCRIPT, RECORDING = ROOT / "scripts" / "pictures.py", ROOT / "docs" / "pictures" / "recording.svg"
SVG = "{http://www.w3.org/2000/svg}"


def test_the_recording_lasts_ten_seconds_and_its_last_frame_has_every_line() -> None:
    picture = ElementTree.parse(RECORDING).getroot()
    lines = ["".join(text.itertext()) for text in picture.iter(f"{SVG}text")]
    said = picture.find(f"{SVG}desc")
    assert said is not None
    assert lines == [line for line in str(said.text).splitlines() if line]
    styles = [text.get("style", "") for text in picture.iter(f"{SVG}text")]
    starts = [float(start) for style in styles for start in re.findall(r"(?:delay:|\) )([\d.]+)s", style)]
    assert len(starts) == len(lines)
    assert starts == sorted(starts)
    assert 8 < starts[-1] < 12
    # What hides a line is in the animation alone: without it, everything is there.
    assert not re.search(r"opacity|clip-path", RECORDING.read_text("utf-8").partition("</style>")[2])


@pytest.mark.skipif(not probe.support().namespaces, reason="a program runs behind walls here")
def test_the_pictures_are_up_to_date() -> None:
    drawn = subprocess.run([sys.executable, SCRIPT, "--check"], capture_output=True, text=True, check=False)
    assert drawn.returncode == 0, drawn.stderr
