"""A tool reads the memory of another process as a file."""

from attacks.behind_walls import Outside


def attack(pid: int, address: int) -> str:
    with open(f"/proc/{pid}/mem", "rb", buffering=0) as memory:
        memory.seek(address)
        return memory.read(100).decode("latin-1")


def test_the_walls_stop_it(outside: Outside) -> None:
    outside.shows(attack, rare=True)
