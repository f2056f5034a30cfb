"""Which number, date, address, URL or path is a value, and which of them does a text have?

- Numbers are compared by value, dates by month and day, URLs by the key that the one URL parser makes.
- What is ambiguous is nothing: `1,5`, `5/6/2024`, `next Friday` and `007` are no numbers and no dates.
- In `addresses_in` it is the other way around: it looks for what must not leave, and finds too much rather than too
  little. A bare name counts as a web address if its last label could be a top-level domain.
- The texts are hostile: every function takes time in proportion to their length.

Where a value may stand in a text: `text`.
"""

import unicodedata
from collections.abc import Iterator
from datetime import date
from decimal import Decimal
from functools import lru_cache
from typing import Literal

from msgspec import Struct

from licet.core.algebra.rules import InvalidUse, destination
from licet.core.algebra.scope import LONGEST_HOST, UNSEEN, Malformed, canonical_host, host_ancestors
from licet.core.flow.text import in_word, normal
from licet.core.late_pattern import late_pattern
from licet.core.limits import LONGEST_DATE, LONGEST_NUMBER, LONGEST_PATH

# Numbers -------------------------------------------------------------------------------------------------------------

# Without a sign: `12`, `12.50`, `1,234.56`, and `1.234.567,89` where the comma shows which is which.
_NUMBER = late_pattern(
    r"(?:0|[1-9][0-9]*)(?:\.[0-9]+)?"
    r"|[1-9][0-9]{0,2}(?:,[0-9]{3})+(?:\.[0-9]+)?"
    r"|[1-9][0-9]{0,2}(?:\.[0-9]{3})+,[0-9]+"
)
_NUMBER_LIKE = late_pattern(
    r"[0-9](?:[0-9.,:/'_\u2010-]*[0-9])?"
)  # also a date, a time, a range: none of them a number
_SIGNS = "+-\u2212"


def number_of(value: object) -> Decimal | None:
    """The number that a value is: `12.0` is `12`. Text with a leading zero is an id, and no number."""
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        return Decimal(value) if abs(value) < 10**LONGEST_NUMBER else None
    if isinstance(value, float):
        value = Decimal(repr(value))
    if isinstance(value, Decimal):
        return value if value.is_finite() else None
    if not isinstance(value, str) or len(value) > 2 * LONGEST_NUMBER:
        return None
    text = value.strip()
    return _signed(text[:1], text[1:]) if text[:1] and text[0] in _SIGNS else _unsigned(text)


def numbers_in(text: str) -> frozenset[Decimal]:
    """The numbers of a text in normal form, each between boundaries: none of `v2`, `2024-05-13`, `3-5` or `10:30`."""
    found = set()
    for match in _NUMBER_LIKE.finditer(text):
        start, end = match.span()
        sign = text[start - 1] if start and text[start - 1] in _SIGNS else ""
        before, after = text[max(0, start - len(sign) - 1) : start - len(sign)], text[end : end + 1]
        if (before and (in_word(before) or before in "@.,")) or (after and (in_word(after) or after == "@")):
            continue
        number = _signed(sign, match[0]) if sign else _unsigned(match[0])
        if number is not None and not _continues(text, end):
            found.add(number)
    return frozenset(found)


def digits_of(number: Decimal) -> str:
    """A pattern of the digits that every spelling of a number has; empty if no text can be that number."""
    if not number.is_finite() or abs(number.adjusted()) > LONGEST_NUMBER:
        return ""
    whole, _, rest = f"{abs(number):f}".partition(".")
    first = len(whole) % 3
    groups = [whole[:first], *(whole[at : at + 3] for at in range(first, len(whole), 3))]
    digits = "[.,]?".join(filter(None, groups))
    begins = f"{digits[0]}(?<![0-9]{digits[0]}){digits[1:]}"
    return f"{begins}[.,]{rest}" if (rest := rest.rstrip("0")) else f"{begins}(?![0-9])"


def _signed(sign: str, text: str) -> Decimal | None:
    number = _unsigned(text)
    return number if number is None or sign == "+" else number.copy_negate()


def _unsigned(text: str) -> Decimal | None:
    if len(text) > LONGEST_NUMBER or not _NUMBER.fullmatch(text):
        return None
    decimal_comma = "," in text and text.rfind(",") > text.find(".") > -1
    return Decimal(text.replace(".", "").replace(",", ".") if decimal_comma else text.replace(",", ""))


def _continues(text: str, end: int) -> bool:
    """Whether `.x` or `-x` follows, so that what ends here is the beginning of a longer name."""
    return text[end : end + 1] in (".", "-", "\u2010") and end + 1 < len(text) and in_word(text[end + 1])


