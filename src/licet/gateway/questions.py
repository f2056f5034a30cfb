"""Questions to the client: which it can be asked, how they look in its protocol version, and what counts as an answer.

A client is asked only what it announced. `WireQuestions` asks a client of 2025; `CallerLink` asks one of 2026.

Approvals through the client of the gateway: the client's user is shown what waits for an approval.

By default an answer of the client approves nothing. It only means "look again": the call runs if somebody has answered
with `licet approvals` meanwhile. With `approvals: {through_client: true}` a yes is the approval, recorded as `client`.
It never counts as a signature: where the policy wants signed approvals, it is "look again" there too.

How the backend talks to the client during one request: progress, log messages and questions.

A client of 2026 is asked by an input-required result. The call then waits, without a request of its own, until the
client repeats the request with its answers. The `requestState` that it sends back is random, is good once, and belongs
to the method and parameters of the first request.
"""

import asyncio
import secrets
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from hashlib import sha256
from typing import Any, Protocol

import msgspec
from msgspec import UNSET, Struct

from licet.core.algebra.scope import visible
from licet.guard.ports import Answer, Answered, Approver
from licet.guard.ports import Question as ApprovalQuestion
from licet.mcp.jsonrpc import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    METHOD_NOT_FOUND,
    Failure,
    Id,
    Message,
    Notification,
    Request,
    Response,
)
from licet.mcp.protocol import (
    ASKABLE,
    LEVELS,
    LOG_PARAMS,
    MODERN_VERSIONS,
    PROGRESS_PARAMS,
    Claims,
    Method,
    ProtocolError,
    Wishes,
    find,
    for_version,
    kept,
)

ASK_SECONDS = 50.0  # for an answer of a client whose own request waits meanwhile
GIVE_UP_SECONDS = 60.0  # after which many clients end such a request
LEAST_SECONDS = 2.0
MOST_QUESTIONS = 100  # that wait for an answer at once
_LONGEST_ERROR = 2000  # characters


class CannotAsk(Exception):
    """The client cannot be asked this, or did not answer. `code` is the error for the server that asked."""

    def __init__(self, reason: str, code: int = METHOD_NOT_FOUND) -> None:
        self.code = code
        super().__init__(reason)


class Cancellable(Protocol):
    def cancel(self) -> object: ...


Timer = Callable[[float, Callable[[], object]], Cancellable]


class Question(Struct, frozen=True):
    """A question in the form of the client's protocol version."""

    row: Method
    params: dict[str, Any]
    dropped: list[str]  # parameters that are not passed on


def question(request: Request, claims: Claims) -> Question:
    """Put a server's request into the form of the client's version. Raises `CannotAsk`."""
    modern = claims.version in MODERN_VERSIONS
    row = find(request.method, "input" if modern else "request", "server", claims.version)
    if row is None or row.name == "ping":
        raise CannotAsk(f"`{request.method[:100]}` cannot be asked of a client of protocol version {claims.version}")
    announced = claims.capabilities.get(row.topic)
    if not isinstance(announced, dict):
        raise CannotAsk(f"the client did not announce `{row.topic}`")
    params, dropped = kept(request.params, row.params)
    if row.topic == "sampling" and (params.get("tools") or params.get("toolChoice")) and "tools" not in announced:
        raise CannotAsk("the client did not announce `sampling.tools`", INVALID_PARAMS)
    if row.topic == "elicitation":
        mode = params.setdefault("mode", "form")
        # Before 2025-11-25 there were only forms, and `{}` still means them.
        if mode not in ("form", "url") or mode not in (announced.keys() & {"form", "url"} or ("form",)):
            raise CannotAsk(f"the client did not announce `elicitation.{str(mode)[:20]}`", INVALID_PARAMS)
        if claims.version < "2025-11-25":
            del params["mode"]
        elif mode == "url" and not modern:
            params.setdefault("elicitationId", secrets.token_urlsafe(16))  # servers of 2026 send none
    return Question(row, params, dropped)


def answer(row: Method, data: object) -> dict[str, Any]:
    """Check an answer of the client, and keep what the table names. Raises `CannotAsk`."""
    fields, _ = kept(data, row.result) if isinstance(data, dict) else ({}, [])
    match row.topic, fields:
        case "elicitation", {"action": "accept", "content": dict()}:
            return fields
        case "elicitation", {"action": "accept" | "decline" | "cancel" as action}:
            return {"action": action}
        case "sampling", {"role": "user" | "assistant", "content": dict() | list(), "model": str()}:
            return fields
        case "roots", {"roots": list(roots)} if all(isinstance(root, dict) for root in roots):
            return {"roots": [kept(root, frozenset(("uri", "name")))[0] for root in roots]}
    raise CannotAsk(f"the client's answer to `{row.name}` is malformed", INTERNAL_ERROR)


