"""What real clients meet: one server with pages, a git repository, and package indexes, for who has the key.

The first answer to a request with the key repeats the key, and its last byte is kept back until `/~searched` is asked
for. Until then the client waits with all that it has, and another program can look at it.
"""

import asyncio
import base64
import binascii
import io
import json
import os
import subprocess
import tarfile
import zipfile
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import unquote

from msgspec import Struct

_GIT = {"GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_NOSYSTEM": "1", "PATH": "/usr/bin:/bin"}
_AUTHOR = {
    "GIT_AUTHOR_NAME": "x",
    "GIT_AUTHOR_EMAIL": "x@test",
    "GIT_COMMITTER_NAME": "x",
    "GIT_COMMITTER_EMAIL": "x@test",
}


class Asked(Struct, frozen=True):
    """A request as it arrived."""

    method: str
    target: str
    headers: tuple[tuple[str, str], ...]
    body: bytes

    @property
    def text(self) -> str:
        """All of it, where the pair in `Basic` is decoded."""
        lines = [f"{name}: {_decoded(value)}" for name, value in self.headers]
        return "\n".join((f"{self.method} {self.target}", *lines, unquote(self.body.decode("latin-1"))))


class Given(Struct, frozen=True):
    """An answer."""

    status: int
    body: bytes
    headers: tuple[tuple[str, str], ...] = ()


def _decoded(value: str) -> str:
    scheme, _, given = value.partition(" ")
    try:
        pair = base64.b64decode(given, validate=True).decode("ascii") if scheme.lower() == "basic" else ""
    except (binascii.Error, UnicodeDecodeError):
        return value
    return f"{scheme} {pair}" if ":" in pair else value


