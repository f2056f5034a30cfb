"""Bounds what parsing a Python file can cost, by its text: a syntax tree takes about a kilobyte for each token."""

import re

MOST_TOKENS = 100_000  # of one file: about 9,000 lines of ordinary code, and 90 MB while it is read
MOST_DOTS = 100  # in one dotted name: for an import, Python keeps each of its beginnings in memory while it parses

# Words, signs and line ends. Those in strings and comments count too: an f-string is code, and telling where strings
# and comments end takes a real tokenizer.
_TOKEN = re.compile(r"\w+|[^\w\s]|\n|\r")
_WORD = r"[\w\u0080-\U0010ffff]++"
_DOTTED = re.compile(rf"{_WORD}(?:[\s\\]*+\.[\s\\]*+{_WORD})*+")


def token_count(text: str) -> int:
    """How many words, signs and line ends a text has: never fewer than Python has tokens to make nodes of."""
    return sum(1 for _ in _TOKEN.finditer(text))


def parse_cost(text: str) -> tuple[str, str, str] | None:
    """What makes a text too expensive to parse, what is expected instead, and the way out; None if nothing does."""
    if (tokens := token_count(text)) > MOST_TOKENS:
        return f"{tokens} tokens", f"at most {MOST_TOKENS} in one file", "split the module"
    if (dots := max((name[0].count(".") for name in _DOTTED.finditer(text)), default=0)) > MOST_DOTS:
        return f"a name with {dots} dots", f"at most {MOST_DOTS}", "shorten it"
    return None
