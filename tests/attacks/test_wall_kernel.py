"""Parts of the kernel that a tool has no use for, and ways around the filter of system calls."""

import ctypes
import errno
import os
import struct

from attacks.behind_walls import Outside, machine_code, raw

# Its number (41) into eax, its arguments (2, 1, 0) into edi, esi and edx, the call itself, and back.
SOCKET = bytes.fromhex("b829000000 bf02000000 be01000000 31d2 0f05 c3")


def code_of_its_own() -> int:
    """A tool enters the kernel by machine code that it wrote itself: no library stands in between."""
    made = machine_code(SOCKET)()
    if made < 0:
        raise OSError(-made, "socket")
    return made


def test_code_of_its_own(outside: Outside) -> None:
    outside.shows(code_of_its_own, lambda file: file, rare=True, only_on="x86_64")


# Its number there (359) into eax, its arguments (2, 1, 0) into ebx, ecx and edx, the call itself, and back.
ENTRY_FOR_32_BIT_SOCKET = bytes.fromhex("53 b867010000 bb02000000 b901000000 31d2 cd80 5b c3")


def entry_for_32_bit() -> int:
    """A tool enters the kernel where programs of 32 bits do (`int 0x80`), where every call has another number."""
    made = ctypes.c_int(machine_code(ENTRY_FOR_32_BIT_SOCKET)()).value
    if made < 0:
        raise OSError(-made, "socket")
    return made


def test_entry_for_32_bit(outside: Outside) -> None:
    outside.shows(entry_for_32_bit, lambda file: file, refused="SIGSYS", rare=True, only_on="x86_64")


X32 = 0x40000000


def second_numbering() -> bool:
    """A tool makes calls by the numbers of another architecture (x32), which a filter for this one does not know."""
    return raw(X32 + 39) == os.getpid()


def test_second_numbering(outside: Outside) -> None:
    outside.shows(second_numbering, lambda done: done, refused="SIGSYS", rare=True, only_on="x86_64")


HIGH_BITS_OF_A_NUMBER_SOCKET = 41


def high_bits_of_a_number() -> int:
    """A tool sets bits of a number that the kernel does not look at, and a filter might."""
    return raw((1 << 32) + HIGH_BITS_OF_A_NUMBER_SOCKET, 2, 1, 0)


def test_high_bits_of_a_number(outside: Outside) -> None:
    outside.shows(high_bits_of_a_number, lambda file: file, rare=True, only_on="x86_64")


def numbers_of_tomorrow() -> list[int]:
    """A tool tries calls that the kernel may have by now and that nobody has looked at yet."""
    found = []
    for number in range(471, 640):
        try:
            raw(number, -1, 0, 0, 0, 0, 0)
        except OSError as error:
            if error.errno == errno.ENOSYS:
                continue
        found.append(number)
    if not found:
        raise OSError(errno.ENOSYS, "not implemented")
    return found


def test_numbers_of_tomorrow(outside: Outside) -> None:
    outside.shows(numbers_of_tomorrow, lambda numbers: numbers, refused="not implemented", rare=True)


def descriptor_tables() -> int:
    """A tool changes how the processor finds memory (`modify_ldt`), for code that few have read."""
    return raw("modify_ldt", 0, ctypes.create_string_buffer(64), 64)


def test_descriptor_tables(outside: Outside) -> None:
    outside.shows(descriptor_tables, lambda size: size is not None and size >= 0, rare=True, only_on="x86_64")


FILTER, WITH_LISTENER, SET_NO_NEW_PRIVS = 1, 8, 38


def filter_of_its_own() -> int:
    """A tool puts a filter on itself that hands its calls to another process, which may answer as it likes."""
    allow = ctypes.create_string_buffer(struct.pack("=HBBI", 6, 0, 0, 0x7FFF0000), 8)
    raw("prctl", SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    return raw("seccomp", FILTER, WITH_LISTENER, struct.pack("=H6xQ", 1, ctypes.addressof(allow)))


def test_filter_of_its_own(outside: Outside) -> None:
    outside.shows(filter_of_its_own, lambda file: file, rare=True)


USER_RING, UNLINK = -4, 9


def keys_of_the_kernel() -> str:
    """A tool leaves a key in a ring that all processes of the user share, or takes one out."""
    key = raw("add_key", b"user", b"licet-test", b"here", 4, USER_RING)
    raw("keyctl", UNLINK, key, USER_RING)
    return "kept"


def test_keys_of_the_kernel(outside: Outside) -> None:
    outside.shows(keys_of_the_kernel, lambda said: said == "kept", rare=True)


READ_ALL = 3


def log_of_the_kernel() -> int:
    """A tool reads the log of the kernel, with addresses, devices and programs of everybody."""
    return raw("syslog", READ_ALL, ctypes.create_string_buffer(4096), 4096)


def test_log_of_the_kernel(outside: Outside) -> None:
    outside.shows(log_of_the_kernel, lambda size: size is not None and size >= 0, root=True, rare=True)


NOT_RANDOM = 0x40000


def other_behaviour() -> int:
    """A tool asks the kernel to behave as an older one did, without random addresses for what it starts."""
    raw("personality", NOT_RANDOM)
    return raw("personality", 0xFFFFFFFF)


def test_other_behaviour(outside: Outside) -> None:
    outside.shows(other_behaviour, lambda now: now and now & NOT_RANDOM, rare=True)


SOFTWARE, CPU_CLOCK, NOT_THE_KERNEL = 1, 0, 0b1100000


def performance_counters() -> int:
    """A tool counts what the processor does, finely enough to learn what others do (`perf_event_open`)."""
    wanted = struct.pack("=IIQQQQQ", SOFTWARE, 64, CPU_CLOCK, 0, 0, 0, NOT_THE_KERNEL) + bytes(16)
    return raw("perf_event_open", wanted, 0, -1, -1, 0)


def test_performance_counters(outside: Outside) -> None:
    outside.shows(performance_counters, lambda file: file, rare=True)


MAP_CREATE, ARRAY = 0, 2


def programs_for_the_kernel() -> int:
    """A tool gives the kernel something to keep that outlives it, or a program to run (`bpf`)."""
    return raw("bpf", MAP_CREATE, struct.pack("=IIII", ARRAY, 4, 4, 1) + bytes(104), 120)


def test_programs_for_the_kernel(outside: Outside) -> None:
    outside.shows(programs_for_the_kernel, lambda file: file, root=True, rare=True)


def ports_of_the_machine() -> int:
    """A tool of root talks to devices without the kernel (`ioperm`)."""
    return raw("ioperm", 0x80, 1, 1)


def test_ports_of_the_machine(outside: Outside) -> None:
    outside.shows(ports_of_the_machine, lambda done: done == 0, root=True, rare=True, only_on="x86_64")


def clock_of_the_machine() -> int:
    """A tool asks for, and as root sets, how fast the clock of the machine goes."""
    return raw("adjtimex", ctypes.create_string_buffer(208))  # all zeros: it is only told


def test_clock_of_the_machine(outside: Outside) -> None:
    outside.shows(clock_of_the_machine, lambda state: state is not None and state >= 0, rare=True)
