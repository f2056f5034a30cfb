"""Compares what the code of a tool uses with what the tool declares, at the level that it runs at.

| a line uses               | `restricted`           | `isolated`            | `native`               | not stated |
|---------------------------|------------------------|-----------------------|------------------------|------------|
| what is not declared      | error                  | error                 | error                  | error      |
| a declared thing, raw     | error: the walls stop it | fine: walls check it | warning: nobody checks | warning  |
| a declared variable, raw  | error: it is not there | error: it is not there | warning: nobody checks | warning   |
| files in scratch, raw     | fine                   | fine                  | as any other file      | warning    |
| eval, imports, ctypes     | warning: walls hold    | warning: walls hold   | error: nothing holds   | warning    |
| a name that is not called | warning                | warning               | as if it was called    | warning    |
| an import only for I/O    | fine                   | fine                  | as if it was used      | fine       |

Where the level is not stated, a manifest states it: what not all levels agree on is a warning.

The findings of `licet lint`: the rules by code, and a finding as a problem with its code and the way to its line.

Suppressions in the source: `# licet: ignore[LIC101] reason`, on a line of the code that a finding is about.

A suppression without a reason suppresses nothing, and is a finding itself. So is one that nothing needs.
"""

import io
import re
import tokenize
from collections.abc import Iterable, Iterator
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from licet.core.algebra.domains import TCP, split_text
from licet.core.algebra.rules import Capability
from licet.core.algebra.set import CapabilitySet
from licet.core.policy.layer import Level, permits
from licet.core.policy.tool import ToolSpec
from licet.core.values import Origin, Problem
from licet.source.raw_io import Use
from licet.source.source_files import SourceText
from licet.source.touches import Hop, Piece, Reached

Severity = Literal["error", "warning", "note"]


class LintRule(Struct, frozen=True):
    """One rule: its stable code, its name, and what it reports."""

    code: str
    name: str
    about: str


RULES = {
    rule.code: rule
    for rule in (
        LintRule("LIC101", "undeclared-file", "A file is used that the tool does not declare."),
        LintRule("LIC102", "undeclared-host", "A host is used that the tool does not declare."),
        LintRule("LIC103", "undeclared-program", "A program is started that the tool does not declare."),
        LintRule("LIC104", "undeclared-variable", "A variable is read that the tool does not declare."),
        LintRule("LIC105", "undeclared-secret", "A secret is used that the tool does not declare."),
        LintRule("LIC106", "undeclared-storage", "A store is used that the tool does not declare."),
        LintRule("LIC201", "raw-file", "A declared file is used without `ctx.fs`."),
        LintRule("LIC202", "raw-network", "A declared host is used without `ctx.fetch`."),
        LintRule("LIC203", "raw-program", "A declared program is started without `ctx.process`."),
        LintRule("LIC204", "raw-variable", "A declared variable or secret is read without `ctx.env` or `ctx.secrets`."),
        LintRule("LIC205", "not-permitted", "A declared thing is used in a way that the tool's class does not permit."),
        LintRule("LIC301", "dynamic-import", "A module is imported whose name the source does not show."),
        LintRule("LIC302", "dynamic-code", "Text is run as code."),
        LintRule("LIC303", "foreign-code", "Code that is not Python is called."),
        LintRule(
            "LIC304", "hidden-name", "A module is used as a value, so the source does not show what is used of it."
        ),
        LintRule(
            "LIC305", "direct-import", "At `native`, a module is imported that does nothing but input and output."
        ),
        LintRule("LIC401", "unused-declaration", "Something is declared that no line seems to use."),
        LintRule("LIC601", "unreadable-file", "A file could not be read or parsed."),
        LintRule("LIC602", "unreadable-declaration", "A declaration could not be read, so nothing was compared."),
        LintRule("LIC701", "use-without-tool", "With `--all`: something is used in code that belongs to no tool."),
        LintRule("LIC901", "suppression-without-reason", "A suppression has no reason, so it suppresses nothing."),
        LintRule("LIC902", "unused-suppression", "A suppression suppresses nothing."),
        LintRule("LIC903", "unknown-suppression", "A suppression names no rule."),
    )
}


