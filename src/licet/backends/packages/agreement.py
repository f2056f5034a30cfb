"""Compares what a lock says that a command starts with the command itself: kind, package, version and program.

A lock is a file of the project. Without this comparison, one that names another package of the store would start that.
Nothing is read but the two texts, so a lock can be compared where the package is not installed.
"""

import os
from collections.abc import Iterator

from packaging.specifiers import InvalidSpecifier, SpecifierSet

from licet.backends.packages.launchers import Launch, npm_package, pip_requirement, pypi_requirement
from licet.backends.packages.npm_ranges import is_tag, satisfies
from licet.backends.packages.store import PackageError, Resolved
from licet.core.algebra.scope import visible

__all__ = ["Disagrees", "check_agreement", "check_default_program", "disagreement"]


class Disagrees(PackageError):
    """A lock that is not about the command. `licet lock` resolves the command again."""


def check_agreement(launch: Launch, resolved: Resolved) -> None:
    """Raise `Disagrees` unless the lock may be about this command."""
    if differs := disagreement(launch, resolved):
        raise Disagrees(f"{differs}: run `licet lock`")


def check_default_program(own: str, resolved: Resolved) -> None:
    """Raise `Disagrees` unless the lock starts `own`, the program of a package whose command names none."""
    if own != resolved.program:
        says = f"the command says `{visible(own)}`, the program of {visible(resolved.name)}"
        raise Disagrees(f"{says}, and licet.lock says `{visible(resolved.program)}`: run `licet lock`")


def disagreement(launch: Launch, resolved: Resolved) -> str:
    """In which words a command and a lock differ; empty if the lock may be about this command."""
    return next((f"the command says {says}, and licet.lock says {lock}" for says, lock in _all(launch, resolved)), "")


def _all(launch: Launch, resolved: Resolved) -> Iterator[tuple[str, str]]:
    kinds = ("file", "distribution") if launch.kind == "file" else (launch.kind,)
    if resolved.kind not in kinds:
        yield _command(launch), _locked(resolved)
    elif launch.kind == "docker":
        if launch.package != resolved.name:
            yield _command(launch), _locked(resolved)
    elif launch.kind == "file":
        yield from _program(launch, resolved)
    else:
        yield from _package(launch, resolved)


def _program(launch: Launch, resolved: Resolved) -> Iterator[tuple[str, str]]:
    # A program without an interpreter may be a link to a file of another name. Which file it is, a start compares.
    if launch.interpreter:
        is_module = launch.interpreter[-1] == "-m"
        expected = launch.program if is_module else os.path.basename(launch.program)
        # A module in `code` is pinned as a file. Where a module is found now, a start compares.
        kinds = {"distribution", *(("file",) if launch.code else ())} if is_module else {"file"}
        if resolved.kind not in kinds or resolved.program != expected:
            yield _command(launch), _locked(resolved)


def _package(launch: Launch, resolved: Resolved) -> Iterator[tuple[str, str]]:
    name = launch.package.partition("[")[0] if launch.kind == "pypi" else launch.package
    if resolved.name != name or not _in_range(launch.kind, launch.version, resolved.version):
        yield _command(launch), _locked(resolved)
        return
    if launch.program and resolved.program != launch.program:
        yield f"the program `{visible(launch.program)}`", f"`{visible(resolved.program)}`"
    # The version that is named and the one that is installed must be one: it is the hashes that decide what runs.
    for pinned in _pinned(resolved, name):
        if pinned != resolved.version:
            yield _command(launch), f"{_locked(resolved)} with the files of {visible(pinned) or 'no version of it'}"
    if twice := _one_hash_for_two(resolved):
        yield _command(launch), f"{_locked(resolved)} with one hash for {' and '.join(map(visible, twice))}"
    for extra in launch.extra:
        other, version = npm_package(extra) if launch.kind == "npm" else pypi_requirement(extra)
        for pinned in _pinned(resolved, other.partition("[")[0] if launch.kind == "pypi" else other):
            if not _in_range(launch.kind, version, pinned):
                yield f"{launch.kind} {visible(extra)}", f"{visible(pinned) or 'no version'} of it"


def _in_range(kind: str, wanted: str, version: str) -> bool:
    if not version:
        return False
    if kind == "npm":
        return not wanted or is_tag(wanted) or satisfies(version, wanted)
    if wanted in ("", "latest"):
        return True
    try:
        return SpecifierSet(pip_requirement("", wanted)).contains(version, prereleases=True)
    except InvalidSpecifier:
        return False


def _pinned(resolved: Resolved, name: str) -> Iterator[str]:
    """The versions of a package that the hashes are of, one or more; an empty one if there is none, or another in it.

    For npm, only what lies at the top counts: that is what a program of the package is started from.
    """
    if resolved.kind == "pypi":
        for pins in resolved.integrity.values():
            yield from [pin.partition("==")[2] for pin in pins if pin.partition("==")[0] == name] or [""]
        return
    top = [key for pins in resolved.integrity.values() for key in pins if " > " not in key]
    found = [key.removeprefix(f"{name}@") for key in top if key.startswith(f"{name}@")]
    found += ["" for key in top if key.startswith(f"{name}=")]  # another package under its name
    yield from found or [""]


def _one_hash_for_two(resolved: Resolved) -> tuple[str, str] | None:
    """Two packages, or versions of one, that a lock has the same hash for: one of them is not what it is called."""
    known: dict[str, str] = {}
    for pins in resolved.integrity.values():
        for key, value in pins.items():
            # In the keys of npm, what is around a package and the name that it has there come before it.
            one = key.rpartition(" > ")[2].rpartition("=")[2] if resolved.kind == "npm" else key
            if known.setdefault(value, one) != one:
                return known[value], one
    return None


def _command(launch: Launch) -> str:
    if launch.kind in ("npm", "pypi"):
        at = f"{launch.package}@{launch.version}" if launch.version else launch.package
        return (
            f"{launch.kind} {visible(at if launch.kind == 'npm' else pip_requirement(launch.package, launch.version))}"
        )
    if launch.kind == "docker":
        return f"docker {visible(launch.package)}"
    return f"the {'module' if launch.interpreter[-1:] == ('-m',) else 'file'} {visible(launch.program)}"


def _locked(resolved: Resolved) -> str:
    if resolved.kind == "file":
        return f"the file {visible(resolved.program)}"
    words = (resolved.kind, resolved.name, resolved.version)
    return visible(" ".join(word for word in words if word))
