"""The name under which a manifest finds a Python file: its path below the manifest, as an import would write it."""

import os
import re
from pathlib import Path

from licet.core.origin import Origin, Problem

_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def module_name(file: Path, root: Path) -> str | Problem:
    """The dotted name of a file below a directory, or why it has none there."""
    origin = Origin(str(file), 1, 1)
    try:
        below = Path(os.path.abspath(file)).relative_to(os.path.abspath(root))
    except ValueError:
        hint = "write the manifest into a directory above both, with -o"
        return Problem(origin, f"a file outside {root}", "a file below the directory of the manifest", hint)
    parts = list(below.with_suffix("").parts)
    if parts[-1] == "__init__":
        parts.pop()
    if parts and parts[0] == "src":  # the other place where sources are looked for
        parts = parts[1:]
    if file.suffix != ".py" or not all(map(_IDENTIFIER.fullmatch, parts)):
        return Problem(origin, f"the path {below}", "names that Python can import, ending in `.py`")
    if not parts:
        return Problem(
            origin, "the package itself", "a file below the manifest", "write the manifest above it, with -o"
        )
    return ".".join(parts)
