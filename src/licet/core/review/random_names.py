"""Names that are different each time: of temporary files, of caches by hash, with times and UUIDs.

A rule for such a name would never be used again. The name alone is judged, so a random name that reads like a word is
not found.
"""

import re
from collections.abc import Iterable
from functools import lru_cache

_KNOWN = re.compile(
    r"pytest-cache-files-.+|tmp[a-z0-9][a-z0-9_]{7}|tmp[.-][A-Za-z0-9]{6,}|\.tmp[A-Za-z0-9]{6,10}|tmp_\w+_[A-Za-z0-9]{6,}"
    r"|(?:rustc|cc|go-build|go-link-|jest_|npm-|pip-[a-z-]+-)[A-Za-z0-9_]{6,}(?:\.[a-z]{1,4})?",
    re.ASCII,
)
_UUID = re.compile(r"[0-9a-f]{8}-?(?:[0-9a-f]{4}-?){3}[0-9a-f]{12}", re.IGNORECASE)
_HASH = re.compile(r"(?=.*[0-9])(?=.*[a-f])[0-9a-f]{8,}|[0-9a-f]{16,}", re.IGNORECASE)
_TIME = re.compile(r"[0-9]{9,}")  # seconds, or parts of them; dates are shorter
_DIGIT_INSIDE = re.compile(r"[a-z][0-9]+[a-z]|^[0-9]+[a-z]{3}", re.IGNORECASE)
_NO_VOWELS = re.compile(r"[bcdfghjklmnpqrstvwxz]{6,}", re.IGNORECASE)
_WORDS = re.compile(r"[-.~+@=, ]")
_SHORTEST = 8


@lru_cache(maxsize=4096)
def is_random(name: str) -> bool:
    """Whether a name of a file or directory looks random, in whole or in one of its parts."""
    if _KNOWN.fullmatch(name) or _UUID.search(name):
        return True
    return any(_is_random_word(word) for word in _WORDS.split(name))


def _is_random_word(word: str) -> bool:
    if _HASH.fullmatch(word) or _TIME.fullmatch(word):
        return True
    if len(word) < _SHORTEST or not word.isascii() or not word.isalnum():
        return False
    if _NO_VOWELS.search(word):
        return True
    letters = sum(map(str.isalpha, word))
    vowels = sum(word.lower().count(vowel) for vowel in "aeiouy")
    return bool(_DIGIT_INSIDE.search(word)) and vowels * 4 <= letters


def steady(path: str, places: Iterable[str]) -> str:
    """The path, up to the directory in which its first random name is, below the first of some places that it is in."""
    for place in places:
        if path.startswith(f"{place.rstrip('/')}/"):
            names = path[len(place.rstrip("/")) + 1 :].split("/")
            first = next((number for number, name in enumerate(names) if is_random(name)), None)
            return path if first is None else "/".join([place.rstrip("/"), *names[:first]]) or "/"
    return path
