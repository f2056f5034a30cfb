"""Declarations that `licet init` proposes for functions without `@tool`: the source with them written in, and a diff.

They are guesses from the calls in the source, and are marked as guesses. Nothing is imported or written here.
"""

import ast
import difflib
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from msgspec import Struct

from licet.core.algebra.scope import visible
from licet.core.origin import Problem
from licet.policy_files.source.text import SourceText, read_bytes
from licet.surfaces.cli.init_guess import Guess, guess_tools
from licet.surfaces.lint.files import Project

_HEADER = "guessed by `licet init` from what the source does: review every line, then delete this comment"
_LINE = re.compile(r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+")


class Proposal(Struct, frozen=True):
    """A file without tools, and the same file with a guessed declaration above each public function."""

    file: Path
    guesses: tuple[Guess, ...]
    before: str
    after: str

    @property
    def diff(self) -> str:
        """The change as a unified diff; invisible characters are escaped."""
        name = str(self.file)
        before, after = ([line.rstrip("\r\n") for line in _lines(text)] for text in (self.before, self.after))
        return "\n".join(map(visible, difflib.unified_diff(before, after, name, name, lineterm=""))) + "\n"

    def as_data(self) -> dict[str, Any]:
        """The guesses as plain data, with the lines that they come from."""
        return {"file": str(self.file), "functions": [_as_data(guess) for guess in self.guesses], "diff": self.diff}


def propose(file: Path) -> Proposal | None:
    """The declarations that a file suggests; None if it has no public function to declare, or cannot be read."""
    data = read_bytes(file, str(file))
    if isinstance(data, Problem):
        return None
    source = Project(texts={str(file): data}).read(str(file))
    try:
        guesses = () if isinstance(source, Problem) else guess_tools(source)
    except RecursionError:
        return None
    if isinstance(source, Problem) or not guesses:
        return None
    before = data.decode("utf-8-sig")
    return Proposal(file, guesses, before, _declared(before, source.text, guesses))


def _lines(text: str) -> list[str]:
    """Lines as Python counts them: a form feed ends none."""
    return _LINE.findall(text)


def _declared(before: str, text: SourceText, guesses: tuple[Guess, ...]) -> str:
    end = "\r\n" if "\r\n" in before else "\n"
    lines = _lines(before)
    taken = {node.id for node in text.nodes if isinstance(node, ast.Name)}
    taken |= {node.asname or node.name for node in text.nodes if isinstance(node, ast.alias)}
    word, imported = ("licet.tool", "import licet") if "tool" in taken else ("tool", "from licet import tool")
    for guess in sorted(guesses, key=lambda guess: -guess.line):
        lines[guess.line - 1 : guess.line - 1] = [line + end for line in decorator(guess, word)]
    place = _after_opening(text)
    lines[place:place] = [imported + end] if place else [imported + end, end]
    return "".join(lines)


def _after_opening(text: SourceText) -> int:
    """The line after the docstring and the imports from `__future__`, which must stay first."""
    place = 0
    for number, node in enumerate(text.tree.body):
        opening = number == 0 and isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        if opening or (isinstance(node, ast.ImportFrom) and node.module == "__future__"):
            place = node.end_lineno or place
        elif isinstance(node, ast.Import | ast.ImportFrom):
            return node.lineno - 1
        else:
            break
    return place


def decorator(guess: Guess, word: str = "tool") -> Iterator[str]:
    """The lines of a declaration, each with what it was guessed from."""
    yield f"@{word}(  # {_HEADER}"
    keys = list(_keys(guess))
    if keys:
        yield "    capabilities={"
        yield from (f"        {json.dumps(key)}: {_literal(value)},  # {visible(seen)}" for key, value, seen in keys)
        yield "    },"
    else:
        yield "    capabilities={},  # nothing outside was seen in this file"
    yield f"    effect={json.dumps(guess.effect)},"
    if guess.sandbox is not None:
        yield f"    sandbox={json.dumps(guess.sandbox)},"
    else:
        yield "    # no `sandbox=`: some of this fails behind walls until it goes through `ctx`, see `licet lint`"
    yield ")"


def _keys(guess: Guess) -> Iterator[tuple[str, Any, str]]:
    for key, value in guess.capabilities.items():
        seen = guess.seen("fs_reach.read", "fs_reach.write") if key == "fs_reach" else guess.seen(key)
        yield key, value, f"{seen}: better read with `ctx.secrets.get`" if key == "secrets" else seen


def _literal(value: Any) -> str:
    return json.dumps(value, ensure_ascii=True)


def _as_data(guess: Guess) -> dict[str, Any]:
    return {
        "function": guess.function,
        "line": guess.line,
        "capabilities": {key: value for key, value, _ in _keys(guess)},
        "effect": guess.effect,
        "sandbox": guess.sandbox,
        "seen": [{"line": touch.line, "call": touch.what, "scope": touch.scope} for touch in guess.touches],
    }
