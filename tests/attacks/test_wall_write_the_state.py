"""A tool that may write everything around the state of the host changes the records."""

from pathlib import Path

from attacks.behind_walls import Outside


def attack(state: str) -> None:
    with open(state, "w", encoding="utf-8") as file:
        file.write("changed")


def test_the_walls_stop_it(outside: Outside) -> None:
    needs = [f"fs:write:{outside.place}"]
    outside.shows(attack, lambda _: Path(outside.state).read_text() == "changed", needs=needs)
