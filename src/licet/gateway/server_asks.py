"""What a server asks of the client: sampling, elicitation and roots, answered as `servers.NAME.client` says.

Sampling and elicitation are passed on only while the client calls that server, so that a receipt has them. With `ask`,
an approval of `SERVER.sampling` or `SERVER.elicitation` comes first. Roots never change the walls of a server.

What a server asks, as the client is shown it: marked as the server's words, cut, and without hidden characters.

A text is written visibly. A key or a value that comes back to the server cannot be rewritten, so a form in which one of
these has hidden characters is refused.
"""

import asyncio
import re
import secrets
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Protocol
from urllib.parse import unquote, urlsplit

import msgspec

from licet.core.algebra.scope import visible
from licet.core.decision.decision import ApprovalAnswered, ApprovalAsked, ServerAnswered, ServerAsked, ServerAskRefused
from licet.core.decision.request import Approval, Ground, Reason
from licet.core.limits import MAX_ASKS
from licet.core.policy.lock import hidden_in, shown
from licet.core.policy.servers import Server
from licet.core.policy.tool import spec_of
from licet.core.values import data_digest
from licet.declare.plain_json import plain_data, plain_json
from licet.gateway.questions import CALLER, CallerLink, CannotAsk
from licet.gateway.served_tools import CallNotes
from licet.guard.deadlines import Deadline
from licet.guard.execution import Pausable
from licet.guard.gate import BareGate
from licet.guard.ports import Answered, Question, Unavailable, answer_of
from licet.guard.session import Session, record_question
from licet.mcp.exchange import not_found
from licet.mcp.jsonrpc import INTERNAL_ERROR, INVALID_PARAMS, Id, Request
from licet.mcp.protocol import ProtocolError
from licet.mcp.upstream import AskRefused

MOST_BYTES = 1 << 20  # of one question
MOST_OF_A_FORM = 1 << 16  # bytes of its schema
_LONGEST_MESSAGE = 4000  # characters of a form's text
_LONGEST_TEXT = 1000  # characters of a title or description in it
_LONGEST_NAME = 200  # characters of a key in it
_LONGEST_URL = 2000
_DEEPEST = 8  # levels of a form
_SHOWN = frozenset(("title", "description"))  # the texts of a form that do not come back
_THIS_MACHINE = frozenset(("localhost", "127.0.0.1", "::1"))
_PLAIN_URL = re.compile(r"https?://[!-~]+")


def presented(server: str, request: Request) -> Request:
    """The question that the client is asked. Raises `AskRefused`."""
    if len(msgspec.json.encode(request.params)) > MOST_BYTES:
        raise _refused(f"a question has at most {MOST_BYTES} bytes")
    params = dict(request.params)
    if request.method == "elicitation/create":
        params["message"] = said(server, params.get("message", ""))
        if "requestedSchema" in params:
            params["requestedSchema"] = _form(params["requestedSchema"])
        if "url" in params:
            params["url"] = _url(params["url"])
        if "elicitationId" in params:
            params["elicitationId"] = secrets.token_urlsafe(16)  # one server could use that of another
    elif request.method == "sampling/createMessage":
        if hidden_in(params):
            params = shown(params)
        told, first = params.get("systemPrompt"), f"This request comes from the MCP server `{server}`."
        params["systemPrompt"] = f"{first}\n\n{told}" if isinstance(told, str) and told else first
    return Request(request.id, request.method, params)


def said(server: str, message: object) -> str:
    """A server's text for a person. Several lines are marked one by one, so that none looks like one of licet's."""
    text = str(shown(message)) if isinstance(message, str) else ""
    cut = text if len(text) <= _LONGEST_MESSAGE else f"{text[:_LONGEST_MESSAGE]}…"
    lines = cut.splitlines()
    if len(lines) < 2:
        return f"The MCP server `{server}` asks: {cut}"
    return "\n".join((f"The MCP server `{server}` asks:", *(f"> {line}" for line in lines)))


def about(request: Request) -> str:
    """What is asked, in a few words of our own; of a page also where it is."""
    params = request.params
    if request.method != "elicitation/create":
        return {"sampling/createMessage": "sampling", "roots/list": "roots"}.get(request.method, "")
    if params.get("mode") != "url":
        return "elicitation (form)"
    try:
        host = urlsplit(str(params.get("url"))).hostname
    except ValueError:
        host = None
    return f"elicitation (url at {visible(host or 'an unknown place')[:_LONGEST_NAME]})"


