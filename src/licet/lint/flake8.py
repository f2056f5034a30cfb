"""The flake8 plugin: the findings of `licet lint` about the tools of one file, on the lines of that file.

flake8 shows a file at a time, so a finding in a helper is shown on the line of the tool's file that leads there.
Packages are not read. The text comes from flake8, so editors see what was not saved yet; helpers come from disk.
"""

from collections.abc import Iterator, Sequence

from licet import __version__
from licet.lint.linter import Lint
from licet.policy_files.policy_paths import shown_path
from licet.source.source_files import Project


class Checker:
    """What flake8 loads by the entry point `LIC`."""

    name = "licet"
    version = __version__

    def __init__(self, tree: object, filename: str, lines: Sequence[str]) -> None:
        self._path, self._text = filename, "".join(lines)

    def run(self) -> Iterator[tuple[int, int, str, type]]:
        """Yield line, column, text and checker, as flake8 expects."""
        if "licet" not in self._text or "tool" not in self._text:
            return
        path = "stdin.py" if self._path in ("-", "stdin") else self._path
        project = Project(shown_path, texts={path: self._text.encode()})
        lint = Lint(project)
        lint.add_file(path)
        shown = shown_path(path)
        for finding in lint.report().findings:
            place, where = finding.origin, ""
            if place.file != shown:
                called = [hop.called for hop in finding.way if hop.called is not None and hop.called.file == shown]
                if not called:
                    continue
                where, place = f" at {place}", called[-1]
            text = str(finding).removeprefix(f"{finding.origin.full}: ").removesuffix(f" [{finding.code}]")
            yield place.line, max(place.column - 1, 0), f"{finding.code} {text}{where}", type(self)
