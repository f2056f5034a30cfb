"""Draws the pictures of the README: the map of an example agent, and a terminal with calls that really ran.

With `--check` nothing is written: the pictures must be those that the examples make now.
"""

import argparse
import os
import pty
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from html import escape
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PICTURES = ROOT / "docs" / "pictures"
COLUMNS = 104
COMMANDS = (
    "licet call desk.yaml read_file path=notes/oslo.md",
    "licet call desk.yaml http_get url=https://api.stripe.com/v1/charges",
)
RECEIPT = re.compile(r"r-[0-9a-f]{8,}-\d+")  # differs from run to run
SIZE, LINE, LEFT, TOP = 13.0, 19.0, 18.0, 44.0
WIDTH = 7.83  # of a character of a monospaced font at this size
COLOURS = {"31": "#ff7b72", "32": "#7ee787", "33": "#e3b341", "1": "#ffffff", "2": "#8b949e"}
TEXT, BACKGROUND, PROMPT = "#c9d1d9", "#0d1117", "#58a6ff"
STYLED = re.compile(r"\x1b\[([0-9;]*)m")


def main() -> int:
    wanted = argparse.ArgumentParser(description=__doc__)
    wanted.add_argument("--check", action="store_true", help="write nothing; fail if a picture is not up to date")
    check = wanted.parse_args().check
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        drawn = {"map.svg": agent_map(place), "terminal.svg": terminal(place)}
    old = [file for file, text in drawn.items() if not same(PICTURES / file, text)]
    for file in old:
        if check:
            print(f"docs/pictures/{file} is not what the examples make now: run `make pictures`", file=sys.stderr)
        else:
            PICTURES.mkdir(exist_ok=True)
            (PICTURES / file).write_text(drawn[file], encoding="utf-8")
            print(f"· docs/pictures/{file}")
    return bool(check and old)


def same(path: Path, text: str) -> bool:
    return path.is_file() and path.read_text(encoding="utf-8") == text


def agent_map(place: Path) -> str:
    """The picture that `licet surface --svg` draws of the weather agent."""
    target = place / "map.svg"
    words = [licet(), "surface", "research.yaml", "--workdir", "/srv/agent", "--svg", str(target)]
    subprocess.run(words, cwd=ROOT / "examples" / "weather", env=environment(place), check=True, capture_output=True)
    return target.read_text(encoding="utf-8")


def terminal(place: Path) -> str:
    """A terminal in which each command ran."""
    desk = place / "desk"
    shutil.copytree(ROOT / "examples" / "desk", desk)
    lines: list[str] = []
    for command in COMMANDS:
        lines += [f"\x1b[34m$\x1b[0m {command}", *output(command, desk, place), ""]
    return svg(lines[:-1])


def output(command: str, directory: Path, place: Path) -> list[str]:
    """What a command prints on a terminal."""
    here, there = pty.openpty()
    words = [licet(), *command.split()[1:]]
    subprocess.run(words, cwd=directory, env=environment(place), stdin=there, stdout=there, stderr=there, check=False)
    os.close(there)
    said = b""
    while chunk := read(here):
        said += chunk
    os.close(here)
    text = said.decode().replace("\r\n", "\n").replace(str(place), "")
    return RECEIPT.sub("r-5f0c61d2-1", text).rstrip("\n").split("\n")


def read(number: int) -> bytes:
    try:
        return os.read(number, 1 << 16)
    except OSError:  # the other end was closed, and everything was read
        return b""


def licet() -> str:
    return str(Path(sys.executable).with_name("licet"))


def environment(place: Path) -> dict[str, str]:
    return {
        "PATH": os.defpath,
        "HOME": str(place),
        "XDG_STATE_HOME": str(place / "state"),
        "LANG": "C.UTF-8",
        "TERM": "xterm",
        "COLUMNS": str(COLUMNS),
    }


def svg(lines: list[str]) -> str:
    """The lines of a terminal as a picture."""
    longest = max(len(STYLED.sub("", line)) for line in lines)
    width, height = 2 * LEFT + longest * WIDTH, TOP + len(lines) * LINE + 8
    dots = "".join(
        f'<circle cx="{20 + 18 * at}" cy="18" r="5.5" fill="{fill}"/>'
        for at, fill in enumerate(("#ff5f57", "#febc2e", "#28c840"))
    )
    rows = "\n".join(
        f'<text x="{LEFT:g}" y="{TOP + at * LINE:g}" xml:space="preserve">{"".join(spans(line))}</text>'
        for at, line in enumerate(lines)
        if line
    )
    said = escape("\n".join(STYLED.sub("", line) for line in lines))
    font = "ui-monospace, SFMono-Regular, Menlo, Consolas, 'DejaVu Sans Mono', monospace"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" role="img"'
        f' font-family="{font}" font-size="{SIZE:g}" fill="{TEXT}">\n'
        f"<title>Calls that are allowed and refused</title>\n<desc>{said}</desc>\n"
        f'<rect width="100%" height="100%" rx="9" fill="{BACKGROUND}"/>\n{dots}\n{rows}\n</svg>\n'
    )


def spans(line: str) -> Iterator[str]:
    """The parts of a line, each in its colour."""
    colour = TEXT
    for at, part in enumerate(STYLED.split(line)):
        if at % 2:
            colour = next((COLOURS[code] for code in part.split(";") if code in COLOURS), TEXT)
            colour = PROMPT if part == "34" else colour
        elif part:
            yield f'<tspan fill="{colour}">{escape(part)}</tspan>'


if __name__ == "__main__":
    sys.exit(main())
