"""Installs a package of npm into the store, without running any code of it, and pins its whole tree.

1. `npm install --package-lock-only` chooses the versions, from metadata and from packages that bundle others.
2. Packages with install scripts are refused, or left out if they are optional.
3. What is left is fetched with its sha512 (`npm_client.py`), and unpacked here (`tarballs.py`): npm installs nothing. A
   lock that came from elsewhere goes through this step alone.

In a lock, `a > b@1.0.0` is the package `b` inside of `a`, and `x=b@1.0.0` is `b` under the name `x`.
"""

import json
import os
import re
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from platform import libc_ver
from typing import Any

from msgspec import Struct

from licet.backends.packages.agreement import check_default_program
from licet.backends.packages.archives import Bounds
from licet.backends.packages.clients import native_program
from licet.backends.packages.launchers import Launch, LaunchError, npm_package
from licet.backends.packages.npm_client import choose_versions, fetch_tarballs
from licet.backends.packages.store import (
    Files,
    Installed,
    PackageError,
    Progress,
    Resolved,
    Starter,
    building,
    kept,
    place,
    put,
    unchanged,
)
from licet.backends.packages.tarballs import unpack_tarball
from licet.core.algebra.scope import visible

__all__ = ["install_npm", "installed_npm", "resolve_npm"]

ANY = "any"
_MOST_SHOWN = 120  # characters
_SCRIPTS = ("preinstall", "install", "postinstall")
_SHA512 = re.compile(r"sha512-[A-Za-z0-9+/]{86}==")
_KEY = re.compile(r"(?:(?P<alias>[^=@ ][^= ]*|@[^= ]+)=)?(?P<name>@?[^@ ]+)@(?P<version>[0-9][0-9A-Za-z.+-]*)")


class _Package(Struct, frozen=True):
    """One place in a tree of packages. `path` has the names from the top: `("a", "b")` is `b` inside of `a`."""

    path: tuple[str, ...]
    name: str
    version: str
    integrity: str
    platform: str = ANY

    @property
    def key(self) -> str:
        alias = "" if self.path[-1] == self.name else f"{self.path[-1]}="
        return " > ".join((*self.path[:-1], f"{alias}{self.name}@{self.version}"))


def resolve_npm(launch: Launch, store: Path, progress: Progress) -> Resolved:
    """Choose versions at the registry, install them, and return what is pinned."""
    with building(store, "npm", launch.package) as new:
        wanted = [f"{launch.package}@{launch.version}" if launch.version else launch.package, *launch.extra]
        progress(f"asking npm for {' and '.join(wanted)}")
        choose_versions(new, wanted, f"choosing the versions of {wanted[0]}")
        tree = json.loads((new / "package-lock.json").read_bytes())["packages"]
        packages = _pinned(tree, launch.package, progress)
        version = next(one.version for one in packages if one.path == (launch.package,))
        integrity = _integrity(packages)
        return _install(launch, version, integrity, store, new, progress)


def install_npm(launch: Launch, resolved: Resolved, store: Path, progress: Progress) -> Resolved:
    """Install what a lock pins."""
    with building(store, "npm", launch.package) as new:
        return _install(launch, resolved.version, resolved.integrity, store, new, progress)


def installed_npm(resolved: Resolved, store: Path, *, verify: bool, launch: Launch | None = None) -> Installed | None:
    """How to start a package that is in the store. A command that names no program must mean the one of the lock."""
    here = _of_this_machine(resolved.integrity)
    target = place(store, "npm", resolved.name, resolved.version, _platform(), here)
    listed = kept(store, target, here, verify=verify)
    if listed is None:
        return None
    if resolved.program not in listed.programs:
        raise PackageError(f"{resolved.name} {resolved.version} has no program `{visible(resolved.program)}`")
    if launch is not None and not launch.program:
        check_default_program(_default_program(_bins(target, resolved.name), resolved.name), resolved)
    node = native_program("node")
    if node is None:
        raise PackageError(f"`node` is not on PATH: {resolved.name} needs it")
    _, script = listed.programs[resolved.program]
    return Installed((node, str(target / script)), (str(target), os.path.realpath(node)))


