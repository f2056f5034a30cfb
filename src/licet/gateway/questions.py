"""What servers ask and tell the client, and what the gate asks its user.

A server asks for sampling, elicitation and roots, and is answered as `servers.NAME.client` says. Sampling and
elicitation are passed on only while the client calls that server, so that a receipt has them. With `ask`, an approval
of `SERVER.sampling` or `SERVER.elicitation` comes first. Roots never change the walls of a server. The client sees a
question marked as the server's words, cut, and without hidden characters. A text is written visibly. A key or a value
that comes back to the server cannot be rewritten, so a form in which one of these has hidden characters is refused.

What servers tell and ask reaches the model without a call, so the session remembers it as untrusted text: log messages,
progress, the URI of an updated resource, questions. An answer is the client's word to that server, and never the task.

The gate asks for approvals (`ClientApprover`): the client's user is shown what waits for one. By default an answer of
the client approves nothing. It only means "look again": the call runs if somebody has answered with `licet approvals`
meanwhile. With `approvals: {through_client: true}` a yes is the approval, recorded as `client`. It never counts as a
signature: where the policy wants signed approvals, it is "look again" there too.
"""

import asyncio
import re
import secrets
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import unquote, urlsplit

import msgspec

from licet.core.algebra.scope import visible
from licet.core.decision.decision import ApprovalAnswered, ApprovalAsked, ServerAskRefused
from licet.core.decision.request import Approval, Ground, Reason
from licet.core.limits import MAX_ASKS
from licet.core.policy.lock import hidden_in, shown
from licet.core.policy.servers import Server
from licet.core.policy.tool import spec_of
from licet.core.values import data_digest
from licet.declare.plain_json import plain_data, plain_json
from licet.gateway.catalog import told_by
from licet.gateway.client import CALLER, Client, ClientCall
from licet.gateway.limits import (
    DEEPEST_FORM,
    LONGEST_ARGUMENTS,
    LONGEST_FORM_KEY,
    LONGEST_FORM_MESSAGE,
    LONGEST_FORM_TEXT,
    LONGEST_URL,
    MOST_DELETES_SHOWN,
    MOST_FORM_BYTES,
    MOST_QUESTION_BYTES,
    MOST_REMEMBERED,
    REPORTS_A_SECOND,
    REPORTS_AT_ONCE,
)
from licet.gateway.running_server import RunningServer, ServerCall, capability
from licet.guard.deadlines import Deadline
from licet.guard.ports import Answer, Answered, Approver, Question, Unavailable, answer_of
from licet.guard.session import Session, record_question
from licet.mcp.content import SAMPLING_PARTS, passed
from licet.mcp.exchange import not_found
from licet.mcp.jsonrpc import INTERNAL_ERROR, INVALID_PARAMS, Id, Notification, ProtocolError, Request
from licet.mcp.link import Rate
from licet.mcp.protocol import ASKED
from licet.mcp.upstream import Peer

_SHOWN = frozenset(("title", "description"))  # the texts of a form that do not come back
_THIS_MACHINE = frozenset(("localhost", "127.0.0.1", "::1"))
_PLAIN_URL = re.compile(r"https?://[!-~]+")


def presented(server: str, request: Request) -> Request:
    """The question that the client is asked. Raises `ProtocolError`."""
    if len(msgspec.json.encode(request.params)) > MOST_QUESTION_BYTES:
        raise _refused(f"a question has at most {MOST_QUESTION_BYTES} bytes")
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
        params |= {key: passed(kind, params[key]) for key, kind in SAMPLING_PARTS.items() if key in params}
        if hidden_in(params):
            params = shown(params)
        told, first = params.get("systemPrompt"), f"This request comes from the MCP server `{server}`."
        params["systemPrompt"] = f"{first}\n\n{told}" if isinstance(told, str) and told else first
    return Request(request.id, request.method, params)


def said(server: str, message: object) -> str:
    """A server's text for a person. Several lines are marked one by one, so that none looks like one of licet's."""
    text = str(shown(message)) if isinstance(message, str) else ""
    cut = text if len(text) <= LONGEST_FORM_MESSAGE else f"{text[:LONGEST_FORM_MESSAGE]}…"
    return told_by(server, cut, "asks") if len(cut.splitlines()) > 1 else f"The MCP server `{server}` asks: {cut}"


