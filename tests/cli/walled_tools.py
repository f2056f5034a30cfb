"""A tool that workers load without the imports of a test."""

from licet import tool


@tool(needs=["fs:*:*"], effect="write_limited", sandbox="isolated")
def make(path: str) -> None:
    """Make a file without a handle."""
    with open(path, "x"):
        pass
