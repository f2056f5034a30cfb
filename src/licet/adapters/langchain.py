"""Tools for langchain and langgraph: `create_agent(model, tools=tools(gate, session="s-42"), checkpointer=…)`.

A call that asks in a graph calls `interrupt()`, with the question as its value. `Command(resume=approve(question))`
or `deny(question)` answers it. The answer names its question: see `Answers`. Outside of a graph, the approver of the
gate is asked.

For policies with `flow:`, `agent.invoke(…, {"callbacks": [hears(tools)]})` adds the input of a run to the task, if it
is one message of a person. Of several messages, the framework does not say which is new: then `tools.say` says it.
Without either there is no task.
"""

from collections.abc import Mapping
from contextvars import ContextVar
from typing import Any

from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.runnables.config import var_child_runnable_config
from langchain_core.tools import BaseTool, StructuredTool, ToolException

from licet.adapters.approver import Pending
from licet.adapters.foreign import Foreign
from licet.adapters.framework_calls import GateTools, Offered, Outcome, T, Tools
from licet.adapters.limits import MOST_OUTCOMES
from licet.guard.gate import BareGate
from licet.guard.session import Session

_SCRATCHPAD = "__pregel_scratchpad"  # in the configuration of a task that can be interrupted

# The id and the arguments of the running call. The arguments do not come as parameters of the function: the framework
# would replace those that are called `config` or `run_manager`.
_SENT: ContextVar[tuple[str, object]] = ContextVar("_SENT", default=("", None))


def tools(gate: BareGate, *, session: str | Session, by: str = "framework") -> Tools[Any]:
    """The tools that this agent may call, for `create_agent` or `ToolNode`. `by` is recorded as who approves calls."""
    made = GateTools(gate, session, by)
    answers = Answers()
    return Tools([_tool(made, one, answers) for one in made.offered()], made)


def approve(question: Mapping[str, Any]) -> dict[str, Any]:
    """The answer that approves one call, for `Command(resume=…)`; `question` is the value of the interrupt."""
    return {"question": question["question"], "approve": True}


def deny(question: Mapping[str, Any]) -> dict[str, Any]:
    """The answer that denies one call."""
    return {"question": question["question"], "approve": False}


class Hears(BaseCallbackHandler):  # type: ignore[misc] # the framework is not installed where types are checked
    """Hears the input that a run was begun with."""

    run_inline = True  # before the run goes on

    def __init__(self, tools: Tools[Any]) -> None:
        self._tools = tools

    def on_chain_start(
        self, serialized: Any, inputs: Any, *, run_id: Any, parent_run_id: Any = None, **more: Any
    ) -> None:
        """Add the input to the task. A run inside of another has the words of a model, or the state of a graph."""
        # langgraph before 1.2 does not tell a run with callbacks of its own that it is inside of another.
        is_inside = parent_run_id is not None or var_child_runnable_config.get() is not None
        given = inputs.get("messages") if isinstance(inputs, Mapping) else None
        if not is_inside and given is not None:
            every = given if isinstance(given, list) else [given]
            words = _words(every[0]) if len(every) == 1 else None
            self._tools.gate_tools.hear(words, history=len(every) > 1)


def hears(tools: Tools[Any]) -> Hears:
    """What adds the input of a run to the task, for `{"callbacks": […]}` of the runs that a person begins."""
    return Hears(tools)


def _words(message: Any) -> object:
    """The text of a message of a person; None for any other, and for summaries, which a model has written."""
    match message:
        case str():
            return message
        case ("user" | "human", str(text)) | {"role": "user" | "human", "content": str(text)}:
            return text
        case _ if getattr(message, "type", "") == "human" and "lc_source" not in message.additional_kwargs:
            return message.text if isinstance(message.text, str) else None
        case _:
            return None


class GateTool(StructuredTool):  # type: ignore[misc] # the framework is not installed where types are checked
    """A tool of a gate. It knows the id of the call that it is run for."""

    def run(self, tool_input: object, *args: object, tool_call_id: str | None = None, **kwargs: object) -> Any:
        """Run the tool for one call."""
        before = _SENT.set((tool_call_id or "", tool_input))
        try:
            return super().run(tool_input, *args, tool_call_id=tool_call_id, **kwargs)
        finally:
            _SENT.reset(before)

    async def arun(self, tool_input: object, *args: object, tool_call_id: str | None = None, **kwargs: object) -> Any:
        """Run the tool for one call."""
        before = _SENT.set((tool_call_id or "", tool_input))
        try:
            return await super().arun(tool_input, *args, tool_call_id=tool_call_id, **kwargs)
        finally:
            _SENT.reset(before)


