"""An MCP server that does what a script says, well or badly: `python scripted_server.py JSON` or `@FILE`.

It needs the standard library alone, and speaks over stdin and stdout in one thread. The script is an object:

    era           "2025", "2026" or "both" (the default): the first request decides, as in SDK 2.x
    version       the version that `initialize` answers; the default is 2025-11-25
    capabilities  the default follows from the definitions
    name          the name of the server
    tools, resources, templates, prompts
                  definitions; a tool may be a plain name
    page          items on each page of a list; 0 is one page
    start         actions at the start, before anything is read
    opened        actions after `notifications/initialized`, or after the answer to `server/discover`
    calls         {tool: actions} for `tools/call`; a tool without actions echoes its arguments
    on            {method: actions} in place of what the server would do
    end           actions at the end of stdin
    in_2025       another script, whose keys count instead of these if the era is 2025

An action is a list, a verb first. In texts, `{id}` is the id of the request, `{n}` the number of a repetition.

    ["text", TEXT]            answer with a tool result        ["result", OBJECT]       answer with any result
    ["echo"]                  answer with the arguments        ["error", CODE, TEXT, DATA?]
    ["seen"]                  answer with all messages that came, as JSON in a text
    ["line", TEXT]            write a line as it is            ["bytes", TEXT, COUNT]   write without a newline
    ["stderr", TEXT]          write a line to stderr           ["repeat", COUNT, ACTION …]
    ["notify", METHOD, PARAMS]                                 ["progress", STEP, TOTAL, TEXT?]
    ["log", LEVEL, DATA]      a log message                    ["tools", DEFINITIONS]   have other tools from now on
    ["ask", METHOD, PARAMS]   a request on the wire; waits for its answer, then answers the call with it
    ["ask_only", METHOD, PARAMS]  the same, without answering the call
    ["input", {KEY: [METHOD, PARAMS]}, STATE?]
                              a result that needs input; when the call comes again, answers with the responses
    ["input_again", …]        the same, but asks again each time
    ["env"]                   answer with the environment      ["exit", CODE]
    ["read", PATH]            answer with a file               ["write", PATH, TEXT]
    ["append", PATH, TEXT]    write at the end of a file, without an answer
    ["until_cancelled"]       wait until the call is cancelled, then go on
    ["hang"]                  never answer this request        ["stop_reading"]         read nothing from now on
    ["default"]               what the server does without a script    ["close"]        close stdout
    ["times", ACTIONS, …]     the first actions the first time, the next ones the next time; the last ones from then on
    ["sleep", SECONDS]        wait                             ["on", METHOD, ACTIONS]  as `on`, from now on
    ["once", PATH, ACTION …]  if the file is not there: make it, and do this
    ["pid"]                   answer with the number of the process
"""

import json
import os
import signal
import sys
import time
from typing import Any

META = "io.modelcontextprotocol/"
MODERN = "2026-07-28"
LEGACY = ("2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05")


class Answered(Exception):
    """The request needs no other answer."""


class Ended(Exception):
    """Standard input has ended."""


class Failed(Exception):
    """The request is answered with an error."""

    def __init__(self, code: int, message: str, data: Any = None) -> None:
        self.error = {"code": code, "message": message, **({} if data is None else {"data": data})}
        super().__init__(message)


def fill(value: Any, request_id: Any, number: int) -> Any:
    """Put the id of the request and the number of the repetition into the texts of a script."""
    if isinstance(value, str):
        return value.replace("{id}", json.dumps(request_id)).replace("{n}", str(number))
    if isinstance(value, list):
        return [fill(one, request_id, number) for one in value]
    if isinstance(value, dict):
        return {fill(key, request_id, number): fill(one, request_id, number) for key, one in value.items()}
    return value


def text_result(text: str) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": text}]}


def tool(given: Any) -> dict[str, Any]:
    return {"name": given, "inputSchema": {"type": "object"}} if isinstance(given, str) else dict(given)


