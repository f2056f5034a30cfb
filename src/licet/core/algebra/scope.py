"""Scopes: the trees of hosts, paths, secret references and names. No other module compares them.

- A scope is parsed into a *key*, a canonical string. The empty string is the top of every tree (`*`).
- Two keys are nested or disjoint. The *ancestors* of a key are all keys that cover it, itself first.
- Scopes of rules may have wildcards; scopes of uses never do.
- Domains, actions and ports are not known here: see `domains`.

>>> host_ancestors("api.example.com")
('api.example.com', '.example.com', '.com', '')
"""

import re
from collections.abc import Iterable
from functools import lru_cache
from typing import NoReturn

import can_ada

from licet.core.late_pattern import late_pattern
from licet.core.limits import LONGEST_PATH

__all__ = ["Malformed"]

TOP = ""
LONGEST_HOST, LONGEST_LABEL = 253, 63  # limits of DNS, in characters

_plain_host = re.compile(r"(?:\*\.)?(?:[a-z0-9_-]{1,63}\.)*[a-z][a-z0-9_-]{0,62}").fullmatch
_short_name = re.compile(r"[a-z0-9_-][a-z0-9_.-]{0,62}").fullmatch  # so short that no label can be too long
_canonical_name = re.compile(r"(?:[a-z0-9_-]{1,63}\.)*[a-z0-9_-]{1,63}").fullmatch
_CANONICAL_IPV6 = late_pattern(r"\[[0-9a-f:]+\]")
_MAPPED_IPV4 = late_pattern(r"\[::ffff:[0-9a-f]{1,4}:[0-9a-f]{1,4}\]")
_CAPITAL_SHARP_S = late_pattern("\u1e9e|%[eE]1%[bB][aA]%9[eE]")
_URL_DELIMITERS = late_pattern(r"[/\\?#@\s]")
# Characters without a visible glyph that Python calls printable. A rule with one would look like another rule. They are
# the default-ignorable characters of Unicode, and fillers, blanks and joiners.
UNSEEN = (
    "\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u2d7f\u3164\ufe00-\ufe0f\uffa0"
    "\U0001107f\U00016fe4\U0001d159\U000e0100-\U000e0fff"
)
_IGNORED = late_pattern(f"[{UNSEEN}]")
_DECEPTIVE = late_pattern(f"{_IGNORED.pattern}|(?:^|/) | (?:/|$)")
NAME_PATTERN = r"[A-Za-z0-9_./-]{1,128}"
_NAME = late_pattern(NAME_PATTERN)
_VARIABLE = late_pattern(r"[!-)+-<>-~]{1,1024}")  # visible ASCII without `*` and `=`
_BINARY = late_pattern(r"[!-)+-.0-~]{1,255}")  # visible ASCII without `*` and `/`
_SEGMENT = late_pattern(r"[!-)+-.0-~]{1,255}")
_SHELL_HOME = late_pattern(r"\$(?:HOME|\{HOME\})(?=/|$)")  # how a shell would write `~`
_CLEAN_PATH = late_pattern(r"(?:\$\{workdir\}|~)?(?:/(?!\.{1,2}(?:/|$))[^/*]+)*")


class Malformed(ValueError):
    """A rule that cannot be parsed: what was found, what was expected, and a hint that may be empty."""

    def __init__(self, found: str, expected: str, hint: str = "") -> None:
        self.found, self.expected, self.hint = found, expected, hint
        super().__init__(f"found `{visible(found)}`, expected {expected}" + (f"; {hint}" if hint else ""))

    def __reduce__(self) -> tuple[type["Malformed"], tuple[str, str, str]]:
        return Malformed, (self.found, self.expected, self.hint)


def visible(text: str) -> str:
    """Escape control, bidirectional and other invisible characters in text from outside."""
    if text.isprintable() and (text.isascii() or not _IGNORED.search(text)):
        return text
    return "".join(char if char.isprintable() and not _IGNORED.match(char) else escaped(char) for char in text)


def escaped(char: str) -> str:
    return f"\\u{ord(char):04x}"


# Hosts ---------------------------------------------------------------------------------------------------------------


