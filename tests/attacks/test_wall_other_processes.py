"""Other processes of the machine: looked into, changed, slowed down."""

import os
import resource
import struct
from pathlib import Path

from attacks.behind_walls import CANARY, Outside, raw

ATTACH = 16


def attach(pid: int) -> int:
    """A tool attaches to another process as a debugger does, and stops it."""
    return raw("ptrace", ATTACH, pid, 0, 0)


def test_attach(outside: Outside) -> None:
    outside.shows(attach, lambda done: done == 0, rare=True)


SEIZE = 0x4206


def seize(pid: int) -> int:
    """A tool attaches to another process without stopping it (`PTRACE_SEIZE`)."""
    return raw("ptrace", SEIZE, pid, 0, 0)


def test_seize(outside: Outside) -> None:
    outside.shows(seize, lambda done: done == 0, rare=True)


SET_DUMPABLE, GET_DUMPABLE = 4, 3


def be_looked_into() -> int:
    """A tool lets other processes of the user look into its worker, which the host had forbidden."""
    raw("prctl", SET_DUMPABLE, 1, 0, 0, 0)
    return raw("prctl", GET_DUMPABLE, 0, 0, 0, 0)


def test_be_looked_into(outside: Outside) -> None:
    outside.shows(be_looked_into, lambda now: now == 1)


def command_lines(secret: str) -> str:
    """A tool reads with which arguments the other processes of the machine were started."""
    found = ""
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                with open(f"/proc/{entry}/cmdline", encoding="latin-1") as file:
                    found += file.read()
            except FileNotFoundError:
                continue
    return found


def test_command_lines(outside: Outside) -> None:
    assert outside.victim.poll() is None  # it was told where the secret is
    outside.shows(command_lines, lambda text: text and (outside.secret in text or CANARY in text))


FILES = 2


def compare_processes(pid: int, host: int) -> str:
    """A tool compares what is in the memory of the kernel for other processes, bit by bit (`kcmp`)."""
    raw("kcmp", pid, host, FILES, 0, 0)
    return "compared"


def test_compare_processes(outside: Outside) -> None:
    outside.shows(compare_processes, lambda said: said == "compared", rare=True)


def environment_of_another(pid: int) -> str:
    """A tool reads the environment of another process, where people keep their keys."""
    with open(f"/proc/{pid}/environ", encoding="latin-1") as file:
        return file.read()


def test_environment_of_another(outside: Outside) -> None:
    outside.shows(environment_of_another)


def open_files_of_another(pid: int) -> str:
    """A tool opens what another process has open."""
    with open(f"/proc/{pid}/fd/100", encoding="utf-8") as file:
        return file.read()


def test_open_files_of_another(outside: Outside) -> None:
    outside.shows(open_files_of_another)


def root_of_another(pid: int, secret: str) -> str:
    """A tool looks at files through the root directory of another process."""
    with open(f"/proc/{pid}/root{secret}", encoding="utf-8") as file:
        return file.read()


def test_root_of_another(outside: Outside) -> None:
    outside.shows(root_of_another)


def take_an_open_file(pid: int) -> str:
    """A tool takes an open file out of another process (`pidfd_getfd`)."""
    taken = raw("pidfd_getfd", raw("pidfd_open", pid, 0), 100, 0)
    return os.pread(taken, 100, 0).decode()


def test_take_an_open_file(outside: Outside) -> None:
    outside.shows(take_an_open_file, rare=True)


def limits_of_another(pid: int) -> None:
    """A tool takes open files away from another process, which then fails."""
    _, hard = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (7, hard))


def test_limits_of_another(outside: Outside) -> None:
    outside.shows(limits_of_another, lambda _: resource.prlimit(outside.pid, resource.RLIMIT_NOFILE)[0] == 7)


def priority_of_another(pid: int, priority: int) -> None:
    """A tool makes another process wait for everybody else."""
    os.setpriority(os.PRIO_PROCESS, pid, priority)


def test_priority_of_another(outside: Outside) -> None:
    before = os.getpriority(os.PRIO_PROCESS, outside.pid)
    lowest = before == 19  # from there only root leads back
    priority = 18 if lowest else before + 1

    def changed(_: object) -> bool:
        return os.getpriority(os.PRIO_PROCESS, outside.pid) == priority

    outside.shows(priority_of_another, changed, root=lowest, priority=priority)


PROCESS, IDLE = 1, 3 << 13


def disk_priority_of_another(pid: int) -> None:
    """A tool lets another process read and write only when nobody else does (`ioprio_set`)."""
    raw("ioprio_set", PROCESS, pid, IDLE)


def test_disk_priority_of_another(outside: Outside) -> None:
    outside.shows(disk_priority_of_another, lambda _: raw("ioprio_get", PROCESS, outside.pid) == IDLE)


def processors_of_another(pid: int, processor: int) -> None:
    """A tool puts another process on one processor with everybody else."""
    os.sched_setaffinity(pid, {processor})


def test_processors_of_another(outside: Outside) -> None:
    import pytest

    usable = os.sched_getaffinity(0)
    if len(usable) == 1:
        pytest.skip("there is one processor")
    outside.shows(processors_of_another, lambda _: len(os.sched_getaffinity(outside.pid)) == 1, processor=min(usable))


def scheduling_of_another(pid: int) -> None:
    """A tool lets another process run only when nobody else wants to."""
    os.sched_setscheduler(pid, os.SCHED_IDLE, os.sched_param(0))


def test_scheduling_of_another(outside: Outside) -> None:
    outside.shows(scheduling_of_another, lambda _: os.sched_getscheduler(outside.pid) == os.SCHED_IDLE)


def sacrifice_another(pid: int) -> None:
    """A tool tells the kernel which process to end first when memory runs out."""
    with open(f"/proc/{pid}/oom_score_adj", "w", encoding="ascii") as file:
        file.write("1000")


def test_sacrifice_another(outside: Outside) -> None:
    outside.shows(sacrifice_another, lambda _: Path(f"/proc/{outside.pid}/oom_score_adj").read_text() == "1000\n")


COLD = 20


def advice_for_another(pid: int, address: int) -> int:
    """A tool advises the kernel to throw another process's memory out (`process_madvise`)."""
    page = address & ~4095
    return raw("process_madvise", raw("pidfd_open", pid, 0), struct.pack("=QQ", page, 4096), 1, COLD, 0)


def test_advice_for_another(outside: Outside) -> None:
    outside.shows(advice_for_another, lambda done: done, root=True, rare=True)
