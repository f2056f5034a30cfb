"""Tools that any system can run, and one that starts a program."""

from licet import Context, tool


@tool(needs=[], effect="read_only")
async def add(a: int, b: int) -> int:
    """The sum of two numbers."""
    return a + b


@tool(needs=[], effect="read_only")
def add_slowly(a: int, b: int) -> int:
    """The same in a thread."""
    return a + b


@tool(needs=["process:exec:true"], effect="read_only")
async def start(ctx: Context) -> int:
    """Start a program."""
    return (await ctx.process.spawn("true")).exit_code
