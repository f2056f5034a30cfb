"""A client of either era, for a gateway or for a server: it calls, answers questions, and keeps what it is told."""

import asyncio
import json
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

from .scripted_server import LEGACY, META, MODERN

SECONDS = 60.0  # for what is expected to happen; no test waits so long
INFO = {"name": "tester", "version": "7"}

Answering = Callable[[dict[str, Any]], Any]  # of the parameters of a question; it may be a coroutine


class Failed(Exception):
    """A request was answered with an error."""

    def __init__(self, error: dict[str, Any]) -> None:
        self.error = error
        super().__init__(json.dumps(error))


class Client:
    """Sends messages as data, and takes those that come. `answers` has a function for each method it can answer."""

    def __init__(
        self, send: Callable[[dict[str, Any]], Awaitable[None]], era: str = "2025",
        answers: Mapping[str, Answering] | None = None, capabilities: Mapping[str, Any] | None = None,
    ) -> None:  # fmt: skip
        self.era = era
        self.opened: dict[str, Any] = {}
        self.told: list[dict[str, Any]] = []  # notifications
        self.asked: list[tuple[str, dict[str, Any]]] = []  # questions
        self.errors: list[str] = []  # lines on the standard error of the process, if it is one
        self.twice: list[Any] = []  # answers that came a second time, or to nothing
        self._send = send
        self._answers = dict(answers or {})
        self._capabilities = dict(capabilities if capabilities is not None else _announced(self._answers))
        self._waiting: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._last = 0
        self._tasks: set[asyncio.Task[None]] = set()
        self._news = asyncio.Event()

    async def open(self) -> None:
        if self.era == "2026":
            self.opened = await self.request("server/discover")
            return
        params = {"protocolVersion": LEGACY[0], "capabilities": self._capabilities, "clientInfo": INFO}
        self.opened = await self.request("initialize", params)
        await self.notify("notifications/initialized", {})

    async def request(self, method: str, params: Mapping[str, Any] | None = None, **meta: Any) -> dict[str, Any]:
        """The result of a request; questions are answered meanwhile. Raises `Failed`."""
        result = await self.once(method, params, **meta)
        while result.get("resultType") == "input_required":
            responses = {key: await self._answer(one) for key, one in result.get("inputRequests", {}).items()}
            again = {"inputResponses": responses, "requestState": result.get("requestState")}
            result = await self.once(method, {**(params or {}), **again}, **meta)
        return result

    async def once(self, method: str, params: Mapping[str, Any] | None = None, **meta: Any) -> dict[str, Any]:
        """The first result of a request, which may need input."""
        return await self.wait(await self.begin(method, params, **meta))

    async def begin(self, method: str, params: Mapping[str, Any] | None = None, **meta: Any) -> int:
        """Send a request, and return its id."""
        self._last += 1
        number = self._last
        self._waiting[number] = asyncio.get_running_loop().create_future()
        about = {**(params or {})}
        if more := {**self._envelope(), **meta}:
            about["_meta"] = more
        await self._send({"jsonrpc": "2.0", "id": number, "method": method, "params": about})
        return number

    async def wait(self, number: int) -> dict[str, Any]:
        """The result of a request that was sent. Raises `Failed`."""
        async with asyncio.timeout(SECONDS):
            message = await self._waiting[number]
        if "error" in message:
            raise Failed(message["error"])
        result: dict[str, Any] = message["result"]
        return result

    async def call(self, name: str, arguments: Mapping[str, Any] | None = None, **meta: Any) -> dict[str, Any]:
        """The result of a tool call."""
        return await self.request("tools/call", {"name": name, "arguments": dict(arguments or {})}, **meta)

    async def say(self, name: str, arguments: Mapping[str, Any] | None = None, **meta: Any) -> str:
        """The text of a tool call."""
        return text_of(await self.call(name, arguments, **meta))

    async def tools(self) -> dict[str, dict[str, Any]]:
        """The tools that are shown, by name."""
        return {one["name"]: one for one in (await self.request("tools/list"))["tools"]}

    async def notify(self, method: str, params: dict[str, Any]) -> None:
        await self._send({"jsonrpc": "2.0", "method": method, "params": params})

    async def until_told(self, method: str) -> dict[str, Any]:
        """Wait for a notification."""
        async with asyncio.timeout(SECONDS):
            while True:
                for one in self.told:
                    if one["method"] == method:
                        return one
                self._news.clear()
                await self._news.wait()

    # What comes -------------------------------------------------------------------------------------------------------

    def take(self, message: dict[str, Any]) -> None:
        """Take a message."""
        if "method" not in message:
            waiting = self._waiting.get(message["id"])
            if waiting is None or waiting.done():
                self.twice.append(message)
            else:
                waiting.set_result(message)
        elif "id" in message:
            task = asyncio.get_running_loop().create_task(self._answer_on_the_wire(message))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        else:
            self.told.append(message)
        self._news.set()

    async def _answer_on_the_wire(self, message: dict[str, Any]) -> None:
        answer = await self._answer(message)
        body = {"error": {"code": -32601, "message": "no"}} if answer is None else {"result": answer}
        await self._send({"jsonrpc": "2.0", "id": message["id"], **body})

    async def _answer(self, question: dict[str, Any]) -> Any:
        method, params = question["method"], question.get("params") or {}
        self.asked.append((method, params))
        answering = self._answers.get(method)
        found = answering(params) if answering is not None else None
        return await found if asyncio.iscoroutine(found) else found

    def _envelope(self) -> dict[str, Any]:
        if self.era != "2026":
            return {}
        return {
            f"{META}protocolVersion": MODERN,
            f"{META}clientInfo": INFO,
            f"{META}clientCapabilities": self._capabilities,
        }


def _announced(answers: Mapping[str, Any]) -> dict[str, Any]:
    names = {"sampling/createMessage": "sampling", "elicitation/create": "elicitation", "roots/list": "roots"}
    return {names[method]: {} for method in answers if method in names}


@asynccontextmanager
async def process_client(
    words: Sequence[str], era: str = "2025", environment: Mapping[str, str] | None = None, is_open: bool = True,
    **about: Any,
) -> AsyncIterator[tuple[Client, "asyncio.subprocess.Process"]]:  # fmt: skip
    """A client of a process that speaks over its standard streams: a gateway, or a server without one."""
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        *words, stdin=pipe, stdout=pipe, stderr=pipe, env={**os.environ, **(environment or {})}, limit=1 << 26
    )
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stderr is not None
    stdin, stdout, stderr = process.stdin, process.stdout, process.stderr

    async def send(message: dict[str, Any]) -> None:
        stdin.write(json.dumps(message).encode() + b"\n")
        await stdin.drain()

    client = Client(send, era, **about)

    async def read() -> None:
        while line := await stdout.readline():
            client.take(json.loads(line))

    async def read_errors() -> None:
        while line := await stderr.readline():
            client.errors.append(line.decode())

    readers = [asyncio.create_task(read()), asyncio.create_task(read_errors())]
    try:
        if is_open:
            await client.open()
        yield client, process
    finally:
        stdin.close()
        try:
            async with asyncio.timeout(SECONDS):
                await process.wait()
        except TimeoutError:
            process.kill()
            raise
        finally:
            await asyncio.gather(*readers, return_exceptions=True)


def text_of(result: Mapping[str, Any]) -> str:
    """The texts of a tool result."""
    return "\n".join(str(block.get("text")) for block in result["content"])
