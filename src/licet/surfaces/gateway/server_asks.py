"""What a server asks of the client: sampling, elicitation and roots, answered as `servers.NAME.client` says.

Sampling and elicitation are passed on only while the client calls that server, so that a receipt has them. With `ask`,
an approval of `SERVER.sampling` or `SERVER.elicitation` comes first. Roots never change the walls of a server.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Protocol
from urllib.parse import unquote, urlsplit

from msgspec import Struct

from licet.core.canonical import data_digest
from licet.core.decision.request import Approval
from licet.core.policy.lock import shown
from licet.core.policy.servers import Server
from licet.core.policy.tool import spec_of
from licet.declare.plain_json import plain_data, plain_json
from licet.guard.deadline import Deadline
from licet.guard.execution import Pausable
from licet.guard.gate import BareGate
from licet.guard.people import Answered, Question, answer_of
from licet.guard.ports import Unavailable
from licet.guard.session import Session
from licet.surfaces.gateway.caller import CallerLink
from licet.surfaces.gateway.client_approvals import CALLER
from licet.surfaces.gateway.eras import ProtocolError
from licet.surfaces.gateway.jsonrpc import INTERNAL_ERROR, METHOD_NOT_FOUND, Id, Request
from licet.surfaces.gateway.questions import CannotAsk
from licet.surfaces.gateway.results import Note
from licet.surfaces.gateway.upstream import AskRefused

_LONGEST_MESSAGE = 4000  # characters of a form's text
_NAMES = {"sampling/createMessage": "sampling", "elicitation/create": "elicitation", "roots/list": "roots"}


class CanAsk(Protocol):
    """Whoever can ask the client: one of its calls, or its connection."""

    async def ask(self, request: Request) -> dict[str, Any]:
        """The answer of the client. Raises `CannotAsk`."""


class RunningCall(Struct, frozen=True):
    """A call of the client that a server works on."""

    server: str
    link: CallerLink
    note: Note
    deadline: Pausable | None = None


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

    def at(self, server: str) -> list[RunningCall]:
        """The calls that a server works on, the oldest first."""
        return [call for call in self._calls.values() if call.server == server]

    def find(self, server: str, number: Id | None) -> RunningCall | None:
        """The call that a server asks for: the one with this number or else, if it did not say, its oldest one."""
        call = self._calls.get(number) if isinstance(number, int) else None
        if call is not None and call.server == server:
            return call
        return next(iter(self.at(server)), None)


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
        self.announced: Mapping[str, Any] = {}  # by the client

    async def answer(self, server: str, request: Request, during: Id | None, client: CanAsk) -> dict[str, Any]:
        """The client's answer to a request of a server. Raises `AskRefused`."""
        name = _NAMES.get(request.method, "")
        allowed = self._servers[server].client.allows(name)
        if allowed == "deny" or name not in self.announced:
            if name == "roots":  # it was announced them, as when it was locked: here there are none
                return {"roots": []}
            raise AskRefused(METHOD_NOT_FOUND, f"`{request.method[:100]}` is not for this server")
        call = self._calls.find(server, during)
        if name == "roots":
            return self._known_roots(server, await _asked(call.link if call is not None else client, request))
        request = _named(server, request)
        if call is None:
            raise AskRefused(INTERNAL_ERROR, f"`{request.method}` is answered only during a call of this server")
        if call.deadline is not None:
            call.deadline.pause()  # the time of a person does not count
        try:
            if allowed == "ask":
                await self._approve(server, name, request, call)
            answer = await _asked(call.link, request)
        except AskRefused as refusal:
            call.note(f"the server asked for {name}, and was refused: {refusal.message}")
            raise
        finally:
            if call.deadline is not None:
                call.deadline.resume()
        call.note(f"the server asked for {name}, and got an answer")
        return answer

    # Approvals --------------------------------------------------------------------------------------------------------

    async def _approve(self, server: str, name: str, request: Request, call: RunningCall) -> None:
        """Return if an approver agrees to exactly this request; otherwise raise `AskRefused`."""
        CALLER.set(call.link)  # of the task of this question
        question, approver = self._question(server, name, request), self._gate.ports.approver
        answered = Answered("absent")
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
        call.note(
            f"approval of {server}.{name}: {answered.answer}{by}; {answered.note or answered.request}".rstrip("; ")
        )
        if answered.answer != "approved":
            self._report(f"{server}: {name} needs an approval: {answered.note}; {answered.fix}")
            raise AskRefused(INTERNAL_ERROR, f"{name} needs an approval, and there is none")

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


def _named(server: str, request: Request) -> Request:
    """A question that says which server asks it, so that a person who has several can tell.

    The text of a form is cut to a length, and hidden characters in it are written visibly.
    """
    params = dict(request.params)
    if request.method == "elicitation/create":
        text = str(shown(params.get("message", "")))
        cut = text if len(text) <= _LONGEST_MESSAGE else f"{text[:_LONGEST_MESSAGE]}…"
        params["message"] = f"The MCP server `{server}` asks: {cut}"
    else:
        told = params.get("systemPrompt")
        first = f"This request comes from the MCP server `{server}`."
        params["systemPrompt"] = f"{first}\n\n{told}" if isinstance(told, str) and told else first
    return Request(request.id, request.method, params)


async def _asked(client: CanAsk, request: Request) -> dict[str, Any]:
    try:
        return await client.ask(request)
    except CannotAsk as wrong:
        raise AskRefused(wrong.code, str(wrong)) from None
    except ProtocolError as wrong:
        raise AskRefused(wrong.code, wrong.message) from None
