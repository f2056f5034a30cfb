"""Writing a file whole or not at all."""

import os
from pathlib import Path

import click


def write_file(path: Path, text: str, *, replace: bool) -> None:
    """Write a text file in one step, so that nobody ever sees half of it; an existing one stays unless `replace`."""
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        draft.write_text(text, encoding="utf-8")
        if replace:
            draft.replace(path)
        else:
            os.link(draft, path)  # unlike a rename, this refuses where something is in the way
    except OSError as error:
        raise click.ClickException(f"cannot write {path}: {error.strerror}") from None
    finally:
        draft.unlink(missing_ok=True)


def make_folder(path: Path) -> None:
    """Make a directory, and those above it, if they are not there."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise click.ClickException(f"cannot make the directory {path}: {error.strerror}") from None
