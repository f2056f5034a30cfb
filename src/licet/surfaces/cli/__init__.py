"""The command line, `licet`. Each command is imported when it runs, so that `licet --help` starts quickly."""

import sys

from licet.surfaces.installed_only import import_installed_only

__all__ = ["main", "program"]


def program() -> None:
    """Run the command line as the program of this process."""
    import_installed_only()
    main()


def main() -> None:
    """Run the command line and leave with its exit code."""
    try:
        from licet.surfaces.cli.app import licet

        licet.main(prog_name="licet")
    except KeyboardInterrupt:  # pressed while modules are imported; after that the app handles it
        sys.exit(130)
