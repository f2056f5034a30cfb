"""Tools that a manifest names with `from:`, imported. Their code runs, and is held to what a reviewer reads of it."""

import importlib
import sys
import sysconfig
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from licet.backends.policy_paths import policy_root
from licet.backends.source import find_tool, shown_file
from licet.backends.tool_files import code_directories
from licet.core.manifest import Manifest
from licet.core.origin import Origin, Problem
from licet.core.tool import ToolSpec
from licet.declare import Tool
from licet.errors import ManifestError
from licet.values import replace

# All that source tells of a tool and that decides about its calls.
_REVIEWED = ("name", "needs", "effect", "sandbox", "connector", "cost_usd", "storage_ttl_seconds")


def imported_tools(manifest: Manifest) -> list[Tool]:
    """The tools that a manifest names with `from:`, imported from beside its files: their code runs.

    `ManifestError` for one that declares another thing than its source says: nobody has reviewed that.
    """
    roots = list(dict.fromkeys(policy_root(Path(file)) for file in manifest.files))
    return [
        _placed(_imported(name, reference, roots, origin), roots)
        for name, (reference, origin) in manifest.sources.items()
        if name in manifest.seats
    ]


def _imported(name: str, reference: str, roots: Sequence[Path], origin: Origin) -> Tool:
    reviewed = find_tool(reference, roots, name=name, origin=origin)  # before it runs, and could write its own source
    module, _, attribute = reference.partition(":")
    with _importable([place for root in roots for place in code_directories(str(root.absolute()))]):
        try:
            found = getattr(importlib.import_module(module), attribute)
        except Exception as wrong:  # whatever a file does while it is imported
            said = f"{type(wrong).__name__}: {wrong}".partition("\n")[0]
            expected, place = f"a tool that can be imported ({said})", _broken_at(wrong, roots)
            hint = f"it stops at {place}" if place else ""
            raise ManifestError([Problem(origin, f"`{reference}`", expected, hint)]) from wrong
    if not isinstance(found, Tool):
        raise ManifestError([Problem(origin, f"`{reference}`", "a function declared with `@tool`")])
    if isinstance(reviewed, Problem):
        raise ManifestError([reviewed])
    if part := _unlike(found.spec, reviewed):
        said = f"`{reference}`, whose `{part}` is another when it runs than its source says ({reviewed.origin})"
        hint = "some code changes it where no reviewer sees it: write it as a literal, in one place"
        raise ManifestError([Problem(origin, said, "the declaration in the source", hint)])
    return found


def _unlike(running: ToolSpec, reviewed: ToolSpec) -> str:
    """What a tool declares otherwise than its source, or nothing."""
    return next((part for part in _REVIEWED if getattr(running, part) != getattr(reviewed, part)), "")


def _placed(tool: Tool, roots: Sequence[Path]) -> Tool:
    """The tool, with its file named as the manifest was and as a review names it."""
    origin = tool.spec.origin
    if origin is None:
        return tool
    spec = replace(tool.spec, origin=origin._replace(file=_named_from(origin.file, roots) or origin.file))
    return Tool(tool.fn, spec, tool.available, tool.reuse)


def _named_from(file: str, roots: Sequence[Path]) -> str:
    """A file below a directory of the policy, named from there; a ready-made tool as everywhere; or nothing."""
    path = Path(file)
    if (shown := shown_file(path)) != file:
        return shown
    for root in roots:
        if path.is_relative_to(root.absolute()):
            return str(root / path.relative_to(root.absolute()))
    return ""


def _broken_at(wrong: Exception, roots: Sequence[Path]) -> str:
    """The last line of the policy's own code before an import broke, or nothing if it never came to that."""
    lines = [(frame.filename, frame.lineno) for frame in traceback.extract_tb(wrong.__traceback__)]
    if isinstance(wrong, SyntaxError):
        lines.append((wrong.filename or "", wrong.lineno))
    installed = *(sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib")), str(Path(__file__).parents[1])
    own = [(_named_from(file, roots), line) for file, line in lines if not file.startswith(installed)]
    return next((f"{file}:{line}" for file, line in reversed(own) if file), "")


@contextmanager
def _importable(roots: list[str]) -> Iterator[None]:
    before = list(sys.path)
    sys.path[:0] = roots
    try:
        yield
    finally:
        sys.path[:] = before
