"""Tools that a manifest names with `from:`, imported. Their code runs, and is held to what a reviewer reads of it.

The directory of the manifest is not put on the import path: a tool that may write there could plant a module for the
next host. Modules of the project come from a list of files that is made before any of them runs.
"""

import importlib
import os
import sys
import sysconfig
import traceback
from collections.abc import Sequence
from pathlib import Path

from msgspec.structs import replace

from licet.core.origin import Origin, Problem
from licet.core.policy.manifest import Manifest
from licet.core.policy.tool import ToolSpec
from licet.declare import Tool
from licet.errors import ManifestError
from licet.modules.finder import KnownModules
from licet.policy_files.policy_paths import policy_root
from licet.policy_files.source.find import Modules, find_tool, shown_file
from licet.policy_files.source.project import ProjectModules, project_modules

_ONLY_NAMED = "what is loaded is installed, or a file of the project that an `import` statement names"
# All that source tells of a tool and that decides about its calls.
_REVIEWED = (
    "name",
    "needs",
    "optional",
    "touches",
    "effect",
    "sandbox",
    "connector",
    "cost_usd",
    "storage_ttl_seconds",
)


def imported_tools(manifest: Manifest) -> list[Tool]:
    """The tools that a manifest names with `from:`, imported from beside its files: their code runs.

    `ManifestError` for one that declares another thing than its source says: nobody has reviewed that.
    """
    roots = code_roots(manifest)
    wanted = {name: source for name, source in manifest.sources.items() if name in manifest.admissions}
    # All of it is read before any of it runs, and could write source.
    modules = Modules()
    reviewed = {
        name: find_tool(said, roots, name=name, origin=at, modules=modules) for name, (said, at) in wanted.items()
    }
    project = project_modules([said for said, _ in wanted.values()], roots)
    if project.doubled:
        hint = "remove one: which of them is loaded would depend on the order in which Python looks"
        raise ManifestError([Problem(manifest.origin, project.doubled, "one of them", hint)])
    _let_import(project, [said.partition(":")[0] for said, _ in wanted.values()])
    return [_placed(_imported(said, roots, at, reviewed[name], project), roots) for name, (said, at) in wanted.items()]


def code_roots(manifest: Manifest) -> list[Path]:
    """The directories below which the tools of a manifest are found."""
    return list(dict.fromkeys(policy_root(Path(file)) for file in manifest.files))


def _let_import(project: ProjectModules, named: Sequence[str]) -> None:
    """Make the modules of a project importable, for good: functions of tools may import some when they are called.

    Modules of the same names that belong to a project which this process has read before are forgotten: a missing
    module is then missing, and not the other project's.
    """
    tops = {name.partition(".")[0] for name in (*project.modules, *named)}
    for earlier in [finder for finder in sys.meta_path if isinstance(finder, KnownModules)]:
        for name in [name for name in earlier.modules if name.partition(".")[0] in tops]:
            place = earlier.modules.pop(name)
            if place != project.modules.get(name):
                sys.modules.pop(name, None)
        if not earlier.modules:
            sys.meta_path.remove(earlier)
    if project.modules:
        sys.meta_path.insert(0, KnownModules(project.modules))


def _imported(
    reference: str, roots: Sequence[Path], origin: Origin, reviewed: ToolSpec | Problem, project: ProjectModules
) -> Tool:
    module, _, attribute = reference.partition(":")
    _check_name(module, reference, origin, project)
    try:
        found = getattr(importlib.import_module(module), attribute)
    except Exception as wrong:  # whatever a file does while it is imported
        notes = (note for note in getattr(wrong, "__notes__", ()) if isinstance(note, str))
        said = "; ".join((f"{type(wrong).__name__}: {wrong}".partition("\n")[0], *notes))
        expected, place = f"a tool that can be imported ({said})", _broken_at(wrong, roots)
        hint = f"it stops at {place}" if place else ""
        if isinstance(wrong, ModuleNotFoundError):
            hint = "; ".join(filter(None, (hint, _ONLY_NAMED)))
        raise ManifestError([Problem(origin, f"`{reference}`", expected, hint)]) from wrong
    if not isinstance(found, Tool):
        raise ManifestError([Problem(origin, f"`{reference}`", "a function declared with `@tool`")])
    if isinstance(reviewed, Problem):
        raise ManifestError([reviewed])
    if part := _unlike(found.spec, reviewed):
        said = f"`{reference}`, which declares a different `{part}` when it runs than in its source ({reviewed.origin})"
        hint = "some code changes it where no reviewer sees it: write it as a literal, in one place"
        raise ManifestError([Problem(origin, said, "the declaration in the source", hint)])
    return found


def _check_name(module: str, reference: str, origin: Origin, project: ProjectModules) -> None:
    """Refuse a module of a project whose name is taken: an import would give another module, or break others."""
    place = project.modules.get(module)
    if place is None:  # licet's own, or there is none, which the import says
        return
    top = module.partition(".")[0]
    loaded = getattr(sys.modules.get(top), "__spec__", None)
    where = loaded.origin if loaded is not None else None
    if top in sys.stdlib_module_names:
        taken = "a module of Python itself"
    elif top in sys.modules and where != project.modules[top].file:
        taken = f"a module that is loaded already ({where or 'it has no file'})"
    else:
        return
    found = f"`{reference}`, whose module has the name of {taken}"
    raise ManifestError(
        [Problem(origin, found, "a name of its own", f"rename `{top}` in {os.path.dirname(_top(project, top))}")]
    )


def _top(project: ProjectModules, top: str) -> str:
    place = project.modules[top]
    return place.directory or place.file or top


def _unlike(running: ToolSpec, reviewed: ToolSpec) -> str:
    """What a tool declares otherwise than its source, or nothing."""
    return next((part for part in _REVIEWED if getattr(running, part) != getattr(reviewed, part)), "")


def _placed(tool: Tool, roots: Sequence[Path]) -> Tool:
    """The tool, with its file named as the manifest was and as a review names it."""
    origin = tool.spec.origin
    if origin is None:
        return tool
    spec = replace(tool.spec, origin=replace(origin, file=_named_from(origin.file, roots) or origin.file))
    return Tool(tool.fn, spec, tool.available, tool.reuse)


def _named_from(file: str, roots: Sequence[Path]) -> str:
    """A file below a directory of the policy, named from there; a ready-made tool as everywhere; or nothing."""
    path = Path(file)
    if (shown := shown_file(path)) != file:
        return shown
    for root in roots:
        if path.is_relative_to(there := os.path.abspath(root)):
            return str(root / path.relative_to(there))
    return ""


def _broken_at(wrong: Exception, roots: Sequence[Path]) -> str:
    """The last line of the policy's own code before an import broke, or nothing if it never came to that."""
    lines = [(frame.filename, frame.lineno) for frame in traceback.extract_tb(wrong.__traceback__)]
    if isinstance(wrong, SyntaxError):
        lines.append((wrong.filename or "", wrong.lineno))
    installed = *(sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib")), str(Path(__file__).parents[1])
    own = [(_named_from(file, roots), line) for file, line in lines if not file.startswith(installed)]
    return next((f"{file}:{line}" for file, line in reversed(own) if file), "")
