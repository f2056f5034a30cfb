"""Runs one shell line without a resident: `python -I -m licet.hooks.line_alone TICKET TEXT`.

The client of the resident becomes this program where there is no resident. It does the same, slower.
"""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Sequence

from licet.hooks.answering import service_alone
from licet.hooks.resident_line import ended
from licet.hooks.shell_line import REFUSED

_PASSED_ON = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGWINCH, signal.SIGCONT)


async def _variables(names: Sequence[str]) -> dict[str, str]:
    return {name: os.environ[name] for name in names if name in os.environ}


async def _run(ticket: str, text: str) -> int:
    came: asyncio.Queue[int] = asyncio.Queue()
    for number in _PASSED_ON:
        asyncio.get_running_loop().add_signal_handler(number, came.put_nowait, number)

    async def signals() -> AsyncIterator[int]:
        while True:
            yield await came.get()

    return await service_alone().line(ticket, text, os.getcwd(), (0, 1, 2), _variables, signals())


def main(words: Sequence[str]) -> int:
    """Run the line that the words name, and end as it ended."""
    if len(words) != 2:
        sys.stderr.write("licet: expected TICKET TEXT\n")
        return REFUSED
    try:
        return ended(asyncio.run(_run(*words)))
    except Exception as wrong:
        sys.stderr.write(f"licet: the line was not run: {type(wrong).__name__}\n")
        return REFUSED


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
