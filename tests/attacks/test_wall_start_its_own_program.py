"""A tool writes a program into its scratch directory and starts it."""

import os

from attacks.behind_walls import Outside, scratch


def attack(target: str) -> None:
    program = os.open(scratch("program"), os.O_CREAT | os.O_WRONLY, 0o700)
    os.write(program, f"#!/bin/sh\necho after > '{target}'; echo; echo '{{\"value\": 1}}'\n".encode())
    os.close(program)
    os.execv(scratch("program"), ["program"])


def test_the_walls_stop_it(outside: Outside) -> None:
    outside.shows(attack, lambda _: outside.changed)
