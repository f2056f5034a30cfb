"""The modules that model-written Python can import, and replacements for those that do not work in WASI.

A replacement raises an error that says what to use instead.

Two have a working replacement: `asyncio.run` with an event loop for timers alone, and `urllib.request.urlopen` over
`ctx.fetch`.
"""

import asyncio
import asyncio.base_events
import builtins
import concurrent.futures
import email.message
import io
import os
import socket
import subprocess
import sys
import threading
import time
import urllib.request
import urllib.response
from collections.abc import Callable
from http import HTTPStatus
from typing import Any, NoReturn

from .host_context import Context

# The component has no files: these are loaded when it is built.
MODULES = (
    "abc", "argparse", "array", "ast", "asyncio", "base64", "binascii", "bisect", "calendar", "cmath", "codecs",
    "collections", "colorsys", "concurrent.futures", "configparser", "contextlib", "contextvars", "copy", "csv",
    "dataclasses", "datetime", "decimal", "difflib", "dis", "doctest", "email", "enum", "errno", "filecmp",
    "fileinput", "fnmatch", "fractions", "functools", "gc", "getopt", "gettext", "glob", "graphlib", "gzip",
    "hashlib", "heapq", "hmac", "html", "http", "importlib", "inspect", "io", "ipaddress", "itertools", "json",
    "keyword", "linecache", "locale", "logging", "math", "mimetypes", "numbers", "operator", "optparse", "os",
    "pathlib", "pickle", "platform", "plistlib", "pprint", "pydoc", "queue", "quopri", "random", "re", "reprlib",
    "sched", "secrets", "shlex", "shutil", "sqlite3", "stat", "statistics", "string", "stringprep", "struct",
    "symtable", "sys", "tarfile", "textwrap", "time", "timeit", "token", "tokenize", "tomllib", "traceback",
    "types", "typing", "unicodedata", "unittest", "urllib", "uuid", "warnings", "wave", "weakref", "xml", "zipfile",
    "zlib", "zoneinfo",
)  # fmt: skip

_FETCH = "use fetch(url) or ctx.fetch(url, method, headers=…, json=…)"
_SPAWN = "use ctx.process.spawn(name, [arguments])"
_THREADS = "there are no threads here: call the function itself"
_MOST_LEVELS = 10_000
_INSTEAD = {
    "ctypes": "there is no native code here",
    "cffi": "there is no native code here",
    "multiprocessing": "there are no processes here: call the function itself",
    "ssl": _FETCH,
    "requests": _FETCH,
    "httpx": _FETCH,
    "aiohttp": _FETCH,
    "urllib3": _FETCH,
    "numpy": "use math, statistics and lists",
    "pandas": "use csv, json, sqlite3 and statistics",
    "yaml": "use json, tomllib or configparser",
    "bs4": "use html.parser",
    "lxml": "use xml.etree.ElementTree or html.parser",
    "dateutil": "use datetime and zoneinfo",
    "pytz": "use zoneinfo",
    "bz2": "use zlib or gzip",
    "lzma": "use zlib or gzip",
}


class AbsentFinder:
    """The last finder: it says that a module is not here, and what is."""

    def find_spec(self, name: str, path: object = None, target: object = None) -> NoReturn:
        top = name.partition(".")[0]
        hint = f"; {_INSTEAD[top]}" if top in _INSTEAD else ""
        if top.startswith("_"):  # the library tries these and goes on without them
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        raise ModuleNotFoundError(
            f"No module named {name!r}{hint}. What can be imported, with submodules: {', '.join(MODULES)}", name=name
        )


class TimeLoop(asyncio.base_events.BaseEventLoop):
    """An event loop with tasks and timers, and no sockets. Other code runs at once in `run_in_executor`."""

    def __init__(self) -> None:
        super().__init__()
        self._selector = self

    def select(self, timeout: float | None) -> list[Any]:
        if timeout is None and not self._ready:  # type: ignore[attr-defined]
            raise RuntimeError("every task waits for something that cannot happen here")
        if timeout and timeout > 0:
            time.sleep(timeout)
        return []

    def _process_events(self, events: list[Any]) -> None:
        pass

    def _write_to_self(self) -> None:
        pass

    def run_in_executor(self, executor: object, func: Callable[..., object], *args: object) -> Any:
        future = self.create_future()
        try:
            future.set_result(func(*args))
        except Exception as problem:
            future.set_exception(problem)
        return future


