"""Objects of the host that Python code could find: handles, frames, modules, variables."""

import asyncio
import gc
import os
import secrets
import sys
from typing import Any

from attacks.behind_walls import (
    Outside,
    attack,
    exactly,
    raw,
    secret_in_the_environment,
    something,
)
from licet import SyncContext

ATTACH, SEIZE = 16, 0x4206  # of `ptrace`


def hidden_word(outside: Outside) -> dict[str, str]:
    """A secret of the host that no tool declares."""
    word = secrets.token_hex(20)
    outside.set_variable("LICET_TEST_HIDDEN", word)
    return {"word": word, "backwards": word[::-1]}


def the_word(value: object, outside: Outside) -> bool:
    return bool(value == outside.given["word"])


@attack(the_word, before=hidden_word, refused=None)
def backend_behind_a_handle(ctx: SyncContext) -> str | None:
    """A tool finds the backend that its handle stands in front of, and uses it without the handle."""
    for thing in gc.get_objects():
        if type(thing).__name__ == "EnvironmentSecrets":
            return str(asyncio.run(thing.get("LICET_TEST_HIDDEN")))
    return None


@attack(before=secret_in_the_environment, refused=None)
def environment_of_the_host() -> dict[str, str]:
    """A tool reads the variables of the host."""
    return dict(os.environ)


@attack(something, refused=None)
def frames_of_the_host(ctx: SyncContext) -> list[str]:
    """A tool walks up the stacks of all threads, to those who called it and to what they hold."""
    found: list[str] = []
    for top in sys._current_frames().values():
        frame: Any = top
        while frame is not None:
            found += [type(value).__name__ for value in frame.f_locals.values()]
            frame = frame.f_back
    return [name for name in found if name in ("Gate", "Session", "Backends", "BoundContext", "Grant")]


@attack(something, refused=None)
def modules_of_the_host(ctx: SyncContext) -> list[str]:
    """A tool takes what it wants out of the modules that the host has loaded."""
    wanted = ("licet.assemble.gate", "licet.guard.gate", "sandbox.levels", "pytest")
    return [name for name in wanted if name in sys.modules]


@attack(lambda found, _: "dict" in (found or ()), before=hidden_word, refused=None)
def objects_of_the_host(ctx: SyncContext, backwards: str) -> list[str]:
    """A tool searches all objects of its process for a secret that it did not declare."""
    word = backwards[::-1]  # so that the argument itself is not found
    wanted, found = (word, word.encode()), []
    for thing in gc.get_objects():
        # What holds nothing but texts is not listed itself, so one step is gone from what is.
        for inner in gc.get_referents(thing):
            held = inner.values() if type(inner) is dict else inner if type(inner) in (list, tuple) else (inner,)
            if inner is not wanted and any(type(value) in (str, bytes) and value in wanted for value in list(held)):
                found.append(type(inner).__name__)
    return found


@attack(the_word, before=hidden_word, refused="ENV_NOT_ALLOWED")
def patched_checks(ctx: SyncContext) -> str | None:
    """A tool replaces the check of its grant by one that never refuses."""
    import licet.guard.grant

    licet.guard.grant.Grant.check = lambda self, use: None  # type: ignore[method-assign]
    return ctx.env.get("LICET_TEST_HIDDEN")


@attack(the_word, before=hidden_word, refused="ENV_NOT_ALLOWED")
def widened_grant(ctx: SyncContext) -> str | None:
    """A tool widens the grant that its handles hold."""
    from msgspec.structs import replace

    from licet.core.algebra.set import CapabilitySet

    everything = CapabilitySet(["env:read:*"])
    for thing in gc.get_objects():
        if type(thing).__name__ == "Grant":
            thing.reach = replace(thing.reach, grant=everything)
    return ctx.env.get("LICET_TEST_HIDDEN")


# Its process, by `/proc` and by calls of the kernel -------------------------------------------------------------------


@attack(something, rare=True)
def start_of_the_host(host: int) -> str:
    """A tool reads the environment that the host was started with."""
    with open(f"/proc/{host}/environ", encoding="latin-1") as file:
        return file.read()


@attack(something)
def start_of_itself() -> str:
    """A tool reads the environment of its own start, which is the host's."""
    with open("/proc/self/environ", encoding="latin-1") as file:
        return file.read()


@attack(something, rare=True)
def map_of_the_host(host: int) -> str:
    """A tool reads where everything is in the memory of the host."""
    with open(f"/proc/{host}/maps", encoding="latin-1") as file:
        return file.read()


@attack(something)
def command_line_of_the_host(host: int) -> str:
    """A tool reads how the host was started."""
    with open(f"/proc/{host}/cmdline", encoding="latin-1") as file:
        return file.read()


@attack(something, rare=True)
def files_of_the_host(host: int) -> list[str]:
    """A tool lists what the host has open."""
    return os.listdir(f"/proc/{host}/fd")


@attack(rare=True)
def root_of_the_host(host: int, secret: str) -> str:
    """A tool reads a file through the root directory of the host."""
    with open(f"/proc/{host}/root{secret}", encoding="utf-8") as file:
        return file.read()


@attack(something)
def processes_of_the_machine() -> list[str]:
    """A tool lists the processes of the machine."""
    return os.listdir("/proc")


@attack(exactly("there"))
def signal_to_the_host(host: int) -> str:
    """A tool asks whether it could signal the host."""
    os.kill(host, 0)
    return "there"


@attack(exactly(0), rare=True)
def memory_of_the_host(host: int) -> int:
    """A tool asks for nothing of the memory of the host, which tells whether it could have more."""
    return raw("process_vm_readv", host, None, 0, None, 0, 0)


@attack(exactly(0), harmful=True)
def attach_to_the_host(host: int) -> int:
    """A tool attaches to the host as a debugger does."""
    return raw("ptrace", ATTACH, host, 0, 0)


@attack(exactly(0), harmful=True)
def seize_the_host(host: int) -> int:
    """A tool attaches to the host without stopping it."""
    return raw("ptrace", SEIZE, host, 0, 0)


@attack(something, harmful=True)
def take_a_file_of_the_host(host: int) -> int:
    """A tool takes an open file out of the host."""
    return raw("pidfd_getfd", raw("pidfd_open", host, 0), 0, 0)
