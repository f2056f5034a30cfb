"""`ctx.fs`: checks, records, refusals and error messages."""

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from guard.grants import grant
from licet.backends.files.local import LocalFiles
from licet.backends.files.memory import MemoryFiles
from licet.core.algebra.rules import Use
from licet.core.decision.decision import Ask
from licet.core.decision.request import Approval, Ground, Request
from licet.errors import Refused
from licet.guard.grant import Grant
from licet.guard.handles.files import ScopedFiles
from licet.guard.held_paths import held_paths
from licet.guard.meter import Meter
from licet.guard.redaction.redact import Redactor

FILES: dict[str, bytes | str] = {
    "/srv/a.txt": "héllo",
    "/srv/private/key": "secret",
    "/srv/sub/b": b"\xff\xfe",
    "/etc/passwd": "root",
}
RULES = ("fs:read:/srv", "fs:write:/srv")

Act = Callable[[ScopedFiles], Awaitable[Any]]


def held(**given: Any) -> Grant:
    return grant(given.pop("needs", RULES), deny=["fs:*:/srv/private"], **given)


def scoped(holds: Grant | None = None, **given: Any) -> ScopedFiles:
    return ScopedFiles(holds or held(), given.pop("files", MemoryFiles(FILES)), "/srv", **given)


def refusal(act: Act, files: ScopedFiles) -> Refused:
    async def run() -> None:
        await act(files)

    with pytest.raises(Refused) as caught:
        asyncio.run(run())
    return caught.value


def events(holds: Grant) -> list[tuple[str, str]]:
    return [(type(event).__name__, event.capability) for event in holds.events]


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("~/a.txt", "fs:read:/srv/home/a.txt"),
        ("~", "fs:read:/srv/home"),
        ("~/../a.txt", "fs:read:/srv/a.txt"),
        ("~/../../etc/passwd", "fs:read:/etc/passwd"),
        # Rules know no other user either, so these are names of files.
        ("~root/a.txt", "fs:read:/srv/~root/a.txt"),
        ("./~/a.txt", "fs:read:/srv/~/a.txt"),
        ("sub/~/a.txt", "fs:read:/srv/sub/~/a.txt"),
    ],
)
def test_a_path_below_home_is_expanded_as_in_rules(path: str, expected: str) -> None:
    _, use = scoped(home="/srv/home")._use("read", path)
    assert str(use) == expected


def test_without_a_home_directory_nothing_is_below_it() -> None:
    assert refusal(lambda fs: fs.read("~/a.txt"), scoped(home="")).code == "PATH_NOT_REACHABLE"


def test_every_file_operation_is_checked_and_recorded() -> None:
    asked: list[str] = []

    async def ask(approval: Approval, use: Use) -> None:
        asked.append(str(use))

    holds = held(needs=(*RULES, "fs:delete:/srv"), effect="full", ask=ask)
    files = scoped(holds)

    async def run() -> None:
        assert await files.read("/srv/a.txt") == "héllo"
        assert await files.read_bytes("sub/b") == b"\xff\xfe"
        assert await files.list() == ["a.txt", "sub"]
        assert (await files.stat("sub")).kind == "directory"
        assert await files.exists("a.txt")
        assert not await files.exists("none/none")
        assert not await files.exists("a.txt/none")
        await files.write("new", "é")
        await files.write("new", b"\x00")
        assert await files.read_bytes("new") == b"\x00"
        await files.mkdir("x/y")
        await files.rename("new", "x/newer")
        await files.delete("x/newer")

    asyncio.run(run())
    assert events(holds) == [
        ("CapabilityGranted", f"fs:{action}:/srv{path}")
        for action, path in [
            ("read", "/a.txt"), ("read", "/sub/b"), ("read", ""), ("read", "/sub"), ("read", "/a.txt"),
            ("read", "/none/none"), ("read", "/a.txt/none"), ("write", "/new"), ("write", "/new"), ("read", "/new"),
            ("write", "/x/y"), ("write", "/x/newer"), ("delete", "/new"), ("delete", "/x/newer"),
        ]
    ]  # fmt: skip
    assert asked == ["fs:delete:/srv/new", "fs:delete:/srv/x/newer"]