def npm_pins_here(resolved: Resolved) -> bool:
    """Whether a lock has the package itself for this platform."""
    return any(one.path == (resolved.name,) for one in _packages(_of_this_machine(resolved.integrity)))


def _install(
    launch: Launch,
    version: str,
    integrity: Mapping[str, Mapping[str, str]],
    store: Path,
    new: Path,
    progress: Progress,
) -> Resolved:
    here = _of_this_machine(integrity)
    target = place(store, "npm", launch.package, version, _platform(), here)
    packages = list(_packages(here))
    if not any(one.path == (launch.package,) for one in packages):
        raise PackageError(f"{launch.package} {version} is not made for {_platform()}")
    if listed := unchanged(store, target, here):
        program = launch.program or _default_program(_bins(target, launch.package), launch.package)
        if program in listed.programs:
            progress(f"{launch.package} {version} is installed already")
            return Resolved("npm", launch.package, version, program, integrity)
    progress(f"installing {launch.package} {version} and {len(packages) - 1} packages that it needs, without scripts")
    packages = _fitting(packages)
    specs = {one.integrity: f"{one.name}@{one.version}" for one in packages}
    _unpack(new, packages, fetch_tarballs(new, specs, f"fetching {launch.package} {version}"))
    _check_tree(new, packages)
    for path in list(new.iterdir()):
        if path.name != "node_modules":
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    requested = [launch.package, *(npm_package(text)[0] for text in launch.extra)]
    programs = {name: path for package in reversed(requested) for name, path in _bins(new, package).items()}
    program = launch.program or _default_program(_bins(new, launch.package), launch.package)
    if program not in programs:
        names = ", ".join(f"`{visible(name)}`" for name in sorted(programs)) or "none"
        raise PackageError(f"{launch.package} {version} has no program `{visible(program)}`: it has {names}")
    _check_script(new / programs[program], launch.package, program)
    started: dict[str, tuple[Starter, str]] = {name: ("node", path) for name, path in programs.items()}
    put(new, store, target, Files(platform=_platform(), integrity=here, programs=started))
    return Resolved("npm", launch.package, version, program, integrity)


# Trees ----------------------------------------------------------------------------------------------------------------


def _pinned(tree: Mapping[str, Mapping[str, Any]], wanted: str, progress: Progress) -> list[_Package]:
    """The packages to pin of the tree that npm chose. Raises `PackageError` if one must run code or has no sha512."""
    left_out = _without_scripts(tree, wanted)
    for path in sorted(left_out):
        if tree[path].get("hasInstallScript"):
            progress(f"left out {_shown(path, tree[path])}: it is optional, and its install script would run code")
    found = []
    for path in sorted(_reachable(tree, left_out)):
        entry = tree[path]
        if entry.get("inBundle"):  # it comes inside of the package that bundles it
            continue
        integrity = next(iter(_SHA512.findall(entry.get("integrity", ""))), "")
        if entry.get("link") or entry.get("resolved") or not integrity:
            raise PackageError(
                f"{wanted} needs {_shown(path, entry)}, which is no package of the registry with a sha512: it cannot "
                "be pinned, so it is not installed"
            )
        names = _names(path)
        name = entry.get("name", names[-1])
        found.append(_Package(names, name, entry["version"], integrity, _platform_of(entry)))
    return found


def _without_scripts(tree: Mapping[str, Mapping[str, Any]], wanted: str) -> set[str]:
    """The optional packages with install scripts, and the optional packages that cannot do without these."""
    scripted = {path for path, entry in tree.items() if entry.get("hasInstallScript")}
    refused = sorted(_shown(path, tree[path]) for path in scripted if not tree[path].get("optional"))
    if refused:
        raise PackageError(
            f"{wanted} cannot be installed without running code: {', '.join(refused)} "
            f"{'has an install script' if len(refused) == 1 else 'have install scripts'}; licet runs none"
        )
    left_out = scripted
    while more := {
        path
        for path, entry in tree.items()
        if path not in left_out and any(target in left_out for target, must in _needs(tree, path, entry) if must)
    }:
        left_out = left_out | more
    return left_out


