"""A module beside the tools, which they import: a worker is given it by name."""


def doubled(number: int) -> int:
    """Twice a number."""
    return number * 2
