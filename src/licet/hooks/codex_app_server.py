"""Asks Codex about its hooks, and has it trust ours: a hook whose digest it does not trust does not run.

Codex speaks JSON lines on the standard streams of `codex app-server`. Every answer has an end in time.
"""

import json
import os
import select
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from msgspec import Struct

from licet.errors import LicetError
from licet.hooks.limits import APP_SERVER_BYTES, APP_SERVER_SECONDS


class NoAnswer(LicetError):
    """Codex did not answer as expected. The text has the reason."""


class CodexHook(Struct, frozen=True):
    """A hook as Codex lists it."""

    key: str
    command: str
    file: str
    digest: str
    trust: str  # `trusted`, `untrusted`, `modified` or `managed`
    enabled: bool


class AppServer:
    """A running `codex app-server`."""

    def __init__(self, started: "subprocess.Popen[bytes]", seconds: float) -> None:
        self._started, self._end = started, time.monotonic() + seconds
        self._number = 0
        self._rest = b""

    def hooks(self, directory: Path) -> list[CodexHook]:
        """The hooks that count in a directory."""
        found = []
        for place in _list(self.ask("hooks/list", {"cwds": [str(directory)]}).get("data")):
            for hook in _list(place.get("hooks")):
                names = ("key", "command", "sourcePath", "currentHash", "trustStatus")
                texts = [text for name in names if isinstance(text := hook.get(name), str)]
                if len(texts) == len(names):
                    key, command, file, digest, trust = texts
                    found.append(CodexHook(key, command, file, digest, trust, hook.get("enabled") is True))
        return found

    def trust(self, hooks: Sequence[CodexHook]) -> None:
        """Trust hooks as they are now."""
        self._write([(hook.key, {"trusted_hash": hook.digest}, "upsert") for hook in hooks])

    def forget(self, keys: Sequence[str]) -> None:
        """Take the trust of hooks out of the configuration."""
        self._write([(key, None, "replace") for key in keys])

    def _write(self, edits: Sequence[tuple[str, Any, str]]) -> None:
        written = [
            {"keyPath": f"hooks.state.{json.dumps(key)}", "value": value, "mergeStrategy": how}
            for key, value, how in edits
        ]
        if written:
            self.ask("config/batchWrite", {"edits": written, "reloadUserConfig": True})

    def ask(self, method: str, parameters: Mapping[str, Any]) -> dict[str, Any]:
        """The result of one request."""
        self._number += 1
        self._send({"id": self._number, "method": method, "params": dict(parameters)})
        while True:
            said = self._line()
            if said.get("id") != self._number or "method" in said:
                continue
            if not isinstance(result := said.get("result"), dict):
                error = said.get("error")
                why = error.get("message") if isinstance(error, dict) else "no result"
                raise NoAnswer(f"`codex app-server` refuses `{method}`: {why}")
            return result

    def begin(self) -> None:
        """Introduce this program, which comes before everything else."""
        self.ask("initialize", {"clientInfo": {"name": "licet", "title": "licet", "version": "1"}})
        self._send({"method": "initialized"})

    def _send(self, message: Mapping[str, Any]) -> None:
        stream = self._started.stdin
        assert stream is not None  # noqa: S101 - it was started with a pipe
        try:
            stream.write(json.dumps(message).encode() + b"\n")
            stream.flush()
        except OSError:
            raise NoAnswer("`codex app-server` has ended") from None

    def _line(self) -> dict[str, Any]:
        stream = self._started.stdout
        assert stream is not None  # noqa: S101 - it was started with a pipe
        while b"\n" not in self._rest:
            left = self._end - time.monotonic()
            if left <= 0 or not select.select([stream], [], [], left)[0]:
                raise NoAnswer("`codex app-server` does not answer in time")
            data = os.read(stream.fileno(), 1 << 16)
            if not data or len(self._rest) > APP_SERVER_BYTES:
                raise NoAnswer("`codex app-server` has ended")
            self._rest += data
        line, _, self._rest = self._rest.partition(b"\n")
        try:
            said = json.loads(line)
        except ValueError:
            return {}
        return said if isinstance(said, dict) else {}


def _list(value: object) -> list[dict[str, Any]]:
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []


@contextmanager
def app_server(program: str, directory: Path, environ: Mapping[str, str]) -> Iterator[AppServer]:
    """A `codex app-server`, as long as it is needed. Raises `NoAnswer`."""
    try:
        started = subprocess.Popen(  # noqa: S603 - the person's own Codex
            [program, "app-server"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd=directory,
            env=dict(environ),
            start_new_session=True,
        )
    except OSError as wrong:
        raise NoAnswer(f"`codex app-server` cannot be started: {wrong.strerror}") from None
    try:
        server = AppServer(started, APP_SERVER_SECONDS)
        server.begin()
        yield server
    finally:
        with suppress(OSError):
            if started.stdin is not None:
                started.stdin.close()
        try:
            started.wait(timeout=2)
        except subprocess.TimeoutExpired:
            with suppress(ProcessLookupError):
                os.killpg(started.pid, 9)
            started.wait()
        if started.stdout is not None:
            started.stdout.close()
