"""Installs a package of npm into the store, without running any code of it, and pins its whole tree.

1. `npm install --package-lock-only` chooses the versions, from metadata and from packages that bundle others.
2. Packages with install scripts are refused, or left out if they are optional.
3. What is left is fetched with its sha512 and unpacked here (`package_store.py`): npm installs nothing. A
   lock that came from elsewhere goes through this step alone.

In a lock, `a > b@1.0.0` is the package `b` inside of `a`, and `x=b@1.0.0` is `b` under the name `x`.

Runs npm so that it starts no script, whatever packages and configuration say, and fetches archives with it.
"""

import base64
import hashlib
import json
import os
import re
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from platform import libc_ver
from typing import Any

from msgspec import Struct

from licet.core.algebra.scope import inside, visible
from licet.own_files import find_on_path
from licet.packages.archives import Bounds, unpack_tarball
from licet.packages.clients import PackageError, advice, client_environment, native_program, run_client
from licet.packages.launchers import Launch, LaunchError, npm_package
from licet.packages.limits import MOST_NPM_BYTES
from licet.packages.package_store import (
    Files,
    Installed,
    Progress,
    Resolved,
    Starter,
    building,
    check_program,
    keep_only,
    kept,
    place,
    put,
    unchanged,
)
from licet.packages.pypi import check_default_program

__all__ = ["choose_versions", "fetch_tarballs", "install_npm", "installed_npm", "resolve_npm", "run_npm"]

_CERTIFICATES = "name its file: `npm config set cafile FILE`"
_WAYS = "`npm config set https-proxy URL` names the proxy of your network, and `registry` your registry"

# Whatever the configuration of the user says: no scripts, the ordinary layout, and registries only.
_FORCED = (
    *("--ignore-scripts", "--no-audit", "--no-fund", "--no-update-notifier", "--no-progress", "--loglevel=error"),
    *("--omit=dev", "--include=optional", "--include=peer", "--no-legacy-peer-deps", "--install-strategy=hoisted"),
    *("--no-global", "--no-workspaces", "--package-lock", "--lockfile-version=3", "--no-dry-run", "--no-bin-links"),
    *("--allow-git=none", "--allow-file=none", "--allow-directory=none", "--git=false"),
    "--omit-lockfile-registry-resolved",  # so a package with an address is one that came from elsewhere
    "--location=project",
    # npm tries again after any failure, also a certificate that it does not trust, and would wait for over a minute.
    *("--fetch-retry-mintimeout=500", "--fetch-retry-maxtimeout=2000"),
)
# npm takes the `.npmrc` of the nearest directory with this file. `--prefix` would do too, but also moves the file with
# the settings of all users, where a network has its registry and its certificates.
_DESCRIBED = '{"name": "licet-package", "private": true}'

# No address that a dependency names is asked for. With this option alone, npm refuses to open archives of its registry
# too, to see what they bundle (npm/cli#9800): what the registry itself said is let through. Should npm be made in
# another way one day, packages that bundle others are refused.
_REGISTRY_ONLY = "--allow-remote=none"
_HOOK = "archives-of-the-registry.cjs"
_HOOK_TEXT = """const Module = require("module")
const load = Module._load
const known = new Set()
Module._load = function (name, ...rest) {
  const found = load.call(this, name, ...rest)
  if (name !== "pacote") return found
  return {
    ...found,
    manifest: async (spec, options) => {
      const told = await found.manifest(spec, options)
      known.add(told._resolved)
      return told
    },
    extract: (spec, place, options) =>
      found.extract(spec, place, known.has(spec) ? { ...options, allowRemote: "all" } : options),
  }
}
"""


def choose_versions(directory: Path, wanted: Sequence[str], doing: str) -> None:
    """Write `package-lock.json` for packages of the registry. Raises `PackageError` if one needs any other source.

    An npm that is older than 11.14 knows no such option: it asks for archives at addresses that dependencies name.
    """
    (directory / _HOOK).write_text(_HOOK_TEXT, encoding="utf-8")
    arguments = ["install", "--package-lock-only", _REGISTRY_ONLY, "--", *wanted]
    run_npm(directory, arguments, doing, f"--require=./{_HOOK}")


def run_npm(directory: Path, arguments: Sequence[str], doing: str, node_option: str = "") -> None:
    """Run npm in a directory. To choose versions, it unpacks packages that bundle others, and bounds that badly."""
    npm = find_on_path("npm")
    if npm is None:
        raise PackageError(f"{doing} failed: `npm` is not on PATH; install Node with npm, and run `licet lock` again")
    described = directory / "package.json"
    if not described.exists():
        described.write_text(_DESCRIBED, encoding="utf-8")
    command, *rest = arguments
    command_line = [npm, command, *_FORCED, *rest]
    environment = client_environment()
    if node_option:
        environment["NODE_OPTIONS"] = f"{environment.get('NODE_OPTIONS', '')} {node_option}".strip()
    try:
        run_client(command_line, directory, environment, doing, most_written=MOST_NPM_BYTES)
    except PackageError as wrong:
        raise PackageError(f"{wrong}{advice(str(wrong), _CERTIFICATES, _WAYS)}") from None


def fetch_tarballs(directory: Path, wanted: Mapping[str, str], doing: str) -> Mapping[str, Path]:
    """Fetch archives from the registry: `wanted` has each `name@version` by its sha512, and the result its file.

    Raises `PackageError` if the registry has other ones. Nothing is unpacked.
    """
    missing, found = dict(wanted), dict[str, Path]()
    # At first from what npm has in its cache. Two packages may have archives of the same name: then the other is next.
    for number in range(len(wanted) + 2):
        if not missing:
            break
        place = directory / f"tarballs-{number}"
        place.mkdir()
        flags = ("--prefer-offline",) if number == 0 else ()
        try:
            options = (*flags, "--allow-remote=all", "--pack-destination", place.name)  # else npm refuses its own
            run_npm(directory, ["pack", *options, "--", *missing.values()], doing)
        except PackageError:
            if flags:
                continue
            raise
        fetched = {_sha512(tarball): tarball for tarball in place.iterdir()}
        if not (flags or missing.keys() & fetched.keys()):
            other = visible(next(iter(missing.values())))
            raise PackageError(f"{doing} failed: the registry has another {other} than the lock pins")
        found |= {integrity: tarball for integrity, tarball in fetched.items() if integrity in missing}
        missing = {integrity: spec for integrity, spec in missing.items() if integrity not in found}
    return found


def _sha512(path: Path) -> str:
    with open(path, "rb") as file:
        return f"sha512-{base64.b64encode(hashlib.file_digest(file, 'sha512').digest()).decode()}"


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
    keep_only(new, "node_modules")
    requested = [launch.package, *(npm_package(text)[0] for text in launch.extra)]
    programs = {name: path for package in reversed(requested) for name, path in _bins(new, package).items()}
    program = launch.program or _default_program(_bins(new, launch.package), launch.package)
    check_program(program, programs, launch.package, version)
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
        if inside(path, (real,)) and os.path.isfile(path):
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
