"""The filter of every architecture, played call by call: it says of each what the rules say, also where no such machine
is at hand."""

import itertools
import struct
from collections.abc import Iterator

import pytest

from licet.sandbox import seccomp, seccomp_rules, syscalls
from licet.sandbox.seccomp_rules import NO, OWN_PID, UNKNOWN, Answer, answers

ALLOW, ERRNO, KILL = 0x7FFF0000, 0x00050000, 0x80000000
PROFILES = [
    pytest.param({"execute": False, "fork": False, "inet": False, "metadata": False, "fenced": True}, 7, id="tool"),
    pytest.param({"execute": False, "fork": False, "inet": False, "metadata": False, "fenced": False}, 1, id="old"),
    pytest.param({"execute": True, "fork": True, "inet": True, "metadata": True, "fenced": True}, 7, id="program"),
]


def played(program: bytes, seen: bytes) -> int:
    """What a filter answers to what it sees of a call."""
    steps = list(struct.iter_unpack("=HBBI", program))
    place = value = 0
    while True:
        code, then, otherwise, operand = steps[place]
        place += 1
        match code:
            case 0x20:
                (value,) = struct.unpack_from("=I", seen, operand)
            case 0x54:
                value &= operand
            case 0x15:
                place += then if value == operand else otherwise
            case 0x35:
                place += then if value >= operand else otherwise
            case 0x05:
                place += operand
            case 0x06:
                return int(operand)
            case _:
                raise AssertionError(f"no instruction: {code:#x}")


def seen(machine: str, number: int, arguments: tuple[int, ...]) -> bytes:
    return struct.pack("=IIQ6Q", number, syscalls.AUDIT[machine], 0, *arguments)


def holds(test: seccomp_rules.Test, arguments: tuple[int, ...]) -> bool:
    half = arguments[test.argument] >> 32 if test.high else arguments[test.argument] & 0xFFFFFFFF
    return ((half & test.mask) in test.values) is not test.none


def expected(answer: Answer, arguments: tuple[int, ...]) -> int:
    allowed = any(all(holds(test, arguments) for test in tests) for tests in answer.allowed)
    return ALLOW if allowed else ERRNO | answer.otherwise


def tried(answer: Answer) -> Iterator[tuple[int, ...]]:
    """Arguments with everything that a test looks for, and its neighbours, in each place that is looked at."""
    tests = [test for tests in answer.allowed for test in tests]
    values: dict[int, set[int]] = {place: {0} for place in range(6)}
    for test in tests:
        some = {value for one in test.values for value in (one, one + 1, one ^ 0x80000000)} | {test.mask}
        values[test.argument] |= {(value << 32 if test.high else value) & (2**64 - 1) for value in some}
        values[test.argument] |= {1 << 32, 0xFFFFFFFF}
    yield from itertools.product(*(sorted(values[place]) for place in range(6)))


@pytest.mark.parametrize("machine", syscalls.NUMBERS)
@pytest.mark.parametrize(("profile", "abi"), PROFILES)
def test_the_filter_says_what_the_rules_say(machine: str, profile: dict[str, bool], abi: int) -> None:
    program, places = seccomp._built(machine, *profile.values(), abi)
    rules, names = answers(**profile, abi=abi), {number: name for name, number in syscalls.NUMBERS[machine].items()}
    assert bool(places) is not profile["fenced"]
    assert all(program[place : place + 4] == struct.pack("=I", OWN_PID) for place in places)
    compared = 0
    for number in (*range(max(names) + 20), 0x3FFFFFFF):
        answer = rules.get(names[number], NO) if number in names else UNKNOWN
        for arguments in tried(answer):
            found = played(program, seen(machine, number, arguments))
            assert found == expected(answer, arguments), (names.get(number), arguments)
            compared += 1
    assert compared > 1000


@pytest.mark.parametrize("machine", syscalls.NUMBERS)
def test_calls_of_another_architecture_end_the_process(machine: str) -> None:
    program, _ = seccomp._built(machine, False, False, False, False, True, 7)
    (other,) = set(syscalls.AUDIT) - {machine}
    read = seen(other, syscalls.NUMBERS[machine]["read"], (0,) * 6)
    assert played(program, read) == KILL
    second = seen(machine, 0x40000000 + syscalls.NUMBERS[machine]["read"], (0,) * 6)
    assert played(program, second) == (KILL if machine == "x86_64" else ERRNO | UNKNOWN.otherwise)