def _reachable(tree: Mapping[str, Mapping[str, Any]], left_out: set[str]) -> set[str]:
    """The packages that the root needs, directly or through others."""
    found: set[str] = set()
    left = [""]
    while left:
        path = left.pop()
        for target, _ in _needs(tree, path, tree[path]):
            if target not in found and target not in left_out:
                found.add(target)
                left.append(target)
    return found


def _needs(tree: Mapping[str, Mapping[str, Any]], path: str, entry: Mapping[str, Any]) -> Iterator[tuple[str, bool]]:
    """The packages that an entry finds by the names of its dependencies, and whether it cannot do without them."""
    optional = entry.get("optionalDependencies", {})
    peers = entry.get("peerDependenciesMeta", {})
    for kind in ("dependencies", "optionalDependencies", "peerDependencies"):
        for name in entry.get(kind, {}):
            place = path
            while (target := f"{place}/node_modules/{name}".removeprefix("/")) not in tree and place:
                place = place.rpartition("node_modules/")[0].rstrip("/")
            if target in tree:
                may_lack = name in optional or (kind == "peerDependencies" and peers.get(name, {}).get("optional"))
                yield target, not may_lack


def _names(path: str) -> tuple[str, ...]:
    return tuple(path.removeprefix("node_modules/").split("/node_modules/"))


def _shown(path: str, entry: Mapping[str, Any]) -> str:
    return visible(f"{entry.get('name', _names(path)[-1])} {entry.get('version', '')}".strip())


# Integrity ------------------------------------------------------------------------------------------------------------


def _platform_of(entry: Mapping[str, Any]) -> str:
    """The platforms that a package is limited to, such as `linux-x64-glibc` or `darwin+linux-any`."""
    limits = ["+".join(sorted(entry.get(key, ()))) or ANY for key in ("os", "cpu", "libc")]
    while limits and limits[-1] == ANY:
        limits.pop()
    return "-".join(limits) or ANY


def _limits_of(platform: str) -> dict[str, list[str]]:
    parts = zip(("os", "cpu", "libc"), platform.split("-"), strict=False)
    return {key: part.split("+") for key, part in parts if part != ANY}


def _integrity(packages: Iterable[_Package]) -> Mapping[str, Mapping[str, str]]:
    found: dict[str, dict[str, str]] = {}
    for package in sorted(packages, key=lambda one: (one.platform, one.key)):
        found.setdefault(package.platform, {})[package.key] = package.integrity
    return found


def _packages(integrity: Mapping[str, Mapping[str, str]]) -> Iterator[_Package]:
    """The packages of a lock. Raises `PackageError` for text that npm could take for something else."""
    for platform, pins in integrity.items():
        for key, value in pins.items():
            *around, last = key.split(" > ")
            match = _KEY.fullmatch(last)
            if match is None or not _SHA512.fullmatch(value):
                raise PackageError(f"`{visible(key)}` with `{visible(value)}` in the lock is no package of npm")
            path = (*around, match["alias"] or match["name"])
            for name in (*path, match["name"]):
                try:
                    npm_package(name)
                except LaunchError as wrong:
                    raise PackageError(f"{wrong} (`{visible(key)}` in the lock)") from None
            yield _Package(path, match["name"], match["version"], value, platform)


def _of_this_machine(integrity: Mapping[str, Mapping[str, str]]) -> Mapping[str, Mapping[str, str]]:
    """The parts that can be installed here; of these, `_fitting` leaves out what is for another C library."""
    system, machine = _platform().split("-")
    return {
        platform: dict(pins)
        for platform, pins in integrity.items()
        if _fits(_limits_of(platform).get("os", ()), system) and _fits(_limits_of(platform).get("cpu", ()), machine)
    }


def _fits(limits: Sequence[str], own: str) -> bool:
    wanted = [limit for limit in limits if not limit.startswith("!")]
    return f"!{own}" not in limits and (not wanted or own in wanted)


def _platform() -> str:
    """This platform in the words of Node: `linux-x64`, `darwin-arm64`."""
    names = {"x86_64": "x64", "aarch64": "arm64", "i686": "ia32", "armv7l": "arm"}
    system = os.uname()
    return f"{system.sysname.lower()}-{names.get(system.machine, system.machine)}"


