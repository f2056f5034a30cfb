"""Which secrets can have a stand-in, and what does the stand-in of a secret look like?

A stand-in is a random value of the secret's own shape, so that clients which look at a key before they use it accept
it. The words at the beginning (`ghp_`, `sk-ant-api03-`) and the punctuation stay; each other character becomes a random
one of its class.
"""

import base64
import json
import re
import secrets
import string
import zlib
from collections.abc import Collection
from math import log2

from licet.sandbox.limits import FEWEST_SIGNS, LEAST_RANDOM_BITS, LONGEST_KEY, SHORTEST_KEY, UNREPEATED

_DIGITS, _LOWER, _UPPER = string.digits, string.ascii_lowercase, string.ascii_uppercase
_HEX_LOWER, _HEX_UPPER = "abcdef", "ABCDEF"
_BASE62 = _DIGITS + _UPPER + _LOWER

# The kind of a key: lower-case words with at most two digits. Capitals, and a single letter, could be random ones.
_WORD = re.compile(r"(?:[a-z]{2,10}[0-9]{0,2}|[a-z][0-9]{1,2})[_.-]")
_MOST_WORDS = 4
_KINDS_WITHOUT_WORDS = ("AIza", "AKIA", "ASIA", "ATATT3", "ATCTT3", "SG.")
# GitHub and npm end these in six characters that a client can check without asking: a CRC-32 of the thirty before them.
_CHECKED = re.compile(r"(?:gh[a-z]|npm)_[0-9A-Za-z]{36}")
_CHECKSUM = 6

_SIGNS = re.compile(r"[!-~]*")
_BASE64URL = re.compile(r"[A-Za-z0-9_-]*")


class CannotPlace(ValueError):
    """A secret that cannot be placed by the proxy; the text says why, to a person. `name` is that of its entry."""

    def __init__(self, text: str, name: str = "") -> None:
        super().__init__(f"`{name}` cannot have a stand-in: {text}" if name else text)
        self.name = name


def check_key(secret: str) -> None:
    """Raise `CannotPlace` for a secret that can have no stand-in."""
    if reason := _misfit(secret):
        raise CannotPlace(reason)


def _misfit(secret: str) -> str:
    if len(secret) > LONGEST_KEY:
        return f"it has {len(secret)} characters, and a key has at most {LONGEST_KEY}"
    if secret.lstrip().startswith("-----BEGIN "):
        return "it is PEM, which a client parses: a random value of its shape means nothing"
    if secret.lstrip()[:1] in ("{", "[", '"') and _is_json(secret):
        return "it is JSON, which a client parses: a random value of its shape means nothing"
    if not secret.isascii():
        return "it has characters that are not ASCII, and headers carry ASCII alone"
    if not secret.isprintable():
        return "it has a line break or another control character"
    if not _SIGNS.fullmatch(secret):
        return "it has a space, and a key in a header has none"
    if "%" in secret or "\\" in secret:
        return "it has `%` or a backslash, which begin an escape: it could not be told from another value"
    if len(secret) < SHORTEST_KEY:
        return f"it has {len(secret)} characters: a stand-in under {SHORTEST_KEY} could occur by chance"
    if _is_jwt(secret):
        return "it is a JWT, which a client parses: a random value of its shape means nothing"
    if _bits(secret) < LEAST_RANDOM_BITS or len(set(secret)) < FEWEST_SIGNS:
        return f"too little of it can be random: a stand-in needs {LEAST_RANDOM_BITS} bits so as not to occur by chance"
    if any(secret.find(secret[at : at + UNREPEATED], at + 1) > 0 for at in range(3)):
        return f"its first {UNREPEATED} characters occur in it again"
    return ""


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


def _is_jwt(secret: str) -> bool:
    parts = secret.split(".")
    if len(parts) not in (3, 5) or not all(map(_BASE64URL.fullmatch, parts)):  # signed, or encrypted
        return False
    try:
        return isinstance(json.loads(base64.urlsafe_b64decode(parts[0] + "==")), dict)
    except (ValueError, RecursionError):
        return False


def new_stand_in(secret: str, others: Collection[str]) -> str:
    """A random value of the shape of a secret, which neither contains one of the others nor is contained in one."""
    check_key(secret)
    while True:
        made = _random(secret)
        apart = not any(other in made or made in other for other in (secret, *others))
        # A stream holds back what has the shape of a key: the stand-in tells that shape, and nothing else may.
        apart = apart and shape_of(made) == shape_of(secret)
        if apart and not any(made.find(made[at : at + UNREPEATED], at + 1) > 0 for at in range(3)):
            return made


def _random(secret: str) -> str:
    kept = _kept(secret)
    classes = _classes(secret[kept:])
    made = secret[:kept] + "".join(secrets.choice(classes.get(sign, sign)) for sign in secret[kept:])
    if _CHECKED.fullmatch(secret) and secret.endswith(_checksum(secret)):
        made = made[:-_CHECKSUM] + _checksum(made)
    return made


def shape_of(key: str) -> tuple[str, ...]:
    """What each character of a key can be, as far as its stand-in tells: they have the same shape."""
    kept = _kept(key)
    classes = _classes(key[kept:])
    return (*key[:kept], *(classes.get(sign, sign) for sign in key[kept:]))


def _kept(secret: str) -> int:
    """How many characters at the beginning name the kind of the key, and stay.

    A rest of lower-case letters alone is a phrase, whose first words are as secret as the others.
    """
    for kind in _KINDS_WITHOUT_WORDS:
        if secret.startswith(kind) and _bits_from(secret, len(kind)) >= LEAST_RANDOM_BITS:
            return len(kind)
    ends, at = [0], 0
    while len(ends) <= _MOST_WORDS and (word := _WORD.match(secret, at)):
        ends.append(at := word.end())
    for end in reversed(ends):
        rest = secret[end:]
        is_phrase = not any(sign.isdigit() or sign.isupper() for sign in rest)
        if not is_phrase and _bits_from(secret, end) >= LEAST_RANDOM_BITS:
            return end
    return 0


def _classes(text: str) -> dict[str, str]:
    """What each character may become: a digit, or a letter of its case; of hexadecimal text, a hexadecimal one."""
    letters = {sign for sign in text if sign.isalpha()}
    lower = _HEX_LOWER if letters <= set(_HEX_LOWER) else _LOWER
    upper = _HEX_UPPER if letters <= set(_HEX_UPPER) else _UPPER
    return {sign: kind for kind in (_DIGITS, lower, upper) for sign in kind}


def _bits(secret: str) -> float:
    return _bits_from(secret, _kept(secret))


def _bits_from(secret: str, start: int) -> float:
    """How many random bits a stand-in has that keeps the first characters."""
    classes = _classes(secret[start:])
    # The last characters of a key with a checksum follow from the others.
    end = len(secret) - (_CHECKSUM if _CHECKED.fullmatch(secret) else 0)
    return sum(log2(len(classes.get(sign, sign))) for sign in secret[start:end])


def _checksum(key: str) -> str:
    number, made = zlib.crc32(key[4:-_CHECKSUM].encode()), ""
    for _ in range(_CHECKSUM):
        number, rest = divmod(number, len(_BASE62))
        made = _BASE62[rest] + made
    return made
