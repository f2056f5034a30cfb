"""The client of one connection: what it said of itself, how it is asked and told something, its running requests.

A client is asked only what it announced. One of 2025 is asked by a request on the wire, one of 2026 by a result that
is input-required. The call then waits, without a request of its own, until the client repeats the request with its
answers. The `requestState` that it sends back is random, is good once, and belongs to the method and parameters of the
first request. Either way, the questions that wait for an answer are a queue (`Questions`).

A client of 2025 subscribes to URIs, and gets a notification for every changed list. A client of 2026 opens streams;
each stream gets the notifications that it asked for.
"""

import asyncio
import secrets
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from hashlib import sha256
from typing import Any, Literal

import msgspec
from msgspec import UNSET, Struct

from licet.core.algebra.scope import inside, visible
from licet.gateway.limits import (
    ASK_SECONDS,
    GIVE_UP_SECONDS,
    LEAST_ASK_SECONDS,
    LONGEST_CLIENT_ERROR,
    LONGEST_PROGRESS,
    LONGEST_REPORTED,
    MOST_QUESTIONS,
    MOST_REPORTS,
    MOST_SUBSCRIPTIONS,
    MOST_WAITING_CALLS,
    REPEAT_SECONDS,
)
from licet.mcp.content import passed
from licet.mcp.jsonrpc import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    METHOD_NOT_FOUND,
    Failure,
    Id,
    Message,
    Notification,
    ProtocolError,
    Request,
    Response,
)
from licet.mcp.limits import MOST_ROUNDS
from licet.mcp.protocol import (
    ASKABLE,
    HANDSHAKE_VERSIONS,
    LEVELS,
    LOG_PARAMS,
    MODERN_VERSIONS,
    PROGRESS_PARAMS,
    SUBSCRIPTION_KEY,
    Claims,
    Era,
    Method,
    Sender,
    Wishes,
    find,
    for_version,
    kept,
)


class CannotAsk(ProtocolError):
    """The client cannot be asked this, or did not answer. `code` is the error for the server that asked."""

    def __init__(self, reason: str, code: int = METHOD_NOT_FOUND) -> None:
        super().__init__(code, reason)


class Refusal(Exception):
    """A request is refused: a reason code, and one line for the model that starts with it."""

    def __init__(self, reason: str, line: str, code: int = INVALID_PARAMS) -> None:
        self.reason = reason
        self.line = line
        self.code = code  # of the error, for methods whose results cannot say that they are errors
        super().__init__(line)


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
        case "sampling", {"role": "user" | "assistant", "content": dict() | list() as content, "model": str()}:
            return {**fields, "content": passed("samplingBlocks", content)}
        case "roots", {"roots": list(roots)} if all(isinstance(root, dict) for root in roots):
            return {"roots": [kept(root, frozenset(("uri", "name")))[0] for root in roots]}
    raise CannotAsk(f"the client's answer to `{row.name}` is malformed", INTERNAL_ERROR)


class Questions:
    """A queue: the questions that wait for an answer of the client, by number.

    `put` sends one, and `withdraw` takes one back that nobody waits for any more.
    """

    def __init__(self, put: Callable[[int], object], withdraw: Callable[[int], object] = lambda number: None) -> None:
        self._put, self._withdraw = put, withdraw
        self._last = 0
        self._waiting: dict[int, tuple[Question, asyncio.Future[object]]] = {}

    @property
    def waiting(self) -> dict[int, Question]:
        """The questions without an answer, the oldest first."""
        return {number: asked for number, (asked, future) in self._waiting.items() if not future.done()}

    async def ask(self, asked: Question, seconds: float | None = None) -> dict[str, Any]:
        """The client's answer. It is withdrawn after so many seconds. Raises `CannotAsk`."""
        if len(self._waiting) >= MOST_QUESTIONS:
            raise CannotAsk(f"{MOST_QUESTIONS} questions wait for the client already", INTERNAL_ERROR)
        self._last += 1
        number, loop = self._last, asyncio.get_running_loop()
        future: asyncio.Future[object] = loop.create_future()
        self._waiting[number] = asked, future
        late = CannotAsk(f"the client did not answer within {seconds or 0:.0f} seconds", INTERNAL_ERROR)
        timer = loop.call_later(seconds, _fail, future, late) if seconds is not None else None
        self._put(number)
        try:
            return answer(asked.row, await future)
        finally:
            if timer is not None:
                timer.cancel()
            if self._waiting.pop(number, None):
                self._withdraw(number)

    def take(self, number: int, said: object) -> bool:
        """Take an answer, or the error that came instead. False if nothing waits for it."""
        _, future = self._waiting.pop(number, (None, None))
        if future is None or future.done():
            return False
        if isinstance(said, CannotAsk):
            future.set_exception(said)
        else:
            future.set_result(said)
        return True

    def fail(self, error: CannotAsk) -> None:
        """End all questions that wait."""
        for _, future in self._waiting.values():
            _fail(future, error)


