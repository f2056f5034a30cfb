"""The peers of a complete governed call, each around the same tool that does nothing, with everything in memory.

Each does what licet does: check the arguments, decide, store an event, run the tool. If a peer can leave out a part,
its name says so. Logging and unread metrics are off.
"""

import logging
import tempfile
import warnings
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from msgspec import Struct

from benchmarks.peers import load

__all__ = ["ALLOWED", "DENIED", "PEERS", "Way", "noop", "ran"]

ALLOWED, DENIED = "noop", "forbidden"
AGENT = "bench"
LONGEST_HISTORY = 50

ran: list[str] = []  # the arguments of every tool call here, as proof that it ran


async def noop(city: str) -> None:
    """Do nothing."""
    ran.append(city)


async def forbidden(city: str) -> None:
    """Never run: no policy here names it."""
    ran.append(city)


TOOLS: dict[str, Callable[..., Coroutine[Any, Any, None]]] = {ALLOWED: noop, DENIED: forbidden}


class Way(Struct, frozen=True):
    """One way to call a tool by name: `value` reads its result, or raises `refusal`."""

    call: Callable[[str, dict[str, Any]], Coroutine[Any, Any, Any]]
    forget: Callable[[], None] = lambda: None
    value: Callable[[Any], Any] = lambda outcome: outcome
    refusal: type[Exception] = PermissionError


# agent-governance-toolkit --------------------------------------------------------------------------------------------


def _toolkit(module: str) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it warns at each import that its parts were renamed
        loaded = load(module)
    for name in ("agent_os", "agent_control_plane", "FlightRecorder"):
        logging.getLogger(name).setLevel(logging.CRITICAL + 1)
    return loaded


def toolkit_gateway(place: Path) -> Way:
    """Its MCP gateway: allow list, dangerous patterns in the arguments, call budget, audit entry; then the tool."""
    return _gateway(answers=False)


def toolkit_gateway_both_ways(place: Path) -> Way:
    """The same, and the answer of the tool goes back through the gateway too."""
    return _gateway(answers=True)


def _gateway(*, answers: bool) -> Way:
    gateways, metrics = _toolkit("agent_os.mcp_gateway"), _toolkit("agent_os._mcp_metrics")
    policy = gateways.GovernancePolicy(allowed_tools=[ALLOWED], max_tool_calls=10**9, log_all_calls=False)
    sink = gateways.InMemoryAuditSink()
    gateway = gateways.MCPGateway(policy, audit_sink=sink, metrics=metrics.NoOpMCPMetrics())
    intercept, intercept_answer = gateway.intercept_tool_call, gateway.intercept_tool_response

    async def call(name: str, given: dict[str, Any]) -> Any:  # the gateway only decides: its caller runs the tool
        allowed, reason = intercept(AGENT, name, given)
        if not allowed:
            raise PermissionError(reason)
        value = await TOOLS[name](**given)
        if answers and not (judged := intercept_answer(AGENT, name, value)).allowed:
            raise PermissionError(judged.reason)
        return value

    def forget() -> None:
        gateway._audit_log.clear()
        sink._entries.clear()

    return Way(call, forget)


def toolkit_stateless_kernel(place: Path) -> Way:
    """Its stateless kernel, under the two kinds of policy of its documentation: blocked actions, and no personal data.

    Its events are a history, which it returns with each answer and which the next request contains.
    """
    kernel, fresh = _stateless()
    context = fresh

    async def call(name: str, given: dict[str, Any]) -> Any:
        nonlocal context
        if len(context.history) == LONGEST_HISTORY:  # the history is copied in each call, so a long one would be slow
            context = fresh
        outcome = await kernel.execute(name, given, context)
        context = outcome.updated_context or context
        return outcome

    return Way(call, value=_stateless_value)


def toolkit_stateless_kernel_without_event(place: Path) -> Way:
    """The same, without keeping the history."""
    kernel, context = _stateless()

    def call(name: str, given: dict[str, Any]) -> Coroutine[Any, Any, Any]:
        return kernel.execute(name, given, context)

    return Way(call, value=_stateless_value)


def _stateless() -> tuple[Any, Any]:
    stateless = _toolkit("agent_os.stateless")

    async def act(self: Any, action: str, params: dict[str, Any], state: dict[str, Any]) -> dict[str, Any]:
        return {"data": await TOOLS[action](**params)}  # its stub for running an action has to be replaced

    kernel_type = type("Kernel", (stateless.StatelessKernel,), {"_execute_action": act})
    kernel = kernel_type(policies={"tools": {"blocked_actions": [DENIED]}})
    return kernel, stateless.ExecutionContext(AGENT, ["tools", "no_pii"])


