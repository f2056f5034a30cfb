"""Counts what workers make in directories. Runs in the zygote, which no tool can touch.

A worker sends the listener of its filter before it loads its tool. Without an answer its calls wait, and they fail once
the listener is closed; the zygote cannot end without its workers.
"""

import errno
import os
import select
import socket
from collections.abc import Mapping
from contextlib import suppress

from licet.sandbox.kernel import notifications
from licet.sandbox.kernel.counted_entries import count_entry
from licet.sandbox.kernel.entry_count import EntryCount


class EntryLimits:
    """The listeners of workers whose entries are limited, each with its count. `poll` wakes when one is to be read."""

    def __init__(self, poll: "select.poll") -> None:
        self._poll = poll
        self._expected: dict[int, tuple[socket.socket, EntryCount]] = {}
        self._counts: dict[int, EntryCount] = {}  # by listener

    def expect(self, count: EntryCount) -> socket.socket:
        """A socket for a new worker to send its listener over."""
        try:
            near, far = socket.socketpair()
        except OSError:
            count.close()
            raise
        self._expected[near.fileno()] = near, count
        self._poll.register(near, select.POLLIN)
        return far

    def look(self, ready: Mapping[int, int]) -> None:
        """Handle what a poll has found, one call of each worker: none can keep the others waiting."""
        for file, events in ready.items():
            if file in self._counts:
                if events & select.POLLIN:
                    self._judge(file, self._counts[file])
                else:  # no process is left behind its filter
                    self._poll.unregister(file)
                    os.close(file)
                    self._counts.pop(file).close()
            elif file in self._expected:
                self._take(file)

    def _take(self, file: int) -> None:
        near, count = self._expected.pop(file)
        self._poll.unregister(near)
        with near:
            _, listeners, _, _ = socket.recv_fds(near, 1, 1)  # nothing, if the worker ended or has no filter
        if not listeners:
            count.close()
        for listener in listeners:
            self._counts[listener] = count
            self._poll.register(listener, select.POLLIN)

    def _judge(self, listener: int, count: EntryCount) -> None:
        notice = notifications.receive(listener)
        if notice is None:  # its process was killed meanwhile
            return
        try:
            count_entry(listener, notice, count)
        except OSError as error:
            with suppress(OSError):
                notifications.answer(listener, notice, error.errno or errno.EPERM)

    def close(self) -> None:
        """In a fork of the zygote: close what belongs to other workers."""
        for near, count in self._expected.values():
            near.close()
            count.close()
        for listener, count in self._counts.items():
            os.close(listener)
            count.close()
        self._expected, self._counts = {}, {}
