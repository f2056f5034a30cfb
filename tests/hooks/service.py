"""A small service for residents in tests: it tells what it was asked, and runs lines as child processes.

It is installed as `licet.hooks.answering` in an installation of its own (see `installation.py`).
"""

import asyncio
import json
import os
import signal
import subprocess
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from typing import Any

from licet.hooks.agent_event import Printed
from licet.hooks.resident import Variables


class Small:
    """Events say what is to happen."""

    async def hook(self, agent: str, event: str, payload: bytes, directory: str, client: int = 0) -> Printed:
        asked = json.loads(payload)
        match asked.get("do"):
            case "refuse":
                return Printed(b"", b"no\n", 2)
            case "crash":
                raise ValueError("secret")
            case "die":
                os._exit(9)
            case "wait":
                await asyncio.Event().wait()
            case "long":
                return Printed(b"x" * asked["size"])
            case "bad code":
                return Printed(b"", b"", 1 << 40)
        about = {
            "client": client,
            "agent": agent,
            "event": event,
            "payload": asked,
            "directory": directory,
            "pid": os.getpid(),
        }
        return Printed(json.dumps(about).encode(), b"", 0)

    async def line(
        self, ticket: str, text: str, directory: str, streams: tuple[int, int, int], variables: Variables,
        signals: AsyncIterator[int],
    ) -> int:  # fmt: skip
        if ticket == "bad":
            raise ValueError("secret")
        given = await variables(ticket.split(",")) if ticket else {}
        stdin, stdout, stderr = streams
        # Not with asyncio: if it is cancelled while a process starts, it ends that process alone.
        process = subprocess.Popen(
            ["/bin/sh", "-c", text], stdin=stdin, stdout=stdout, stderr=stderr, cwd=directory,
            env={"PATH": os.environ["PATH"], **given}, start_new_session=True,
        )  # fmt: skip
        passing = asyncio.create_task(pass_on(process, signals))
        try:
            return await asyncio.to_thread(process.wait)
        finally:
            passing.cancel()
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)

    def is_needed(self) -> bool:
        return os.path.exists(os.path.join(os.environ["HOME"], "needed"))

    async def tidy(self) -> None:
        with open(os.path.join(os.environ["HOME"], "tidied"), "a") as file:
            file.write("once\n")

    async def close(self) -> None:
        pass


async def pass_on(process: subprocess.Popen[bytes], signals: AsyncIterator[int]) -> None:
    async for number in signals:
        # Nobody waits for the processes of an orphaned group: the kernel does not stop them by SIGTSTP.
        os.killpg(process.pid, signal.SIGSTOP if number == signal.SIGTSTP else number)


class Alone(Small):
    """The same in a process of its own, which tells that it is."""

    async def line(self, ticket: str, text: str, *about: Any, **more: Any) -> int:
        return await super().line(ticket, f"echo alone; {text}", *about, **more)


def service() -> Small:
    return Small()


def service_alone() -> Small:
    return Alone()


def _alone(words: Sequence[str]) -> None:
    """What stands for `licet hook`."""
    import sys

    printed = asyncio.run(Small().hook(words[1], words[2], sys.stdin.buffer.read(), os.getcwd()))
    sys.stdout.buffer.write(printed.output + b" alone")
    sys.stderr.buffer.write(printed.errors)
    sys.exit(printed.code)
