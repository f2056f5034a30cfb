"""Suppressions in the source: `# licet: ignore[LIC101] reason`, on a line of the code that a finding is about.

A suppression without a reason suppresses nothing, and is a finding itself. So is one that nothing needs.
"""

import io
import re
import tokenize
from collections.abc import Iterable, Iterator

from msgspec import Struct

from licet.core.origin import Origin
from licet.policy_files.source.text import SourceText
from licet.surfaces.lint.findings import RULES, Finding

_MARK = "licet: ignore"
_COMMENT = re.compile(r"#\s*licet:\s*ignore\b\s*(?:\[([^\]]*)\])?\s*[:,-]*\s*(.*)")


class Suppression(Struct, frozen=True):
    """One comment: the codes that it names, and its reason."""

    origin: Origin
    codes: tuple[str, ...]
    reason: str

    @property
    def problem(self) -> Finding | None:
        """What is wrong with the comment; None if nothing is."""
        unknown = [code for code in self.codes if code not in RULES]
        if unknown or not self.codes:
            found = f"a suppression of `{unknown[0][:40]}`" if unknown else "a suppression of no rule"
            return Finding(
                self.origin, found, "`# licet: ignore[LIC101] reason`", "docs/lint.md lists the codes", code="LIC903"
            )
        if not self.reason:
            found = f"a suppression of {', '.join(self.codes)} without a reason"
            hint = "write the reason behind it, for the next reviewer"
            return Finding(self.origin, found, f"`# licet: ignore[{self.codes[0]}] reason`", hint, code="LIC901")
        return None


def suppressions_in(text: SourceText) -> list[Suppression]:
    """The suppressions of a file. Only comments count, and not strings that look like one."""
    if not any(_MARK in line for line in text.lines):
        return []
    found: list[Suppression] = []
    try:
        for token in tokenize.generate_tokens(io.StringIO("\n".join(text.lines)).readline):
            if token.type == tokenize.COMMENT and (match := _COMMENT.match(token.string)):
                codes = tuple(code.strip() for code in (match[1] or "").split(",") if code.strip())
                line, column = token.start
                found.append(Suppression(Origin(text.file, line, column + 1), codes, match[2].strip()))
    except (tokenize.TokenError, SyntaxError):  # the file was parsed before, so this is not expected
        return found
    return found


class Suppressing:
    """The suppressions of all files of a run, and which of them were needed."""

    def __init__(self, texts: Iterable[SourceText]) -> None:
        self._by_line: dict[tuple[str, int], Suppression] = {}
        self._used: set[Origin] = set()
        for text in texts:
            for one in suppressions_in(text):
                self._by_line[text.file, one.origin.line] = one

    def kept(self, findings: Iterable[Finding]) -> tuple[list[Finding], int]:
        """The findings that are not suppressed, and the number of those that are."""
        kept: list[Finding] = []
        number = 0
        for finding in findings:
            first, last = finding.origin.line, max(finding.end_line, finding.origin.line)
            around = (
                self._by_line.get((finding.origin.file, line)) for line in range(first, min(last, first + 200) + 1)
            )
            by = next((one for one in around if one and one.problem is None and finding.code in one.codes), None)
            if by is None:
                kept.append(finding)
            else:
                self._used.add(by.origin)
                number += 1
        return kept, number

    def problems(self, read: Iterable[tuple[str, int, int]]) -> Iterator[Finding]:
        """What is wrong with suppressions; those in code that was not read may be needed. `read` has file and lines."""
        spans = set(read) if self._by_line else set()
        for one in self._by_line.values():
            if (problem := one.problem) is not None:
                yield problem
            elif one.origin not in self._used and any(
                file == one.origin.file and first <= one.origin.line <= last for file, first, last in spans
            ):
                found = f"a suppression of {', '.join(one.codes)} that nothing needs"
                yield Finding(one.origin, found, "no suppression", "remove it", "warning", code="LIC902")
