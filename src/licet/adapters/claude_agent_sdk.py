"""Tools for claude-agent-sdk: `ClaudeSDKClient(tools(gate, session="s-42").options(can_use_tool=ask))`.

The tools are an MCP server in this process. A hook tells Claude Code to ask about the calls that the policy asks about,
also where its own rules would allow them, and `can_use_tool` gives the person's answer. Without a yes from there the
call is refused, whatever Claude Code has allowed: its rules, and a hook that failed, decide nothing here.

Claude Code's own tools (Bash, Write …) are not behind the gate, so `options` leaves them out.

For policies with `flow:`, `options` adds the prompts of the client to the task. With tools of Claude Code it does not,
since some of them (subagents, plans) make prompts that the model has written: then `tools.say` says what the user said,
or there is no task. A conversation that is resumed is tainted.
"""

import dataclasses
import json
from collections import deque
from collections.abc import Mapping
from typing import Any, get_type_hints

from claude_agent_sdk import (
    ClaudeAgentOptions,
    HookMatcher,
    PermissionResultAllow,
    PermissionResultDeny,
    SdkMcpTool,
    create_sdk_mcp_server,
)

from licet.adapters.foreign import Foreign
from licet.adapters.framework_calls import GateTools, Offered, Tools
from licet.adapters.limits import MOST_APPROVED
from licet.core.late_pattern import late_pattern
from licet.core.values import data_digest
from licet.declare.plain_json import plain_json
from licet.guard.gate import BareGate
from licet.guard.session import Session

_RESUMED = ("resume", "continue_conversation", "fork_session")  # options of a conversation that goes on
_TAG = late_pattern(r"<[a-zA-Z]")


class ClaudeTools(Tools[Any]):
    """The tools of an MCP server, with the hook and the callback that belong to them."""

    def __init__(self, made: GateTools, server: str) -> None:
        super().__init__([self._tool(one) for one in made.offered()], made)
        self._server, self._prefix = server, f"mcp__{server}__"
        self._approved: deque[tuple[str, str, str]] = deque(maxlen=MOST_APPROVED)  # tool, arguments, id of the call

    def options(self, can_use_tool: Any = None, **more: Any) -> Any:
        """Options for a client whose only tools are these; `can_use_tool` and all others are those of the SDK."""
        servers = {**more.pop("mcp_servers", {}), self._server: self.server()}
        hooks = {**more.pop("hooks", {})}
        hooks["PreToolUse"] = [*hooks.get("PreToolUse", ()), *self.hooks()["PreToolUse"]]
        given = {"tools": [], **more}
        if given["tools"] == []:
            hooks["UserPromptSubmit"] = [*hooks.get("UserPromptSubmit", ()), *self.hears()["UserPromptSubmit"]]
        if any(given.get(name) for name in _RESUMED):
            self.gate_tools.hear(None, history=True)
        allowed = list(given.pop("allowed_tools", ()))
        if can_use_tool is not None:
            # The callback allows what the policy does not ask about. Tools that are allowed as a whole never get there.
            given["can_use_tool"] = self.can_use_tool(can_use_tool)
        else:
            allowed += [f"{self._prefix}{one.name}" for one in self]
        return ClaudeAgentOptions(mcp_servers=servers, hooks=hooks, allowed_tools=allowed, **given)

    def server(self) -> Any:
        """The MCP server, for `ClaudeAgentOptions.mcp_servers` under the name that was given to `tools`."""
        return create_sdk_mcp_server(self._server, tools=list(self))

    def hooks(self) -> dict[str, list[Any]]:
        """The hook that makes Claude Code ask, for `ClaudeAgentOptions.hooks`. If it fails, the call is blocked."""
        known = {field.name for field in dataclasses.fields(HookMatcher)}
        block = {"on_failure": "block"} if "on_failure" in known else {}  # versions without it take no answer for a yes
        return {"PreToolUse": [HookMatcher(matcher=f"{self._prefix}.*", hooks=[self._before_use], **block)]}

    def can_use_tool(self, ask: Any) -> Any:
        """Wrap a `can_use_tool` callback: what it allows is approved, once and for these arguments.

        Until this is used, questions go to the approver of the gate.
        """
        self.gate_tools.asks = True

        async def asked(tool: str, arguments: dict[str, Any], context: Any) -> Any:
            name, call_id = tool.removeprefix(self._prefix), context.tool_use_id or ""
            if not tool.startswith(self._prefix):
                return await ask(tool, arguments, context)
            try:
                if await self.gate_tools.question(name, arguments, call_id) is None:
                    return PermissionResultAllow()  # the policy asks nobody; the call itself is decided by the gate
                answer = await ask(tool, arguments, context)
                if isinstance(answer, PermissionResultAllow):
                    used = arguments if answer.updated_input is None else answer.updated_input
                    if used != arguments:  # the person has seen and chosen the other arguments
                        await self.gate_tools.question(name, used, call_id)
                    self._approved.append((name, _digest(used), call_id))
                elif isinstance(answer, PermissionResultDeny):
                    await self.gate_tools.call(name, arguments, call_id=call_id, yes=False)  # for the ledger
            except Exception as error:
                return PermissionResultDeny(message=f"DECISION_FAILED: {type(error).__name__} in the guard")
            return answer

        return asked

    def hears(self) -> dict[str, list[Any]]:
        """The hook that adds prompts to the task, for `ClaudeAgentOptions.hooks` of a client that a person talks to."""
        return {"UserPromptSubmit": [HookMatcher(hooks=[self._heard])]}

    async def _heard(self, given: Any, _id: str | None, _: object) -> dict[str, Any]:
        prompt = given.get("prompt")
        # Claude Code reports in tags, as prompts too: that a subagent has ended, and what it said.
        if isinstance(prompt, str) and not given.get("agent_id") and not _TAG.search(prompt):
            self.gate_tools.hear(prompt)
        return {}

    async def _before_use(self, given: Any, tool_use_id: str | None, _: object) -> dict[str, Any]:
        try:
            tool: str = given["tool_name"]
            if not tool.startswith(self._prefix):
                return {}
            name = tool.removeprefix(self._prefix)
            question = await self.gate_tools.question(name, given["tool_input"], tool_use_id or "")
        except Exception as error:
            return _decision("deny", f"DECISION_FAILED: {type(error).__name__} in the guard")
        return {} if question is None else _decision("ask", question.why)

    def _tool(self, one: Offered) -> Any:
        async def handler(arguments: dict[str, Any]) -> dict[str, Any]:
            call_id, yes = self._answer(one.name, arguments)
            outcome = await self.gate_tools.call(one.name, arguments, call_id=call_id, yes=yes)
            return {"content": [{"type": "text", "text": outcome.text}], "is_error": not outcome.ok}

        return SdkMcpTool(name=one.name, description=one.description, input_schema=dict(one.schema), handler=handler)

    def _answer(self, name: str, arguments: object) -> tuple[str, bool | None]:
        """The id of an approved call, and True; Claude Code passes no id on to a tool."""
        wanted = name, _digest(arguments)
        for approved in tuple(self._approved):
            if approved[:2] == wanted:
                self._approved.remove(approved)
                return approved[2], True
        return "", None