class Finding(Problem, frozen=True):
    """A problem in the source of a tool. `way` leads from the tool to the line."""

    code: str = ""
    tools: tuple[str, ...] = ()
    rule: str = ""  # the capability that is used, or declared and not used
    way: tuple[Hop, ...] = ()
    end_line: int = 0

    def __str__(self) -> str:
        return f"{super().__str__()}{self.way_text} [{self.code}]"

    @property
    def way_text(self) -> str:
        """The tools that reach the line, and the way of the first; empty if the line is in the one tool itself."""
        names = [hop.name for hop in self.way]
        if names and self.tools and names[0].startswith("import "):
            names = [self.tools[0], *names]
        more = len(self.tools) - 1
        if not names:
            return f" (of {more + 1} tools)" if more > 0 else ""
        others = f", and of {more} more" if more > 0 else ""
        return f" ({' → '.join(names)}{others})" if len(names) > 1 or others else ""


def place(origin: Origin) -> tuple[str, int, int]:
    """A place to sort by."""
    return origin.file, origin.line, origin.column


_UNDECLARED = {"fs": "101", "network": "102", "process": "103", "env": "104", "secret": "105", "storage": "106"}
_RAW = {"fs": "201", "network": "202", "process": "203", "env": "204"}
CODE = {"import": ("301", "imports a module by a computed name"), "eval": ("302", "runs text as code")}
CODE["hidden"] = ("304", "hides which of its names are used")
CODE["foreign"] = ("303", "calls code that is not Python")
DOES = {
    "fs:read": "reads files",
    "fs:write": "writes files",
    "fs:delete": "deletes files",
    "network": "uses the network",
    "process": "starts a program",
    "env": "reads the environment",
    "secret": "uses a secret",
    "storage": "uses a store",
}
_HANDLE = {"fs": "`ctx.fs`", "network": "`ctx.fetch`", "process": "`ctx.process`", "env": "`ctx.env`"}
# Ways to start processes that no level with walls has.
_STOPPED = ("os.fork", "os.exec", "multiprocessing.", "concurrent.futures.", "pty.")
# Code that runs when the module of a tool is imported is not the tool: to declare its uses there would be wrong.
_NOT_AT_IMPORT = "no such use while the module is imported"
_BELOW_MAIN = 'move it below `if __name__ == "__main__":`, or into the tool that needs it'
_EVERY_TCP = CapabilitySet(["network:tcp:*"])
# The domains that each handle of a context can use. The context itself can use all.
_DOMAINS_OF_HANDLE = {"fs": "fs", "fetch": "network", "secrets": "secret", "kv": "storage", "env": "env"}
_DOMAINS_OF_HANDLE["process"] = "process"
_NEVER_UNUSED = frozenset({"tool", "connector"})  # no line of source shows their use
# What a program that the tool starts may use instead of the tool.
_OF_PROGRAMS = frozenset({"fs", "network", "env", "secret"})


class Judged(Struct, frozen=True):
    """A tool as it is compared: its declaration, its level, and what can be held of the declaration."""

    spec: ToolSpec
    level: Level | None

    @property
    def held(self) -> CapabilitySet:
        """What the effect class leaves of the declaration."""
        if self.spec.effect is None:
            return self.spec.touches
        return self.spec.touches & permits(self.spec.effect, _EVERY_TCP)


def judge(spec: ToolSpec, level: Level | None, reached: Reached) -> Iterator[Finding]:
    """The findings about the lines that a tool reaches."""
    tool = Judged(spec, level)
    held = tool.held.allow
    known: dict[tuple[object, ...], Finding | None] = {}  # equal uses are judged once
    for piece in reached.pieces:
        if level == "native":
            found = ((use, _imported(use, tool)) for use in piece.does.modules)
            yield from (_placed(finding, use, piece, reached) for use, finding in found)
        for use in piece.does.uses:
            kind = (use.kind, use.rule, use.exact, use.what, use.called)
            if kind not in known:
                known[kind] = _compared(use, tool, held) if use.rule else _code(use, tool)
            finding = known[kind]
            if finding is not None:
                finding = _placed(finding, use, piece, reached)
                if use.rule and (piece.is_module or finding.way[0].is_import):
                    finding = replace(finding, expected=_NOT_AT_IMPORT, hint=_BELOW_MAIN)
                yield finding


