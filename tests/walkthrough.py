"""Plays a page of the documentation: its files are written, its commands run, and their output is compared.

A block with a title is a file: ```` ```python title="tools.py" ````. Other `python` blocks are run. A `console` block
has commands after `$`, and the output of each. `…` in an output stands for any text in its line, and alone for any
lines. The ids of receipts and requests differ from run to run: the first time that one is shown it may be any, and
after that it is the same one, in commands too.
"""

import os
import re
import shlex
import subprocess
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from click.testing import CliRunner

from licet.cli.app import licet
from licet.hooks.resident_control import stop_residents

_BLOCK = re.compile(r'^```(\w+)(?: title="([^"]+)")?\n(.*?)^```', re.MULTILINE | re.DOTALL)
_ID = re.compile(r"\b(?:r-[0-9a-f]{8,}-\d+|a-[0-9a-f]{12})\b")
HOME = "/home/me/desk"  # where a page says that it is played


class Written(NamedTuple):
    """A file that the reader writes."""

    name: str
    text: str


class Typed(NamedTuple):
    """A command that the reader types, and what the page shows of its output."""

    command: str
    output: str


class Run(NamedTuple):
    """Python that runs in the directory of the page."""

    source: str


def steps(page: Path) -> Iterator[Written | Typed | Run]:
    """What the reader of a page does, in order."""
    for language, title, body in _BLOCK.findall(page.read_text("utf-8")):
        if title:
            yield Written(title, body)
        elif language == "python":
            yield Run(body)
        elif language == "console":
            for part in re.split(r"^\$ ", body, flags=re.MULTILINE)[1:]:
                command, _, output = part.partition("\n")
                yield Typed(command, output)


def play(page: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> int:
    """Do what a page says in an empty directory, and return the number of commands."""
    here = folder / Path(HOME).name
    here.mkdir()
    monkeypatch.chdir(here)
    monkeypatch.setenv("HOME", str(folder))
    monkeypatch.setenv("XDG_STATE_HOME", str(folder / "state"))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    for name in ("GIT_AUTHOR_NAME", "GIT_AUTHOR_EMAIL", "GIT_COMMITTER_NAME", "GIT_COMMITTER_EMAIL"):
        monkeypatch.setenv(name, "me@example.com")
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", "/dev/null")
    try:
        return _play(page, here)
    finally:
        stop_residents()  # hooks start one


def _play(page: Path, here: Path) -> int:
    ids: dict[str, str] = {}
    typed = 0
    for step in steps(page):
        if isinstance(step, Written):
            file = here / step.name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(step.text, "utf-8")
        elif isinstance(step, Run):
            exec(compile(step.source, page.name, "exec"), {"__name__": "example"})
        else:
            typed += 1
            said = _run(_ID.sub(lambda found: ids[found[0]], step.command)).replace(str(here), HOME)
            compare(step, said, ids)
    return typed


def _run(command: str) -> str:
    """The output of a command. Most of licet runs in this process, which is quicker than a new interpreter."""
    if command.startswith("licet ") and not command.startswith("licet run "):
        result = CliRunner().invoke(licet, shlex.split(command)[1:], catch_exceptions=False)
        assert result.exit_code in (0, 1), result.output
        return result.output
    path = f"{sysconfig.get_path('scripts')}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["sh", "-c", command],
        check=False,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=60,
        env={**os.environ, "PATH": path},
    )
    assert done.returncode in (0, 125), done.stdout  # 125: `licet run` was refused
    return done.stdout


def compare(step: Typed, said: str, ids: dict[str, str]) -> None:
    """Fail if a command printed something else than the page shows; `ids` gets those that are shown first."""
    shown = step.output.rstrip()
    pattern, groups = "", list[str]()
    for piece in re.split(rf"(\0|…|{_ID.pattern})", re.sub(r"^ *…$", "\0", shown, flags=re.MULTILINE)):
        if piece == "\0":
            pattern += r"[\s\S]*"
        elif piece == "…":
            pattern += r"[^\n]*"
        elif not _ID.fullmatch(piece):
            pattern += re.escape(piece)
        elif piece in ids:
            pattern += re.escape(ids[piece])
        elif piece in groups:
            pattern += f"(?P=i{groups.index(piece)})"
        else:
            groups.append(piece)
            pattern += f"(?P<i{len(groups) - 1}>{_ID.pattern})"
    found = re.fullmatch(pattern, said.rstrip())
    assert found, f"$ {step.command}\n{said}\n--- the page shows\n{shown}"
    ids |= {piece: found[f"i{at}"] for at, piece in enumerate(groups)}
