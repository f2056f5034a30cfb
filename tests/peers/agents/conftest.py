"""A place for a session, which every user can enter."""

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec import Struct

from peers.agents.licet_for_user import licet_for_user
from peers.agents.real_agents import bare_environment, give, settled


class Place(Struct, frozen=True):
    """A fresh project, and the empty home of who works in it."""

    project: Path
    home: Path


@pytest.fixture
def place() -> Iterator[Place]:
    root = Path(tempfile.mkdtemp(prefix="licet-agents-", dir="/var/tmp"))  # Codex wants no home below /tmp
    try:
        root.chmod(0o755)
        made = Place(root / "project", root / "home")
        for path in (made.project / "src", made.home, root / "state"):
            path.mkdir(parents=True)
        (made.project / "a.txt").write_text("one\ntwo\n")
        (made.project / "src" / "main.py").write_text("print('main ran')\n")
        give(root)
        git = ["git", "-c", "user.name=x", "-c", "user.email=x@example.com"]
        for words in (["init", "-q"], ["add", "."], ["commit", "-q", "-m", "start"]):
            code, _, err = settled([*git, *words], made.project, bare_environment(made.home))
            assert code == 0, err
        yield made
    finally:
        shutil.rmtree(root, ignore_errors=True)


@pytest.fixture(scope="session")
def licet() -> Iterator[str]:
    """The program `licet`, for who runs the agents."""
    with licet_for_user() as program:
        yield program
