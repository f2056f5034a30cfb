"""Names that are different each time: of temporary files, of caches by hash, with times and UUIDs.

A rule for such a name would never be used again. The name alone is judged, and in doubt it is a fixed one: a random
name that reads like a word is not found, since a rule for the directory of a fixed name would allow too much.
"""

import re
from collections.abc import Iterable
from functools import lru_cache

_MIXED = r"(?=[A-Za-z_]*[0-9][0-9_]*[A-Za-z])"  # a digit before a letter: `q7x_1b2z`, but not `results1`
_CASES = rf"{_MIXED}(?=[a-z0-9]*[A-Z])(?=[A-Z0-9]*[a-z])"  # and letters of both cases
# What each tool puts after its prefix, in length and alphabet.
_KNOWN = re.compile(
    r"pytest-cache-files-[a-z0-9_]{8}"
    rf"|(?:tmp|pip-[a-z-]+-){_MIXED}[a-z0-9_]{{8}}"  # tempfile of Python
    rf"|tmp\.{_CASES}(?:[A-Za-z0-9]{{8}}|[A-Za-z0-9]{{10}})"  # mktemp
    rf"|tmp-[0-9]+-{_MIXED}[A-Za-z0-9]{{12}}"  # tmp of Node
    rf"|(?:\.tmp|rustc){_CASES}[A-Za-z0-9]{{6}}"  # tempfile of Rust
    rf"|tmp_(?:obj|pack|idx|rev|mtimes|bitmap)_{_MIXED}[A-Za-z0-9]{{6}}"  # git
    rf"|cc{_CASES}[A-Za-z0-9]{{6}}(?:\.(?:s|o|res|ld|le))?"  # gcc
    r"|go-(?:build|link-)[0-9]{9,10}",
    re.ASCII,
)
_UUID = re.compile(r"[0-9a-f]{8}-?(?:[0-9a-f]{4}-?){3}[0-9a-f]{12}", re.IGNORECASE)
_HASH = re.compile(r"[0-9a-f]{8,}", re.IGNORECASE)
_LONG = 16  # digits of a hash that need no further look
_TIME = re.compile(r"[0-9]{9,}")  # seconds, or parts of them; dates are shorter
_CHANGE = re.compile(r"(?<=[0-9])(?=[a-z])|(?<=[a-z])(?=[0-9])", re.IGNORECASE)  # between letters and digits
_WORDS = re.compile(r"[-.~+@=, ]")
_SHORTEST = 8


@lru_cache(maxsize=4096)
def is_random(name: str) -> bool:
    """Whether a name of a file or directory looks random, in whole or in one of its parts."""
    if _KNOWN.fullmatch(name) or _UUID.search(name):
        return True
    return any(_is_random_word(word) for word in _WORDS.split(name))


def _is_random_word(word: str) -> bool:
    if _TIME.fullmatch(word):
        return True
    if len(word) < _SHORTEST or not word.isascii() or not word.isalnum():
        return False
    changes = len(_CHANGE.findall(word))
    if _HASH.fullmatch(word):
        return len(word) >= _LONG or changes >= 3  # `face2face` has two
    letters = sum(map(str.isalpha, word))
    vowels = sum(word.lower().count(vowel) for vowel in "aeiouy")
    return changes >= 4 and vowels * 4 <= letters  # `h264tomp4` has three


def steady(path: str, places: Iterable[str]) -> str:
    """The path, up to the directory in which its first random name is, below the first of some places that it is in.

    The places and the directories around them are no random names, whatever they are called.
    """
    fixed = [f"{place.rstrip('/')}/" for place in places]
    for place in fixed:
        if path.startswith(place) and path != place:
            above = place
            for name in path[len(place) :].split("/"):
                below = f"{above}{name}/"
                if is_random(name) and not any(one.startswith(below) for one in fixed):
                    return above.rstrip("/") or "/"
                above = below
            return path
    return path
