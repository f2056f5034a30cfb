"""Writing a file whole or not at all."""

import os
import stat
from pathlib import Path

import click


def write_file(path: Path, text: str, *, replace: bool) -> None:
    """Write a text file in one step, so that nobody ever sees half of it; an existing one stays unless `replace`.

    A file that is replaced hands down who may read and write it; a link is replaced, not what it leads to.
    """
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
