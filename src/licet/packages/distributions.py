"""Finds the installed distribution, and its version, that the code of a tool belongs to, by the files that each lists.

Names prove nothing: a module and a distribution may have any name. A module that no distribution lists (project files,
editable installs, files copied by hand) belongs to none. Nothing is imported.

Metadata is read from library directories only. Otherwise anybody who can write to the directory of the script, to the
working directory, or through a grant could plant the metadata of a distribution that was never installed.

Reads the files of an installed distribution, as its RECORD lists them, and hashes them. Nothing is imported.

The hash is equal for two installs of the same wheel, wherever they are. So it leaves out what installers write
themselves (`RECORD`, `INSTALLER`, `direct_url.json` …), compiled files, what lies outside of the directory of the
modules, and scripts, also those in a `bin` next to the modules. A file that was added to a package counts.

Pins the installed distributions that tools come from, and compares them with `licet.lock`. Nothing is imported.
"""

import base64
import csv
import hashlib
import os
import site
import sys
import sysconfig
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from email.parser import Parser
from functools import cached_property
from importlib import metadata
from pathlib import Path, PurePosixPath

from msgspec import Struct
from packaging.utils import canonicalize_name

from licet.core.algebra.domains import DOMAINS
from licet.core.algebra.scope import Malformed, inside
from licet.core.policy.connector import Installed
from licet.core.policy.lock import LockedDistribution
from licet.core.policy.lock_changes import distribution_difference
from licet.core.policy.manifest import Manifest
from licet.core.values import Origin, Problem
from licet.declare import Tool
from licet.errors import LicetError
from licet.own_files import open_regular, read_regular
from licet.packages.limits import LARGEST_METADATA, LARGEST_RECORD, MOST_CHANGES_NAMED, MOST_DISTRIBUTIONS_NAMED
from licet.policy_files.policy_paths import policy_root
from licet.source.declarations import Modules, find_tool
from licet.source.imports import InstalledModule

__all__ = ["Distribution", "UnknownDistribution", "distributions_of"]


def installed_versions(manifest: Manifest, workdir: str, home: str) -> Mapping[str, str]:
    """Return the versions of the distributions that connectors name; a distribution without exactly one is left out."""
    names = {definition.distribution for definition in manifest.definitions.values()} - {""}
    libraries = _libraries(manifest, workdir, home) if names else []
    found = {}
    for name in sorted(names):
        hits = metadata.distributions(name=name, path=libraries)
        versions = {one.version if one.distribution == canonicalize_name(name) else "" for one in map(_installed, hits)}
        if len(versions) == 1:  # with several versions installed, it is unknown which one runs
            found[name] = versions.pop()
    return found


def packages_of(tools: Sequence[Tool], manifest: Manifest, workdir: str, home: str) -> Mapping[str, Installed]:
    """Return the distribution of each tool's module by the name of the tool; tools without a connector are left out."""
    files = {tool.name: list(_files(tool)) for tool in tools if tool.spec.named_connectors}
    wanted = {file for each in files.values() for file in each}
    owners = _owners(wanted, _libraries(manifest, workdir, home)) if wanted else {}
    packages = {}
    for name, each in files.items():
        found = sorted({owner for file in each for owner in owners.get(file, ())})
        if len(found) == 1:
            packages[name] = found[0]
        elif found:  # it is unknown which version counts
            packages[name] = Installed(" and ".join(one.distribution for one in found), "")
    return packages


def _files(tool: Tool) -> Iterator[str]:
    """The files of a tool: of its code, of its globals, and of the module that it names.

    `__wrapped__` is not followed: code that sets it could choose the distribution.
    """
    fn = tool.fn
    module = getattr(sys.modules.get(str(getattr(fn, "__module__", ""))), "__file__", None)
    code = getattr(getattr(fn, "__code__", None), "co_filename", None)
    around = getattr(fn, "__globals__", {}).get("__file__")
    files = (file for file in (code, around, module) if isinstance(file, str) and os.path.isfile(file))
    yield from dict.fromkeys(map(os.path.realpath, files))


