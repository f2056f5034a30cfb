"""A model that a test plays: a web server on loopback that answers coding agents with the tool calls of a script.

It speaks what the agents need: Anthropic Messages, OpenAI Responses and Chat Completions, and Gemini. It keeps nothing
between requests: an agent sends the whole conversation each time, and the identifiers of the calls in it say which step
is next. So an agent may ask twice, and the conversations of subagents may run at the same time.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

from msgspec import Struct

from licet.backends.memory import Answer
from licet.guard.ports import Exchange
from loopback import serving

FINAL = "All done."
_ID = re.compile(r"played_(\d+)_(\d+)_(\d+)")
_CALLS = "tool_calls"


class Call(Struct, frozen=True):
    """A call of a tool, in the agent's own words. `text` is the input of a tool that takes text and no object."""

    tool: str
    arguments: Mapping[str, Any] = {}
    text: str | None = None
    namespace: str | None = None  # where Codex keeps the tool

    def json(self) -> str:
        """The arguments as a model writes them."""
        return json.dumps(dict(self.arguments))


Step = Call | Sequence[Call]  # several calls in one step are made at the same time


class Script(NamedTuple):
    """What the model does in the conversations whose first words contain `opening`."""

    opening: str
    steps: Sequence[Step]
    final: str = FINAL


class Asked(Struct, frozen=True):
    """A request of an agent: its path, its headers, and its body as JSON."""

    path: str
    headers: Mapping[str, str]
    body: Any


class Result(Struct, frozen=True):
    """What an agent told the model of one call."""

    call: Call
    text: str
    data: Any = None  # the same, as the agent sent it


class PlayedModel:
    """The scripts that are played, and what agents have asked. The last script that fits a conversation is used."""

    def __init__(self, scripts: Sequence[Script]) -> None:
        self._scripts = scripts
        self.asked: list[Asked] = []
        self.url = ""

    # What agents ask --------------------------------------------------------------------------------------------------

    def site(self, exchange: Exchange) -> Answer:
        """Answer one request."""
        path = "/" + exchange.url.partition("://")[2].partition("/")[2]
        try:
            body = json.loads(exchange.body) if exchange.body else None
        except ValueError:
            return Answer.json({"error": "no JSON"}, 400)
        self.asked.append(Asked(path, dict(exchange.headers), body))
        bare = path.partition("?")[0]
        for end, dialect in DIALECTS.items():
            if bare.endswith(end) and isinstance(body, dict):
                return dialect.answer(
                    body, self._next(dialect, body), stream="stream" in bare or bool(body.get("stream"))
                )
        if bare.endswith(("count_tokens", ":countTokens")):
            return Answer.json({"input_tokens": 100, "totalTokens": 100})
        return Answer.json({}, 200 if exchange.method == "HEAD" else 404)

    def _next(self, dialect: type["Dialect"], body: Mapping[str, Any]) -> tuple[list[tuple[str, Call]], str]:
        """The calls that come next in a conversation, with their identifiers, and else its last words."""
        found = self._script(dialect, body)
        if found is None:
            return [], FINAL
        number, script = found
        step = dialect.steps_done(body, number)
        if step >= len(script.steps):
            return [], script.final
        return [(f"played_{number}_{step}_{place}", call) for place, call in enumerate(_calls(script.steps[step]))], ""

    def _script(self, dialect: type["Dialect"], body: Mapping[str, Any]) -> tuple[int, Script] | None:
        if not dialect.tools(body):  # an agent asks for a title, a summary, …
            return None
        opening = dialect.opening(body)
        fitting = [(number, script) for number, script in enumerate(self._scripts) if script.opening in opening]
        return fitting[-1] if fitting else None

    # What was asked ---------------------------------------------------------------------------------------------------

    def results(self, number: int = 0) -> list[Result]:
        """What the agent told the model of each call of a script, in the order of the calls."""
        found: dict[tuple[int, int], Result] = {}
        steps = self._scripts[number].steps
        for asked in self.asked:
            dialect = dialect_of(asked.path)
            if dialect is None or not isinstance(asked.body, dict):
                continue
            for (script, step, place), data in dialect.results(asked.body, self._script(dialect, asked.body)):
                if script == number:
                    call = _calls(steps[step])[place]
                    found.setdefault((step, place), Result(call, dialect.text(data), data))
        return [result for _, result in sorted(found.items())]

    def tools(self) -> dict[str, Any]:
        """Every tool that an agent has offered, by name, with its schema as it was sent."""
        found: dict[str, Any] = {}
        for asked in self.asked:
            if (dialect := dialect_of(asked.path)) and isinstance(asked.body, dict):
                for tool in dialect.tools(asked.body):
                    found.setdefault(dialect.name(tool), tool)
        return found


