"""Tools that make files in their grant, without any handle: the attacks of `test_entries`."""

import ctypes
import errno
import os
import threading
from typing import Any

from licet import Context, SyncContext, tool
from licet.sandbox.kernel.system_calls import NUMBERS, machine

NEEDS = ["fs:write:${workdir}/out", "fs:read:${workdir}/out"]
PROGRAM = ["process:exec:sh", "process:exec:python3"]
HERE, CREATES = -100, os.O_CREAT | os.O_WRONLY
FIFO, REGULAR = 0o010644, 0o100644

# The arguments of each call that may make an entry, with one new path each time.
CALLS: dict[str, Any] = {
    "open": lambda new, old: (new, CREATES, 0o600),
    "openat": lambda new, old: (HERE, new, CREATES, 0o600),
    "openat without a name": lambda new, old: (HERE, b"out", os.O_TMPFILE | os.O_WRONLY, 0o600),
    "openat of a file that is there": lambda new, old: (HERE, old, CREATES, 0o600),
    "creat": lambda new, old: (new, 0o600),
    "mkdir": lambda new, old: (new, 0o700),
    "mkdirat": lambda new, old: (HERE, new, 0o700),
    "symlink": lambda new, old: (b"nowhere", new),
    "symlinkat": lambda new, old: (b"nowhere", HERE, new),
    "link": lambda new, old: (old, new),
    "linkat": lambda new, old: (HERE, old, HERE, new, 0),
}
REFUSED: dict[str, Any] = {
    "openat2": lambda new, old: (HERE, new, b"\0" * 24, 24),
    "mknod": lambda new, old: (new, REGULAR, 0),
    "mknod of a pipe": lambda new, old: (new, FIFO, 0),
    "mknodat": lambda new, old: (HERE, new, REGULAR, 0),
    "mknodat of a pipe": lambda new, old: (HERE, new, FIFO, 0),
    "io_uring_setup": lambda new, old: (8, b"\0" * 120),
}


def direct(name: str, *arguments: int | bytes) -> str:
    """Make a system call with ctypes alone; returns the name of its error, or an empty text."""
    libc = ctypes.CDLL(None, use_errno=True)
    words = [ctypes.c_long(one) if isinstance(one, int) else ctypes.c_char_p(one) for one in arguments]
    result = libc.syscall(ctypes.c_long(NUMBERS[machine()][name]), *words)
    if result < 0:
        return errno.errorcode[ctypes.get_errno()]
    if name.startswith(("open", "creat")):
        os.close(result)
    return ""


@tool(needs=NEEDS, effect="write_limited")
def makes(ctx: SyncContext, many: int) -> int:
    """Make files, as many as a disk has room for."""
    for number in range(many):
        open(f"out/{number}", "w").close()
    return many


@tool(needs=NEEDS, effect="write_limited", reuse=True)
def makes_again(ctx: SyncContext, call: str, many: int) -> int:
    """The same in a worker that serves many calls."""
    for number in range(many):
        open(f"out/{call}-{number}", "w").close()
    return many


@tool(needs=NEEDS, effect="write_limited")
def calls(ctx: SyncContext, name: str, many: int) -> list[str]:
    """Make one system call again and again."""
    arguments, call = {**CALLS, **REFUSED}[name], name.split(maxsplit=1)[0]
    return [direct(call, *arguments(f"out/{number}".encode(), b"out/old")) for number in range(many)]


@tool(needs=[*NEEDS, "fs:delete:${workdir}/out"], effect="destructive")
def renames(ctx: SyncContext, many: int) -> int:
    """Rename one file again and again."""
    for number in range(many):
        os.rename("out/old", f"out/{number}")
        os.rename(f"out/{number}", "out/old")
    return many


@tool(needs=NEEDS, effect="write_limited")
def in_threads(ctx: SyncContext, threads: int, many: int) -> int:
    """Make files in threads, which let every error through."""

    def work(thread: int) -> None:
        for number in range(many):
            try:
                os.mkdir(f"out/{thread}-{number}")
            except OSError:
                continue

    running = [threading.Thread(target=work, args=(thread,)) for thread in range(threads)]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()
    return len(os.listdir("out"))


@tool(needs=[*NEEDS, *PROGRAM], effect="write_limited")
async def by_program(ctx: Context, line: str) -> list[Any]:
    """Let a program make files."""
    ended = await ctx.process.spawn("sh", ["-c", line])
    return [ended.exit_code, ended.reason, ended.stdout]


@tool(needs=[*NEEDS, *PROGRAM], effect="write_limited")
async def every_way(ctx: Context, many: int) -> None:
    """Make files with a handle, directly and with programs."""
    for number in range(many):
        await ctx.fs.write(f"out/handle-{number}", "")
    for number in range(many):
        open(f"out/direct-{number}", "w").close()
    for program in ("one", "two"):
        await ctx.process.spawn("sh", ["-c", f"for n in $(seq {many}); do mkdir out/{program}-$n; done"])
    await ctx.fs.write("out/last", "")
