"""The `ctx` of model-written Python: blocking handles, each of which asks the host. Nothing is decided here."""

import base64
import builtins
import errno
import json as json_text
import os
import re
import urllib.parse
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

Path = str | bytes | os.PathLike[str] | os.PathLike[bytes]
Call = Callable[[str, str], tuple[bool, str]]  # operation and arguments; whether it went well, and the answer

_ERRNO = {
    "FileNotFoundError": errno.ENOENT,
    "FileExistsError": errno.EEXIST,
    "IsADirectoryError": errno.EISDIR,
    "NotADirectoryError": errno.ENOTDIR,
    "PermissionError": errno.EACCES,
    "Refused": errno.EACCES,
}
_NUMBERED = re.compile(r"\[Errno -?\d+\] ")
_CHARSET = re.compile(r";\s*charset\s*=\s*\"?([A-Za-z0-9._:-]{1,40})", re.IGNORECASE)


class Host:
    """Asks the host one question at a time."""

    def __init__(self, call: Call) -> None:
        self._call = call

    def ask(self, op: str, whole: Mapping[str, Any] | None = None, **args: object) -> dict[str, Any]:
        """The answer to one question, or the error that the host names. Of `args`, None is not sent."""
        sent = {name: value for name, value in args.items() if value is not None} | dict(whole or {})
        well, answer = self._call(op, json_text.dumps(sent, allow_nan=False))
        content = json_text.loads(answer)
        if well:
            return dict(content)
        raise _error(content, args.get("path", args.get("source")))

    def value(self, op: str, **args: Any) -> Any:
        return self.ask(op, **args).get("value")


def _error(content: Mapping[str, Any], path: object) -> Exception:
    """The error of an answer. A refusal is a `PermissionError` with the text of the host and its code.

    Another error about a file names it, as in CPython.
    """
    kind, text = str(content.get("kind") or "RuntimeError"), str(content.get("text") or "")
    found = PermissionError if kind == "Refused" else getattr(builtins, kind, None)
    if not (isinstance(found, type) and issubclass(found, Exception)):
        return RuntimeError(f"{kind}: {text}")
    number = _ERRNO.get(kind, content.get("errno"))  # the numbers differ between systems
    text = _NUMBERED.sub("", text, count=1)
    named = issubclass(found, OSError) and kind != "Refused" and number is not None and isinstance(path, str)
    try:
        error: Exception = found(number, text, path) if named else found(text)
    except TypeError:  # such as UnicodeDecodeError, which takes five arguments
        return RuntimeError(f"{kind}: {text}")
    if isinstance(error, OSError) and not named:
        error.errno = number
    error.code = str(content.get("code") or "")  # type: ignore[attr-defined]
    return error


def _sent(data: object) -> dict[str, str]:
    """Text or bytes as arguments of a question."""
    if isinstance(data, str):
        try:
            data.encode()
        except UnicodeEncodeError:
            raise ValueError("found text with a lone surrogate, which UTF-8 cannot hold") from None
        return {"text": str.__str__(data)}
    if not isinstance(data, bytes | bytearray | memoryview):
        raise TypeError(f"expected text or bytes, found {type(data).__name__}")
    plain = bytes(data)
    try:
        return {"text": plain.decode()}
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(plain).decode()}


def _received(answer: Mapping[str, Any]) -> bytes:
    if "base64" in answer:
        return base64.b64decode(answer["base64"])
    return str(answer.get("text") or "").encode()


class Status:
    """The status of a file or directory."""

    def __init__(self, found: Mapping[str, Any]) -> None:
        self.size = int(found.get("size") or 0)
        self.modified = float(found.get("modified") or 0)
        self.is_dir = bool(found.get("is_dir", found.get("kind") == "directory"))
        self.is_file = bool(found.get("is_file", not self.is_dir))
        self.mode = int(found.get("mode") or (0o755 if self.is_dir else 0o644)) & 0o7777
        self.kind = "directory" if self.is_dir else "file"

    def __repr__(self) -> str:
        return f"Status(kind={self.kind!r}, size={self.size}, modified={self.modified})"


