"""Where in a request is a key placed? In the values that a server reads as a credential, and in no others.

Each function takes what a program sent and gives back what is sent on, with the stand-ins in it that were replaced and
with the rest: the parts that are not replaced, in which a stand-in has no business. A stand-in counts only where it is
the whole value. Elsewhere a server may keep what it is sent and show it to others: a gist, an issue, a log.
"""

import base64
import binascii
import json
import re
from collections.abc import Generator, Mapping
from urllib.parse import quote, unquote_plus

import msgspec
from msgspec import Struct

Swap = Mapping[str, str]  # stand-in -> secret
SwapByField = Mapping[str, Swap]

AUTHORIZATION = "authorization"
_CREDENTIAL = re.compile(r"([!#$%&'*+.^_`|~0-9A-Za-z-]+)( +)([^ ]+)")
_SCHEMES = ("bearer", "token")  # `token` is GitHub's, from before it took `Bearer`; `gh` still sends it
_BASIC = "basic"

JSON_TYPE, FORM_TYPE = "application/json", "application/x-www-form-urlencoded"
# A string of JSON, and the string that is its value if it is the name of a member.
_STRINGS = re.compile(rb'"((?:[^"\\]++|\\.)*+)"(?:([ \t\r\n]*:[ \t\r\n]*)"((?:[^"\\]++|\\.)*+)")?', re.DOTALL)
_BETWEEN = b"\n"  # no key has one
_AT_ONCE = 1 << 10  # fields; those of a body that are read before other tasks run


class Placed(Struct, frozen=True):
    """A value with keys in it, which is only to be sent."""

    value: bytes
    stand_ins: tuple[str, ...]
    rest: bytes

    def __repr__(self) -> str:
        return f"Placed of {len(self.stand_ins)} keys"


Placing = Generator[bytes, None, Placed]


def in_authorization(value: str, swap: Swap) -> Placed | None:
    """The value of `Authorization`: `Bearer KEY`, `token KEY`, and `Basic` with the key as user or password."""
    parts = _CREDENTIAL.fullmatch(value)
    if parts is None:
        return None
    scheme, given = parts[1].lower(), parts[3]
    if scheme in _SCHEMES or (scheme == _BASIC and given in swap):  # npm's `_auth` is sent as it stands in the file
        return _whole(parts[1] + parts[2], given, swap)
    if scheme != _BASIC:
        return None
    try:
        pair = base64.b64decode(given, validate=True).decode("ascii")
    except (binascii.Error, UnicodeDecodeError):
        return None
    user, colon, password = pair.partition(":")
    stand_ins = tuple(one for one in (user, password) if one in swap)
    if not colon or not stand_ins:
        return None
    real = base64.b64encode(f"{swap.get(user, user)}:{swap.get(password, password)}".encode())
    rest = _BETWEEN.join(one.encode() for one in (user, password) if one not in swap)
    return Placed((parts[1] + parts[2]).encode() + real, stand_ins, rest)


def in_named_header(value: str, swap: Swap) -> Placed | None:
    """The value of a header that an entry names: `KEY` or `Scheme KEY`."""
    parts = _CREDENTIAL.fullmatch(value)
    return _whole(parts[1] + parts[2], parts[3], swap) if parts else _whole("", value, swap)


def _whole(scheme: str, given: str, swap: Swap) -> Placed | None:
    if given not in swap:
        return None
    return Placed((scheme + swap[given]).encode(), (given,), scheme.encode())


def media_type(content_type: str) -> str:
    """The type of a body that is looked into for fields, `application/json` for all kinds of JSON; or nothing."""
    kind = content_type.partition(";")[0].strip().lower()
    if kind == JSON_TYPE or (kind.startswith("application/") and kind.endswith("+json")):
        return JSON_TYPE
    return kind if kind == FORM_TYPE else ""


def in_body(body: bytes, content_type: str, fields: SwapByField) -> Placing:
    """The fields of a body, of JSON at any depth or of a form. Other tasks can run at each empty part."""
    match media_type(content_type):
        case "application/json":
            return (yield from _in_json(body, fields))
        case "application/x-www-form-urlencoded":
            return (yield from _in_form(body, fields))
    return Placed(body, (), body)


def _in_json(body: bytes, fields: SwapByField) -> Placing:
    # In what is not JSON, a quote says nothing about where a string begins.
    try:
        msgspec.json.decode(body)
    except (msgspec.DecodeError, RecursionError, ValueError):
        return Placed(body, (), body)
    kept, real, stand_ins, end = [], [], [], 0
    for number, found in enumerate(_STRINGS.finditer(body), 1):
        if number % _AT_ONCE == 0:
            yield b""
        if found[3] is None or (swap := fields.get(_text(found[1]))) is None:
            continue
        if (given := _text(found[3])) in swap:
            before = body[end : found.start(3)]
            kept.append(before)
            real += [before, json.dumps(swap[given])[1:-1].encode()]
            stand_ins.append(given)
            end = found.end(3)
    kept.append(body[end:])
    return Placed(b"".join([*real, body[end:]]), tuple(stand_ins), _BETWEEN.join(kept))


def _text(raw: bytes) -> str:
    """A string of JSON, which was parsed before."""
    if b"\\" not in raw:
        return raw.decode()
    text: str = json.loads(b'"%b"' % raw)
    return text


def _in_form(body: bytes, fields: SwapByField) -> Placing:
    kept, real, stand_ins = [], [], []
    for number, pair in enumerate(body.split(b"&"), 1):
        if number % _AT_ONCE == 0:
            yield b""
        name, equals, value = pair.partition(b"=")
        swap = fields.get(_decoded(name), {}) if equals else {}
        if (given := _decoded(value)) in swap:
            stand_ins.append(given)
            kept.append(name)
            real.append(name + b"=" + quote(swap[given], safe="").encode())
        else:
            kept.append(pair)
            real.append(pair)
    return Placed(b"&".join(real), tuple(stand_ins), _BETWEEN.join(kept))


def _decoded(raw: bytes) -> str:
    return unquote_plus(raw.decode("latin-1"), "latin-1")
