"""How the backend talks to the client during one request: progress, log messages and questions.

A client of 2026 is asked by an input-required result. The call then waits, without a request of its own, until the
client repeats the request with its answers. The `requestState` that it sends back is random, is good once, and belongs
to the method and parameters of the first request.
"""

import asyncio
import secrets
from collections.abc import Callable, Mapping
from hashlib import sha256
from typing import Any

import msgspec

from licet.core.algebra.scope import visible
from licet.surfaces.gateway.eras import LEVELS, Claims, ProtocolError, Wishes, for_version
from licet.surfaces.gateway.jsonrpc import INTERNAL_ERROR, INVALID_PARAMS, Id, Message, Notification, Request, Response
from licet.surfaces.gateway.methods import ASKABLE, LOG_PARAMS, MODERN_VERSIONS, PROGRESS_PARAMS, kept
from licet.surfaces.gateway.questions import (
    MOST_QUESTIONS,
    Cancellable,
    CannotAsk,
    Question,
    Timer,
    WireQuestions,
    answer,
    question,
    seconds_for_an_answer,
)

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
