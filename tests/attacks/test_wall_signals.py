"""Signals to processes that are not the tool's own."""

import fcntl
import os
import signal
import struct

from attacks.behind_walls import Outside, raw


def end_a_process(pid: int) -> None:
    """A tool ends a process of the same user."""
    os.kill(pid, signal.SIGKILL)


def test_end_a_process(outside: Outside) -> None:
    outside.shows(end_a_process, lambda _: outside.ended)


def signal_a_group(pid: int) -> None:
    """A tool signals a whole group of processes."""
    os.killpg(pid, signal.SIGKILL)  # it leads a group of its own


def test_signal_a_group(outside: Outside) -> None:
    outside.shows(signal_a_group, lambda _: outside.ended)


def signal_a_thread(pid: int) -> None:
    """A tool signals a thread of another process, which older filters for `kill` leave out."""
    raw("tgkill", pid, pid, signal.SIGKILL)


def test_signal_a_thread(outside: Outside) -> None:
    outside.shows(signal_a_thread, lambda _: outside.ended)


SET_SIGNAL = 10


def signal_by_a_file(pid: int) -> None:
    """A tool lets a pipe signal another process whenever there is something to read (`F_SETOWN`, `F_SETSIG`)."""
    reading, writing = os.pipe()
    fcntl.fcntl(reading, fcntl.F_SETOWN, pid)
    fcntl.fcntl(reading, SET_SIGNAL, signal.SIGTERM)
    fcntl.fcntl(reading, fcntl.F_SETFL, os.O_ASYNC)
    os.write(writing, b"x")


def test_signal_by_a_file(outside: Outside) -> None:
    outside.shows(signal_by_a_file, lambda _: outside.ended)


def signal_by_a_handle(pid: int) -> None:
    """A tool signals another process by a file that stands for it (`pidfd`)."""
    raw("pidfd_send_signal", raw("pidfd_open", pid, 0), signal.SIGKILL, None, 0)


def test_signal_by_a_handle(outside: Outside) -> None:
    outside.shows(signal_by_a_handle, lambda _: outside.ended)


FROM_A_QUEUE = -1


def signal_with_a_value(pid: int) -> None:
    """A tool queues a signal for another process and claims that the kernel sent it."""
    raw("rt_sigqueueinfo", pid, signal.SIGKILL, struct.pack("=iii116x", signal.SIGKILL, 0, FROM_A_QUEUE))


def test_signal_with_a_value(outside: Outside) -> None:
    outside.shows(signal_with_a_value, lambda _: outside.ended)
