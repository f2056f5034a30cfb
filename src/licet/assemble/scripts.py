"""How `licet run` starts scripts and interpreters of virtual environments.

The kernel starts a script through the interpreter in its first line. Behind walls, that interpreter and its virtual
environment must be readable, and no manifest names them. So they are found here, from the file alone, for a program
that the manifest names itself and that no tool may write, nor have put a link to: a tool could otherwise choose with a
first line, or with the link, what can be read.
"""

import errno
import os

from msgspec.structs import replace

from licet.backends.packages.launchers import LaunchError
from licet.backends.packages.programs import interpreter_of, runtime_of
from licet.backends.packages.python_start import environment_of
from licet.core.algebra.scope import inside, visible
from licet.core.decision.reach import Reach
from licet.guard.execution import Command
from licet.guard.held_paths import held_paths
from licet.guard.links import FoundProgram, changeable, followed
from licet.sandbox.programs.files import SYSTEM, check_links


def with_interpreter(command: Command, reach: Reach) -> Command:
    """The command that starts the same program, with its interpreter and what that reads.

    Raises `OSError`, and `SandboxUnavailable` for a link that a tool may have made.
    """
    written, file = command.argv[0], str(command.binary)
    rules = [rule.capability for layer in reach.layers for rule in layer.allows]
    named = any(rule.domain == "process" and rule.key in (written, file) for rule in rules)
    if not named or changeable(file, reach.manifest.ceiling):
        return command
    check_links(command, reach)  # of the script: later checks are about its interpreter
    try:
        starter, flags = interpreter_of(file)
    except LaunchError as wrong:
        raise FileNotFoundError(errno.ENOENT, f"its first line names an interpreter, and {wrong}") from None
    found = command.binary if isinstance(command.binary, FoundProgram) else FoundProgram(*followed(file))
    if starter is None:
        return replace(command, runtime=(*command.runtime, *_runtime(found, found.path, reach)))
    if not os.path.exists(starter):
        text = f"its first line names `{visible(starter)}`, which is not there: install it, or change the line"
        raise FileNotFoundError(errno.ENOENT, text)
    # A script looks for itself by its path, which the kernel would pass on, and not by its name on PATH. A link to it
    # is there only if it can be read.
    place = found.path
    shown = place if inside(place, SYSTEM) or held_paths(reach.grant).covers("read", place) else file
    argv = (starter, *flags, shown, *command.argv[1:])
    interpreter = FoundProgram(*followed(starter))
    runtime = (*command.runtime, file, *_runtime(interpreter, starter, reach))
    return replace(command, binary=interpreter, argv=argv, runtime=runtime)


def _runtime(found: FoundProgram, starter: str, reach: Reach) -> tuple[str, ...]:
    """What an interpreter reads, which was found by the path `starter`.

    A link or a `pyvenv.cfg` that a tool may write could lead to any directory, now to another one than when the
    interpreter was found, and is not believed.
    """
    if changeable(found, reach.manifest.ceiling):
        return ()
    if any(changeable(link, reach.manifest.ceiling) for link in found.links):
        starter = str(found)
    settings = os.path.join(environment_of(starter), "pyvenv.cfg")
    return runtime_of(starter, stated=os.path.isabs(settings) and not changeable(settings, reach.manifest.ceiling))
