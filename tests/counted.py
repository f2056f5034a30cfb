"""What something costs, counted in calls of functions and never in seconds."""

import sys
from collections.abc import Callable
from typing import Any


def work(act: Callable[[], Any]) -> int:
    """How many calls something takes, those of built-in functions too."""
    count = 0

    def counted(frame: Any, event: str, argument: Any) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(counted)
    try:
        act()
    finally:
        sys.setprofile(before)
    return count