class InlineExecutor(concurrent.futures.Executor):
    """Runs each function when it is submitted, because there are no threads."""

    def __init__(self, *args: object, **options: object) -> None:
        pass

    def submit(self, fn: Callable[..., Any], /, *args: object, **kwargs: object) -> concurrent.futures.Future[Any]:
        future: concurrent.futures.Future[Any] = concurrent.futures.Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except Exception as problem:
            future.set_exception(problem)
        return future


class FetchHandler(urllib.request.BaseHandler):
    """Opens `http:` and `https:` with `ctx.fetch`, which follows redirects by itself."""

    def __init__(self, ctx: Context) -> None:
        self._ctx = ctx

    def http_open(self, request: urllib.request.Request) -> Any:
        sent: Any = request.data
        if sent is not None and not isinstance(sent, bytes):
            sent = sent.read() if hasattr(sent, "read") else b"".join(sent)
        answer = self._ctx.fetch(
            request.full_url, request.get_method(), headers=dict(request.header_items()), body=sent
        )
        message = email.message.Message()
        for name, value in answer.headers.pairs:
            message[name] = value
        found = urllib.response.addinfourl(io.BytesIO(answer.content), message, answer.url, answer.status)
        known = answer.status in {*HTTPStatus}
        found.msg = HTTPStatus(answer.status).phrase if known else ""  # type: ignore[attr-defined]
        return found

    https_open = http_open


def _raising(kind: type[Exception], text: str) -> Callable[..., NoReturn]:
    def raising(*args: object, **options: object) -> NoReturn:
        raise kind(text)

    return raising


def _limited(set_limit: Callable[[int], None]) -> Callable[[int], None]:
    """Levels beyond this would need more stack than the instance has."""
    return lambda limit, /: set_limit(min(limit, _MOST_LEVELS))


def _end(status: object = 0) -> NoReturn:
    raise SystemExit(status)


def install(ctx: Context) -> None:
    """Replace what cannot work here."""
    sys.meta_path[:] = [*(finder for finder in sys.meta_path if "Path" not in repr(finder)), AbsentFinder()]
    sys.path[:] = []
    sys.path_hooks[:] = []
    no_program = _raising(OSError, f"there are no processes here: {_SPAWN}")
    for name in ("system", "popen", "execv", "execve", "fork", "posix_spawn", "kill"):
        setattr(os, name, no_program)
    subprocess.Popen.__init__ = no_program  # type: ignore[method-assign]
    no_network = _raising(OSError, f"there are no sockets here: {_FETCH}")
    for name in ("create_connection", "create_server", "getaddrinfo", "gethostbyname", "socketpair"):
        setattr(socket, name, no_network)
    socket.socket.__init__ = no_network  # type: ignore[method-assign]
    threading.Thread.start = _raising(RuntimeError, _THREADS)  # type: ignore[method-assign]
    concurrent.futures.ThreadPoolExecutor = InlineExecutor  # type: ignore[misc, assignment]
    builtins.input = _raising(EOFError, "there is no input here: the data of the call is in `data`")
    builtins.exit = builtins.quit = sys.exit  # type: ignore[assignment]
    sys.setrecursionlimit = _limited(sys.setrecursionlimit)
    os._exit = _end
    os.abort = _end
    asyncio.new_event_loop = asyncio.events.new_event_loop = TimeLoop
    opener = urllib.request.OpenerDirector()
    for handler in (
        FetchHandler(ctx), urllib.request.HTTPErrorProcessor(), urllib.request.HTTPDefaultErrorHandler(),
        urllib.request.DataHandler(), urllib.request.UnknownHandler(),
    ):  # fmt: skip
        opener.add_handler(handler)
    urllib.request.install_opener(opener)
