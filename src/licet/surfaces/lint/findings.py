"""The findings of `licet lint`: the rules by code, and a finding as a problem with its code and the way to its line."""

from typing import Literal

from msgspec import Struct

from licet.core.origin import Origin, Problem
from licet.surfaces.lint.follow import Hop

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
        LintRule("LIC501", "package-touches", "An imported package touches something by itself."),
        LintRule("LIC502", "package-unknown", "An imported package could not be read."),
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
