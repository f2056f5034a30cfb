"""Memory of other processes, shared memory, and memory that outlives a call."""

import ctypes
import os
import resource
import struct
from contextlib import ExitStack
from pathlib import Path

from attacks.behind_walls import BEFORE, CANARY, Outside, raw


def read_memory(pid: int, address: int) -> str:
    """A tool reads the memory of another process (`process_vm_readv`)."""
    mine = ctypes.create_string_buffer(len(CANARY))
    there = struct.pack("=QQ", address, len(CANARY))
    raw("process_vm_readv", pid, struct.pack("=QQ", ctypes.addressof(mine), len(CANARY)), 1, there, 1, 0)
    return mine.raw.decode()


def test_read_memory(outside: Outside) -> None:
    outside.shows(read_memory, rare=True)


def write_memory(pid: int, address: int) -> None:
    """A tool writes to the memory of another process (`process_vm_writev`)."""
    mine = ctypes.create_string_buffer(b"changed")
    there = struct.pack("=QQ", address, 8)
    raw("process_vm_writev", pid, struct.pack("=QQ", ctypes.addressof(mine), 8), 1, there, 1, 0)


def test_write_memory(outside: Outside) -> None:
    outside.shows(write_memory, lambda _: outside.remembered != CANARY, rare=True)


def memory_as_a_file(pid: int, address: int) -> str:
    """A tool reads the memory of another process as a file."""
    with open(f"/proc/{pid}/mem", "rb", buffering=0) as memory:
        memory.seek(address)
        return memory.read(100).decode("latin-1")


def test_memory_as_a_file(outside: Outside) -> None:
    outside.shows(memory_as_a_file, rare=True)


def memory_of_others_moved(pid: int, address: int) -> int:
    """A tool moves the memory of another process about, and learns where it is (`move_pages`)."""
    told = ctypes.create_string_buffer(4)
    return raw("move_pages", pid, 1, struct.pack("=Q", address), None, told, 0)


def test_memory_of_others_moved(outside: Outside) -> None:
    outside.shows(memory_of_others_moved, lambda done: done is not None and done >= 0, rare=True)


def memory_that_nobody_sees() -> int:
    """A tool keeps something in memory that not even root can look at (`memfd_secret`)."""
    return raw("memfd_secret", 0)


def test_memory_that_nobody_sees(outside: Outside) -> None:
    outside.shows(memory_that_nobody_sees, lambda file: file, rare=True)


def memory_with_a_name(path: str) -> None:
    """A tool writes to memory that other processes share under a name, for the next tool or for itself."""
    with open(path, "w", encoding="utf-8") as file:
        file.write("after")


def test_memory_with_a_name(outside: Outside) -> None:
    import pytest

    shared = Path(f"/dev/shm/licet-{os.getpid()}-{id(outside):x}")
    if not os.access(shared.parent, os.W_OK):
        pytest.skip("this machine has no shared memory with names")
    shared.write_text(BEFORE)
    try:
        outside.shows(memory_with_a_name, lambda _: shared.read_text() != BEFORE, path=str(shared))
    finally:
        shared.unlink()


CREATE, REMOVE = 0o1600, 0


def libc() -> ctypes.CDLL:
    found = ctypes.CDLL(None, use_errno=True)
    found.shmat.restype = ctypes.c_void_p
    return found


def shared_memory(number: int) -> str:
    """A tool reads memory that another process shares under a number (System V)."""
    place = libc().shmat(number, None, 0o10000)
    if place == ctypes.c_void_p(-1).value:
        raise OSError(ctypes.get_errno(), "shmat")
    return ctypes.string_at(place, len(CANARY)).decode()


def test_shared_memory(outside: Outside) -> None:
    number = libc().shmget(0, 4096, CREATE)
    with ExitStack() as kept:
        kept.callback(libc().shmctl, number, REMOVE, None)
        place = libc().shmat(number, None, 0)
        ctypes.memmove(place, CANARY.encode(), len(CANARY))
        outside.shows(shared_memory, number=number)


