"""Runs some Python in a program with the streams of this process, as `licet run` does: `attached_host.py KIND CODE`."""

import sys

from attacks.walled_programs import PYTHON, Programs
from licet.assemble.program import AttachedProcesses
from licet.ports import Finished
from licet.sandbox.programs.terminal_streams import AttachedStreams


def main(kind: str, code: str) -> int:
    """Run it with nothing granted, and return its code."""
    ended: list[Finished] = []
    programs, attached = Programs(kind, effect="read_only"), AttachedStreams()
    programs.handle._processes = AttachedProcesses(ended, attached, None)
    try:
        programs.run(PYTHON, "-I", "-S", "-c", code)
    finally:
        attached.finish(wait=True)
    return ended[0].exit_code


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
