"""The scratch directory of a call, as a way to files outside of it."""

import os

from attacks.behind_walls import Outside, scratch


def hard_link_in_scratch(secret: str) -> str:
    """A tool gives a file a second name where it may read."""
    os.link(secret, scratch("name"))
    with open(scratch("name"), encoding="utf-8") as file:
        return file.read()


def test_hard_link_in_scratch(outside: Outside) -> None:
    outside.shows(hard_link_in_scratch, refused="PermissionError|cross-device link")


def link_in_scratch(secret: str) -> str:
    """A tool puts a link to a file where it may write, and opens that."""
    os.symlink(secret, scratch("link"))
    with open(scratch("link"), encoding="utf-8") as file:
        return file.read()


def test_link_in_scratch(outside: Outside) -> None:
    outside.shows(link_in_scratch)


def move_into_scratch(secret: str) -> str:
    """A tool moves a file to where it may read."""
    os.rename(secret, scratch("name"))
    with open(scratch("name"), encoding="utf-8") as file:
        return file.read()


def test_move_into_scratch(outside: Outside) -> None:
    outside.shows(move_into_scratch)


def scratch_of_another_tool() -> list[str]:
    """A tool looks into the scratch directories of other tools, which lie beside its own."""
    return os.listdir(os.path.dirname(os.environ["TMPDIR"]))


def test_scratch_of_another_tool(outside: Outside) -> None:
    outside.shows(scratch_of_another_tool, lambda names: names)
