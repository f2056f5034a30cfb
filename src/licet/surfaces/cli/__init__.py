"""The command line, `licet`. Its commands load when they run, so that asking for help costs little."""

import atexit
import gc
import os
import sys

from licet.surfaces.installed_only import import_installed_only

__all__ = ["main", "program"]


def program() -> None:
    """Run the command line as a program of its own: when this is done, so is the process."""
    import_installed_only()
    try:
        main()
    except SystemExit as ended:
        if isinstance(ended.code, int):
            _leave(ended.code)
        raise


def main() -> None:
    """Run the command line and leave with its exit code."""
    gc.set_threshold(100_000)  # what loading makes stays: to look through it again and again finds nothing
    try:
        if sys.argv[1:2] == ["run"] and "--" in sys.argv:
            from licet.surfaces.cli import run

            run.begin()
        from licet.surfaces.cli.app import licet

        licet.main(prog_name="licet")
    except KeyboardInterrupt:  # while modules still load; later on the app itself sees it
        sys.exit(130)
    finally:
        gc.freeze()  # on the way out everything would be looked through once more, and ends with the process anyway


def _leave(code: int) -> None:
    """End at once: wait for threads, do what is to be done at the end, and do not take apart what ends anyway.

    So does `multiprocessing` in its children. Whatever of it fails the interpreter does again, and says what is wrong.
    """
    import threading

    try:
        threading._shutdown()  # type: ignore[attr-defined]
        atexit._run_exitfuncs()
        for stream in (sys.stdout, sys.stderr):
            if stream is not None:
                stream.flush()
    except BaseException:
        return
    os._exit(code)
