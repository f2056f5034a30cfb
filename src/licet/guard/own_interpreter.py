"""How licet starts an interpreter of its own: the command, with a few modules of licet and nothing else of the host.

Every one is started with `-I -S`: no variable, no user directory, and no `site`. So no `.pth` file, `sitecustomize` or
`usercustomize` runs there, whoever has written it.
"""

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
# Python text that every such interpreter runs first. Tests put an audit hook here, from within this process; nothing
# outside of it can.
PRELUDE = ""
_SCRATCH = ("TMPDIR", "TEMP", "TMP")  # where `tempfile` looks, in this order


def own_interpreter(folders: Mapping[str, str], *places: str) -> list[str]:
    """The command of an interpreter that has these packages, and calls the first function with the others.

    A function is named by its module and its own name: `licet.sandbox.attempts:main`. What is added to the command are
    arguments.
    """
    return isolated_interpreter(f"folders, places = {dict(folders)!r}, {places!r}{_START}")


def isolated_interpreter(program: str, *options: str) -> list[str]:
    """The command of an interpreter that runs this text and has the standard library alone."""
    return [sys.executable, "-I", "-S", *options, "-c", f"{PRELUDE}\n{program}"]


def libraries() -> dict[str, str]:
    """The variable that an interpreter which was built with shared libraries needs to start. No program gets it."""
    return {name: os.environ[name] for name in ("LD_LIBRARY_PATH",) if name in os.environ}


def scratch_places() -> dict[str, str]:
    """The variables that say where files for a while are kept, for a process that is in another directory."""
    return {name: os.path.abspath(os.environ[name]) for name in _SCRATCH if os.environ.get(name)}
