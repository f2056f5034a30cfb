"""Compares the tools of a workspace with `licet.lock`: what each declares, and the source files that it loads.

Source is read and hashed, never imported. Of installed packages, the distributions that tools come from are hashed
(`distributions.py`); what these or project files import from others is not, nor is licet itself.

The tools of a manifest on this machine: those of a server whose package the lock does not pin for it are withheld.

This is known before any server starts. The gateway does not list such a tool, and `check` and `surface` say why.
"""

import hashlib
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from msgspec.structs import replace

from licet.core.algebra.scope import inside
from licet.core.decision.decision import Deny
from licet.core.decision.request import Ground, Request
from licet.core.policy.lock import LockedServer, LockedTool
from licet.core.policy.lock_changes import tool_difference
from licet.core.policy.manifest import Manifest
from licet.core.policy.servers import tool_parts
from licet.core.policy.tool import ToolSpec
from licet.core.values import Origin
from licet.declare import Tool
from licet.errors import LicetError, Refused
from licet.own_files import read_regular
from licet.packages.limits import LARGEST_LOCKED_SOURCE
from licet.policy_files.policy_paths import LOCK_FILE, policy_root

_UPDATE = "review it, then take it with `licet lock --update`"
_DECLARE = "declare it under `tools` of the workspace with `from:`, then run `licet lock --update`"


class UnreadableSource(LicetError):
    """A source file of a tool that cannot be hashed."""


def locked_tools(manifest: Manifest, specs: Iterable[ToolSpec]) -> dict[str, LockedTool]:
    """What a lock says about some tools of a manifest. Raises `UnreadableSource`.

    A digest here leaves out the schema of the arguments, which is known only after an import. The source has it.
    """
    files = _Sources(manifest)
    return {
        spec.name: LockedTool(replace(spec, schema=None).digest, files.of(manifest.sources[spec.name][0]))
        if spec.name in manifest.sources
        else LockedTool(replace(spec, schema=None).digest)
        for spec in specs
    }


class _Sources:
    """The hashes of the project files that tools load. Each file is read once."""

    def __init__(self, manifest: Manifest) -> None:
        self._roots = list(dict.fromkeys(os.path.abspath(policy_root(Path(file))) for file in manifest.files))
        self._hashes: dict[str, str] = {}
        self._modules: dict[str, dict[str, str]] = {}

    def of(self, reference: str) -> dict[str, str]:
        """By path from the root of the workspace, the hash of each file that `pkg.mod:function` loads."""
        from licet.source.project import project_modules

        module = reference.partition(":")[0]
        if module not in self._modules:
            project = project_modules([reference], self._roots)
            files = [place.file for place in project.modules.values() if place.file]
            # The digest of a tool covers its WebAssembly module, so one outside of the root need not have a name here.
            files += [file for file in project.wasm if self._is_inside(file)]
            self._modules[module] = {self._name(file): self._hash(file) for file in files}
        return self._modules[module]

    def _is_inside(self, file: str) -> bool:
        return inside(os.path.abspath(file), self._roots)

    def _name(self, file: str) -> str:
        file = os.path.abspath(file)
        for root in self._roots:
            if inside(file, (root,)):
                return Path(file).relative_to(root).as_posix()
        raise UnreadableSource(f"{file} is outside of the directory of the policy, so no lock can name it")

    def _hash(self, file: str) -> str:
        if file not in self._hashes:
            self._hashes[file] = source_hash(file)
        return self._hashes[file]


def source_hash(file: str) -> str:
    """The hash of a source file. Raises `UnreadableSource`."""
    try:
        return f"sha256:{hashlib.sha256(read_regular(file, LARGEST_LOCKED_SOURCE)).hexdigest()}"
    except OSError as wrong:
        raise UnreadableSource(f"{file} cannot be read: {(wrong.strerror or str(wrong)).lower()}") from None


# What a gate refuses --------------------------------------------------------------------------------------------------


def changed_tools(manifest: Manifest, tools: Sequence[Tool]) -> Sequence[Ground]:
    """Why a gate refuses some of its tools: the lock next to its manifest does not have them as they are now.

    A lock without `tools` says nothing about tools. Tools of servers are compared with their server's definitions.
    """
    admitted = [tool for tool in tools if tool.in_lock and tool.name in manifest.admissions]
    return [
        *changed_specs(manifest, [_declared(tool, manifest) for tool in admitted]),
        *_other_code(manifest, admitted),
    ]


