"""Chooses the versions of a package of PyPI and of all that it needs, from the metadata of wheels alone.

Nothing but a name with versions is ever asked for. A requirement with an address (a URL, a repository, a path), and a
name without a wheel, are refused before anything of them is fetched: what is not a wheel would run code to be read.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from msgspec import Struct
from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import Version
from resolvelib import AbstractProvider, BaseReporter, ResolutionImpossible, ResolutionTooDeep, Resolver
from resolvelib.structs import RequirementInformation

from licet.backends.packages.errors import PackageError
from licet.backends.packages.pip import NOT_BUILT, NoWheel, Pip
from licet.backends.packages.wheels import needs_of_wheel
from licet.core.algebra.scope import visible

__all__ = ["choose_wheels"]

_MOST_ROUNDS = 10_000
_MOST_LEVELS = 20
_MOST_CAUSES = 6
_THE_COMMAND = "the command"


class _Want(Struct, frozen=True):
    """A package that somebody needs; with an `extra`, also what that extra needs."""

    name: str
    extra: str
    versions: SpecifierSet
    by: str

    def __str__(self) -> str:
        extra = f"[{self.extra}]" if self.extra else ""
        return f"{self.by} needs `{visible(f'{self.name}{extra}{self.versions}')}`"


class _Choice(Struct, frozen=True):
    name: str
    extra: str
    version: Version


_Key = tuple[str, str]  # name and extra


def choose_wheels(wanted: Sequence[str], pip: Pip, same: Mapping[str, str]) -> Mapping[str, Path]:
    """Fetch the wheels that requirements need, each under its pin: `name==version`.

    A package that `same` names has that version, if it is needed. Raises `PackageError`, with who needs what.
    """
    try:
        return _chosen(wanted, pip, same)
    except PackageError as wrong:
        if pip.unreached and pip.unreached not in str(wrong):  # it may have what was not found
            raise PackageError(f"{wrong}{pip.unreached}") from None
        raise


def _chosen(wanted: Sequence[str], pip: Pip, same: Mapping[str, str]) -> Mapping[str, Path]:
    index = _Index(pip, same)
    wants = [want for text in wanted for want in _wants(text, _THE_COMMAND, "")]
    index.guess(wants)
    try:
        found = Resolver(_Provider(index), BaseReporter[_Want, _Choice, _Key]()).resolve(wants, _MOST_ROUNDS)
    except ResolutionImpossible as impossible:
        causes = list(dict.fromkeys(str(cause.requirement) for cause in impossible.causes))
        raise PackageError(f"no versions fit together: {'; '.join(causes[:_MOST_CAUSES])}") from None
    except ResolutionTooDeep:
        raise PackageError(f"no versions that fit together were found for {' and '.join(wanted)}") from None
    chosen = {(choice.name, choice.version) for choice in found.mapping.values()}
    return {f"{name}=={version}": index.path(name, version) for name, version in sorted(chosen)}


def _wants(text: str, by: str, extra: str) -> Iterator[_Want]:
    """What a line `Requires-Dist` asks for on this machine, if its package is used with an extra."""
    try:
        requirement = Requirement(text)
    except InvalidRequirement:
        raise PackageError(f"{by} needs `{visible(text)}`, which is no requirement that can be read") from None
    if requirement.marker is not None and not requirement.marker.evaluate({"extra": extra}):
        return
    if requirement.url:
        raise PackageError(
            f"{by} needs `{visible(text)}`, which is an address and no name in an index: nothing is fetched from it; "
            f"{NOT_BUILT}"
        )
    for one in ("", *sorted(canonicalize_name(extra) for extra in requirement.extras)):
        yield _Want(str(canonicalize_name(requirement.name)), one, requirement.specifier, by)


class _Index:
    """The wheels that pip finds: those that were fetched, and on demand others."""

    def __init__(self, pip: Pip, same: Mapping[str, str]) -> None:
        self._pip = pip
        self._same = {name: SpecifierSet(f"=={version}") for name, version in same.items()}
        self._wheels: dict[tuple[str, Version], tuple[Path, Sequence[str]]] = {}
        self._guessed: dict[str, Version] = {}
        self._answers: dict[tuple[str, str], Version | None] = {}  # of name and versions
        self._asked = 0

    def path(self, name: str, version: Version) -> Path:
        return self._wheels[name, version][0]

    def needs(self, choice: _Choice) -> list[_Want]:
        """What a chosen wheel needs; of an extra, the wheel itself too."""
        _, lines = self._wheels[choice.name, choice.version]
        by = f"{choice.name} {choice.version}"
        found = [want for line in lines for want in _wants(line, by, choice.extra)]
        if choice.extra:
            found.append(_Want(choice.name, "", SpecifierSet(f"=={choice.version}"), by))
        return found

    def guess(self, wants: Iterable[_Want]) -> None:
        """Fetch the newest of what is needed, all of one level at once: one pip for each takes far longer."""
        for _ in range(_MOST_LEVELS):
            needed: dict[str, SpecifierSet] = {}
            left, seen = list(wants), set[_Key]()
            while left:
                want = left.pop()
                needed[want.name] = needed.get(want.name, SpecifierSet()) & want.versions
                known = self._guessed.get(want.name)
                if known is not None and (want.name, want.extra) not in seen:
                    seen.add((want.name, want.extra))
                    left += self.needs(_Choice(want.name, want.extra, known))
            missing = {
                name: versions
                for name, versions in needed.items()
                if name not in self._guessed or not versions.contains(self._guessed[name], prereleases=True)
            }
            try:
                if not missing:
                    return
                self._guessed |= self._ask(missing)
            except NoWheel:  # of one of them: which one, and who needs it, `versions` says, and refuses
                return

    def versions(self, name: str, wants: Sequence[_Want]) -> Iterator[Version]:
        """The versions that fit all of the wants, as long as somebody asks for the next one."""
        fit = SpecifierSet()
        for want in wants:
            fit &= want.versions
        guessed = self._guessed.get(name)
        if guessed is not None and fit.contains(guessed, prereleases=True):
            yield guessed
        left = fit
        while (version := self._newest(name, left)) is not None:
            if version != guessed:
                yield version
            left &= SpecifierSet(f"!={version}")
        if left == fit and len({want.by for want in wants}) == 1:
            raise PackageError(
                f"{wants[0]}, of which the index has no wheel that fits this machine: check the name; {NOT_BUILT}"
            )

    def _newest(self, name: str, versions: SpecifierSet) -> Version | None:
        key = (name, str(versions))
        if key not in self._answers:
            try:
                self._answers[key] = self._ask({name: versions})[name]
            except NoWheel:
                self._answers[key] = None
        return self._answers[key]

    def _ask(self, needed: Mapping[str, SpecifierSet]) -> dict[str, Version]:
        limited = {name: versions & self._same.get(name, SpecifierSet()) for name, versions in needed.items()}
        self._asked += 1
        place = f"asked-{self._asked}"
        found = {}
        for pin, path in self._pip.wheels([f"{name}{versions}" for name, versions in limited.items()], place).items():
            name, _, version = pin.partition("==")
            found[name] = Version(version)
            self._wheels.setdefault((name, found[name]), (path, needs_of_wheel(path)))
        if found.keys() != needed.keys():
            raise PackageError(f"pip fetched {', '.join(sorted(found))}, and was asked for {', '.join(sorted(needed))}")
        return found


class _Provider(AbstractProvider[_Want, _Choice, _Key]):
    """What the resolver asks about packages."""

    def __init__(self, index: _Index) -> None:
        self._index = index
        self._order: dict[_Key, int] = {}

    def identify(self, requirement_or_candidate: _Want | _Choice) -> _Key:
        return requirement_or_candidate.name, requirement_or_candidate.extra

    def get_preference(
        self,
        identifier: _Key,
        resolutions: Mapping[_Key, _Choice],
        candidates: Mapping[_Key, Iterator[_Choice]],
        information: Mapping[_Key, Iterator[RequirementInformation[_Want, _Choice]]],
        backtrack_causes: Sequence[RequirementInformation[_Want, _Choice]],
    ) -> int:
        return self._order.setdefault(identifier, len(self._order))

    def find_matches(
        self,
        identifier: _Key,
        requirements: Mapping[_Key, Iterator[_Want]],
        incompatibilities: Mapping[_Key, Iterator[_Choice]],
    ) -> Callable[[], Iterator[_Choice]]:
        name, extra = identifier
        wants = list(requirements[identifier])
        bad = {choice.version for choice in incompatibilities[identifier]}
        return lambda: (
            _Choice(name, extra, version) for version in self._index.versions(name, wants) if version not in bad
        )

    def is_satisfied_by(self, requirement: _Want, candidate: _Choice) -> bool:
        return requirement.versions.contains(candidate.version, prereleases=True)

    def get_dependencies(self, candidate: _Choice) -> list[_Want]:
        return self._index.needs(candidate)
