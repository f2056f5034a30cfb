"""A tool enters the kernel by machine code that it wrote itself: no library stands in between."""

from attacks.behind_walls import Outside, machine_code

# Its number (41) into eax, its arguments (2, 1, 0) into edi, esi and edx, the call itself, and back.
SOCKET = bytes.fromhex("b829000000 bf02000000 be01000000 31d2 0f05 c3")


def attack() -> int:
    made = machine_code(SOCKET)()
    if made < 0:
        raise OSError(-made, "socket")
    return made


def test_the_walls_stop_it(outside: Outside) -> None:
    outside.shows(attack, lambda file: file, rare=True, only_on="x86_64")