@contextmanager
def playing(scripts: Sequence[Script], host: str = "127.0.0.1") -> Iterator[PlayedModel]:
    """A model on loopback, as long as the test needs it."""
    model = PlayedModel(scripts)
    with serving(model.site, host) as server:
        model.url = server.url.rstrip("/")
        yield model


def _calls(step: Step) -> Sequence[Call]:
    return [step] if isinstance(step, Call) else step


def _texts(content: Any) -> str:
    """All text in a piece of a conversation, whatever its form."""
    match content:
        case str():
            return content
        case Mapping():
            known = [content[key] for key in ("text", "content", "parts", "output") if key in content]
            return "\n".join(filter(None, map(_texts, known)))
        case Sequence():
            return "\n".join(filter(None, map(_texts, content)))
    return ""


def _events(events: Sequence[Mapping[str, Any]], *, named: bool = False, end: str = "") -> Answer:
    lines = [(f"event: {event['type']}\n" if named else "") + f"data: {json.dumps(event)}\n\n" for event in events]
    return Answer(200, (("content-type", "text/event-stream"),), ("".join(lines) + end).encode())


# Dialects -------------------------------------------------------------------------------------------------------------


class Dialect:
    """How one API writes a conversation. Subclasses are tables of functions; none is made."""

    @staticmethod
    def answer(body: Mapping[str, Any], turn: tuple[list[tuple[str, Call]], str], *, stream: bool) -> Answer:
        """The next turn of the model."""
        raise NotImplementedError

    @staticmethod
    def opening(body: Mapping[str, Any]) -> str:
        """The first words of the conversation that are no instructions."""
        raise NotImplementedError

    @classmethod
    def steps_done(cls, body: Mapping[str, Any], number: int) -> int:
        """How many steps of a script are in a conversation already."""
        found = _ID.findall(json.dumps(body))
        return 1 + max((int(step) for script, step, _ in found if int(script) == number), default=-1)

    @staticmethod
    def tools(body: Mapping[str, Any]) -> Sequence[Any]:
        """The tools that an agent offers."""
        tools: Sequence[Any] = body.get("tools") or ()
        return tools

    @staticmethod
    def name(tool: Mapping[str, Any]) -> str:
        """The name of a tool that is offered."""
        return str(tool.get("name") or tool.get("type"))

    @staticmethod
    def results(
        body: Mapping[str, Any], script: tuple[int, Script] | None
    ) -> Iterator[tuple[tuple[int, int, int], Any]]:
        """Each result in a conversation, with script, step and place of its call."""
        raise NotImplementedError

    @staticmethod
    def text(data: Any) -> str:
        """The text of a result."""
        return _texts(data)


def _place(identifier: object) -> tuple[int, int, int] | None:
    match = _ID.search(str(identifier))
    return (int(match[1]), int(match[2]), int(match[3])) if match else None


class Messages(Dialect):
    """Anthropic Messages, as Claude Code speaks it."""

    @staticmethod
    def answer(body: Mapping[str, Any], turn: tuple[list[tuple[str, Call]], str], *, stream: bool) -> Answer:
        calls, text = turn
        blocks: list[dict[str, Any]] = [
            {"type": "tool_use", "id": f"toolu_{name}", "name": call.tool, "input": dict(call.arguments)}
            for name, call in calls
        ] or [{"type": "text", "text": text}]
        usage = {"input_tokens": 10, "output_tokens": 5, "cache_read_input_tokens": 0, "cache_creation_input_tokens": 0}
        reason = "tool_use" if calls else "end_turn"
        message = {"id": "msg_played", "type": "message", "role": "assistant", "model": body["model"], "usage": usage}
        if not stream:
            return Answer.json({**message, "content": blocks, "stop_reason": reason, "stop_sequence": None})
        events: list[dict[str, Any]] = [
            {"type": "message_start", "message": {**message, "content": [], "stop_reason": None, "stop_sequence": None}}
        ]
        for index, block in enumerate(blocks):
            use = block["type"] == "tool_use"
            empty = {**block, "input": {}} if use else {**block, "text": ""}
            delta = (
                {"type": "input_json_delta", "partial_json": json.dumps(block["input"])}
                if use
                else {"type": "text_delta", "text": block["text"]}
            )
            events += [
                {"type": "content_block_start", "index": index, "content_block": empty},
                {"type": "content_block_delta", "index": index, "delta": delta},
                {"type": "content_block_stop", "index": index},
            ]
        ended = {"stop_reason": reason, "stop_sequence": None}
        events += [{"type": "message_delta", "delta": ended, "usage": {"output_tokens": 5}}, {"type": "message_stop"}]
        return _events(events, named=True)

    @staticmethod
    def opening(body: Mapping[str, Any]) -> str:
        return _texts(next((one["content"] for one in body["messages"] if one["role"] == "user"), ""))

    @staticmethod
    def results(
        body: Mapping[str, Any], script: tuple[int, Script] | None
    ) -> Iterator[tuple[tuple[int, int, int], Any]]:
        for message in body["messages"]:
            for block in message["content"] if isinstance(message["content"], list) else ():
                if block.get("type") == "tool_result" and (place := _place(block.get("tool_use_id"))):
                    yield place, block


