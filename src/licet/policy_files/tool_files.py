"""The paths at which Python would find the code of tools that a manifest names with `from:`. Nothing is imported."""

import os
from collections.abc import Iterable, Iterator
from importlib.machinery import EXTENSION_SUFFIXES

from licet.core.policy.layer import CODE, SECOND_CODE

_OURS = "licet"  # it is imported already, so a new file cannot replace it


def code_directories(directory: str) -> tuple[str, str]:
    """The directories to search for the tools of a policy file in `directory`: itself and its `src`."""
    return directory, os.path.join(directory, "src")


def tool_files(references: Iterable[str], directory: str) -> Iterator[tuple[str, str]]:
    """Each path at which the code of `pkg.mod:f` is or would be found, with the reason why it is closed for writing.

    These are the top module as a package or as a file, and the cache of compiled files. If one of them exists, the
    reason for the others is `SECOND_CODE`: loading refuses a module that is in two places.
    """
    places = code_directories(directory)
    for top in dict.fromkeys(reference.partition(":")[0].partition(".")[0] for reference in references):
        if top in ("", _OURS):
            continue
        names = [f"{top}{ending}" for ending in ("", ".py", *EXTENSION_SUFFIXES)]
        paths = [os.path.join(place, name) for place in places for name in names]
        known = any(map(os.path.lexists, paths))
        for path in paths:
            yield from _both(path, SECOND_CODE if known and not os.path.lexists(path) else CODE)
        for place in places:
            yield from _both(os.path.join(place, "__pycache__"), SECOND_CODE)


def _both(path: str, why: str) -> Iterator[tuple[str, str]]:
    for name in dict.fromkeys((path, os.path.realpath(path))):
        yield name, why
