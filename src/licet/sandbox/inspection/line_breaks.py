"""Which line breaks may base64 have in it? Those of mail, PEM and YAML, also where these are in JSON or in a form.

A break counts only behind as many characters as a line of base64 has. So ordinary texts have next to none, and nobody
who sends a text line by line waits. The indentation of the next line belongs to it, and a blank before it.
"""

import re

SHORTEST_LINE = 32  # characters before a break; lines of base64 have 60 to 76
MOST_BLANKS = 16  # blanks behind a break: nested YAML, folded headers
LONGEST_BREAK = 3 + 6 + 3 * MOST_BLANKS  # bytes; `%20%0D%0A` and `%20` for each blank

_SIGN = rb"[A-Za-z0-9+/_%\\-]"  # also those of escapes: `\/`, `%2B`
# A line before a break, of which the first byte was read. So a break is searched for by that byte, which is fast.
_BEHIND_LINE = b"(?<=%b{%d}[\\s\\S])" % (_SIGN, SHORTEST_LINE)
_INDENT = b"[ \\t]{0,%d}+" % MOST_BLANKS
_INDENT_IN_JSON = b"(?: |\\\\t){0,%d}+" % MOST_BLANKS
_INDENT_IN_FORM = b"(?:%%20|%%09){0,%d}+" % MOST_BLANKS
_JSON_LF = rb"\\(?:n|u000[aA])" + _INDENT_IN_JSON
_JSON_BREAK = rb"(?:\\(?:r|u000[dD]))?" + _JSON_LF
_FORM_LF = b"%0[Aa]" + _INDENT_IN_FORM

#: A break between two lines.
BREAK = re.compile(
    b"|".join(
        (
            b"\n%b%b" % (_BEHIND_LINE, _INDENT),
            b"\r%b\n%b" % (_BEHIND_LINE, _INDENT),
            b"[ \\t](?=[\\r\\n\\\\])%b(?:\r?\n%b|%b)" % (_BEHIND_LINE, _INDENT, _JSON_BREAK),
            rb"\\(?=[nrtu])%b(?:(?:n|u000[aA])%b|(?:r|u000[dD])%b|t%b)"
            % (_BEHIND_LINE, _INDENT_IN_JSON, _JSON_LF, _JSON_BREAK),
            b"%%(?=[02])%b(?:0[Aa]%b|0[Dd]%b|(?:20|09)(?:%%0[Dd])?%b)"
            % (_BEHIND_LINE, _INDENT_IN_FORM, _FORM_LF, _FORM_LF),
        )
    )
)
#: The same, with what the next line begins with, which is no other break.
BETWEEN_LINES = re.compile(rb"(?:%b)(?=%b)(?!\\[nrt]|\\u000|%%0)" % (BREAK.pattern, _SIGN))
#: As many characters as are before a break.
LINE = re.compile(b"%b{%d}" % (_SIGN, SHORTEST_LINE))
_PART_OF_JSON_LF = rb"\\(?:u(?:0(?:0(?:0)?)?)?)?"
_PART_OF_JSON_BREAK = rb"(?:%b|\\(?:r|u000[dD])(?:%b)?)" % (_PART_OF_JSON_LF, _PART_OF_JSON_LF)
_PART_OF_FORM_BREAK = b"(?:%0?|%0[Dd](?:%0?)?)"
_PARTS = (
    b"\r",
    b"[ \\t](?:\r|%b)?" % _PART_OF_JSON_BREAK,
    rb"\\t(?:%b)?" % _PART_OF_JSON_BREAK,
    _PART_OF_JSON_BREAK,
    rb"(?:[ \t]|\\t)?%b\\" % _JSON_BREAK,
    b"%%(?:2|20|09)?(?:%b)?" % _PART_OF_FORM_BREAK,
    _PART_OF_FORM_BREAK,
    b"(?:%%(?:20|09))?(?:%%0[Dd])?%b%%[02]?" % _FORM_LF,
)
#: The beginning of one, at the end of a text.
BEGUN_BREAK = re.compile(b"(?<=%b{%d})(?:%b)\\Z" % (_SIGN, SHORTEST_LINE, b"|".join(_PARTS)))
BLANKS = b" \t"
_BEFORE_INDENT = (b"\n", b"n", b"a", b"A", b"t")  # the last bytes of a break, plain and in JSON
_BEHIND_BLANK = (b"\r", b"\n", b"\\")
#: What is left out between lines where nothing is escaped.
WHITE = b"\r\n" + BLANKS
#: What a break begins with.
BEGINS_BREAK = b"\n\r\\%" + BLANKS
#: What lines, and breaks between them, consist of. Where only blanks are new, no line goes on.
IN_LINES = frozenset(sign for sign in range(256) if re.match(_SIGN + rb"|[\r\n]", bytes((sign,))))
_WHOLE = re.compile(rb"[ \t]?\r?\n%b|(?:[ \t]|\\t)?%b|(?:%%20|%%09)?(?:%%0[Dd])?%b" % (_INDENT, _JSON_BREAK, _FORM_LF))


def is_break(text: bytes) -> bool:
    """Whether a text is a break, wherever it stands."""
    return _WHOLE.fullmatch(text) is not None


def break_over(text: bytes, at: int) -> tuple[int, int] | None:
    """Start and end of the break that a blank is in; None if it is in none."""
    before = text[max(at - MOST_BLANKS * 2, 0) : at].rstrip(BLANKS)[-1:]
    if before not in _BEFORE_INDENT and text[at + 1 : at + 2] not in _BEHIND_BLANK:
        return None
    for line_break in BREAK.finditer(text, max(at - LONGEST_BREAK, 0), at + LONGEST_BREAK):
        if line_break.start() <= at < line_break.end():
            return line_break.span()
    return None


def longest_with_breaks(size: int) -> int:
    """The most bytes of so many that base64 has with the breaks between them, each of these behind a line."""
    return size + LONGEST_BREAK * (size // SHORTEST_LINE + 1) + SHORTEST_LINE
