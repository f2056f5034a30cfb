"""Asks pip for wheels: of names alone, without what these need, so that it never follows a requirement of a package.

pip would: a requirement with an address (`x @ http://…/x.tar.gz`) is fetched and built, even with `--only-binary`. What
a package needs is read from its wheel instead (`resolving.py`), and pip is asked for the next names.

Of the configuration of this user, pip gets where packages are and how they are reached, and nothing else: a setting
could add packages, sources or another Python.
"""

import ast
import os
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from packaging.utils import InvalidWheelFilename, parse_wheel_filename

from licet.backends.packages.clients import advice, client_environment, has_module, run_client
from licet.backends.packages.errors import PackageError
from licet.core.algebra.scope import visible
from licet.regular_files import read_regular

__all__ = ["NOT_BUILT", "NoWheel", "Pip", "write_lines"]

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
_MOST_LOGGED = 64 << 20
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
        logged = read_regular(log, _MOST_LOGGED).decode("utf-8", "replace")
    except OSError:
        return ""
    if (found := _UNREACHED.search(logged)) is None:
        return ""
    return f"\n  {visible(found[1])} was not read: {visible(found[2])}{advice(found[2], _CERTIFICATES, _WAYS)}"


def write_lines(path: Path, lines: Iterable[str]) -> None:
    """Write a text file."""
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