def canonical_host(text: str) -> str:
    """Parse one host into its canonical form: lower case, IDNA, no trailing dot, dotted IPv4, compressed IPv6."""
    if not text.isprintable() or _URL_DELIMITERS.search(text) or (":" in text and not _bracketed(text)):
        _refuse_host(text)
    try:
        host = can_ada.parse(f"http://{text}/").hostname
    except ValueError:
        _refuse_host(text)
    if from_capital_sharp_s(host, text):
        raise Malformed(text, "a host whose spelling is settled", "write `ß` or `ss` instead of the capital sharp s")
    return checked_host(host, text)


def from_capital_sharp_s(host: str, text: str) -> bool:
    """Whether the parser converted a capital sharp s. Older and newer parsers convert it to different hosts."""
    return "ss" in host and _CAPITAL_SHARP_S.search(text) is not None


def checked_host(host: str, text: str) -> str:
    """Check that the host from the URL parser is canonical; `text` is what the caller wrote, for the message."""
    if host[-1:] == ".":
        host = host[:-1]
    if _short_name(host) and ".." not in host and host[-1] != ".":
        return host
    if _canonical_name(host):
        if len(host) > LONGEST_HOST:
            raise Malformed(text, f"a host name of at most {LONGEST_HOST} characters")
        return host
    if _MAPPED_IPV4.fullmatch(host):
        raise Malformed(text, "an IPv4 address", "write an IPv4-mapped address as plain IPv4")
    if not _CANONICAL_IPV6.fullmatch(host):
        _refuse_host(text)
    return host


def is_address(host: str) -> bool:
    """Whether a canonical host is an IP address rather than a name."""
    return host[:1] == "[" or host.rpartition(".")[2].isdecimal()


def host_key(pattern: str) -> str:
    """Parse a host pattern into its key: `*`, `*.x.com` (every name below `x.com`, but not itself) or one host."""
    if (key := plain_host_key(pattern)) is not None:
        return key
    if pattern == "*":
        return TOP
    if "/" in pattern:
        _refuse_host(pattern)
    if pattern[:2] == "*.":
        host = canonical_host(pattern[2:]) if "*" not in pattern[2:] else _refuse_wildcard(pattern)
        if is_address(host):
            raise Malformed(pattern, "a name after `*.`", "addresses have no subdomains")
        return f".{host}"
    if "*" in pattern:
        _refuse_wildcard(pattern)
    return canonical_host(pattern)


def plain_host_key(pattern: str) -> str | None:
    """Fast path of `host_key`: the key of a pattern that is certainly canonical, or None to use the URL parser."""
    # A lower-case name is its own canonical form; a test compares this with the parser. Capitals, Unicode, punycode and
    # numbers need the parser.
    if _plain_host(pattern) and len(pattern) <= LONGEST_HOST and "xn--" not in pattern:
        return pattern[1:] if pattern[0] == "*" else pattern
    return None


def host_text(key: str) -> str:
    """Write a host key as a pattern."""
    return f"*{key}" if key == TOP or key[0] == "." else key


def host_ancestors(key: str) -> tuple[str, ...]:
    """The keys that cover a host: itself, then `.x.com` for each parent domain, then the top."""
    # An IPv4 address gets ancestors such as `.0.0.1` too. That is harmless: no rule can have such a key.
    if not key:
        return (TOP,)
    dot = key.find(".", 1)
    return (key, *_parents(key[dot:])) if dot > 0 else (key, TOP)


def reversed_host(key: str) -> str:
    """Reverse a host key. Sorted this way, all names below a domain are next to each other."""
    return key[::-1]


def hosts_below(key: str) -> str:
    """The prefix of all reversed keys that a host key covers; empty if it covers only itself."""
    return key[::-1] if key[0] == "." else ""


_parents = lru_cache(4096)(host_ancestors)  # many hosts have the same parent domain


def _bracketed(text: str) -> bool:
    return text[:1] == "[" and text[-1:] == "]"


