"""What a caller may put into a request: header lines that are lines, and a body that is bytes.

Nothing here names a value in a message: it may be a secret.
"""

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from licet.core.network import TOKEN
from licet.guard.endings import JsonText
from licet.guard.meter import Meter

Pairs = tuple[tuple[str, str], ...]

# How a message is framed and where it goes is decided by what was checked, never by a caller.
_OURS = {"connection", "content-length", "expect", "host", "http2-settings", "keep-alive", "te", "trailer"}
_OURS |= {"transfer-encoding", "upgrade"}
# By these many servers take a request for one of another method than the one that was checked.
METHOD_OVERRIDES = frozenset({"x-http-method", "x-http-method-override", "x-method-override"})
_VALUE = re.compile(r"[\t\x20-\x7e]*")
_MOST_BYTES = 256 << 10  # of the headers of a request together; servers take far less
_DEFAULTS = (("accept", "*/*"), ("accept-encoding", "gzip, deflate"), ("user-agent", "licet"))


class BadRequest(ValueError):
    """A request that cannot be sent as it was written: what is wrong with it."""


class Outgoing(NamedTuple):
    """The headers and the body that a caller gave."""

    headers: Pairs = ()
    body: bytes = b""
    is_json: bool = False

    @property
    def lines(self) -> Pairs:
        """The headers as they are sent, with what the caller left out."""
        if not self.headers:
            return _DEFAULTS
        given = {name.lower() for name, _ in self.headers}
        return (*self.headers, *(pair for pair in _DEFAULTS if pair[0] not in given))

    def without_body(self) -> "Outgoing":
        """The same without its body and what describes it."""
        return Outgoing(tuple(pair for pair in self.headers if not pair[0].lower().startswith("content-")))


def outgoing(headers: Any, json_value: Any, body: Any, meter: Meter | None = None) -> Outgoing:
    """The parts of a request, checked, or `BadRequest`; `Exceeded` if there are more headers than the meter allows."""
    if headers is None and json_value is None and body is None:
        return _NOTHING
    pairs = _pairs(headers, meter or Meter())
    if json_value is None:
        return Outgoing(pairs, _bytes(body))
    if body is not None:
        raise BadRequest("found both `json` and `body`, expected one of them")
    # JSON from a worker is sent as it came: a body may say anything.
    data = bytes(json_value) if type(json_value) is JsonText else _dumped(json_value)
    if not any(name.lower() == "content-type" for name, _ in pairs):
        pairs = (*pairs, ("content-type", "application/json"))
    return Outgoing(pairs, data, True)


def _dumped(json_value: Any) -> bytes:
    try:
        return json.dumps(json_value, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode("utf-8")
    except (TypeError, ValueError, RecursionError) as wrong:
        raise BadRequest("found a value under `json` that JSON cannot carry") from wrong


_NOTHING = Outgoing()


def checked_value(name: str, value: str) -> str:
    """The value of a header without the spaces around it, or `BadRequest` if it is more than one line of ASCII."""
    bare = value.strip(" \t")
    if not _VALUE.fullmatch(bare):
        raise BadRequest(f"the header `{name}` has a value that is not one line of visible ASCII")
    return bare


def _pairs(headers: Any, meter: Meter) -> Pairs:
    if headers is None:
        return ()
    given: Iterable[Any] = headers.items() if isinstance(headers, Mapping) else headers
    pairs = []
    try:
        for name, value in given:
            pairs.append((_text(name), _text(value)))
            meter.check_headers(len(pairs))
    except (TypeError, ValueError) as wrong:
        raise BadRequest("expected `headers` to be texts by name, or pairs of texts") from wrong
    if sum(len(name) + len(value) for name, value in pairs) > _MOST_BYTES:
        raise BadRequest(f"found more than {_MOST_BYTES} bytes of headers")
    return tuple((_checked_name(name), checked_value(name, value)) for name, value in pairs)


def _checked_name(name: str) -> str:
    if not TOKEN.fullmatch(name):
        raise BadRequest("a header has a name with characters that no name has")
    lower = name.lower()
    if lower in _OURS or lower.startswith("proxy-"):
        raise BadRequest(f"the header `{name}` is not a caller's to set")
    if lower.replace("_", "-") in METHOD_OVERRIDES:  # some servers take the one for the other
        raise BadRequest(f"the header `{name}` names another method than the one that is checked: send that one")
    return name


def _text(text: Any) -> str:
    # A subclass may answer differently each time; its characters cannot.
    if not issubclass(type(text), str):
        raise TypeError
    return str.__str__(text)


def _bytes(body: Any) -> bytes:
    if body is None:
        return b""
    if issubclass(type(body), str):
        try:
            return str.encode(body, "utf-8")
        except UnicodeEncodeError as wrong:
            raise BadRequest("found a body that is not Unicode text") from wrong
    if issubclass(type(body), bytes | bytearray | memoryview):
        return bytes(memoryview(body))
    raise BadRequest("expected `body` to be bytes or text")
