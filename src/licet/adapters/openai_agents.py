"""Tools for openai-agents: `Agent(name="desk", tools=tools(gate, session="s-42"))`.

A call that asks needs approval in the framework: the run stops with `interruptions`, and `RunState.approve` lets it go
on. Only an approval of that one call counts. `always_approve` says nothing about the arguments of later calls, so these
are refused if the policy asks about them.

For policies with `flow:`, `Runner.run(agent, input, hooks=hears(tools))` adds the input of a run to the task, if it is
one message. It is for runs that a person begins: a model writes the input of sub-agents. The framework does not say
which message of a list is new, nor does it with a `session=` that has a history: then `tools.say` says it. Without
either there is no task.
"""

import json
from typing import Any

from agents import FunctionTool, RunHooks
from agents.tool_context import ToolContext

from licet.adapters.foreign import Foreign
from licet.adapters.framework_calls import FRAMEWORK_CONTEXT, GateTools, Offered, Tools
from licet.guard.gate import BareGate
from licet.guard.session import Session

# Settings that a tool of the framework may have, each with its default.
_OWN_GUARDS = {
    "tool_input_guardrails": None,
    "tool_output_guardrails": None,
    "needs_approval": False,
    "is_enabled": True,
    "timeout_seconds": None,
}


def tools(gate: BareGate, *, session: str | Session, by: str = "framework") -> Tools[Any]:
    """The tools that this agent may call, for `Agent(tools=…)`. `by` is recorded as who approves calls."""
    made = GateTools(gate, session, by)
    return Tools([_tool(made, one) for one in made.offered(checked=False)], made)


class Hears(RunHooks):  # type: ignore[misc] # the framework is not installed where types are checked
    """Hears the input that a run was begun with."""

    def __init__(self, tools: Tools[Any]) -> None:
        self._tools = tools

    async def on_agent_start(self, context: Any, agent: Any) -> None:
        """Add the input to the task, before the model is asked for the first time."""
        if context.usage.requests or context.tool_input is not None:  # a hand-off, or an agent as a tool
            return
        given = context.turn_input
        [one] = given if len(given) == 1 else [{}]
        is_user = one.get("role") == "user" and one.get("type", "message") == "message"
        self._tools.gate_tools.hear(_text(one.get("content")) if is_user else None, history=len(given) > 1)


def hears(tools: Tools[Any]) -> Hears:
    """What adds the input of a run to the task, for `Runner.run(hooks=…)`: for the runs that a person begins."""
    return Hears(tools)


def _text(content: Any) -> str | None:
    """The text of a message; None if it has anything else."""
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else [None]
    texts = [
        part.get("text") if isinstance(part, dict) and part.get("type") == "input_text" else None for part in parts
    ]
    return "\n".join(text for text in texts if text) if all(isinstance(text, str) for text in texts) else None


def _tool(made: GateTools, one: Offered) -> Any:
    async def invoke(context: Any, arguments: str) -> str:
        yes = context.is_tool_approved(context.tool_name, context.tool_call_id) or None
        outcome = await made.call(one.name, arguments, call_id=context.tool_call_id, yes=yes, context=context)
        return outcome.text

    async def needs_approval(_: object, arguments: dict[str, Any], call_id: str) -> bool:
        try:
            return await made.question(one.name, arguments, call_id) is not None
        except Exception:
            return True  # the call itself then fails too, and is refused

    async def is_enabled(*_: object) -> bool:
        return await made.is_offered(one.name)

    return FunctionTool(
        name=one.name,
        description=one.description,
        params_json_schema=dict(one.schema),
        on_invoke_tool=invoke,
        strict_json_schema=False,
        is_enabled=is_enabled,
        needs_approval=needs_approval,
    )


def taken(given: object) -> Foreign:
    """A tool that was written for openai-agents, as `governed` needs it."""
    if not isinstance(given, FunctionTool):
        raise TypeError(f"expected a FunctionTool, found {type(given).__name__}: it runs elsewhere, out of reach")
    lost = [name for name, nothing in _OWN_GUARDS.items() if getattr(given, name, None) not in (nothing, None, [])]
    if lost:
        raise TypeError(f"`{given.name}` has `{lost[0]}`, which would be lost: state it in the manifest instead")

    async def run(arguments: dict[str, Any]) -> Any:
        context = FRAMEWORK_CONTEXT.get()
        if not isinstance(context, ToolContext):
            raise TypeError(f"`{given.name}` takes a ToolContext: call it through openai-agents")
        return await given.on_invoke_tool(context, json.dumps(arguments))

    return Foreign(given.name, given.description, given.params_json_schema, run)