def _fail(future: asyncio.Future[object], error: CannotAsk) -> None:
    if not future.done():
        future.set_exception(error)


def seconds_for_an_answer(waited: float) -> float:
    """How long a question may wait if the client's request began so many seconds ago.

    The question ends before the client gives up its request, so that it still learns why. A client that has waited for
    longer than most is patient.
    """
    return ASK_SECONDS if waited > GIVE_UP_SECONDS else max(ASK_SECONDS - waited, LEAST_ASK_SECONDS)


class Unforwarded(Struct, frozen=True):
    """Something that was not passed on. Each name is reported once per connection."""

    sender: Sender
    kind: str  # request, notification, parameter, `_meta` key, result key, tool, answer …
    name: str
    reason: str

    def __str__(self) -> str:
        return f"{self.sender}: {self.kind} `{self.name}`: {self.reason}"


Changed = Literal["tools", "resources", "prompts"]
FLAGS: Mapping[Changed, str] = {
    "tools": "toolsListChanged",
    "resources": "resourcesListChanged",
    "prompts": "promptsListChanged",
}
Resource = tuple[str, str]  # server, URI


class Stream(Struct):
    """Where a client is told of changes."""

    id: Id | None  # the request that opened it; None for the one of a client of 2025
    lists: frozenset[Changed] = frozenset()
    resources: list[Resource] = []
    held: dict[tuple[str, str], Notification] | None = None  # what happened before it was acknowledged

    def covers(self, server: str, uri: str) -> bool:
        """Whether it is about this resource of a server, or about one above it."""
        return any(named == server and inside(uri, (above,)) for named, above in self.resources)

    def notification(self, method: str, params: dict[str, Any]) -> Notification:
        """A notification of this stream, which says so to a client of 2026."""
        return Notification(method, params if self.id is None else {**params, "_meta": {SUBSCRIPTION_KEY: self.id}})


