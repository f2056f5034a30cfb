"""Runs `licet lint` over files: finds the tools in them, follows and judges each, and gathers what was found.

The tools that a manifest names with `from:` are judged each at the level that it runs at under the manifest.

Guesses the declarations of functions that are not tools yet, by what `licet lint` finds in them.

Each guess is one that `lint` accepts: the weakest class, and a level at which what was found works. Nothing is imported
or run. What `lint` does not see is not guessed either, so a person must review each guess.

Declarations that `licet init` proposes for functions without `@tool`: the source with them written in, and a diff.

They are guesses from the calls in the source, and are marked as guesses. Nothing is imported or written here.
"""

import ast
import difflib
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

from msgspec import Struct
from msgspec.structs import replace

from licet.core.algebra.domains import split_text
from licet.core.algebra.scope import Malformed, visible
from licet.core.algebra.scope import name as checked_name
from licet.core.decision.reach import reach_of
from licet.core.policy.layer import CLASSES, EffectClass, Level
from licet.core.policy.manifest import Manifest
from licet.core.policy.tool import FROM_PERSONALITY, ToolSpec, spec_of
from licet.core.values import Origin, Problem
from licet.lint.judge import CODE, DOES, Finding, Severity, Suppressing, judge, merged, place, unused
from licet.lint.limits import MOST_GUESSED_FUNCTIONS, MOST_TOKENS_IN_CHECK
from licet.policy_files.policy_paths import shown_path
from licet.source.declarations import module_in
from licet.source.literals import ANY, is_secret
from licet.source.raw_io import Use
from licet.source.scopes import Function
from licet.source.source_files import Project, SourceFile, SourceText, read_bytes
from licet.source.touches import Follower, Reached


class LintedTool(Struct, frozen=True):
    """A tool that was compared, with its file and everything that its code does."""

    spec: ToolSpec
    file: SourceFile
    function: Function
    level: Level | None
    reached: Reached


class Report(Struct, frozen=True):
    """Everything that one run found."""

    files: int  # files with tools, and their helpers
    tools: tuple[LintedTool, ...]
    findings: tuple[Finding, ...]
    suppressed: int

    def count(self, severity: Severity) -> int:
        return sum(finding.severity == severity for finding in self.findings)


class Lint:
    """One run. Files are added first; `report` then judges everything."""

    def __init__(self, project: Project) -> None:
        self._project = project
        self._follower = Follower()
        self._tools: list[LintedTool] = []
        self._findings: list[Finding] = []
        self._modules: list[tuple[SourceFile, Reached]] = []

    def add_file(self, path: str, *, everything: bool = False) -> None:
        """Lint the tools of a file; with `everything` also code of files that have no tool."""
        if everything or self._project.may_have_tools(path):
            self._add(path, None, everything)

    def add_tools(self, path: str, tools: Iterable[tuple[ToolSpec, Level | None]]) -> None:
        """Lint tools of a file that a policy names, each at the level that the policy gives it."""
        self._add(path, tools, False)

    def _add(self, path: str, tools: Iterable[tuple[ToolSpec, Level | None]] | None, everything: bool) -> None:
        file = self._project.read(path)
        if isinstance(file, Problem):
            return  # reported with all files that could not be read
        try:
            found = list(self._declared(file)) if tools is None else list(_known(file, tools))
            for spec, function, level in found:
                self._tools.append(LintedTool(spec, file, function, level, self._follower.of_tool(file, function)))
            if everything and not found:
                self._modules.append((file, self._follower.of_module(file)))
        except RecursionError:
            expected = "code that a person can read"
            self._findings.append(
                Finding(Origin(file.text.file, 1, 1), "code nested too deeply", expected, code="LIC601")
            )

    def _declared(self, file: SourceFile) -> Iterator[tuple[ToolSpec, Function, Level | None]]:
        for declared in module_in(file.text).declared:
            bindings = file.scope.bindings.get(declared.function, ())
            function = next((one.what for one in bindings if isinstance(one.what, Function)), None)
            if declared.spec is None or function is None:
                self._findings += [_unreadable(problem) for problem in declared.problems]
            else:
                yield declared.spec, function, declared.spec.sandbox

    def report(self) -> Report:
        """Judge all tools that were added."""
        found: list[Finding] = list(self._findings)
        for tool in self._tools:
            found += judge(tool.spec, tool.level, tool.reached)
            # What a package does by itself is not read. At `restricted` the walls stop everything but handles.
            if tool.level == "restricted" or not tool.reached.packages():
                origin = tool.spec.origin or Origin(tool.file.text.file, tool.function.lineno, 1)
                ends = tool.function.decorator_list[0].end_lineno if tool.function.decorator_list else 0
                found += (replace(one, end_line=ends or 0) for one in unused(tool.spec, origin, tool.reached))
        for file, reached in self._modules:
            found += _uses_without_tool(file, reached)
        found += [_problem(problem) for problem in self._project.problems()]
        texts = [file.text for file in self._project.files]
        suppressing = Suppressing(texts)
        kept, suppressed = suppressing.kept(merged(found))
        kept += suppressing.problems(self._read_lines())
        kept.sort(key=lambda one: (place(one.origin), one.code, one.found))
        return Report(len(texts), tuple(self._tools), tuple(kept), suppressed)

    def _read_lines(self) -> Iterator[tuple[str, int, int]]:
        """The lines that were read for a tool: its functions, and what is outside of functions."""
        for reached in (*(tool.reached for tool in self._tools), *(reached for _, reached in self._modules)):
            yield from reached.lines()
        for tool in self._tools:
            marks = tool.function.decorator_list
            yield (
                tool.file.text.file,
                min((mark.lineno for mark in marks), default=tool.function.lineno),
                tool.function.lineno,
            )


