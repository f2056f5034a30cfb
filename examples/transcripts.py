"""Run the examples and write their transcripts: `python examples/transcripts.py [--check] [EXAMPLE]...`

Each runs in a process of its own, in its own directory. With `--check` nothing is written: the script prints the
difference and exits with 1 if a transcript is out of date.
"""

import argparse
import asyncio
import difflib
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
EXAMPLES = ("research", "coding", "payments", "hooks", "inbox")
WITH_SERVERS = ("mcp",)  # played only if they are named, because they install public MCP servers


def played(example: str) -> str:
    """The transcript of an example, from a new run."""
    ran = subprocess.run(  # noqa: S603
        [sys.executable, __file__, "--play"], cwd=HERE / example, stdout=subprocess.PIPE, check=True
    )
    return ran.stdout.decode()


def play() -> None:
    """Play the example in this directory, and print its transcript."""
    sys.path.insert(0, str(Path.cwd()))
    from scenario import play as scenario
    from stage import Stage

    with tempfile.TemporaryDirectory(prefix="licet-example-") as root:
        stage = Stage(Path(root).resolve())
        try:
            asyncio.run(scenario(stage))
        finally:
            sys.stdout.buffer.write(stage.transcript.encode())


def main() -> int:
    """Play examples; write or compare their transcripts."""
    parser = argparse.ArgumentParser(description="Play the examples, and write what happened.")
    known = f"{', '.join(EXAMPLES)} (all of these, if none is named), {', '.join(WITH_SERVERS)}"
    parser.add_argument("example", nargs="*", help=known)
    parser.add_argument("--check", action="store_true", help="compare with what is written, and write nothing")
    parser.add_argument("--play", action="store_true", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.play:
        play()
        return 0
    if unknown := set(asked.example).difference(EXAMPLES, WITH_SERVERS):
        parser.error(f"there is no example `{min(unknown)}`")
    wrong = 0
    for example in asked.example or EXAMPLES:
        file, new = HERE / example / "transcript.md", played(example)
        old = file.read_text("utf-8") if file.exists() else ""
        if not asked.check:
            file.write_text(new, "utf-8")
        elif old != new:
            wrong = 1
            sys.stdout.writelines(difflib.unified_diff(*(text.splitlines(True) for text in (old, new)), file.name))
    return wrong


if __name__ == "__main__":
    sys.exit(main())
