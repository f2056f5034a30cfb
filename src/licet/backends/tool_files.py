"""Where Python would find the code of tools that a manifest names with `from:`. Nothing is imported."""

import os
from collections.abc import Iterable, Iterator
from importlib.machinery import EXTENSION_SUFFIXES

_OURS = "licet"  # it runs already: nothing that is written now takes its place


def code_directories(directory: str) -> tuple[str, str]:
    """Where a review and an import look for the tools of a policy file in a directory: there, and in its `src`."""
    return directory, os.path.join(directory, "src")


def tool_files(references: Iterable[str], directory: str) -> Iterator[str]:
    """Every path beside a policy file at which a file would be, or take the place of, the code that `pkg.mod:f` names.

    That is the top module as a package or a file, and what was compiled of it. What it imports from elsewhere is not
    known without running it.
    """
    tops = dict.fromkeys(reference.partition(":")[0].partition(".")[0] for reference in references)
    names = [f"{top}{ending}" for top in tops if top not in ("", _OURS) for ending in ("", ".py", *EXTENSION_SUFFIXES)]
    for place in code_directories(directory) if names else ():
        for name in ("__pycache__", *names):
            path = os.path.join(place, name)
            yield path
            if os.path.islink(path) or os.path.islink(place):
                yield os.path.realpath(path)
