"""Proposes declarations that fit the source: what is used is added, what nothing uses is removed.

Only the arguments `capabilities=`, `needs=` and `effect=` of `@tool(…)` are changed. Raw uses are left as they are.
"""

import ast
import difflib
import io
import tokenize
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from msgspec import Struct

from licet.core.algebra.domains import METHODS
from licet.core.algebra.rules import Capability
from licet.core.algebra.scope import Malformed
from licet.core.policy.layer import CLASSES, EffectClass
from licet.core.policy.tool import FROM_PERSONALITY, ToolSpec, normal_form, spec_of
from licet.lint.judge import Finding
from licet.lint.linter import LintedTool, Report
from licet.source.names import ANY, is_secret

_WIDTH = 120
_KEYS = {
    "fs:read": ("fs_reach", "read"),
    "fs:write": ("fs_reach", "write"),
    "fs:delete": ("fs_reach", "write"),
    "network": ("network", "allowed_hosts"),
    "process": ("process", "allowed_binaries"),
    "env": ("env", ""),
    "secret": ("secrets", ""),
}


class Proposal(Struct, frozen=True):
    """The new text of one file, as a diff, and the tools whose declarations have to be changed by hand."""

    path: str
    file: str
    text: str
    diff: str
    left: list[str]


class _Edit(Struct, frozen=True):
    """A piece of a file, in characters, and what replaces it."""

    start: int
    end: int
    text: str


def proposals(report: Report) -> Iterator[Proposal]:
    """One proposal for each file with a declaration that does not fit."""
    by_file: dict[str, list[LintedTool]] = {}
    for tool in report.tools:
        by_file.setdefault(tool.file.path, []).append(tool)
    for path, tools in by_file.items():
        text, file = "\n".join(tools[0].file.text.lines), tools[0].file.text.file
        edits: list[_Edit] = []
        left: list[str] = []
        for tool in tools:
            added, removed = _changes(tool.spec, report.findings)
            if not added and not removed:
                continue
            try:
                edits += _edits(tool, text, added, removed)
            except _ByHand as reason:
                rules = ", ".join(f"`{rule}`" for rule in added) or "nothing"
                left.append(f"{tool.spec.origin}: `{tool.spec.name}` has to be changed by hand ({reason}): add {rules}")
        new = text
        for edit in sorted(edits, key=lambda one: -one.start):
            new = new[: edit.start] + edit.text + new[edit.end :]
        lines = (text.splitlines(keepends=True), new.splitlines(keepends=True))
        diff = "".join(difflib.unified_diff(*lines, f"{file} (now)", f"{file} (proposed)"))
        if diff or left:
            yield Proposal(path, file, new, diff, left)


class _ByHand(Exception):
    """A declaration that cannot be changed without losing something."""


def _changes(spec: ToolSpec, findings: Iterable[Finding]) -> tuple[list[str], set[str]]:
    """The rules to add to a declaration, and those to remove."""
    added: dict[str, None] = {}
    removed: set[str] = set()
    for finding in findings:
        if spec.name not in finding.tools:
            continue
        if finding.code == "LIC401":
            removed.add(finding.rule)
        elif finding.code.startswith("LIC1") or finding.code == "LIC205":
            added[finding.rule] = None  # one that is declared already only widens the class
    return list(added), removed


def _edits(tool: LintedTool, text: str, added: list[str], removed: set[str]) -> Iterator[_Edit]:
    marks = [mark for mark in tool.function.decorator_list if isinstance(mark, ast.Call)]
    given = {keyword.arg: keyword.value for mark in marks[:1] for keyword in mark.keywords}
    value = given.get("capabilities") or given.get("needs")
    if value is None:
        raise _ByHand("its declaration is not written there")
    start, end = _span(text, value)
    if _has_comment(text[start:end]):
        raise _ByHand("a comment would be lost")
    if "needs" in given:
        new: Any = _needs(value, tool.spec, added, removed)
        keys = new
    else:
        new = _capabilities(value, added, removed)
        keys = None
    yield _Edit(start, end, _written(new, text, start))
    effect = _effect(tool.spec, added)
    if effect != tool.spec.effect and effect is not None:
        stated = given.get("effect")
        if stated is not None:
            yield _Edit(*_span(text, stated), f'"{effect}"')
        else:
            yield _Edit(end, end, f', effect="{effect}"')
    try:  # a proposal that `@tool` would refuse helps nobody
        spec_of(name=tool.spec.name, needs=keys, capabilities=None if keys is not None else new)
    except (Malformed, TypeError) as error:
        raise _ByHand(str(error)) from None


def _needs(value: ast.expr, spec: ToolSpec, added: list[str], removed: set[str]) -> list[str]:
    if isinstance(value, ast.List | ast.Tuple) and all(
        isinstance(one, ast.Constant) and isinstance(one.value, str) for one in value.elts
    ):
        texts = [str(one.value) for one in value.elts if isinstance(one, ast.Constant)]
    else:
        texts = [str(rule) for rule in spec.needs.allow]
    kept = [text for text in texts if str(Capability(text)) not in removed]
    return [*kept, *(rule for rule in added if rule not in kept)]