def _known(
    file: SourceFile, tools: Iterable[tuple[ToolSpec, Level | None]]
) -> Iterator[tuple[ToolSpec, Function, Level | None]]:
    """The functions of tools whose declarations were read before, by the lines of their decorators."""
    by_line = {mark.lineno: function for function in file.scope.functions for mark in function.decorator_list}
    for spec, level in tools:
        if spec.origin is not None and spec.origin.line in by_line:
            yield spec, by_line[spec.origin.line], level


def _unreadable(problem: Problem) -> Finding:
    return Finding(problem.origin, problem.found, problem.expected, problem.hint, problem.severity, code="LIC602")


def _problem(problem: Problem) -> Finding:
    return Finding(problem.origin, problem.found, problem.expected, problem.hint, problem.severity, code="LIC601")


def _uses_without_tool(file: SourceFile, reached: Reached) -> Iterator[Finding]:
    for use in (use for piece in reached.pieces if piece.file is file for use in piece.does.uses):
        kind = "fs:write" if use.kind == "scratch" else use.kind
        does = DOES[kind] if kind in DOES else CODE[kind][1]
        hint = f"a tool that calls it declares `{use.rule}`" if use.rule else ""
        origin = file.text.place_at(use.line, use.offset)
        yield Finding(
            origin,
            f"`{use.what}`, which {does}",
            "a tool that declares it",
            hint,
            "note",
            code="LIC701",
            rule=use.rule,
            end_line=use.end_line,
        )


_READY_MADE = "licet/tools/"
_LINES = ("LIC1", "LIC2", "LIC3")
# The tool fails when it is called, or imports what it need not; but nothing in the policy is wrong.
_NOT_OF_THE_POLICY = ("LIC2", "LIC305")


def tools_by_file(manifest: Manifest) -> dict[str, list[tuple[ToolSpec, Level | None]]]:
    """The files of the tools of a manifest, with each tool and its level. Ready-made tools are left out."""
    found: dict[str, list[tuple[ToolSpec, Level | None]]] = {}
    for name in manifest.sources:
        spec = manifest.tools.get(name)
        reach = reach_of(manifest, name)
        if spec is None or spec.origin is None or reach is None or spec.origin.file.startswith(_READY_MADE):
            continue
        found.setdefault(spec.origin.file, []).append((spec, reach.level))
    return found


def source_problems(manifest: Manifest) -> Iterator[Problem]:
    """The errors of `licet lint` about the tools of a manifest. Its warnings are for the command itself.

    A declared thing that is used without a handle is a warning here: calls fail, but the policy is right.
    """
    by_file = tools_by_file(manifest)
    if not by_file:
        return
    lint = Lint(Project(shown_path, most_tokens=MOST_TOKENS_IN_CHECK))
    for file, tools in by_file.items():
        lint.add_tools(file, tools)
    for finding in lint.report().findings:
        if finding.severity == "error" and finding.code.startswith(_LINES):
            yield _as_warning(finding) if finding.code.startswith(_NOT_OF_THE_POLICY) else finding


def _as_warning(finding: Finding) -> Finding:
    return replace(finding, severity="warning", hint=f"{finding.hint}; an error of `licet lint`, not of the policy")


Category = Literal["network", "secrets", "fs_reach.read", "fs_reach.write", "process", "env", "storage"]
_CATEGORIES: Mapping[str, Category] = {
    "fs:read": "fs_reach.read",
    "fs:write": "fs_reach.write",
    "fs:delete": "fs_reach.write",
    "network": "network",
    "process": "process",
    "env": "env",
    "secret": "secrets",
    "storage": "storage",
}
# Behind walls the method of a request is not seen; the class says it anyway.
_METHOD_NEEDS: Mapping[str, EffectClass] = {
    **dict.fromkeys(("post", "put", "patch"), "write_limited"),
    "delete": "full",
}
_FAILS_BEHIND_WALLS = frozenset({"LIC201", "LIC202", "LIC203", "LIC204"})  # declared, and without a handle


