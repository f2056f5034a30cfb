"""Pins the installed distributions that tools come from, and compares them with `licet.lock`. Nothing is imported."""

from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from pathlib import Path

from licet.backends.installed_files import Distribution, UnknownDistribution, distributions_of
from licet.core.origin import Origin, Problem
from licet.core.policy.lock import LockedDistribution
from licet.core.policy.lock_changes import distribution_difference
from licet.core.policy.manifest import Manifest
from licet.policy_files.policy_paths import policy_root
from licet.policy_files.source.find import Modules, find_tool
from licet.policy_files.source.installed import InstalledModule

_MOST_NAMED = 5  # files that one message names
_REINSTALL = "install its distribution again with pip or uv, without `-e`"
_REVIEW = "install the version that was locked, or review this one and take it with `licet lock --update`"


class ToolDistributions:
    """The installed distributions that some tools of a manifest come from."""

    def __init__(self, manifest: Manifest, tools: Iterable[str]) -> None:
        self._manifest = manifest
        self._tools = [name for name in tools if name in manifest.sources]

    @cached_property
    def modules(self) -> Mapping[str, list[InstalledModule]]:
        """By tool, the modules of installed packages that its declaration is read from."""
        roots = list(dict.fromkeys(policy_root(Path(file)) for file in self._manifest.files))
        modules, found = Modules(), {}
        for name in self._tools:
            steps: list[InstalledModule] = []
            reference, origin = self._manifest.sources[name]
            find_tool(reference, roots, origin=origin, modules=modules, installed=steps)
            found[name] = steps
        return found

    @cached_property
    def _read(self) -> tuple[dict[str, Distribution], list[Problem]]:
        found: dict[str, Distribution] = {}
        problems: list[Problem] = []
        for name, steps in self.modules.items():
            origin = self._manifest.sources[name][1]
            for module in steps:
                try:
                    for one in distributions_of(module):
                        if (known := found.setdefault(one.name, one)).entry != one.entry:
                            text = f"{one.name} in {known.entry} and in {one.entry}"
                            problems.append(Problem(origin, text, "it in one of them", "uninstall the other"))
                except UnknownDistribution as wrong:
                    expected = "a file of one installed distribution, which a lock can pin"
                    problems.append(Problem(origin, str(wrong), expected, _REINSTALL))
        return found, list(dict.fromkeys(problems))

    @property
    def installed(self) -> Mapping[str, Distribution]:
        """The distributions by name."""
        return self._read[0]

    @property
    def problems(self) -> Iterator[Problem]:
        """Why they cannot be locked: a module without a distribution, or files that were changed after installing."""
        yield from self._read[1]
        for one in self.installed.values():
            if changes := one.changes:
                found = f"{one.name} {one.version}, which is not as it was installed: {_few(changes)}"
                hint = "install it again; if the change is yours, put the tool into the project"
                yield Problem(self._origin(one), found, "the files that its RECORD lists", hint)

    def locked(self) -> dict[str, LockedDistribution]:
        """The lock entries of these distributions, on this platform."""
        return {name: _locked(one) for name, one in self.installed.items()}

    def differences(self, locked: Mapping[str, LockedDistribution]) -> Iterator[tuple[str, str]]:
        """What differs from a lock, and what to do about it."""
        for problem in self._read[1]:
            yield f"a tool comes from {problem.found}, so it cannot be compared with the lock", problem.hint
        for name, one in self.installed.items():
            was, now = locked.get(name), _locked(one)
            if was is None:
                yield f"the distribution {name}, which tools come from, is not in the lock", _REVIEW
            elif was.version != one.version:
                yield f"{name} has {distribution_difference(was, now)} since it was locked", _REVIEW
            elif not was.accepts(now):
                built = "it is another build of this version, or for another platform"
                yield f"{name} {one.version} has other files than were locked: {_few(one.changes) or built}", _REVIEW

    def has(self, tool: str, file: str) -> bool:
        """Whether a file belongs to a distribution that a tool comes from."""
        return bool(self.modules.get(tool)) and any(one.has(file) for one in self.installed.values())

    def _origin(self, one: Distribution) -> Origin:
        names = (name for name, steps in self.modules.items() if any(step.entry == one.entry for step in steps))
        return self._manifest.sources[next(names)][1]


def _locked(one: Distribution) -> LockedDistribution:
    from licet.backends.packages.pypi import platform_tag

    return LockedDistribution(one.version, {platform_tag(): one.digest})


def _few(changes: list[str]) -> str:
    more = f" and {len(changes) - _MOST_NAMED} more" if len(changes) > _MOST_NAMED else ""
    return f"{', '.join(changes[:_MOST_NAMED])}{more}"