def _placed(finding: Finding, use: Use, piece: Piece, reached: Reached) -> Finding:
    place = piece.file.text.place_at(use.line, use.offset)
    return replace(finding, origin=place, way=reached.way_to(piece), end_line=use.end_line)


def _imported(use: Use, tool: Judged) -> Finding:
    """The import of a module that only does input and output. If the tool declares some of that, nothing checks it."""
    domain = use.rule.partition(":")[0]
    declares = any(rule.domain == domain for rule in tool.held.allow)
    found, hint = f"`import {use.what}`, which {DOES[use.kind]}", "at `native` nothing checks what is done with it"
    return _finding(use, tool, "LIC305", found, _HANDLE[domain], hint, "warning" if declares else "error")


def _code(use: Use, tool: Judged) -> Finding:
    number, does = CODE[use.kind]
    severity: Severity = "error" if tool.level == "native" else "warning"
    hint = "nothing checks what it does then" if tool.level == "native" else "only the walls limit what it does then"
    expected = "code that the source shows"
    return _finding(use, tool, f"LIC{number}", f"`{use.what}`, which {does}", expected, hint, severity)


def _compared(use: Use, tool: Judged, held: Iterable[Capability]) -> Finding | None:
    domain = use.rule.partition(":")[0]
    walled = tool.level in ("restricted", "isolated")
    is_scratch = use.kind == "scratch"
    if is_scratch:
        if walled:
            return None
        use = replace(use, kind="fs:write")
    wanted = _wanted(use, tool.level)
    does = DOES[use.kind]
    if not any(_declares(rule, one, use.exact) for one in wanted for rule in held):
        is_certain = (use.called and not (is_scratch and tool.level is None)) or tool.level == "native"
        severity: Severity = "error" if is_certain else "warning"
        what = f"`{use.what}`{_as_value(use)}, which {does}{_target(use)}"
        if any(_declares(rule, one, use.exact) for one in wanted for rule in tool.spec.touches.allow):
            expected = f"a use that the class `{tool.spec.effect}` permits"
            return _finding(use, tool, "LIC205", what, expected, _class_hint(use), severity)
        expected = f"`{wanted[0]}` in the declaration of `{tool.spec.name}`"
        return _finding(use, tool, f"LIC{_UNDECLARED[domain]}", what, expected, _undeclared_hint(use, tool), severity)
    if not use.is_raw:
        return None
    stopped = tool.level == "isolated" and (domain == "env" or use.what.startswith(_STOPPED))
    if tool.level == "isolated" and not stopped:
        return None
    what = f"`{use.what}`{_as_value(use)}, which {does}{_target(use)} without a handle"
    if walled:
        if domain == "env":
            hint = "behind walls the environment of the host is not there"
        elif stopped:
            hint = "it does not work behind walls"
        else:
            hint = 'the walls stop it; at `sandbox="isolated"` it works within the grant'
        return _finding(
            use, tool, f"LIC{_RAW[domain]}", what, _HANDLE[domain], hint, "error" if use.called else "warning"
        )
    if tool.level == "native":
        hint = "no rule is checked for it and no receipt shows it"
    else:
        hint = "it fails at `restricted`, and nothing checks it at `native`"
    return _finding(use, tool, f"LIC{_RAW[domain]}", what, _HANDLE[domain], hint, "warning")


def _wanted(use: Use, level: Level | None) -> list[Capability]:
    """The rules of which one must be declared. A secret may be read from its variable."""
    rule = Capability(use.rule)
    if use.kind == "env" and use.is_raw:
        try:
            return [rule, Capability(f"secret:read:{rule.scope}")]
        except ValueError:
            return [rule]
    if use.kind == "network" and use.is_raw:
        # The host sees a raw connection as tcp, whatever a library sends on it.
        host = split_text(use.rule)[2].rpartition("@")[2]
        name = "tcp" if level == "isolated" else "*"
        return [Capability(f"network:{name}:*@{host}" if name == "*" else f"network:tcp:{host}")]
    return [rule]


