"""The tool that the workspace names."""

from licet import tool


@tool(needs=[], effect="read_only", sandbox="restricted", connector="github@2.1")
def report(about: str) -> str:
    """Report."""
    return about
