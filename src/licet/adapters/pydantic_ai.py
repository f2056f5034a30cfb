"""Tools for pydantic-ai: `Agent(model, tools=tools(gate, session="s-42"), output_type=[str, DeferredToolRequests])`.

A call that asks raises `ApprovalRequired`, so the run ends with `DeferredToolRequests`, whose `metadata` has the
question. An approved call is made again by the framework, with `tool_call_approved` in its context.
"""

from typing import Any

from pydantic_ai import ApprovalRequired, RunContext, Tool
from pydantic_ai.tools import ToolDefinition

from licet.adapters.foreign import Foreign
from licet.adapters.framework_calls import FRAMEWORK_CONTEXT, GateTools, Offered, Tools
from licet.guard.gate import BareGate
from licet.guard.session import Session


def tools(gate: BareGate, *, session: str | Session, by: str = "framework") -> Tools[Any]:
    """The tools that this agent may call, for `Agent(tools=…)`. `by` is recorded as who approves calls."""
    made = GateTools(gate, session, by)
    return Tools([_tool(made, one) for one in made.offered()], made)


def _tool(made: GateTools, one: Offered) -> Any:
    async def call(context: Any, /, **arguments: object) -> str:
        outcome = await made.call(
            one.name,
            arguments,
            call_id=context.tool_call_id or "",
            yes=context.tool_call_approved or None,
            context=context,
        )
        if outcome.question is not None:
            raise ApprovalRequired(metadata=outcome.question.shown())
        return outcome.text

    async def prepare(_: object, definition: ToolDefinition) -> ToolDefinition | None:
        return definition if made.is_ready(one.name) else None

    tool = Tool.from_schema(call, one.name, one.description, dict(one.schema), takes_ctx=True)
    tool.prepare = prepare
    return tool


def taken(given: Any) -> Foreign:
    """A tool that was written for pydantic-ai, as `governed` needs it."""
    lost = [name for name in ("requires_approval", "prepare", "args_validator") if getattr(given, name, None)]
    if lost:
        raise TypeError(f"`{given.name}` has `{lost[0]}`, which would be lost: state it in the manifest instead")
    schema = given.function_schema

    async def run(arguments: dict[str, Any]) -> Any:
        context = FRAMEWORK_CONTEXT.get()
        if given.takes_ctx and not isinstance(context, RunContext):
            raise TypeError(f"`{given.name}` takes a RunContext: call it through pydantic-ai")
        return await schema.call(schema.validator.validate_python(arguments), context)

    return Foreign(given.name, given.description or "", schema.json_schema, run)