def about(request: Request) -> str:
    """What is asked, in a few words of our own; of a page also where it is."""
    params = request.params
    if request.method != "elicitation/create":
        return ASKED.get(request.method, "")
    if params.get("mode") != "url":
        return "elicitation (form)"
    try:
        host = urlsplit(str(params.get("url"))).hostname
    except ValueError:
        host = None
    return f"elicitation (url at {visible(host or 'an unknown place')[:LONGEST_FORM_KEY]})"


def _form(schema: object) -> dict[str, Any]:
    if not isinstance(schema, dict) or len(msgspec.json.encode(schema)) > MOST_FORM_BYTES:
        raise _refused(f"a form is an object of at most {MOST_FORM_BYTES} bytes")
    made: dict[str, Any] = _written(schema, "", DEEPEST_FORM)
    return made


def _written(value: Any, key: str, levels: int) -> Any:
    """A part of a form; `key` is where it stands."""
    if levels == 0:
        raise _refused("a form with too many levels")
    if isinstance(value, dict):
        for name in value:
            if len(name) > LONGEST_FORM_KEY or visible(name) != name:
                raise _refused("a form with a key that is too long, or has hidden characters")
        # Below `properties` the keys are names of fields, so that `title` there is no text.
        names = key == "properties"
        fields = {one: item for one, item in value.items() if names or one != "_meta"}
        return {one: _written(item, "" if names else one, levels - 1) for one, item in fields.items()}
    if isinstance(value, list):
        if key == "enumNames":
            return [_written(item, "title", levels - 1) for item in value]
        return [_written(item, "", levels - 1) for item in value]
    if not isinstance(value, str):
        return value
    if key in _SHOWN:
        return visible(value[:LONGEST_FORM_TEXT]) + "…" * (len(value) > LONGEST_FORM_TEXT)
    if hidden_in(value):
        raise _refused("a form with a value that has hidden characters")
    return value


def _url(url: object) -> str:
    """The address of a page that a person is sent to: one that cannot be misread."""
    if isinstance(url, str) and len(url) <= LONGEST_URL and _PLAIN_URL.fullmatch(url):
        try:
            parts = urlsplit(url)
            secure = parts.scheme == "https" or parts.hostname in _THIS_MACHINE
            if parts.hostname and secure and "@" not in parts.netloc and "\\" not in url:
                return url
        except ValueError:
            pass
    raise _refused("`url` is not a plain `https://` address without a user name")


def _refused(text: str) -> ProtocolError:
    return ProtocolError(INVALID_PARAMS, text)


class _NotApproved(ProtocolError):
    """Nobody has approved the question."""