def _form(schema: object) -> dict[str, Any]:
    if not isinstance(schema, dict) or len(msgspec.json.encode(schema)) > MOST_OF_A_FORM:
        raise _refused(f"a form is an object of at most {MOST_OF_A_FORM} bytes")
    made: dict[str, Any] = _written(schema, "", _DEEPEST)
    return made


def _written(value: Any, key: str, levels: int) -> Any:
    """A part of a form; `key` is where it stands."""
    if levels == 0:
        raise _refused("a form with too many levels")
    if isinstance(value, dict):
        for name in value:
            if len(name) > _LONGEST_NAME or visible(name) != name:
                raise _refused("a form with a key that is too long, or has hidden characters")
        # Below `properties` the keys are names of fields, so that `title` there is no text.
        names = key == "properties"
        return {one: _written(item, "" if names else one, levels - 1) for one, item in value.items()}
    if isinstance(value, list):
        if key == "enumNames":
            return [_written(item, "title", levels - 1) for item in value]
        return [_written(item, "", levels - 1) for item in value]
    if not isinstance(value, str):
        return value
    if key in _SHOWN:
        return visible(value[:_LONGEST_TEXT]) + "…" * (len(value) > _LONGEST_TEXT)
    if hidden_in(value):
        raise _refused("a form with a value that has hidden characters")
    return value


def _url(url: object) -> str:
    """The address of a page that a person is sent to: one that cannot be misread."""
    if isinstance(url, str) and len(url) <= _LONGEST_URL and _PLAIN_URL.fullmatch(url):
        try:
            parts = urlsplit(url)
            secure = parts.scheme == "https" or parts.hostname in _THIS_MACHINE
            if parts.hostname and secure and "@" not in parts.netloc and "\\" not in url:
                return url
        except ValueError:
            pass
    raise _refused("`url` is not a plain `https://` address without a user name")


def _refused(text: str) -> AskRefused:
    return AskRefused(INVALID_PARAMS, text)


_NAMES = {"sampling/createMessage": "sampling", "elicitation/create": "elicitation", "roots/list": "roots"}


class CanAsk(Protocol):
    """Whoever can ask the client: one of its calls, or its connection."""

    async def ask(self, request: Request) -> dict[str, Any]:
        """The answer of the client. Raises `CannotAsk`."""


class RunningCall:
    """A call of the client that a server works on, and what the server has asked during it."""

    def __init__(self, server: str, link: CallerLink, notes: CallNotes, deadline: Pausable | None = None) -> None:
        self.server, self.link, self.notes, self.deadline = server, link, notes, deadline
        self.asks = 0
        self.over = False
        self._open: dict[int, tuple[str, asyncio.Task[Any] | None]] = {}  # questions without an answer, by number

    def asked(self, name: str, what: str) -> int:
        """Record a question before anybody is asked, and return its number in this call."""
        self.asks += 1
        self._open[self.asks] = name, asyncio.current_task()
        self.notes.happened(ServerAsked, capability(self.server, name), rule=what, count=self.asks)
        return self.asks

    def answered(self, number: int, reason: str, text: str) -> None:
        """Record what the server gets, once."""
        if number in self._open:
            name, _ = self._open.pop(number)
            self.notes.happened(ServerAnswered, capability(self.server, name), reason, text, number)

    def refused(self, name: str, reason: Reason, text: str) -> None:
        """Record a question that nobody is asked."""
        self.notes.happened(ServerAskRefused, capability(self.server, name), reason, text)

    def end(self) -> None:
        """Withdraw the questions that have no answer: after the call, no receipt would have it."""
        self.over = True
        for number, (_, task) in list(self._open.items()):
            self.answered(number, "INTERRUPTED", "the call ended before the answer")
            if task is not None:
                task.cancel()


def capability(server: str, name: str) -> str:
    """What a server uses that asks the client, in receipts. No tool can have this name."""
    return f"client:{name}:{server}"


class RunningCalls:
    """The calls that servers work on, by numbers that no client chooses."""

    def __init__(self) -> None:
        self._calls: dict[int, RunningCall] = {}
        self._last = 0

    @contextmanager
    def with_one(self, call: RunningCall) -> Iterator[int]:
        """Keep a call while it runs."""
        self._last += 1
        number = self._last
        self._calls[number] = call
        try:
            yield number
        finally:
            del self._calls[number]
            call.end()

    def at(self, server: str) -> list[RunningCall]:
        """The calls that a server works on, the oldest first."""
        return [call for call in self._calls.values() if call.server == server]

    def find(self, server: str, number: Id | None) -> RunningCall | None:
        """The call that a server asks for: the one with this number or else, if it did not say, its oldest one."""
        call = self._calls.get(number) if isinstance(number, int) else None
        if call is not None and call.server == server:
            return call
        return next(iter(self.at(server)), None)


