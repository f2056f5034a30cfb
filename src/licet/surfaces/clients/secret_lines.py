"""Adds values to a file of secrets: `NAME=value` lines that only this user can read."""

from collections.abc import Mapping
from pathlib import Path

from licet.backends.secrets import parse
from licet.guard.ports import Unavailable
from licet.surfaces.clients.files import Unusable, own_directory, read_own, replace_own, write_own

_ESCAPES = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\r": "\\r", "\t": "\\t"}

SECRETS_FILE = "mcp-secrets.env"  # in the state directory


def secret_line(name: str, value: str) -> str | None:
    """The line for a value, None if the file has no spelling for it. It was read back, so it is right."""
    escaped = "".join(_ESCAPES.get(char, char) for char in value)
    for line in (f"{name}={value}", f"{name}='{value}'", f'{name}="{escaped}"'):
        try:
            if parse("", line.encode()) == {name: value}:
                return line
        except (Unavailable, UnicodeEncodeError):
            continue
    return None


def known_secrets(file: Path) -> dict[str, str]:
    """The values that a file of secrets has; none if it does not exist. Raises `Unusable` if it is not fit."""
    seen = read_own(file, file.parent)
    if seen is None:
        return {}
    if seen.mode & ~0o600:
        raise Unusable(f"{file} has mode {seen.mode:04o}, others may read or change it: run `chmod 600 {file}`")
    try:
        return parse(str(file), seen.data)
    except Unavailable as wrong:
        raise Unusable(str(wrong)) from None


def add_secrets(file: Path, values: Mapping[str, str]) -> tuple[str, ...]:
    """Append the values that a file does not have yet, and return their names. No value that it has is changed."""
    known = known_secrets(file)
    new = {name: value for name, value in values.items() if name not in known}
    lines = [secret_line(name, value) for name, value in new.items()]
    if None in lines:
        raise Unusable(f"{file} has no spelling for a value")
    if not new:
        return ()
    own_directory(file.parent)
    seen = read_own(file, file.parent)
    before = seen.data if seen else b""
    joint = b"" if not before or before.endswith(b"\n") else b"\n"
    data = before + joint + "".join(f"{line}\n" for line in lines).encode()
    if seen is None:
        write_own(file, data)
    else:
        replace_own(seen, data, file.parent)
    return tuple(new)
