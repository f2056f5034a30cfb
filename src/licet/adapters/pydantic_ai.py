"""Tools for pydantic-ai: `Agent(model, tools=tools(gate, session="s-42"), output_type=[str, DeferredToolRequests])`.

A call that asks raises `ApprovalRequired`, so the run ends with `DeferredToolRequests`, whose `metadata` has the
question. An approved call is made again by the framework, with `tool_call_approved` in its context.

For policies with `flow:`, `Agent(…, capabilities=[hears(tools)])` adds the prompt of each run to the task. It is for
the agent that a person talks to: a model writes the prompts of sub-agents. Without it or `tools.say` there is no task.
"""

from contextvars import ContextVar
from typing import Any

from pydantic_ai import ApprovalRequired, RunContext, Tool
from pydantic_ai.capabilities import AbstractCapability
from pydantic_ai.tools import ToolDefinition

from licet.adapters.foreign import Foreign
from licet.adapters.framework_calls import FRAMEWORK_CONTEXT, GateTools, Offered, Tools
from licet.guard.gate import BareGate
from licet.guard.session import Session


def tools(gate: BareGate, *, session: str | Session, by: str = "framework") -> Tools[Any]:
    """The tools that this agent may call, for `Agent(tools=…)`. `by` is recorded as who approves calls."""
    made = GateTools(gate, session, by)
    return Tools([_tool(made, one) for one in made.offered(checked=False)], made)


_RUNNING: ContextVar[bool] = ContextVar("_RUNNING", default=False)  # whether a run that is heard goes on


class Hears(AbstractCapability[Any]):  # type: ignore[misc] # the framework is not installed where types are checked
    """Hears the prompt that a run was begun with."""

    def __init__(self, tools: Tools[Any]) -> None:
        self._tools = tools

    async def wrap_run(self, ctx: Any, *, handler: Any) -> Any:
        """Add the prompt to the task. A run inside of another has the words of a model.

        Later on, the framework takes a prompt out of the history if the run has none of its own.
        """
        prompt = ctx.prompt
        if isinstance(prompt, list | tuple):
            prompt = "\n".join(part for part in prompt if isinstance(part, str))
        self._tools.gate_tools.hear(None if _RUNNING.get() else prompt, history=bool(ctx.messages))
        before = _RUNNING.set(True)
        try:
            return await handler()
        finally:
            _RUNNING.reset(before)


def hears(tools: Tools[Any]) -> Hears:
    """What adds the prompts of an agent to the task, for `Agent(capabilities=[…])`: its own, none of the history."""
    return Hears(tools)


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
        return definition if await made.is_offered(one.name) else None

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
