"""Imports the tools that a manifest names with `from:`, and refuses one whose declaration differs from its source.

A reviewer reads the source; the import runs it. So both must declare the same.

The directory of the manifest is not put on the import path: a tool that may write there could plant a module for the
next host. Modules of the project come from a list of files that is made before any of them runs.
"""

import importlib
import os
import sys
import sysconfig
import traceback
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from msgspec.structs import replace

from licet.core.decision.request import Ground
from licet.core.policy.manifest import Manifest
from licet.core.policy.tool import ToolSpec
from licet.core.values import Origin, Problem
from licet.declare import Tool
from licet.declare.decorator import with_spec
from licet.errors import ManifestError
from licet.packages.locked_tools import UnreadableSource, refuse_changed, source_hash
from licet.policy_files.policy_paths import policy_root
from licet.source.declarations import Modules, find_tool, shown_file
from licet.source.finder import InstalledSource, KnownModules
from licet.source.imports import InstalledModule
from licet.source.project import ProjectModules, project_modules

_ONLY_NAMED = "only installed modules and project files that an `import` statement names are loaded"
# The parts of a declaration that decide about calls. They must be the same in the source and after the import.
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
    "reuse",
    "source",
    "args",
    "governed",
)


class LoadedFiles:
    """The files of code that this process has imported for a policy. It cannot import one of them again."""

    def __init__(self) -> None:
        self._hashes: dict[str, str] = {}

    def check(self, files: Iterable[str], origin: Origin) -> dict[str, str]:
        """The hashes of files as they are now; `ManifestError` if one was imported, and is not as it was then."""
        try:
            now = {file: source_hash(file) for file in dict.fromkeys(files)}
        except UnreadableSource as error:
            raise ManifestError([Problem(origin, str(error), "code that can be read")]) from None
        for file, value in now.items():
            if self._hashes.get(file, value) != value:
                found, hint = f"{file}, which has changed since it was imported", "start the command again"
                raise ManifestError([Problem(origin, found, "the code that runs", hint)])
        return now

    def add(self, hashes: Mapping[str, str]) -> None:
        """Files that are imported now."""
        self._hashes |= hashes


def imported_tools(manifest: Manifest, loaded: LoadedFiles | None = None) -> list[Tool]:
    """Import the tools that a manifest names with `from:`; their code runs.

    Raises `ManifestError` for a tool that declares something else than its source, because nobody has reviewed that,
    and `Refused` for one that differs from the lock. A process that may do this again keeps what it has `loaded`.
    """
    roots = code_roots(manifest)
    wanted = {name: source for name, source in manifest.sources.items() if name in manifest.admissions}
    # All source is read before any of it runs, because code that runs could change source.
    modules = Modules()
    installed: list[InstalledModule] = []
    reviewed = {
        name: find_tool(reference, roots, name=name, origin=at, modules=modules, installed=installed)
        for name, (reference, at) in wanted.items()
    }
    project = project_modules([reference for reference, _ in wanted.values()], roots)
    if project.doubled:
        hint = "remove one: which of them is loaded would depend on the order in which Python looks"
        raise ManifestError([Problem(manifest.origin, project.doubled, "one of them", hint)])
    files = [place.file for place in project.modules.values() if place.file]
    files += [*project.wasm, *(file for module in installed for _, file in module.loaded)]
    hashes = loaded.check(files, manifest.origin) if loaded is not None else {}
    refuse_changed(manifest, (spec for spec in reviewed.values() if isinstance(spec, ToolSpec)))
    if loaded is not None:
        loaded.add(hashes)
    _make_importable(project, [reference.partition(":")[0] for reference, _ in wanted.values()])
    _load_from_source(installed, project, manifest.origin)
    tools = [
        _placed(_imported(reference, roots, at, reviewed[name], project), roots)
        for name, (reference, at) in wanted.items()
    ]
    _check_loaded(installed, manifest.origin)
    return tools


def differing_tools(manifest: Manifest, tools: Sequence[Tool]) -> list[Ground]:
    """Why tools are refused that were handed to a gate: the source that `from:` names for them says something else."""
    named = [tool for tool in tools if tool.name in manifest.sources and tool.name in manifest.admissions]
    roots, modules = code_roots(manifest), Modules()
    found: list[Ground] = []
    for tool in named:
        reference, at = manifest.sources[tool.name]
        reviewed = find_tool(reference, roots, name=tool.name, origin=at, modules=modules)
        fix = f"pass the tool that `{reference}` names, as `Gate.load` does, or change `from:`"
        if isinstance(reviewed, Problem):
            text = f"the source of `{tool.name}` cannot be compared with it: found {reviewed.found}"
            found.append(Ground("MANIFEST_CHANGED", text, reviewed.origin, fix))
        elif part := _difference(tool, reviewed):
            text = f"`{tool.name}` has another `{part}` than its source, which the policy names ({reviewed.origin})"
            found.append(Ground("MANIFEST_CHANGED", text, at, fix))
    return found


def code_roots(manifest: Manifest) -> list[Path]:
    """The directories in which the tools of a manifest are searched."""
    return list(dict.fromkeys(policy_root(Path(file)) for file in manifest.files))


