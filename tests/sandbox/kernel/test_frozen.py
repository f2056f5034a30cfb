"""Stopping all processes of a namespace: what changes while they are listed."""

import errno
import os
import signal
import time

import pytest

from attacks.walled_programs import needs_namespaces
from licet.sandbox.kernel import frozen

pytestmark = needs_namespaces


def test_a_task_that_takes_the_id_of_an_ended_one_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    # It executes a program between the attempt to stop the first task, which has ended, and the look at its state.
    # Nothing but the answer of the kernel to that attempt can be made at the right moment.
    process = os.fork()
    if not process:
        while True:
            signal.pause()
    ask = frozen._ptrace
    refused: list[int] = []

    def refuses_once(request: int, task: int, data: int = 0) -> None:
        if not refused:
            refused.append(task)
            raise OSError(errno.EPERM, os.strerror(errno.EPERM))
        ask(request, task, data)

    monkeypatch.setattr(frozen, "_ptrace", refuses_once)
    monkeypatch.setattr(frozen, "_tasks", lambda: iter([process]))
    stopped = frozen.Frozen()
    try:
        assert stopped.seize()
        stopped.wait(time.monotonic() + 60)
        assert refused == [process]
        stopped.thaw()
    finally:
        os.kill(process, signal.SIGKILL)
        os.waitpid(process, 0)


def test_tasks_are_listed_again_if_one_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    # A task that executes a program takes the id of the first one of its process. That one was passed over, if it had
    # ended before.
    process = os.fork()
    if not process:
        os._exit(0)
    os.waitpid(process, 0)
    monkeypatch.setattr(frozen, "_tasks", lambda: iter([process]))
    assert frozen.Frozen().seize()