class Client:
    """What the requests of one client share, and how it is told and asked something outside of them.

    `crowded` says that the transport is behind: progress, log messages and updates of resources are left out meanwhile,
    so that a server cannot fill the memory.
    """

    def __init__(self, reported: Callable[[Unforwarded], None]) -> None:
        self.send: Callable[[Message], None] = lambda message: None  # before it is connected, and after its end
        self.crowded: Callable[[], bool] = lambda: False
        self.era: Era = ""
        self.claims = Claims(HANDSHAKE_VERSIONS[-1], {}, {})
        self.level = ""  # of a client of 2025, after `logging/setLevel`
        self.running: dict[Id, ClientCall] = {}
        self.waiting = WaitingCalls()
        self.streams = [Stream(None)]  # the first one is that of a client of 2025
        self._questions = Questions(self._put, self._withdraw)  # on the wire
        self._started = False
        self._reported, self._known = reported, set[Unforwarded]()

    def report(self, sender: Sender, kind: str, name: str, reason: str) -> None:
        """Report what is not passed on, once."""
        event = Unforwarded(sender, kind, shortened(name), shortened(reason))
        if event not in self._known and len(self._known) < MOST_REPORTS:
            self._known.add(event)
            self._reported(event)

    def log(self, params: Mapping[str, Any]) -> bool:
        """Pass on a log message that belongs to no call. A client of 2026 wants none. Whether it was sent."""
        return self.era == "2025" and self.log_from(params, self.level)

    def log_from(self, params: Mapping[str, Any], level: str) -> bool:
        """Send a log message if it is at or above `level`. An empty level lets everything pass."""
        known, _ = kept(params, LOG_PARAMS)
        said = known.get("level")
        if said not in LEVELS or "data" not in known:
            self.report("server", "notification", "notifications/message", "it has no known `level`, or no `data`")
        elif (not level or LEVELS.index(said) >= LEVELS.index(level)) and not self.crowded():
            self.send(Notification("notifications/message", known))
            return True
        return False

    def list_changed(self, kind: Changed) -> None:
        """Tell the client that one of its lists is not what it was."""
        for stream in self.streams:
            if kind in stream.lists:
                self._tell(stream, f"notifications/{kind}/list_changed", {})

    def resource_updated(self, server: str, uri: str) -> bool:
        """Tell who subscribed to this resource of this server, or to one above it, unless the transport is behind.

        Whether anybody did.
        """
        told = [] if self.crowded() else [stream for stream in self.streams if stream.covers(server, uri)]
        for stream in told:
            self._tell(stream, "notifications/resources/updated", {"uri": uri})
        return bool(told)

    def _tell(self, stream: Stream, method: str, params: dict[str, Any]) -> None:
        notification = stream.notification(method, params)
        if stream.held is None:
            self.send(notification)
        elif len(stream.held) < MOST_SUBSCRIPTIONS:
            stream.held[method, params.get("uri", "")] = notification

    async def ask(self, request: Request) -> dict[str, Any]:
        """Ask something that belongs to no call. Raises `CannotAsk`, for a client of 2026 always."""
        if self.era != "2025":
            raise CannotAsk("the client can be asked only during a call")
        return await self.ask_on_the_wire(request, self.claims)

    # Questions on the wire --------------------------------------------------------------------------------------------

    async def ask_on_the_wire(self, request: Request, claims: Claims, waited: float = 0.0) -> dict[str, Any]:
        """Ask a client of 2025, whose own request began so many seconds ago."""
        return await self._questions.ask(self.checked(request, claims), seconds_for_an_answer(waited))

    def checked(self, request: Request, claims: Claims) -> Question:
        """The question in the client's form. Raises `CannotAsk`."""
        asked = question(request, claims)
        for key in asked.dropped:
            self.report("server", "parameter", f"{request.method} {key}", "not in the table of methods")
        return asked

    def start(self) -> None:
        """Ask a client of 2025, and tell it of changed lists, from now on: it has said that it is initialized."""
        self.streams[0].lists = frozenset(FLAGS)
        if not self._started:
            self._started = True
            for number in self._questions.waiting:
                self._put(number)

    def answered(self, message: Response | Failure) -> bool:
        """Take an answer. False if nothing waits for it."""
        number = message.id
        if isinstance(number, str) and number.isdecimal():
            number = int(number)  # some clients answer "7" to 7
        if not isinstance(number, int):
            return False
        if isinstance(message, Failure):
            return self._questions.take(number, CannotAsk(message.message[:LONGEST_CLIENT_ERROR], message.code))
        return self._questions.take(number, message.result if message.data is UNSET else message.data)

    def _put(self, number: int) -> None:
        if self._started:
            asked = self._questions.waiting[number]
            self.send(Request(number, asked.row.name, asked.params))

    def _withdraw(self, number: int) -> None:
        if self._started:
            self.send(Notification("notifications/cancelled", {"requestId": number, "reason": "no longer needed"}))


def shortened(text: str) -> str:
    """A client's or a server's text for messages and reports."""
    return visible(text[:LONGEST_REPORTED])


