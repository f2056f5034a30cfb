"""Runs `licet lint` over files: finds the tools in them, follows and judges each, and gathers what was found.

The tools that a manifest names with `from:` are judged each at the level that it runs at under the manifest.
"""

from collections.abc import Iterable, Iterator

from msgspec import Struct
from msgspec.structs import replace

from licet.core.decision.reach import reach_of
from licet.core.policy.layer import Level
from licet.core.policy.manifest import Manifest
from licet.core.policy.tool import ToolSpec
from licet.core.values import Origin, Problem
from licet.lint.judge import CODE, DOES, Finding, Severity, Suppressing, judge, merged, place, unused
from licet.lint.limits import MOST_TOKENS_IN_CHECK
from licet.policy_files.policy_paths import shown_path
from licet.source.declarations import module_in
from licet.source.files import Project, SourceFile
from licet.source.scopes import Function
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
