"""Threads that fork while stores are written: nothing hangs, in the parent or in a child, and nothing is lost."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from effort import LONG
from licet.backends.ledger.reader import LedgerReader

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux forks beside threads")


THREADS = 8
FORKS, CALLS = (6, 150) if LONG else (3, 60)
PROGRAM = Path(__file__).with_name("forking_host.py")


@pytest.mark.parametrize("way", ["fork", "subprocess", "multiprocessing"])
@pytest.mark.sampled(1)
def test_any_number_of_threads_may_fork_while_calls_write(store_path: Path, way: str) -> None:
    command = [sys.executable, str(PROGRAM), str(store_path), way, *map(str, (THREADS, FORKS, CALLS))]
    said = json.loads(subprocess.run(command, capture_output=True, check=True, timeout=300).stdout)
    assert said["calls"] == ["True"] * CALLS + ["APPROVAL_REQUIRED"] * (CALLS // 10)
    assert said["codes"] == [0] * THREADS * FORKS
    with LedgerReader(store_path / "state" / "ledger.sqlite") as reader:
        kept = reader.list(session="parent", limit=-1)
    assert len(kept) == CALLS + CALLS // 10


FORKS_DURING_A_WRITE = """
import asyncio, os, sys, threading, time
from licet.backends.sqlite import Format, SqliteFile

file = SqliteFile(sys.argv[1], Format(1, 1, "CREATE TABLE notes (text TEXT)"))
write = "INSERT INTO notes VALUES ('a')"
file.try_write(lambda db: db.execute(write), 5)
for _ in range(3):
    begun, go_on, codes = threading.Event(), threading.Event(), []

    def slow(db):
        db.execute(write)
        begun.set()
        go_on.wait()

    def fork():
        child = os.fork()
        if not child:
            try:
                asyncio.run(file.write(lambda db: db.execute(write)))
            except BaseException:
                os._exit(1)
            os._exit(0)
        codes.append(os.waitpid(child, 0)[1])

    writer = threading.Thread(target=file.try_write, args=(slow, 5))
    writer.start()
    begun.wait()
    forking = [threading.Thread(target=fork) for _ in range(4)]
    for thread in forking:
        thread.start()
    time.sleep(0.1)  # most often all of them wait for the writer by now
    go_on.set()
    for thread in (writer, *forking):
        thread.join()
    asyncio.run(file.write(lambda db: db.execute(write)))
    assert codes == [0] * 4, codes
print(asyncio.run(file.read(lambda db: db.execute("SELECT count(*) FROM notes").fetchone()[0])))
"""


def test_threads_that_fork_during_a_write_leave_its_lock_free(store_path: Path) -> None:
    command = [sys.executable, "-W", "ignore", "-c", FORKS_DURING_A_WRITE, str(store_path / "f")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.stdout, done.stderr) == ("19\n", "")  # 1, and three times 1 + 4 + 1


FORK_IN_A_SIGNAL_HANDLER = """
import asyncio, os, signal, sys
from licet.backends.sqlite import Format, SqliteFile

file = SqliteFile(sys.argv[1], Format(1, 1, "CREATE TABLE notes (text TEXT)"))

def fork(*_):
    child = os.fork()
    if child:
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
        return
    try:
        asyncio.run(file.write(lambda db: None))
    except Exception as wrong:
        os._exit(7 if "start processes with `spawn`" in str(wrong) else 1)
    os._exit(0)

signal.signal(signal.SIGUSR1, fork)
file.try_write(lambda db: signal.raise_signal(signal.SIGUSR1), 5)
file.try_write(lambda db: None, 5)
signal.raise_signal(signal.SIGUSR1)
"""


def test_a_fork_in_the_middle_of_a_transaction_refuses_in_the_child_alone(store_path: Path) -> None:
    command = [sys.executable, "-c", FORK_IN_A_SIGNAL_HANDLER, str(store_path / "f")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.stdout, done.stderr) == ("7\n0\n", "")
