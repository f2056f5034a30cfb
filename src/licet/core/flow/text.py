"""In which form are texts compared, and does a value stand in a text?

- `normal` is the form in which everything is compared, and `is_plain` says whether a value is sent as it was compared.
- `stands_in` finds a value between boundaries: `bob` stands in `ask bob`, and not in `bobby` or `bob@x.example`.
- Nothing here is fuzzy and nothing is decoded: each would let somebody choose a value that is not written there.
- The texts are hostile: every function takes time in proportion to their length.

What a number, a date, a URL or an address is: `written_values`.
"""

import unicodedata

from licet.core.late_pattern import late_pattern
from licet.core.limits import LONGEST_RUN_OF_MARKS, SHORT_VALUE

# The characters of Cf, written out so that a newer Python compares as an older one does.
_FORMAT = late_pattern(
    "[\xad\u0600-\u0605\u061c\u06dd\u070f\u0890\u0891\u08e2\u180e\u200b-\u200f\u202a-\u202e\u2060-\u2064\u2066-\u206f"
    "\ufeff\ufff9-\ufffb\U000110bd\U000110cd\U00013430-\U0001343f\U0001bca0-\U0001bca3\U0001d173-\U0001d17a"
    "\U000e0001\U000e0020-\U000e007f]"
)
# All other spaces become U+0020 in NFKC.
_SPACES = "\t\n\x0b\x0c\r\x1c\x1d\x1e\x1f\x85\u1680\u2028\u2029"
_ASCII_SPACES = {ord(space): " " for space in _SPACES if space.isascii()}
_BECOME_MARKS = "\u0f73\u0f75\u0f81\uff9e\uff9f"  # in NFKC, and are none themselves
# What may be a run of marks, since marks are no letters. Each becomes at most two, and a letter before it gives three.
# Blocks without any mark are left out by their ranges, which is faster than a look at the kind of each character.
_NO_MARK = r"\w\x00-\u02ff\u0370-\u0482\u2000-\u20cf\u2100-\u2cee\u2e00-\u3029\u3030-\u3098\u309b-\ua66e\uac00-\ud7ff"
_MAYBE_MARKS = late_pattern(rf"[^{_NO_MARK}][^{_NO_MARK}]{{{LONGEST_RUN_OF_MARKS // 3 - 1}}}")
_ROUNDS = 4  # in which doubled spaces are halved, before all words are split

_HYPHENS = "-\u2010"  # NFKC makes U+2010 of U+2011
_BETWEEN_DIGITS = ".,:/'" + _HYPHENS
_JOINS_NAMES = ".'" + _HYPHENS
_IN_LOCAL_PARTS = "!#$%&+^~"  # what the name before the `@` of a mail address may have, besides letters, dots, hyphens
_BEFORE_PATHS = "./\\~}*?" + _HYPHENS  # a path after one of these is the rest of a longer one
_CONTINUES_PATHS = "/\\?#%"
_AFTER_WORDS = " ,.;:!?()[]{}<>\"'`\u2018\u2019\u201c\u201d\u00ab\u00bb\u3001\u3002"
_BEFORE_WORDS = _AFTER_WORDS + "#="  # `#13`, `id=13`
_CONTEXT = 2  # how many characters on each side of a match are looked at


def normal(text: str) -> str:
    """The form in which texts are compared: NFKC, spaces folded, format characters gone. Idempotent.

    Of a run of combining marks the first thirty stay, as in the stream-safe format of Unicode: sorting a longer run
    takes quadratic time, and no language has one.
    """
    if text.isascii():
        text = text if text.isprintable() else text.translate(_ASCII_SPACES)
        return _one_space(text) if "  " in text or text[:1] == " " or text[-1:] == " " else text
    if not text.isprintable():
        for space in _SPACES:
            text = text.replace(space, " ")
        if not text.isprintable():
            text = _FORMAT.sub("", text)
    if not _may_have_many_marks(text):
        return _one_space(unicodedata.normalize("NFKC", text))
    made = ""
    while text != made:  # each further round is about a shorter text
        made = _one_space(unicodedata.normalize("NFKC", _with_few_marks(text)))
        text = _with_few_marks(made)
    return made


def folded(text: str) -> str:
    """The normal form in lower case. `ß` and `ss` stay two names, unlike in `casefold`: they are two domains."""
    return lowered(normal(text))


def lowered(made: str) -> str:
    """A text in normal form in lower case."""
    lower = made.lower()
    # Only `İ` becomes longer, and few letters with a mark have one character in lower case alone.
    is_same = made.isascii() or (len(lower) == len(made) and unicodedata.is_normalized("NFKC", lower))
    return lower if is_same else normal(lower)


def is_plain(raw: str) -> bool:
    """Whether a value is its own normal form, apart from case and outer spaces: what was compared is what is sent."""
    return raw.strip() == normal(raw)


def _one_space(text: str) -> str:
    for _ in range(_ROUNDS):
        if "  " not in text:
            return text.strip(" ")
        text = text.replace("  ", " ")
    return " ".join(filter(None, text.split(" ")))


def _may_have_many_marks(text: str) -> bool:
    return "\uff9e" in text or "\uff9f" in text or bool(_MAYBE_MARKS.search(text))


