"""Attacks on the handle for files: links, second names, lying texts, devices, and what else leads out of a grant."""

import asyncio
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from attacks.granted import CANARY, Place, agree, both_ways, granted, refused, scoped
from core.liars import BrokenText, FalseText, Liar, LyingBytes
from licet import Backends, CapabilitySet, Context, Gate, Refused, Request, Result, ToolSpec, load_manifest, tool
from licet.backends.files.local import LocalFiles
from licet.core.decision.reach import reach_of
from licet.guard.grant import Grant
from licet.guard.handles.files import ScopedFiles
from pins import pinned


@pytest.fixture(params=[True, False], ids=["openat2", "walk"])
def at(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    """A granted directory with a secret beside it, and files that are opened in each of both ways."""
    return Place(tmp_path, request.param)


# A write through a link that leads to nothing creates the file there: outside -----------------------------------------


@pytest.mark.parametrize("to", ["../out/new", "{out}/new"])
def test_nothing_is_created_through_a_dangling_link(at: Place, to: str) -> None:
    outside = at.root.parent / "out" / "new"
    (at.root / "link").symlink_to(to.format(out=outside.parent))

    (at.root / "link").write_text("x")
    assert outside.read_text() == "x"
    outside.unlink()

    fs = at.files()
    assert refused(fs.write("link", "x")) == "PATH_NOT_REACHABLE"
    for mode in ("w", "a", "x", "r+"):
        assert refused(fs.open("link", mode)) == "PATH_NOT_REACHABLE"
    assert not outside.exists()
    assert (at.root / "link").is_symlink()


# `in/link/../secret`: a check of the text sees `in/secret`, the system opens what stands beside the link's target -----


def test_dots_after_a_link_lead_where_the_text_says(at: Place) -> None:
    (at.root.parent / "out" / "sub").mkdir()
    (at.root / "link").symlink_to("../out/sub")
    attack = f"{at.root}/link/../secret"

    assert os.path.normpath(attack).startswith(f"{at.root}/")  # the check of the text passes
    assert Path(attack).read_text() == CANARY  # and the attack works

    fs = at.files()
    with pytest.raises(FileNotFoundError):
        asyncio.run(fs.read(attack))
    asyncio.run(fs.write(attack, "mine"))
    assert (at.root / "secret").read_text() == "mine"
    assert at.secret.read_text() == CANARY


# `/proc/self/root` and its like are links that no text shows: whoever follows them is anywhere ------------------------


@pytest.mark.parametrize(
    "door", ["/proc/self/root", "/proc/{pid}/root", "/proc/thread-self/root", "/proc/self/cwd/{up}"]
)
def test_a_link_of_the_kernel_is_no_way_out(at: Place, door: str) -> None:
    door = door.format(pid=os.getpid(), up="/".join([".."] * 40))
    attack = f"{door}{at.secret}"
    (at.root / "link").symlink_to(door)

    assert Path(attack).read_text() == CANARY
    assert (at.root / "link" / str(at.secret)[1:]).read_text() == CANARY

    deny = [str(at.root.parent / "out")]
    for fs in (at.files(), at.files(root="/proc"), at.files(deny, root="*")):
        assert refused(fs.read(f"{at.root}/link{at.secret}")) == "PATH_NOT_REACHABLE"
        assert refused(fs.write(f"{at.root}/link{at.secret}", "x")) == "PATH_NOT_REACHABLE"
        if ".." not in attack:  # resolved in the text, dots lead to the secret itself, which is refused as such
            assert refused(fs.read(attack)) == "PATH_NOT_REACHABLE"
    assert at.secret.read_text() == CANARY


@both_ways
def test_the_environment_of_this_process_is_not_part_of_everything(openat2: bool) -> None:
    attack = f"/proc/{os.getpid()}/environ"
    assert Path(attack).read_bytes()
    assert refused(scoped("*", openat2).read(attack)) == "PATH_NOT_REACHABLE"
    assert refused(scoped("*", openat2).read("/proc/self/mem")) == "PATH_NOT_REACHABLE"


# `/dev/fd/N` opens what this process has open, whoever granted it and wherever it is ----------------------------------


@pytest.mark.parametrize("door", ["/dev/fd", "/proc/self/fd"])
def test_open_files_are_no_files_of_a_grant(at: Place, door: str) -> None:
    with at.secret.open() as mine:
        attack = f"{door}/{mine.fileno()}"
        (at.root / "link").symlink_to(attack)

        assert Path(attack).read_text() == CANARY
        assert (at.root / "link").read_text() == CANARY

        assert refused(at.files().read("link")) == "PATH_NOT_REACHABLE"
        for grant in ("*", "/dev", "/proc"):
            assert refused(at.files(root=grant).read(attack)) == "PATH_NOT_REACHABLE"
            assert refused(at.files(root=grant).stat(attack)) == "PATH_NOT_REACHABLE"


# Reading a FIFO waits for ever, a device never ends: neither is a file, and neither makes a call wait -----------------


def test_a_fifo_is_refused_at_once(at: Place) -> None:
    os.mkfifo(at.root / "fifo")
    (at.root / "link").symlink_to("fifo")

    stuck = threading.Thread(target=(at.root / "fifo").read_bytes, daemon=True)
    stuck.start()
    stuck.join(0.2)
    assert stuck.is_alive()
    (at.root / "fifo").write_bytes(b"")  # lets it go
    stuck.join()

    fs = at.files()
    for path in ("fifo", "link"):
        for act in (fs.read(path), fs.write(path, "x"), fs.open(path, "rb"), fs.open(path, "ab"), fs.stat(path)):
            assert refused(act) == "PATH_NOT_REACHABLE"


@pytest.mark.parametrize("device", ["/dev/zero", "/dev/null", "/dev/urandom", "/dev/ptmx"])
def test_a_device_is_refused_whatever_the_grant(at: Place, device: str) -> None:
    (at.root / "link").symlink_to(device)
    with (at.root / "link").open("rb", buffering=0):  # opens, and would be read without end
        pass

    assert refused(at.files().read("link")) == "PATH_NOT_REACHABLE"
    for grant in ("*", "/dev", device):
        fs = at.files(root=grant)
        assert refused(fs.read(device)) == "PATH_NOT_REACHABLE"
        assert refused(fs.write(device, "x")) == "PATH_NOT_REACHABLE"


# A hard link is a second name: writing through it changes a file that no grant names, and no path shows it ------------


def test_a_file_with_another_name_is_not_written(at: Place) -> None:
    os.link(at.secret, at.root / "hard")

    (at.root / "hard").write_text("overwritten")
    assert at.secret.read_text() == "overwritten"
    at.secret.write_text(CANARY)

    fs = at.files()
    assert refused(fs.write("hard", "x")) == "PATH_NOT_REACHABLE"
    for mode in ("w", "a", "r+"):
        assert refused(fs.open("hard", mode)) == "PATH_NOT_REACHABLE"
    assert at.secret.read_text() == CANARY


def test_a_denied_file_is_not_read_under_another_name(at: Place) -> None:
    (at.root / ".env").write_text(CANARY)
    os.link(at.root / ".env", at.root / "notes")
    assert (at.root / "notes").read_text() == CANARY

    assert asyncio.run(at.files().read("notes")) == CANARY  # nothing denies it here
    assert refused(at.files([f"{at.root}/.env"]).read("notes")) == "PATH_NOT_REACHABLE"


# Renaming the parent of a denied directory gives it a path that no deny names; removing it removes what is denied -----


def test_the_parent_of_what_is_denied_stays_where_it_is(at: Place) -> None:
    secret = at.root / "project" / "private" / "key"
    secret.parent.mkdir(parents=True)
    secret.write_text(CANARY)

    (at.root / "project").rename(at.root / "moved")
    assert (at.root / "moved" / "private" / "key").read_text() == CANARY
    (at.root / "moved").rename(at.root / "project")

    fs = at.files([str(secret.parent)])
    (at.root / "link").symlink_to("project")
    for path in ("project", "project/private", "project/private/key", "link/private"):
        assert refused(fs.rename(path, "moved")) == "PATH_NOT_REACHABLE"
        assert refused(fs.delete(path)) == "PATH_NOT_REACHABLE"
    (at.root / "other").mkdir()
    assert refused(fs.rename("other", "project")) == "PATH_NOT_REACHABLE"  # nor is it covered up
    assert secret.read_text() == CANARY


@both_ways
def test_what_is_not_readable_is_not_moved_to_where_it_is(tmp_path: Path, openat2: bool) -> None:
    from attacks.granted import agree
    from guard.grants import grant
    from licet.backends.files.local import LocalFiles
    from licet.guard.handles.files import ScopedFiles

    root = granted(tmp_path)
    (root / "inbox").mkdir()
    (root / "inbox" / "sealed").write_text(CANARY)
    (root / "desk").mkdir()
    rules = [f"fs:write:{root}", f"fs:delete:{root}", f"fs:read:{root}/desk"]
    fs = ScopedFiles(grant(rules, effect="full", ask=agree), LocalFiles(openat2=openat2), str(root))

    (root / "inbox" / "sealed").rename(root / "desk" / "open")
    assert asyncio.run(fs.read("desk/open")) == CANARY
    (root / "desk" / "open").rename(root / "inbox" / "sealed")

    assert refused(fs.rename("inbox/sealed", "desk/open")) == "PATH_NOT_REACHABLE"
    assert refused(fs.rename("inbox", "desk/all")) == "PATH_NOT_REACHABLE"
    asyncio.run(fs.rename("inbox/sealed", "inbox/later"))
    with pytest.raises(FileNotFoundError):
        asyncio.run(fs.read("desk/open"))


# Names that are not UTF-8: they can be listed and opened, and have one spelling, so that a deny cannot be missed ------


def test_any_bytes_can_be_a_name(at: Place) -> None:
    name = b"caf\xe9-\xff\xfe"
    Path(os.fsdecode(bytes(at.root) + b"/" + name)).write_text("OK")
    fs = at.files()
    assert asyncio.run(fs.list()) == [os.fsdecode(name)]
    assert asyncio.run(fs.read(os.fsdecode(name))) == "OK"
    assert asyncio.run(fs.read(bytes(at.root) + b"/" + name)) == "OK"
    asyncio.run(fs.rename(name, b"\xff"))
    asyncio.run(fs.delete(b"\xff"))
    assert asyncio.run(fs.list()) == []


def test_a_second_spelling_does_not_pass_a_deny(at: Place) -> None:
    denied = at.root / "café"
    denied.write_text(CANARY)
    attack = f"{at.root}/caf" + "é".encode().decode("ascii", "surrogateescape")  # the same bytes, another text

    assert attack != str(denied)  # a deny that compares texts misses it
    assert Path(attack).read_text() == CANARY

    fs = at.files([str(denied)])
    assert refused(fs.read(attack)) == "PATH_NOT_REACHABLE"
    assert refused(fs.read(denied)) == "PATH_NOT_REACHABLE"
    assert refused(fs.read(os.fsencode(denied))) == "PATH_NOT_REACHABLE"
    assert asyncio.run(fs.list()) == []


# A path object that answers differently the second time: checked as one path, opened as another -----------------------


class TwoFaced:
    """Answers with each of some paths in turn, and keeps to the last."""

    def __init__(self, *paths: Path) -> None:
        self.asked = 0
        self._paths: Iterator[str] = iter([*map(str, paths), *([str(paths[-1])] * 100)])

    def __fspath__(self) -> str:
        self.asked += 1
        return next(self._paths)


def test_a_path_is_asked_for_once(at: Place) -> None:
    (at.root / "ok").write_text("OK")

    attack = TwoFaced(at.root / "ok", at.secret)
    assert os.fspath(attack).startswith(f"{at.root}/")  # the check
    with open(attack) as file:
        assert file.read() == CANARY

    fs = at.files()
    for mode in ("r", "rb", "r+"):
        attack = TwoFaced(at.root / "ok", at.secret)
        with asyncio.run(fs.open(attack, mode)) as file:
            assert file.read() in ("OK", b"OK")
        assert attack.asked == 1
    attack = TwoFaced(at.root / "ok", at.secret)
    assert asyncio.run(fs.read(attack)) == "OK"
    asyncio.run(fs.write(TwoFaced(at.root / "ok", at.secret), "new"))
    asyncio.run(fs.delete(TwoFaced(at.root / "ok", at.secret)))
    assert attack.asked == 1
    assert at.secret.read_text() == CANARY
    assert not (at.root / "ok").exists()


# A subclass of `str` answers the check as one path and the system as another ------------------------------------------


def test_only_the_characters_of_a_text_count(at: Place) -> None:
    (at.root / "ok").write_text("OK")
    attack = Liar(str(at.secret), f"{at.root}/ok")

    assert attack.startswith(f"{at.root}/")  # the check of the text passes
    with open(attack) as file:
        assert file.read() == CANARY

    fs = at.files()
    assert refused(fs.read(attack)) == "PATH_NOT_REACHABLE"
    assert refused(fs.write(attack, "x")) == "PATH_NOT_REACHABLE"
    assert refused(fs.rename(f"{at.root}/ok", attack)) == "PATH_NOT_REACHABLE"
    assert asyncio.run(fs.read(Liar(f"{at.root}/ok", str(at.secret)))) == "OK"  # what it is, not what it claims
    assert asyncio.run(fs.read(BrokenText(f"{at.root}/ok"))) == "OK"
    assert at.secret.read_text() == CANARY


@pytest.mark.parametrize("kind", [LyingBytes, FalseText])
def test_what_only_looks_like_text_is_refused(at: Place, kind: type) -> None:
    attack: Any = kind() if kind is FalseText else kind(bytes(at.secret))
    with pytest.raises(Refused):
        asyncio.run(at.files().read(attack))


def test_what_is_written_are_the_characters_of_a_text_too(at: Place) -> None:
    asyncio.run(at.files().write("f", Liar("true", "claimed")))
    assert (at.root / "f").read_text() == "true"


# An agent that may write its own directory edits its own ceiling: policy files are in no write grant ------------------


MANIFEST = """\
agent: clerk
capabilities:
  tools: [t]
  max_side_effect_class: full
  budget: {max_calls_per_session: 5}
  fs_reach: {read: ["${workdir}"], write: ["${workdir}"]}
"""


@both_ways
def test_the_manifest_is_read_and_never_changed(tmp_path: Path, openat2: bool) -> None:
    root = granted(tmp_path)
    policy = root / "conf" / "clerk.yaml"
    policy.parent.mkdir()
    policy.write_text(MANIFEST)

    policy.write_text(MANIFEST.replace("full", "destructive"))  # as any code of this user can
    policy.write_text(MANIFEST)

    spec = ToolSpec("t", CapabilitySet(["fs:*:*"]), "full", "restricted")
    manifest = load_manifest(policy).declare([spec]).expand(str(root), "/home/nobody")
    reach = reach_of(manifest, "t")
    assert reach is not None
    fs = ScopedFiles(Grant(Request("t"), reach, manifest.digest, (), agree), LocalFiles(openat2=openat2), str(root))

    assert asyncio.run(fs.read("conf/clerk.yaml")) == MANIFEST
    (root / "link").symlink_to("conf")
    (root / "new").write_text("x")
    for path in ("conf/clerk.yaml", "link/clerk.yaml"):
        for act in (fs.write(path, "x"), fs.open(path, "w"), fs.open(path, "a"), fs.open(path, "r+"), fs.delete(path)):
            assert refused(act) == "PATH_NOT_REACHABLE"
        assert refused(fs.rename("new", path)) == "PATH_NOT_REACHABLE"
        assert refused(fs.rename(path, "new")) == "PATH_NOT_REACHABLE"
    assert refused(fs.rename("conf", "old")) == "PATH_NOT_REACHABLE"
    assert policy.read_text() == MANIFEST


# A link that a tool leaves where another rule names a path: the next process would take it for the operator's ---------


@tool(needs=["fs:write:*"], effect="write_limited", sandbox="native")
async def save(ctx: Context, path: str) -> None:
    """Write a report."""
    await ctx.fs.write(path, "mine")


@tool(needs=["fs:read:*"], effect="read_only", sandbox="native")
async def look(ctx: Context, path: str) -> str:
    """Read a report."""
    return await ctx.fs.read(path)


def call(folder: Path, name: str, path: str) -> Result:
    (folder / "agent.yaml").write_text(
        "agent: a\ncapabilities:\n  tools: [save, look]\n  native: [save, look]\n"
        "  max_side_effect_class: write_limited\n  approvals: {write: manifest}\n"
        '  fs_reach: {read: ["${workdir}/shared/reports", "${workdir}/data"], write: ["${workdir}/shared"]}\n'
    )
    manifest = pinned(load_manifest(folder / "agent.yaml"))
    gate = Gate(manifest, [save, look], Backends.local(folder / "state"), workdir=folder)

    async def once() -> Result:
        async with gate.session("s") as session:
            return await session.call(name, {"path": path})

    return asyncio.run(once())


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    place = tmp_path.resolve() / "place"
    for name in ("shared", "victim", "elsewhere"):
        (place / name).mkdir(parents=True)
    (place / "victim" / "key").write_text("secret")
    (place / "elsewhere" / "fine").write_text("granted")
    (place / "data").symlink_to(place / "elsewhere")  # the operator's own: no tool may write beside it
    (place / "shared" / "reports").symlink_to(place / "victim")  # a walled program could have made it
    return place


def test_following_it_leads_out(folder: Path) -> None:
    assert (folder / "shared/reports/key").read_text() == "secret"


def test_it_is_not_taken_for_the_operators(folder: Path) -> None:
    read, written = call(folder, "look", "shared/reports/key"), call(folder, "save", "shared/reports/new")
    assert (read.ok, written.ok) == (False, False)
    assert (read.reason, written.reason) == ("PATH_NOT_REACHABLE", "PATH_NOT_REACHABLE")
    assert not (folder / "victim" / "new").exists()


def test_a_link_that_no_tool_can_make_is_followed(folder: Path) -> None:
    assert call(folder, "look", "data/fine").value == "granted"