SEMAPHORES_CREATE, SEMAPHORES_REMOVE, GET_VALUE, SET_VALUE = 0o1600, 0, 12, 16


def semaphores(numbers: int) -> None:
    """A tool sets semaphores of another, who then waits forever (System V)."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.semctl(numbers, 0, SET_VALUE, 7) < 0:
        raise OSError(ctypes.get_errno(), "semctl")


def test_semaphores(outside: Outside) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    numbers = libc.semget(0, 1, SEMAPHORES_CREATE)
    try:
        outside.shows(semaphores, lambda _: libc.semctl(numbers, 0, GET_VALUE) == 7, numbers=numbers)
    finally:
        libc.semctl(numbers, 0, SEMAPHORES_REMOVE)


MESSAGE_QUEUE_CREATE, MESSAGE_QUEUE_REMOVE, NO_WAIT = 0o1600, 0, 0o4000


class Message(ctypes.Structure):
    _fields_ = (("kind", ctypes.c_long), ("text", ctypes.c_char * 64))


def message_queue(queue: int) -> str:
    """A tool takes messages out of another's queue (System V)."""
    message = Message()
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.msgrcv(queue, ctypes.byref(message), ctypes.c_size_t(64), ctypes.c_long(0), NO_WAIT) < 0:
        raise OSError(ctypes.get_errno(), "msgrcv")
    return str(message.text.decode())


def test_message_queue(outside: Outside) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    queue = libc.msgget(0, MESSAGE_QUEUE_CREATE)
    try:
        libc.msgsnd(queue, ctypes.byref(Message(1, CANARY.encode())), ctypes.c_size_t(64), 0)
        outside.shows(message_queue, queue=queue)
    finally:
        libc.msgctl(queue, MESSAGE_QUEUE_REMOVE, None)


def posix_message_queue() -> str:
    """A tool opens a queue that has a name (POSIX), which no wall for files sees."""
    name = f"licet-{os.getpid()}"
    raw("mq_open", name, os.O_CREAT | os.O_RDWR, 0o600, None)
    raw("mq_unlink", name)
    return "opened"


def test_posix_message_queue(outside: Outside) -> None:
    outside.shows(posix_message_queue, lambda said: said == "opened", rare=True)


def words_on_the_stack() -> str:
    """A tool searches the start of its own stack: words and variables of its first program lie there."""
    libc = ctypes.CDLL(None, use_errno=True)
    name = ctypes.c_void_p.in_dll(libc, "program_invocation_name").value or 0
    reading, writing = os.pipe()
    found = b""
    for page in range(name & ~4095, (name & ~4095) + (1 << 20), 4096):
        if libc.write(writing, ctypes.c_void_p(page), 4096) < 0:  # the kernel says whether something is there
            break
        found += os.read(reading, 4096)
    return found.replace(b"\0", b" ").decode("latin-1")


def test_words_on_the_stack(outside: Outside) -> None:
    import pytest

    from licet.sandbox.workers.pool import close_workers

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LICET_TEST_SECRET", CANARY)
        close_workers()
        outside.shows(words_on_the_stack, refused=None, at_start=True)


def core_of_itself() -> int:
    """A tool has its memory written to a file when it crashes, for whoever comes by."""
    resource.setrlimit(resource.RLIMIT_CORE, (1 << 20, 1 << 20))
    return resource.getrlimit(resource.RLIMIT_CORE)[0]


def test_core_of_itself(outside: Outside) -> None:
    outside.shows(core_of_itself, lambda size: size, refused="ValueError: not allowed to raise", rare=True)


USER_ONLY = 1


def faults_by_hand() -> int:
    """A tool makes the kernel wait in the middle of its work for a page of memory (`userfaultfd`)."""
    return raw("userfaultfd", USER_ONLY)


def test_faults_by_hand(outside: Outside) -> None:
    outside.shows(faults_by_hand, lambda file: file, rare=True)
