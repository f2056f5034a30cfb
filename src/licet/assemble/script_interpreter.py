"""How `licet run` starts scripts and interpreters of virtual environments.

The kernel starts a script through the interpreter in its first line. Behind walls, that interpreter and its virtual
environment must be readable, and no manifest names them. So they are found here, from the file alone, for a program
that the manifest names itself and that no tool may write: a tool could otherwise choose with a first line what can be
read.
"""

import errno
import os
from contextlib import suppress

from msgspec.structs import replace

from licet.core.algebra.scope import inside, visible
from licet.core.decision.reach import Reach
from licet.guard.execution import Command
from licet.guard.held_paths import held_paths
from licet.guard.import_path import FoundProgram, changeable, followed
from licet.packages.launchers import LaunchError, environment_of
from licet.packages.package_store import PackageError
from licet.packages.programs import first_line, interpreter_of, runtime_of
from licet.sandbox.programs.program_files import SYSTEM, check_links, name_of_binary


def with_interpreter(command: Command, reach: Reach) -> Command:
    """The command that starts the same program, with its interpreter and what that reads.

    Raises `OSError`, and `SandboxUnavailable` for a link that a tool may have made.
    """
    written, file = command.argv[0], str(command.binary)
    rules = [rule.capability for layer in reach.layers for rule in layer.allows]
    named = any(rule.domain == "process" and rule.key in (written, file) for rule in rules)
    if not named or changeable(file, reach.manifest.ceiling):
        _check_interpreter(file, reach)
        return command
    check_links(command, reach)  # of the script: later checks are about its interpreter
    place = next(iter(name_of_binary(command, reach)), file)
    try:
        # The interpreter of a script of the system is there too, and readable.
        starter, flags = (None, ()) if inside(file, SYSTEM) else interpreter_of(file)
    except LaunchError as wrong:
        raise FileNotFoundError(errno.ENOENT, f"its first line names an interpreter, and {wrong}") from None
    if starter is None:
        return replace(command, runtime=(*command.runtime, *_runtime(place, reach)))
    if not os.path.exists(starter):
        text = f"its first line names `{visible(starter)}`, which is not there: install it, or change the line"
        raise FileNotFoundError(errno.ENOENT, text)
    # A script looks for itself by its path, which the kernel would pass on, and not by its name on PATH. A link to it
    # is there only if it can be read.
    shown = place if inside(place, SYSTEM) or held_paths(reach.grant).covers("read", place) else file
    argv = (starter, *flags, shown, *command.argv[1:])
    runtime = (*command.runtime, file, *_runtime(starter, reach))
    return replace(command, binary=FoundProgram(*followed(starter)), argv=argv, runtime=runtime)


def _runtime(starter: str, reach: Reach) -> tuple[str, ...]:
    """What an interpreter reads. A link or a `pyvenv.cfg` that a tool may write is not believed.

    With them a tool could make an environment of any directory, or name any other. Nor is an environment with the home
    directory of the user in it opened.
    """

    def is_sure(path: str) -> bool:
        return not any(changeable(link, reach.manifest.ceiling) for link in followed(path)[1])

    if not is_sure(starter) or changeable(os.path.realpath(starter), reach.manifest.ceiling):
        return ()
    environment = environment_of(starter)
    settings, real = os.path.join(environment, "pyvenv.cfg"), os.path.realpath(environment)
    is_wide = inside(os.path.realpath(os.path.expanduser("~")), (real,))
    written = not is_sure(settings) or changeable(os.path.realpath(settings), reach.manifest.ceiling)
    if not environment or is_wide or written:
        return runtime_of(starter, stated=False)
    return (*runtime_of(starter), real)


def _check_interpreter(file: str, reach: Reach) -> None:
    """Raise `FileNotFoundError` if the interpreter in the first line of a script is not readable within the grants."""
    if inside(file, SYSTEM):
        return
    granted = held_paths(reach.grant)
    with suppress(PackageError):
        starter = first_line(file)[0]
        real = os.path.realpath(starter) if os.path.isabs(starter) else ""
        if os.path.exists(real) and not inside(real, SYSTEM) and not granted.covers("read", real):
            text = f"its first line names `{visible(starter)}`, and `{visible(real)}` may not be read"
            way = "allow to read where that is installed, with `--allow-read` or under `fs_reach.read`"
            raise FileNotFoundError(errno.ENOENT, f"{text}: {way}")
