"""A tool leaves something for its next call: in its module, in the environment, in its scratch directory."""

import os
import sys
import tempfile

from attacks.behind_walls import NO_WALLS, Outside, called, made

LEFT: list[str] = []


def attack(word: str) -> list[str]:
    path = os.path.join(tempfile.gettempdir(), "licet-test-left")
    found = [*LEFT, os.environ.get("LICET_TEST_LEFT", ""), getattr(sys, "licet_test_left", "")]
    found.append("a file" if os.path.exists(path) else "")
    LEFT.append(word)
    os.environ["LICET_TEST_LEFT"] = sys.licet_test_left = word  # type: ignore[attr-defined]
    with open(path, "w", encoding="utf-8") as file:
        file.write(word)
    return [each for each in found if each]


def test_the_walls_stop_it(outside: Outside) -> None:
    level = "native" if outside.walls == NO_WALLS else outside.walls
    tool = made(attack)
    try:
        for _ in range(3):
            found = called(tool, outside._place, level, {"arguments": {"word": "left"}}).unwrap()
        assert found == (["left", "left", "left", "left", "a file"] if level == "native" else [])
    finally:
        LEFT.clear()
        os.environ.pop("LICET_TEST_LEFT", None)
        vars(sys).pop("licet_test_left", None)
        if level == "native":
            os.unlink(os.path.join(tempfile.gettempdir(), "licet-test-left"))
