"""Runs `licet lint` over files: finds the tools in them, follows and judges each, and gathers what was found.

The source files of a project: found by module name below some directories, read once, and never imported.

Lints the tools that a manifest names with `from:`, each at the level that it runs at under the manifest.
"""

import os
import sys
from collections.abc import Iterable, Iterator, Mapping

from msgspec import Struct
from msgspec.structs import replace

from licet.core.decision.reach import reach_of
from licet.core.policy.layer import Level
from licet.core.policy.manifest import Manifest
from licet.core.policy.tool import ToolSpec
from licet.core.values import Origin, Problem
from licet.lint.judge import CODE, DOES, Finding, Severity, Suppressing, judge, merged, place, unused
from licet.own_files import read_regular
from licet.policy_files.policy_paths import shown_path
from licet.source.declarations import module_in
from licet.source.imports import token_count
from licet.source.meaning import Finder, SourceFile
from licet.source.scopes import FUNCTION, Function
from licet.source.text import parse, read_bytes
from licet.source.touches import Follower, Reached

MOST_TOKENS = 500_000  # of all files that are parsed in one run, which takes about 450 MB: some 45,000 lines
_MOST_SEARCHED = 1 << 20  # of one file; a longer one is not parsed
_OURS = "licet"
_LIBRARIES = ("site-packages", "dist-packages")
_NOT_OURS = frozenset({"__pycache__", "node_modules", "site-packages", "dist-packages", "build", "dist"})


class Project(Finder):
    """Reads files by path or by module name.

    `most_tokens` bounds what one run parses. `texts` are files whose contents are given, such as those of an editor.
    """

    def __init__(
        self, roots: Iterable[str] = (), most_tokens: int = MOST_TOKENS, texts: Mapping[str, bytes] | None = None
    ) -> None:
        # Directories to search. In a directory of installed packages, only those that files were named of.
        self._roots: dict[str, set[str] | None] = dict.fromkeys(map(os.path.abspath, roots))
        self._files: dict[str, SourceFile | Problem] = {}  # by real path
        self._found: dict[str, SourceFile | None] = {}  # by module name
        self._tops: dict[str, bool] = {}
        self._most, self._tokens = most_tokens, 0
        self._uncounted: list[bytes] = []  # counting is slow, and no file has more tokens than bytes
        self._given = {os.path.abspath(path): data for path, data in (texts or {}).items()}

    def may_have_tools(self, path: str) -> bool:
        """Whether the text of a file can have a tool of licet at all; if it cannot be read, parsing reports it."""
        given = self._given.get(os.path.abspath(path))
        if given is None:
            try:
                given = read_regular(path, _MOST_SEARCHED)
            except (OSError, ValueError):
                return True
        return b"licet" in given and b"tool" in given

    @property
    def files(self) -> Iterator[SourceFile]:
        """All files that were read and parsed."""
        return (file for file in self._files.values() if isinstance(file, SourceFile))

    def problems(self) -> Iterator[Problem]:
        """Why files could not be read, each file once."""
        return (file for file in self._files.values() if isinstance(file, Problem))

    def read(self, path: str) -> SourceFile | Problem:
        """Read one file, and take the directory of its outermost package as a place of the project."""
        path = os.path.abspath(path)
        root = os.path.dirname(path)
        while os.path.isfile(os.path.join(root, "__init__.py")) and os.path.dirname(root) != root:
            root = os.path.dirname(root)
        dotted = os.path.relpath(path, root).removesuffix(".py").replace(os.sep, ".")
        top = dotted.partition(".")[0]
        if root not in self._roots or top not in (self._roots[root] or (top,)):
            only = {top} if os.path.basename(root) in _LIBRARIES else None
            self._roots[root] = only and only | (self._roots.get(root) or set())
            self._tops.clear()
            self._found = {name: found for name, found in self._found.items() if found is not None}
        is_package = os.path.basename(path) == "__init__.py"
        return self._parsed(path, dotted.removesuffix(".__init__") if is_package else dotted, is_package)

    def find(self, module: str) -> SourceFile | None:
        """The file of a module of the project; None if it is not a part of the project, or cannot be read."""
        if module not in self._found:
            self._found[module] = self._located(module)
        return self._found[module]

    def has(self, top: str) -> bool:
        """Whether a top-level name is of the project."""
        if top not in self._tops:
            paths = [os.path.join(root, top) for root, only in self._roots.items() if only is None or top in only]
            there = any(os.path.isdir(one) or os.path.isfile(f"{one}.py") for one in paths)
            self._tops[top] = there and top not in sys.stdlib_module_names
        return self._tops[top]

    def _located(self, module: str) -> SourceFile | None:
        top = module.partition(".")[0]
        # What tools import of licet has entries in the table; only the ready-made tools are read.
        if top == _OURS and module.split(".")[1:2] != ["tools"]:
            return None
        if not self.has(top) or not all(map(str.isidentifier, module.split("."))):
            return None
        for root, only in self._roots.items():
            if only is not None and top not in only:
                continue
            below = os.path.join(root, *module.split("."))
            for path, is_package in ((os.path.join(below, "__init__.py"), True), (f"{below}.py", False)):
                if os.path.isfile(path):
                    found = self._parsed(path, module, is_package)
                    return found if isinstance(found, SourceFile) else None
        return None

    def _parsed(self, path: str, module: str, is_package: bool) -> SourceFile | Problem:
        real = os.path.realpath(path)
        if real not in self._files:
            self._files[real] = self._file(path, module, is_package)
        return self._files[real]

    def _file(self, path: str, module: str, is_package: bool) -> SourceFile | Problem:
        shown = shown_path(path)
        data = self._given.get(path) or read_bytes(path, shown)
        if isinstance(data, Problem):
            return data
        if not self._fits(data):
            found, most = "more source than one run reads", f"at most {self._most} tokens of tools and helpers"
            return Problem(Origin(shown, 1, 1), found, most, "name fewer files", "warning")
        text = parse(data, shown)
        return text if isinstance(text, Problem) else SourceFile(path, module, is_package, text, self)

    def _fits(self, data: bytes) -> bool:
        """Whether a file fits the limit of tokens with all files before it; if it does, it counts."""
        if self._tokens + sum(map(len, self._uncounted)) + len(data) <= self._most:
            self._uncounted.append(data)
            return True
        self._tokens += sum(token_count(one.decode(errors="replace")) for one in self._uncounted)
        self._uncounted.clear()
        tokens = token_count(data.decode(errors="replace"))
        if self._tokens + tokens > self._most:
            return False
        self._tokens += tokens
        return True


