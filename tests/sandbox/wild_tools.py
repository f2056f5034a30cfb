"""Tools that do what no tool should."""

import asyncio
import ctypes
import os
import random
import resource
import select
import signal
import sys
import threading
import time
from typing import Any

from licet import Context, SyncContext, tool

seen: list[int] = []


@tool(needs=[], effect="read_only")
def misbehave(how: str) -> Any:
    """End badly, in one of many ways."""
    match how:
        case "exit":
            os._exit(0)
        case "exit with code":
            os._exit(9)
        case "segfault":
            ctypes.string_at(8)
        case "abort":
            os.abort()
        case "memory":
            return len(bytearray(1 << 31))
        case "memory bit by bit":
            kept = []
            while True:
                kept.append(bytes(1 << 20))
        case "spin":
            while True:
                pass
        case "spin, deaf":
            signal.signal(signal.SIGXCPU, signal.SIG_IGN)
            while True:
                pass
        case "sleep":
            time.sleep(60)
        case "sleep, deaf":
            for each in set(signal.Signals) - {signal.SIGKILL, signal.SIGSTOP}:
                signal.signal(each, signal.SIG_IGN)
            while True:
                time.sleep(60)
        case "kill group":
            os.kill(0, signal.SIGKILL)
        case "kill itself":
            os.kill(os.getpid(), signal.SIGTERM)
        case "many files":
            return [open("/dev/null") for _ in range(1000)] and None
        case "many threads":
            start_threads(40)
            time.sleep(60)
        case "more threads than memory":
            start_threads(400)
        case "large file":
            with open(f"{os.environ['TMPDIR']}/x", "wb") as file:
                while True:
                    file.write(bytes(1 << 20))
        case "many large files":
            for number in range(100):
                with open(f"{os.environ['TMPDIR']}/{number}", "wb") as file:
                    file.writelines(bytes(1 << 20) for _ in range(4))
            time.sleep(60)
        case "long result":
            return "x" * (20 << 20)
        case "print":
            for stream in (sys.stdout, sys.stderr):
                for _ in range(64):
                    print("x" * (1 << 20), file=stream)
            return "printed"
        case "fork":
            return os.fork()
        case "exec":
            os.execv("/bin/true", ["true"])
        case "thread stays":
            threading.Thread(target=time.sleep, args=(60,), daemon=False).start()
            return "left a thread"
        case "recursion":
            return misbehave(how)
        case "hang up":
            for fd in range(3, 64):
                try:
                    os.close(fd)
                except OSError:
                    continue
            time.sleep(60)
        case "raise the limits":
            resource.setrlimit(resource.RLIMIT_CPU, (resource.RLIM_INFINITY,) * 2)


def start_threads(many: int) -> None:
    """Start threads that do nothing for a while."""
    for _ in range(many):
        threading.Thread(target=time.sleep, args=(60,)).start()


@tool(needs=[], effect="read_only")
def count() -> int:
    """How many calls this process has seen."""
    seen.append(1)
    return len(seen)


@tool(needs=[], effect="read_only", reuse=True)
def count_on() -> int:
    """How many calls this process has seen, in one that serves many."""
    seen.append(1)
    return len(seen)


@tool(needs=["env:read:NAME"], effect="read_only", reuse=True)
def ask_and_go(ctx: SyncContext) -> None:
    """Ask the host for something, and do not wait for the answer."""
    vars(ctx._target)["_host"]._sent("env.get", b"", {"name": "NAME"})  # type: ignore[attr-defined]


@tool(needs=["fs:read:${workdir}"], effect="read_only", reuse=True)
async def impatient(ctx: Context, path: str, give_up: bool) -> str:
    """Ask for a file, and perhaps do not wait for all of it."""
    reading = asyncio.ensure_future(ctx.fs.read_bytes(path))
    if give_up:
        await asyncio.sleep(0)  # the question is on its way
        select.select([vars(ctx)["_host"].wire.socket], [], [], 60)
        return "gave up"  # with the beginning of an answer on its way
    return f"{len(await reading)} bytes"


@tool(needs=[], effect="read_only", reuse=True)
def say_more(ctx: SyncContext, data: str) -> str:
    """Send something that nobody asked for, when a signal says that the call is over."""
    host = vars(ctx._target)["_host"]  # type: ignore[attr-defined]
    signal.signal(signal.SIGUSR1, lambda *_: host.wire.socket.send(data.encode()))
    return "said"


@tool(needs=[], effect="read_only")
def draw() -> float:
    """A number that nobody can guess."""
    return random.random()


@tool(needs=[], effect="read_only", reuse=True)
def leave_behind(name: str) -> list[str]:
    """Put a file into scratch, and say what else is there."""
    there = os.listdir(os.environ["TMPDIR"])
    with open(f"{os.environ['TMPDIR']}/{name}", "w", encoding="utf-8") as file:
        file.write(name)
    return there


@tool(needs=[], effect="read_only")
def where() -> list[str]:
    """The scratch directory, with something in it that is hard to remove."""
    scratch = os.environ["TMPDIR"]
    os.symlink("/etc", f"{scratch}/link")
    os.mkdir(f"{scratch}/shut", 0o000)
    os.chdir(scratch)
    for _ in range(1200):
        os.mkdir("deeper")
        os.chdir("deeper")
    return [scratch]


@tool(needs=["secret:read:place"], effect="read_only")
def meet(ctx: SyncContext) -> int:
    """Ask the host for something, and wait for it."""
    return len(ctx.secrets.get("place"))


@tool(needs=["secret:read:place"], effect="read_only", reuse=True)
def meet_again(ctx: SyncContext) -> int:
    """Ask the host for something, and tell how many calls this process has seen."""
    ctx.secrets.get("place")
    seen.append(1)
    return len(seen)
