"""The filter that reports calls: on every architecture it holds the watched calls, and lets all others through."""

import struct

import pytest

from licet.sandbox.kernel import reported_calls, system_calls
from sandbox.kernel.test_filter_of_each_machine import ALLOW, ERRNO, NOTIFY, played, seen

ENOSYS = ERRNO | 38
RINGS = ("io_uring_setup", "io_uring_enter", "io_uring_register")


def answers(machine: str, arguments: tuple[int, ...] = (0,) * 6) -> dict[str, int]:
    program = reported_calls.program(machine)
    return {
        name: played(program, seen(machine, number, arguments))
        for name, number in system_calls.NUMBERS[machine].items()
    }


@pytest.mark.parametrize("machine", system_calls.NUMBERS)
def test_each_watched_call_is_held_and_rings_are_missing(machine: str) -> None:
    expected = {
        name: NOTIFY if name in reported_calls.WATCHED else ENOSYS if name in RINGS else ALLOW
        for name in system_calls.NUMBERS[machine]
    }
    assert answers(machine) == expected


@pytest.mark.parametrize("machine", system_calls.NUMBERS)
@pytest.mark.parametrize(("peer", "answer"), [(0, ALLOW), (1, NOTIFY), (1 << 32, NOTIFY)])
def test_a_send_is_held_only_if_it_names_a_peer(machine: str, peer: int, answer: int) -> None:
    assert answers(machine, (3, 0, 0, 0, peer, 0))["sendto"] == answer


@pytest.mark.parametrize("machine", system_calls.NUMBERS)
def test_calls_of_other_architectures_pass(machine: str) -> None:
    foreign = struct.pack("=IIQ6Q", system_calls.NUMBERS[machine]["openat"], 0x40000003, 0, *(0,) * 6)
    assert played(reported_calls.program(machine), foreign) == ALLOW


def test_the_second_numbers_of_x86_64_are_missing() -> None:
    assert played(reported_calls.program("x86_64"), seen("x86_64", 0x40000000 + 257, (0,) * 6)) == ENOSYS


@pytest.mark.parametrize("machine", system_calls.NUMBERS)
def test_a_machine_has_every_watched_call_or_its_newer_form(machine: str) -> None:
    newer = {"open": "openat", "creat": "openat", "unlink": "unlinkat", "rmdir": "unlinkat", "rename": "renameat2"}
    newer |= {name: f"{name}at" for name in ("link", "symlink", "mkdir", "mknod")}
    newer |= {"chmod": "fchmodat", "chown": "fchownat", "lchown": "fchownat"}
    newer |= dict.fromkeys(("utime", "utimes", "futimesat"), "utimensat")
    missing = [name for name in reported_calls.WATCHED if name not in system_calls.NUMBERS[machine]]
    assert all(newer.get(name) in system_calls.NUMBERS[machine] for name in missing)


def test_another_architecture_is_refused() -> None:
    with pytest.raises(OSError, match="no filter is known for the architecture m68k"):
        reported_calls.program("m68k")
