"""Guesses which values are tokens, so that they are hidden when a change is shown and never get into policy.

A guess can be wrong. So every literal value of a variable or header goes to the secrets file, whatever is guessed here.
"""

import math
import re
from collections import Counter
from collections.abc import Sequence

_NAMED = re.compile(
    r"(?i)token|key|secret|passw|pwd|credential|auth|cookie|session|dsn|private|signature|(?:^|[_-])(?:pat|pass)(?:$|[_-])"
)
_KNOWN = re.compile(
    r"(?:gh[pousr]_|github_pat_|glpat-|sk-|sk_|pk_|rk_|xox[abeprs]-|xapp-|AKIA|ASIA|AIza|ya29\.|eyJ|npm_|pypi-|hf_|lin_api_|"
    r"ntn_|secret_|dop_v1_|shpat_|SG\.)[A-Za-z0-9_.\-]{8,}"
)
_WITH_PASSWORD = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://[^/\s@]*:[^/\s@]+@")
_CREDENTIALS = re.compile(r"(?i)\b(?:bearer|basic)\s+\S{6,}")
_RUN = re.compile(r"[A-Za-z0-9+=]{20,}")
_FLAG = re.compile(r"--?([A-Za-z][A-Za-z0-9_-]*)(?:=(.*))?", re.DOTALL)
_QUERY = re.compile(r"[?&]([A-Za-z0-9_.-]+)=([^&#]+)")
_LEAST_BITS = 3.5  # per character; words and hexadecimal counters have less


def looks_secret(name: str, value: str) -> bool:
    """Whether a value is probably a token, by its name or its looks."""
    return bool(value) and (bool(_NAMED.search(name)) or looks_random(value))


def looks_random(value: str) -> bool:
    """Whether a text contains what looks like a token: a known prefix, a password in a URL, or random characters."""
    if _KNOWN.search(value) or _WITH_PASSWORD.search(value) or _CREDENTIALS.search(value):
        return True
    return any(_is_random(run) for run in _RUN.findall(value))


def _is_random(text: str) -> bool:
    if not re.search(r"[0-9]", text) or not re.search(r"[A-Za-z]", text):
        return False
    counts = Counter(text)
    return -sum(one / len(text) * math.log2(one / len(text)) for one in counts.values()) >= _LEAST_BITS


def secret_word(command: Sequence[str]) -> int | None:
    """The index of the first word of a command that is probably a token, or contains one; None if there is none."""
    for index, word in enumerate(command):
        flag = _FLAG.fullmatch(word)
        if looks_random(word) or any(_NAMED.search(name) for name, _ in _QUERY.findall(word)):
            return index
        if flag is None or not _NAMED.search(flag[1]):
            continue
        if flag[2]:
            return index
        if flag[2] is None and index + 1 < len(command) and not command[index + 1].startswith("-"):
            return index + 1
    return None