class _NotApproved(AskRefused):
    """Nobody has approved the question."""


class _Alone:
    """What a server has asked while none of its calls ran."""

    def __init__(self) -> None:
        self.asks = 0  # since its last call began
        self.refused = 0


class ServerAsks:
    """Answers what the servers of one connection ask."""

    def __init__(
        self,
        gate: BareGate,
        session: Session,
        servers: Mapping[str, Server],
        calls: RunningCalls,
        may_know_root: Callable[[str, str], bool],
        report: Callable[[str], None],
    ) -> None:
        self._gate, self._session, self._servers, self._calls = gate, session, servers, calls
        self._may_know_root = may_know_root  # (server, path)
        self._report = report
        self._alone = {name: _Alone() for name in servers}
        self.announced: Mapping[str, Any] = {}  # by the client
        self.with_roots: set[str] = set()  # servers that were announced roots, as when they were locked; may be none

    async def answer(self, server: str, request: Request, during: Id | None, client: CanAsk) -> dict[str, Any]:
        """The client's answer to a request of a server. Raises `AskRefused`."""
        name, terms = _NAMES.get(request.method, ""), self._servers[server].client
        call = self._calls.find(server, during)
        if terms.allows(name) == "deny" or name not in self.announced:
            why = "the client cannot be asked" if name not in self.announced else f"`client.{name}` does not allow it"
            await self._refuse(server, name, call, "TOOL_NOT_IN_BUNDLE", why)
            if name == "roots" and server in self.with_roots:
                return {"roots": []}
            raise not_found(request.method)
        if call is None and name != "roots":
            text = f"`{request.method}` is answered only during a call of this server"
            await self._refuse(server, name, call, "TOOL_NOT_AVAILABLE", text)
            raise AskRefused(INTERNAL_ERROR, text)
        if (self._alone[server].asks if call is None else call.asks) >= terms.max_asks:
            where = "in one call" if call is not None else "outside of calls"
            text = f"{server} has asked {terms.max_asks} times {where}, which is all that `client.max_asks` allows"
            await self._refuse(server, name, call, "BUDGET_EXCEEDED", text)
            raise AskRefused(INTERNAL_ERROR, text)
        try:
            request = presented(server, request)
        except AskRefused as refusal:
            await self._refuse(server, name, call, "ARGUMENT_NOT_ALLOWED", refusal.message)
            raise
        if call is None:
            return await self._told_alone(server, request, client)
        return await self._answered(server, name, request, call)

    async def _answered(self, server: str, name: str, request: Request, call: RunningCall) -> dict[str, Any]:
        """The answer to a question during a call. Its receipt has both."""
        number = call.asked(name, self._described(request))
        if call.deadline is not None:
            call.deadline.pause()  # the time of a person does not count
        try:
            if self._servers[server].client.allows(name) == "ask":
                await self._approve(server, name, request, call)
            answer = await _asked(call.link, request)
        except AskRefused as refusal:
            reason = "APPROVAL_REQUIRED" if isinstance(refusal, _NotApproved) else "TOOL_NOT_AVAILABLE"
            call.answered(number, reason, f"a refusal: {visible(refusal.message)}")
            raise
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if call.over and task is not None and not task.uncancel():
                raise AskRefused(INTERNAL_ERROR, "the call has ended") from None
            call.answered(number, "INTERRUPTED", "the question was withdrawn")
            raise
        finally:
            if call.deadline is not None:
                call.deadline.resume()
        if name == "roots":
            answer = self._known_roots(server, answer)
        call.answered(number, "", _outcome(name, answer))
        return answer

    def _described(self, request: Request) -> str:
        """A question for a receipt: what it is, its digest, and with `record: full` the question itself."""
        text = plain_json(request.params)
        whole = f", {text.decode()}" if self._gate.policy.manifest.record == "full" else ""
        return f"{about(request)}, {data_digest(plain_data(text))}{whole}"

    # Outside of calls -------------------------------------------------------------------------------------------------

    async def _told_alone(self, server: str, request: Request, client: CanAsk) -> dict[str, Any]:
        """Roots for a server that asks while none of its calls runs, as many servers do when they start."""
        self._alone[server].asks += 1
        kept = await record_question(self._session, capability(server, "roots"), request.params, None)
        if not kept.ok:
            raise AskRefused(INTERNAL_ERROR, "the question cannot be recorded")
        return self._known_roots(server, await _asked(client, request))

    async def _refuse(self, server: str, name: str, call: RunningCall | None, reason: Reason, text: str) -> None:
        """Record a question that nobody is asked: in the receipt of the call, or in one of its own."""
        if call is not None:
            call.refused(name, reason, text)
            return
        alone = self._alone[server]
        alone.refused += 1
        # A server that floods must not fill the ledger: of many refusals, only some have a receipt.
        if alone.refused <= MAX_ASKS or alone.refused & (alone.refused - 1) == 0:
            about_all = f"{text}; refused question {alone.refused} of this server outside of calls"
            await record_question(self._session, capability(server, name), None, Ground(reason, about_all))

    def begins(self, server: str) -> None:
        """A call of this server begins: the questions that it may ask outside of calls are counted anew."""
        self._alone[server].asks = 0

    # Approvals --------------------------------------------------------------------------------------------------------

    async def _approve(self, server: str, name: str, request: Request, call: RunningCall) -> None:
        """Return if an approver agrees to exactly this request; otherwise raise `AskRefused`."""
        CALLER.set(call.link)  # of the task of this question
        question, approver = self._question(server, name, request), self._gate.ports.approver
        answered = Answered("absent")
        call.notes.happened(ApprovalAsked, capability(server, name), rule=question.why)
        if approver is not None and not (question.signed and not getattr(approver, "verifies", False)):
            limit = Deadline(question.expires_seconds)
            try:
                with limit:
                    said = await answer_of(approver, question)
                answered = said if isinstance(said, Answered) else Answered(said)
            except TimeoutError:
                answered = Answered("expired")
            except Unavailable as broken:
                self._report(f"{server}: the store of approvals cannot be used: {broken}")
        by = f" by {', '.join(answered.by)}" if answered.by else ""
        text = f"{answered.answer}{by}; {answered.note or answered.request}".rstrip("; ")
        call.notes.happened(ApprovalAnswered, capability(server, name), rule=text)
        if answered.answer != "approved":
            self._report(f"{server}: {name} needs an approval: {answered.note}; {answered.fix}")
            raise _NotApproved(INTERNAL_ERROR, f"{name} needs an approval, and there is none")

    def _question(self, server: str, name: str, request: Request) -> Question:
        gate, session, tool = self._gate, self._session, f"{server}.{name}"
        terms, digest = gate.policy.manifest.approvals, data_digest(plain_data(plain_json(request.params)))
        return Question(
            approval=Approval(gate.policy.digest, tool, session.id, digest),
            spec=spec_of(name=tool, needs=[], effect="read_only", description=f"Ask the client for {name}."),
            arguments=request.params,
            stakes=(),
            why=f"servers.{server}.client.{name} is `ask`",
            expires_seconds=terms.expires_seconds,
            agent=session.agent,
            effect="read_only",
            workdir=gate.workdir,
            since=gate.reloaded,
            quorum=terms.quorum,
            keys=terms.keys,
        )

    # Roots ------------------------------------------------------------------------------------------------------------

    def _known_roots(self, server: str, answer: dict[str, Any]) -> dict[str, Any]:
        roots = answer.get("roots")
        return {"roots": [one for one in roots if self._is_known(server, one)] if isinstance(roots, list) else []}

    def _is_known(self, server: str, root: Any) -> bool:
        """Whether a server is told of a root of the client: a plain `file:` URI in `client.roots` and in its grant."""
        uri = root.get("uri") if isinstance(root, dict) else None
        try:
            parts = urlsplit(uri) if isinstance(uri, str) else None
        except ValueError:
            return False
        if parts is None or parts.scheme != "file" or parts.netloc or parts.query or parts.fragment:
            return False
        return self._may_know_root(server, unquote(parts.path))


def _outcome(name: str, answer: Mapping[str, Any]) -> str:
    """An answer for a receipt: what it is and its digest."""
    action = f" ({answer['action']})" if name == "elicitation" else ""
    return f"an answer{action}, {data_digest(plain_data(plain_json(answer)))}"


async def _asked(client: CanAsk, request: Request) -> dict[str, Any]:
    try:
        return await client.ask(request)
    except CannotAsk as wrong:
        raise AskRefused(wrong.code, str(wrong)) from None
    except ProtocolError as wrong:
        raise AskRefused(wrong.code, wrong.message) from None