DENIED: list[tuple[str, Act, str]] = [
    ("fs:read:/etc/passwd", lambda files: files.read("/etc/passwd"), "read not permitted for /etc/passwd"),
    ("fs:read:/etc/passwd", lambda files: files.read("../etc/passwd"), "read not permitted for ../etc/passwd"),
    ("fs:read:/etc/passwd", lambda files: files.read_bytes("/etc/passwd"), "read not permitted for /etc/passwd"),
    ("fs:read:/srv/private/key", lambda files: files.read("private/key"), "read not permitted for private/key"),
    ("fs:read:/etc/x", lambda files: files.read(b"../etc/./x"), "read not permitted for ../etc/./x"),
    ("fs:read:/etc/x", lambda files: files.list(Path("../etc/x")), "read not permitted for ../etc/x"),
    ("fs:write:/etc/x", lambda files: files.write("../etc/x", "x"), "write not permitted for ../etc/x"),
    ("fs:write:/etc/x", lambda files: files.open("../etc/x", "w"), "write not permitted for ../etc/x"),
    ("fs:read:/etc/x", lambda files: files.open("../etc/x", "r+"), "read not permitted for ../etc/x"),
    ("fs:write:/etc/x", lambda files: files.rename("a.txt", "../etc/x"), "write not permitted for ../etc/x"),
    ("fs:read:/srv-evil", lambda files: files.stat("/srv-evil"), "read not permitted for /srv-evil"),
    ("fs:read:/", lambda files: files.list("/"), "read not permitted for /"),
    ("fs:read:/etc/x", lambda files: files.exists("/etc/x"), "read not permitted for /etc/x"),
    ("fs:write:/etc/x", lambda files: files.write("/etc/x", "x"), "write not permitted for /etc/x"),
    ("fs:write:/etc/x", lambda files: files.mkdir("/etc/x"), "write not permitted for /etc/x"),
    ("fs:write:/etc/x", lambda files: files.open("/etc/x", "w"), "write not permitted for /etc/x"),
    ("fs:read:/etc/x", lambda files: files.open("/etc/x", "r+"), "read not permitted for /etc/x"),
    ("fs:write:/etc/x", lambda files: files.rename("a.txt", "/etc/x"), "write not permitted for /etc/x"),
]


@pytest.mark.parametrize(("use", "act", "text"), DENIED)
def test_a_path_that_is_not_granted_is_refused_and_recorded(use: str, act: Act, text: str) -> None:
    holds = held()
    refused = refusal(act, scoped(holds))
    assert str(refused) == f"PATH_NOT_REACHABLE: {text}"
    assert events(holds)[-1] == ("CapabilityDenied", use)


@pytest.mark.parametrize("act", [lambda files: files.delete("a.txt"), lambda files: files.rename("a.txt", "b")])
def test_the_effect_class_decides_on_deletes(act: Act) -> None:
    refused = refusal(act, scoped(held(needs=(*RULES, "fs:delete:/srv"))))
    assert (refused.code, str(refused.use)) == ("SIDE_EFFECT_EXCEEDED", "fs:delete:/srv/a.txt")


def test_a_refused_delete_repeats_what_was_sent() -> None:
    for act in (lambda files: files.delete("./a.txt"), lambda files: files.rename("./a.txt", "b")):
        refused = refusal(act, scoped(held(needs=(*RULES, "fs:delete:/srv"))))
        assert str(refused) == "SIDE_EFFECT_EXCEEDED: fs delete ./a.txt is not permitted to worker"


def test_a_delete_that_a_person_is_asked_about_repeats_what_was_sent() -> None:
    async def wait(approval: Approval, use: Use) -> None:
        raise Refused(Ask(Request("worker"), approval, (Ground("APPROVAL_REQUIRED", "a delete"),), use))

    holds = held(needs=(*RULES, "fs:delete:/srv"), effect="full", ask=wait)
    for act in (lambda files: files.delete("./a.txt"), lambda files: files.rename("./a.txt", "b")):
        refused = refusal(act, scoped(holds))
        assert str(refused) == "APPROVAL_REQUIRED: fs delete ./a.txt needs the approval of a person"
        assert isinstance(refused.decision, Ask)
        assert refused.decision.approval == Approval(holds.manifest_digest, "worker", "s-1", "", "fs:delete:/srv/a.txt")


