"""Tools for openai-agents: `Agent(name="desk", tools=tools(gate, session="s-42"))`.

A call that asks needs approval in the framework: the run stops with `interruptions`, and `RunState.approve` lets it go
on. Only an approval of that one call counts. `always_approve` says nothing about the arguments of later calls, so these
are refused if the policy asks about them.
"""

import json
from typing import Any

from agents import FunctionTool
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
    return Tools([_tool(made, one) for one in made.offered()], made)


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
        return made.is_ready(one.name)

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