class Touch(Struct, frozen=True):
    """One outside thing that a function uses: the category and scope to declare, and the call it was found in."""

    category: Category
    scope: str
    what: str
    line: int


class Guess(Struct, frozen=True):
    """A function that could be a tool, and the declaration that its source suggests."""

    function: str
    line: int  # where a decorator would be inserted
    touches: tuple[Touch, ...]
    effect: EffectClass
    sandbox: Level | None  # None if what was found works at no level with walls

    def scopes(self, category: Category) -> list[str]:
        """The scopes under a key of the declaration; only `*` if the source does not show them."""
        found = sorted({touch.scope for touch in self.touches if touch.category == category})
        return [ANY] if ANY in found else found

    def seen(self, *categories: str) -> str:
        """The calls that a key was guessed from."""
        return ", ".join(dict.fromkeys(touch.what for touch in self.touches if touch.category in categories))

    @property
    def capabilities(self) -> dict[str, Any]:
        """The keys to declare, with their values."""
        found: dict[str, Any] = {}
        if hosts := self.scopes("network"):
            found["network"] = {"allowed_hosts": hosts}
        if secrets := self.scopes("secrets"):
            found["secrets"] = secrets
        for name in ("read", "write"):
            if paths := self.scopes("fs_reach.read" if name == "read" else "fs_reach.write"):
                found.setdefault("fs_reach", {})[name] = FROM_PERSONALITY if paths == [ANY] else paths
        if programs := self.scopes("process"):
            found["process"] = {"allowed_binaries": programs}
        if variables := self.scopes("env"):
            found["env"] = variables
        if kinds := self.scopes("storage"):
            found["storage"] = {"scope": kinds[0] if kinds != [ANY] else "session"}
        return found


def guess_tools(file: SourceFile) -> tuple[Guess, ...]:
    """Guess declarations for the public functions of a module without decorators, at most a hundred of them.

    Functions that `@tool` would refuse are left out, since the module could not be imported with such a declaration.
    """
    functions = [node for node in file.text.tree.body if isinstance(node, Function)]
    plain = (node for node in functions if not node.name.startswith("_") and not node.decorator_list)
    public = [node for node in plain if _can_be_tool(node)]
    follower = Follower()
    return tuple(_accepted(node, follower.of_tool(file, node)) for node in public[:MOST_GUESSED_FUNCTIONS])


def _accepted(function: Function, reached: Reached) -> Guess:
    """The guess with the weakest class that `lint` accepts, and with a level if everything works behind walls."""
    uses = list(reached.uses())
    touches = tuple(dict.fromkeys(touch for use in uses if (touch := _touch(use)) is not None))
    walled: Level = "isolated" if uses else "restricted"
    guess = Guess(function.name, function.lineno, touches, "full", None)
    weakest = max((CLASSES.index(_METHOD_NEEDS.get(_method(use), CLASSES[0])) for use in uses), default=0)
    for effect in CLASSES[weakest:]:
        spec = spec_of(name=function.name, capabilities=guess.capabilities, effect=effect, sandbox=walled)
        errors = {finding.code for finding in judge(spec, walled, reached) if finding.severity == "error"}
        if errors <= _FAILS_BEHIND_WALLS:
            return replace(guess, effect=effect, sandbox=None if errors else walled)
    return guess


def _method(use: Use) -> str:
    return split_text(use.rule)[2].partition("@")[0] if use.kind == "network" and "@" in use.rule else ""


def _touch(use: Use) -> Touch | None:
    category = _CATEGORIES.get(use.kind)
    if category is None or not use.rule:
        return None
    scope = split_text(use.rule)[2]
    if category == "network":
        scope = scope.rpartition("@")[2]
    # In a secret reference a `/` has a meaning of its own.
    if category == "env" and scope != ANY and is_secret(scope) and "/" not in scope:
        category = "secrets"
    return Touch(category, scope, use.what, use.line)


def _can_be_tool(function: Function) -> bool:
    """Whether `@tool` accepts a function: its name, only named arguments, no untyped context, and not a generator."""
    try:
        checked_name(function.name)
    except Malformed:
        return False
    given = function.args
    if given.posonlyargs or given.vararg or given.kwarg:
        return False
    if any(one.arg in ("ctx", "context") and one.annotation is None for one in (*given.args, *given.kwonlyargs)):
        return False
    return not any(isinstance(node, ast.Yield | ast.YieldFrom) for node in _own_nodes(function))


def _own_nodes(function: Function) -> Iterator[ast.AST]:
    """The nodes of a function's body, without those of functions inside it."""
    waiting: list[ast.AST] = list(function.body)
    while waiting:
        node = waiting.pop()
        yield node
        if not isinstance(node, Function | ast.Lambda | ast.ClassDef):
            waiting += ast.iter_child_nodes(node)


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
    source = Project(shown_path, texts={str(file): data}).read(str(file))
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


def _literal(value: object) -> str:
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
