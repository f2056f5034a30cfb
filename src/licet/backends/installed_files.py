"""Reads the files of an installed distribution, as its RECORD lists them, and hashes them. Nothing is imported.

The hash is equal for two installs of the same wheel, wherever they are. So it leaves out what installers write
themselves (`RECORD`, `INSTALLER`, `direct_url.json` …), compiled files, what lies outside of the directory of the
modules, and scripts, also those in a `bin` next to the modules. A file that was added to a package counts.
"""

import base64
import csv
import hashlib
import os
from collections.abc import Collection, Iterator, Mapping
from email.parser import Parser
from functools import cached_property
from pathlib import PurePosixPath

from msgspec import Struct
from packaging.utils import canonicalize_name

from licet.errors import LicetError
from licet.policy_files.source.installed import InstalledModule
from licet.regular_files import open_regular, read_regular

__all__ = ["Distribution", "UnknownDistribution", "distributions_of"]

_INFO = ".dist-info"
_WITHOUT_RECORD = (_INFO, ".egg-info")
_MOST_BYTES = 32 << 20  # of a RECORD
_BY_INSTALLERS = frozenset(
    {"RECORD", "RECORD.jws", "RECORD.p7s", "INSTALLER", "REQUESTED", "direct_url.json", "provenance_url.json"}
    | {"uv_build.json", "uv_cache.json"}
)
_SCRIPTS = ("bin", "Scripts")
_MOST_NAMED = 3  # distributions that one message names


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
        if not file.startswith(f"{self._entry.rstrip('/')}/"):
            raise UnknownDistribution(f"`{module}` in {file}, which is in another directory than {self._entry}")
        path = os.path.relpath(file, self._entry).replace(os.sep, "/")
        owners = [name for name, listed in self._listed.items() if path in listed]
        if len(owners) == 1:
            return self._distribution(owners[0])
        if owners:
            raise UnknownDistribution(f"{path}, which more than one distribution lists: {' and '.join(owners)}")
        bare = [name for name in self._all if name not in self._listed]
        without = f" ({' and '.join(bare[:_MOST_NAMED])}: no RECORD)" if bare else ""
        raise UnknownDistribution(f"{file}, which no installed distribution lists in its RECORD{without}")

    def _distribution(self, info: str) -> Distribution:
        if info not in self._known:
            try:
                text = read_regular(os.path.join(self._entry, info, "METADATA"), _MOST_BYTES).decode(errors="replace")
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
            data = read_regular(os.path.join(self._entry, info, "RECORD"), _MOST_BYTES)
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
    return sorted(one for one in found if one and not any(one.startswith(f"{above}/") for above in found if above))


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
