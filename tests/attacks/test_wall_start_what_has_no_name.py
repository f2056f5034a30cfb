"""A tool starts a program that lies in memory alone, past every list of programs."""

import os

from attacks.behind_walls import Outside, raw


def attack() -> str:
    program = raw("memfd_create", b"program", 0)
    with open("/bin/echo", "rb") as file:
        os.write(program, file.read())
    child = os.fork()
    if not child:
        os.execve(program, ["echo"], {})
    return "started" if os.waitpid(child, 0)[1] == 0 else "no"


def test_the_walls_stop_it(outside: Outside) -> None:
    outside.shows(attack, lambda said: said == "started")
