"""A link that a tool leaves where another rule names a path: the next process would take it for the operator's."""

import asyncio
from pathlib import Path

import pytest

from licet import Backends, Context, Gate, Result, load_manifest, tool
from pins import pinned


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
