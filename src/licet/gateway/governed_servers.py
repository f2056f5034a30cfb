"""The servers of one session, behind the gate.

Every tool call, every resource that is read and every prompt that is used is a call of the gate, and `AsksServers` is
its step "run": the server is asked, and its result is cleaned before anybody sees it. Links to resources that the agent
may not read are removed, structured content must fit the locked schema, and hidden characters are noted, or written
visibly. Everything else stays as it came.

The connection of a client is one session with one memory. The policy says whether the client may say the task.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from contextvars import ContextVar
from functools import lru_cache, partial
from typing import Any, Literal

import msgspec

from licet.core.decision.fixes import call_denials
from licet.core.decision.request import Ground
from licet.core.ledger.entry import Caller
from licet.core.policy.layer import Level
from licet.core.policy.lock import Definition, LockedServer, NamedPlaces, hidden_in, shown
from licet.core.policy.servers import PROMPTS, RESOURCES, Server, tool_parts
from licet.declare import Tool
from licet.declare.check_cost import patiently
from licet.declare.json_schema import NO_FIT, TOO_LONG, SchemaCheck
from licet.declare.plain_json import is_heavy, json_core
from licet.gateway.catalog import ShownLists, before_variables, error_result, own_result, too_long
from licet.gateway.client import CALLER, Client, ClientCall, Refusal
from licet.gateway.limits import (
    ENVELOPE_BYTES,
    GRACE_SECONDS,
    LONGEST_CLAIM,
    LONGEST_TASK,
    SETTING_SECONDS,
)
from licet.gateway.observation import OBSERVED, Observing, closing_lines
from licet.gateway.own_tools import OwnTools
from licet.gateway.policy_changes import PolicyChanges
from licet.gateway.questions import ServerMessages
from licet.gateway.running_server import NotRunning, RunningServer, ServerCall, ServerTool
from licet.guard.bind import parts_of
from licet.guard.call import CallAdmission
from licet.guard.execution import (
    FailedText,
    JsonText,
    Layers,
    LayersOfTools,
    Raised,
    Sandbox,
    Stopped,
    ToolCall,
    Walls,
)
from licet.guard.facts import Call
from licet.guard.grant import Grant
from licet.guard.limits import OUTPUT_KB
from licet.guard.registration import Registered, RegisteredTools
from licet.guard.result import Result, refusal_line
from licet.guard.session import Session, refuse_call
from licet.mcp.content import passed
from licet.mcp.exchange import TimedOut, UpstreamError, quoted
from licet.mcp.link import Gone
from licet.mcp.protocol import VERSIONS, Claims, find
from licet.mcp.shown_names import Naming
from licet.mcp.upstream import Era, era_of

Note = Callable[[str], None]
_RESULT = ("resultType", "ttlMs", "cacheScope", "_meta")  # of the protocol; the connection writes its own


async def checked_result(
    method: str, text: bytes, data: dict[str, Any], server: Server, definition: Definition, hidden: str, note: Note
) -> JsonText:
    """The JSON of a result as the client will get it. Raises `Stopped` if it does not fit the locked schema."""
    changed = {key: value for key, value in data.items() if key in _known_keys(method)}
    if dropped := sorted(data.keys() - changed.keys() - set(_RESULT)):
        note(f"keys of the result that are not in the protocol were left out: {', '.join(dropped)[:200]}")
    if method == "tools/call":
        changed["content"] = passed("blocks", _content(changed.get("content", []), server, note), note)
        await _check_structured(changed, definition, note)
    elif method == "resources/read":
        contents = [one for one in _listed(changed.get("contents")) if _may_read(one, server, note)]
        changed["contents"] = passed("contents", contents, note)
    elif method == "prompts/get":
        messages = [_message(one, server, note) for one in _listed(changed.get("messages"))]
        changed["messages"] = passed("message", messages, note)
    elif method == "completion/complete" and "completion" in changed:
        changed["completion"] = passed("completion", changed["completion"], note)
    if found := hidden_in(changed):
        note(f"hidden characters in the result: {', '.join(found[:20])}")
        if hidden == "show":
            changed = await asyncio.to_thread(shown, changed)  # a megabyte takes a third of a second
    made = text if changed == data else msgspec.json.encode(changed)
    return FailedText(made) if method == "tools/call" and changed.get("isError") is True else JsonText(made)


def cut_result(value: object, line: str) -> dict[str, Any]:
    """The result of a tool that returned too much: the texts at its beginning, as text, and a line about the rest.

    `value` is the beginning of its JSON. A block that is no text, or does not begin in it, is left out.
    """
    try:
        text = value.encode() if isinstance(value, str) else b""
        found = {} if is_heavy(text) else json_core().from_json(text, allow_partial="trailing-strings")
    except ValueError:
        found = {}
    blocks = _listed(found.get("content")) if isinstance(found, dict) else []
    texts = [one["text"] for one in blocks if isinstance(one, dict) and one.get("type") == "text" and "text" in one]
    content = [{"type": "text", "text": one} for one in texts if isinstance(one, str)]
    return {"content": [*content, {"type": "text", "text": line}], "isError": True}


def _known_keys(method: str) -> frozenset[str]:
    row = find(method, "request", "client", VERSIONS[-1])
    return row.result if row is not None else frozenset()


def _listed(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def _content(value: object, server: Server, note: Note) -> list[object]:
    return [_block(one, server, note) for one in _listed(value)]


def _message(value: object, server: Server, note: Note) -> object:
    if not isinstance(value, dict):
        return value
    content = value.get("content")
    if isinstance(content, list):
        return {**value, "content": _content(content, server, note)}
    return {**value, "content": _block(content, server, note)} if isinstance(content, dict) else value


def _block(block: object, server: Server, note: Note) -> object:
    """One block of content; a text takes the place of a link to a resource that may not be read."""
    if not isinstance(block, dict) or block.get("type") not in ("resource", "resource_link"):
        return block
    about = block.get("resource") if block["type"] == "resource" else block
    uri = about.get("uri") if isinstance(about, Mapping) else None
    if isinstance(uri, str) and server.shows_resource(uri):
        return block
    note(f"a link to a resource was removed: {str(uri)[:200]}")
    return {"type": "text", "text": f"[removed: a resource that `servers.{server.name}.resources` does not list]"}


def _may_read(content: object, server: Server, note: Note) -> bool:
    uri = content.get("uri") if isinstance(content, Mapping) else None
    if isinstance(uri, str) and server.shows_resource(uri):
        return True
    note(f"contents of another resource were removed: {str(uri)[:200]}")
    return False


async def _check_structured(result: dict[str, Any], definition: Definition, note: Note) -> None:
    schema, failed = definition.get("outputSchema"), result.get("isError") is True
    if not isinstance(schema, dict) or (failed and "structuredContent" not in result):
        return
    if "structuredContent" not in result:
        raise Stopped("TOOL_CRASHED", "the server's result has no structured content, which its locked schema demands")
    check = _compiled(msgspec.json.encode(schema, order="sorted"))
    wrong = await patiently(check.wrong_with, result["structuredContent"])
    if wrong and failed:
        del result["structuredContent"]
        note("structured content of an error, which does not fit the locked schema, was left out")
    elif wrong in (NO_FIT, TOO_LONG):
        raise Stopped("TOOL_CRASHED", f"the server's structured content {wrong}")
    elif wrong:
        raise Stopped(
            "TOOL_CRASHED", f"the server's structured content does not fit its locked schema: {quoted(wrong)}"
        )


@lru_cache(maxsize=1000)
def _compiled(schema: bytes) -> SchemaCheck:
    return SchemaCheck(msgspec.json.decode(schema))


Wanted = tuple[str, dict[str, Any]] | None  # a method and its parameters; None for a plain tool call

# What is asked of a server for the request that the current task works on.
_WANTED: ContextVar[Wanted] = ContextVar("licet_gateway_wanted", default=None)


class GovernedServers:
    """The tools of the workspace, and the servers that one client reaches through the gate of a session."""

    policy_changes: PolicyChanges | None = None  # None: the policy stays as it is
    renamed: Callable[[Naming], None] = staticmethod(lambda names: None)  # told when tools get other shown names
    _is_over = False
    switching = False  # whether another policy is in force, and what stands behind it is not there yet

    def __init__(
        self,
        session: Session,
        servers: dict[str, Server],
        locked: Mapping[str, LockedServer],
        *,
        places: NamedPlaces,
        names: Naming,
        report: Callable[[str], None],
        may_know_root: Callable[[str, str], bool],
        observing: Observing | None = None,
    ) -> None:
        self.client = Client(lambda event: report(str(event)))
        self.running: dict[str, RunningServer] = {}
        self.lists = ShownLists(self._shown_policy, locked, places, all_listed=observing is not None)
        self.messages = ServerMessages(session, servers, self.running, self.client, may_know_root, report)
        self._gate, self._session, self._observing = session.gate, session, observing
        self._servers, self._report = servers, report
        self._ready: asyncio.Task[None] | None = None
        self._ending: asyncio.Task[None] | None = None  # of observing
        self._tasks: set[asyncio.Task[None]] = set()
        self._era: Era | Literal[""] = ""  # of the client
        self._said: set[str] = set()  # what the client said is the task
        self._tainted = ""  # why the model may have read text of others, as long as no policy asks
        self._names = names  # how tools are shown
        self._shown = self._gate.policy  # the last policy that could be used
        self._unshown: set[str] = set()  # the tools that a receipt says are not shown
        self._watching: asyncio.Task[None] | None = None  # for changes of the policy
        self._own_tools = OwnTools(session, self._show_available, self.offers_changed, report)

    def add(self, servers: Iterable[RunningServer]) -> None:
        """Take the servers; they are started when the client has said what it is."""
        self.running |= {one.server.name: one for one in servers}
        self.lists.running = self.running

    async def renew_tools(self) -> None:
        """See to it that the list of tools has those that can run here. Before it is shown."""
        await self._own_tools.renew()

    def _show_available(self, unavailable: Mapping[str, str]) -> None:
        self.lists.unavailable = unavailable

    @property
    def session(self) -> Session:
        """The session of the connection."""
        return self._session

    @property
    def servers(self) -> Mapping[str, Server]:
        """What the policy says of each server."""
        return self._servers

    async def renew(self) -> None:
        """See to it that the policy in force is what its files say. Before each request."""
        if self.policy_changes is not None and self.policy_changes.is_due():
            await self.policy_changes.settle()

    def switch(
        self,
        servers: Mapping[str, Server],
        locked: Mapping[str, LockedServer],
        running: Mapping[str, RunningServer],
        names: Naming,
    ) -> None:
        """Serve these servers from now on: another policy came into force.

        One that is not among the `running` any more is ended; what takes its place is started after that.
        """
        if self._tainted and self._gate.policy.flow is not None:
            self._session.remembering().taint(self._tainted)
            self._tainted = ""
        before = dict(self.running)
        self._servers.clear()
        self._servers.update(servers)
        self.running.clear()
        self.running.update(running)
        self.lists.use(locked)
        for name, old in before.items():
            if running.get(name) is not old:
                self._later(self._replace(old, running.get(name)))
        for name, one in running.items():
            resources = self._gate.policy.tools.get(f"{name}.{RESOURCES}")
            if resources is None or not resources.ready:
                self._later(one.drop_subscriptions())
            if name not in before and self._ready is not None:
                one.start(self._era)
        changed = self.lists.changes()
        if names != self._names:
            changed = ["tools", "prompts", *changed]
        self.renamed(names)
        self._names = names
        for kind in dict.fromkeys(changed):
            self.client.list_changed(kind)
        if self._ready is not None:
            self._later(self._note_unshown())

    async def _replace(self, old: RunningServer, new: RunningServer | None) -> None:
        await old.close()
        if self._is_over:  # the cancel of this task has ended the wait
            return
        if new is not None and self.running.get(new.server.name) is new:
            new.take_subscriptions(old)
            if self._ready is not None:
                new.start(self._era)

    def _shown_policy(self) -> RegisteredTools:
        """The policy whose tools a client is shown: the last one, while none is in force and calls are refused."""
        if self._observing is not None:
            return self._observing.instead
        if not self._gate.policy.unusable:
            self._shown = self._gate.policy
        return self._shown

    def offers_changed(self) -> None:
        """A server offers something else: the client is told of the lists that changed."""
        for kind in self.lists.changes():
            self.client.list_changed(kind)

    # Calls ------------------------------------------------------------------------------------------------------------

    async def call(self, tool: str, arguments: dict[str, Any], client: ClientCall) -> dict[str, Any]:
        """Call a tool through the gate. A refusal is a result that the model can act on."""
        is_own = tool.partition(".")[0] not in self.running
        result = await self._governed(tool, arguments, client, None)
        value, limit = result.value, self._output_limit(tool)
        if not result.ok and value is None:
            return error_result(refusal_line(result))
        if is_own:
            return own_result(value, cut=limit if result.truncated else "")
        return cut_result(value, limit) if result.truncated or not isinstance(value, dict) else value

    def _output_limit(self, tool: str) -> str:
        """What to say about a result that is too long."""
        registered = self._shown_policy().tools.get(tool)
        return too_long(registered.output_bytes if registered is not None else 0)

    async def unknown(self, name: str, arguments: dict[str, Any], behind: str = "") -> None:
        """Let the gate refuse and record a call of a tool, resource or prompt that the client was not shown.

        The receipt of a hidden tool has its name, and why it is hidden. The client is told neither.
        """
        if not behind and name in self._gate.policy.tools:  # by its full name, which no client is shown
            behind = name
        if not behind:
            await self._session.call(name, arguments)
            return
        server = behind.partition(".")[0]
        why = f"the server `{server}` does not offer it now, or it is shown under another name"
        await refuse_call(self._session, behind, arguments, Ground("TOOL_NOT_AVAILABLE", why))

    async def read(self, server: str, uri: str, client: ClientCall) -> dict[str, Any]:
        """Read a resource; it is a call of `SERVER.resources`."""
        return await self._read(server, RESOURCES, {"uri": uri}, client, ("resources/read", {"uri": uri}))

    async def prompt(self, server: str, name: str, arguments: dict[str, Any], client: ClientCall) -> dict[str, Any]:
        """Get a prompt; it is a call of `SERVER.prompts`."""
        wanted = {"name": name, **({"arguments": arguments} if arguments else {})}
        return await self._read(server, PROMPTS, wanted, client, ("prompts/get", wanted))

    async def complete(
        self, server: str, ref: dict[str, Any], argument: dict[str, Any], context: dict[str, Any], client: ClientCall
    ) -> dict[str, Any]:
        """Complete an argument; it is a call of the same tool as reading what it is about."""
        is_prompt = ref.get("type") == "ref/prompt"
        about = {"name": str(ref.get("name", ""))} if is_prompt else {"uri": str(ref.get("uri", ""))}
        params = {"ref": ref, "argument": argument, **({"context": context} if context else {})}
        wanted = ("completion/complete", params)
        return await self._read(server, PROMPTS if is_prompt else RESOURCES, about, client, wanted)

    async def subscribe(self, server: str, uri: str) -> None:
        """Ask a server for updates of a resource; it is a call of `SERVER.resources`, as reading it is."""
        await self._read(server, RESOURCES, {"uri": uri}, None, ("resources/subscribe", {"uri": uri}))

    async def unsubscribe(self, server: str, uri: str) -> None:
        """Ask for no more updates."""
        if server not in self.running:  # the policy has it no more
            return
        try:
            await self.running[server].unsubscribe(uri, seconds=SETTING_SECONDS)
        except (NotRunning, Gone, TimedOut, UpstreamError):
            return

    async def _read(
        self, server: str, tool: str, arguments: dict[str, Any], client: ClientCall | None, wanted: Wanted
    ) -> dict[str, Any]:
        method = wanted[0] if wanted is not None else ""
        if (why := self._unlisted(server, tool, arguments, method)) and self._observing is None:
            await refuse_call(self._session, f"{server}.{tool}", arguments, Ground("ARGUMENT_NOT_ALLOWED", why))
            raise Refusal("ARGUMENT_NOT_ALLOWED", f"ARGUMENT_NOT_ALLOWED: {why}")
        result = await self._governed(f"{server}.{tool}", arguments, client, wanted)
        if not result.ok:
            raise Refusal(result.reason, refusal_line(result))
        if result.truncated or not isinstance(result.value, dict):
            raise Refusal("LIMIT_OUTPUT", self._output_limit(f"{server}.{tool}"))
        return result.value

    def _unlisted(self, server: str, tool: str, arguments: dict[str, Any], method: str) -> str:
        """Why a resource or prompt may not be used, whatever the manifest admits; empty if it may.

        Only a template that the server offers has variables: in any other URI, a brace is an ordinary character.
        """
        name, terms = arguments.get("uri", arguments.get("name", "")), self._servers[server]
        is_listed = terms.shows_prompt(name) if tool == PROMPTS else terms.shows_resource(name)
        if method == "completion/complete" and tool == RESOURCES and self.lists.is_template(server, name):
            is_listed = terms.shows_resource(before_variables(name))
        return "" if is_listed else f"`servers.{server}.{tool}` does not list it"

    async def _governed(
        self, tool: str, arguments: dict[str, Any], client: ClientCall | None, wanted: Wanted
    ) -> Result:
        CALLER.set(client)  # of this task alone: each request has one
        _WANTED.set(wanted)
        call_id = client.call_id if client is not None else ""
        result = await self._session.call(tool, arguments, id=call_id or None)
        if result.reason == "LEDGER_UNAVAILABLE":  # the model is told the code alone
            self._report(" ".join(result.explain().split()))
        return result

    async def ask(self, call: ToolCall, tool: ServerTool, grant: Grant | None) -> JsonText:
        """The result of a server's tool, for a call that the gate has allowed."""
        one, wanted, caller = self.running.get(tool.server), _WANTED.get(), CALLER.get()
        if one is None:  # it was there when the call began
            raise Stopped(
                "MANIFEST_CHANGED", f"the policy changed, and has no server `{tool.server}` any more", ran=False
            )
        server, name, terms = tool.server, tool.tool, one.server
        working = ServerCall(server, caller, grant, call.deadline)
        method, params = wanted or ("tools/call", {"name": name, "arguments": call.arguments})
        observed, most = OBSERVED.get(), 2 * 1024 * call.limits.get("output_kb", OUTPUT_KB) + ENVELOPE_BYTES
        await one.settled()  # this server alone, within the time of the call
        if why := _changed(one, method, params):
            if observed is None:
                raise Stopped("MANIFEST_CHANGED", why, ran=False)
            observed.note("MANIFEST_CHANGED", why)
        if wanted and observed is not None and (why := self._unlisted(server, name, call.arguments, method)):
            observed.note("ARGUMENT_NOT_ALLOWED", why)
        if not wanted and one.live is not None and name not in one.live.listed("tools"):
            text = f"the server `{server}` does not offer `{name}` to this client"
            raise Stopped("TOOL_NOT_AVAILABLE", text, ran=False)
        if caller is None and method != "resources/subscribe":
            raise Stopped("TOOL_NOT_AVAILABLE", "no client asks for this call", ran=False)
        if method not in ("tools/call", "resources/read", "prompts/get"):
            working.note(f"for `{method}`")
        try:
            upstream = one.upstream()
            if caller is None:
                await one.subscribe(params["uri"], seconds=call.seconds)
                return JsonText(b"{}")
            with one.working_on(working) as number:
                answer = await upstream.request(
                    method,
                    params,
                    seconds=call.seconds + GRACE_SECONDS,
                    progress=partial(self.messages.progressed, server, caller),
                    level=caller.level if terms.client.logging else "",
                    caller=number,
                    most=most,
                )
        except NotRunning as wrong:
            working.note(str(wrong))  # for the operator: it may name paths, or what the server wrote
            raise Stopped("TOOL_NOT_AVAILABLE", f"the server `{server}` is not running", ran=False) from None
        except Gone as wrong:
            working.note(f"the server ended: {wrong}")
            text = f"the server `{server}` ended during the call: whether the call had an effect is not known"
            raise Stopped("TOOL_NOT_AVAILABLE", text) from None
        except TimedOut:
            raise Stopped("LIMIT_TIME", f"the server `{server}` gave no answer in {call.seconds:g} seconds") from None
        except UpstreamError as error:
            raise Raised(f"error {error.code} of the server", error.message) from None
        definition: Definition = {} if wanted else self.lists.definition(server, "tools", name)
        entry = terms.entry(name)
        hidden = entry.hidden if entry is not None else "keep"
        try:
            return await checked_result(method, answer.text, answer.data, terms, definition, hidden, working.note)
        except Stopped as misfit:
            if observed is None:
                raise
            observed.note(misfit.reason, str(misfit))
            return await checked_result(method, answer.text, answer.data, terms, {}, hidden, working.note)

    # The client -------------------------------------------------------------------------------------------------------

    def client_is(self, claims: Claims) -> None:
        """Take what the client says of itself, for receipts, and start the servers.

        They are opened in the era of the client, if they were locked in it: a server of 2026 cannot ask a client of
        2025, and the other way round. They are announced what `licet lock` announced to them, whatever this client can
        do: what a server offers may depend on it. A question that the client cannot answer is refused when it comes.
        """
        said = " ".join(str(claims.info.get(key, "")) for key in ("name", "version"))
        self._session.caller = Caller(client=f"{said.strip()[:LONGEST_CLAIM]} (claimed)")
        self._era = era_of(claims.version)
        self.lists.speak(self._era)
        for one in self.running.values():
            one.start(self._era)
        if self._ready is None:
            self._ready = asyncio.get_running_loop().create_task(self._get_ready())
            self._later(self._own_tools.watch())
        if self.policy_changes is not None and self._watching is None:
            self._watching = asyncio.get_running_loop().create_task(self.policy_changes.watch())
        if self._observing is not None and self._ending is None:
            self._ending = asyncio.get_running_loop().create_task(self._end_observing(self._observing))

    def said(self, task: object) -> str:
        """Take what the client says is the task; why it is not taken, or empty if it is.

        A long one is not cut: the beginning of a number or a name is another number or name.
        """
        flow = self._gate.policy.flow
        if flow is None or not flow.task_through_client:
            return "the policy does not say `flow: {task_through_client: true}`"
        if not isinstance(task, str):
            return "the task is not a text"
        if task in self._said:  # many clients say it with each call
            return ""
        if sum(map(len, self._said)) + len(task) > LONGEST_TASK:
            return f"a client may say {LONGEST_TASK} characters of the task"
        self._said.add(task)
        self._session.remembering().begin(task)
        return ""

    def resumed(self) -> None:
        """Take that the conversation was begun earlier, so that the model may have read anything."""
        self.is_tainted("the client says that its conversation is resumed")

    def is_tainted(self, why: str) -> None:
        """Take that the model may have read text of others; without `flow:` only a later policy may want to know."""
        if self._gate.policy.flow is not None:
            self._session.remembering().taint(why)
        else:
            self._tainted = why

    async def _get_ready(self) -> None:
        """Load what the first call needs, and record once which tools are named by the policy and not shown."""
        await asyncio.to_thread(json_core)
        await self._note_unshown()

    async def _note_unshown(self) -> None:
        policy, unheard = self._gate.policy, Session(self._gate, self._session.id, admission=_Unheard())
        unheard.caller = self._session.caller
        for name in [one for one in policy.manifest.admissions if tool_parts(one, policy.manifest.servers)]:
            registered = policy.tools.get(name)
            is_shown = registered is not None and registered.ready
            if name in self._unshown or policy is not self._gate.policy:
                continue
            if not is_shown and self._observing is None and not call_denials(policy.manifest, name):
                self._unshown.add(name)
                await unheard.call(name, {})  # refused, with the reason

    def log_level(self, level: str) -> None:
        """Ask every server that may log for messages from this level on."""
        for one in self.running.values():
            if one.server.client.logging:
                self._later(self._set_level(one, level))

    async def _set_level(self, one: RunningServer, level: str) -> None:
        try:
            await one.upstream().set_level(level, seconds=SETTING_SECONDS)
        except (NotRunning, Gone, TimedOut, UpstreamError, ValueError) as wrong:
            self._report(f"{one.server.name}: the log level was not set: {wrong}")

    def roots_changed(self) -> None:
        """Tell the servers that may know of roots."""
        for one in self.running.values():
            if one.server.client.roots:
                self._later(self._tell_roots(one))

    async def _tell_roots(self, one: RunningServer) -> None:
        try:
            await one.upstream().roots_changed()
        except (NotRunning, Gone):
            return

    def _later(self, work: Coroutine[object, object, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        """End every server."""
        self._is_over = True
        for task in (*self._tasks, *filter(None, [self._ending, self._ready, self._watching])):
            task.cancel()
        if self.policy_changes is not None:
            await self.policy_changes.close()
        if self._observing is not None:
            for line in closing_lines(self._observing):
                self._report(line)
        await asyncio.gather(*(one.close() for one in self.running.values()), return_exceptions=True)

    async def _end_observing(self, observing: Observing) -> None:
        """End every server when the time for observing is over: one without walls must not outlive it."""
        await asyncio.sleep(observing.until - self._gate.clock.monotonic())
        self._report("the time for observing is over: no call runs any more, and the servers are ended")
        await asyncio.gather(*(one.close() for one in self.running.values()), return_exceptions=True)


def _changed(one: RunningServer, method: str, params: dict[str, Any]) -> str:
    """Why a tool or a prompt is not used because it is not as it was locked; empty if it is.

    Resources are not compared: their sizes and dates change, and a client is shown what was locked.
    """
    ref = params.get("ref") if method == "completion/complete" else None
    if ref is not None:
        return one.refusal_of("prompts", ref["name"]) if ref["type"] == "ref/prompt" else ""
    kind = {"tools/call": "tools", "prompts/get": "prompts"}.get(method, "")
    return one.refusal_of(kind, params["name"]) if kind else ""


class _Unheard(CallAdmission):
    """Admits the calls that the gateway makes for their receipts: the client is not told their results."""

    async def admit(self, call: Call, arguments: object) -> tuple[Registered, Grant]:
        call.is_heard = False
        return await super().admit(call, arguments)


class AsksServers:
    """Runs tools of servers by asking the server, and every other tool as `inner` does.

    The guard knows nothing of MCP. It decides, asks, reserves and records a call of `files.read` as that of any tool;
    only the step that runs the tool is this one.
    """

    def __init__(self, inner: Sandbox) -> None:
        self._inner = inner
        self.servers: GovernedServers | None = None  # there are none before there is a gate

    def layers(self, level: Level) -> tuple[str, ...]:
        """The walls of a level."""
        return self._inner.layers(level)

    def tool_layers(self, tool: Tool, level: Level, *, allow_degraded: bool) -> Layers:
        """The walls around a tool."""
        if isinstance(self._inner, LayersOfTools) and not isinstance(tool, ServerTool):
            return self._inner.tool_layers(tool, level, allow_degraded=allow_degraded)
        return Layers(self._inner.layers(level))

    def walls(self, held: Any) -> Walls:
        """The walls of a child process."""
        return self._inner.walls(held)

    def run(self, level: Level, call: ToolCall, context: Any) -> Awaitable[Any]:
        """Run a tool."""
        if not isinstance(call.tool, ServerTool):
            return self._inner.run(level, call, context)
        assert self.servers is not None  # noqa: S101 - it was made with the gate that calls this
        return self.servers.ask(call, call.tool, parts_of(context).grant if context is not None else None)

    def forget(self) -> None:
        """End idle workers."""
        if (forget := getattr(self._inner, "forget", None)) is not None:
            forget()

    def close(self) -> None:
        """End all workers."""
        if (close := getattr(self._inner, "close", None)) is not None:
            close()
