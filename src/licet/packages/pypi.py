"""Installs a package of PyPI into the store: a virtual environment of its own, from wheels alone.

1. The versions are chosen from the metadata of wheels (`resolving.py`), which pip fetches. Nothing is built, so no code
   runs.
2. The wheels are hashed and inspected (`wheels.py`).
3. `pip install --no-index --no-deps --require-hashes` unpacks exactly those wheels into a new environment.

A lock has the wheels of one platform each. On a platform that it has, exactly those are fetched. `licet lock` adds
another one, with the versions of the lock.

Compares what a lock says that a command starts with the command itself: kind, package, version and program.

A lock is a file of the project. Without this comparison, one that names another package of the store would start that.
Nothing is read but the two texts, so a lock can be compared where the package is not installed.
"""

import os
import re
import sys
from collections.abc import Iterator, Mapping
from functools import cache
from importlib import metadata
from pathlib import Path

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.tags import sys_tags
from packaging.utils import canonicalize_name

from licet.core.algebra.scope import visible
from licet.packages.archives import Bounds
from licet.packages.clients import client_environment, is_native, run_client
from licet.packages.launchers import Launch, is_python, npm_package, pip_requirement, pypi_requirement
from licet.packages.node_modules import is_tag, satisfies
from licet.packages.package_store import (
    Files,
    Installed,
    PackageError,
    Progress,
    Resolved,
    Starter,
    building,
    check_program,
    file_digest,
    keep_only,
    kept,
    place,
    put,
    unchanged,
)
from licet.packages.resolving import Pip, check_wheel, choose_wheels, write_lines

__all__ = [
    "Disagrees",
    "check_agreement",
    "check_default_program",
    "disagreement",
    "install_pypi",
    "installed_pypi",
    "platform_tag",
    "resolve_pypi",
]


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