def tools(gate: BareGate, *, session: str | Session, by: str = "framework", server: str = "licet") -> ClaudeTools:
    """The tools that this agent may call. `server` names their MCP server; `by` is recorded as who approves calls."""
    return ClaudeTools(GateTools(gate, session, by, asks=False), server)


def _decision(decision: str, reason: str) -> dict[str, Any]:
    output = {"hookEventName": "PreToolUse", "permissionDecision": decision, "permissionDecisionReason": reason}
    return {"hookSpecificOutput": output}


def _digest(arguments: object) -> str:
    return data_digest(json.loads(plain_json(arguments)))


def taken(given: object) -> Foreign:
    """A tool that was written for claude-agent-sdk, as `governed` needs it."""
    if not isinstance(given, SdkMcpTool):
        raise TypeError(f"expected a tool of claude-agent-sdk, found {type(given).__name__}")

    async def run(arguments: dict[str, Any]) -> Any:
        answer = await given.handler(arguments)
        blocks = answer.get("content", [])
        text = "\n".join(block.get("text", "") for block in blocks if block.get("type") == "text")
        if answer.get("is_error"):
            raise RuntimeError(text)
        return text if all(block.get("type") == "text" for block in blocks) else blocks

    return Foreign(given.name, given.description, _schema(given.input_schema), run)


def _schema(given: Any) -> Mapping[str, Any]:
    """The JSON Schema of a tool: it may be written as one, as names with types, or as a TypedDict."""
    if isinstance(given, Mapping) and (isinstance(given.get("type"), str) or "properties" in given):
        return given
    from pydantic import TypeAdapter, create_model

    if isinstance(given, Mapping):
        fields: dict[str, Any] = {name: (kind, ...) for name, kind in given.items()}
        return dict(create_model("Arguments", **fields).model_json_schema())
    get_type_hints(given)  # raises where a name in it is not defined
    return TypeAdapter(given).json_schema()