class WireQuestions:
    """The questions to a client of 2025 that wait for an answer."""

    def __init__(self, send: Callable[[Message], None], later: Timer) -> None:
        self._send = send
        self._later = later
        self._started = False
        self._last = 0
        self._waiting: dict[int, tuple[Question, asyncio.Future[dict[str, Any]]]] = {}

    def start(self) -> None:
        """Ask from now on: the client has said that it is initialized."""
        if not self._started:
            self._started = True
            for number, (asked, _) in self._waiting.items():
                self._send(Request(number, asked.row.name, asked.params))

    async def ask(self, asked: Question, seconds: float = ASK_SECONDS) -> dict[str, Any]:
        """The client's answer. It is withdrawn after so many seconds. Raises `CannotAsk`."""
        if len(self._waiting) >= MOST_QUESTIONS:
            raise CannotAsk(f"{MOST_QUESTIONS} questions wait for the client already", INTERNAL_ERROR)
        self._last += 1
        number = self._last
        future: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        self._waiting[number] = asked, future
        timer = self._later(seconds, lambda: _fail(future, _late(seconds)))
        if self._started:
            self._send(Request(number, asked.row.name, asked.params))
        try:
            return answer(asked.row, await future)
        finally:
            timer.cancel()
            # A question that nobody waits for any more is withdrawn.
            if self._waiting.pop(number, None) and self._started:
                self._send(Notification("notifications/cancelled", {"requestId": number, "reason": "no longer needed"}))

    def answered(self, message: Response | Failure) -> bool:
        """Take an answer. False if nothing waits for it."""
        number = message.id
        if isinstance(number, str) and number.isdecimal():
            number = int(number)  # some clients answer "7" to 7
        _, future = self._waiting.pop(number, (None, None)) if isinstance(number, int) else (None, None)
        if future is None or future.done():
            return False
        if isinstance(message, Failure):
            future.set_exception(CannotAsk(message.message[:_LONGEST_ERROR], message.code))
        else:
            future.set_result(message.result if message.data is UNSET else message.data)
        return True


def _fail(future: asyncio.Future[dict[str, Any]], error: CannotAsk) -> None:
    if not future.done():
        future.set_exception(error)


def _late(seconds: float) -> CannotAsk:
    return CannotAsk(f"the client did not answer within {seconds:.0f} seconds", INTERNAL_ERROR)


def seconds_for_an_answer(waited: float) -> float:
    """How long a question may wait if the client's request began so many seconds ago.

    The question ends before the client gives up its request, so that it still learns why. A client that has waited for
    longer than most is patient.
    """
    return ASK_SECONDS if waited > GIVE_UP_SECONDS else max(ASK_SECONDS - waited, LEAST_SECONDS)


WAIT_SECONDS = 600.0  # until a client of 2026 repeats a request with its answers: it has none open meanwhile
MOST_WAITING = 100  # calls that wait to be repeated, per connection
_LONGEST_PROGRESS = 500  # characters of a server's text
MOST_ROUNDS = 10  # input-required results per call; SDK clients give up after as many


class Client:
    """What the requests of one client share."""

    def __init__(
        self,
        send: Callable[[Message], None],
        dropped: Callable[[str, str, str], None],
        crowded: Callable[[], bool],
        later: Timer,
    ) -> None:
        self.send = send
        self.dropped = dropped  # reports what was not passed on of a server's message: kind, name, reason
        self.crowded = crowded
        self.level = ""  # of a client of 2025, after `logging/setLevel`
        self.questions = WireQuestions(send, later)
        self.running: dict[Id, CallerLink] = {}
        self.waiting = WaitingCalls(later)

    def log(self, params: Mapping[str, Any], level: str) -> None:
        """Send a log message if it is at or above `level`. An empty level lets everything pass."""
        known, _ = kept(params, LOG_PARAMS)
        said = known.get("level")
        if said not in LEVELS or "data" not in known:
            self.dropped("notification", "notifications/message", "it has no known `level`, or no `data`")
        elif (not level or LEVELS.index(said) >= LEVELS.index(level)) and not self.crowded():
            self.send(Notification("notifications/message", known))

    async def ask(self, request: Request, claims: Claims, waited: float = 0.0) -> dict[str, Any]:
        """Ask a client of 2025, whose own request began so many seconds ago."""
        return await self.questions.ask(self.checked(request, claims), seconds_for_an_answer(waited))

    def checked(self, request: Request, claims: Claims) -> Question:
        asked = question(request, claims)
        for key in asked.dropped:
            self.dropped("parameter", f"{request.method} {key}", "not in the table of methods")
        return asked


