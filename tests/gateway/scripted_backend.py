"""A backend whose tools do what their names say, and a scene that drives a connection with it."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterator, Sequence
from functools import partial
from typing import Any

from licet.gateway.catalog import Offered, ShownLists, ShownTool
from licet.gateway.client import CannotAsk, Client, ClientCall, Refusal, Unforwarded
from licet.gateway.connection import Connection
from licet.gateway.governed_servers import GovernedServers
from licet.mcp.jsonrpc import Id, Message, Notification, ProtocolError, Request, write_message
from licet.mcp.protocol import Claims
from licet.mcp.shown_names import Naming

FORM = {"message": "sure?", "requestedSchema": {"type": "object", "properties": {"ok": {"type": "boolean"}}}}
SAMPLING = {"messages": [{"role": "user", "content": {"type": "text", "text": "hi"}}], "maxTokens": 10}
QUESTIONS: dict[str, Request] = {
    "form": Request(1, "elicitation/create", FORM),
    "url": Request(1, "elicitation/create", {"message": "go", "mode": "url", "url": "https://example.com"}),
    "sampling": Request(1, "sampling/createMessage", {**SAMPLING, "includeContext": "allServers", "_meta": {"a": 1}}),
    "sampling with tools": Request(1, "sampling/createMessage", {**SAMPLING, "tools": [{"name": "t"}]}),
    "sampling with a tool choice": Request(1, "sampling/createMessage", {**SAMPLING, "toolChoice": {"mode": "auto"}}),
    "odd mode": Request(1, "elicitation/create", {**FORM, "mode": ["form"]}),
    "roots": Request(1, "roots/list", {}),
    "ping": Request(1, "ping", {}),
    "vendor": Request(1, "vendor/ask", {}),
}


def text(value: str) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": value}]}


def tool(name: str, **more: Any) -> ShownTool:
    schema = {"type": "object", "properties": {}}
    return ShownTool(name, {"name": name.partition(".")[2], "description": "d", "inputSchema": schema, **more})


def resource(server: str, uri: str) -> Offered:
    return Offered(server, {"uri": uri, "name": uri.rpartition("/")[2]})


def template(server: str, uri: str) -> Offered:
    return Offered(server, {"uriTemplate": uri, "name": "template"})


def prompt(server: str, name: str) -> Offered:
    return Offered(server, {"name": name})


Result = dict[str, Any]
Act = Callable[[dict[str, Any], ClientCall], Awaitable[Result]]


class ScriptedBackend(GovernedServers):
    """Its tools, by the name after the dot, do what that name says; everything that happens is in `log`."""

    def __init__(
        self,
        tools: Sequence[ShownTool] = (),
        resources: Sequence[Offered] = (),
        templates: Sequence[Offered] = (),
        prompts: Sequence[Offered] = (),
    ) -> None:
        self.shown = tools or tuple(tool(f"s.{name}") for name in self.acts())
        self.listed = resources
        self.patterns = templates
        self.drafts = prompts
        self.happened: list[Any] = []
        self.events: list[Unforwarded] = []
        self.client = Client(self.events.append)
        self.lists = ScriptedLists(self)
        self.hurry = asyncio.Event()
        self.slow_subscriptions = asyncio.Event()
        self.slow_subscriptions.set()

    async def renew_tools(self) -> None:
        """None of its tools has a check."""

    def acts(self) -> dict[str, Act]:
        return {
            "echo": self._echo,
            "raw": self._raw,
            "more": self._more,
            "ask": self._ask,
            "ask_two": self._ask_two,
            "ask_then_hang": self._ask_then_hang,
            "ask_then_tell": self._ask_then_tell,
            "ask_impatiently": self._ask_impatiently,
            "tell": self._tell,
            "hang": self._hang,
            "stubborn": self._stubborn,
            "refuse": self._refuse,
            "fail": self._fail,
            "crash": self._crash,
            "cut": self._cut,
        }

    async def _echo(self, arguments: dict[str, Any], client: ClientCall) -> Result:
        return text(json.dumps(arguments))

    async def _raw(self, arguments: dict[str, Any], client: ClientCall) -> Result:
        return {"content": [], "structuredContent": [1], "_meta": {}, "resultType": "complete"}

    async def _more(self, arguments: dict[str, Any], client: ClientCall) -> Result:
        return {**text("x"), **arguments}

    async def _ask(self, arguments: dict[str, Any], client: ClientCall) -> Result:
        answers = []
        for name in arguments["questions"]:
            answers.append(await self._answer(name, client))  # noqa: PERF401
        return text(json.dumps(answers))

    async def _ask_two(self, arguments: dict[str, Any], client: ClientCall) -> Result:
        answers = await asyncio.gather(*(self._answer(name, client) for name in arguments["questions"]))
        return text(json.dumps(answers))

    async def _ask_then_hang(self, arguments: dict[str, Any], client: ClientCall) -> Result:
        await self._ask(arguments, client)
        return await self._hang(arguments, client)

    async def _ask_then_tell(self, arguments: dict[str, Any], client: ClientCall) -> Result:
        client.progress({})
        await self._ask(arguments, client)
        client.progress(arguments["then"])
        return text("told")

    async def _ask_impatiently(self, arguments: dict[str, Any], client: ClientCall) -> Result:
        asking = asyncio.create_task(self._ask(arguments, client))
        await self.hurry.wait()
        asking.cancel()
        return text(json.dumps(["too late"]))

    async def _answer(self, name: str, client: ClientCall) -> Any:
        try:
            return await client.ask(QUESTIONS[name])
        except CannotAsk as error:
            return f"{error.code}: {error}"

    async def _tell(self, arguments: dict[str, Any], client: ClientCall) -> Result:
        self.happened.append(("level", client.level))
        for params in arguments.get("progress", ()):
            client.progress(params)
        for params in arguments.get("log", ()):
            client.log(params)
        self.late = client
        return text("told")

    async def _hang(self, arguments: dict[str, Any], client: ClientCall) -> Result:
        self.happened.append("hanging")
        try:
            await asyncio.Event().wait()
        finally:
            self.happened.append("stopped")
        return text("")

    async def _stubborn(self, arguments: dict[str, Any], client: ClientCall) -> Result:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            client.progress({"progress": 1})
            return text("I stay")
        return text("")

    async def _refuse(self, arguments: dict[str, Any], client: ClientCall) -> Result:
        raise Refusal("BUDGET_EXCEEDED", "BUDGET_EXCEEDED: s.refuse would exceed the budget")

    async def _fail(self, arguments: dict[str, Any], client: ClientCall) -> Result:
        raise ProtocolError(-32000, "the server says no", {"why": 1})

    async def _crash(self, arguments: dict[str, Any], client: ClientCall) -> Result:
        raise RuntimeError("secret detail")

    async def _cut(self, arguments: dict[str, Any], client: ClientCall) -> Result:
        raise asyncio.CancelledError

    # Backend ----------------------------------------------------------------------------------------------------------

    async def call(self, tool: str, arguments: dict[str, Any], client: ClientCall) -> Result:
        self.happened.append(("call", tool, arguments))
        return await self.acts()[tool.partition(".")[2]](arguments, client)

    async def unknown(self, name: str, arguments: dict[str, Any], behind: str = "") -> None:
        """Nothing is recorded here."""

    async def read(self, server: str, uri: str, client: ClientCall) -> Result:
        self.happened.append(("read", server, uri))
        if uri.endswith("secret"):
            raise Refusal("PATH_NOT_REACHABLE", "PATH_NOT_REACHABLE: read not permitted")
        if uri.endswith("ask"):
            return {"contents": [{"uri": uri, "text": json.dumps(await self._answer("form", client))}]}
        return {"contents": [{"uri": uri, "text": "hi"}], "ttlMs": 86_400_000, "cacheScope": "public", "odd": 1}

    async def prompt(self, server: str, name: str, arguments: dict[str, Any], client: ClientCall) -> Result:
        self.happened.append(("prompt", server, name, arguments))
        return {"description": "d", "messages": []}

    async def complete(
        self, server: str, ref: dict[str, Any], argument: dict[str, Any], context: dict[str, Any], client: ClientCall
    ) -> Result:
        self.happened.append(("complete", server, ref, argument, context))
        value = await self._answer("form", client) if argument.get("value") == "ask" else "a"
        return {"completion": {"values": [value]}}

    async def subscribe(self, server: str, uri: str) -> None:
        self.happened.append(("subscribe", server, uri))
        await self.slow_subscriptions.wait()
        if uri.endswith("secret"):
            raise Refusal("PATH_NOT_REACHABLE", "PATH_NOT_REACHABLE: read not permitted")

    async def unsubscribe(self, server: str, uri: str) -> None:
        self.happened.append(("unsubscribe", server, uri))

    def client_is(self, claims: Claims) -> None:
        self.happened.append(("client", claims.info.get("name"), sorted(claims.capabilities), claims.version))

    def log_level(self, level: str) -> None:
        self.happened.append(("log level", level))

    def roots_changed(self) -> None:
        self.happened.append("roots changed")

    async def close(self) -> None:
        self.happened.append("closed")


class ScriptedLists(ShownLists):
    """What a scripted backend offers."""

    def __init__(self, backend: ScriptedBackend) -> None:
        self._backend = backend

    def instructions(self) -> str:
        return "be careful"

    def tools(self) -> Sequence[ShownTool]:
        return self._backend.shown

    def resources(self) -> Sequence[Offered]:
        return self._backend.listed

    def templates(self) -> Sequence[Offered]:
        return self._backend.patterns

    def prompts(self) -> Sequence[Offered]:
        return self._backend.drafts

    def hidden(self) -> Iterator[str]:
        return iter(())


class ManualTimer:
    """The timer of an event loop, which runs out when a test says so."""

    def __init__(self) -> None:
        self.actions: dict[object, Callable[[], object]] = {}

    def __call__(self, seconds: float, action: Callable[..., object], *given: object) -> "Entry":
        entry = Entry(self.actions)
        self.actions[entry] = partial(action, *given)
        return entry

    def run_out(self) -> None:
        for action in list(self.actions.values()):
            action()
        self.actions.clear()


class Entry:
    def __init__(self, actions: dict[object, Callable[[], object]]) -> None:
        self._actions = actions

    def cancel(self) -> None:
        self._actions.pop(self, None)


CLIENT = {"name": "test", "version": "1"}
CAN_ALL: dict[str, Any] = {"elicitation": {"form": {}, "url": {}}, "sampling": {"tools": {}}, "roots": {}}
META = "io.modelcontextprotocol/"


def envelope(capabilities: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    claims = {f"{META}protocolVersion": "2026-07-28", f"{META}clientInfo": CLIENT}
    return {**claims, f"{META}clientCapabilities": capabilities or {}, **more}


class Scene:
    """A connection and everything that it sent, as JSON."""

    def __init__(self, backend: ScriptedBackend | None = None, names: Naming = "plain") -> None:
        self.backend = backend or ScriptedBackend()
        self.timer = ManualTimer()
        self.sent: list[dict[str, Any]] = []
        self.crowded = False
        self.connection = Connection(self.backend, self._keep, names=names)
        self.client = self.backend.client
        self.client.crowded = lambda: self.crowded

    def _keep(self, message: Message) -> None:
        self.sent.append(json.loads(write_message(message)))

    async def settle(self) -> None:
        for _ in range(30):  # nothing here waits for time or files, so a few turns of the loop finish everything
            await asyncio.sleep(0)

    async def tell(self, *messages: Message) -> list[dict[str, Any]]:
        """Send messages, and return what came since."""
        before = len(self.sent)
        asyncio.get_running_loop().call_later = self.timer  # type: ignore[method-assign, assignment]
        for message in messages:
            await self.connection.receive(message)
        await self.settle()
        return self.sent[before:]

    async def start(
        self, era: str = "2025", capabilities: dict[str, Any] | None = None, version: str = "2025-11-25"
    ) -> None:
        """Begin a connection, and forget what was said."""
        self.capabilities = capabilities or {}
        self.modern = era == "2026"
        if self.modern:
            await self.request("server/discover", number="start")
        else:
            params = {"protocolVersion": version, "clientInfo": CLIENT, "capabilities": self.capabilities}
            await self.tell(Request("start", "initialize", params), Notification("notifications/initialized"))
        self.sent.clear()
        self.backend.happened.clear()

    def message(self, method: str, params: dict[str, Any] | None = None, number: Id = 1, **meta: Any) -> Request:
        if self.modern:
            return Request(number, method, {**(params or {}), "_meta": envelope(self.capabilities, **meta)})
        return Request(number, method, {**(params or {}), **({"_meta": meta} if meta else {})})

    async def request(
        self, method: str, params: dict[str, Any] | None = None, number: Id = 1, **meta: Any
    ) -> list[dict[str, Any]]:
        return await self.tell(self.message(method, params, number, **meta))

    async def call(self, name: str, arguments: Any = None, number: Id = 1, **meta: Any) -> list[dict[str, Any]]:
        given = {} if arguments is None else {"arguments": arguments}
        return await self.request("tools/call", {"name": name, **given}, number, **meta)
