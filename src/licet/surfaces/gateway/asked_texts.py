"""What a server asks, as the client is shown it: marked as the server's words, cut, and without hidden characters.

A text is written visibly. A key or a value that comes back to the server cannot be rewritten, so a form in which one of
these has hidden characters is refused.
"""

import re
import secrets
from typing import Any
from urllib.parse import urlsplit

import msgspec

from licet.core.algebra.scope import visible
from licet.core.policy.lock import hidden_in, shown
from licet.surfaces.gateway.jsonrpc import INVALID_PARAMS, Request
from licet.surfaces.gateway.upstream import AskRefused

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