def test_a_path_that_may_not_be_followed_is_repeated_as_it_was_sent(tmp_path: Path) -> None:
    place = str(tmp_path.resolve())
    (tmp_path / "out").symlink_to("/etc/passwd")
    holds = grant([f"fs:*:{place}"])
    refused = refusal(lambda files: files.read("x/../out"), ScopedFiles(holds, LocalFiles(), place))
    assert str(refused) == "PATH_NOT_REACHABLE: read not permitted for x/../out"
    assert place in refused.explain()


def test_a_secret_in_what_was_sent_is_not_repeated() -> None:
    holds = held()
    holds.redactor = Redactor()
    holds.redactor.add("KEY", "hunter2-xyz")
    refused = refusal(lambda files: files.read("hunter2-xyz/../../etc/x"), scoped(holds))
    assert str(refused) == "PATH_NOT_REACHABLE: read not permitted for [redacted KEY]/../../etc/x"


def test_a_delete_that_the_approver_denies_leaves_the_file() -> None:
    files = MemoryFiles(FILES)

    async def no(approval: Approval, use: Use) -> None:
        raise PermissionError("no")

    holds = held(needs=(*RULES, "fs:delete:/srv"), effect="full", ask=no)
    for act in (scoped(holds, files=files).delete("a.txt"), scoped(holds, files=files).rename("a.txt", "b")):
        with pytest.raises(PermissionError):
            asyncio.run(act)
    assert asyncio.run(scoped(files=files).read("a.txt")) == "héllo"


@pytest.mark.parametrize("path", ["a\0b", "", 7, None, "x" * 5000, "\ud800", object()])
def test_a_malformed_path_is_refused_and_recorded(path: Any) -> None:
    holds = held()
    refused = refusal(lambda files: files.read(path), scoped(holds))
    assert refused.code == "PATH_NOT_REACHABLE"
    assert [event.reason for event in holds.events] == ["PATH_NOT_REACHABLE"]


def test_a_call_that_has_ended_reads_nothing() -> None:
    holds = held()
    files = scoped(holds)
    holds.over = True
    assert refusal(lambda fs: fs.read("a.txt"), files).code == "SESSION_ENDED"


ERRORS: list[tuple[Act, type[OSError], tuple[str, ...]]] = [
    (lambda files: files.read("none"), FileNotFoundError, ("none",)),
    (lambda files: files.read("/srv/none"), FileNotFoundError, ("/srv/none",)),
    (lambda files: files.read(Path("sub")), IsADirectoryError, ("sub",)),
    (lambda files: files.read(b"sub"), IsADirectoryError, ("sub",)),
    (lambda files: files.write("none/x", "x"), FileNotFoundError, ("none/x",)),
    (lambda files: files.list("a.txt"), NotADirectoryError, ("a.txt",)),
    (lambda files: files.mkdir("a.txt"), FileExistsError, ("a.txt",)),
    (lambda files: files.open("a.txt", "x"), FileExistsError, ("a.txt",)),
    (lambda files: files.delete("sub"), OSError, ("sub",)),
    (lambda files: files.rename("none", "x"), FileNotFoundError, ("none", "x")),
]


@pytest.mark.parametrize("real", [False, True], ids=["memory", "local"])
@pytest.mark.parametrize(("act", "error", "sent"), ERRORS)
def test_a_system_error_names_the_path_as_sent_and_no_other(
    act: Act, error: type[OSError], sent: tuple[str, ...], real: bool, tmp_path: Path
) -> None:
    place = "/srv"
    files: Any = MemoryFiles(FILES)
    if real:
        if sent[0].startswith("/"):
            pytest.skip("this path is the memory's")
        place, files = str(tmp_path.resolve()), LocalFiles()
        (tmp_path / "sub").mkdir()
        (tmp_path / "sub" / "b").write_bytes(b"")
        (tmp_path / "a.txt").write_bytes(b"")

    async def agree(approval: Approval, use: Use) -> None:
        pass

    holds = grant([f"fs:*:{place}"], effect="full", ask=agree)
    with pytest.raises(error) as caught:
        asyncio.run(act(ScopedFiles(holds, files, place)))  # type: ignore[arg-type]
    wrong = caught.value
    assert (wrong.filename, wrong.filename2) == (*sent, None)[:2]
    assert wrong.__cause__ is None
    assert wrong.__suppress_context__
    assert str(tmp_path) not in str(wrong)


