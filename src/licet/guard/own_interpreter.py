"""How licet starts an interpreter of its own: the command, with a few modules of licet and nothing else of the host."""

import os
import sys
from collections.abc import Mapping

# Modules, and not scripts, which Python would compile each time. `licet` itself would load more than is needed, and is
# not on the path; nor are the folders of its packages, whose `http` is not the one that others mean.
_START = """
import sys
for name in ("licet", *folders):
    sys.modules[name] = package = type(sys)(name)
    package.__path__ = [folders[name]] if name in folders else []
def found(place):
    module, _, name = place.partition(":")
    __import__(module)
    return getattr(sys.modules[module], name)
main, *others = map(found, places)
main(*others)
"""
_SCRATCH = ("TMPDIR", "TEMP", "TMP")  # where `tempfile` looks, in this order


def own_interpreter(folders: Mapping[str, str], *places: str) -> list[str]:
    """The command of an interpreter that has these packages, and calls the first function with the others.

    A function is named by its module and its own name: `licet.sandbox.attempts:main`. What is added to the command are
    arguments.
    """
    return [sys.executable, "-I", "-S", "-c", f"folders, places = {dict(folders)!r}, {places!r}{_START}"]


def libraries() -> dict[str, str]:
    """The variable that an interpreter which was built with shared libraries needs to start. No program gets it."""
    return {name: os.environ[name] for name in ("LD_LIBRARY_PATH",) if name in os.environ}


def scratch_places() -> dict[str, str]:
    """The variables that say where files for a while are kept, for a process that is in another directory."""
    return {name: os.path.abspath(os.environ[name]) for name in _SCRATCH if os.environ.get(name)}