def _refuse_host(text: str) -> NoReturn:
    hint = ""
    full_rule = "(protocol and method belong to whole rules, such as `network:https:get@api.example.com`)"
    if "://" in text:
        suggested = _suggested_host(text.partition("://")[2]) or "only the host belongs here, without scheme and path"
        hint = f"{suggested} {full_rule}"
    elif re.fullmatch(r"[0-9.]+/[0-9]+|[0-9a-fA-F:]+/[0-9]+", text):
        hint = "address ranges go under `private`"
    elif "/" in text:
        hint = _suggested_host(text.strip("/")) or "only the host belongs here, without a path"
    elif "@" in text:
        hint = f"{_suggested_host(text.rpartition('@')[2]) or 'only the host belongs here'} {full_rule}"
    elif text.count(":") > 1:
        hint = f"write an IPv6 address in brackets: `[{text}]`"
    raise Malformed(text, "a host name such as `api.example.com`, an IP address, `*.example.com` or `*`", hint)


def _suggested_host(rest: str) -> str:
    """A hint with the host and port of a URL whose scheme was cut off; empty if a rule cannot have them."""
    try:
        # For `http` and `https` the parser would drop the default port, and a rule without a port is about any port.
        parsed = can_ada.parse(f"tcp://{rest}")
        host = host_text(host_key(parsed.hostname))
    except (ValueError, TypeError):
        return ""
    return f"did you mean `{host}:{parsed.port}`?" if parsed.port not in ("", "0") else f"did you mean `{host}`?"


def _refuse_wildcard(pattern: str) -> NoReturn:
    raise Malformed(pattern, "`*` alone or `*.` before a name", "a wildcard inside a name is not supported")


# Paths ---------------------------------------------------------------------------------------------------------------


def path_key(text: str) -> str:
    """Parse the path of a rule into its key. It is absolute or starts with `~` or `${workdir}`; `..` is refused.

    Doubled slashes and `.` are removed. The only wildcard is `*` alone.
    """
    if text in ("*", "/"):
        return TOP
    if len(text) > LONGEST_PATH or not text.isprintable() or _DECEPTIVE.search(text):
        expected = f"a path of visible characters, at most {LONGEST_PATH} of them, without spaces around a name"
        raise Malformed(text, expected)
    if text and _CLEAN_PATH.fullmatch(text) and "${" not in text[1:]:
        return text
    root, _, rest = text.partition("/")
    if root not in ("", "~", "${workdir}") or not text or "${" in rest:
        raise Malformed(
            text, "an absolute path, or one that starts with `~` or `${workdir}`", _path_hint(text) if text else ""
        )
    if "*" in text:
        raise Malformed(text, "a path without `*`", "a path covers everything below it; `*` alone is every path")
    parts = [part for part in rest.split("/") if part not in ("", ".")]
    if ".." in parts:
        raise Malformed(text, "a path without `..`", "write the path that it leads to")
    return "/".join([root, *parts])


def is_unexpanded(key: str) -> bool:
    """Whether a path key starts with `~` or `${workdir}`, so that its real path is not known yet."""
    return key[:1] in ("~", "$") and key.partition("/")[0] in ("~", "${workdir}")


def directory_key(path: str) -> str:
    """Parse the absolute path of the directory that replaces `${workdir}` or `~` into its key."""
    if path[:1] != "/":
        raise Malformed(path, "the absolute path of a directory")
    return path_key(path)


def resolved_path(path: str) -> str:
    """Resolve `.`, `..` and doubled slashes in the absolute path of a use, without looking at the file system.

    The result is both the path that is checked and the path that is opened.
    """
    if "/." not in path and "//" not in path and path[-1:] != "/":
        return path
    parts: list[str] = []
    for part in path.split("/"):
        if part == "..":
            del parts[-1:]
        elif part not in ("", "."):
            parts.append(part)
    return "/" + "/".join(parts)


def path_text(key: str) -> str:
    """Write a path key as the scope of a rule."""
    return key or "*"


def path_ancestors(key: str) -> tuple[str, ...]:
    """The keys that cover a path: itself, each directory above it, then the top."""
    if not key:
        return (TOP,)
    keys = [key]
    slash = key.rfind("/")
    while slash > 0:
        keys.append(key[:slash])
        slash = key.rfind("/", 0, slash)
    keys.append(TOP)
    return tuple(keys)


