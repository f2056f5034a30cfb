"""Writing a file whole or not at all."""

import os
from pathlib import Path


def write_file(path: Path, text: str, *, replace: bool) -> None:
    """Write a text file in one step, so that nobody ever sees half of it; an existing one stays unless `replace`."""
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    draft.write_text(text, encoding="utf-8")
    try:
        if replace:
            draft.replace(path)
        else:
            os.link(draft, path)  # unlike a rename, this refuses where something is in the way
    finally:
        draft.unlink(missing_ok=True)