def _owners(wanted: Iterable[str], libraries: list[str]) -> Mapping[str, set[Installed]]:
    """Return the distributions that list each file as their own."""
    owners: dict[str, set[Installed]] = {}
    for distribution in metadata.distributions(path=libraries):
        root = os.path.realpath(str(distribution.locate_file("")))
        below = [file for file in wanted if inside(file, (root,))]
        record = distribution.read_text("RECORD") if below else None
        for file in below:
            # A search in the text of RECORD rules out most distributions; parsing each RECORD would be slow.
            if record is not None and file[len(root) + 1 :] not in record:
                continue
            if any(os.path.realpath(str(distribution.locate_file(own))) == file for own in distribution.files or ()):
                owners.setdefault(file, set()).add(_installed(distribution))
    return owners


def _installed(distribution: metadata.Distribution) -> Installed:
    return Installed(canonicalize_name(distribution.metadata["Name"] or ""), distribution.metadata["Version"] or "")


def _libraries(manifest: Manifest, workdir: str, home: str) -> list[str]:
    """The directories of installed distributions: those of the interpreter, and other entries of `sys.path`.

    The directory of the script, the current and the working directory, and paths that a grant may write are left out.
    """
    own = {path for name, path in sysconfig.get_paths().items() if name in ("purelib", "platlib")}
    own |= {*site.getsitepackages(), *([site.getusersitepackages()] if site.ENABLE_USER_SITE else [])}
    own = {os.path.realpath(path) for path in own}  # no grant ever writes these
    projects = {os.path.realpath(path) for path in (workdir, *_started())}
    written = _written(manifest, workdir, home)
    found: dict[str, None] = {}
    for path in (os.path.realpath(entry) for entry in sys.path if isinstance(entry, str) and entry):
        if path in own or (
            path not in projects and not (inside(path, written) or any(inside(other, (path,)) for other in written))
        ):
            found[path] = None
    return list(found)


def _started() -> Iterator[str]:
    """The current directory, and the directory of the script that this program was started from."""
    with suppress(FileNotFoundError):  # the current directory was removed
        yield os.getcwd()
    if main := getattr(sys.modules.get("__main__"), "__file__", None):
        yield os.path.dirname(main)


def _written(manifest: Manifest, workdir: str, home: str) -> list[str]:
    """The paths that the rules of a manifest allow to be written."""
    try:
        ceiling = manifest.expand(workdir, home).ceiling
    except Malformed:  # the manifest names the home directory of a user who has none, so no gate can be built with it
        return ["/"]
    writes = (rule for rule in ceiling.allow if rule.domain == "fs" and rule.atoms & DOMAINS["fs"].actions["write"])
    return [os.path.realpath(rule.key or "/") for rule in writes]


_INFO = ".dist-info"
_WITHOUT_RECORD = (_INFO, ".egg-info")
_BY_INSTALLERS = frozenset(
    {"RECORD", "RECORD.jws", "RECORD.p7s", "INSTALLER", "REQUESTED", "direct_url.json", "provenance_url.json"}
    | {"uv_build.json", "uv_cache.json"}
)
_SCRIPTS = ("bin", "Scripts")


class UnknownDistribution(LicetError):
    """A module that cannot be pinned to an installed distribution. The message says why."""