class FileSystem:
    """Files, as far as the call may reach them."""

    def __init__(self, host: Host) -> None:
        self._host = host

    def read(self, path: Path, limit: int | None = None) -> str:
        return self.read_bytes(path, limit).decode()

    def read_bytes(self, path: Path, limit: int | None = None) -> bytes:
        return _received(self._host.ask("fs.read", path=os.fsdecode(path), limit=limit))

    def write(self, path: Path, data: str | bytes) -> None:
        self._host.ask("fs.write", _sent(data), path=os.fsdecode(path))

    def exists(self, path: Path) -> bool:
        return bool(self._host.value("fs.exists", path=os.fsdecode(path)))

    def stat(self, path: Path) -> Status:
        return Status(self._host.value("fs.stat", path=os.fsdecode(path)))

    def list(self, path: Path = ".") -> list[str]:
        return [*self._host.value("fs.list", path=os.fsdecode(path))]

    def mkdir(self, path: Path) -> None:
        self._host.ask("fs.mkdir", path=os.fsdecode(path))

    def delete(self, path: Path) -> None:
        self._host.ask("fs.delete", path=os.fsdecode(path))

    def rename(self, source: Path, target: Path) -> None:
        self._host.ask("fs.rename", source=os.fsdecode(source), target=os.fsdecode(target))

    def open(self, path: Path, mode: str = "r", encoding: str | None = None) -> Any:
        return builtins.open(path, mode, encoding=encoding)


class Headers(Mapping[str, str]):
    """Headers in their order. Names are case-insensitive, and the values of a repeated name are joined."""

    def __init__(self, pairs: Iterable[Iterable[str]]) -> None:
        self.pairs = [(str(name), str(value)) for name, value in pairs]
        self._values: dict[str, str] = {}
        for name, value in self.pairs:
            low = name.lower()
            self._values[low] = f"{self._values[low]}, {value}" if low in self._values else value

    def __getitem__(self, name: str) -> str:
        return self._values[name.lower()]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __repr__(self) -> str:
        return repr(self._values)


class Response:
    """A complete answer. `url` is the one after redirects."""

    def __init__(self, status: int, url: str, headers: Headers, content: bytes) -> None:
        self.status, self.url, self.headers, self.content = status, url, headers, content

    @property
    def status_code(self) -> int:
        return self.status

    @property
    def ok(self) -> bool:
        return 200 <= self.status < 300

    @property
    def text(self) -> str:
        named = _CHARSET.search(self.headers.get("content-type", ""))
        try:
            return self.content.decode(named[1] if named else "utf-8", "replace")
        except LookupError:
            return self.content.decode("utf-8", "replace")

    def json(self) -> Any:
        return json_text.loads(self.content)

    def raise_for_status(self) -> "Response":
        if self.status >= 400:
            raise OSError(f"{self.url} answered {self.status}")
        return self

    def __repr__(self) -> str:
        return f"<Response {self.status} {self.url}>"


class Fetch:
    """HTTP requests, as far as the call may reach hosts. Redirects are followed by the host."""

    def __init__(self, host: Host) -> None:
        self._host = host

    def __call__(
        self,
        url: str,
        method: str = "GET",
        *,
        headers: Mapping[str, str] | Iterable[tuple[str, str]] | None = None,
        json: object = None,
        body: object = None,
        data: object = None,
        params: Any = None,
        timeout: float | None = None,
        max_bytes: int | None = None,
        redirects: bool = True,
    ) -> Response:
        """Send a request. `data` is another name for `body`; a mapping there is sent as a form."""
        sent: dict[str, Any] = {}
        if params:
            url += ("&" if "?" in url else "?") + urllib.parse.urlencode(params, doseq=True)
        pairs = headers.items() if isinstance(headers, Mapping) else headers or ()
        lines = [[str(name), str(value)] for name, value in pairs]
        body = data if body is None else body
        if json is not None and body is not None:
            raise ValueError("expected `json` or `body`, not both")
        if isinstance(body, Mapping):
            body = urllib.parse.urlencode(body, doseq=True)
            lines.append(["Content-Type", "application/x-www-form-urlencoded"])
        if body is not None:
            sent = dict(_sent(body))
        elif json is not None:
            sent = {"json": json}
        bounds = {"timeout": timeout, "max_bytes": max_bytes, "redirects": redirects}
        answer = self._host.ask("fetch", sent, url=str(url), method=method, headers=lines or None, **bounds)
        head = Headers(answer.get("headers") or ())
        return Response(int(answer["status"]), str(answer.get("url") or url), head, _received(answer))

    def get(self, url: str, **options: Any) -> Response:
        return self(url, "GET", **options)

    def post(self, url: str, **options: Any) -> Response:
        return self(url, "POST", **options)


