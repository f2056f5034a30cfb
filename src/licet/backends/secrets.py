r"""Sources of secrets: environment variables, a file of `NAME=value` lines, a mapping, and several of these in order.

A file must be readable by its owner only. Its values are bare, in 'single quotes' (nothing is special) or in "double
quotes" (with the escapes `\n \r \t \" \\`). Nothing is expanded. A line that shells and other readers of such files
would read differently is an error. Errors name the file and the line, never a value.
"""

import os
import re
import stat
from collections.abc import Mapping

from licet.guard.handles.secrets import getter
from licet.guard.ports import Secrets, SecretsFunction, Unavailable
from licet.regular_files import NotRegular, open_regular, read_most


class ChainSecrets:
    """Asks one backend after the other. An error ends the search: the next backend might have an older value."""

    def __init__(self, *backends: Secrets | SecretsFunction) -> None:
        self._backends = [getter(backend) for backend in backends]

    async def get(self, reference: str) -> str | None:
        """Return the value of a secret, from the first backend that has it."""
        for ask in self._backends:
            if (value := await ask(reference)) is not None:
                return value
        return None


_SEGMENT = "[a-z0-9]+(?:_[a-z0-9]+)*"
_SEGMENTS = re.compile(f"{_SEGMENT}(?:/{_SEGMENT})+")
_FOLDED = re.compile(f"{_SEGMENT}(?:__{_SEGMENT})+".replace("a-z", "A-Z"))


class EnvironmentSecrets:
    """Each reference is the variable of that name; `github/token` may also be `GITHUB__TOKEN`. Empty means unset."""

    def __init__(self, environ: Mapping[str, str] | None = None) -> None:
        self._environ = os.environ if environ is None else environ

    async def get(self, reference: str) -> str | None:
        """Return the value of a secret, or None if there is no such variable."""
        return next((value for name in variables_of(reference) if (value := self._environ.get(name))), None)


def variables_of(reference: str) -> tuple[str, ...]:
    """Return the names under which a reference is looked up, in order.

    No name belongs to two references: a tool that may not have one of them could ask for the other. So only plain
    segments are converted, in a way that can be reversed, and a reference that looks like a converted one has no name.
    """
    if _FOLDED.fullmatch(reference):
        return ()
    if _SEGMENTS.fullmatch(reference):
        return reference, reference.replace("/", "__").upper()
    return (reference,)  # exactly this name: `path` is not `PATH`


_LARGEST = 1 << 20
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_./-]*")
_BARE = re.compile(r"[^\s\"'`#$\\]+")
_SINGLE = re.compile(r"'([^']*)'")
_DOUBLE = re.compile(r'"((?:[^"\\]|\\.)*)"')
_AFTER = re.compile(r"\s*(?:\s#.*)?")  # the text that may follow a value
_CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
_ESCAPED = {"n": "\n", "r": "\r", "t": "\t", '"': '"', "\\": "\\"}

Version = tuple[int, ...]


class FileSecrets:
    """Each reference is the line of that name; `github/token` may also be `GITHUB__TOKEN`. Changes are noticed."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = os.path.abspath(path)
        self._version: Version | None = None
        self._values: dict[str, str] = {}

    async def get(self, reference: str) -> str | None:
        """Return the value of a secret, or None; raises `Unavailable` if the file is not fit for secrets."""
        self.check()
        return next((value for name in variables_of(reference) if (value := self._values.get(name))), None)

    def check(self) -> None:
        """Read the file if it has changed; raises `Unavailable` if it is not fit for secrets."""
        known, self._version = self._version, None  # a wrong file has no values, not those that it had before
        try:
            with open_regular(self._path, links=False) as fd:
                found = os.fstat(fd)
                _check(self._path, found)
                version = (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)
                if version != known:
                    self._values = parse(self._path, read_most(fd, _LARGEST + 1))
        except OSError as error:
            if os.path.islink(self._path):
                raise Unavailable(f"{self._path} is a link: name the file itself") from None
            if isinstance(error, NotRegular):
                raise Unavailable(f"{self._path} is not a regular file") from None
            raise Unavailable(f"{self._path} cannot be opened: {error.strerror}") from None
        self._version = version


def _check(path: str, found: os.stat_result) -> None:
    if found.st_uid != os.geteuid():
        raise Unavailable(f"{path} belongs to another user: run `chown {os.geteuid()} {path}`")
    mode = stat.S_IMODE(found.st_mode)
    if mode & ~0o600:
        raise Unavailable(f"{path} has mode {mode:04o}, others may read or change it: run `chmod 600 {path}`")


def parse(path: str, raw: bytes) -> dict[str, str]:
    """Parse the values by name; raises `Unavailable` with the line that is wrong."""
    if len(raw) > _LARGEST:
        raise Unavailable(f"{path} is larger than {_LARGEST} bytes")
    values: dict[str, str] = {}
    lines: dict[str, int] = {}
    for number, row in enumerate(raw.split(b"\n"), 1):
        try:
            line = row.removesuffix(b"\r").decode()
        except UnicodeDecodeError:
            raise Unavailable(f"{path}:{number}: found bytes that are not UTF-8") from None
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        name, value = _entry(f"{path}:{number}", line)
        if name in values:
            raise Unavailable(f"{path}:{number}: `{name}` is there already, on line {lines[name]}: keep one")
        values[name], lines[name] = value, number
    return values


def _entry(where: str, line: str) -> tuple[str, str]:
    if _CONTROL.search(line):
        raise Unavailable(f"{where}: found a control character: write a line break as \\n in double quotes")
    name = _NAME.match(line)
    # The text in place of a name may be a value, so it is not quoted.
    if name is None or line[name.end() : name.end() + 1] != "=":
        hint = ": leave out `export`" if line.lstrip().startswith("export ") else ""
        raise Unavailable(f"{where}: expected `NAME=value`, without spaces before `=`{hint}")
    where, rest = f"{where}: `{name[0]}`", line[name.end() + 1 :]
    if found := _SINGLE.match(rest):
        value = found[1]
    elif found := _DOUBLE.match(rest):
        value = _read(where, found[1])
    elif found := _BARE.match(rest):
        value = found[0]
    else:
        raise Unavailable(f"{where} has no value, or one that needs 'single quotes'")
    if not _AFTER.fullmatch(rest, found.end()):
        raise Unavailable(f"{where} goes on after its value: put all of it in 'single quotes'")
    if not value:
        raise Unavailable(f"{where} is empty: remove the line")
    return name[0], value


def _read(where: str, quoted: str) -> str:
    """Read the escapes of a text in double quotes."""
    if "$" in quoted or "`" in quoted:
        raise Unavailable(f"{where} has a `$` or a backtick in double quotes, and nothing is expanded: use single ones")
    escapes = re.findall(r"\\(.)", quoted)
    if any(escape not in _ESCAPED for escape in escapes):
        raise Unavailable(f'{where} has an unknown escape: known are \\n, \\r, \\t, \\" and \\\\')
    return re.sub(r"\\(.)", lambda found: _ESCAPED[found[1]], quoted)


class MemorySecrets:
    """Values by reference, in the memory of this process."""

    def __init__(self, values: Mapping[str, str] | None = None) -> None:
        self._values = dict(values or {})

    async def get(self, reference: str) -> str | None:
        """Return the value of a secret, or None."""
        return self._values.get(reference)
