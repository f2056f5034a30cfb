"""The spellings of a key: written by an encoder, and found by a slow search that shares nothing with the real one."""

import base64
import functools
import string
from collections.abc import Callable, Iterator

from hypothesis import strategies as st

SIX = string.ascii_uppercase + string.ascii_lowercase + string.digits + "+/"

HEXED = frozenset(string.hexdigits)

# Keys with their stand-ins, which a test needs to be the same each time.
GITHUB = ("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", "ghp_Kd8RmWx0ZtYp2BvNq6LcJh3GfSa1EuXi0TgO")
PLAIN = ("zQ7/aB3+dE5=hK9-", "mW2/xC8+rT1=nJ4-")
ROUND = ("-aK3Qz81bWpLx0t-", "-mR7Yv24cGsHn5e-")  # may overlap itself by one character
QUOTED = ('"b/Xw92"kLpq/VtY', '"m/Rf57"zNhc/QaE')
PAIRS = {"github": GITHUB, "plain": PLAIN, "round": ROUND, "quoted": QUOTED}


def percent(text: str, which: Callable[[int], bool] = lambda _: True, capitals: bool = True) -> str:
    """The chosen characters percent-coded."""
    form = "%{:02X}" if capitals else "%{:02x}"
    return "".join(form.format(ord(sign)) if which(at) else sign for at, sign in enumerate(text))


def escaped(text: str, which: Callable[[int], bool] = lambda _: True, capitals: bool = False) -> str:
    """The chosen characters escaped as in JSON."""
    form = "\\u{:04X}" if capitals else "\\u{:04x}"
    return "".join(form.format(ord(sign)) if which(at) else sign for at, sign in enumerate(text))


def in_base64(text: str, before: str = "", after: str = "", url: bool = False) -> str:
    """Base64 of the text with what is next to it."""
    raw = (before + text + after).encode()
    return (base64.urlsafe_b64encode(raw) if url else base64.b64encode(raw)).decode()


BREAKS = {"LF": "\n", "CRLF": "\r\n", "LF in JSON": "\\n", "CRLF in JSON": "\\r\\n", "LF in a form": "%0A"}
BREAKS |= {"YAML": "\n" + " " * 10, "a fold": "\r\n ", "tabs": "\n\t\t", "a blank before": " \n"}
BREAKS |= {"YAML in JSON": "\\n    ", "tabs in JSON": "\\n\\t\\t", "a coded LF in JSON": "\\u000a"}
BREAKS |= {"all of it in JSON": " \\u000D\\u000A \\t", "a tab before it in JSON": "\\t\\r\\n"}
BREAKS |= {"indented in a form": "%0a%20%20", "all of it in a form": "%20%0D%0A%09"}
WIDTHS = {"PEM": 64, "mail": 76}


def in_lines(text: str, width: int, line_break: str) -> str:
    """Text cut into lines, without a break at its end."""
    return line_break.join(text[at : at + width] for at in range(0, len(text), width))