def refuse_changed(manifest: Manifest, specs: Iterable[ToolSpec]) -> None:
    """Raise `Refused` if tools, as their source declares them, differ from the lock next to a manifest."""
    if grounds := changed_specs(manifest, specs):
        raise Refused(Deny(Request(manifest.agent), tuple(grounds)))


def changed_specs(manifest: Manifest, specs: Iterable[ToolSpec]) -> list[Ground]:
    """Why tools with these declarations are refused; empty if the lock has all of them as they are now."""
    lock = manifest.lock
    if lock is None or not lock.tools:
        return []
    specs = [spec for spec in specs if tool_parts(spec.name, manifest.servers) is None]
    try:
        now = locked_tools(manifest, specs)
    except UnreadableSource as wrong:
        return [_ground(manifest, f"the source of its tools cannot be compared with the lock: {wrong}", _UPDATE)]
    changed = [
        _ground(manifest, f"`{name}` {why}", _UPDATE if name in lock.tools or name in manifest.sources else _DECLARE)
        for name, tool in now.items()
        if (why := _since(tool_difference(lock.tools.get(name), tool)))
    ]
    if manifest.sources.keys().isdisjoint(now):
        return changed
    from licet.packages.distributions import ToolDistributions

    installed = ToolDistributions(manifest, now)
    return changed + [_ground(manifest, text, fix) for text, fix in installed.differences(lock.distributions)]


def _since(difference: str) -> str:
    return f"{difference} since it was locked" if difference and "is not in" not in difference else difference


def _declared(tool: Tool, manifest: Manifest) -> ToolSpec:
    """The declaration that is compared: that of the files if they have one inline, else that of the code."""
    return tool.spec if tool.name in manifest.sources else manifest.tools.get(tool.name, tool.spec)


def _other_code(manifest: Manifest, tools: Sequence[Tool]) -> Iterator[Ground]:
    """Refuse a function from a file that was not locked: a tool of the same name and declaration from elsewhere."""
    locked: Mapping[str, LockedTool] = manifest.lock.tools if manifest.lock is not None else {}
    named = [tool for tool in tools if tool.name in locked and tool.name in manifest.sources]
    if not named:
        return
    from licet.packages.distributions import ToolDistributions

    installed = ToolDistributions(manifest, [tool.name for tool in named])
    for tool in named:
        sources = locked[tool.name].sources
        code = getattr(tool.fn, "__code__", None)
        if code is None or not (sources or installed.modules[tool.name]):
            continue
        try:
            known = source_hash(code.co_filename) in sources.values() or installed.has(tool.name, code.co_filename)
        except UnreadableSource:
            known = False
        if not known:
            text = f"the code of `{tool.name}` is not in a file that was locked"
            yield _ground(manifest, text, "pass the tool that `from:` names, or run `licet lock --update`")


def _ground(manifest: Manifest, text: str, fix: str) -> Ground:
    folder = os.path.dirname(manifest.files[0]) if manifest.files else ""
    return Ground("MANIFEST_CHANGED", text, Origin(os.path.join(folder, LOCK_FILE), 1, 1), fix)


def pinned_here(manifest: Manifest) -> Manifest:
    """The manifest without the tools of servers that the lock does not pin for this platform."""
    unpinned = set(_unpinned(manifest))
    if not unpinned:
        return manifest
    whose = {name: parts[0] for name in manifest.tools if (parts := tool_parts(name, manifest.servers)) is not None}
    withheld = {
        name: f"licet.lock does not have the server `{server}` for this platform: run `licet lock --update` here"
        for name, server in whose.items()
        if server in unpinned
    }
    return replace(
        manifest,
        tools={name: spec for name, spec in manifest.tools.items() if name not in withheld},
        withheld={**manifest.withheld, **withheld},
        loaded=manifest.loaded or manifest,
    )


def _unpinned(manifest: Manifest) -> Iterator[str]:
    for name, locked in (manifest.lock.servers if manifest.lock is not None else {}).items():
        if name in manifest.servers and locked.command and not is_pinned(locked):
            yield name


def is_pinned(locked: LockedServer) -> bool:
    """Whether a lock says what a server starts on this platform."""
    from licet.packages.server_packages import PackageError, is_pinned_here  # not needed by policies without servers

    try:
        return locked.resolved is not None and is_pinned_here(locked.resolved)
    except PackageError:
        return False