class Site:
    """The server: `talk` answers one connection."""

    def __init__(self, folder: Path, key: str) -> None:
        self.key, self.seen = key, list[Asked]()
        self.place = ""  # its host and port, once it runs
        self.repository = _repository(folder)
        self._arrived, self._searched = asyncio.Event(), asyncio.Event()

    @property
    def pushed(self) -> int:
        """How many commits the repository has."""
        return int(_git("rev-list", "--count", "HEAD", at=self.repository))

    async def talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer the requests of one connection."""
        while (asked := await _request(reader)) is not None:
            given = await self._given(asked)
            lines = [f"HTTP/1.1 {given.status} said", f"Content-Length: {len(given.body)}"]
            lines += [f"{name}: {value}" for name, value in given.headers]
            whole = "\r\n".join((*lines, "", "")).encode() + (b"" if asked.method == "HEAD" else given.body)
            if given.body and asked.method != "HEAD" and self.key in asked.text and not self._arrived.is_set():
                writer.write(whole[:-1])
                await writer.drain()
                self._arrived.set()
                await self._searched.wait()
                whole = whole[-1:]
            writer.write(whole)
            await writer.drain()
            if ("connection", "close") in asked.headers:
                return

    async def _given(self, asked: Asked) -> Given:
        path = asked.target.partition("?")[0]
        match path.split("/")[1:]:
            case ["~arrived"]:
                await self._arrived.wait()
                return Given(200, b"")
            case ["~ended"]:  # the client, perhaps without having sent its key
                self._arrived.set()
                return Given(200, b"")
            case ["~searched"]:
                self._searched.set()
                return Given(200, b"")
        self.seen.append(asked)
        if path == "/cargo/config.json":
            return _json({"dl": f"https://{self.place}/cargo/dl", "api": f"https://{self.place}/cargo"})
        if self.key not in asked.text:
            return Given(401, b"who are you?", (("WWW-Authenticate", 'Basic realm="met"'),))
        found = await self._known(asked, path)
        return Given(found.status, found.body, (*found.headers, ("X-Echo", f"Bearer {self.key}")))

    async def _known(self, asked: Asked, path: str) -> Given:
        match path.split("/")[1:]:
            case ["git", *_]:
                return await asyncio.to_thread(self._backend, asked, path.removeprefix("/git"))
            case ["simple", "made", _]:
                return Given(200, f'<a href="/files/{_WHEEL}">{_WHEEL}</a>'.encode(), (("Content-Type", "text/html"),))
            case ["files", _]:
                return Given(200, _wheel())
            case ["npm", "made"]:
                dist = {"tarball": f"https://{self.place}/npm/made/-/made-1.0.0.tgz"}
                version = {"name": "made", "version": "1.0.0", "dist": dist}
                return _json({"name": "made", "dist-tags": {"latest": "1.0.0"}, "versions": {"1.0.0": version}})
            case ["npm", "made", "-", _]:
                return Given(200, _tarball())
            case ["npm", _] if asked.method == "GET":
                return Given(404, b"{}", (("Content-Type", "application/json"),))
        return _json({"ok": True, "you": self.key, "again": base64.b64encode(self.key.encode()).decode()})

    def _backend(self, asked: Asked, path: str) -> Given:
        """What `git http-backend` says, which git brings as a program for web servers (CGI)."""
        headers = dict(asked.headers)
        given = {
            "GIT_PROJECT_ROOT": str(self.repository.parent),
            "GIT_HTTP_EXPORT_ALL": "1",
            "PATH_INFO": path,
            "QUERY_STRING": asked.target.partition("?")[2],
            "REQUEST_METHOD": asked.method,
            "CONTENT_TYPE": headers.get("content-type", ""),
            "CONTENT_LENGTH": str(len(asked.body)),
            "HTTP_CONTENT_ENCODING": headers.get("content-encoding", ""),
            "GIT_PROTOCOL": headers.get("git-protocol", ""),
            "REMOTE_USER": "clerk",
            "REMOTE_ADDR": "127.0.0.1",
        }
        done = subprocess.run(
            ["git", "http-backend"], input=asked.body, env={**_GIT, **given}, capture_output=True, check=True
        )
        head, _, body = done.stdout.partition(b"\r\n\r\n")
        lines = [line.split(": ", 1) for line in head.decode().split("\r\n")]
        status = next((int(value.split()[0]) for name, value in lines if name == "Status"), 200)
        return Given(status, body, tuple((name, value) for name, value in lines if name != "Status"))


async def _request(reader: asyncio.StreamReader) -> Asked | None:
    try:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    except asyncio.IncompleteReadError:
        return None
    first, *rest = head.split("\r\n")[:-2]
    headers = [(name.lower(), value.strip()) for name, _, value in (line.partition(":") for line in rest)]
    known, body = dict(headers), b""
    if known.get("transfer-encoding") == "chunked":
        while size := int(await reader.readuntil(b"\r\n"), 16):
            body += await reader.readexactly(size)
            await reader.readexactly(2)
        await reader.readexactly(2)
    else:
        body = await reader.readexactly(int(known.get("content-length", "0")))
    method, target, _ = first.split(" ")
    return Asked(method, target, tuple(headers), body)


def _json(value: Mapping[str, object]) -> Given:
    return Given(200, json.dumps(value).encode(), (("Content-Type", "application/json"),))


# What is served -------------------------------------------------------------------------------------------------------


def _git(*words: str, at: Path) -> str:
    return subprocess.run(
        ["git", *words], cwd=at, env={**_GIT, **_AUTHOR}, capture_output=True, text=True, check=True
    ).stdout


def _repository(folder: Path) -> Path:
    work, bare = folder / "work", folder / "served" / "made.git"
    work.mkdir(parents=True)
    (work / "page").write_text("a page\n")
    _git("init", "-q", "-b", "main", at=work)
    _git("add", ".", at=work)
    _git("commit", "-q", "-m", "first", at=work)
    bare.parent.mkdir()
    _git("clone", "-q", "--bare", os.fspath(work), os.fspath(bare), at=folder)
    return bare


_WHEEL = "made-1.0-py3-none-any.whl"


def _wheel() -> bytes:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as file:
        file.writestr("made.py", "")
        file.writestr("made-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: made\nVersion: 1.0\n")
        file.writestr("made-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        file.writestr("made-1.0.dist-info/RECORD", "")
    return made.getvalue()


def _tarball() -> bytes:
    made, text = io.BytesIO(), json.dumps({"name": "made", "version": "1.0.0"}).encode()
    with tarfile.open(fileobj=made, mode="w:gz") as file:
        entry = tarfile.TarInfo("package/package.json")
        entry.size = len(text)
        file.addfile(entry, io.BytesIO(text))
    return made.getvalue()
