"""A name on the command line leads to a pipe, a device or a file without an end: commands say so, and end."""

import os
import re
import socket
from pathlib import Path

import pytest

import warm

MANIFEST = "agent: desk\ncapabilities: {tools: [look]}\ntools:\n  look: {from: 'desk:look'}\n"
TOOLS = (
    "from licet import Context, tool\n\n@tool(capabilities={}, effect='read_only', sandbox='restricted')\n"
    "async def look(ctx: Context) -> str:\n    return 'x'\n"
)

# What is put in the place of a file, and what is said about it; about some files it is said in other words.
KINDS = {
    "a named pipe": "a named pipe, not a regular file",
    "a socket": "a socket, not a regular file",
    "an endless device": "a device, not a regular file",
    "a file of a terabyte": r"at most .*1 MiB|at most 512 KiB|larger than 4 MiB",
}
SAID = {"desk.py": "no module `desk`|leads outside|at most 512 KiB"}
# Which file it is, and the command that reads it.
READERS = {
    "agent.yaml": ["check", "agent.yaml"],
    "agent.json": ["surface", "agent.json"],
    "licet.yaml": ["check", "other.yaml"],  # the workspace beside it
    "desk.py": ["check", "fine.yaml"],  # what `from:` names
    "work.yaml": ["explain", "fine.yaml", "look", "fs:read:/x", "--workspace", "work.yaml"],
    "person.yaml": ["surface", "fine.yaml", "--personality", "person.yaml"],
    "new.yaml": ["diff", "fine.yaml", "new.yaml"],
    "tools.py": ["init", "tools.py", "-o", "-"],
    "args.json": ["call", "fine.yaml", "look", "--args", "args.json"],
}


def put(kind: str, path: Path) -> None:
    match kind:
        case "a named pipe":
            os.mkfifo(path)
        case "a socket":
            with socket.socket(socket.AF_UNIX) as server:
                server.bind(path.name)  # from here: a whole path may be too long for an address
        case "an endless device":
            path.symlink_to("/dev/zero")
        case _:
            with path.open("wb") as file:
                file.truncate(1 << 40)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", READERS)
@pytest.mark.sampled(7)
def test_what_is_no_regular_file_is_told_and_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, kind: str
) -> None:
    monkeypatch.chdir(tmp_path)
    for file in ("other.yaml", "fine.yaml"):
        Path(file).write_text(MANIFEST)
    Path("desk.py").write_text(TOOLS)
    Path(name).unlink(missing_ok=True)
    put(kind, Path(name))
    # Without the limit, an endless file would take all memory before the time is over.
    limit = "import resource; resource.setrlimit(resource.RLIMIT_AS, (2 << 30, 2 << 30))"
    ended = warm.run(f"{limit}\nfrom licet.cli import main\nmain()", READERS[name])
    assert ended.returncode in (1, 2), ended
    assert "Traceback" not in ended.stderr
    told = ended.stdout + ended.stderr
    assert re.search(SAID.get(name, KINDS[kind]), told)
    assert name in told