def _declares(rule: Capability, wanted: Capability, exact: bool) -> bool:
    """Whether a declared rule may be about a use. If only a part of its scope is known, an overlap is enough."""
    if rule.domain == wanted.domain == "fs" and _root(rule) != _root(wanted):
        return bool(rule.atoms & wanted.atoms)  # one may be inside the other: it depends on the machine
    common = rule.meet(wanted)
    if common is None:
        return False
    if exact and rule.domain in ("fs", "process", "env", "secret"):
        return rule.covers(wanted) or rule.defers
    return True


def _root(rule: Capability) -> str:
    scope = rule.scope
    return "" if scope == "*" else scope[:1]


def _as_value(use: Use) -> str:
    return "" if use.called else " as a value"


def _target(use: Use) -> str:
    if not use.exact:
        return ""
    return f" ({split_text(use.rule)[2]})"


def _undeclared_hint(use: Use, tool: Judged) -> str:
    if use.kind == "env" and use.is_raw and tool.level in ("restricted", "isolated"):
        return "behind walls the environment of the host is not there: declare it and use `ctx.env`"
    if use.is_raw and tool.level == "restricted":
        return "the walls stop it too: declare it and use a handle, or remove it"
    if (
        use.kind == "network"
        and tool.level == "isolated"
        and any(rule.domain == "network" and not rule.atoms & TCP for rule in tool.spec.touches.allow)
    ):
        return "declare `tcp`, which raw connections need, or use `ctx.fetch`"
    return "declare it, or remove the use"


def _class_hint(use: Use) -> str:
    wider = {"fs:delete": "full", "fs:write": "write_limited", "network": "write_limited"}.get(use.kind, "full")
    return f'set `effect="{wider}"`, or remove the use'


def _finding(use: Use, tool: Judged, code: str, what: str, expected: str, hint: str, severity: Severity) -> Finding:
    """A finding without its place."""
    place = Origin("", 0, 0)
    return Finding(place, what, expected, hint, severity, code=code, tools=(tool.spec.name,), rule=use.rule)


def unused(spec: ToolSpec, origin: Origin, reached: Reached) -> Iterator[Finding]:
    """A warning for each declared rule that nothing uses, as far as that can be known."""
    kinds = {use.kind for use in reached.uses()}
    unknown = {_DOMAINS_OF_HANDLE.get(handle, "*") for handle in reached.escaped()}
    if "*" in unknown or kinds & CODE.keys():
        return
    if "process" in kinds:
        unknown |= _OF_PROGRAMS
    used = [Capability(rule) for rule in dict.fromkeys(use.rule for use in reached.uses()) if rule]
    used += [Capability(f"secret:read:{rule.scope}") for rule in used if rule.domain == "env" and rule.scope != "*"]
    if any(rule.domain == "env" and rule.scope == "*" for rule in used):
        unknown.add("secret")
    for rule in spec.touches.allow:
        if rule.domain in unknown or rule.domain in _NEVER_UNUSED or any(_may_use(rule, one) for one in used):
            continue
        if spec.by_keys and str(rule).startswith("fs:delete:"):
            continue  # `fs_reach.write` means both
        found = f"`{rule}` in the declaration of `{spec.name}`, which nothing seems to use"
        expected, hint = "a declaration of what the tool uses", "remove it; a manifest grants what is declared"
        yield Finding(origin, found, expected, hint, "warning", code="LIC401", tools=(spec.name,), rule=str(rule))


def _may_use(rule: Capability, use: Capability) -> bool:
    if rule.domain == use.domain == "fs" and _root(rule) != _root(use):
        return bool(rule.atoms & use.atoms)
    return rule.meet(use) is not None


def merged(findings: Iterable[Finding]) -> list[Finding]:
    """One finding for each line and code, with all tools that reach it; the most severe counts."""
    found: dict[tuple[Origin, str, str], Finding] = {}
    order = ("error", "warning", "note")
    for finding in findings:
        key = (finding.origin, finding.code, finding.found.partition(",")[0])
        known = found.get(key)
        if known is None:
            found[key] = finding
            continue
        first = min(known, finding, key=lambda one: order.index(one.severity))
        tools = dict.fromkeys((*known.tools, *finding.tools))
        found[key] = replace(first, tools=tuple(tools))
    return list(found.values())


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
