"""Writing a file whole or not at all, and into devices and pipes, which are never replaced."""

import os
import stat
import sys
from pathlib import Path

import click


def is_output(path: Path) -> bool:
    """Whether a path stands for the standard output: `-`, or what leads to it, such as /dev/stdout."""
    if str(path) == "-":
        return True
    try:
        return os.path.samestat(path.stat(), os.fstat(sys.stdout.fileno()))
    except (OSError, ValueError):  # there is no such thing, or an output without a number
        return False


def is_special(path: Path) -> bool:
    """Whether a path leads to a device, a pipe or a socket: something that takes what is written into it."""
    try:
        mode = path.stat().st_mode
    except OSError:
        return False
    return not (stat.S_ISREG(mode) or stat.S_ISDIR(mode))


def write_file(path: Path, text: str, *, replace: bool) -> None:
    """Write a text file in one step, so that nobody ever sees half of it; an existing one stays unless `replace`.

    A file that is replaced hands down who may read and write it; a link is replaced, not what it leads to. Only where
    that is no file, such as /dev/null, the text goes into it.
    """
    if is_special(path):
        _write_into(path, text)
        return
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with draft.open("x", encoding="utf-8") as file:  # never through a link that somebody left there
            try:
                if os.path.lexists(path) and stat.S_ISREG(mode := path.lstat().st_mode):
                    draft.chmod(mode & 0o777)
                file.write(text)
                file.flush()
                if replace:
                    draft.replace(path)
                else:
                    _put_beside(draft, path)
            finally:
                draft.unlink(missing_ok=True)
    except OSError as error:
        raise click.ClickException(f"cannot write {path}: {error.strerror}") from None


def _write_into(path: Path, text: str) -> None:
    try:
        number = os.open(path, os.O_WRONLY | os.O_NOCTTY | os.O_CLOEXEC)
        with os.fdopen(number, "w", encoding="utf-8") as stream:
            stream.write(text)
    except OSError as error:
        raise click.ClickException(f"cannot write {path}: {error.strerror}") from None


def _put_beside(draft: Path, path: Path) -> None:
    try:
        os.link(draft, path)  # unlike a rename, this refuses where something is in the way
    except FileExistsError:
        raise
    except OSError:  # a file system without links
        if path.exists():
            raise
        draft.replace(path)


def make_folder(path: Path) -> None:
    """Make a directory, and those above it, if they are not there."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise click.ClickException(f"cannot make the directory {path}: {error.strerror}") from None
