"""How a call behind walls ended: its value, what the tool raised, or why its worker gave no answer."""

import asyncio
import errno
import os
import signal
from collections.abc import Mapping
from typing import Any

from licet.guard.endings import JsonText, Raised, Stopped
from licet.guard.ports import SandboxUnavailable
from licet.sandbox.broker import Outcome
from licet.sandbox.child import NO_WALLS, OUT_OF_MEMORY
from licet.sandbox.children import Child, Zygote
from licet.sandbox.wire import BrokenWire, Overrun, TooMuch

_MOST_LINES = 10_000_000  # of a file of Python: a number beyond is no line
_LAST_WORDS = 10.0  # seconds to hear how a worker ended: at once, unless the machine is very busy


def value_of(outcome: Outcome, limits: Mapping[str, int]) -> Any:
    """What the tool returned; or what it raised, as far as it can be told."""
    if outcome.refusal is not None:
        raise outcome.refusal
    kind, text = outcome.head.get("error"), outcome.head.get("text")
    if kind is None:
        return JsonText(outcome.blob)  # how long it may be is known where the call ends, and parsed only after that
    kind, text = str(kind), str(text)
    number = outcome.head.get("errno")
    if kind == "MemoryError":
        raise Stopped("LIMIT_MEMORY", f"it needed more than {limits['memory_mb']} MB of memory")
    if kind == "TooLong":
        raise Stopped("LIMIT_OUTPUT", text)
    if number == errno.EFBIG:
        raise Stopped("LIMIT_FILE_SIZE", f"it wrote a file of more than {limits['file_mb']} MB")
    if number == errno.EMFILE:
        raise Stopped("LIMIT_FILES", f"it had more than {limits['open_files']} files open")
    if (kind, text) == ("RuntimeError", "can't start new thread"):
        raise Stopped("LIMIT_PROCESSES", "it started more threads than its memory holds")
    line = outcome.head.get("line")
    known = line if type(line) is int and 0 < line <= _MOST_LINES else 0
    raise Raised(kind, text, known, number in (errno.EPERM, errno.EACCES))


async def stopped(zygote: Zygote, child: Child, wrong: Exception, limits: Mapping[str, int]) -> Exception:
    """Why a worker gave no answer, from what the kernel and the zygote say; the word of a tool is not asked.

    `Stopped`; or `SandboxUnavailable` where nothing of the tool ran.
    """
    if isinstance(wrong, Overrun):
        return Stopped(wrong.reason, str(wrong))
    if isinstance(wrong, TooMuch):
        return Stopped("LIMIT_OUTPUT", "the tool's process sent more than one message may hold")
    if isinstance(wrong, BrokenWire):
        return Stopped("TOOL_CRASHED", "the tool's process broke the protocol")
    await asyncio.sleep(0)
    # It may have closed its socket and live on; told to end it, the zygote says how it ended in either case.
    zygote.end(child, child.ended or ("TOOL_CRASHED", "the tool's process hung up"))
    death = await child.buried(_LAST_WORDS)
    if death is None:
        return Stopped("TOOL_CRASHED", "the tool's process ended, and nobody knows how")
    if death.unborn:
        return SandboxUnavailable(death.unborn)
    if death.why == NO_WALLS:
        return SandboxUnavailable("a wall could not be built in the tool's process")
    if death.ended is not None and death.ended[0] != "TOOL_CRASHED":
        return Stopped(*death.ended)
    code = os.waitstatus_to_exitcode(death.status) if death.status >= 0 else 0
    killer = max(-code, 0)
    if killer == signal.SIGXCPU or (killer == signal.SIGKILL and death.cpu >= limits["cpu_seconds"]):
        return Stopped("LIMIT_CPU", f"it used more than {limits['cpu_seconds']} seconds of CPU time")
    if killer == signal.SIGXFSZ:
        return Stopped("LIMIT_FILE_SIZE", f"it wrote a file of more than {limits['file_mb']} MB")
    if death.why == OUT_OF_MEMORY:
        return Stopped("LIMIT_MEMORY", f"it needed more than {limits['memory_mb']} MB of memory")
    said = f"was killed by {signal.Signals(killer).name}" if killer else f"ended with code {code}"
    return Stopped("TOOL_CRASHED", f"the tool's process {said} and gave no answer")
