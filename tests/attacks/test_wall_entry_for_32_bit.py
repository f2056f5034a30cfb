"""A tool enters the kernel where programs of 32 bits do (`int 0x80`), where every call has another number."""

import ctypes

from attacks.behind_walls import Outside, machine_code

# Its number there (359) into eax, its arguments (2, 1, 0) into ebx, ecx and edx, the call itself, and back.
SOCKET = bytes.fromhex("53 b867010000 bb02000000 b901000000 31d2 cd80 5b c3")


def attack() -> int:
    made = ctypes.c_int(machine_code(SOCKET)()).value
    if made < 0:
        raise OSError(-made, "socket")
    return made


def test_the_walls_stop_it(outside: Outside) -> None:
    outside.shows(attack, lambda file: file, refused="SIGSYS", rare=True, only_on="x86_64")