class ServerMessages(Peer):
    """Answers what the servers of one connection ask, and passes on what they tell the client."""

    def __init__(
        self,
        session: Session,
        servers: Mapping[str, Server],
        running: Mapping[str, RunningServer],
        client: Client,
        may_know_root: Callable[[str, str], bool],
        report: Callable[[str], None],
    ) -> None:
        self._gate, self._session, self._servers, self._running = session.gate, session, servers, running
        self._client = client
        self._may_know_root = may_know_root  # (server, path)
        self._report = report
        self._remembered = 0  # messages of servers that the session remembers; the first one has tainted it
        self._reports: dict[str, Rate] = {}  # by server

    # What servers tell ------------------------------------------------------------------------------------------------

    def told(self, server: str, notification: Notification) -> None:
        """Pass on what a server may tell the client."""
        if server not in self._running:  # the policy has it no more, and it is being ended
            return
        match notification.method:
            case "notifications/message" if self._servers[server].client.logging:
                calls = [call.client for call in self._running[server].calls if call.client is not None]
                message = logged(server, notification.params)
                if (calls[0] if len(calls) == 1 else self._client).log(message):
                    self._read(f"a log message of the server `{server}`", message)
            case "notifications/resources/updated":
                uri = notification.params.get("uri")
                is_listed = isinstance(uri, str) and self._servers[server].shows_resource(uri)
                if is_listed and self._client.resource_updated(server, str(uri)):
                    self._read(f"an update of a resource of the server `{server}`", uri)
            case _:
                pass

    def progressed(self, server: str, caller: ClientCall, params: Mapping[str, Any]) -> None:
        """Pass on the progress of a call."""
        if message := caller.progress(params):
            self._read(f"a message about progress of the server `{server}`", message)

    def _read(self, source: str, value: object) -> None:
        """Remember what the client is told. A server that floods must not make questions slow: the rest is unknown.

        Nobody waits until it is kept: a connection is one session of one process, and a session with a name, which
        another process could continue, is tainted from its start in each of them.
        """
        if self._remembered < MOST_REMEMBERED:
            self._remembered += self._gate.policy.flow is not None
            self._session.be_given(source, value)

    def dropped(self, server: str, text: str) -> None:
        """Report something of a server that was dropped. The receipt of a running call notes it, too."""
        for call in self._running[server].calls[:1] if server in self._running else ():
            call.note(f"the server sent what was dropped: {text[:200]}")
        if self._reports.setdefault(
            server, Rate(REPORTS_AT_ONCE, REPORTS_A_SECOND)
        ).take():  # a server that floods must not fill a log
            self._report(f"{server}: {text}")

    # What servers ask -------------------------------------------------------------------------------------------------

    async def asked(self, server: str, request: Request, during: Id | None) -> dict[str, Any]:
        """The client's answer to a request of a server. Raises `ProtocolError`."""
        if server not in self._running:
            raise not_found(request.method)
        name, terms, one = ASKED.get(request.method, ""), self._servers[server].client, self._running[server]
        call, announced = one.call_with(during), self._client.claims.capabilities
        if terms.allows(name) == "deny" or name not in announced:
            why = "the client cannot be asked" if name not in announced else f"`client.{name}` does not allow it"
            await self._refuse(server, name, call, "TOOL_NOT_IN_BUNDLE", why)
            if name == "roots" and "roots" in one.announces:  # as when it was locked; there may be none
                return {"roots": []}
            raise not_found(request.method)
        if call is None and name != "roots":
            text = f"`{request.method}` is answered only during a call of this server"
            await self._refuse(server, name, call, "TOOL_NOT_AVAILABLE", text)
            raise ProtocolError(INTERNAL_ERROR, text)
        if (one.asks_alone if call is None else call.asks) >= terms.max_asks:
            where = "in one call" if call is not None else "outside of calls"
            text = f"{server} has asked {terms.max_asks} times {where}, which is all that `client.max_asks` allows"
            await self._refuse(server, name, call, "BUDGET_EXCEEDED", text)
            raise ProtocolError(INTERNAL_ERROR, text)
        try:
            request = presented(server, request)
        except ProtocolError as refusal:
            await self._refuse(server, name, call, "ARGUMENT_NOT_ALLOWED", refusal.message)
            raise
        if call is None:
            return await self._told_alone(server, request)
        return await self._answered(server, name, request, call)

    async def _answered(self, server: str, name: str, request: Request, call: ServerCall) -> dict[str, Any]:
        """The answer to a question during a call. Its receipt has both."""
        number = call.asked(name, self._described(request))
        if call.deadline is not None:
            call.deadline.pause()  # the time of a person does not count
        try:
            if self._servers[server].client.allows(name) == "ask":
                await self._approve(server, name, request, call)
            if name != "roots":
                self._read(f"a question of the server `{server}`", request.params)
            answer = await (call.client or self._client).ask(request)
        except ProtocolError as refusal:
            reason = "APPROVAL_REQUIRED" if isinstance(refusal, _NotApproved) else "TOOL_NOT_AVAILABLE"
            call.answered(number, reason, f"a refusal: {visible(refusal.message)}")
            raise
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if call.over and task is not None and not task.uncancel():
                raise ProtocolError(INTERNAL_ERROR, "the call has ended") from None
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

    async def _told_alone(self, server: str, request: Request) -> dict[str, Any]:
        """Roots for a server that asks while none of its calls runs, as many servers do when they start."""
        self._running[server].asks_alone += 1
        kept = await record_question(self._session, capability(server, "roots"), request.params, None)
        if not kept.ok:
            raise ProtocolError(INTERNAL_ERROR, "the question cannot be recorded")
        return self._known_roots(server, await self._client.ask(request))

    async def _refuse(self, server: str, name: str, call: ServerCall | None, reason: Reason, text: str) -> None:
        """Record a question that nobody is asked: in the receipt of the call, or in one of its own."""
        if call is not None:
            call.happened(ServerAskRefused, capability(server, name), reason, text)
            return
        one = self._running[server]
        one.refused_alone += 1
        # A server that floods must not fill the ledger: of many refusals, only some have a receipt.
        if one.refused_alone <= MAX_ASKS or one.refused_alone & (one.refused_alone - 1) == 0:
            about_all = f"{text}; refused question {one.refused_alone} of this server outside of calls"
            await record_question(self._session, capability(server, name), None, Ground(reason, about_all))

    # Approvals --------------------------------------------------------------------------------------------------------

    async def _approve(self, server: str, name: str, request: Request, call: ServerCall) -> None:
        """Return if an approver agrees to exactly this request; otherwise raise `ProtocolError`."""
        CALLER.set(call.client)  # of the task of this question
        question, approver = self._question(server, name, request), self._gate.ports.approver
        answered = Answered("absent")
        call.happened(ApprovalAsked, capability(server, name), rule=question.why)
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
        call.happened(ApprovalAnswered, capability(server, name), rule=text)
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

    def _is_known(self, server: str, root: object) -> bool:
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


