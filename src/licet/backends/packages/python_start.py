"""The command line that starts a Python server without the directory of its script on the import path.

Python searches that directory first, and `python -m` the current one: a file planted there would replace any module
of the server. Python 3.11 and newer leave it out with `-P`. For older ones, and for a server with `code`, a short
program does the same and then runs the script as `python` itself would.

Modules in `code` are compiled from their source each time. The files in `__pycache__` are not in the lock, so they are
not used.
"""

import os
import re
import zipfile
from collections.abc import Mapping, Sequence
from contextlib import suppress

from licet.regular_files import read_regular

__all__ = ["environment_of", "python_argv", "settings_of"]

_SAFE_PATH = (3, 11)  # the first Python with `-P`
_MOST_BYTES = 64 * 1024  # of a `pyvenv.cfg`
_START = """\
def start(code):
    import sys
    sys.path[:] = [entry for entry in sys.path if entry]
    if code:
        from importlib.machinery import (BYTECODE_SUFFIXES, EXTENSION_SUFFIXES, SOURCE_SUFFIXES, ExtensionFileLoader,
                                         FileFinder, SourceFileLoader, SourcelessFileLoader)
        class FromSource(SourceFileLoader):
            def get_code(self, name):
                path = self.get_filename(name)
                return self.source_to_code(self.get_data(path), path)
        def finder(path):
            if not any(path == one or path.startswith(one + "/") for one in code):
                raise ImportError("not in the code of the server", path=path)
            return FileFinder(path, (ExtensionFileLoader, EXTENSION_SUFFIXES), (FromSource, SOURCE_SUFFIXES),
                              (SourcelessFileLoader, BYTECODE_SUFFIXES))
        sys.path_hooks.insert(0, finder)
        sys.path_importer_cache.clear()
        sys.path[:0] = code
    del sys.argv[0]
    return sys.argv[0]
"""
_SCRIPT = """\
__file__ = start({code!r})
del start
exec(compile(open(__file__, "rb").read(), __file__, "exec"))
"""
_ARCHIVE = """\
import runpy
runpy.run_path(start({code!r}), run_name="__main__")
"""
_MODULE = """\
import runpy
runpy.run_module(start({code!r}), run_name="__main__", alter_sys=True)
"""


def python_argv(python: str, flags: Sequence[str], program: str, code: Sequence[str] = ()) -> tuple[str, ...]:
    """Start a script or, after a last flag `-m`, a module, with nothing but `code` before Python's own libraries."""
    own = [flag for flag in flags if flag != "--"]
    is_module = own[-1:] == ["-m"]
    is_archive = not is_module and zipfile.is_zipfile(program)  # it is then searched itself, and not its directory
    if not code and ("-I" in own or is_archive):
        return python, *own, program
    if not code and (_version(python) or (0, 0)) >= _SAFE_PATH:
        return python, *({"-P"} - {*own}), *own, program
    run = _MODULE if is_module else _ARCHIVE if is_archive else _SCRIPT
    return python, *(own[:-1] if is_module else own), "-c", _START + run.format(code=list(code)), program


def environment_of(python: str) -> str:
    """The directory of the virtual environment of an interpreter; empty if it has none."""
    own = os.path.dirname(os.path.dirname(python))
    return own if os.path.isfile(os.path.join(own, "pyvenv.cfg")) else ""


def settings_of(environment: str) -> Mapping[str, str]:
    """What `pyvenv.cfg` says, such as `home`; nothing if it cannot be read."""
    with suppress(OSError, UnicodeDecodeError):
        text = read_regular(os.path.join(environment, "pyvenv.cfg"), _MOST_BYTES).decode()
        pairs = (line.partition("=") for line in text.splitlines() if "=" in line)
        return {key.strip().lower(): value.strip() for key, _, value in pairs}
    return {}


def _version(python: str) -> tuple[int, int] | None:
    """The version of an interpreter, as far as its files tell; it is not started."""
    named = re.fullmatch(r"python(\d+)\.(\d+)t?d?", os.path.basename(os.path.realpath(python)))
    if named is None and (environment := environment_of(python)):
        settings = settings_of(environment)
        named = re.match(r"(\d+)\.(\d+)", settings.get("version") or settings.get("version_info", ""))
    return (int(named[1]), int(named[2])) if named else None
