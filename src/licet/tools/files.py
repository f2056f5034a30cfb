"""Tools for files: read, write, edit, list. The manifest decides which files; paths are relative to the workdir."""

import asyncio
from typing import IO, Any

from licet import Context, Refused, tool

MOST_TEXT = 256 * 1024  # bytes that one `read_file` returns
MOST_EDITED = 10 * 1024 * 1024  # bytes of a file that one `edit_file` writes, as many as it can read
MOST_REPLACED = 1000
MOST_ENTRIES = 1000  # entries that one `list_dir` returns
_PIECE = 64 * 1024
_PAUSE = 256  # pieces or names after which other tasks may run


@tool(capabilities={"fs_reach": {"read": "from-personality"}}, effect="read_only", sandbox="restricted")
async def read_file(ctx: Context, path: str, offset: int = 0, limit: int | None = None) -> str:
    """Read a text file, or some of its lines.
    `offset` lines are skipped, and at most `limit` lines returned. A text that is cut because it is long ends with a
    line that says at which `offset` to go on.

    The text is returned as it is in the file, line ends included. It must be UTF-8.
    """
    if offset < 0 or (limit is not None and limit < 1):
        raise ValueError("expected an `offset` of 0 or more and a `limit` of 1 or more")
    with await ctx.fs.open(path, "rb") as file:
        await _skip_lines(file, offset)
        data, lines, whole = await _take_lines(file, limit)
    try:
        text = data.decode()
    except UnicodeDecodeError:
        raise ValueError(f"{path} is not a text in UTF-8") from None
    if whole:
        return text
    if not lines:
        raise ValueError(f"line {offset + 1} of {path} is longer than {MOST_TEXT} bytes")
    return f"{text}[more: go on with offset={offset + lines}]\n"


@tool(capabilities={"fs_reach": {"write": "from-personality"}}, effect="write_limited", sandbox="restricted")
async def write_file(ctx: Context, path: str, text: str) -> dict[str, Any]:
    """Write a text file; what was in it is replaced, all at once, and missing directories are made."""
    try:
        await ctx.fs.write(path, text)
    except FileNotFoundError:
        parent = path.rstrip("/").rpartition("/")[0]
        if not parent:
            raise
        await ctx.fs.mkdir(parent)
        await ctx.fs.write(path, text)
    return {"path": path, "bytes": len(text.encode())}


@tool(
    capabilities={"fs_reach": {"read": "from-personality", "write": "from-personality"}},
    effect="write_limited",
    sandbox="restricted",
)
async def edit_file(ctx: Context, path: str, old: str, new: str, count: int = 1) -> dict[str, Any]:
    """Replace a piece of a text file.
    `old` must stand in the file exactly as given, `count` times; otherwise nothing changes. If it stands there more
    often, give more of the text around it.
    """
    if not old or old == new or not 0 < count <= MOST_REPLACED:
        raise ValueError(
            f"expected an `old` text that is not empty and not `new`, and a `count` of 1 to {MOST_REPLACED}"
        )
    text = await ctx.fs.read(path)
    found, at = 0, text.find(old)
    while at >= 0 and found <= count:
        found, before, at = found + 1, at, text.find(old, at + 1)
        if 0 <= at < before + len(old):  # it is unclear which of them was meant
            raise ValueError(f"`old` is there twice in one place in {path}; nothing was changed")
    if found != count:
        times = "not there" if not found else f"there {'more than ' if found > count else ''}{min(found, count)} times"
        raise ValueError(f"`old` is {times} in {path}, and {count} was expected; nothing was changed")
    size = len(text.encode()) + count * (len(new.encode()) - len(old.encode()))
    if size > MOST_EDITED:
        raise ValueError(f"{path} would have {size} bytes, more than {MOST_EDITED}; nothing was changed")
    await ctx.fs.write(path, text.replace(old, new))
    return {"path": path, "replaced": count}


@tool(capabilities={"fs_reach": {"read": "from-personality"}}, effect="read_only", sandbox="restricted")
async def list_dir(ctx: Context, path: str = ".") -> dict[str, Any]:
    """List a directory: the name of each entry, whether it is a file or a directory, and the size of files.
    `more` says that there are more entries than were returned.
    """
    names = await ctx.fs.list(path)
    entries: list[dict[str, Any]] = []
    for number, name in enumerate(names[:MOST_ENTRIES]):
        entry: dict[str, Any] = {"name": shown(name), "kind": "other"}
        try:
            found = await ctx.fs.stat(f"{path}/{name}")
        except (OSError, Refused):  # a broken link, a link that leads outside, or a device
            pass
        else:
            entry["kind"] = found.kind
            if found.kind == "file":
                entry["size"] = found.size
        entries.append(entry)
        if number % _PAUSE == 0:
            await asyncio.sleep(0)
    return {"entries": entries, "more": len(names) > len(entries)}


def shown(name: str) -> str:
    """A file name that is not valid UTF-8, as text."""
    return name.encode("utf-8", "backslashreplace").decode()


async def _skip_lines(file: IO[bytes], count: int) -> None:
    turns = 0
    while count > 0 and (piece := file.readline(_PIECE)):
        count -= piece.endswith(b"\n")
        turns += 1
        if turns % _PAUSE == 0:
            await asyncio.sleep(0)


async def _take_lines(file: IO[bytes], limit: int | None) -> tuple[bytes, int, bool]:
    """Complete lines, their number, and whether they are all that was requested."""
    taken: list[bytes] = []
    size = 0
    while limit is None or len(taken) < limit:
        line = file.readline(MOST_TEXT - size + 1)
        if not line:
            break
        if size + len(line) > MOST_TEXT:
            return b"".join(taken), len(taken), False
        taken.append(line)
        size += len(line)
    return b"".join(taken), len(taken), True
