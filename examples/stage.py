"""Runs the calls and commands of an example, and writes the transcript.

Values that differ between runs (times, ids, digests, ports, directories) are replaced by fixed text, so that two
transcripts of the same behaviour are equal.
"""

import json
import re
import subprocess
import sysconfig
from collections.abc import Callable
from pathlib import Path
from typing import Any

from licet import Result, Session

_REQUEST = re.compile(r"\ba-[0-9a-f]{12}\b")
_VARYING = [
    (re.compile(r"\br-[0-9a-f]{8,}-(\d+)"), r"r-\1"),  # receipts count up by themselves
    (re.compile(r"\d{4}-\d\d-\d\d([T ])\d\d:\d\d:\d\d(\.\d+)?Z"), r"0000-00-00\g<1>00:00:00Z"),
    (re.compile(r"\b(took|ran for) [\d.]+ ms"), r"\1 0 ms"),
    (re.compile(r"\bsha256:[0-9a-f]{64}"), "sha256:…"),
    (re.compile(r"\bed25519:[A-Za-z0-9_-]{43}"), "ed25519:…"),
    (re.compile(r"^(  ledger +)[0-9a-f]{32}$", re.MULTILINE), r"\1…"),
    (re.compile(r"\bsigned by \d+ checkpoints?\b"), "signed by N checkpoints"),  # one now and then, by the clock
    (re.compile(r"\b[0-9a-f]{40}\b"), "(commit)"),
    (re.compile(r"\blandlock-\d+"), "landlock"),  # its version is the kernel's
]


class Stage:
    """Two empty directories, one to work in and one for the state of licet, and the transcript so far."""

    def __init__(self, root: Path) -> None:
        self.workdir, self.state = root / "agent", root / "state"
        self.workdir.mkdir()
        self._known = {f"{Path.cwd()}/": "", str(root): "/srv"}
        self._requests: dict[str, str] = {}
        self._lines: list[str] = []

    @property
    def transcript(self) -> str:
        """All that was written."""
        return "\n".join(self._lines)

    def call_it(self, varying: object, name: str) -> None:
        """Write a name for a text that is another one in each run."""
        self._known[str(varying)] = name

    def title(self, text: str) -> None:
        """Begin the transcript, or a part of it."""
        self._lines += [f"{'##' if self._lines else '#'} {text}", ""]

    def say(self, text: str) -> None:
        """Tell what happens next."""
        self._lines += [" ".join(text.split()), ""]

    def show(self, *lines: object) -> None:
        """Show lines as they are."""
        text = self._same("\n".join(str(line) for line in lines))
        self._lines += ["```text", *(line.rstrip() for line in text.splitlines()), "```", ""]

    async def call(self, session: Session, tool: str, **arguments: Any) -> Result:
        """Make a call as a model would; show its result, and the explanation of a refusal for the operator."""
        result = await session.call(tool, arguments)
        long = {name: value for name, value in arguments.items() if isinstance(value, str) and "\n" in value}
        words = ", ".join(f"{name}={'…' if name in long else _json(arguments[name])}" for name in arguments)
        lines = [
            f"model>  {tool}({words})",
            *(f"      | {line}" for value in long.values() for line in value.splitlines()),
        ]
        told = result.error or (result.value if isinstance(result.value, str) else _json(result.value))
        lines += [f"        {line}" for line in told.rstrip().splitlines()]
        self.show(*lines, *([] if result.ok else ["", result.explain()]))
        return result

    def licet(self, *words: str, keep: Callable[[str], bool] = lambda line: True) -> None:
        """Run a command of licet as a person would, and show what it says: all of it, or the lines to keep."""
        program = Path(sysconfig.get_path("scripts"), "licet")
        ran = subprocess.run(  # noqa: S603
            [program, *words], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
        )
        said = [line for line in (ran.stdout + ran.stderr).rstrip().splitlines() if keep(line)]
        self.show(f"$ licet {' '.join(words)}", *said, *([f"[exit code {ran.returncode}]"] if ran.returncode else []))

    def _same(self, text: str) -> str:
        for varying, name in self._known.items():
            text = text.replace(varying, name)
        text = _REQUEST.sub(lambda found: self._requests.setdefault(found[0], f"a-{len(self._requests) + 1}"), text)
        for pattern, same in _VARYING:
            text = pattern.sub(same, text)
        return text


def _json(value: object) -> str:
    """A value on one line, or on many if it is long."""
    line = json.dumps(value, ensure_ascii=False)
    return line if len(line) <= 100 else json.dumps(value, ensure_ascii=False, indent=2)