class WaitingCalls:
    """The calls that wait until the client repeats their request, by the `requestState` that it must send."""

    def __init__(self, later: Timer) -> None:
        self._later = later
        self._calls: dict[str, tuple[CallerLink, bytes, Cancellable]] = {}

    def add(self, call: "CallerLink") -> str:
        state = secrets.token_urlsafe(32)
        timer = self._later(WAIT_SECONDS, lambda: self._end(state))
        self._calls[state] = call, _fingerprint(call.request), timer
        if len(self._calls) > MOST_WAITING:
            self._end(next(iter(self._calls)))
        return state

    def take(self, request: Request) -> "CallerLink":
        """The call that a request repeats. Raises `ProtocolError`."""
        state = request.params.get("requestState")
        found = self._calls.get(state) if isinstance(state, str) else None
        if found is None or not isinstance(state, str):
            raise ProtocolError(INVALID_PARAMS, "`requestState` is unknown, used or expired: call again without it")
        call, fingerprint, timer = found
        if fingerprint != _fingerprint(request):
            raise ProtocolError(INVALID_PARAMS, "`requestState` belongs to another request")
        del self._calls[state]
        timer.cancel()
        return call

    def clear(self) -> None:
        for state in list(self._calls):
            self._end(state)

    def _end(self, state: str) -> None:
        if found := self._calls.pop(state, None):
            call, _, timer = found
            timer.cancel()
            call.stop()


def _fingerprint(request: Request) -> bytes:
    """What a repeated request must have in common with the first. JSON text tells 1, 1.0 and true apart."""
    changing = ("_meta", "inputResponses", "requestState")
    params = {key: value for key, value in request.params.items() if key not in changing}
    return sha256(msgspec.json.encode([request.method, params], order="sorted")).digest()


class CallerLink:
    """One running request of the client, given to the backend."""

    def __init__(self, request: Request, claims: Claims, wishes: Wishes, client: Client) -> None:
        self.request = request
        self.method = request.method
        self.task: asyncio.Task[None] | None = None
        self._client = client
        self._id: Id | None = None  # None while the call waits to be repeated, and after its end
        self._silent = False  # the client cancelled it, or has left it
        self._outcome: Callable[[Id], Message] | None = None  # of a call that ended while it waited
        self._rounds = 0
        self._asked = 0
        self._unanswered: dict[str, tuple[Question, asyncio.Future[object]]] = {}
        self._attach(request.id, claims, wishes)

    @property
    def version(self) -> str:
        """The client's protocol version."""
        return self._claims.version

    @property
    def level(self) -> str:
        """The level to ask a server for; empty if the client wants no log messages of this call."""
        return self._wishes.level if self._modern else self._client.level or "info"

    @property
    def waits(self) -> bool:
        """Whether the call waits until the client repeats its request."""
        return self._id is None and not self._silent

    def progress(self, params: Mapping[str, Any]) -> None:
        """Pass on progress, if the client wants it and the call still runs."""
        token = self._wishes.progress_token
        if self._id is None or token is None or self._client.crowded():
            return
        known, _ = kept(params, PROGRESS_PARAMS)
        if isinstance(text := known.get("message"), str):
            known["message"] = visible(text[:_LONGEST_PROGRESS])
        if isinstance(known.get("progress"), int | float):
            self._since = asyncio.get_running_loop().time()  # a client that sees progress waits on
            self._client.send(Notification("notifications/progress", {"progressToken": token, **known}))

    def log(self, params: Mapping[str, Any]) -> None:
        """Pass on a log message of this call, if the client wants its level."""
        if self._id is not None and (self._wishes.level or not self._modern):
            self._client.log(params, self._wishes.level if self._modern else self._client.level)

    async def ask(self, request: Request) -> dict[str, Any]:
        """Ask the client: sampling, elicitation or roots. The id of `request` is not used. Raises `CannotAsk`."""
        if not self._modern:
            return await self._client.ask(request, self._claims, asyncio.get_running_loop().time() - self._since)
        return await self._ask_by_result(self._client.checked(request, self._claims))

    # A call that waits to be repeated ---------------------------------------------------------------------------------

    async def _ask_by_result(self, asked: Question) -> dict[str, Any]:
        if self.method not in ASKABLE:
            raise CannotAsk(f"the client cannot be asked during `{self.method}`")
        if len(self._unanswered) >= MOST_QUESTIONS:
            raise CannotAsk(f"{MOST_QUESTIONS} questions wait for the client already", INTERNAL_ERROR)
        self._asked += 1
        key, loop = str(self._asked), asyncio.get_running_loop()
        future: asyncio.Future[object] = loop.create_future()
        self._unanswered[key] = asked, future
        loop.call_soon(self._send_questions)  # once for all questions of this turn
        try:
            return answer(asked.row, await future)
        finally:
            self._unanswered.pop(key, None)

    def _send_questions(self) -> None:
        open_questions = {key: asked for key, (asked, future) in self._unanswered.items() if not future.done()}
        if self._id is None or not open_questions:
            return
        self._rounds += 1
        if self._rounds > MOST_ROUNDS:
            for _, future in self._unanswered.values():
                if not future.done():
                    future.set_exception(CannotAsk(f"asked {MOST_ROUNDS} times in one call already", INTERNAL_ERROR))
            return
        result = {
            "resultType": "input_required",
            "inputRequests": {key: _as_input(asked) for key, asked in open_questions.items()},
            "requestState": self._client.waiting.add(self),
        }
        self._client.send(Response(self._detach(self._id), for_version(self.method, result, self._claims.version)))

    def repeated(self, request: Request, claims: Claims, wishes: Wishes) -> None:
        """Go on under the request with which the client repeated this call."""
        self._attach(request.id, claims, wishes)
        answers = request.params.get("inputResponses")
        for key, (_, future) in self._unanswered.items():
            if isinstance(answers, dict) and key in answers and not future.done():
                future.set_result(answers[key])
        if self._outcome:
            self.end(self._outcome)
        else:  # what was not answered, or was asked since, is asked now
            asyncio.get_running_loop().call_soon(self._send_questions)

    # Its end ----------------------------------------------------------------------------------------------------------

    def end(self, outcome: Callable[[Id], Message]) -> None:
        """Answer the request. A call that waits to be repeated is answered then."""
        if self._silent:
            return
        if self._id is None:
            self._outcome = outcome
        else:
            self._client.send(outcome(self._detach(self._id)))

    def stop(self) -> None:
        """Cancel the call and never answer it."""
        self._silent = True
        if self._id is not None:
            self._detach(self._id)
        if self.task is not None:
            self.task.cancel()

    def _attach(self, request_id: Id, claims: Claims, wishes: Wishes) -> None:
        self._id = request_id
        self._claims = claims
        self._wishes = wishes
        self._modern = claims.version in MODERN_VERSIONS
        self._client.running[request_id] = self
        self._since = asyncio.get_running_loop().time()

    def _detach(self, request_id: Id) -> Id:
        self._id = None
        del self._client.running[request_id]
        return request_id


