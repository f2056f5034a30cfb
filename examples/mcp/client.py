"""A small MCP client: it starts `licet gateway`, as an agent's client would, and calls tools through it."""

import json
import subprocess
import sysconfig
from pathlib import Path
from types import TracebackType
from typing import Any, Self


class Client:
    """One connection to a gateway, over the standard input and output of its process."""

    def __init__(self, *words: str) -> None:
        program = Path(sysconfig.get_path("scripts"), "licet")
        pipe = subprocess.PIPE
        self._process = subprocess.Popen([program, "gateway", *words], stdin=pipe, stdout=pipe, text=True)  # noqa: S603
        self._id = 0

    def __enter__(self) -> Self:
        about = {"name": "example", "version": "1.0"}
        self.ask("initialize", protocolVersion="2025-11-25", capabilities={}, clientInfo=about)
        self._send({"method": "notifications/initialized"})
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        assert self._process.stdin is not None  # noqa: S101
        self._process.stdin.close()  # the gateway ends with its client, and its servers with it
        self._process.wait()

    def ask(self, method: str, **params: Any) -> dict[str, Any]:
        """The result of a request."""
        self._id += 1
        self._send({"id": self._id, "method": method, "params": params})
        assert self._process.stdout is not None  # noqa: S101
        for line in self._process.stdout:
            answer = json.loads(line)
            if answer.get("id") == self._id:
                found: dict[str, Any] = answer["result"]
                return found
        raise ConnectionError("the gateway has ended")

    def call(self, tool: str, **arguments: Any) -> tuple[bool, str]:
        """Whether a call of a tool went well, and its text."""
        result = self.ask("tools/call", name=tool, arguments=arguments)
        return not result.get("isError"), "\n".join(part["text"] for part in result["content"])

    def _send(self, message: dict[str, Any]) -> None:
        assert self._process.stdin is not None  # noqa: S101
        self._process.stdin.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
        self._process.stdin.flush()