class Responses(Dialect):
    """OpenAI Responses, as Codex speaks it."""

    @staticmethod
    def answer(body: Mapping[str, Any], turn: tuple[list[tuple[str, Call]], str], *, stream: bool) -> Answer:
        calls, text = turn
        items: list[dict[str, Any]] = []
        for name, call in calls:
            item = {"id": f"item_{name}", "call_id": f"call_{name}", "name": call.tool}
            if call.text is None:
                item |= {"type": "function_call", "arguments": call.json()}
            else:
                item |= {"type": "custom_tool_call", "input": call.text}
            items.append(item | ({"namespace": call.namespace} if call.namespace else {}))
        words = {"type": "output_text", "text": text, "annotations": []}
        items = items or [{"type": "message", "id": "msg_played", "role": "assistant", "content": [words]}]
        usage = {"input_tokens": 10, "output_tokens": 5, "total_tokens": 15}
        response = {"id": "resp_played", "object": "response", "model": body.get("model"), "usage": usage}
        if not stream:
            return Answer.json({**response, "status": "completed", "output": items})
        events: list[dict[str, Any]] = [{"type": "response.created", "response": {**response, "status": "in_progress"}}]
        for index, item in enumerate(items):
            events.append({"type": "response.output_item.added", "output_index": index, "item": item})
            events.append({"type": "response.output_item.done", "output_index": index, "item": item})
        events.append({"type": "response.completed", "response": {**response, "status": "completed", "output": items}})
        return _events(events, named=True)

    @staticmethod
    def opening(body: Mapping[str, Any]) -> str:
        given = body["input"]
        return given if isinstance(given, str) else _texts([one for one in given if one.get("role") == "user"])

    @staticmethod
    def tools(body: Mapping[str, Any]) -> Sequence[Any]:
        # Newer models get their tools as an item of the conversation, and some tools lie in a namespace.
        given = body["input"] if isinstance(body["input"], list) else ()
        added = [tool for item in given if item.get("type") == "additional_tools" for tool in item["tools"]]
        found: list[Any] = []
        for tool in (*(body.get("tools") or ()), *added):
            if tool.get("type") == "namespace":
                found += [{**inner, "namespace": tool["name"]} for inner in tool["tools"]]
            else:
                found.append(tool)
        return found

    @staticmethod
    def name(tool: Mapping[str, Any]) -> str:
        name = str(tool.get("name") or tool["type"])
        return f"{tool['namespace']}.{name}" if tool.get("namespace") else name

    @staticmethod
    def results(
        body: Mapping[str, Any], script: tuple[int, Script] | None
    ) -> Iterator[tuple[tuple[int, int, int], Any]]:
        for item in body["input"] if isinstance(body["input"], list) else ():
            if str(item.get("type")).endswith("_call_output") and (place := _place(item.get("call_id"))):
                yield place, item