def python_files(paths: Iterable[str]) -> Iterator[str]:
    """The Python files among some paths and below the directories among them, without hidden and installed ones."""
    for path in paths:
        if not os.path.isdir(path):
            yield path
            continue
        for folder, names, files in os.walk(path):
            kept = (name for name in names if name[0] != "." and name not in _NOT_OURS)
            names[:] = sorted(name for name in kept if not os.path.isfile(os.path.join(folder, name, "pyvenv.cfg")))
            yield from (os.path.join(folder, name) for name in sorted(files) if name.endswith(".py"))


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
            function = next((what for how, what, _ in bindings if how == FUNCTION), None)
            if declared.spec is None or not isinstance(function, Function):
                self._findings += [_unreadable(problem) for problem in declared.problems]
            else:
                yield declared.spec, function, declared.spec.sandbox

    def report(self) -> Report:
        """Judge all tools that were added."""
        found: list[Finding] = list(self._findings)
        for tool in self._tools:
            found += judge(tool.spec, tool.level, tool.reached)
            # What a package does by itself is not read. At `restricted` the walls stop everything but handles.
            unknown = tool.level != "restricted" and any(tool.reached.imports())
            touched = frozenset("*" if unknown else "")
            origin = tool.spec.origin or Origin(tool.file.text.file, tool.function.lineno, 1)
            ends = tool.function.decorator_list[0].end_lineno if tool.function.decorator_list else 0
            found += (replace(one, end_line=ends or 0) for one in unused(tool.spec, origin, tool.reached, touched))
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
    by_line = {
        mark.lineno: what
        for bindings in file.scope.bindings.values()
        for _, what, _ in bindings
        if isinstance(what, Function)
        for mark in what.decorator_list
    }
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
_MOST_TOKENS = 60_000  # in one check, whose memory is bounded; `licet lint` reads more
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
    lint = Lint(Project(most_tokens=_MOST_TOKENS))
    for file, tools in by_file.items():
        lint.add_tools(file, tools)
    for finding in lint.report().findings:
        if finding.severity == "error" and finding.code.startswith(_LINES):
            yield _as_warning(finding) if finding.code.startswith(_NOT_OF_THE_POLICY) else finding


def _as_warning(finding: Finding) -> Finding:
    return replace(finding, severity="warning", hint=f"{finding.hint}; an error of `licet lint`, not of the policy")
