"""A tool tells the kernel which process to end first when memory runs out."""

from pathlib import Path

from attacks.behind_walls import Outside


def attack(pid: int) -> None:
    with open(f"/proc/{pid}/oom_score_adj", "w", encoding="ascii") as file:
        file.write("1000")


def test_the_walls_stop_it(outside: Outside) -> None:
    outside.shows(attack, lambda _: Path(f"/proc/{outside.pid}/oom_score_adj").read_text() == "1000\n")
