"""Inspects a wheel before it is unpacked: nothing in it may run, or redirect Python, when an interpreter starts.

Python runs the `import` lines of `.pth` files, `sitecustomize` and `usercustomize` at each start, before any program. A
file for the root of the environment could replace its interpreter or its configuration.
"""

import re
import zipfile
from pathlib import Path, PurePosixPath

from licet.backends.packages.store import PackageError
from licet.core.algebra.scope import visible

__all__ = ["check_wheel"]

_MOST_BYTES = 1 << 20  # of a file that is read here
_AT_START = re.compile(r"(site|user)customize(\..*)?", re.IGNORECASE)
_OF_THE_ENVIRONMENT = re.compile(r"pyvenv\.cfg$|(bin|lib|lib32|lib64)(/(python|pypy)|$)", re.IGNORECASE)
_SITE = "site-packages"


def check_wheel(wheel: Path) -> None:
    """Raise `PackageError` if unpacking a wheel would plant something that runs at the start of Python."""
    try:
        with zipfile.ZipFile(wheel) as archive:
            for member in archive.infolist():
                if problem := _problem(archive, member):
                    raise PackageError(f"{visible(wheel.name)} is not installed: {problem}")
    except (OSError, ValueError, zipfile.BadZipFile, NotImplementedError, RuntimeError) as wrong:
        raise PackageError(f"{visible(wheel.name)} is no wheel that can be read: {wrong}") from wrong


def _problem(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> str:
    name = member.filename
    shown = f"`{visible(name)}`"
    path = _installed_at(name)
    parts = path.parts
    if name.startswith("/") or "\\" in name or ".." in parts:
        return f"{shown} leads out of the environment"
    if member.is_dir():  # pip makes directories for files alone
        return ""
    if _OF_THE_ENVIRONMENT.match(str(path)):
        return f"{shown} would replace a part of the environment itself"
    if parts[0] == _SITE and len(parts) > 1:
        if _AT_START.fullmatch(parts[1]):
            return f"{shown} would run at each start of Python"
        if len(parts) == 2 and parts[1].lower().endswith(".start"):
            return f"{shown} would run at each start of Python"
        if len(parts) == 2 and parts[1].lower().endswith(".pth"):
            return _problem_of_pth(archive, member)
    if parts[0] == _SITE and path.name == "entry_points.txt" and path.parent.suffix == ".dist-info":
        return _problem_of_scripts(archive, member)
    return ""


def _installed_at(name: str) -> PurePosixPath:
    """Where a member of a wheel is put, below the environment; `site-packages` is written without its parents."""
    first, _, rest = name.partition("/")
    if not first.lower().endswith(".data"):
        return PurePosixPath(_SITE, name)
    scheme, _, inner = rest.partition("/")
    root = {"scripts": "bin", "headers": "include", "data": ""}.get(scheme.lower(), _SITE)
    return PurePosixPath(root, inner or ".") if root or inner else PurePosixPath("include")


def _problem_of_pth(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> str:
    """A `.pth` file may name directories of the package itself, and nothing else."""
    shown = f"`{visible(member.filename)}`"
    text = _text(archive, member)
    if text is None:
        return f"{shown} is too large or no text"
    for line in text.splitlines():
        stripped = line.strip()
        if re.match(r"import\b", stripped):
            return f"{shown} has the line `{visible(stripped[:80])}`, which would run at each start of Python"
        if stripped.startswith("/") or ".." in PurePosixPath(stripped).parts:
            return f"{shown} makes Python import from `{visible(stripped[:80])}`, which is not in the package"
    return ""


def _problem_of_scripts(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> str:
    """A console script is a file in the directory of the interpreter."""
    text = _text(archive, member)
    if text is None:
        return f"`{visible(member.filename)}` is too large or no text"
    for line in text.splitlines():
        name = line.partition("=")[0].strip()
        if "=" in line and (re.match(r"python|pypy", name, re.IGNORECASE)):
            return f"its program `{visible(name[:80])}` would replace a part of the environment itself"
    return ""


def _text(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> str | None:
    if member.file_size > _MOST_BYTES:
        return None
    with archive.open(member) as file:
        data = file.read(_MOST_BYTES + 1)
    try:
        return data.decode("utf-8-sig") if len(data) <= _MOST_BYTES else None
    except UnicodeDecodeError:
        return None