def _make_importable(project: ProjectModules, named: Sequence[str]) -> None:
    """Make the modules of a project importable permanently: a tool may import some of them when it is called.

    Modules of the same name from a project that this process loaded earlier are removed from `sys.modules`. A module
    that is missing in this project is then reported as missing, instead of being taken from the other one.
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


def _load_from_source(installed: Sequence[InstalledModule], project: ProjectModules, origin: Origin) -> None:
    """Load the installed packages that tools come from as a review reads them: from source, and from no project."""
    tops = {module.dotted.partition(".")[0] for module in installed}
    for top in sorted(tops & {name.partition(".")[0] for name in project.modules}):
        where = project.modules[top].directory or project.modules[top].file
        found = f"tools of `{top}` in the project ({where}) and of an installed package of that name"
        raise ManifestError([Problem(origin, found, "one of them", "rename the one in the project")])
    finder = next((one for one in sys.meta_path if isinstance(one, InstalledSource)), None)
    if tops and finder is None:
        finder = InstalledSource()
        sys.meta_path.insert(0, finder)
    if finder is not None:
        finder.packages |= tops


def _check_loaded(installed: Sequence[InstalledModule], origin: Origin) -> None:
    """Refuse an installed module if another file of that name was loaded than was read."""
    for name, file in dict.fromkeys(one for module in installed for one in module.loaded):
        loaded = getattr(sys.modules.get(name), "__file__", None)
        if loaded is None or os.path.realpath(loaded) != os.path.realpath(file):
            found, hint = f"`{name}` from {loaded or 'no file'}", "something in this process has loaded another file"
            raise ManifestError([Problem(origin, found, f"the file that was reviewed ({file})", hint)])


def _imported(
    reference: str, roots: Sequence[Path], origin: Origin, reviewed: ToolSpec | Problem, project: ProjectModules
) -> Tool:
    module, _, attribute = reference.partition(":")
    _check_name(module, reference, origin, project)
    if isinstance(reviewed, Problem):  # nothing runs that could not be reviewed
        raise ManifestError([reviewed])
    try:
        found = getattr(importlib.import_module(module), attribute)
    except Exception as wrong:  # whatever a file does while it is imported
        notes = (note for note in getattr(wrong, "__notes__", ()) if isinstance(note, str))
        message = "; ".join((f"{type(wrong).__name__}: {wrong}".partition("\n")[0], *notes))
        expected, place = f"a tool that can be imported ({message})", _broken_at(wrong, roots)
        hint = f"it stops at {place}" if place else ""
        if isinstance(wrong, ModuleNotFoundError):
            hint = "; ".join(filter(None, (hint, _ONLY_NAMED)))
        raise ManifestError([Problem(origin, f"`{reference}`", expected, hint)]) from wrong
    if not isinstance(found, Tool):
        raise ManifestError([Problem(origin, f"`{reference}`", "a tool declared with `@tool` or `Tool.wasm`")])
    if part := _difference(found, reviewed):
        found_text = (
            f"`{reference}`, which declares a different `{part}` when it runs than in its source ({reviewed.origin})"
        )
        hint = "some code changes it where no reviewer sees it: write it as a literal, in one place"
        raise ManifestError([Problem(origin, found_text, "the declaration in the source", hint)])
    return found


def _check_name(module: str, reference: str, origin: Origin, project: ProjectModules) -> None:
    """Refuse a project module whose name is taken: an import would return another module, or break other imports."""
    place = project.modules.get(module)
    if place is None:  # a tool of licet, or a missing module, which the import reports
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


def _difference(tool: Tool, reviewed: ToolSpec) -> str:
    """Return the first part in which a declaration differs from its source; empty if there is none."""
    # The hash of a notebook cell is known only to the running tool; that of a WebAssembly module, to both.
    running = tool.spec if tool.cell is None else replace(tool.spec, source="")
    part = next((part for part in _REVIEWED if getattr(running, part) != getattr(reviewed, part)), "")
    return "module" if part == "source" else part


def _placed(tool: Tool, roots: Sequence[Path]) -> Tool:
    """The tool, with its file named relative to the manifest, as a review names it."""
    origin = tool.spec.origin
    if origin is None:
        return tool
    spec = replace(tool.spec, origin=replace(origin, file=_named_from(origin.file, roots) or origin.file))
    return with_spec(tool, spec)


def _named_from(file: str, roots: Sequence[Path]) -> str:
    """Name a file relative to a directory of the policy, and a file of licet as reviews do; empty for others."""
    path = Path(file)
    if (shown := shown_file(path)) != file:
        return shown
    for root in roots:
        if path.is_relative_to(there := os.path.abspath(root)):
            return str(root / path.relative_to(there))
    return ""


def _broken_at(wrong: Exception, roots: Sequence[Path]) -> str:
    """Return the last line of the policy's own code before an import failed; empty if none of it ran."""
    lines = [(frame.filename, frame.lineno) for frame in traceback.extract_tb(wrong.__traceback__)]
    if isinstance(wrong, SyntaxError):
        lines.append((wrong.filename or "", wrong.lineno))
    installed = *(sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib")), str(Path(__file__).parents[1])
    own = [(_named_from(file, roots), line) for file, line in lines if not file.startswith(installed)]
    return next((f"{file}:{line}" for file, line in reversed(own) if file), "")