def logged(server: str, params: Mapping[str, Any]) -> dict[str, Any]:
    """A log message of a server: with its name, and without hidden characters. A long one does not get here."""
    logger, data = f"{server}: {visible(str(params.get('logger') or '')[:100])}".rstrip(": "), params.get("data")
    return {**params, "logger": logger, **({"data": shown(data)} if "data" in params else {})}


BY = "client"


class ClientApprover:
    """Asks `behind` first, and then shows the question to the client, if it can be asked.

    `through_client` says for which tools a yes of the client approves.
    """

    def __init__(self, behind: Approver, through_client: Callable[[str], bool]) -> None:
        self._behind, self._through_client = behind, through_client
        self.verifies = getattr(behind, "verifies", False)

    async def ask(self, question: Question) -> Answer | Answered:
        """The answer of the store or of the client; `absent` if nobody has answered."""
        first = await self._behind.ask(question)
        answered = first if isinstance(first, Answered) else Answered(first)
        caller = CALLER.get()
        if answered.answer not in ("absent", "expired") or caller is None:
            return answered
        approves = self._through_client(question.approval.tool) and not question.signed and _is_shown_whole(question)
        try:
            said = await caller.ask(Request(0, "elicitation/create", _approval_form(question, answered, approves)))
        except ProtocolError:
            return answered
        if said.get("action") == "accept" and approves:
            content = said.get("content")
            if isinstance(content, dict) and content.get("approve") is True:
                return Answered("approved", (BY,), answered.request)
            return Answered("denied", (BY,), answered.request, "the client's user said no")
        if said.get("action") == "decline" and approves:
            return Answered("denied", (BY,), answered.request, "the client's user said no")
        again = await self._behind.ask(question)
        return again if isinstance(again, Answered) else Answered(again)

    def close(self) -> None:
        """Close the store behind it."""
        close = getattr(self._behind, "close", None)
        if close is not None:
            close()


def _is_shown_whole(question: Question) -> bool:
    """Whether a person at the client sees all that a yes would approve."""
    few = max(len(question.acts), len(question.deletes)) <= MOST_DELETES_SHOWN
    return few and len(_arguments(question)) <= LONGEST_ARGUMENTS


def _arguments(question: Question) -> str:
    return msgspec.json.encode(dict(question.arguments)).decode()


def _approval_form(question: Question, answered: Answered, approves: bool) -> dict[str, Any]:
    shown = _arguments(question)
    cut = shown if len(shown) <= LONGEST_ARGUMENTS else f"{shown[:LONGEST_ARGUMENTS]}…"
    lines = [f"{question.approval.tool} wants to run with {cut}", f"Why it asks: {question.why}"]
    lines += question.unmet
    lines += [f"It deletes: {act}" for act in question.acts[:MOST_DELETES_SHOWN]]
    lines += [
        f"It may delete and rename without asking again: {rule}" for rule in question.deletes[:MOST_DELETES_SHOWN]
    ]
    if not _is_shown_whole(question):
        lines.append("There is more of it than can be shown here, so an answer here approves nothing.")
    if approves:
        lines.append("May it run?")
        wanted = {"approve": {"type": "boolean", "title": "Let it run", "description": "Yes lets this call run once."}}
    else:
        lines.append(f"To answer, {answered.fix or 'ask the operator'}, then continue here.")
        wanted = {"continue": {"type": "boolean", "title": "Look again", "description": "This approves nothing."}}
    schema = {"type": "object", "properties": wanted, "required": list(wanted) if approves else []}
    return {"message": visible_lines(lines), "requestedSchema": schema}


def visible_lines(lines: list[str]) -> str:
    """Lines for a person, without hidden characters."""
    return "\n".join(visible(line) for line in lines)
