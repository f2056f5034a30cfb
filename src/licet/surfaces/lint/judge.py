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
"""

from collections.abc import Iterable, Iterator

from msgspec import Struct
from msgspec.structs import replace

from licet.core.algebra.capability import Capability
from licet.core.algebra.domains import TCP, split_text
from licet.core.algebra.set import CapabilitySet
from licet.core.origin import Origin
from licet.core.policy.effects import Level, permits
from licet.core.policy.tool import ToolSpec
from licet.surfaces.lint.findings import Finding, Severity
from licet.surfaces.lint.follow import Piece, Reached
from licet.surfaces.lint.use import Use

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


def unused(spec: ToolSpec, origin: Origin, reached: Reached, touched_by_packages: frozenset[str]) -> Iterator[Finding]:
    """A warning for each declared rule that nothing uses, as far as that can be known.

    `touched_by_packages` are the domains that imported packages use by themselves, or `*` if one of them is not known.
    """
    kinds = {use.kind for use in reached.uses()}
    unknown = {_DOMAINS_OF_HANDLE.get(handle, "*") for handle in reached.escaped()} | touched_by_packages
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
