"""Tools that print."""

import os
import signal
import sys

from licet import Context, tool


@tool(needs=["secret:read:TOKEN"], effect="read_only")
async def speak(ctx: Context, how: str) -> str:
    """Print something, or end loudly."""
    match how:
        case "print":
            print("out")
            print("err \x1b[31m", file=sys.stderr)
            os.write(1, b"raw\n")
        case "secret":
            print("it is", await ctx.secrets.get("TOKEN"))
        case "raise":
            raise ValueError("no")
        case "die":
            print("last words")
            os.kill(os.getpid(), signal.SIGKILL)
        case "flood":
            for _ in range(3000):
                print("x" * 100)
    return "done"


@tool(needs=[], effect="read_only", reuse=True)
def again(text: str) -> None:
    """Print in a worker that serves many calls."""
    print(text)
