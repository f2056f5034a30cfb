"""A tool plants compiled code for a module that somebody else will load: it is taken without a look at the source."""

import os

from attacks.behind_walls import Outside


def attack(target: str) -> None:
    folder = os.path.join(os.path.dirname(target), "__pycache__")
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, "module.cpython-311.pyc"), "wb") as file:
        file.write(b"code")


def test_the_walls_stop_it(outside: Outside) -> None:
    folder = os.path.join(os.path.dirname(outside.target), "__pycache__")
    os.mkdir(folder)
    outside.shows(attack, lambda _: os.listdir(folder))