class Distribution(Struct, frozen=True, dict=True):
    """One installed distribution, and the files that its RECORD lists."""

    name: str
    version: str
    entry: str  # the directory of the import path that it is installed in
    listed: Mapping[str, str]  # path -> hash, as RECORD has them
    of_others: frozenset[str]  # paths that other distributions in that directory list

    @cached_property
    def files(self) -> Mapping[str, str]:
        """The hash of each file as it is now: of those that are listed, and of those added to its packages."""
        found = {path: _hash(os.path.join(self.entry, path)) for path in (*self.listed, *self._added)}
        return {path: digest for path, digest in found.items() if digest}

    @property
    def digest(self) -> str:
        """One hash over all files."""
        lines = (f"{path}\0{digest}\n" for path, digest in sorted(self.files.items()))
        text = "".join(lines).encode("utf-8", "surrogateescape")
        return f"sha256:{hashlib.sha256(text).hexdigest()}"

    @property
    def changes(self) -> list[str]:
        """What is not as it was installed, by file."""
        found = [f"{path} is missing" for path in self.listed if path not in self.files]
        found += [f"{path} was added" for path in self._added]
        for path, recorded in self.listed.items():
            if path in self.files and recorded and recorded != self.files[path]:
                found.append(f"{path} has changed")
        return sorted(found)

    @cached_property
    def _added(self) -> tuple[str, ...]:
        known = self.listed.keys() | self.of_others
        return tuple(path for path in _below(self.entry, _packages(self.listed)) if path not in known)

    def has(self, file: str) -> bool:
        """Whether a file is one of those that are listed."""
        real = os.path.realpath(file)
        return any(os.path.realpath(os.path.join(self.entry, path)) == real for path in self.listed)


def distributions_of(module: InstalledModule) -> list[Distribution]:
    """The distributions that a module and its packages belong to. Raises `UnknownDistribution`."""
    found: dict[str, Distribution] = {}
    records = _Records(module.entry)
    for name, file in module.loaded:
        own = records.owner(name, file)
        found[own.name] = own
    return list(found.values())


class _Records:
    """The distributions in one directory, by what their RECORD lists."""

    def __init__(self, entry: str) -> None:
        self._entry = entry
        try:
            names = sorted(os.listdir(entry))
        except OSError:
            names = []
        self._infos = [name for name in names if name.endswith(_INFO)]
        self._all = [name for name in names if name.endswith(_WITHOUT_RECORD)]
        self._listed = {name: record for name in self._infos if (record := self._record(name)) is not None}
        self._known: dict[str, Distribution] = {}

    def owner(self, module: str, file: str) -> Distribution:
        if not inside(file, (self._entry,)):
            raise UnknownDistribution(f"`{module}` in {file}, which is in another directory than {self._entry}")
        path = os.path.relpath(file, self._entry).replace(os.sep, "/")
        owners = [name for name, listed in self._listed.items() if path in listed]
        if len(owners) == 1:
            return self._distribution(owners[0])
        if owners:
            raise UnknownDistribution(f"{path}, which more than one distribution lists: {' and '.join(owners)}")
        bare = [name for name in self._all if name not in self._listed]
        without = f" ({' and '.join(bare[:MOST_DISTRIBUTIONS_NAMED])}: no RECORD)" if bare else ""
        raise UnknownDistribution(f"{file}, which no installed distribution lists in its RECORD{without}")

    def _distribution(self, info: str) -> Distribution:
        if info not in self._known:
            try:
                text = read_regular(os.path.join(self._entry, info, "METADATA"), LARGEST_RECORD).decode(
                    errors="replace"
                )
            except OSError as wrong:
                raise UnknownDistribution(f"the METADATA of {info} cannot be read: {wrong.strerror}") from None
            fields = Parser().parsestr(text, headersonly=True)
            name, version = canonicalize_name(fields["Name"] or ""), fields["Version"] or ""
            if not name or not version:
                raise UnknownDistribution(f"the METADATA of {info} has no name and version")
            others = (path for other, listed in self._listed.items() if other != info for path in listed)
            self._known[info] = Distribution(name, version, self._entry, self._listed[info], frozenset(others))
        return self._known[info]

    def _record(self, info: str) -> Mapping[str, str] | None:
        try:
            data = read_regular(os.path.join(self._entry, info, "RECORD"), LARGEST_RECORD)
        except OSError:
            return None
        rows = csv.reader(data.decode("utf-8", "surrogateescape").splitlines())
        return {row[0]: _recorded(row[1] if len(row) > 1 else "") for row in rows if row and _counts(row[0])}


