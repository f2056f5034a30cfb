"""Writes docs/programs.md from rows.yaml: what each program does behind walls, and what does not work.

make reference
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from programs.places import ROOT, Refusal, Row, rows

PAGE = ROOT / "docs" / "programs.md"
_HEAD = """# Programs behind walls

<!-- Written by tests/programs/table.py from tests/programs/rows.yaml. Edit these, and run `make reference`. -->

You want to know whether a program works under `licet run`, before you try it. Each row of this table is a test: the
line is run without licet and behind walls, and its exit code, its output and the files that it leaves must be the same
(times and temporary names aside). It is run as root and as an ordinary user.

- **preset**: under the policy that `licet init --preset coding` writes. *With lines* means that lines were added, which
  the last column gives.
- **learned**: under the policy that `licet observe` and `licet learn` write for this line. *Agreed* means that a person
  first turned the lines that `learn` leaves as comments (deletes, private addresses, dot-files of the home) into rules,
  and agreed to deletes.

A line that fails for you is explained in [My program fails under `licet run`](how-to/program-fails.md).

"""


def _preset(row: Row) -> str:
    if isinstance(row.preset, Refusal):
        return "refused"
    return "the same, with lines" if row.policy else "the same"


def _learned(row: Row) -> str:
    return {"works": "the same", "agreed": "the same, agreed", "skip": "–"}.get(str(row.learned), "refused")


def page() -> str:
    """The page, as it must be in docs."""
    lines = ["| program | preset | learned | what does not work, and why |", "|---|---|---|---|"]
    for row in rows():
        cells = (row.name, _preset(row), _learned(row), row.note)
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return _HEAD + "\n".join(["<!-- generated: programs -->\n", *lines, "\n<!-- end -->"]) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page(), "utf-8")
