"""The contract of the files port, on the memory twin and on both ways of opening files of this machine."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from descriptors import left_open, open_files
from licet.backends.files.local import LocalFiles
from licet.backends.files.memory import MemoryFiles
from licet.core.algebra.set import CapabilitySet
from licet.guard.held_paths import HeldPaths
from licet.guard.ports import Escaped, Files

CONTENT = {
    "a.txt": b"one",
    "sub/b.txt": b"two",
    "sub/deep/c.txt": b"three",
    "private/key": b"secret",
    "empty/.keep": b"",
}


def held(root: str, deny: tuple[str, ...] = ("private",), actions: str = "*") -> HeldPaths:
    return HeldPaths(CapabilitySet([f"fs:{actions}:{root}"], [f"fs:*:{root}/{path}" for path in deny]))


class World:
    """Some files below a root, and what a call holds of them."""

    def __init__(self, files: Files, root: str) -> None:
        self.files, self.root, self.held = files, root, held(root)

    def at(self, path: str) -> str:
        return f"{self.root}/{path}"

    def read(self, path: str) -> bytes:
        with self.files.open(self.at(path), "rb", self.held) as file:
            return file.read()


def memory(place: Path) -> World:
    return World(MemoryFiles({f"/srv/{path}": content for path, content in CONTENT.items()}), "/srv")


def local(openat2: bool) -> Callable[[Path], World]:
    def make(place: Path) -> World:
        root = place / "srv"
        for path, content in CONTENT.items():
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            (root / path).write_bytes(content)
        return World(LocalFiles(openat2=openat2), str(root))

    return make


WORLDS = {"memory": memory, "openat2": local(True), "walk": local(False)}


@pytest.fixture(params=WORLDS)
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    made = WORLDS[request.param](tmp_path)
    before = open_files()
    yield made
    assert left_open(before) == set()


def test_a_file_is_read(world: World) -> None:
    assert world.read("sub/deep/c.txt") == b"three"


@pytest.mark.parametrize(
    ("path", "error"),
    [
        ("none", FileNotFoundError),
        ("none/a", FileNotFoundError),
        ("a.txt/x", NotADirectoryError),
        ("sub", IsADirectoryError),
    ],
)
def test_only_files_can_be_read(world: World, path: str, error: type[OSError]) -> None:
    with pytest.raises(error):
        world.read(path)


def test_a_file_is_described(world: World) -> None:
    found = world.files.stat(world.at("sub/b.txt"), world.held)
    assert (found.kind, found.size) == ("file", 3)
    assert found.modified > 1_000_000_000
    assert world.files.stat(world.at("sub"), world.held).kind == "directory"
    with pytest.raises(FileNotFoundError):
        world.files.stat(world.at("none"), world.held)


def test_names_are_listed_in_order_without_those_that_are_denied(world: World) -> None:
    assert world.files.list(world.root, world.held) == ["a.txt", "empty", "sub"]
    with pytest.raises(NotADirectoryError):
        world.files.list(world.at("a.txt"), world.held)
    with pytest.raises(FileNotFoundError):
        world.files.list(world.at("none"), world.held)


def test_names_that_are_no_utf_8_are_listed_and_opened(world: World) -> None:
    world.files.write(world.at("odd\udcff"), b"odd", world.held)
    assert "odd\udcff" in world.files.list(world.root, world.held)
    assert world.read("odd\udcff") == b"odd"


def test_a_file_is_written_and_replaced(world: World) -> None:
    for content in (b"new", b"newer and longer", b""):
        world.files.write(world.at("new.txt"), content, world.held)
        assert world.read("new.txt") == content
    assert world.files.list(world.root, world.held) == ["a.txt", "empty", "new.txt", "sub"]


@pytest.mark.parametrize(
    ("path", "error"), [("sub", IsADirectoryError), ("none/a", FileNotFoundError), ("a.txt/x", OSError)]
)
def test_directories_and_paths_without_a_parent_cannot_be_written(
    world: World, path: str, error: type[OSError]
) -> None:
    with pytest.raises(error):
        world.files.write(world.at(path), b"x", world.held)
    assert world.files.list(world.root, world.held) == ["a.txt", "empty", "sub"]


@pytest.mark.parametrize(
    ("mode", "path", "after"),
    [
        ("wb", "a.txt", b"X"),
        ("wb", "new", b"X"),
        ("ab", "a.txt", b"oneX"),
        ("ab", "new", b"X"),
        ("xb", "new", b"X"),
        ("r+b", "a.txt", b"Xne"),
    ],
)
def test_a_file_is_opened_to_write(world: World, mode: str, path: str, after: bytes) -> None:
    with world.files.open(world.at(path), mode, world.held) as file:
        file.write(b"X")
    assert world.read(path) == after


def test_opening_to_write_empties_the_file_at_once(world: World) -> None:
    with world.files.open(world.at("a.txt"), "wb", world.held):
        assert world.read("a.txt") == b""


@pytest.mark.parametrize(
    ("mode", "path", "error"),
    [
        ("xb", "a.txt", FileExistsError),
        ("r+b", "none", FileNotFoundError),
        ("wb", "sub", IsADirectoryError),
        ("ab", "none/a", FileNotFoundError),
    ],
)
def test_paths_that_cannot_be_opened_for_writing(world: World, mode: str, path: str, error: type[OSError]) -> None:
    with pytest.raises(error):
        world.files.open(world.at(path), mode, world.held)
    assert world.read("a.txt") == b"one"


def test_a_directory_is_made_with_its_parents(world: World) -> None:
    for _ in range(2):
        world.files.mkdir(world.at("x/y/z"), world.held)
        assert world.files.stat(world.at("x/y/z"), world.held).kind == "directory"
    world.files.mkdir(world.root, world.held)
    with pytest.raises(FileExistsError):
        world.files.mkdir(world.at("a.txt"), world.held)
    with pytest.raises(NotADirectoryError):
        world.files.mkdir(world.at("a.txt/x"), world.held)


def test_parents_that_are_not_held_are_not_made(world: World) -> None:
    narrow = HeldPaths(CapabilitySet([f"fs:write:{world.at('x/y')}"]))
    with pytest.raises(FileNotFoundError):
        world.files.mkdir(world.at("x/y"), narrow)
    assert "x" not in world.files.list(world.root, world.held)


def test_files_and_empty_directories_are_deleted(world: World) -> None:
    world.files.delete(world.at("empty/.keep"), world.held)
    world.files.delete(world.at("empty"), world.held)
    world.files.delete(world.at("a.txt"), world.held)
    assert world.files.list(world.root, world.held) == ["sub"]


def test_paths_that_cannot_be_deleted(world: World) -> None:
    with pytest.raises(FileNotFoundError):
        world.files.delete(world.at("none"), world.held)
    with pytest.raises(OSError, match="not empty"):
        world.files.delete(world.at("sub"), world.held)
    with pytest.raises(Escaped):
        world.files.delete(world.root, world.held)  # it contains a denied file
    with pytest.raises(Escaped):
        world.files.delete("/", world.held)


def test_files_and_directories_are_moved(world: World) -> None:
    world.files.rename(world.at("a.txt"), world.at("sub/b.txt"), world.held)
    assert world.read("sub/b.txt") == b"one"
    world.files.rename(world.at("sub"), world.at("moved"), world.held)
    assert world.read("moved/deep/c.txt") == b"three"
    assert world.files.list(world.root, world.held) == ["empty", "moved"]


@pytest.mark.parametrize(
    ("source", "target", "error"),
    [
        ("none", "x", FileNotFoundError),
        ("a.txt", "none/x", FileNotFoundError),
        ("a.txt", "sub", IsADirectoryError),
        ("empty", "a.txt", NotADirectoryError),
        ("empty", "sub", OSError),
        ("sub", "sub/deep/x", OSError),
    ],
)
def test_paths_that_cannot_be_moved(world: World, source: str, target: str, error: type[OSError]) -> None:
    with pytest.raises(error):
        world.files.rename(world.at(source), world.at(target), world.held)
    assert world.files.list(world.root, world.held) == ["a.txt", "empty", "sub"]
    assert world.read("sub/deep/c.txt") == b"three"


def test_a_directory_with_something_denied_in_it_is_not_moved(world: World) -> None:
    part = held(world.root, ("sub/deep",))
    for source, target in (("sub", "moved"), ("empty", "sub")):
        with pytest.raises(Escaped):
            world.files.rename(world.at(source), world.at(target), part)
    world.files.rename(world.at("sub/b.txt"), world.at("b.txt"), part)
    assert world.read("b.txt") == b"two"


def test_moving_makes_nothing_readable(world: World) -> None:
    rules = [f"fs:{action}:{world.root}" for action in ("write", "delete")] + [f"fs:read:{world.at('sub/open')}"]
    blind = HeldPaths(CapabilitySet(rules))
    with pytest.raises(Escaped):
        world.files.rename(world.at("a.txt"), world.at("sub/open"), blind)
    with pytest.raises(Escaped):
        world.files.rename(world.at("empty"), world.at("sub"), blind)  # a part of `sub` can be read
    world.files.rename(world.at("a.txt"), world.at("sub/closed"), blind)
    assert world.read("sub/closed") == b"one"
