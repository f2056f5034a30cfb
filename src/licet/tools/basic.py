"""Tools for files: read, write, edit, list. The manifest decides which files; paths are relative to the workdir.

Tools for HTTP: get and post. The manifest decides which hosts; redirects are checked like the first request.

A tool that runs programs. The manifest decides which ones, and the walls decide what they can do.

A tool that runs Python which a model wrote. It computes, uses files and fetches, as far as the manifest allows.

The code runs in an interpreter of its own, CPython compiled to WebAssembly, which has no files, network or processes
besides the handles. The manifest states the class: `python: {side_effect_class: read_only}` lets it change nothing.
"""

import asyncio
import re
from typing import IO, Any

from licet import Context, Refused, Tool, tool
from licet.tools.limits import MOST_EDITED, MOST_ENTRIES, MOST_REPLACED, MOST_TEXT

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


_CHARSET = re.compile(r";\s*charset\s*=\s*\"?([A-Za-z0-9._-]{1,40})", re.IGNORECASE)
# The charsets that pages use. Python has more codecs, and some of them are very slow on hostile bytes.
_CHARSETS = frozenset(
    {
        *("utf-8", "us-ascii", "iso-8859-1", "iso-8859-2", "iso-8859-15", "windows-1250", "windows-1251"),
        *("windows-1252", "utf-16", "shift_jis", "euc-jp", "euc-kr", "gb2312", "gbk", "gb18030", "big5", "koi8-r"),
    }
)


@tool(capabilities={"network": {"allowed_hosts": ["*"]}}, effect="read_only", sandbox="restricted")
async def http_get(ctx: Context, url: str, headers: dict[str, str] | None = None) -> dict[str, Any]:
    """Fetch a URL: the status, headers and text of the answer.
    Redirects are followed. `truncated` says that the text is only the beginning.
    """
    return await _request(ctx, url, "GET", headers or {})


@tool(capabilities={"network": {"allowed_hosts": ["*"]}}, effect="write_limited", sandbox="restricted")
async def http_post(
    ctx: Context,
    url: str,
    json: dict[str, Any] | list[Any] | None = None,
    body: str | None = None,
    headers: dict[str, str] | None = None,
) -> dict[str, Any]:
    """Post to a URL, either data as `json` or a text as `body`: the status, headers and text of the answer.
    `truncated` says that the text is only the beginning.
    """
    if json is not None and body is not None:
        raise ValueError("expected `json` or `body`, not both")
    return await _request(ctx, url, "POST", headers or {}, json=json, body=body)


async def _request(ctx: Context, url: str, method: str, headers: dict[str, str], **content: Any) -> dict[str, Any]:
    body = bytearray()
    async with ctx.fetch.stream(url, method, headers=headers, **content) as answer:
        async for piece in answer:
            body += piece
            if len(body) > MOST_TEXT:
                break
        named = _CHARSET.search(answer.headers.get("content-type", ""))
        return {
            "status": answer.status,
            "url": answer.url,
            "headers": dict(answer.headers),
            "text": _text(bytes(body[:MOST_TEXT]), named[1].lower() if named else ""),
            "truncated": len(body) > MOST_TEXT,
        }


def _text(body: bytes, charset: str) -> str:
    return body.decode(charset if charset in _CHARSETS else "utf-8", "replace")


@tool(
    # A program gets the grant of the call, so files and environment are declared too; the manifest limits them.
    capabilities={
        "process": {"allowed_binaries": ["*"]},
        "fs_reach": {"read": "from-personality", "write": "from-personality"},
        "env": ["*"],
    },
    effect="write_limited",
    sandbox="restricted",
)
async def run_command(
    ctx: Context,
    command: list[str],
    stdin: str = "",
    timeout_seconds: float = 30.0,
    directory: str | None = None,
) -> dict[str, Any]:
    """Run a program and wait for it to end: its exit code, and what it wrote.
    `command` is the program and its arguments, one by one; no shell reads them, so `|`, `>`, `*` and `$X` mean nothing.

    It starts in `directory`, or in the working directory if that may be read. It has no network.
    """
    if not command:
        raise ValueError("expected `command` to be a program and its arguments")
    if not 0 < timeout_seconds <= 86400:
        raise ValueError("expected `timeout_seconds` to be more than 0, and at most a day")
    program, *arguments = command
    ended = await ctx.process.spawn(program, arguments, stdin=stdin, cwd=directory, timeout=timeout_seconds)
    return {
        "exit_code": ended.exit_code,
        "stdout": ended.stdout,
        "stderr": ended.stderr,
        "truncated": ended.truncated,
        "limit": ended.reason or None,
    }


python = Tool.wasm(
    "licet:python",
    name="python",
    # Secrets and programs are left out: declare a tool of your own with `Tool.wasm("licet:python", …)` to have them.
    capabilities={
        "network": {"allowed_hosts": ["*"]},
        "fs_reach": {"read": "from-personality", "write": "from-personality"},
        "env": ["*"],
    },
    optional=["storage:*:tool-private"],
    sandbox="restricted",
)
