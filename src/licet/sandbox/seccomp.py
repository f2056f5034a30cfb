"""Seccomp: the filter that every system call of a walled process passes, built from `seccomp_rules`.

The kernel runs a new filter once for each number there is when it is attached, so the program is a balanced tree
over numbers rather than a list: attaching it costs a third less.
"""

import ctypes
import struct
from functools import cache
from itertools import groupby

from licet.sandbox import kernel, landlock, syscalls
from licet.sandbox.seccomp_rules import NO, OWN_PID, UNKNOWN, Answer, Test, answers

_LOAD, _AND, _IF_EQUAL, _IF_AT_LEAST, _JUMP, _RETURN = 0x20, 0x54, 0x15, 0x35, 0x05, 0x06
_ALLOW, _ERRNO, _KILL_PROCESS = 0x7FFF0000, 0x00050000, 0x80000000
_NUMBER, _ARCHITECTURE, _ARGUMENTS = 0, 4, 16  # where they are in what the filter sees
_X32 = 0x40000000  # the bit of a second numbering on x86_64, under which every call would go by another number
_FARTHEST = 255  # what a conditional jump can skip

_SET_SECCOMP, _FILTER = 22, 2

Instruction = tuple[int, int, int, int]  # code, jump if true, jump if false, operand
Code = tuple[Instruction, ...]


def program(
    *,
    execute: bool = False,
    fork: bool = False,
    inet: bool = False,
    metadata: bool = False,
    own_pid: int | None = None,
    abi: int | None = None,
) -> bytes:
    """Build a filter.

    execute: programs may be started by name. fork: processes may be made; without it only threads.
    inet: IPv4 and IPv6 sockets; right only in a private network. metadata: modes, owners, times and extended
    attributes may change, and files be watched; right only in a private root.
    own_pid: the one process that signals may go to; None where Landlock (from version 6) or a pid namespace keeps
    them inside. abi: the version of Landlock whose gaps are to be closed; this kernel's if not given.
    """
    version = landlock.abi() if abi is None else abi
    built, places = _built(kernel.machine(), execute, fork, inet, metadata, own_pid is None, version)
    if own_pid is None:
        return built
    patched = bytearray(built)
    for place in places:
        struct.pack_into("=I", patched, place, own_pid)
    return bytes(patched)


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("instructions", ctypes.c_char_p))


def install(filter_program: bytes) -> None:
    """Put a filter on this thread and all it will start, for good; needs no_new_privs."""
    described = _Program(len(filter_program) // 8, filter_program)
    kernel.prctl("prctl(PR_SET_SECCOMP)", _SET_SECCOMP, _FILTER, described)


@cache  # a child patches its pid into what its parent has built
def _built(
    machine: str, execute: bool, fork: bool, inet: bool, metadata: bool, fenced: bool, abi: int
) -> tuple[bytes, tuple[int, ...]]:
    """The filter as bytes, and where in them a pid is to be written."""
    if machine not in syscalls.NUMBERS:
        raise OSError(f"no filter is known for the architecture {machine}")
    allowed = answers(execute=execute, fork=fork, inet=inet, metadata=metadata, fenced=fenced, abi=abi)
    of_number = {number: allowed.get(name, NO) for name, number in syscalls.NUMBERS[machine].items()}
    end = max(of_number) + 1
    numbered = [(number, of_number.get(number, UNKNOWN)) for number in range(end)]
    starts: list[tuple[int, Code]] = []
    for answer, group in groupby(numbered, key=lambda pair: pair[1]):
        starts.append((next(group)[0], _answered(answer)))
    starts.append((end, _answered(UNKNOWN)))
    if machine == "x86_64":
        starts.append((_X32, ((_RETURN, 0, 0, _KILL_PROCESS),)))
    code: Code = (
        (_LOAD, 0, 0, _ARCHITECTURE),
        (_IF_EQUAL, 1, 0, syscalls.AUDIT[machine]),
        (_RETURN, 0, 0, _KILL_PROCESS),
        (_LOAD, 0, 0, _NUMBER),
        *_tree(starts),
    )
    # Operands are at the end of each instruction of eight bytes.
    places = tuple(8 * index + 4 for index, step in enumerate(code) if step[0] == _IF_EQUAL and step[3] == OWN_PID)
    return b"".join(struct.pack("=HBBI", *step) for step in code), places


def _tree(starts: list[tuple[int, Code]]) -> Code:
    """Find by halves the last start that is not above the number."""
    if len(starts) == 1:
        return starts[0][1]
    middle = len(starts) // 2
    below, above = _tree(starts[:middle]), _tree(starts[middle:])
    first = starts[middle][0]
    if len(below) <= _FARTHEST:
        return ((_IF_AT_LEAST, len(below), 0, first), *below, *above)
    return ((_IF_AT_LEAST, 0, 1, first), (_JUMP, 0, 0, len(below)), *below, *above)


def _answered(answer: Answer) -> Code:
    """The instructions for one call: each way to be allowed in turn, and then the refusal."""
    ways = [_way(tests) for tests in answer.allowed]
    return (*(step for way in ways for step in way), (_RETURN, 0, 0, _ERRNO | answer.otherwise))


def _way(tests: tuple[Test, ...]) -> Code:
    """Allow if all tests hold; go on behind this if one does not."""
    code: Code = ((_RETURN, 0, 0, _ALLOW),)
    for test in reversed(tests):
        count = len(test.values)
        if test.none:  # a value that fits jumps over the values that are left and over the rest
            compared = ((_IF_EQUAL, count - 1 - index + len(code), 0, value) for index, value in enumerate(test.values))
            code = (*_loaded(test), *compared, *code)
            continue
        # A value that fits jumps over the values that are left and over the jump for what did not fit.
        compared = ((_IF_EQUAL, count - index, 0, value) for index, value in enumerate(test.values))
        code = (*_loaded(test), *compared, (_JUMP, 0, 0, len(code)), *code)
    return code


def _loaded(test: Test) -> Code:
    place = _ARGUMENTS + 8 * test.argument + 4 * test.high  # both architectures are little endian
    load: Code = ((_LOAD, 0, 0, place),)
    return load if test.mask == 0xFFFFFFFF else (*load, (_AND, 0, 0, test.mask))