class WaitingCalls:
    """The calls that wait until the client repeats their request, by the `requestState` that it must send."""

    def __init__(self) -> None:
        self._calls: dict[str, tuple[ClientCall, bytes, asyncio.TimerHandle]] = {}

    def add(self, call: "ClientCall") -> str:
        state = secrets.token_urlsafe(32)
        timer = asyncio.get_running_loop().call_later(REPEAT_SECONDS, self._end, state)
        self._calls[state] = call, _fingerprint(call.request), timer
        if len(self._calls) > MOST_WAITING_CALLS:
            self._end(next(iter(self._calls)))
        return state

    def take(self, request: Request) -> "ClientCall":
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


class ClientCall:
    """One running request of the client, given to the backend."""

    def __init__(self, request: Request, claims: Claims, wishes: Wishes, client: Client, call_id: str = "") -> None:
        self.request = request
        self.method = request.method
        self.task: asyncio.Task[None] | None = None
        self._client = client
        self._id: Id | None = None  # None while the call waits to be repeated, and after its end
        self._silent = False  # the client cancelled it, or has left it
        self._outcome: Callable[[Id], Message] | None = None  # of a call that ended while it waited
        self._rounds = 0
        self._questions = Questions(self._ask_soon)  # that the client's next request answers
        self.call_id = call_id  # that the client gave this call; empty if it gave none
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

    def progress(self, params: Mapping[str, Any]) -> str:
        """Pass on progress, if the client wants it and the call still runs. The message that was sent with it."""
        token = self._wishes.progress_token
        if self._id is None or token is None or self._client.crowded():
            return ""
        known, _ = kept(params, PROGRESS_PARAMS)
        if isinstance(text := known.get("message"), str):
            known["message"] = visible(text[:LONGEST_PROGRESS])
        if not isinstance(known.get("progress"), int | float):
            return ""
        self._since = asyncio.get_running_loop().time()  # a client that sees progress waits on
        self._client.send(Notification("notifications/progress", {"progressToken": token, **known}))
        return str(known.get("message", ""))

    def log(self, params: Mapping[str, Any]) -> bool:
        """Pass on a log message of this call, if the client wants its level. Whether it was sent."""
        if self._id is None or not (self._wishes.level or not self._modern):
            return False
        return self._client.log_from(params, self._wishes.level if self._modern else self._client.level)

    async def ask(self, request: Request) -> dict[str, Any]:
        """Ask the client: sampling, elicitation or roots. The id of `request` is not used. Raises `CannotAsk`."""
        if not self._modern:
            waited = asyncio.get_running_loop().time() - self._since
            return await self._client.ask_on_the_wire(request, self._claims, waited)
        asked = self._client.checked(request, self._claims)
        if self.method not in ASKABLE:
            raise CannotAsk(f"the client cannot be asked during `{self.method}`")
        return await self._questions.ask(asked)

    # A call that waits to be repeated ---------------------------------------------------------------------------------

    def _ask_soon(self, number: int = 0) -> None:
        asyncio.get_running_loop().call_soon(self._send_questions)  # once for all questions of this turn

    def _send_questions(self) -> None:
        waiting = self._questions.waiting
        if self._id is None or not waiting:
            return
        self._rounds += 1
        if self._rounds > MOST_ROUNDS:
            self._questions.fail(CannotAsk(f"asked {MOST_ROUNDS} times in one call already", INTERNAL_ERROR))
            return
        result = {
            "resultType": "input_required",
            "inputRequests": {str(number): _as_input(asked) for number, asked in waiting.items()},
            "requestState": self._client.waiting.add(self),
        }
        self._client.send(Response(self._detach(self._id), for_version(self.method, result, self._claims.version)))

    def repeated(self, request: Request, claims: Claims, wishes: Wishes) -> None:
        """Go on under the request with which the client repeated this call."""
        self._attach(request.id, claims, wishes)
        given = request.params.get("inputResponses")
        answers: dict[str, object] = given if isinstance(given, dict) else {}
        for number in self._questions.waiting:
            if str(number) in answers:
                self._questions.take(number, answers[str(number)])
        if self._outcome:
            self.end(self._outcome)
        else:  # what was not answered, or was asked since, is asked now
            self._ask_soon()

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
CALLER: ContextVar[ClientCall | None] = ContextVar("licet_gateway_caller", default=None)
