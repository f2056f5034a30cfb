"""Copies one open file to another in a thread, until the first has ended or nobody reads the second."""

import os
import select
import threading

_CHUNK = 1 << 16


def relay(source: int, sink: int) -> threading.Thread:
    """Copy until the end, and close both."""
    thread = threading.Thread(target=_copy, args=(source, sink), name="licet-relay", daemon=True)
    try:
        thread.start()
    except BaseException:
        os.close(source)
        os.close(sink)
        raise
    return thread


def _copy(source: int, sink: int) -> None:
    poll = select.poll()
    poll.register(source, select.POLLIN)
    poll.register(sink, 0)  # that nobody reads any more is told without being asked
    try:
        while True:
            ready = dict(poll.poll())
            if sink in ready:
                return
            try:
                data = os.read(source, _CHUNK)
            except BlockingIOError:
                continue
            if not data:
                return
            _write(sink, data)
    except OSError:
        return  # either is gone
    finally:
        os.close(source)
        os.close(sink)


def _write(sink: int, data: bytes) -> None:
    left = memoryview(data)
    while left:
        try:
            left = left[os.write(sink, left) :]
        except BlockingIOError:  # it does not block, and is full
            poll = select.poll()
            poll.register(sink, select.POLLOUT)
            poll.poll()
