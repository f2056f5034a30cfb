"""Runs `licet lint` over files: finds the tools in them, follows and judges each, and gathers what was found."""

from collections.abc import Iterable, Iterator

from msgspec import Struct
from msgspec.structs import replace

from licet.core.origin import Origin, Problem
from licet.core.policy.effects import Level
from licet.core.policy.tool import ToolSpec
from licet.policy_files.source.declarations import module_in
from licet.surfaces.lint.files import Project
from licet.surfaces.lint.findings import Finding, Severity, place
from licet.surfaces.lint.follow import Follower, FoundImport, Reached
from licet.surfaces.lint.judge import CODE, DOES, judge, merged, unused
from licet.surfaces.lint.packages import Packages, Scanned
from licet.surfaces.lint.scopes import FUNCTION, Function
from licet.surfaces.lint.source_file import SourceFile
from licet.surfaces.lint.suppressions import Suppressing

_DOMAIN_WORDS = {
    "fs": "files",
    "network": "the network",
    "process": "programs",
    "env": "the environment",
    "import": "computed imports",
    "eval": "text as code",
    "foreign": "foreign code",
}


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
    packages: tuple[Scanned, ...]
    suppressed: int

    def count(self, severity: Severity) -> int:
        return sum(finding.severity == severity for finding in self.findings)


class Lint:
    """One run. Files are added first; `report` then judges everything."""

    def __init__(self, project: Project, packages: Packages | None = None) -> None:
        self._project, self._packages = project, packages
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
        packages: dict[str, Scanned] = {}
        for tool in self._tools:
            found += judge(tool.spec, tool.level, tool.reached)
            touched: frozenset[str] = frozenset()
            if self._packages is not None:
                found += _package_findings(tool.reached.imports(), tool.level, tool.spec.name, self._packages, packages)
                touched = _touched(tool, self._packages)
            elif any(tool.reached.imports()):
                touched = frozenset("*")
            origin = tool.spec.origin or Origin(tool.file.text.file, tool.function.lineno, 1)
            ends = tool.function.decorator_list[0].end_lineno if tool.function.decorator_list else 0
            found += (replace(one, end_line=ends or 0) for one in unused(tool.spec, origin, tool.reached, touched))
        for file, reached in self._modules:
            found += _uses_without_tool(file, reached)
            if self._packages is not None:
                own = (one for one in reached.imports() if one.file is file)
                found += _package_findings(own, None, "", self._packages, packages)
        found += [_problem(problem) for problem in self._project.problems()]
        texts = [file.text for file in self._project.files]
        suppressing = Suppressing(texts)
        kept, suppressed = suppressing.kept(merged(found))
        kept += suppressing.problems(self._read_lines())
        kept.sort(key=lambda one: (place(one.origin), one.code, one.found))
        return Report(len(texts), tuple(self._tools), tuple(kept), tuple(packages.values()), suppressed)

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


def _package_findings(
    imports: Iterable[FoundImport], level: Level | None, tool: str, packages: Packages, seen: dict[str, Scanned]
) -> Iterator[Finding]:
    done: set[str] = set()
    for one in imports:
        name = one.imported.package
        if name in done:
            continue
        done.add(name)
        origin = one.file.text.place_at(one.imported.line, one.imported.offset)
        tools = (tool,) if tool else ()
        scanned = packages.scanned(name)
        if scanned is None:
            hint = "install it where licet runs, or in the `.venv` of the project"
            found, expected = f"the package `{name}`, which is not installed here", "a package that can be read"
            yield Finding(origin, found, expected, hint, "note", code="LIC502", tools=tools)
            continue
        seen[name] = scanned
        if not scanned.touches:
            continue
        yield _package_finding(origin, scanned, level, tools)


def _package_finding(origin: Origin, scanned: Scanned, level: Level | None, tools: tuple[str, ...]) -> Finding:
    words = [_DOMAIN_WORDS[kind] for kind in _DOMAIN_WORDS if kind in scanned.touches]
    listed = f"{', '.join(words[:-1])} and {words[-1]}" if len(words) > 1 else words[0]
    first = next(scanned.touches[kind] for kind in _DOMAIN_WORDS if kind in scanned.touches)
    version = f" {scanned.version}" if scanned.version else ""
    found = f"the package `{scanned.name}`{version}, which uses {listed} by itself, such as {first}"
    hints = {
        "restricted": "the walls stop what it does outside of its scratch",
        "isolated": "the walls keep it within what the tool declares and the manifest allows",
        "native": "at `native` nothing keeps it within the declaration, and no receipt shows what it does",
    }
    hint = hints.get(level or "", "walls limit it at `restricted` and `isolated`, nothing does at `native`")
    severity: Severity = "warning" if level == "native" else "note"
    return Finding(origin, found, "a package that only computes", hint, severity, code="LIC501", tools=tools)


def _touched(tool: LintedTool, packages: Packages) -> frozenset[str]:
    """The domains that imported packages may use by themselves; `*` if that is not known."""
    if tool.level == "restricted":
        return frozenset()  # the walls stop everything but handles
    found: set[str] = set()
    for one in tool.reached.imports():
        scanned = packages.scanned(one.imported.package)
        if (
            scanned is None
            or scanned.has_compiled
            or scanned.is_partial
            or scanned.touches.keys() & {"foreign", "eval"}
        ):
            return frozenset("*")
        found |= scanned.touches.keys()
    return frozenset(found | ({"secret"} if "env" in found else set()))
