"""Chooses the versions of a package of PyPI and of all that it needs, from the metadata of wheels alone.

Nothing but a name with versions is ever asked for. A requirement with an address (a URL, a repository, a path), and a
name without a wheel, are refused before anything of them is fetched: what is not a wheel would run code to be read.

Asks pip for wheels: of names alone, without what these need, so that it never follows a requirement of a package.

pip would: a requirement with an address (`x @ http://…/x.tar.gz`) is fetched and built, even with `--only-binary`. What
a package needs is read from its wheel instead (`resolving.py`), and pip is asked for the next names.

Of the configuration of this user, pip gets where packages are and how they are reached, and nothing else: a setting
could add packages, sources or another Python.

Inspects a wheel before it is unpacked: nothing in it may run, or redirect Python, when an interpreter starts.

Python runs the `import` lines of `.pth` files, `sitecustomize` and `usercustomize` at each start, before any program. A
file for the root of the environment could replace its interpreter or its configuration.
"""

import ast
import os
import re
import stat
import sys
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from email.parser import BytesHeaderParser
from pathlib import Path, PurePosixPath

from msgspec import Struct
from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import InvalidWheelFilename, canonicalize_name, parse_wheel_filename
from packaging.version import Version
from resolvelib import AbstractProvider, BaseReporter, ResolutionImpossible, ResolutionTooDeep, Resolver
from resolvelib.structs import RequirementInformation

from licet.core.algebra.scope import visible
from licet.own_files import read_regular
from licet.packages.archives import Bounds, folded, wrong_name
from licet.packages.clients import PackageError, advice, client_environment, has_module, run_client
from licet.packages.limits import (
    CHUNK,
    LARGEST_PIP_LOG,
    LARGEST_WHEEL_METADATA,
    LARGEST_WHEEL_TEXT,
    MOST_CAUSES,
    MOST_LEVELS,
    MOST_ROUNDS,
)

__all__ = ["NOT_BUILT", "NoWheel", "Pip", "check_wheel", "choose_wheels", "needs_of_wheel", "write_lines"]

NOT_BUILT = "only wheels are installed, because building a package runs its code"
_FORCED = ("--only-binary", ":all:", "--no-deps", "--no-input", "--disable-pip-version-check", "--quiet")
_SETTINGS = frozenset(
    ("index-url", "extra-index-url", "no-index", "find-links", "trusted-host", "proxy", "cert", "client-cert")
    + ("timeout", "default-timeout", "retries", "cache-dir", "no-cache-dir", "keyring-provider", "use-feature")
    + ("pre", "uploaded-prior-to")
)
_SECTIONS = ("global", "download")
_VERSIONS = r"(===|~=|==|!=|<=|>=|<|>)[0-9A-Za-z.!+*_-]+"
_PLAIN = re.compile(rf"[a-z0-9][a-z0-9-]*({_VERSIONS}(,{_VERSIONS})*)?")
_CERTIFICATES = "name its file: `pip config set global.cert FILE`"
_WAYS = "`pip config set global.proxy URL` names the proxy of your network, and `global.index-url` your index"
_RETRIES = "2"  # pip's own 5, for each of two questions, take long to say that there is no network
_UNREACHED = re.compile(r"Could not fetch URL (\S+?): (?!404 )(.+?)(?: - skipping)?$", re.MULTILINE)
_NO_WHEEL = re.compile(r"No matching distribution found|requires a different Python|ResolutionImpossible")


class NoWheel(PackageError):
    """There is no wheel with this name in one of these versions that this machine can use."""