def _counts(path: str) -> bool:
    """Whether a file is part of the wheel, and lies where its modules lie."""
    parts = PurePosixPath(path).parts
    if not parts or path.startswith("/") or "\\" in path or ".." in parts or "__pycache__" in parts:
        return False
    if parts[0].endswith(_INFO):
        return parts[-1] not in _BY_INSTALLERS
    # `pip install --target` puts scripts next to the modules; they differ between two installs.
    is_script = len(parts) == 2 and parts[0] in _SCRIPTS and not path.endswith(".py")
    return not is_script


def _recorded(text: str) -> str:
    """A hash of RECORD in hexadecimal; `unreadable` if it is none, empty for another algorithm."""
    kind, _, value = text.partition("=")
    try:
        return base64.urlsafe_b64decode(f"{value}===").hex() if kind == "sha256" else ""
    except ValueError:
        return "unreadable"


def _packages(listed: Collection[str]) -> list[str]:
    """The outermost directories that are packages with a file of their own. Namespace packages are shared."""
    found = {path.rpartition("/")[0] for path in listed if path.rpartition("/")[2].startswith("__init__.")}
    return sorted(one for one in found if one and not inside(one.rpartition("/")[0], found - {""}))


def _below(entry: str, packages: Collection[str]) -> Iterator[str]:
    for package in packages:
        for folder, names, files in os.walk(os.path.join(entry, package)):
            names[:] = sorted(name for name in names if name != "__pycache__")
            here = os.path.relpath(folder, entry).replace(os.sep, "/")
            links = [name for name in names if os.path.islink(os.path.join(folder, name))]
            for name in sorted((*files, *links)):
                if not (name.endswith(".pyc") and f"{name[:-1]}" in files):  # the source is loaded, not this one
                    yield f"{here}/{name}"


def _hash(path: str) -> str:
    """The hash of a file; empty if it cannot be read."""
    digest = hashlib.sha256()
    try:
        with open_regular(path) as fd:
            while part := os.read(fd, 1 << 20):
                digest.update(part)
    except OSError:
        return f"no file: {os.readlink(path)}" if os.path.islink(path) else ""
    return digest.hexdigest()


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
    from licet.packages.pypi import platform_tag

    return LockedDistribution(one.version, {platform_tag(): one.digest})


def _few(changes: list[str]) -> str:
    more = f" and {len(changes) - MOST_CHANGES_NAMED} more" if len(changes) > MOST_CHANGES_NAMED else ""
    return f"{', '.join(changes[:MOST_CHANGES_NAMED])}{more}"


def owner_of(path: str, libraries: Sequence[str]) -> tuple[str, str] | None:
    """The distribution, and its version, that lists a file in its RECORD; `None` if not exactly one does."""
    name = os.path.basename(path)
    owners = set()
    for distribution in _in_libraries(libraries):
        record = distribution.read_text("RECORD")
        if record is None or name not in record:
            continue
        if any(os.path.realpath(str(distribution.locate_file(own))) == path for own in distribution.files or ()):
            stated = distribution.metadata
            if "Name" not in stated or "Version" not in stated:
                return None
            owners.add((str(canonicalize_name(stated["Name"])), stated["Version"]))
    return owners.pop() if len(owners) == 1 else None


class _Foreign(metadata.Distribution):
    """An installed distribution of somebody else's environment: its metadata may be a pipe, or never end."""

    def __init__(self, folder: str) -> None:
        self._folder = folder

    def read_text(self, filename: str) -> str | None:
        """One of its files; None if there is none, or it is no text."""
        try:
            return read_regular(os.path.join(self._folder, filename), LARGEST_METADATA).decode()
        except (OSError, ValueError):
            return None

    def locate_file(self, path: str | os.PathLike[str]) -> Path:
        """Where a file of its RECORD is."""
        return Path(os.path.dirname(self._folder), path)


def _in_libraries(libraries: Sequence[str]) -> Iterator[_Foreign]:
    for library in libraries:
        with suppress(OSError), os.scandir(library) as entries:
            yield from (_Foreign(entry.path) for entry in entries if entry.name.endswith(".dist-info"))
