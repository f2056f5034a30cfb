"""Inspects a wheel before it is unpacked: nothing in it may run, or redirect Python, when an interpreter starts.

Python runs the `import` lines of `.pth` files, `sitecustomize` and `usercustomize` at each start, before any program. A
file for the root of the environment could replace its interpreter or its configuration.
"""

import re
import stat
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from email.parser import BytesHeaderParser
from pathlib import Path, PurePosixPath

from licet.backends.packages.archives import CHUNK, Bounds, folded, wrong_name
from licet.backends.packages.errors import PackageError
from licet.core.algebra.scope import visible

__all__ = ["check_wheel", "needs_of_wheel"]

_MOST_BYTES = 1 << 20  # of a file that is read here
_MOST_METADATA = 8 << 20
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
        data = _read(archive, places[0], _MOST_METADATA) if len(places) == 1 else None
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
    data = _read(archive, member, _MOST_BYTES)
    try:
        return data.decode("utf-8-sig") if data is not None else None
    except UnicodeDecodeError:
        return None


def _read(archive: zipfile.ZipFile, member: zipfile.ZipInfo, most: int) -> bytes | None:
    with archive.open(member) as file:
        data = file.read(most + 1)
    return data if len(data) <= most else None