class Answers:
    """What was answered and done in the steps of a graph that run again.

    langgraph runs an interrupted step again from its start. It gives the answers to the calls of that step by their
    order, and parallel calls have none. So an answer that names another question is kept for that one, and an approved
    call that has run gets its outcome again and is not made twice.
    """

    def __init__(self) -> None:
        self._heard: dict[str, object] = {}
        self._done: dict[str, Outcome] = {}

    def outcome(self, question: Pending) -> Outcome | None:
        """The outcome of the call, if it has run already."""
        return self._done.get(question.key)

    def answer(self, question: Pending) -> bool | None:
        """Ask in the graph: this raises its interrupt at first, and returns the answer when the graph goes on."""
        from langgraph.types import interrupt

        while question.key not in self._heard:
            answer = interrupt({**question.shown(), "question": question.key})
            named = answer.get("question") if isinstance(answer, Mapping) else None
            if not isinstance(named, str):
                return None
            _keep(self._heard, named, answer.get("approve"))
        yes = self._heard.pop(question.key, None)
        return yes if isinstance(yes, bool) else None

    def finish(self, question: Pending, outcome: Outcome) -> Outcome:
        """Keep the outcome of an approved call."""
        if outcome.ok:
            _keep(self._done, question.key, outcome)
        return outcome


def _keep(kept: dict[str, T], key: str, value: T) -> None:
    kept[key] = value
    while len(kept) > MOST_OUTCOMES:
        kept.pop(next(iter(kept)), None)


def _tool(made: GateTools, one: Offered, answers: Answers) -> Any:
    def call(**_: object) -> str:
        call_id, arguments = _SENT.get()
        outcome = made.call_blocking(one.name, arguments, call_id=call_id, asks=_is_in_graph())
        if (question := outcome.question) is not None:
            if (done := answers.outcome(question)) is not None:
                return _text(done)
            yes = answers.answer(question)
            again = made.call_blocking(one.name, arguments, call_id=call_id, yes=yes)
            outcome = answers.finish(question, again)
        return _text(outcome)

    async def acall(**_: object) -> str:
        call_id, arguments = _SENT.get()
        outcome = await made.call(one.name, arguments, call_id=call_id, asks=_is_in_graph())
        if (question := outcome.question) is not None:
            if (done := answers.outcome(question)) is not None:
                return _text(done)
            yes = answers.answer(question)
            again = await made.call(one.name, arguments, call_id=call_id, yes=yes)
            outcome = answers.finish(question, again)
        return _text(outcome)

    return GateTool(
        name=one.name,
        description=one.description,
        args_schema=dict(one.schema),
        func=call,
        coroutine=acall,
        handle_tool_error=True,  # a refusal is a message with the status `error`
    )


def _is_in_graph() -> bool:
    try:
        from langgraph.config import get_config

        return _SCRATCHPAD in get_config().get("configurable", {})
    except (ImportError, RuntimeError):  # langchain without langgraph, or a call outside of any run
        return False


def _text(outcome: Outcome) -> str:
    if not outcome.ok:
        raise ToolException(outcome.text)
    return outcome.text


def taken(given: object) -> Foreign:
    """A tool that was written for langchain, as `governed` needs it."""
    if not isinstance(given, BaseTool):
        raise TypeError(f"expected a tool of langchain, found {type(given).__name__}")
    schema = given.tool_call_schema
    data = dict(schema) if isinstance(schema, Mapping) else schema.model_json_schema()
    if given.return_direct:
        raise TypeError(f"`{given.name}` has `return_direct`, which would be lost")
    injected = set(given.get_input_schema().model_fields) - set(data.get("properties", {}))
    if injected:
        raise TypeError(f"`{given.name}` takes `{min(injected)}` from the graph, which a gate cannot pass on")

    async def run(arguments: dict[str, Any]) -> Any:
        return await given.ainvoke(arguments)

    return Foreign(given.name, given.description, data, run)