def _with_few_marks(text: str) -> str:
    kept, run = [], 0
    for char in text:
        run = run + 1 if unicodedata.combining(char) or char in _BECOME_MARKS else 0
        if run <= LONGEST_RUN_OF_MARKS:
            kept.append(char)
    return "".join(kept)


# Words ---------------------------------------------------------------------------------------------------------------


def in_word(char: str) -> bool:
    """Whether a character is part of a word: a letter, a digit, `_`, or a mark on a letter."""
    return char.isalnum() or char == "_" or (not char.isascii() and unicodedata.category(char)[0] == "M")


class _WordsOnly(dict[int, int]):
    """A table for `translate` that replaces what is not part of a word by a space."""

    def __missing__(self, code: int) -> int:
        self[code] = kept = code if in_word(chr(code)) else 32
        return kept


def words(text: str) -> frozenset[str]:
    """The words of a text in lower case. A script without spaces between words has few, and a long one."""
    return frozenset(folded(text).translate(_WordsOnly()).split())


# Matches -------------------------------------------------------------------------------------------------------------


def stands_in(value: str, text: str, *, task: bool = False, cased: str | None = None) -> bool:
    """Whether a value stands in a text, between boundaries. Both are given as they are compared: normal, or folded.

    - No letter, digit, mark, `_` or `@` is directly beside it, and it is not continued by `.x` or `-x`.
    - Digits at its ends are not inside a longer number, date or time.
    - An address, a host or a path is not the end of a longer one either, and a path not the beginning.
    - A value under three characters is a whole text, or in the task a whole word.

    In the task a dot before a capital letter ends a sentence. If the task is given folded, `cased` is what it was
    before that; without it no dot does. Letters of scripts without spaces are beside each other, so a name among them
    is not found.
    """
    if not value:
        return False
    if value == text:
        return True
    if len(value) < SHORT_VALUE and not task:
        return False
    sentences = (cased if cased is not None and len(cased) == len(text) else text) if task else ""
    bounds = _Bounds(value, text, sentences)
    first = text.find(value)
    while first != -1:
        if bounds.hold(first):
            return True
        following = text.find(value, first + 1)
        if following == -1:
            return False
        # A text that repeats itself may have the value at every other character, and finding a long value that often
        # takes quadratic time. Between its first and last two matches a repetition looks the same around each of them.
        period = following - first
        end = _end_of_repetition(text, period, following + len(value))
        last = first + (end - first - len(value)) // period * period
        tried = {last - period * back for back in range(_CONTEXT + 1)}
        tried |= {first + period * ahead for ahead in range(1, _CONTEXT + 1)}
        if any(first < at <= last and bounds.hold(at) for at in tried):
            return True
        first = text.find(value, last + 1)
    return False


def _end_of_repetition(text: str, period: int, end: int) -> int:
    """How far each character from `end` on equals the one a period before."""
    step = 16
    while step:
        if end + step <= len(text) and text[end : end + step] == text[end - period : end - period + step]:
            end += step
            step *= 2
        else:
            step //= 2
    return end


class _Bounds:
    """The boundaries that one value needs in one text."""

    __slots__ = (
        "_begins_with_digit",
        "_ends_with_digit",
        "_is_mail",
        "_is_name",
        "_is_path",
        "_is_word",
        "_length",
        "_sentences",
        "_starts_path",
        "_text",
    )

    def __init__(self, value: str, text: str, sentences: str) -> None:
        self._text, self._sentences, self._length = text, sentences, len(value)
        self._is_word = len(value) < SHORT_VALUE
        self._begins_with_digit, self._ends_with_digit = value[0].isdigit(), value[-1].isdigit()
        self._is_mail = "@" in value
        self._is_path = "/" in value or "\\" in value
        self._starts_path = value[0] == "/"
        self._is_name = " " not in value and ("." in value or self._is_mail or self._is_path)

    def hold(self, start: int) -> bool:
        """Whether they hold for the match that starts here."""
        end = start + self._length
        return self._hold_before(self._text[max(0, start - _CONTEXT) : start]) and self._hold_after(end)

    def _hold_before(self, before: str) -> bool:
        if not before:
            return True
        beside, beyond = before[-1], before[:-1]
        if in_word(beside) or beside == "@" or (self._is_word and beside not in _BEFORE_WORDS):
            return False
        if self._begins_with_digit and beside in _BETWEEN_DIGITS and beyond.isdigit():
            return False
        if self._is_name and beside in _JOINS_NAMES and beyond and in_word(beyond):
            return False
        if self._is_mail and beside in _IN_LOCAL_PARTS:
            return False
        return not (self._is_path and (beside in _BEFORE_PATHS if self._starts_path else beside in "/\\"))

    def _hold_after(self, end: int) -> bool:
        after = self._text[end : end + _CONTEXT]
        if not after:
            return True
        beside, beyond = after[0], after[1:]
        if in_word(beside) or beside == "@" or (self._is_word and beside not in _AFTER_WORDS):
            return False
        if not beyond or beyond == " ":
            return True
        if beside == "." and in_word(beyond):
            return self._sentences[end + 1 : end + 2].isupper()
        if beside in _HYPHENS and in_word(beyond):
            return False
        if self._ends_with_digit and beside in _BETWEEN_DIGITS and beyond.isdigit():
            return False
        return not (self._is_path and beside in _CONTINUES_PATHS and (in_word(beyond) or beyond in "/.~*%&=-"))
