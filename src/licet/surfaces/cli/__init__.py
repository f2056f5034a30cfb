"""The command line, `licet`. Its commands load when they run, so that asking for help costs little."""

import gc
import sys

__all__ = ["main"]


def main() -> None:
    """Run the command line and leave with its exit code."""
    gc.set_threshold(100_000)  # what loading makes stays: to look through it again and again finds nothing
    try:
        if sys.argv[1:2] == ["run"] and "--" in sys.argv:
            from licet.surfaces.cli import ahead

            ahead.begin()
        from licet.surfaces.cli.app import licet

        licet.main(prog_name="licet")
    except KeyboardInterrupt:  # while modules still load; later on the app itself sees it
        sys.exit(130)
    finally:
        gc.freeze()  # on the way out everything would be looked through once more, and ends with the process anyway
