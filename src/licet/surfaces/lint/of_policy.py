"""Lints the tools that a manifest names with `from:`, each at the level that it runs at under the manifest."""

from collections.abc import Iterator

from msgspec.structs import replace

from licet.core.decision.reach import reach_of
from licet.core.origin import Problem
from licet.core.policy.effects import Level
from licet.core.policy.manifest import Manifest
from licet.core.policy.tool import ToolSpec
from licet.surfaces.lint.files import Project
from licet.surfaces.lint.findings import Finding
from licet.surfaces.lint.run import Lint

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
