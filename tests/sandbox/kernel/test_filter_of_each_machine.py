"""The filter of every architecture, played call by call: it says of each what the rules say, also where no such machine
is at hand."""

import itertools
import struct
from collections.abc import Iterator

import pytest

from licet.sandbox.kernel import seccomp, system_calls
from licet.sandbox.kernel.seccomp import NO, OWN_GROUP, OWN_PID, OWN_USER, UNKNOWN, CallRule, call_rules

ALLOW, NOTIFY, ERRNO, KILL = 0x7FFF0000, 0x7FC00000, 0x00050000, 0x80000000
BESIDE = {"inet": False, "metadata": False, "beside": True}
_ORDER = ("execute", "fork", "inet", "metadata", "fenced")
PROFILES = [
    pytest.param(
        {"execute": False, "fork": False, "inet": False, "metadata": False, "fenced": True}, 7, "none", id="tool"
    ),
    pytest.param(
        {"execute": False, "fork": False, "inet": False, "metadata": False, "fenced": False}, 1, "none", id="old"
    ),
    pytest.param(
        {"execute": True, "fork": True, "inet": True, "metadata": True, "fenced": True}, 7, "none", id="program"
    ),
    pytest.param({"execute": True, "fork": True, "inet": True, "metadata": True, "fenced": True}, 7, "asks", id="unix"),
    pytest.param({**BESIDE, "execute": True, "fork": True, "fenced": False}, 1, "asks", id="beside the machine"),
    pytest.param(
        {**BESIDE, "execute": False, "fork": False, "fenced": True}, 7, "judges", id="judge beside the machine"
    ),
    pytest.param(
        {"execute": False, "fork": False, "inet": False, "metadata": False, "fenced": True}, 7, "judges", id="judge"
    ),
    pytest.param(
        {"execute": False, "fork": False, "inet": False, "metadata": False, "fenced": True, "counts": True},
        7,
        "none",
        id="tool that is counted",
    ),
    pytest.param(
        {"execute": True, "fork": True, "inet": True, "metadata": True, "fenced": True, "counts": True},
        2,
        "asks",
        id="program that is counted",
    ),
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
    return struct.pack("=IIQ6Q", number, system_calls.AUDIT[machine], 0, *arguments)


def holds(test: seccomp.ArgumentTest, arguments: tuple[int, ...]) -> bool:
    half = arguments[test.argument] >> 32 if test.high else arguments[test.argument] & 0xFFFFFFFF
    return ((half & test.mask) in test.values) is not test.none


def expected(answer: CallRule, arguments: tuple[int, ...]) -> int:
    for ways, said in ((answer.allowed, ALLOW), (answer.asked, NOTIFY), (answer.skipped, ERRNO)):
        if any(all(holds(test, arguments) for test in tests) for tests in ways):
            return said
    return ERRNO | answer.otherwise


def tried(answer: CallRule) -> Iterator[tuple[int, ...]]:
    """Arguments with everything that a test looks for, and its neighbours, in each place that is looked at."""
    tests = [test for tests in (*answer.allowed, *answer.asked, *answer.skipped) for test in tests]
    values: dict[int, set[int]] = {place: {0} for place in range(6)}
    for test in tests:
        some = {value for one in test.values for value in (one, one + 1, one ^ 0x80000000)} | {test.mask}
        values[test.argument] |= {(value << 32 if test.high else value) & (2**64 - 1) for value in some}
        values[test.argument] |= {1 << 32, 0xFFFFFFFF}
    yield from itertools.product(*(sorted(values[place]) for place in range(6)))


@pytest.mark.parametrize("machine", system_calls.NUMBERS)
@pytest.mark.parametrize(("profile", "abi", "unix"), PROFILES)
def test_the_filter_says_what_the_rules_say(
    machine: str, profile: dict[str, bool], abi: int, unix: seccomp.Unix
) -> None:
    others = {name: value for name, value in profile.items() if name not in _ORDER}
    program, places = seccomp._built(machine, *(profile[name] for name in _ORDER), abi, unix, **others)
    rules, names = (
        call_rules(**profile, abi=abi, unix=unix),  # type: ignore[arg-type]
        {number: name for name, number in system_calls.NUMBERS[machine].items()},
    )
    own = ({OWN_USER, OWN_GROUP} if profile["execute"] else set()) | (set() if profile["fenced"] else {OWN_PID})
    assert {value for _, value in places} == own
    assert all(program[place : place + 4] == struct.pack("=I", value) for place, value in places)
    compared = 0
    for number in (*range(max(names) + 20), 0x3FFFFFFF):
        answer = rules.get(names[number], NO) if number in names else UNKNOWN
        for arguments in tried(answer):
            found = played(program, seen(machine, number, arguments))
            assert found == expected(answer, arguments), (names.get(number), arguments)
            compared += 1
    assert compared > 1000


@pytest.mark.parametrize("machine", system_calls.NUMBERS)
def test_calls_of_another_architecture_end_the_process(machine: str) -> None:
    program, _ = seccomp._built(machine, False, False, False, False, True, 7)
    (other,) = set(system_calls.AUDIT) - {machine}
    read = seen(other, system_calls.NUMBERS[machine]["read"], (0,) * 6)
    assert played(program, read) == KILL
    second = seen(machine, 0x40000000 + system_calls.NUMBERS[machine]["read"], (0,) * 6)
    assert played(program, second) == (KILL if machine == "x86_64" else ERRNO | UNKNOWN.otherwise)


# Calls that change modes, owners, times, attributes and flags of files, by path or by an open file.
CHANGES = [
    *("chmod", "fchmod", "fchmodat", "fchmodat2", "chown", "fchown", "lchown", "fchownat", "utime", "utimes"),
    *("futimesat", "utimensat", "setxattr", "lsetxattr", "fsetxattr", "setxattrat", "removexattr", "lremovexattr"),
    *("fremovexattr", "removexattrat", "file_setattr"),
]
FLAGS = {"FS_IOC_SETFLAGS": 0x40086602, "FS_IOC32_SETFLAGS": 0x40046602, "FS_IOC_FSSETXATTR": 0x401C5820,
         "FS_IOC_SETVERSION": 0x40087602, "FS_IOC_SETFSLABEL": 0x41009432, "FS_IOC_ENABLE_VERITY": 0x40806685,
         "FS_IOC_SET_ENCRYPTION_POLICY": 0x800C6613}  # fmt: skip


@pytest.mark.parametrize("machine", system_calls.NUMBERS)
def test_no_call_changes_metadata_without_a_private_root(machine: str) -> None:
    for execute, abi in itertools.product((False, True), range(1, 8)):
        found = call_rules(execute=execute, fork=execute, inet=False, metadata=False, fenced=False, abi=abi)
        assert {name: found.get(name, NO) for name in CHANGES if name in system_calls.NUMBERS[machine]}.items() <= {
            (name, NO) for name in CHANGES
        }


@pytest.mark.parametrize("metadata", [False, True])
def test_flags_of_files_are_set_by_nobody(metadata: bool) -> None:
    found = call_rules(execute=True, fork=True, inet=False, metadata=metadata, fenced=True, abi=7)
    assert found.get("file_setattr", NO) == NO
    (allowed,) = found["ioctl"].allowed
    assert not set(FLAGS.values()) & set(allowed[0].values)


@pytest.mark.parametrize("inet", [False, True])
def test_every_way_to_connect_a_unix_socket_asks(inet: bool) -> None:
    """Where unix sockets can be made, no call connects one without asking; datagrams could go anywhere."""
    found = call_rules(execute=True, fork=True, inet=inet, metadata=True, fenced=True, abi=7, unix="asks")
    ways = [tests for tests in found.get("socket", NO).allowed if tests[0].values == (1,)]
    assert [(way[1].values, way[1].mask) for way in ways] == ([((1, 5), 0xF)] if inet else [])
    assert found.get("connect", NO) == (seccomp.ASK if inet else NO)
    assert found.get("listen", NO) == (seccomp.ASK if inet else NO)


# Every call that can add an entry to a directory, or make a file without one.
MAKING = [
    *("open", "openat", "openat2", "creat", "mkdir", "mkdirat", "mknod", "mknodat", "symlink", "symlinkat", "link"),
    *("linkat", "bind", "renameat2", "open_by_handle_at", "mq_open", "io_uring_setup", "io_submit", "memfd_secret"),
]


@pytest.mark.parametrize("execute", [False, True])
@pytest.mark.parametrize("abi", [1, 7])
def test_every_call_that_makes_an_entry_asks_where_it_is_counted(execute: bool, abi: int) -> None:
    plain, rules = (
        call_rules(execute=execute, fork=execute, inet=execute, metadata=execute, fenced=True, abi=abi, counts=counts)
        for counts in (False, True)
    )
    same = {name for name in plain if rules[name] == plain[name]}
    assert same | set(MAKING) >= set(plain)
    for name in MAKING:
        ways = rules.get(name, NO).allowed
        if name in ("open", "openat"):  # neither O_CREAT nor O_TMPFILE
            assert all(
                (("open", "openat").index(name) + 1, (0,), 0o20000100) in [test[:3] for test in way] for way in ways
            )
        elif name == "renameat2":  # no RENAME_WHITEOUT
            assert [[test[:3] for test in way] for way in ways] == [[(4, (0,), 4)]]
        else:
            assert ways == ()
        if name in plain and plain[name].allowed:  # what was allowed is counted, and nothing else
            assert rules[name].asked
            arguments = [*tried(plain[name])]
            assert all(
                (expected(rules[name], one) in (ALLOW, NOTIFY)) is (expected(plain[name], one) == ALLOW)
                for one in arguments
            )


def test_the_process_that_judges_starts_nothing_and_makes_no_sockets() -> None:
    found = call_rules(execute=False, fork=False, inet=False, metadata=False, fenced=True, abi=7, unix="judges")
    for name in (
        "socket",
        "bind",
        "listen",
        "execve",
        "fork",
        "vfork",
        "ptrace",
        "process_vm_writev",
        "setns",
        "mount",
    ):
        assert found.get(name, NO) == NO, name
