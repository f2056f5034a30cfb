"""A tool rewrites the framework on the disk, for the next start of the host."""

import os

import licet
from attacks.behind_walls import Outside


def attack() -> str:
    path = os.path.join(os.path.dirname(licet.__file__), f"licet-test-{os.getpid()}.txt")
    with open(path, "w", encoding="utf-8") as file:
        file.write("here")
    os.unlink(path)
    return "written"


def test_the_walls_stop_it(outside: Outside) -> None:
    outside.shows(attack, lambda said: said == "written", rare=True)
