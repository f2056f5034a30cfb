"""Clients that do not end, or write without end."""

import asyncio
import os
import signal
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from attacks.programs import alive, until
from licet.backends.packages.clients import client_environment, run_client
from licet.backends.packages.errors import PackageError
from licet.backends.packages.limits import in_thread

WRITES = """
import itertools
for number in itertools.count():
    with open(f"part-{number}", "wb") as file:
        file.write(bytes(1 << 20))
"""
LONG = """
import os, resource, time
while resource.getrlimit(resource.RLIMIT_FSIZE)[0] == resource.RLIM_INFINITY:
    time.sleep(0.01)
os.truncate(os.open("x", os.O_CREAT | os.O_RDWR), (1 << 30) + 1)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="the system does not tell what a process has written")
def test_a_client_that_writes_without_end_is_ended(tmp_path: Path) -> None:
    with pytest.raises(PackageError, match="unpacking failed: more than 20 MiB were written for it"):
        run_client([sys.executable, "-c", WRITES], tmp_path, client_environment(), "unpacking", most_written=20 << 20)


@pytest.mark.skipif(sys.platform != "linux", reason="the system cannot bound another process")
def test_no_file_of_a_client_gets_longer_than_a_gibibyte(tmp_path: Path) -> None:
    with pytest.raises(PackageError, match="File too large"):
        run_client([sys.executable, "-c", LONG], tmp_path, client_environment(), "fetching")


def test_what_a_client_says_last_is_the_reason(tmp_path: Path) -> None:
    script = "import sys; sys.exit('no\\x1b[31m such thing')"
    with pytest.raises(PackageError) as refusal:
        run_client([sys.executable, "-c", script], tmp_path, client_environment(), "asking")
    assert str(refusal.value).startswith("asking failed:\n  no")
    assert "\x1b" not in str(refusal.value)


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_what_a_client_started_ends_with_it_though_the_client_has_ended(tmp_path: Path) -> None:
    line = "sleep 600 & echo $! > pid; exit 0"  # it holds the output open
    with pytest.raises(PackageError, match="took longer than"):
        asyncio.run(
            in_thread(0.5, lambda: run_client(["/bin/sh", "-c", line], tmp_path, client_environment(), "asking"))
        )
    left = int((tmp_path / "pid").read_text())
    try:
        until(lambda: not alive(left), 5)
    finally:
        with suppress(ProcessLookupError):
            os.kill(left, signal.SIGKILL)
