"""A tool puts code among the libraries that every Python on this machine loads when it starts."""

import os
import sysconfig

from attacks.behind_walls import Outside


def attack() -> str:
    path = os.path.join(sysconfig.get_paths()["purelib"], f"licet-test-{os.getpid()}.txt")
    with open(path, "w", encoding="utf-8") as file:
        file.write("here")
    os.unlink(path)
    return "written"


def test_the_walls_stop_it(outside: Outside) -> None:
    outside.shows(attack, lambda said: said == "written", rare=True)