class Completions(Dialect):
    """OpenAI Chat Completions, as OpenCode and Copilot CLI speak it."""

    @staticmethod
    def answer(body: Mapping[str, Any], turn: tuple[list[tuple[str, Call]], str], *, stream: bool) -> Answer:
        calls, text = turn
        made: list[dict[str, Any]] = []
        for index, (name, call) in enumerate(calls):
            if call.text is None:
                kind = {"type": "function", "function": {"name": call.tool, "arguments": call.json()}}
            else:
                kind = {"type": "custom", "custom": {"name": call.tool, "input": call.text}}
            made.append({"index": index, "id": name, **kind})
        message = {"role": "assistant", "content": None if made else text} | ({_CALLS: made} if made else {})
        reason = _CALLS if made else "stop"
        usage = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}
        whole = {"id": "chatcmpl-played", "created": 1, "model": body.get("model"), "usage": usage}
        if not stream:
            choice = {"index": 0, "message": message, "finish_reason": reason}
            return Answer.json({**whole, "object": "chat.completion", "choices": [choice]})
        first = {"index": 0, "delta": message, "finish_reason": None}
        last = {"index": 0, "delta": {}, "finish_reason": reason}
        chunk = {**whole, "object": "chat.completion.chunk"}
        events = [{**chunk, "usage": None, "choices": [first]}, {**chunk, "choices": [last]}]
        return _events(events, end="data: [DONE]\n\n")

    @staticmethod
    def opening(body: Mapping[str, Any]) -> str:
        return _texts(next((one["content"] for one in body["messages"] if one["role"] == "user"), ""))

    @staticmethod
    def name(tool: Mapping[str, Any]) -> str:
        return str(tool[tool["type"]]["name"])

    @staticmethod
    def results(
        body: Mapping[str, Any], script: tuple[int, Script] | None
    ) -> Iterator[tuple[tuple[int, int, int], Any]]:
        for message in body["messages"]:
            if message["role"] == "tool" and (place := _place(message.get("tool_call_id"))):
                yield place, message


class Gemini(Dialect):
    """Gemini, as Gemini CLI speaks it. It sends no identifiers back: turns and places are counted."""

    @staticmethod
    def answer(body: Mapping[str, Any], turn: tuple[list[tuple[str, Call]], str], *, stream: bool) -> Answer:
        calls, text = turn
        parts: list[dict[str, Any]] = [
            {"functionCall": {"name": call.tool, "args": dict(call.arguments)}} for _, call in calls
        ] or [{"text": text}]
        usage = {"promptTokenCount": 10, "candidatesTokenCount": 5, "totalTokenCount": 15}
        content = {"role": "model", "parts": parts}
        answer = {
            "candidates": [{"index": 0, "content": content, "finishReason": "STOP"}],
            "usageMetadata": usage,
            "modelVersion": "played",
        }
        return _events([answer]) if stream else Answer.json(answer)

    @staticmethod
    def opening(body: Mapping[str, Any]) -> str:
        return _texts([one for one in body["contents"] if one.get("role") == "user"])

    @classmethod
    def steps_done(cls, body: Mapping[str, Any], number: int) -> int:
        return len(_turns(body))

    @staticmethod
    def tools(body: Mapping[str, Any]) -> Sequence[Any]:
        return [one for tool in body.get("tools") or () for one in tool.get("functionDeclarations", ())]

    @staticmethod
    def results(
        body: Mapping[str, Any], script: tuple[int, Script] | None
    ) -> Iterator[tuple[tuple[int, int, int], Any]]:
        if script is None:
            return
        for step, (count, after) in enumerate(_turns(body)):
            answers = [part["functionResponse"] for part in after if "functionResponse" in part]
            if step < len(script[1].steps):
                for place, answer in enumerate(answers[:count]):
                    yield (script[0], step, place), answer

    @staticmethod
    def text(data: Any) -> str:
        response = data.get("response", {})
        return str(response.get("output") or response.get("error") or json.dumps(response))


def _turns(body: Mapping[str, Any]) -> list[tuple[int, Sequence[Mapping[str, Any]]]]:
    """For each turn of the model with calls: their number, and the parts of the message after it."""
    contents = body["contents"]
    found = []
    for index, content in enumerate(contents):
        calls = [part for part in content.get("parts", ()) if "functionCall" in part]
        if content.get("role") == "model" and calls:
            found.append((len(calls), contents[index + 1].get("parts", ()) if index + 1 < len(contents) else ()))
    return found


DIALECTS: Mapping[str, type[Dialect]] = {
    "/v1/messages": Messages,
    "/responses": Responses,
    "/chat/completions": Completions,
    ":streamGenerateContent": Gemini,
    ":generateContent": Gemini,
}


def dialect_of(path: str) -> type[Dialect] | None:
    """The API that a path belongs to."""
    bare = path.partition("?")[0]
    return next((dialect for end, dialect in DIALECTS.items() if bare.endswith(end)), None)
