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

from licet.core.policy.inspection import BASIC_PASSWORD, BASIC_USER, KEY_ALONE, path_of_field

Swap = Mapping[str, str]  # stand-in -> secret
SwapByField = Mapping[str, Swap]

_CREDENTIAL = re.compile(r"([!#$%&'*+.^_`|~0-9A-Za-z-]+)( +)([^ ]+)")
_BASIC = "basic"

JSON_TYPE, FORM_TYPE = "application/json", "application/x-www-form-urlencoded"
# A string of JSON, or what tells where it is. Numbers and words are skipped.
_TOKENS = re.compile(rb'"((?:[^"\\]++|\\.)*+)"|[{}\[\]:,]', re.DOTALL)
_BETWEEN = b"\n"  # no key has one
_AT_ONCE = 1 << 12  # fields of a form, or tokens of JSON, that are read before other tasks run


class Placed(Struct, frozen=True):
    """A value with keys in it, which is only to be sent."""

    value: bytes
    stand_ins: tuple[str, ...]
    rest: bytes

    def __repr__(self) -> str:
        return f"Placed of {len(self.stand_ins)} keys"


Placing = Generator[bytes, None, Placed]


def in_header(value: str, swaps: Mapping[str, Swap]) -> Placed | None:
    """The value of a header. `swaps` are by what the whole value may be, in lower case: `{key}`, `bearer {key}`."""
    if (alone := swaps.get(KEY_ALONE)) and value in alone:
        return _whole("", value, alone)
    parts = _CREDENTIAL.fullmatch(value)
    if parts is None:
        return None
    scheme, credential = parts[1].lower(), parts[3]
    if (swap := swaps.get(f"{scheme} {KEY_ALONE}")) and credential in swap:
        return _whole(parts[1] + parts[2], credential, swap)
    if scheme != _BASIC or not (BASIC_USER in swaps or BASIC_PASSWORD in swaps):
        return None
    return _in_basic(parts[1] + parts[2], credential, swaps.get(BASIC_USER, {}), swaps.get(BASIC_PASSWORD, {}))


def _in_basic(scheme: str, credential: str, users: Swap, passwords: Swap) -> Placed | None:
    try:
        pair = base64.b64decode(credential, validate=True).decode("ascii")
    except (binascii.Error, UnicodeDecodeError):
        return None
    user, colon, password = pair.partition(":")
    halves = ((user, users), (password, passwords))
    stand_ins = tuple(half for half, swap in halves if half in swap)
    if not colon or not stand_ins:
        return None
    real = base64.b64encode(":".join(swap.get(half, half) for half, swap in halves).encode())
    rest = _BETWEEN.join(half.encode() for half, swap in halves if half not in swap)
    return Placed(scheme.encode() + real, stand_ins, rest)


def _whole(scheme: str, credential: str, swap: Swap) -> Placed:
    return Placed((scheme + swap[credential]).encode(), (credential,), scheme.encode())


def media_type(content_type: str) -> str:
    """The type of a body that is looked into for fields, `application/json` for all kinds of JSON; or nothing."""
    kind = content_type.partition(";")[0].strip().lower()
    if kind == JSON_TYPE or (kind.startswith("application/") and kind.endswith("+json")):
        return JSON_TYPE
    return kind if kind == FORM_TYPE else ""


def in_body(body: bytes, content_type: str, fields: SwapByField) -> Placing:
    """The fields of a body, of JSON or of a form. Other tasks can run at each empty part."""
    match media_type(content_type):
        case "application/json":
            return (yield from _in_json(body, {path_of_field(field): swap for field, swap in fields.items()}))
        case "application/x-www-form-urlencoded":
            # A pointer leads into JSON, and names no field of a form.
            return (yield from _in_form(body, {name: swap for name, swap in fields.items() if name[:1] != "/"}))
    return Placed(body, (), body)


def _in_json(body: bytes, fields: Mapping[tuple[str, ...], Swap]) -> Placing:
    # In what is not JSON, a quote says nothing about where a string begins.
    try:
        msgspec.json.decode(body)
    except (msgspec.DecodeError, RecursionError, ValueError):
        return Placed(body, (), body)
    kept, real, stand_ins, end = [], [], [], 0
    depths = {len(names) for names in fields}  # a path may be as long as the body
    # Where a token is: the names and numbers that lead there. The last of an object is "" before its first name.
    path: list[str | int] = []
    is_value = True
    for number, token in enumerate(_TOKENS.finditer(body), 1):
        if number % _AT_ONCE == 0:
            yield b""
        match token[0]:
            case b"{":
                path.append("")
                is_value = False
            case b"[":
                path.append(0)
                is_value = True
            case b"}" | b"]":
                path.pop()
            case b":":
                is_value = True
            case b",":
                if isinstance(last := path[-1], int):
                    path[-1] = last + 1
                is_value = isinstance(last, int)
            case _ if not is_value:
                path[-1] = _text(token[1])
            case _ if (
                len(path) in depths
                and (swap := fields.get(tuple(map(str, path))))
                and (text := _text(token[1])) in swap
            ):
                before = body[end : token.start(1)]
                kept.append(before)
                real += [before, json.dumps(swap[text])[1:-1].encode()]
                stand_ins.append(text)
                end = token.end(1)
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
