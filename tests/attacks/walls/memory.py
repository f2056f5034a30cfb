"""Memory of other processes, shared memory, and memory that outlives a call."""

import ctypes
import os
import resource
import struct
from pathlib import Path

from attacks.behind_walls import (
    BEFORE,
    CANARY,
    Outside,
    attack,
    exactly,
    not_negative,
    raw,
    secret_in_the_environment,
    something,
)

CREATE, REMOVE, GET_VALUE, SET_VALUE, NO_WAIT = 0o1600, 0, 12, 16, 0o4000
USER_ONLY = 1


@attack(rare=True)
def read_memory(pid: int, address: int) -> str:
    """A tool reads the memory of another process (`process_vm_readv`)."""
    mine = ctypes.create_string_buffer(len(CANARY))
    there = struct.pack("=QQ", address, len(CANARY))
    raw("process_vm_readv", pid, struct.pack("=QQ", ctypes.addressof(mine), len(CANARY)), 1, there, 1, 0)
    return mine.raw.decode()


@attack(lambda _, outside: outside.remembered != CANARY, rare=True)
def write_memory(pid: int, address: int) -> None:
    """A tool writes to the memory of another process (`process_vm_writev`)."""
    mine = ctypes.create_string_buffer(b"changed")
    there = struct.pack("=QQ", address, 8)
    raw("process_vm_writev", pid, struct.pack("=QQ", ctypes.addressof(mine), 8), 1, there, 1, 0)


@attack(rare=True)
def memory_as_a_file(pid: int, address: int) -> str:
    """A tool reads the memory of another process as a file."""
    with open(f"/proc/{pid}/mem", "rb", buffering=0) as memory:
        memory.seek(address)
        return memory.read(100).decode("latin-1")


@attack(not_negative, rare=True)
def memory_of_others_moved(pid: int, address: int) -> int:
    """A tool moves the memory of another process about, and learns where it is (`move_pages`)."""
    told = ctypes.create_string_buffer(4)
    return raw("move_pages", pid, 1, struct.pack("=Q", address), None, told, 0)


@attack(something, rare=True)
def memory_that_nobody_sees() -> int:
    """A tool keeps something in memory that not even root can look at (`memfd_secret`)."""
    return raw("memfd_secret", 0)


def shared_under_a_name(outside: Outside) -> dict[str, str]:
    import pytest

    shared = Path(f"/dev/shm/licet-{os.getpid()}-{id(outside):x}")
    if not os.access(shared.parent, os.W_OK):
        pytest.skip("this machine has no shared memory with names")
    shared.write_text(BEFORE)
    outside.kept.callback(shared.unlink)
    return {"path": str(shared)}


@attack(lambda _, outside: Path(outside.given["path"]).read_text() != BEFORE, before=shared_under_a_name)
def memory_with_a_name(path: str) -> None:
    """A tool writes to memory that other processes share under a name, for the next tool or for itself."""
    with open(path, "w", encoding="utf-8") as file:
        file.write("after")


def libc() -> ctypes.CDLL:
    found = ctypes.CDLL(None, use_errno=True)
    found.shmat.restype = ctypes.c_void_p
    return found


def shared_under_a_number(outside: Outside) -> dict[str, int]:
    number = libc().shmget(0, 4096, CREATE)
    outside.kept.callback(libc().shmctl, number, REMOVE, None)
    ctypes.memmove(libc().shmat(number, None, 0), CANARY.encode(), len(CANARY))
    return {"number": number}


@attack(before=shared_under_a_number)
def shared_memory(number: int) -> str:
    """A tool reads memory that another process shares under a number (System V)."""
    place = libc().shmat(number, None, 0o10000)
    if place == ctypes.c_void_p(-1).value:
        raise OSError(ctypes.get_errno(), "shmat")
    return ctypes.string_at(place, len(CANARY)).decode()


def semaphores_of_another(outside: Outside) -> dict[str, int]:
    numbers = libc().semget(0, 1, CREATE)
    outside.kept.callback(libc().semctl, numbers, 0, REMOVE)
    return {"numbers": numbers}


@attack(lambda _, outside: libc().semctl(outside.given["numbers"], 0, GET_VALUE) == 7, before=semaphores_of_another)
def semaphores(numbers: int) -> None:
    """A tool sets semaphores of another, who then waits forever (System V)."""
    if libc().semctl(numbers, 0, SET_VALUE, 7) < 0:
        raise OSError(ctypes.get_errno(), "semctl")


class Message(ctypes.Structure):
    _fields_ = (("kind", ctypes.c_long), ("text", ctypes.c_char * 64))


def queue_of_another(outside: Outside) -> dict[str, int]:
    queue = libc().msgget(0, CREATE)
    outside.kept.callback(libc().msgctl, queue, REMOVE, None)
    libc().msgsnd(queue, ctypes.byref(Message(1, CANARY.encode())), ctypes.c_size_t(64), 0)
    return {"queue": queue}


@attack(before=queue_of_another)
def message_queue(queue: int) -> str:
    """A tool takes messages out of another's queue (System V)."""
    message = Message()
    if libc().msgrcv(queue, ctypes.byref(message), ctypes.c_size_t(64), ctypes.c_long(0), NO_WAIT) < 0:
        raise OSError(ctypes.get_errno(), "msgrcv")
    return str(message.text.decode())


@attack(exactly("opened"), rare=True)
def posix_message_queue() -> str:
    """A tool opens a queue that has a name (POSIX), which no wall for files sees."""
    name = f"licet-{os.getpid()}"
    raw("mq_open", name, os.O_CREAT | os.O_RDWR, 0o600, None)
    raw("mq_unlink", name)
    return "opened"


@attack(before=secret_in_the_environment, refused=None, at_start=True)
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


@attack(something, refused="ValueError: not allowed to raise", rare=True)
def core_of_itself() -> int:
    """A tool has its memory written to a file when it crashes, for whoever comes by."""
    resource.setrlimit(resource.RLIMIT_CORE, (1 << 20, 1 << 20))
    return resource.getrlimit(resource.RLIMIT_CORE)[0]


@attack(something, rare=True)
def faults_by_hand() -> int:
    """A tool makes the kernel wait in the middle of its work for a page of memory (`userfaultfd`)."""
    return raw("userfaultfd", USER_ONLY)
