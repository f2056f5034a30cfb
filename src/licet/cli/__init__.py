"""The command line, `licet`. Each command is imported when it runs, so that `licet --help` starts quickly.

Makes commands of licet import installed code only, and nothing from the current directory.

`python -m licet` puts that directory first on the import path, so a `click.py` there would run. This is called before
anything outside the standard library is imported, and uses only modules that every interpreter has already loaded.
"""

import gc
import os
import site
import sys

__all__ = ["main", "program"]

_LICET = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
_PYTHON = ("_frozen_importlib", "_frozen_importlib_external")


def import_installed_only() -> None:
    """Reduce the import path to the standard library, the site-packages of this prefix, and the directory of licet.

    The directory of licet comes last, because anything may be next to a checkout. Finders that `.pth` files have
    installed are removed too: they lead to directories of projects.
    """
    kept = {os.path.realpath(path) for path in (*_standard_library(), *site.getsitepackages())}
    path = [entry for entry in sys.path if entry and os.path.realpath(entry) in kept]
    above = os.path.dirname(_LICET)
    sys.path[:] = path if os.path.realpath(above) in kept else [*path, above]
    sys.meta_path[:] = [finder for finder in sys.meta_path if _module(finder) in _PYTHON]


def _standard_library() -> tuple[str, ...]:
    modules = os.path.dirname(os.path.abspath(os.__file__))
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    extensions = os.path.join(sys.base_exec_prefix, sys.platlibdir, f"python{version}", "lib-dynload")
    archive = os.path.join(sys.base_prefix, sys.platlibdir, f"python{version.replace('.', '')}.zip")
    return modules, os.path.join(modules, "lib-dynload"), extensions, archive


def _module(finder: object) -> str:
    """The module that a finder comes from; a finder may be a class or an object."""
    return str(getattr(finder if isinstance(finder, type) else type(finder), "__module__", ""))


def program() -> None:
    """Run the command line as the program of this process."""
    import_installed_only()
    # Hundreds of modules make no garbage while they are imported, and the interpreter looks for it a hundred times. It
    # begins to look once the command is there (see `app`).
    gc.disable()
    main()


def main() -> None:
    """Run the command line and leave with its exit code."""
    try:
        from licet.cli.app import licet

        licet.main(prog_name="licet")
    except KeyboardInterrupt:  # pressed while modules are imported; after that the app handles it
        sys.exit(130)
