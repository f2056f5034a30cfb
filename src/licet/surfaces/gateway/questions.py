"""Questions to the client: which it can be asked, how they look in its protocol version, and what counts as an answer.

A client is asked only what it announced. `WireQuestions` asks a client of 2025; caller.py asks one of 2026.
"""

import asyncio
import secrets
from collections.abc import Callable
from typing import Any, Protocol

from msgspec import UNSET, Struct

from licet.surfaces.gateway.eras import Claims
from licet.surfaces.gateway.jsonrpc import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    METHOD_NOT_FOUND,
    Failure,
    Message,
    Notification,
    Request,
    Response,
)
from licet.surfaces.gateway.methods import MODERN_VERSIONS, Method, find, kept

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