# Installing -----------------------------------------------------------------------------------------------------------


def _fitting(packages: Iterable[_Package]) -> list[_Package]:
    """The packages for the C library of this machine, outer ones first, without those inside of one that is not."""
    libc = "glibc" if libc_ver()[0] == "glibc" else "musl"
    found: dict[tuple[str, ...], _Package] = {(): _Package((), "", "", "")}
    for one in sorted(packages, key=lambda one: one.path):
        if one.path[:-1] in found and _fits(_limits_of(one.platform).get("libc", ()), libc):
            found[one.path] = one
    del found[()]
    return list(found.values())


def _unpack(new: Path, packages: Iterable[_Package], tarballs: Mapping[str, Path]) -> None:
    bounds = Bounds()
    for one in packages:
        directory = _directory(new, one)
        if directory.is_dir():  # the package around it has something else there
            shutil.rmtree(directory)
        unpack_tarball(tarballs[one.integrity], directory, one.key, bounds)


def _directory(new: Path, package: _Package) -> Path:
    return new.joinpath(*(part for name in package.path for part in ("node_modules", name)))


def _check_tree(new: Path, packages: Iterable[_Package]) -> None:
    """Refuse packages that are others than the lock says, and those with install scripts that the registry hid.

    Archives are found by their hashes, and a hash says nothing about a name. Without its scripts, a package that has
    some does not work.
    """
    for one in packages:
        directory = _directory(new, one)
        described = _described(directory)
        name, version = described.get("name"), described.get("version")
        if name != one.name or not isinstance(version, str) or _plain(version) != _plain(one.version):
            found = visible(f"{name} {version}"[:_MOST_SHOWN])
            raise PackageError(f"the archive of {visible(one.key)} is not it: its package.json says {found}")
        scripts = described.get("scripts")
        scripted = [name for name in _SCRIPTS if isinstance(scripts, dict) and name in scripts]
        if not scripted and (directory / "binding.gyp").exists() and described.get("gypfile") is not False:
            scripted = ["binding.gyp"]
        if scripted:
            raise PackageError(f"{visible(one.key)} has `{scripted[0]}`, which would run code when it is installed")


def _plain(version: str) -> str:
    """A version as the registry names it: it leaves out a `v` before it, and what follows a `+`."""
    return version.strip().lstrip("v= ").partition("+")[0]


def _described(directory: Path) -> Mapping[str, Any]:
    try:
        described = json.loads((directory / "package.json").read_bytes())
    except (OSError, ValueError) as wrong:
        raise PackageError(f"`{directory.name}` has no package.json that can be read") from wrong
    return described if isinstance(described, dict) else {}


def _bins(new: Path, package: str) -> Mapping[str, str]:
    """The programs of a package, each with its file below `new`."""
    directory = new / "node_modules" / package
    stated = _described(directory).get("bin", {})
    if isinstance(stated, str):
        stated = {package.rpartition("/")[2]: stated}
    if not isinstance(stated, dict):
        return {}
    real = os.path.realpath(directory)
    found = {}
    for name, file in stated.items():
        path = os.path.realpath(directory / file) if isinstance(file, str) else ""
        if path.startswith(f"{real}/") and os.path.isfile(path):
            found[name] = os.path.relpath(path, os.path.realpath(new))
    return found


def _default_program(bins: Mapping[str, str], package: str) -> str:
    """The program that `npx PACKAGE` starts: the only one, or the one with the name of the package."""
    own = package.rpartition("/")[2]
    if own in bins or len(set(bins.values())) != 1:
        return own
    return next(iter(bins))


def _check_script(script: Path, package: str, program: str) -> None:
    with open(script, "rb") as file:
        first = file.readline(256).decode("utf-8", "replace").strip()
    named = re.fullmatch(r"#!\s*(?:\S*/env\s+(?:-S\s+)?)?(\S*/)?node(\s.*)?", first)
    if not (named or (not first.startswith("#!") and script.suffix in (".js", ".cjs", ".mjs"))):
        raise PackageError(
            f"`{visible(program)}` of {package} is no script for Node: it begins with `{visible(first[:80])}`"
        )