def inside(path: str, trees: Iterable[str]) -> bool:
    """Whether a path is in one of these directories, or is one. For real paths; rules are compared by ancestors."""
    return any(path == tree or path.startswith(f"{tree.rstrip('/')}/") for tree in trees)


def paths_below(key: str) -> str:
    """The prefix of all paths below a path."""
    return f"{key}/"


def _path_hint(text: str) -> str:
    home, meant = _SHELL_HOME.match(text), f"${{workdir}}/{text}"
    if home:
        meant = "~" + text[home.end() :]
    elif text[0] == "$" or "${" in text:
        return "`${workdir}` is the only variable, and only at the start"
    elif text[0] == "~":
        return "`~` means the home of the user who runs it; another user's home must be written out"
    try:
        return f"did you mean `{path_key(meant)}`?"
    except Malformed as wrong:
        return wrong.hint


# Secrets and names ---------------------------------------------------------------------------------------------------


def secret_reference(text: str) -> str:
    """Check a concrete secret reference: segments of visible ASCII, separated by `/`."""
    segments = text.split("/")
    if len(text) > 1024 or any(not _SEGMENT.fullmatch(part) or part in (".", "..") for part in segments):
        raise Malformed(text, "a secret reference such as `WEATHER_API_KEY` or `github/token`")
    return text


def secret_key(text: str) -> str:
    """Parse the scope of a secret rule into its key: a reference, `prefix/*` (complete segments only), or `*`."""
    if text == "*":
        return TOP
    if text[-2:] == "/*":
        return secret_reference(text[:-2]) + "/"
    if "*" in text:
        raise Malformed(text, "`*` alone or as the last segment", "`prefix/*` covers whole segments")
    return secret_reference(text)


def secret_text(key: str) -> str:
    """Write a secret key as the scope of a rule."""
    return f"{key}*" if key == TOP or key[-1] == "/" else key


def secret_ancestors(key: str) -> tuple[str, ...]:
    """The keys that cover a secret: itself, `prefix/` for each of its prefixes, then the top."""
    keys = [key]
    slash = key.rfind("/", 0, -1)
    while slash != -1:
        keys.append(key[: slash + 1])
        slash = key.rfind("/", 0, slash)
    if key:
        keys.append(TOP)
    return tuple(keys)


def secrets_below(key: str) -> str:
    """The prefix of all keys that a secret key covers; empty if it covers only itself."""
    return key if key[-1] == "/" else ""


def name(text: str) -> str:
    """Check the name of a tool, connector, agent, bundle or session."""
    if not _NAME.fullmatch(text):
        raise Malformed(text, "a name of 1 to 128 letters, digits, `_`, `.`, `/` or `-`")
    return text


def variable(text: str) -> str:
    """Check the name of an environment variable."""
    if not _VARIABLE.fullmatch(text):
        raise Malformed(text, "the name of an environment variable such as `PATH`")
    return text


def binary(text: str) -> str:
    """Check a binary: a bare name, or the path of exactly one file."""
    if "/" in text or text[:1] == "~" or text[:2] == "${":
        path = path_key(text)
        if path == TOP:
            raise Malformed(text, "the path of a binary")
        return path
    if not _BINARY.fullmatch(text) or text in (".", ".."):
        raise Malformed(text, "a binary name such as `git`, an absolute path, or `*`")
    return text


def unix_socket(text: str) -> str:
    """Check the path of exactly one unix socket."""
    path = path_key(text)
    if path == TOP:
        raise Malformed(text, "the path of one socket, such as `/run/docker.sock`")
    return path


def name_ancestors(key: str) -> tuple[str, ...]:
    """The keys that cover a name: itself, then the top."""
    return (key, TOP) if key else (TOP,)


def nothing_below(key: str) -> str:
    """An empty prefix: a name covers only itself."""
    return ""


def name_text(key: str) -> str:
    """Write a name key as the scope of a rule."""
    return key or "*"