class SecretStore:
    """Secrets that the call may use."""

    def __init__(self, host: Host) -> None:
        self._host = host

    def get(self, reference: str) -> str:
        return str(self._host.value("secrets.get", reference=f"{reference}"))

    def ref(self, reference: str) -> str:
        return str(self._host.value("secrets.ref", reference=f"{reference}"))


class Store:
    """Values that are kept between calls."""

    def __init__(self, host: Host, kind: str | None = None) -> None:
        self._host, self._kind = host, kind

    def of(self, kind: str) -> "Store":
        return Store(self._host, f"{kind}")

    def get(self, key: str, default: Any = None) -> Any:
        value = self._host.value("kv.get", key=key, kind=self._kind)
        return default if value is None else value

    def set(self, key: str, value: object, ttl_seconds: int | None = None) -> None:
        self._host.ask("kv.set", {"value": value}, key=key, ttl_seconds=ttl_seconds, kind=self._kind)

    def delete(self, key: str) -> bool:
        return bool(self._host.value("kv.delete", key=key, kind=self._kind))

    def list(self, prefix: str = "") -> list[str]:
        return [*self._host.value("kv.list", prefix=prefix, kind=self._kind)]


class Environment:
    """Environment variables that the call may read."""

    def __init__(self, host: Host) -> None:
        self._host = host

    def get(self, name: str, default: str | None = None) -> str | None:
        value = self._host.value("env.get", name=f"{name}")
        return default if value is None else str(value)


class Ended:
    """How a program ended."""

    def __init__(self, answer: Mapping[str, Any]) -> None:
        self.exit_code = int(answer["exit_code"])
        self.stdout, self.stderr = str(answer.get("stdout") or ""), str(answer.get("stderr") or "")
        self.truncated, self.timed_out = bool(answer.get("truncated")), bool(answer.get("timed_out"))
        self.reason = str(answer.get("reason") or "")

    def __repr__(self) -> str:
        return f"Ended(exit_code={self.exit_code}, stdout={self.stdout!r}, stderr={self.stderr!r})"


class Programs:
    """Programs that the call may start."""

    def __init__(self, host: Host) -> None:
        self._host = host

    def spawn(
        self,
        name: str,
        args: Iterable[str] = (),
        stdin: str | bytes = "",
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
        timeout: float | None = None,
    ) -> Ended:
        """Run a program and wait for its end. No shell reads the arguments."""
        if isinstance(args, str):
            raise TypeError("expected `args` to be a list of texts, found one text")
        text = stdin.decode() if isinstance(stdin, bytes) else stdin
        sent: dict[str, Any] = {"name": f"{name}", "args": [os.fsdecode(argument) for argument in args], "stdin": text}
        place = None if cwd is None else os.fsdecode(cwd)
        return Ended(self._host.ask("process.spawn", sent, env=env and dict(env), cwd=place, timeout=timeout))


class Context:
    """`ctx`: everything that touches the world."""

    def __init__(self, call: Call) -> None:
        host = Host(call)
        self._host = host
        self.fs = FileSystem(host)
        self.fetch = Fetch(host)
        self.secrets = SecretStore(host)
        self.kv = Store(host)
        self.env = Environment(host)
        self.process = Programs(host)

    def charge(self, amount: object) -> None:
        self._host.ask("charge", amount=str(amount))