def _as_input(asked: Question) -> dict[str, Any]:
    name = asked.row.name
    return {"method": name, "params": asked.params} if asked.params else {"method": name}


# The request of the client that the current task works on.
CALLER: ContextVar[CallerLink | None] = ContextVar("licet_gateway_caller", default=None)

BY = "client"
_LONGEST = 16_000  # characters of the arguments that are shown
_MOST_LINES = 20  # of deletes that are shown


class ClientApprover:
    """Asks `behind` first, and then shows the question to the client, if it can be asked.

    `through_client` says for which tools a yes of the client approves.
    """

    def __init__(self, behind: Approver, through_client: Callable[[str], bool]) -> None:
        self._behind, self._through_client = behind, through_client
        self.verifies = getattr(behind, "verifies", False)

    async def ask(self, question: ApprovalQuestion) -> Answer | Answered:
        """The answer of the store or of the client; `absent` if nobody has answered."""
        first = await self._behind.ask(question)
        answered = first if isinstance(first, Answered) else Answered(first)
        caller = CALLER.get()
        if answered.answer not in ("absent", "expired") or caller is None:
            return answered
        approves = self._through_client(question.approval.tool) and not question.signed and _is_shown_whole(question)
        try:
            said = await caller.ask(Request(0, "elicitation/create", _form(question, answered, approves)))
        except (CannotAsk, ProtocolError):
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


def _is_shown_whole(question: ApprovalQuestion) -> bool:
    """Whether a person at the client sees all that a yes would approve."""
    few = max(len(question.acts), len(question.deletes)) <= _MOST_LINES
    return few and len(_arguments(question)) <= _LONGEST


def _arguments(question: ApprovalQuestion) -> str:
    return msgspec.json.encode(dict(question.arguments)).decode()


def _form(question: ApprovalQuestion, answered: Answered, approves: bool) -> dict[str, Any]:
    shown = _arguments(question)
    cut = shown if len(shown) <= _LONGEST else f"{shown[:_LONGEST]}…"
    lines = [f"{question.approval.tool} wants to run with {cut}", f"Why it asks: {question.why}"]
    lines += [f"It deletes: {act}" for act in question.acts[:_MOST_LINES]]
    lines += [f"It may delete and rename without asking again: {rule}" for rule in question.deletes[:_MOST_LINES]]
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
