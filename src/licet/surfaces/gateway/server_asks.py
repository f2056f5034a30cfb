"""What a server asks of the client: sampling, elicitation and roots, answered as `servers.NAME.client` says.

Sampling and elicitation are passed on only while the client calls that server, so that a receipt has them. With `ask`,
an approval of `SERVER.sampling` or `SERVER.elicitation` comes first. Roots never change the walls of a server.
"""

import asyncio
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Protocol
from urllib.parse import unquote, urlsplit

from licet.assemble.gateway import CallNotes
from licet.core.algebra.scope import visible
from licet.core.canonical import data_digest
from licet.core.decision.decision import (
    ApprovalAnswered,
    ApprovalAsked,
    ServerAnswered,
    ServerAsked,
    ServerAskRefused,
)
from licet.core.decision.request import Approval, Ground, Reason
from licet.core.policy.servers import MAX_ASKS, Server
from licet.core.policy.tool import spec_of
from licet.declare.plain_json import plain_data, plain_json
from licet.guard.deadline import Deadline
from licet.guard.execution import Pausable
from licet.guard.gate import BareGate
from licet.guard.people import Answered, Question, answer_of
from licet.guard.ports import Unavailable
from licet.guard.session import Session
from licet.guard.unrun import record_question
from licet.surfaces.gateway.asked_texts import about, presented
from licet.surfaces.gateway.caller import CallerLink
from licet.surfaces.gateway.client_approvals import CALLER
from licet.surfaces.gateway.eras import ProtocolError
from licet.surfaces.gateway.exchange import not_found
from licet.surfaces.gateway.jsonrpc import INTERNAL_ERROR, Id, Request
from licet.surfaces.gateway.questions import CannotAsk
from licet.surfaces.gateway.upstream import AskRefused

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