def _stateless_value(outcome: Any) -> Any:
    return _value(outcome, outcome.data, outcome.error)


def toolkit_kernel(place: Path) -> Way:
    """Its kernel: a system call through the policy engine and the flight recorder, with its default batching."""
    recorders = _toolkit("agent_control_plane.flight_recorder")
    with tempfile.NamedTemporaryFile(dir=place, suffix=".db", delete=False) as file:
        return _kernel(recorders.FlightRecorder(file.name))


def toolkit_kernel_without_event(place: Path) -> Way:
    """Its kernel without a flight recorder: it decides and runs the tool, and stores nothing."""
    return _kernel(None)


def _kernel(recorder: Any) -> Way:
    kernels, policies = _toolkit("agent_control_plane.kernel_space"), _toolkit("agent_control_plane.policy_engine")
    engine = policies.PolicyEngine()
    engine.add_constraint(AGENT, [ALLOWED])
    kernel = kernels.KernelSpace(policy_engine=engine, flight_recorder=recorder)
    for name, function in TOOLS.items():
        kernel.register_tool(name, function)
    agent, request, execute = kernel.create_agent_context(AGENT), kernels.SyscallRequest, kernels.SyscallType.SYS_EXEC

    def call(name: str, given: dict[str, Any]) -> Coroutine[Any, Any, Any]:
        return kernel.syscall(request(execute, {"tool": name, "args": given}), agent)

    def value(outcome: Any) -> Any:
        return _value(outcome, outcome.return_value, outcome.error_message)

    return Way(call, value=value, refusal=_toolkit("agent_control_plane.signals").AgentKernelPanic)


def _value(outcome: Any, value: Any, error: str | None) -> Any:
    if outcome.success:
        return value
    raise PermissionError(error)


# Others --------------------------------------------------------------------------------------------------------------


def tenuo_guard(place: Path) -> Way:
    """tenuo: `@guard` with a warrant, a key and a trusted root given beforehand; audit events go to a list."""
    tenuo, audit, exceptions = load("tenuo"), load("tenuo.audit"), load("tenuo.exceptions")
    key = tenuo.SigningKey.generate()
    warrant = tenuo.Warrant.issue(key, {ALLOWED: {"city": tenuo.Pattern("*")}}, 3600, key.public_key)
    events: list[Any] = []
    audit.audit_logger.configure(handler=events.append)
    guarded = {
        name: tenuo.guard(warrant, tool=name, keypair=key, trusted_roots=[key.public_key])(function)
        for name, function in TOOLS.items()
    }

    async def call(name: str, given: dict[str, Any]) -> Any:
        return await guarded[name](**given)

    return Way(call, events.clear, refusal=exceptions.ToolNotAuthorized)


def fastmcp_middleware(place: Path) -> Way:
    """FastMCP: `call_tool` on the server itself, without client or transport; its middleware looks up and logs."""
    fastmcp, middlewares, exceptions = (
        load("fastmcp"),
        load("fastmcp.server.middleware"),
        load("fastmcp.exceptions"),
    )
    allowed, events = frozenset({ALLOWED}), []

    async def on_call_tool(self: Any, context: Any, call_next: Callable[[Any], Any]) -> Any:
        name = context.message.name
        if name not in allowed:
            raise exceptions.ToolError(name)
        events.append((name, "granted"))
        return await call_next(context)

    guard = type("Guard", (middlewares.Middleware,), {"on_call_tool": on_call_tool})
    server = fastmcp.FastMCP("bench", middleware=[guard()])
    for name, function in TOOLS.items():
        server.tool(function, name=name)
    call: Callable[[str, dict[str, Any]], Coroutine[Any, Any, Any]] = server.call_tool
    return Way(call, events.clear, lambda outcome: outcome.structured_content, exceptions.ToolError)


PEERS: dict[str, Callable[[Path], Way]] = {
    "toolkit: MCP gateway": toolkit_gateway,
    "toolkit: gateway, both ways": toolkit_gateway_both_ways,
    "toolkit: stateless kernel": toolkit_stateless_kernel,
    "toolkit: stateless, no event": toolkit_stateless_kernel_without_event,
    "toolkit: kernel, recording": toolkit_kernel,
    "toolkit: kernel, no event": toolkit_kernel_without_event,
    "tenuo guard": tenuo_guard,
    "FastMCP, one middleware": fastmcp_middleware,
}