# Sizes ---------------------------------------------------------------------------------------------------------------


MIB = 1 << 20


class Counting(ThreadPoolExecutor):
    """Counts what is done in its threads."""

    count = 0

    def submit(self, *task: Any, **named: Any) -> Any:
        self.count += 1
        return super().submit(*task, **named)


@pytest.mark.parametrize("size", [0, 1, 65_535, 65_536, 65_537, MIB - 1, MIB, MIB + 1, 3 * MIB])
def test_files_of_every_size_are_read_completely_and_only_large_ones_in_a_thread(tmp_path: Path, size: int) -> None:
    path = tmp_path.resolve() / "file"
    path.write_bytes(bytes(range(256)) * (size // 256) + b"x" * (size % 256))
    holds = grant([f"fs:read:{path.parent}"])
    fs, threads = ScopedFiles(holds, LocalFiles(), str(path.parent)), Counting()

    async def run() -> bytes:
        asyncio.get_running_loop().set_default_executor(threads)
        return await fs.read_bytes("file")

    assert asyncio.run(run()) == path.read_bytes()
    assert threads.count == (size >= MIB)


@pytest.mark.parametrize(("size", "limit", "own", "fits"), [
    (10 * MIB, None, None, True), (10 * MIB + 1, None, None, False), (10 * MIB + 1, 20 * MIB, None, False),
    (5, 5, None, True), (6, 5, None, False), (1, 0, None, False), (0, 0, None, True),
    (70_000, 70_000, None, True), (70_001, 70_000, None, False), (MIB + 6, MIB + 5, None, False),
    (65_536, 65_535, None, False), (65_536, 65_536, None, True), (MIB, MIB, None, True), (MIB + 1, MIB, None, False),
    (9, None, 8, False), (8, None, 8, True),
])  # fmt: skip
def test_what_is_too_large_is_refused(size: int, limit: int | None, own: int | None, fits: bool) -> None:
    files = MemoryFiles({"/srv/f": b"x" * size})
    holds = held()
    fs = scoped(holds, files=files) if own is None else scoped(holds, files=files, read_limit=own)
    if fits:
        assert len(asyncio.run(fs.read_bytes("f", limit))) == size
    else:
        refused = refusal(lambda fs: fs.read("f", limit), fs)
        assert refused.code == "LIMIT_SIZE"
        assert events(holds)[-1] == ("CapabilityDenied", "fs:read:/srv/f")
        assert "ctx.fs.open" in refused.explain()


@pytest.mark.parametrize("limit", [-1, -2, -(2**40), 1.5, "9"])
def test_an_invalid_limit_is_refused_before_the_file_is_opened(limit: Any) -> None:
    opened: list[str] = []

    class Watched(MemoryFiles):
        def open(self, path: str, mode: str, held: Any) -> Any:
            opened.append(path)
            return super().open(path, mode, held)

    holds = held()
    fs = scoped(holds, files=Watched(FILES))
    for read in (fs.read, fs.read_bytes):
        refused = refusal(lambda fs, read=read: read("a.txt", limit), fs)  # type: ignore[misc]
        assert str(refused) == "INPUT_INVALID: expected `limit` to be a number of bytes, 0 or more"
    assert events(holds)[-1] == ("CapabilityDenied", "fs:read:/srv/a.txt")
    assert opened == []


def test_a_large_file_is_written_in_a_thread_and_its_errors_come_out(tmp_path: Path) -> None:
    place = str(tmp_path.resolve())
    fs = ScopedFiles(grant([f"fs:*:{place}"]), LocalFiles(), place)
    asyncio.run(fs.write("f", b"x" * (2 * MIB)))
    assert (tmp_path / "f").stat().st_size == 2 * MIB
    with pytest.raises(FileNotFoundError) as caught:
        asyncio.run(fs.write("none/f", b"x" * (2 * MIB)))
    assert caught.value.filename == "none/f"


@pytest.mark.parametrize(("depth", "threads"), [(1, 0), (60, 0), (70, 1)])
def test_deep_directories_are_made_in_a_thread(depth: int, threads: int) -> None:
    files, pool = MemoryFiles(FILES), Counting()

    async def run() -> None:
        asyncio.get_running_loop().set_default_executor(pool)
        await scoped(files=files).mkdir("d/" * depth)

    asyncio.run(run())
    assert pool.count == threads
    assert files.stat("/srv" + "/d" * depth, held_paths(held().reach.grant)).kind == "directory"


def test_only_text_and_bytes_are_written() -> None:
    with pytest.raises(TypeError, match="expected text or bytes, found list"):
        asyncio.run(scoped().write("f", [1]))  # type: ignore[arg-type]


# Open files ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("openat2", [True, False], ids=["openat2", "walk"])
def test_open_gives_a_real_file(tmp_path: Path, openat2: bool) -> None:
    place = str(tmp_path.resolve())
    fs = ScopedFiles(grant([f"fs:*:{place}"]), LocalFiles(openat2=openat2), place)

    async def run() -> None:
        with await fs.open("f", "w", encoding="utf-16") as file:
            file.write("é\nü\n")
        with await fs.open("f", encoding="utf-16") as file:
            assert [*file] == ["é\n", "ü\n"]
        with await fs.open("f", "ab") as raw:
            raw.write(b"!")
        with await fs.open("f", "rb") as raw:
            assert raw.read()[-1:] == b"!"
            assert raw.fileno() > 2
            raw.seek(0)
            with pytest.raises(OSError, match="write"):
                raw.write(b"x")
        with await fs.open("f", "r+b") as raw:
            raw.truncate(0)
            raw.write(b"xy")
            raw.seek(0)
            assert raw.read() == b"xy"
        with await fs.open("g", "xb") as raw:
            raw.write(b"new")

    asyncio.run(run())
    assert ((tmp_path / "f").read_bytes(), (tmp_path / "g").read_bytes()) == (b"xy", b"new")


@pytest.mark.parametrize("mode", ["w+", "rw", "", "b", "rbb", "U", "wt"])
def test_unknown_modes_are_refused(mode: str) -> None:
    with pytest.raises(ValueError, match="expected one of the modes r, w, a, x, r\\+"):
        asyncio.run(scoped().open("a.txt", mode))


def test_mode_r_plus_needs_read_and_write() -> None:
    refused = refusal(lambda fs: fs.open("a.txt", "r+"), scoped(held(needs=("fs:read:/srv",))))
    assert str(refused.use) == "fs:write:/srv/a.txt"


# Where links lead ----------------------------------------------------------------------------------------------------


def test_a_path_that_leads_outside_is_a_recorded_refusal(tmp_path: Path) -> None:
    place = tmp_path.resolve()
    (place / "in").mkdir()
    (place / "out").write_text("CANARY")
    (place / "in" / "link").symlink_to("../out")
    holds = grant([f"fs:*:{place / 'in'}"])
    fs = ScopedFiles(holds, LocalFiles(), str(place / "in"))
    for act in (lambda fs: fs.read("link"), lambda fs: fs.exists("link"), lambda fs: fs.write("link", "x")):
        refused = refusal(act, fs)
        assert refused.code == "PATH_NOT_REACHABLE"
        assert str(place / "out") not in refused.explain()
        assert type(holds.events[-1]).__name__ == "CapabilityDenied"


def test_a_name_that_a_call_makes_by_renaming_counts_too() -> None:
    holds = grant(("fs:write:/srv", "fs:delete:/srv"), effect="destructive", deletes="session")
    holds._meter = Meter({"written_paths": 2})
    files = scoped(holds, files=MemoryFiles({"/srv/a": "a", "/srv/b": "b", "/srv/c": "c"}))

    async def moved() -> None:
        for name in "abc":
            await files.rename(name, f"new-{name}")

    with pytest.raises(Refused) as caught:
        asyncio.run(moved())
    assert str(caught.value).startswith("LIMIT_PATHS: ")