def spellings(key: str) -> dict[str, str]:
    """A key in each form, with a name."""
    found = {"raw": key, "percent": percent(key), "percent small": percent(key, capitals=False)}
    found |= {"some percent": percent(key, lambda at: at % 3 == 1), "json": escaped(key)}
    found |= {"json capitals": escaped(key, capitals=True), "some json": escaped(key, lambda at: at % 2 == 0)}
    ways: tuple[Callable[[str], str], ...] = (percent, str, escaped)
    found["mixed"] = "".join(ways[at % 3](sign) for at, sign in enumerate(key))
    found["slashes"] = key.replace("/", "\\/").replace('"', '\\"')
    for before in ("", "u", "u:"):
        for after in ("", "x", "yz"):
            for url in (False, True):
                found[f"base64 {before}|{after} {'url' if url else ''}"] = in_base64(key, before, after, url)
    found["base64 percent"] = percent(in_base64(key, "me:"), lambda at: at % 5 == 0)
    found["base64 in a query"] = in_base64(key, "me:").replace("+", "%2B").replace("/", "%2f").replace("=", "%3D")
    found["base64 json"] = in_base64(key, "me:").replace("/", "\\/")
    for kind, width in WIDTHS.items():
        for name, line_break in BREAKS.items():
            # With the key in its first line and in the next one, wherever it begins in a group of three bytes.
            for size in range(width * 3 // 4 - 11, width * 3 // 4 - 8):
                long = in_base64(key, "." * size, "." * 60)
                found[f"base64 in lines of {kind}, {name}, {size}"] = in_lines(long, width, line_break)
    php = in_base64(key, "???" * 15, "???" * 20).replace("/", "\\/")
    found["base64 in lines with escapes"] = in_lines(php, 64, "\\n")
    return found


Unit = tuple[int, int, str]  # start, end, character


def behind_break(text: str, at: int) -> int:
    """Where a line goes on that is broken at a place; the place itself if it is not."""
    line = text[max(at - 32, 0) : at]
    if len(line) < 32 or not set(line) <= set(SIX + "-_%\\"):
        return at
    return max((at + size for spelling in SPELLED_BREAKS if (size := break_size(text[at:], *spelling))), default=at)


# As a blank, CR and LF are spelled, each as what they may be.
SPELLED_BREAKS = (
    ((" ", "\t"), ("\r",), ("\n",)),
    ((" ", "\t", "\\t"), ("\\r", "\\u000d", "\\u000D"), ("\\n", "\\u000a", "\\u000A")),
    (("%20", "%09"), ("%0d", "%0D"), ("%0a", "%0A")),
)


def break_size(text: str, blanks: tuple[str, ...], returns: tuple[str, ...], feeds: tuple[str, ...]) -> int:
    """The length of the break that a text begins with; 0 if it begins with none."""
    at = 0
    for words, needed in ((blanks, False), (returns, False), (feeds, True)):
        size = next((len(word) for word in words if text.startswith(word, at)), 0)
        if needed and not size:
            return 0
        at += size
    # A tab that JSON has in it as it is ends no text before the break, and begins none behind it.
    blanks = tuple(word for word in blanks if not (word == "\t" and "\\t" in blanks))
    for _ in range(16):
        at += next((len(word) for word in blanks if text.startswith(word, at)), 0)
    return at


def units_from(text: str, at: int, *, in_lines: bool = False) -> Iterator[Unit]:
    """Read characters one by one, escaped or not."""
    start, line = at, at - 32
    while at < len(text):
        if in_lines and at > start and at - line >= 32 and (behind := behind_break(text, at)) > at:
            line = at = behind
            if at == len(text):
                return
        two, four = text[at + 1 : at + 3], text[at + 4 : at + 6]
        if text[at] not in "%\\":
            unit = (at, at + 1, text[at])
        elif text[at] == "%" and len(two) == 2 and set(two) <= HEXED:
            unit = (at, at + 3, chr(int(two, 16)))
        elif text[at : at + 4] == "\\u00" and len(four) == 2 and set(four) <= HEXED and four[0] in "01234567":
            unit = (at, at + 6, chr(int(four, 16)))
        elif text[at : at + 2] in ("\\/", '\\"'):
            unit = (at, at + 2, text[at + 1])
        else:
            return
        yield unit
        at = unit[1]


def bits_of(text: str) -> str:
    return "".join(f"{byte:08b}" for byte in text.encode())


def replaced(text: str, pairs: list[tuple[str, str]]) -> str:
    """The text with the new value for each key, in time that grows with the product of their lengths."""
    found: list[tuple[int, int, list[Unit], str]] = []
    wanted = [patterns for old, new in pairs for patterns in patterns_of(old, new)]
    for start in range(len(text)):
        for pattern in wanted:
            units = []
            for (allowed, _), unit in zip(pattern, units_from(text, start, in_lines=pattern[0][1]), strict=False):
                if standard(unit[2], pattern) not in allowed:
                    break
                units.append(unit)
            if len(units) == len(pattern):
                found.append((units[-1][1], -start, units, written(units, pattern)))
    out = list(text)
    for _, _, units, new in sorted(found, key=lambda one: one[:2]):
        for (start, end, _), sign in zip(units, new, strict=True):
            if end - start == 1:
                out[start] = sign
            elif end - start > 2:
                had = "".join(out[end - 2 : end])
                capitals = had == had.upper() if end - start == 3 else had != had.lower()
                out[end - 2 : end] = f"{ord(sign):02X}" if capitals else f"{ord(sign):02x}"
    return "".join(out)


Pattern = tuple[tuple[dict[str, str], bool], ...]  # what each character may be and becomes; whether this is base64


@functools.cache
def patterns_of(old: str, new: str) -> list[Pattern]:
    """A key as it is, and its bits in base64 from each place in a character on."""
    made: list[Pattern] = [tuple(({was: becomes}, False) for was, becomes in zip(old, new, strict=True))]
    was, becomes = bits_of(old), bits_of(new)
    for offset in (0, 2, 4):
        old_bits, new_bits = "." * offset + was, "." * offset + becomes
        pattern = []
        for at in range(0, len(old_bits), 6):
            six, other = old_bits[at : at + 6].ljust(6, "."), new_bits[at : at + 6].ljust(6, ".")
            # A character that is only partly the key's, and stays as it is, belongs to no match.
            if "." not in six or six != other:
                pattern.append(({SIX[n]: SIX[merged(n, other)] for n in range(64) if merged(n, six) == n}, True))
        made.append(tuple(pattern))
    return made


def merged(number: int, bits: str) -> int:
    """The number with the bits that are given; `.` is none."""
    return int("".join(old if bit == "." else bit for old, bit in zip(f"{number:06b}", bits, strict=True)), 2)


def standard(sign: str, pattern: Pattern) -> str:
    return {"-": "+", "_": "/"}.get(sign, sign) if pattern[0][1] else sign


def written(units: list[Unit], pattern: Pattern) -> str:
    signs = "".join(sign for *_, sign in units)
    made = "".join(allowed[standard(sign, pattern)] for sign, (allowed, _) in zip(signs, pattern, strict=True))
    if pattern[0][1] and ("-" in signs or "_" in signs):
        return made.replace("+", "-").replace("/", "_")
    return made


def texts_with(keys: list[str]) -> st.SearchStrategy[str]:
    """Texts with keys in every form, whole, cut, next to and over each other, and with what only looks like them."""
    whole = st.sampled_from([form for key in keys for form in spellings(key).values()])
    cut = st.tuples(whole, st.integers(0, 200), st.integers(0, 200)).map(lambda one: one[0][one[1] : one[1] + one[2]])
    noise = st.sampled_from(
        ["%", "\\", "\\u00", "\\u", "%4", "%zz", "\n", "a", "Z2", "-", "=", '"', "é", "%25", "\\\\"]
    )
    joined = st.sampled_from(keys).map(lambda key: key + key[1:])
    return st.lists(st.one_of(whole, cut, noise, joined, st.text("aghQz%\\u046-_", max_size=6)), max_size=8).map(
        "".join
    )
