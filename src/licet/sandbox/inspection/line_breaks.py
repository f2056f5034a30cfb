"""Which line breaks may base64 have in it? Those of mail and of PEM, also where both are in JSON or in a form.

A break counts only behind as many characters as a line of base64 has. So ordinary texts have next to none, and nobody
who sends a text line by line waits.
"""

import re

SHORTEST_LINE = 32  # characters before a break; lines of base64 have 60 to 76
LONGEST_BREAK = 6  # bytes; `%0D%0A`

_SIGN = rb"[A-Za-z0-9+/_%\\-]"  # also those of escapes: `\/`, `%2B`
_LINE = b"%b{%d}" % (_SIGN, SHORTEST_LINE)
_BREAKS = (rb"\n", rb"\r\n", rb"\\n", rb"\\r\\n", rb"%0[Aa]", rb"%0[Dd]%0[Aa]")

#: A break between two lines. Each spelling begins with a character that is searched for fast.
BREAK = re.compile(b"|".join(b"%b(?<=%b%b)" % (one, _LINE, one) for one in _BREAKS))
#: The same, with what the next line begins with.
BETWEEN_LINES = re.compile(b"(?:%b)(?=%b)" % (BREAK.pattern, _SIGN))
#: The beginning of one, at the end of a text.
BEGUN_BREAK = re.compile(rb"(?<=%b)(?:\r|\\(?:r(?:\\)?)?|%%(?:0(?:[Dd](?:%%0?)?)?)?)\Z" % _LINE)
#: What a break begins with.
BEGINS_BREAK = b"\n\r\\%"
#: What lines, and breaks between them, consist of.
IN_LINES = frozenset(sign for sign in range(256) if re.match(_SIGN + rb"|[\r\n]", bytes((sign,))))
_WHOLE = re.compile(b"|".join(_BREAKS))


def is_break(text: bytes) -> bool:
    """Whether a text is a break, wherever it stands."""
    return _WHOLE.fullmatch(text) is not None