_ENVIRONMENT = "environment"
_PIN = re.compile(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?==[0-9A-Za-z.!+]+")
_SHA256 = re.compile(r"sha256:[0-9a-f]{64}")


def resolve_pypi(launch: Launch, store: Path, progress: Progress, like: Resolved | None = None) -> Resolved:
    """Choose versions at the index, install them, and return what is pinned.

    With `like`, a lock of other platforms, the versions are those of it, and this platform is added to it.
    """
    version, others = (like.version, like.integrity) if like is not None else (launch.version, {})
    _check_pins(others)
    wanted = [pip_requirement(launch.package, version), *launch.extra]
    with building(store, "pypi", _name(launch)) as new:
        progress(f"asking pip for {' and '.join(wanted)}")
        pip = Pip(new)
        return _install(launch, choose_wheels(wanted, pip, _same_versions(others)), others, store, pip, new, progress)


def install_pypi(launch: Launch, resolved: Resolved, store: Path, progress: Progress) -> Resolved:
    """Install exactly the wheels that a lock pins for this platform."""
    _check_pins(resolved.integrity)
    pins = resolved.integrity.get(platform_tag())
    if pins is None:
        raise PackageError(
            f"the lock has no wheels of {resolved.name} {resolved.version} for this platform, {platform_tag()}: run "
            "`licet lock --update`, which adds them"
        )
    with building(store, "pypi", _name(launch)) as new:
        progress(f"asking pip for the {len(pins)} wheels of {resolved.name} {resolved.version} in the lock")
        pip = Pip(new)
        wheels = pip.pinned(pins, f"fetching the wheels of {resolved.name}")
        return _install(launch, wheels, resolved.integrity, store, pip, new, progress)


def installed_pypi(resolved: Resolved, store: Path, *, verify: bool, launch: Launch | None = None) -> Installed | None:
    """How to start a package that is in the store; `None` also if it was installed for another Python.

    A command that names no program must mean the one of the lock.
    """
    tag = platform_tag()
    if tag not in resolved.integrity:
        return None
    here = {tag: resolved.integrity[tag]}
    target = place(store, "pypi", resolved.name, resolved.version, tag, here)
    listed = kept(store, target, here, verify=verify)
    python = target / _ENVIRONMENT / "bin" / "python"
    if listed is None or not is_native(str(python)):  # that Python was removed
        return None
    if resolved.program not in listed.programs:
        raise PackageError(f"{resolved.name} {resolved.version} has no program `{visible(resolved.program)}`")
    if launch is not None and not launch.program and canonicalize_name(resolved.program) != resolved.name:
        check_default_program(_default_program(_scripts(target, resolved.name), resolved.name), resolved)
    starter, program = listed.programs[resolved.program]
    # -I: nothing of the environment or the current directory is imported. -B: nothing is written next to the sources.
    argv = (str(python), "-I", "-B", str(target / program)) if starter == "python" else (str(target / program),)
    real = os.path.realpath(python)
    return Installed(argv, (str(target), real, os.path.join(os.path.dirname(os.path.dirname(real)), "lib")))


@cache
def platform_tag() -> str:
    """What wheels depend on, without the version of the system: `linux-x86_64-cp311`."""
    tag = next(sys_tags())
    match = re.fullmatch(r"(manylinux|musllinux|linux|macosx|[a-z]+)(?:_\d+)*_(\w+)", tag.platform)
    system, machine = match.groups() if match else (tag.platform, "any")
    system = {"manylinux": "linux", "musllinux": "musl", "macosx": "macos"}.get(system, system)
    return f"{system}-{machine}-{tag.abi}"


def _name(launch: Launch) -> str:
    return launch.package.partition("[")[0]


# Wheels ---------------------------------------------------------------------------------------------------------------


def _check_pins(integrity: Mapping[str, Mapping[str, str]]) -> None:
    """Refuse text from a lock that pip could take for something else than a version and a hash."""
    for pins in integrity.values():
        for pin, sha256 in pins.items():
            if not _PIN.fullmatch(pin) or not _SHA256.fullmatch(sha256):
                raise PackageError(f"`{visible(pin)}` with `{visible(sha256)}` in the lock is no wheel of PyPI")


def _same_versions(integrity: Mapping[str, Mapping[str, str]]) -> dict[str, str]:
    """The versions of all platforms, without the packages that have different versions on some."""
    found: dict[str, set[str]] = {}
    for pins in integrity.values():
        for name, _, version in (pin.partition("==") for pin in pins):
            found.setdefault(name, set()).add(version)
    return {name: versions.pop() for name, versions in found.items() if len(versions) == 1}


# Environments ---------------------------------------------------------------------------------------------------------


def _install(
    launch: Launch,
    wheels: Mapping[str, Path],
    others: Mapping[str, Mapping[str, str]],
    store: Path,
    pip: Pip,
    new: Path,
    progress: Progress,
) -> Resolved:
    """Make the environment from wheels that were fetched. `others` is the integrity of the lock so far."""
    bounds = Bounds()
    for wheel in wheels.values():
        check_wheel(wheel, bounds)
    pins = {pin: file_digest(wheel) for pin, wheel in wheels.items()}
    name = _name(launch)
    version = next((pin.partition("==")[2] for pin in pins if pin.startswith(f"{name}==")), None)
    if version is None:
        raise PackageError(f"pip fetched no wheel of {name}")
    here = {platform_tag(): pins}
    target = place(store, "pypi", name, version, platform_tag(), here)
    listed = unchanged(store, target, here)
    if listed is not None and is_native(str(target / _ENVIRONMENT / "bin" / "python")):
        program = launch.program or _default_program(_scripts(target, name), name)
        if program in listed.programs:
            progress(f"{name} {version} is installed already")
            return Resolved("pypi", name, version, program, {**others, **here})
    progress(f"installing {name} {version} and {len(pins) - 1} packages that it needs, from wheels")
    environment = new / _ENVIRONMENT
    python = _make_environment(new, environment)
    pip.install(pins, wheels.values(), python, f"installing {name} {version}")
    _compile(new, environment, target / _ENVIRONMENT)
    _move_scripts(environment, target / _ENVIRONMENT)
    keep_only(new, _ENVIRONMENT)
    requested = [name, *(pypi_requirement(text)[0].partition("[")[0] for text in launch.extra)]
    programs = {script: path for one in reversed(requested) for script, path in _scripts(new, one).items()}
    program = launch.program or _default_program(_scripts(new, name), name)
    check_program(program, programs, name, version)
    put(new, store, target, Files(platform=platform_tag(), integrity=here, programs=programs))
    return Resolved("pypi", name, version, program, {**others, **here})


def _make_environment(new: Path, environment: Path) -> Path:
    """A virtual environment without pip, whose Python is a link to the real file."""
    base = os.path.realpath(sys.executable)
    command = [sys.executable, "-I", "-m", "venv", "--without-pip", "--symlinks", str(environment)]
    run_client(command, new, client_environment(), "making a virtual environment")
    programs = environment / "bin"
    for file in programs.iterdir():  # activation scripts have the path of this directory in them
        file.unlink()
    os.symlink(base, programs / "python")
    for name in ("python3", f"python3.{sys.version_info.minor}"):
        os.symlink("python", programs / name)
    version = ".".join(map(str, sys.version_info[:3]))
    stated = (f"home = {os.path.dirname(base)}", "include-system-site-packages = false", f"version = {version}")
    write_lines(environment / "pyvenv.cfg", stated)
    return programs / "python"


def _compile(new: Path, environment: Path, target: Path) -> None:
    """Compile the sources, so that a start does not. Python parses the files for that and runs none of them."""
    # The compiled files are part of the list of the package: Python need not compare them with the sources.
    names = ("-s", str(environment), "-p", str(target), "--invalidation-mode", "unchecked-hash")
    command = [sys.executable, "-I", "-S", "-m", "compileall", "-q", *names, str(_site(environment))]
    try:
        run_client(command, new, client_environment(), "compiling")
    except PackageError:  # some packages ship templates, or tests of the parser, that do not compile
        return


def _move_scripts(environment: Path, target: Path) -> None:
    """Write the final path of the environment into its scripts, in place of the temporary one."""
    for file in (environment / "bin").iterdir():
        if not file.is_symlink() and file.is_file():
            data = file.read_bytes()
            if data.startswith(b"#!"):
                file.write_bytes(data.replace(os.fsencode(environment), os.fsencode(target)))


def _site(environment: Path) -> Path:
    return environment / "lib" / f"python3.{sys.version_info.minor}" / "site-packages"


def _scripts(new: Path, name: str) -> dict[str, tuple[Starter, str]]:
    """The programs that a distribution lists, each with what starts it."""
    environment = new / _ENVIRONMENT
    programs = os.path.realpath(environment / "bin")
    found: dict[str, tuple[Starter, str]] = {}
    for distribution in metadata.distributions(name=name, path=[str(_site(environment))]):
        for file in distribution.files or ():
            path = os.path.realpath(str(distribution.locate_file(file)))
            if os.path.dirname(path) == programs and os.path.isfile(path):
                found[os.path.basename(path)] = (_starter(path), os.path.relpath(path, os.path.realpath(new)))
    return found


def _starter(path: str) -> Starter:
    with open(path, "rb") as file:
        first = file.read(4096)
    # pip writes the second form if the path is too long for the kernel.
    found = re.match(rb"#!/bin/sh\n'''exec' [^\n]*/([^/\s\"]+)\"? ", first) or re.match(rb"#![^\n]*/([^/\s]+)\s", first)
    return "python" if found and is_python(os.fsdecode(found[1])) else ""


def _default_program(scripts: Mapping[str, object], name: str) -> str:
    """The program that `uvx PACKAGE` starts: the one with the name of the package, or the only one."""
    same = [script for script in scripts if canonicalize_name(script) == name]
    return same[0] if same else next(iter(scripts)) if len(scripts) == 1 else name
