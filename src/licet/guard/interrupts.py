"""Tells a Ctrl-C of the operator from a `KeyboardInterrupt` that a tool raised by itself.

Both leave a receipt. The first is raised to the caller, because it is meant for the program. The second is treated as
any error of the tool.
"""

import dis
import functools
import signal
import threading
from types import CodeType, TracebackType
from typing import Any

_traceback: Any = BaseException.__dict__["__traceback__"]


def is_from_operator(error: KeyboardInterrupt) -> bool:
    """Whether a signal caused it: it was raised in the main thread, and not by a `raise` in the tool's code."""
    if type(error) is not KeyboardInterrupt or threading.current_thread() is not threading.main_thread():
        return False
    last: TracebackType | None = _traceback.__get__(error)
    handler, codes = _handler_code(), set[CodeType]()
    while last is not None:
        codes.add(last.tb_frame.f_code)
        if last.tb_next is None:
            break
        last = last.tb_next
    # A signal handler in Python, such as that of `asyncio.run`, also has a `raise`.
    return handler in codes or last is None or not _is_raise(last)


def _handler_code() -> CodeType | None:
    """The code of the SIGINT handler; None if the handler is not written in Python."""
    handler: Any = signal.getsignal(signal.SIGINT)
    while isinstance(handler, functools.partial):
        handler = handler.func
    return getattr(getattr(handler, "__func__", handler), "__code__", None)


def _is_raise(trace: TracebackType) -> bool:
    """Whether the line that an error came from was a `raise` statement."""
    code = trace.tb_frame.f_code.co_code
    return dis.opname[code[trace.tb_lasti]] == "RAISE_VARARGS"