def _capabilities(value: ast.expr, added: list[str], removed: set[str]) -> dict[str, Any]:
    try:
        declared: dict[str, Any] = {
            key: dict(part) if isinstance(part, Mapping) else part
            for key, part in normal_form(ast.literal_eval(value)).items()
        }
    except (ValueError, TypeError, SyntaxError, Malformed, RecursionError):
        raise _ByHand("it is not written as a literal") from None
    for text in sorted(removed):
        _drop(declared, Capability(text))
    for text in added:
        _add(declared, Capability(text))
    return {key: part for key, part in declared.items() if part not in ((), [], {})}


def _place(rule: Capability) -> tuple[str, str, str]:
    """The key of a rule in `capabilities=`, the key below it, and its entry."""
    if rule.domain == "network":
        return *_KEYS["network"], rule.scope.rpartition("@")[2] if rule.scope not in METHODS else ANY
    kind = f"fs:{rule.action}" if rule.domain == "fs" else rule.domain
    if rule.domain == "env" and is_secret(rule.scope):
        kind = "secret"
    return *_KEYS[kind], rule.scope


def _add(declared: dict[str, Any], rule: Capability) -> None:
    if rule.domain == "storage":
        declared.setdefault("storage", {"scope": rule.scope if rule.scope != ANY else "session"})
        return
    key, inner, entry = _place(rule)
    part = declared.setdefault(key, {} if inner else ())
    entries = part.get(inner, ()) if inner else part
    if key == "fs_reach" and (entry == ANY or entries == FROM_PERSONALITY):
        entries = FROM_PERSONALITY
    elif entry not in entries:
        entries = (*entries, entry)
    if inner:
        part[inner] = entries
    else:
        declared[key] = entries


def _drop(declared: dict[str, Any], rule: Capability) -> None:
    if rule.domain == "storage":
        declared.pop("storage", None)
        return
    key, inner, entry = _place(rule)
    part = declared.get(key)
    if part is None:
        return
    entries = part.get(inner, ()) if inner else part
    kept: Any = () if entries == FROM_PERSONALITY else tuple(one for one in entries if one not in (entry, rule.scope))
    if not inner:
        declared[key] = kept
    elif kept:
        part[inner] = kept
    else:
        part.pop(inner, None)


def _effect(spec: ToolSpec, added: list[str]) -> EffectClass | None:
    """The weakest class that permits the declaration and what is added; None if none is stated and none is needed."""
    least: EffectClass = "read_only"
    for text in added:
        rule = Capability(text)
        wanted: EffectClass = "read_only"
        if rule.domain == "fs":
            wanted = {"read": "read_only", "write": "write_limited"}.get(rule.action, "full")  # type: ignore[assignment]
        elif rule.domain == "network" and rule.scope.partition("@")[0] in ("post", "put", "patch"):
            wanted = "write_limited"
        elif rule.domain == "network" and rule.scope.partition("@")[0] == "delete":
            wanted = "full"
        least = max(least, wanted, key=CLASSES.index)
    return None if spec.effect is None else max(least, spec.effect, key=CLASSES.index)


def _span(text: str, node: ast.expr) -> tuple[int, int]:
    """The place of a node, in characters of the text."""
    lines = text.split("\n")

    def at(line: int, offset: int) -> int:
        before = sum(len(one) + 1 for one in lines[: line - 1])
        return before + len(lines[line - 1].encode()[:offset].decode(errors="replace"))

    return at(node.lineno, node.col_offset), at(node.end_lineno or node.lineno, node.end_col_offset or 0)


def _has_comment(text: str) -> bool:
    try:
        tokens = list(tokenize.generate_tokens(io.StringIO(f"({text})").readline))
    except (tokenize.TokenError, SyntaxError):
        return "#" in text
    return any(token.type == tokenize.COMMENT for token in tokens)


def _written(value: Any, text: str, start: int) -> str:
    """A value as Python writes it, on one line if that fits."""
    one_line = _literal(value)
    line_start = text.rfind("\n", 0, start) + 1
    if start - line_start + len(one_line) < _WIDTH:
        return one_line
    line = text[line_start:start]
    indent = " " * (len(line) - len(line.lstrip()) + 4)
    if isinstance(value, dict):
        inner = [f"{_literal(key)}: {_literal(part)}" for key, part in value.items()]
        return "{\n" + "".join(f"{indent}{one},\n" for one in inner) + f"{indent[:-4]}}}"
    return "[\n" + "".join(f"{indent}{_literal(one)},\n" for one in value) + f"{indent[:-4]}]"


def _literal(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_literal(key)}: {_literal(part)}" for key, part in value.items()) + "}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_literal, value))}]"
    if isinstance(value, str) and '"' not in value and "\\" not in value and value.isprintable():
        return f'"{value}"'
    return repr(value)
