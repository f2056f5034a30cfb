"""What something costs, counted in calls of functions and never in seconds."""

import gc
import sys
from collections.abc import Callable
from typing import Any


def work(act: Callable[[], Any]) -> int:
    """How many calls something takes, those of built-in functions too."""
    count = 0

    def counted(frame: Any, event: str, argument: Any) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    before, collecting = sys.getprofile(), gc.isenabled()
    gc.disable()  # whoever looks on when others' garbage is collected calls functions too
    sys.setprofile(counted)
    try:
        act()
    finally:
        sys.setprofile(before)
        if collecting:
            gc.enable()
    return count


def lines(act: Callable[[], Any]) -> int:
    """How many lines of Python something runs: also those of a loop that calls nothing."""
    count = 0

    def counted(frame: Any, event: str, argument: Any) -> Any:
        nonlocal count
        count += event == "line"
        return counted

    before = sys.gettrace()
    sys.settrace(counted)
    try:
        act()
    finally:
        sys.settrace(before)
    return count