# Dates ---------------------------------------------------------------------------------------------------------------

_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_DAYS_OF_MONTHS = (31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
_MONTH = (
    "(?P<month>jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|may|june?|july?|aug(?:ust)?|sept?(?:ember)?"
    r"|oct(?:ober)?|nov(?:ember)?|dec(?:ember)?)"
)
_DAY = "(?P<day>[0-3]?[0-9])(?:st|nd|rd|th)?"
_YEAR = "(?:,? [0-9]{4})?"
_ISO = "[0-9]{4}-(?P<month>[01][0-9])-(?P<day>[0-3][0-9])"
_MONTH_FIRST = rf"{_MONTH}\.? (?:the )?{_DAY}{_YEAR}"
_DAY_FIRST = rf"(?:the )?{_DAY} (?:of )?{_MONTH}\.?{_YEAR}"
_WEEKDAY = "(?:(?:mon|tues?|wed(?:nes)?|thu(?:rs)?|fri|sat(?:ur)?|sun)(?:day)?,? )?"
_CLOCK = "[0-9]{1,2}(?::[0-9]{2}){0,2}(?:[.][0-9]{1,9})?(?: ?[ap][.]?m[.]?)?(?: ?(?:z|utc|gmt|[+-][0-9]{2}:?[0-9]{2}))?"
_DATES = tuple(
    late_pattern(rf"{_WEEKDAY}{form}(?:{between}{_CLOCK})?")
    for form, between in ((_ISO, "[t ]"), (_MONTH_FIRST, ",? (?:at )?"), (_DAY_FIRST, ",? (?:at )?"))
)
_DATES_IN = tuple(
    late_pattern(rf"(?<![\w@./{inside}-]){form}(?:(?=t[0-9]{{2}}:)|(?![\w@]|[.:/-]\w))")
    for form, inside in ((_ISO, ""), (_MONTH_FIRST, ""), (_DAY_FIRST, ",:"))
)


def date_of(value: object) -> tuple[int, int] | None:
    """The month and day of a value that is wholly a date, or a date and a time, in ISO or English form."""
    if isinstance(value, date):
        return value.month, value.day
    if not isinstance(value, str) or len(value) > LONGEST_DATE:
        return None
    text = value.strip().lower()
    for pattern in _DATES:
        if match := pattern.fullmatch(text):
            return _month_and_day(match["month"], match["day"])
    return None


def dates_in(text: str) -> frozenset[tuple[int, int]]:
    """The dates of a text in normal or folded form, in ISO or English form; a range such as `May 3-5` has none."""
    lower = text.lower()
    found = (_month_and_day(one["month"], one["day"]) for pattern in _DATES_IN for one in pattern.finditer(lower))
    return frozenset(one for one in found if one is not None)


def _month_and_day(month: str, day: str) -> tuple[int, int] | None:
    number = int(month) if month.isdecimal() else _MONTHS.index(month[:3]) + 1
    valid = 1 <= number <= len(_MONTHS) and 1 <= int(day) <= _DAYS_OF_MONTHS[number - 1]
    return (number, int(day)) if valid else None


# URLs and paths ------------------------------------------------------------------------------------------------------

_SCHEME = late_pattern(r"[a-zA-Z][a-zA-Z0-9+.-]{0,30}://")
_END_OF_HOST = late_pattern(r"[/?#]")


def url_key(text: str) -> str | None:
    """One key for all spellings of a URL, `//host/path?query#fragment`; None if it is none, or ambiguous.

    A missing scheme in text is no difference, so the key has none: whether `http` will do is what capabilities say. A
    missing path is `/`, and another path is another URL. A user name, or a scheme besides `http` and `https`, has none.
    """
    text = text.strip()
    scheme = _SCHEME.match(text)
    whole = text if scheme else f"https:{text}" if text[:2] == "//" else f"https://{text}"
    after_scheme = whole.partition("://")[2]
    host = _END_OF_HOST.split(after_scheme, maxsplit=1)[0]
    if "\\" in whole or not host or len(host) > 2 * LONGEST_HOST:  # other parsers read a backslash as part of the host
        return None
    try:
        sent = destination("GET", whole).url
    except InvalidUse:
        return None
    fragment = whole.partition("#")[2]  # is not sent, but a page can read it
    return sent.partition(":")[2] + (f"#{fragment}" if fragment else "")


def url_keys_in(text: str) -> frozenset[str]:
    """The keys of all web addresses in a text in normal form; case matters in a path, so not the folded one."""
    keys = (url_key(one.text) for one in addresses_in(text) if one.kind == "web")
    return frozenset(key for key in keys if key is not None)


def path_parts(value: str) -> tuple[str, str] | None:
    """The folder and the name of a path; None if it has no folder, no name, or parts that lead elsewhere."""
    folder, slash, name = value.rpartition("/")
    if not slash or not name or len(value) > LONGEST_PATH or "://" in value or "\\" in value:
        return None
    parts = value.removeprefix("/").split("/")
    return None if any(part in ("", ".", "..") for part in parts) else (folder or "/", name)


def begins_as_path(value: str) -> bool:
    """Whether a value shows by its beginning that it is a path."""
    return value.startswith(("/", "./", "../", "~/"))


# Addresses in content ------------------------------------------------------------------------------------------------


class Address(Struct, frozen=True):
    """One address in a text for people, as it stands there in normal form."""

    kind: Literal["mail", "web", "name", "account"]  # `name`: of a file or of a host, nothing shows which
    text: str
    host: str = ""  # in canonical form; empty for accounts, and where it is ambiguous


Spans = list[tuple[int, int]]

_IGNORED = late_pattern(f"[{UNSEEN}]")
# Runs of what may be in the name of a host: everything but spaces and ASCII punctuation.
_NAMES = late_pattern(r"[^\x00-,/:-@\[-^`{-\x7f\s]+")
_URL_ENDS = late_pattern(r"[\s<>\"`\u00ab\u00bb\u201c-\u201e]|\]\(")
_NOT_IN_LOCAL_PARTS = frozenset(' <>()[]{},;:"@\\|=/?&\u00ab\u00bb\u201c\u201d\u201e')
_QUOTES = "'*`\u2018\u2019"
_AFTER_ADDRESSES = ".,;:!?'*_~]}\u2019\u2026\u3002"
_IDEOGRAPHIC_DOT = "\u3002"  # separates labels as `.` does, says IDNA
_TOP_LEVEL = late_pattern(r"[^\W\d_]{2,24}|xn--[a-z0-9-]{2,59}")
_ADDRESS_LITERAL = late_pattern(r"\[[0-9a-fA-F:.]{2,45}\]|\[IPv6:[0-9a-fA-F:.]{2,45}\]")
# What files are called, and no host.
_FILE_ENDING = late_pattern(
    "avi|bak|bmp|bz2|cfg|conf|cpp|cs|css|csv|dat|db|dll|doc|docx|env|eps|epub|exe|gif|go|gz|heic|htm|html"
    "|ico|ics|ini|ipynb|java|jpeg|jpg|js|json|jsx|key|lock|log|lua|mjs|mkv|mp3|mp4|odp|ods|odt|ogg"
    "|pdf|php|png|pps|ppt|pptx|rar|rb|rst|rtf|sql|sqlite|svg|swift|tar|tex|tgz|tif|tiff|toml"
    "|ts|tsv|tsx|ttf|txt|wav|webm|webp|wma|wmv|woff|xls|xlsx|xml|yaml|yml"
)
_FILE_OR_HOST = ("md", "mov", "ps", "py", "rs", "sh", "zip")  # endings of files that are top-level domains too
_IBAN = late_pattern(r"(?<![A-Za-z0-9])[A-Za-z]{2}[0-9]{2}(?:[ \-\u2010-\u2015]?[A-Za-z0-9]){11,30}(?![A-Za-z0-9])")
_AFTER_HOST = late_pattern(r"(?::[0-9]{1,5})?([/?#]\S)|:[0-9]{1,5}(?![^\s/?#])")  # a port alone may be a line number
_SEPARATORS = late_pattern(r"[ \-\u2010-\u2015\u2212]+")
_DIGITS = late_pattern(r"\d(?:[ \-\u2010-\u2015\u2212]{0,3}\d){7,}")
_ISO_TIME = late_pattern(
    r"(?<![\w-])(?:19|20)[0-9]{2}-(?:0[1-9]|1[0-2])-(?:0[1-9]|[12][0-9]|3[01])"
    r"(?:[T ][0-2][0-9]:[0-5][0-9](?::[0-5][0-9])?)?(?![\d-])"
)
_FEWEST_DIGITS, _MOST_DIGITS = 8, 19
_SHORTEST_IBAN = 15


def addresses_in(text: str) -> tuple[Address, ...]:
    """The mail addresses, web addresses and account numbers of a text, each once.

    - A web address has a scheme, begins with `www.`, or is a bare name whose last label could be a top-level domain:
      2 to 24 letters, or punycode. So `object.method` counts too. A name that ends as only files do (`notes.txt`)
      counts only where a path or a query follows.
    - A name that ends as files do, and in a top-level domain too (md, mov, ps, py, rs, sh, zip), is a `name`: who runs
      `curl evil.sh` reads a host. It obeys the same rule as an address, and is compared as the text that it is.
    - Account numbers: an IBAN whose checksum holds, or 8 to 19 digits with spaces and dashes between them; not an ISO
      date of this or the last century.
    - An address that is spelled out (`evil dot com`), or an IP address without a scheme, is not found.
    """
    text = _IGNORED.sub("", normal(text))
    found: list[Address] = []
    taken: Spans = []
    found += _with_schemes(text, taken)
    found += _mails(text, taken)
    found += _bare_names(_without(text, taken))
    found += _accounts(text)
    return tuple(dict.fromkeys(found))


def is_own(address_or_host: str, own: tuple[str, ...]) -> bool:
    """Whether a mail address or a host is in one of these domains, or below one; a plus-tag changes nothing."""
    local, at, host = address_or_host.rpartition("@")
    if at and (not local or "%" in local or "!" in local or not _NOT_IN_LOCAL_PARTS.isdisjoint(local)):
        return False  # several addresses, a name with an address, or one that is sent on to somewhere else
    name = _host(host)
    if not name:
        return False
    above = host_ancestors(name)
    return any(domain and (domain == name or f".{domain}" in above) for domain in map(_host, own))


@lru_cache(1024)
def _host(text: str) -> str:
    """The canonical form of a host; empty if it is none."""
    if not text or "%" in text or "*" in text or len(text) > 2 * LONGEST_HOST:
        return ""
    try:
        return canonical_host(text)
    except Malformed:
        return ""


def _with_schemes(text: str, taken: Spans) -> Iterator[Address]:
    """Each URL up to the end of its word; one inside another is cut off where a third begins."""
    starts = []
    at = text.find("://")
    while at != -1:
        start = at
        while start and at - start < 31 and text[start - 1].isascii() and (text[start - 1].isalnum()):
            start -= 1
        starts.append(start)
        at = text.find("://", at + 3)
    word_ends = 0
    for number, start in enumerate(starts):
        outer = start >= word_ends
        if outer:
            ends = _URL_ENDS.search(text, start)
            word_ends = ends.start() if ends else len(text)
            taken.append((start, word_ends))
        following = starts[number + 1] if number + 1 < len(starts) else word_ends
        end = word_ends if outer else min(following, word_ends)
        url = _trimmed(text[start:end])
        yield Address("web", url, _host_of_url(url))


def _host_of_url(url: str) -> str:
    """The host of an http URL; empty if it is not known for certain, which is nobody's own."""
    key = url_key(url)
    host = "" if key is None else _END_OF_HOST.split(key[2:], maxsplit=1)[0]
    return host.rpartition("]")[0] + "]" if host[:1] == "[" else host.partition(":")[0]


def _trimmed(text: str) -> str:
    """An address without the punctuation of the sentence around it."""
    trimmed = text.rstrip(_AFTER_ADDRESSES + (")" if "(" not in text else ""))
    return trimmed or text


def _mails(text: str, taken: Spans) -> Iterator[Address]:
    at, before = text.find("@"), 0
    while at != -1:
        start = at
        while start > before and text[start - 1] not in _NOT_IN_LOCAL_PARTS:
            start -= 1
        if start == at and at > before and text[at - 1] == '"':  # a quoted name; it has no other end that is certain
            start -= 1
        else:
            start += len(text[start:at]) - len(text[start:at].lstrip(_QUOTES))
        end = _end_of_domain(text, at + 1)
        host = text[at + 1 : end]
        if start < at and end > at + 1:
            sent_on = not {"%", "!"}.isdisjoint(text[start:at])
            yield Address("mail", text[start:end], "" if sent_on else _host(host))
            taken.append((start, end))
        before = at + 1
        at = text.find("@", before)


def _end_of_domain(text: str, start: int) -> int:
    """Where the domain that starts here ends; where it starts, if it is no domain of mail."""
    if literal := _ADDRESS_LITERAL.match(text, start):
        return literal.end()
    run = _NAMES.match(text, start)
    if not run:
        return start
    name = _name_of_host(run[0])
    labels = name.replace(_IDEOGRAPHIC_DOT, ".").split(".")
    return start + len(name) if len(labels) > 1 and _TOP_LEVEL.fullmatch(labels[-1].lower()) else start


def _name_of_host(run: str) -> str:
    """The beginning of a run that can be the name of a host."""
    if not run.isascii():
        run = next(_names_of_run(run), (0, ""))[1] if _in_name(run[0]) else ""
    return run.rstrip(".-_" + _IDEOGRAPHIC_DOT)


def _in_name(char: str) -> bool:
    """Whether a character may be in the name of a host: part of a word, an emoji, a dot or a hyphen."""
    return char in ".-" or char == _IDEOGRAPHIC_DOT or in_word(char) or unicodedata.category(char) == "So"


def _names_of_run(run: str) -> Iterator[tuple[int, str]]:
    """The parts of a run between characters that no name has, such as a dash, each with its place."""
    start = 0
    for at, char in enumerate(run):
        if not (char.isascii() or _in_name(char)):
            if start < at:
                yield start, run[start:at]
            start = at + 1
    if start < len(run):
        yield start, run[start:]


def _bare_names(text: str) -> Iterator[Address]:
    done = 0
    for run in _NAMES.finditer(text):
        if run.start() < done or ("." not in run[0] and _IDEOGRAPHIC_DOT not in run[0]):
            continue
        parts = [(0, run[0])] if run[0].isascii() else _names_of_run(run[0])
        for offset, part in parts:
            name = part.strip(".-_" + _IDEOGRAPHIC_DOT)
            start = run.start() + offset + part.find(name)
            end = start + len(name)
            follows = _AFTER_HOST.match(text, end)
            if start < done or not _is_web_name(name, bool(follows and follows[1])):
                continue
            has_path = bool(follows and follows[1])
            if not has_path and name.rpartition(".")[2].lower() in _FILE_OR_HOST and name[:4].lower() != "www.":
                yield Address("name", name, _host(name))  # what follows may be the number of a line
                continue
            if follows:
                ends = _URL_ENDS.search(text, end)
                end = ends.start() if ends else len(text)
                done = end
            address = _trimmed(text[start:end])
            yield Address("web", address, _host_of_url(address))


def _is_web_name(name: str, has_path: bool) -> bool:
    labels = name.replace(_IDEOGRAPHIC_DOT, ".").lower().split(".")
    if len(labels) < 2 or "" in labels[-2:]:
        return False
    if labels[0] == "www":
        return True
    return bool(_TOP_LEVEL.fullmatch(_letters(labels[-1]))) and (has_path or not _FILE_ENDING.fullmatch(labels[-1]))


def _letters(label: str) -> str:
    """A label without marks, which are part of letters in many scripts."""
    return label if label.isascii() else "".join(one for one in label if unicodedata.category(one)[0] != "M")


def _without(text: str, spans: Spans) -> str:
    """A text with spaces in these places."""
    pieces, done = [], 0
    for start, end in sorted(spans):
        if end > done:
            start = max(start, done)
            pieces += [text[done:start], " " * (end - start)]
            done = end
    return "".join([*pieces, text[done:]])


def _accounts(text: str) -> Iterator[Address]:
    taken: Spans = []
    start = _IBAN.search(text)
    while start:
        iban = _iban_of(start[0])
        if iban:
            yield Address("account", iban)
            taken.append((start.start(), start.start() + len(iban)))
        start = _IBAN.search(text, start.start() + (len(iban) or 4))
    taken += [match.span() for match in _ISO_TIME.finditer(text)]
    rest = _without(text, taken)
    for match in _DIGITS.finditer(rest):
        groups = _SEPARATORS.split(match[0])
        digits = sum(map(len, groups))
        if digits < _FEWEST_DIGITS or (len(groups) == 1 and digits > _MOST_DIGITS):
            continue
        begin, end = match.span()
        while begin and match.start() - begin < _MOST_DIGITS and in_word(rest[begin - 1]):
            begin -= 1  # `ORD12345678` is one name
        while end < len(rest) and end - match.end() < _MOST_DIGITS and in_word(rest[end]):
            end += 1
        yield Address("account", rest[begin:end])


def _iban_of(candidate: str) -> str:
    """The longest part of a text, from its beginning to the end of a group, that is an IBAN; empty if none is."""
    compact = _SEPARATORS.sub("", candidate).upper()
    if not compact.isascii():
        return ""
    country_last = "".join(str(int(char, 36)) for char in compact[:4])  # which the checksum takes after the rest
    found, length, remainder = 0, 0, 0
    for at, char in enumerate(candidate):
        if not char.isalnum():
            continue
        length += 1
        if length > 4:
            remainder = int(f"{remainder}{int(char, 36)}") % 97
        ends = at + 1 == len(candidate) or not candidate[at + 1].isalnum()
        if ends and length >= _SHORTEST_IBAN and int(f"{remainder}{country_last}") % 97 == 1:
            found = at + 1
    return candidate[:found]