class Server:
    """The state of one connection."""

    def __init__(self, script: dict[str, Any]) -> None:
        self.script = script
        self.era = {"2025": "2025", "2026": "2026"}.get(script.get("era", "both"), "")
        self.is_open = False
        self.tools = [tool(given) for given in script.get("tools", ["echo"])]
        self.seen: list[Any] = []
        self.cancelled: list[Any] = []
        self.answers: dict[Any, Any] = {}
        self.asked = 0
        self.streams: list[Any] = []
        self.times: dict[str, int] = {}

    # Lines ------------------------------------------------------------------------------------------------------------

    def write(self, message: dict[str, Any]) -> None:
        self.write_line(json.dumps({"jsonrpc": "2.0", **message}, ensure_ascii=False, separators=(",", ":")))

    def write_line(self, line: str, end: str = "\n") -> None:
        sys.stdout.buffer.write((line + end).encode("utf-8", "surrogateescape"))
        sys.stdout.buffer.flush()

    def take(self) -> None:
        """Read one line and do what it asks for."""
        line = sys.stdin.buffer.readline()
        if not line:
            raise Ended
        message = json.loads(line)
        self.seen.append(message)
        if "method" not in message:
            self.answers[message["id"]] = message.get("result", message.get("error"))
        elif "id" in message:
            self.answer(message["id"], message["method"], message.get("params") or {})
        else:
            self.notified(message["method"], message.get("params") or {})

    def notified(self, method: str, params: dict[str, Any]) -> None:
        if method == "notifications/cancelled":
            self.cancelled.append(params.get("requestId"))
            self.streams = [stream for stream in self.streams if stream != params.get("requestId")]
        if method == "notifications/initialized":
            self.is_open = True
            self.act(self.script.get("opened", []), None, {})

    # Requests ---------------------------------------------------------------------------------------------------------

    def answer(self, request_id: Any, method: str, params: dict[str, Any]) -> None:
        try:
            actions = self.script.get("on", {}).get(method)
            if actions is not None:
                self.act(actions, request_id, {**params, "method": method})
            else:
                self.reply(request_id, self.result(request_id, method, params))
        except Answered:
            pass
        except Failed as failed:
            self.write({"id": request_id, "error": failed.error})
        if method == "server/discover" and self.era == "2026":
            self.act(self.script.get("opened", []), None, {})

    def result(self, request_id: Any, method: str, params: dict[str, Any]) -> dict[str, Any]:
        self.check_era(method, params)
        match method:
            case "server/discover":
                about = {"supportedVersions": [MODERN], "ttlMs": 0, "cacheScope": "private"}
                meta = {f"{META}serverInfo": {"name": self.script.get("name", "scripted"), "version": "1"}}
                return {**about, "capabilities": self.capabilities(), "instructions": "be kind", "_meta": meta}
            case "initialize":
                return {
                    "protocolVersion": self.script.get("version", LEGACY[0]),
                    "capabilities": self.capabilities(),
                    "serverInfo": {"name": self.script.get("name", "scripted"), "version": "1"},
                    "instructions": "be kind",
                }
            case "tools/list":
                return self.listed("tools", self.tools, params)
            case "resources/list":
                return self.listed("resources", self.script.get("resources", []), params)
            case "resources/templates/list":
                return self.listed("resourceTemplates", self.script.get("templates", []), params)
            case "prompts/list":
                return self.listed("prompts", self.script.get("prompts", []), params)
            case "tools/call":
                actions = self.script.get("calls", {}).get(params["name"], [["echo"]])
                self.act(actions, request_id, params)
                raise Answered
            case "resources/read":
                return {"contents": [{"uri": params["uri"], "text": f"contents of {params['uri']}"}]}
            case "prompts/get":
                return {"messages": [{"role": "user", "content": {"type": "text", "text": params["name"]}}]}
            case "completion/complete":
                return {"completion": {"values": [params["argument"]["value"] + "…"]}}
            case "ping" | "logging/setLevel" | "resources/subscribe" | "resources/unsubscribe" if self.era == "2025":
                return {}
            case "subscriptions/listen" if self.era == "2026":
                self.streams.append(request_id)
                self.notify("notifications/subscriptions/acknowledged", {"notifications": params["notifications"]})
                raise Answered
        raise Failed(-32601, f"Method not found: {method}")

    def check_era(self, method: str, params: dict[str, Any]) -> None:
        """The first request decides which era this is. Then every request has to be of that era."""
        meta = params.get("_meta") or {}
        is_modern = f"{META}protocolVersion" in meta
        if self.script.get("era", "both") == "both" and not self.era:
            self.era = "2026" if is_modern else "2025"
        if self.era == "2025" and "in_2025" in self.script:
            self.script = self.script | self.script.pop("in_2025")
            self.tools = [tool(given) for given in self.script.get("tools", ["echo"])]
        if self.era == "2026":
            if method == "initialize":
                raise Failed(-32022, "Unsupported protocol version", {"supported": [MODERN], "requested": "2025-11-25"})
            if meta.get(f"{META}protocolVersion") != MODERN or f"{META}clientCapabilities" not in meta:
                raise Failed(-32602, "no version or capabilities in `_meta`")
        elif method == "server/discover":
            raise Failed(-32601, f"Method not found: {method}")
        elif any(key.startswith(META) for key in meta):
            raise Failed(-32600, "an envelope of 2026 on a connection of 2025")
        elif method not in ("initialize", "ping") and not self.is_open:
            raise Failed(-32602, "Received request before initialization was complete")

    def capabilities(self) -> dict[str, Any]:
        given = self.script.get("capabilities")
        if given is not None:
            return dict(given)
        found: dict[str, Any] = {"tools": {}, "logging": {}}
        if "resources" in self.script or "templates" in self.script:
            found["resources"] = {"subscribe": True}
        if "prompts" in self.script:
            found["prompts"] = {}
        return found

    def listed(self, key: str, items: list[Any], params: dict[str, Any]) -> dict[str, Any]:
        page, start = self.script.get("page", 0) or len(items) or 1, int(params.get("cursor", "0"))
        result: dict[str, Any] = {key: items[start : start + page]}
        if start + page < len(items):
            result["nextCursor"] = str(start + page)
        return {**result, "ttlMs": 3_600_000, "cacheScope": "public"} if self.era == "2026" else result

    # Actions ----------------------------------------------------------------------------------------------------------

    def notify(self, method: str, params: dict[str, Any]) -> None:
        if self.era == "2026" and self.streams and method != "notifications/message":
            params = {**params, "_meta": {f"{META}subscriptionId": self.streams[-1]}}
        self.write({"method": method, "params": params})

    def reply(self, request_id: Any, result: dict[str, Any]) -> None:
        kind = {"resultType": "complete"} if self.era == "2026" else {}
        self.write({"id": request_id, "result": {**kind, **result}})

    def act(self, actions: list[Any], request_id: Any, params: dict[str, Any], number: int = 0) -> None:
        for action in actions:
            verb, *rest = fill(action, request_id, number) if action[0] not in ("repeat", "times") else action
            self.do(verb, rest, request_id, params)

    def do(self, verb: str, rest: list[Any], request_id: Any, params: dict[str, Any]) -> None:
        match verb, rest:
            case "text", [text]:
                self.reply(request_id, text_result(text))
            case "echo", []:
                self.reply(request_id, text_result(json.dumps(params.get("arguments", {}))))
            case "seen", []:
                self.reply(request_id, text_result(json.dumps(self.seen)))
            case "env", []:
                self.reply(request_id, text_result(json.dumps(dict(os.environ))))
            case "result", [result]:
                self.write({"id": request_id, "result": result})
            case "error", [code, text, *data]:
                raise Failed(code, text, *data)
            case "line", [text]:
                self.write_line(text)
            case "bytes", [text, count]:
                self.write_line(text * count, end="")
            case "stderr", [text]:
                print(text, file=sys.stderr, flush=True)
            case "repeat", [count, *actions]:
                for number in range(count):
                    self.act(actions, request_id, params, number)
            case "notify", [method, about]:
                self.notify(method, about)
            case "progress", [step, total, *message]:
                token = params["_meta"]["progressToken"]
                about = {"progressToken": token, "progress": step, "total": total}
                about |= {"message": message[0]} if message else {}
                self.write({"method": "notifications/progress", "params": about})
            case "log", [level, data]:
                self.notify("notifications/message", {"level": level, "data": data})
            case "once", [path, *actions]:
                if not os.path.exists(path):
                    open(path, "x").close()
                    self.act(actions, request_id, params)
            case "on", [method, actions]:
                self.script.setdefault("on", {})[method] = actions
            case "tools", [definitions]:
                self.tools = [tool(given) for given in definitions]
            case "ask", [method, about]:
                self.reply(request_id, text_result(json.dumps(self.ask(method, about))))
            case "ask_only", [method, about]:
                self.ask(method, about)
            case (("input" | "input_again"), [wanted, *state]):
                self.input(verb, wanted, state, request_id, params)
            case "exit", [code]:
                os._exit(code)
            case "read", [path]:
                try:
                    with open(path, encoding="utf-8") as file:
                        self.reply(request_id, text_result(file.read()))
                except OSError as wrong:
                    self.reply(request_id, {**text_result(type(wrong).__name__), "isError": True})
            case "write", [path, text]:
                try:
                    with open(path, "w", encoding="utf-8") as file:
                        file.write(text)
                    self.reply(request_id, text_result("written"))
                except OSError as wrong:
                    self.reply(request_id, {**text_result(type(wrong).__name__), "isError": True})
            case "pid", []:
                self.reply(request_id, text_result(str(os.getpid())))
            case "append", [path, text]:
                with open(path, "a", encoding="utf-8") as file:
                    file.write(text)
            case "until_cancelled", []:
                while request_id not in self.cancelled:
                    self.take()
            case "hang", []:
                raise Answered
            case "default", []:
                method = params.pop("method")
                self.reply(request_id, self.result(request_id, method, params))
            case "times", [*choices]:
                count = self.times[str(choices)] = self.times.get(str(choices), 0) + 1
                self.act(choices[min(count, len(choices)) - 1], request_id, params)
            case "stop_reading", []:
                signal.pause()
            case "close", []:
                os.close(1)
            case "sleep", [seconds]:
                time.sleep(seconds)
            case _:
                raise SystemExit(f"an unknown action: {verb} {rest}")

    def ask(self, method: str, params: dict[str, Any]) -> Any:
        self.asked += 1
        question = f"ask-{self.asked}"
        self.write({"id": question, "method": method, "params": params})
        while question not in self.answers:
            self.take()
        return self.answers[question]

    def input(
        self, verb: str, wanted: dict[str, Any], state: list[Any], request_id: Any, params: dict[str, Any]
    ) -> None:
        if verb == "input" and ("inputResponses" in params or "requestState" in params):
            came = {key: params.get(key) for key in ("inputResponses", "requestState")}
            self.reply(request_id, text_result(json.dumps(came)))
            return
        result: dict[str, Any] = {"resultType": "input_required"}
        if wanted:
            result["inputRequests"] = {key: {"method": ask[0], "params": ask[1]} for key, ask in wanted.items()}
        if state:
            result["requestState"] = state[0]
        self.write({"id": request_id, "result": result})

    def run(self) -> None:
        self.act(self.script.get("start", []), None, {})
        try:
            while True:
                self.take()
        except Ended:
            self.act(self.script.get("end", []), None, {})


if __name__ == "__main__":
    given = sys.argv[1]
    if given.startswith("@"):
        with open(given[1:], encoding="utf-8") as file:
            given = file.read()
    Server(json.loads(given)).run()
