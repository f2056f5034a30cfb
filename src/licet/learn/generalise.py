"""How `licet learn` makes few rules of many uses. Nothing else is generalised.

- Three siblings or more, used with the same action, become their directory. Inside the working directory that repeats:
  three such directories become theirs, up to the working directory itself.
- A file that was written and is gone becomes its directory: the next run creates another one there. See `learn`.
- Three names or more below one domain become `*.domain`, only where that is asked for, and never below a public suffix.

Names that are different each time: of temporary files, of caches by hash, with times and UUIDs.

A rule for such a name would never be used again. The name alone is judged, and in doubt it is a fixed one: a random
name that reads like a word is not found, since a rule for the directory of a fixed name would allow too much.
"""

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache

from licet.core.algebra.scope import is_address

SIBLINGS = 3


def widened_paths(
    paths: Iterable[str], may_cover: Callable[[str], bool], repeats: Callable[[str], bool]
) -> dict[str, str]:
    """For each path, the path of the rule that covers it: itself, or a directory above.

    `may_cover` says of a directory whether a rule may cover all of it, `repeats` whether directories that were made of
    their siblings count as siblings in it.
    """
    used = set(paths)
    levels: dict[int, set[str]] = defaultdict(set)
    for path in used:
        levels[path.count("/")].add(path)
    covering = set(used)
    for depth in range(max(levels, default=0), 1, -1):
        siblings: dict[str, int] = defaultdict(int)
        for path in levels.pop(depth, ()):
            above = path.rpartition("/")[0]
            siblings[above] += path in used or repeats(above)
        found = {above for above, number in siblings.items() if number >= SIBLINGS and may_cover(above)}
        levels[depth - 1] |= found
        covering |= found
    return {path: _topmost(path, covering) for path in used}


def _topmost(path: str, covering: set[str]) -> str:
    found, above = path, path.rpartition("/")[0]
    while above:
        if above in covering:
            found = above
        above = above.rpartition("/")[0]
    return "/" if "/" in covering else found


def widened_hosts(hosts: Iterable[str], is_suffix: Callable[[str], bool], apart: Iterable[str]) -> Mapping[str, str]:
    """For each host, the host or pattern of the rule that covers it. No pattern covers a host in `apart`."""
    every = set(hosts)
    below: dict[str, set[str]] = defaultdict(set)
    for host in every:
        domain = host.partition(".")[2]
        if "." in domain and not is_address(host) and not is_suffix(domain):
            below[domain].add(host)
    closed = [f".{host}" for host in apart]
    wide = {
        domain
        for domain, names in below.items()
        if len(names) >= SIBLINGS and not any(host.endswith(f".{domain}") for host in closed)
    }
    return {host: f"*.{domain}" if (domain := host.partition(".")[2]) in wide else host for host in every}


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