class Pip:
    """Runs pip in a directory, with what it may know of the configuration of this user."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._program = self._found()
        self._environment: dict[str, str] | None = None
        self.unreached = ""  # which index did not answer, and the setting to change

    def wheels(self, requirements: Sequence[str], place: str) -> Mapping[str, Path]:
        """Fetch the newest wheel of each `name>=1,<2` into a new directory `place`. Raises `NoWheel`."""
        for text in requirements:
            if not _PLAIN.fullmatch(text):
                raise PackageError(f"`{visible(text)}` is no name of a package with versions")
        try:
            return self._download(["--", *requirements], place, f"fetching wheels of {', '.join(requirements)}")
        except PackageError as wrong:
            if _NO_WHEEL.search(str(wrong)):
                raise NoWheel(str(wrong)) from None
            raise

    def pinned(self, pins: Mapping[str, str], doing: str) -> Mapping[str, Path]:
        """Fetch exactly the wheels that have these hashes."""
        write_lines(self._directory / "pinned.txt", (f"{pin} --hash={sha256}" for pin, sha256 in pins.items()))
        return self._download(["--require-hashes", "-r", "pinned.txt"], "pinned", doing)

    def _download(self, arguments: Sequence[str], place: str, doing: str) -> Mapping[str, Path]:
        log = self._directory / f"{place}.log"
        command = [*self._program, "download", *_FORCED, "--log", log.name, "--dest", place, *arguments]
        try:
            run_client(command, self._directory, self._configured(), doing)
        except PackageError as wrong:
            # pip passes over an index that it does not get to, and says in its log alone that it did.
            self.unreached = _unreached(log) or advice(str(wrong), _CERTIFICATES, _WAYS)
            raise PackageError(f"{wrong}{self.unreached}") from None
        found = {}
        for wheel in sorted((self._directory / place).iterdir()):
            try:
                name, version, _, _ = parse_wheel_filename(wheel.name)
            except InvalidWheelFilename:
                raise PackageError(f"`{visible(wheel.name)}` is no wheel: {NOT_BUILT}") from None
            found[f"{name}=={version}"] = wheel
        return found

    def install(self, pins: Mapping[str, str], wheels: Iterable[Path], python: Path, doing: str) -> None:
        """Unpack wheels that have these hashes into the environment of a Python. No index is asked."""
        place = self._directory / "chosen"
        place.mkdir()
        for wheel in wheels:
            wheel.rename(place / wheel.name)
        write_lines(self._directory / "chosen.txt", (f"{pin} --hash={sha256}" for pin, sha256 in pins.items()))
        exactly = ("--no-index", "--find-links", "chosen", "--require-hashes", "--no-compile", "--no-cache-dir")
        command = [*self._program, "--python", str(python), "install", *_FORCED, *exactly, "--no-warn-script-location"]
        run_client([*command, "-r", "chosen.txt"], self._directory, _bare(), doing)

    def _found(self) -> list[str]:
        """The pip of this Python; or, where there is none, one that `ensurepip` puts into a temporary environment."""
        if has_module(sys.executable, "pip"):
            return [sys.executable, "-I", "-m", "pip"]
        tools = self._directory / "pip"
        run_client([sys.executable, "-I", "-m", "venv", str(tools)], self._directory, _bare(), "finding pip")
        return [str(tools / "bin" / "python"), "-I", "-m", "pip"]

    def _configured(self) -> dict[str, str]:
        """An environment with those settings of the user that pip gets: of its files, and of variables, which win."""
        if self._environment is None:
            command = [*self._program, "--disable-pip-version-check", "config", "list"]
            environment = client_environment("PIP_(?!CONFIG_FILE$).*") | {"PIP_QUIET": "0", "PIP_VERBOSE": "0"}
            listed = run_client(command, self._directory, environment, "reading the configuration of pip")
            found: dict[str, str] = {}
            for name, _, value in (line.partition("=") for line in listed.splitlines()):
                section, _, setting = name.partition(".")
                if section in _SECTIONS and setting in _SETTINGS and (section == "download" or setting not in found):
                    found[setting] = ast.literal_eval(value)
            for name, value in os.environ.items():
                if name.startswith("PIP_") and (setting := name[4:].lower().replace("_", "-")) in _SETTINGS:
                    found[setting] = value
            found.setdefault("retries", _RETRIES)
            self._environment = _bare() | {f"PIP_{name.upper().replace('-', '_')}": found[name] for name in found}
        return self._environment


def _bare() -> dict[str, str]:
    return client_environment("PIP_.*") | {"PIP_CONFIG_FILE": os.devnull}


def _unreached(log: Path) -> str:
    try:
        logged = read_regular(log, LARGEST_PIP_LOG).decode("utf-8", "replace")
    except OSError:
        return ""
    if (found := _UNREACHED.search(logged)) is None:
        return ""
    return f"\n  {visible(found[1])} was not read: {visible(found[2])}{advice(found[2], _CERTIFICATES, _WAYS)}"


def write_lines(path: Path, lines: Iterable[str]) -> None:
    """Write a text file."""
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


_AT_START = re.compile(r"(site|user)customize(\..*)?")
_OF_THE_ENVIRONMENT = re.compile(
    r"(bin/)?(pyvenv\.cfg|pybuilddir\.txt|[^/]*\._pth)$|(bin|lib|lib32|lib64)(/(python|pypy)|$)"
)
_SCHEMES = {"purelib": "site-packages", "platlib": "site-packages", "scripts": "bin", "headers": "include", "data": ""}
_SITE = "site-packages"
_PROGRAM = re.compile(r"[\w][\w.+ -]*")


def check_wheel(wheel: Path, bounds: Bounds) -> None:
    """Raise `PackageError` if unpacking a wheel would plant what runs at the start of Python, or fill the disk."""
    with _opened(wheel) as archive:
        bounds.start(wheel.name, wheel.stat().st_size)
        seen = set()
        for member in archive.infolist():
            bounds.file()
            problem = "is in it twice" if member.filename in seen else _problem(archive, member)
            seen.add(member.filename)
            if problem:
                shown = f"`{visible(member.filename)}`"
                raise PackageError(f"{visible(wheel.name)} is not installed: {shown} {problem}")
            with archive.open(member) as file:  # what it really is, not what is stated
                while data := file.read(CHUNK):
                    bounds.unpacked(len(data))


def needs_of_wheel(wheel: Path) -> Sequence[str]:
    """The lines `Requires-Dist` of a wheel."""
    with _opened(wheel) as archive:
        places = [one for one in archive.infolist() if re.fullmatch(r"[^/]+\.dist-info/METADATA", one.filename)]
        data = _read(archive, places[0], LARGEST_WHEEL_METADATA) if len(places) == 1 else None
        if data is None:
            raise PackageError(f"{visible(wheel.name)} has no metadata that can be read")
        return [str(line) for line in BytesHeaderParser().parsebytes(data).get_all("Requires-Dist", ())]


@contextmanager
def _opened(wheel: Path) -> Iterator[zipfile.ZipFile]:
    try:
        with zipfile.ZipFile(wheel) as archive:
            yield archive
    except (OSError, EOFError, ValueError, zipfile.BadZipFile, zlib.error, NotImplementedError, RuntimeError) as wrong:
        raise PackageError(f"{visible(wheel.name)} is no wheel that can be read: {wrong}") from wrong


def _problem(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> str:
    """What is wrong with a member, as the rest of a sentence that begins with its name; empty if nothing is."""
    name = member.filename.removesuffix("/")
    if problem := wrong_name(name):
        return problem
    if stat.S_ISLNK(member.external_attr >> 16):
        return "is a link"
    place = _installed_at(name)
    if place is None:
        return "is for a part of the environment that is not known"
    if member.is_dir():  # pip makes directories for files alone
        return ""
    path = folded(place)
    if _OF_THE_ENVIRONMENT.match(path):
        return "would replace a part of the environment itself"
    inner = path.removeprefix(f"{_SITE}/")
    if inner != path:
        if _AT_START.fullmatch(inner.partition("/")[0]) or ("/" not in inner and inner.endswith(".start")):
            return "would run at each start of Python"
        if "/" not in inner and inner.endswith(".pth"):
            return _problem_of_pth(archive, member)
        if re.fullmatch(r"[^/]+\.dist-info/entry_points\.txt", inner):
            return _problem_of_scripts(archive, member)
    return ""


def _installed_at(name: str) -> str | None:
    """Where pip puts a member of a wheel, below the environment; `site-packages` is written without its parents.

    `None` for a place that pip does not know.
    """
    first, _, rest = name.partition("/")
    if not first.lower().endswith(".data"):
        return f"{_SITE}/{name}"
    scheme, _, inner = rest.partition("/")
    if not first.endswith(".data") or scheme not in _SCHEMES:
        return None if rest else ""
    return "/".join(part for part in (_SCHEMES[scheme], inner) if part)


def _problem_of_pth(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> str:
    """A `.pth` file may name directories of the package itself, and nothing else."""
    text = _text(archive, member)
    if text is None:
        return "is too large or no text"
    for line in text.splitlines():
        stripped = line.strip()
        if re.match(r"import\b", stripped):
            return f"has the line `{visible(stripped[:80])}`, which would run at each start of Python"
        if stripped.startswith("/") or ".." in PurePosixPath(stripped).parts:
            return f"makes Python import from `{visible(stripped[:80])}`, which is not in the package"
    return ""


def _problem_of_scripts(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> str:
    """A console script is a file in the directory of the interpreter."""
    text = _text(archive, member)
    if text is None:
        return "is too large or no text"
    for line in text.splitlines():
        name = line.partition("=")[0].strip()
        if "=" not in line or name.startswith(("#", ";")):
            continue
        if not _PROGRAM.fullmatch(name) or _OF_THE_ENVIRONMENT.match(folded(f"bin/{name}")):
            return f"has the program `{visible(name[:80])}`, which would replace a part of the environment itself"
    return ""


def _text(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> str | None:
    data = _read(archive, member, LARGEST_WHEEL_TEXT)
    try:
        return data.decode("utf-8-sig") if data is not None else None
    except UnicodeDecodeError:
        return None


def _read(archive: zipfile.ZipFile, member: zipfile.ZipInfo, most: int) -> bytes | None:
    with archive.open(member) as file:
        data = file.read(most + 1)
    return data if len(data) <= most else None


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
        found = Resolver(_Provider(index), BaseReporter[_Want, _Choice, _Key]()).resolve(wants, MOST_ROUNDS)
    except ResolutionImpossible as impossible:
        causes = list(dict.fromkeys(str(cause.requirement) for cause in impossible.causes))
        raise PackageError(f"no versions fit together: {'; '.join(causes[:MOST_CAUSES])}") from None
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
        for _ in range(MOST_LEVELS):
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
