"""Scopes: the trees of hosts, paths, secret references and names, and the only code that compares them.

A scope is a *key*, a canonical string; `""` is the top of every tree (`*`). Two keys are nested or disjoint, and a
key's `ancestors` are the keys that cover it, itself first. Rules may hold wildcards, uses never do. What a scope is
used for (domain, action, port) is not known here.
"""

import re
from collections.abc import Iterable
from functools import lru_cache
from typing import NoReturn

import can_ada

__all__ = ["Malformed"]

TOP = ""
LONGEST_PATH = 4096  # PATH_MAX: a longer path cannot be opened, and its ancestors would cost quadratic memory
LONGEST_HOST, LONGEST_LABEL = 253, 63  # what DNS can carry

_plain_host = re.compile(r"(?:\*\.)?(?:[a-z0-9_-]{1,63}\.)*[a-z][a-z0-9_-]{0,62}").fullmatch
_short_name = re.compile(r"[a-z0-9_-][a-z0-9_.-]{0,62}").fullmatch  # too short for a label to be too long
_canonical_name = re.compile(r"(?:[a-z0-9_-]{1,63}\.)*[a-z0-9_-]{1,63}").fullmatch
_CANONICAL_IPV6 = re.compile(r"\[[0-9a-f:]+\]")
_MAPPED_IPV4 = re.compile(r"\[::ffff:[0-9a-f]{1,4}:[0-9a-f]{1,4}\]")
_CAPITAL_SHARP_S = re.compile("\u1e9e|%[eE]1%[bB][aA]%9[eE]")
_URL_DELIMITERS = re.compile(r"[/\\?#@\s]")
# Characters that print as nothing although Python calls them printable; a rule with one would look like another rule.
# They are what Unicode calls default-ignorable, and fillers, blanks and joiners whose glyph is empty.
UNSEEN = (
    "\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u2d7f\u3164\ufe00-\ufe0f\uffa0"
    "\U0001107f\U00016fe4\U0001d159\U000e0100-\U000e0fff"
)
_IGNORED = re.compile(f"[{UNSEEN}]")
_DECEPTIVE = re.compile(f"{_IGNORED.pattern}|(?:^|/) | (?:/|$)")
NAME_PATTERN = r"[A-Za-z0-9_./-]{1,128}"
_NAME = re.compile(NAME_PATTERN)
_VARIABLE = re.compile(r"[!-)+-<>-~]{1,1024}")  # visible ASCII without `*` and `=`
_BINARY = re.compile(r"[!-)+-.0-~]{1,255}")  # visible ASCII without `*` and `/`
_SEGMENT = re.compile(r"[!-)+-.0-~]{1,255}")
_SHELL_HOME = re.compile(r"\$(?:HOME|\{HOME\})(?=/|$)")  # how a shell would write `~`
_CLEAN_PATH = re.compile(r"(?:\$\{workdir\}|~)?(?:/(?!\.{1,2}(?:/|$))[^/*]+)*")


class Malformed(ValueError):
    """A rule that cannot be understood: what was found, what was expected, and perhaps the spelling that was meant."""

    def __init__(self, found: str, expected: str, hint: str = "") -> None:
        self.found, self.expected, self.hint = found, expected, hint
        super().__init__(f"found `{visible(found)}`, expected {expected}" + (f"; {hint}" if hint else ""))

    def __reduce__(self) -> tuple[type["Malformed"], tuple[str, str, str]]:
        return Malformed, (self.found, self.expected, self.hint)


def visible(text: str) -> str:
    """Text from outside with control, bidi and other invisible characters spelled out."""
    if text.isprintable() and (text.isascii() or not _IGNORED.search(text)):
        return text
    return "".join(char if char.isprintable() and not _IGNORED.match(char) else spelled(char) for char in text)


def spelled(char: str) -> str:
    """A character as its number."""
    return f"\\u{ord(char):04x}"


# Hosts ---------------------------------------------------------------------------------------------------------------


def canonical_host(text: str) -> str:
    """The one spelling of a host: lower case, IDNA, no trailing dot, IPv4 as a dotted quad, IPv6 compressed."""
    if not text.isprintable() or _URL_DELIMITERS.search(text) or (":" in text and not _bracketed(text)):
        _refuse_host(text)
    try:
        host = can_ada.parse(f"http://{text}/").hostname
    except ValueError:
        _refuse_host(text)
    if unsettled(host, text):
        raise Malformed(text, "a host whose spelling is settled", "write `ß` or `ss` instead of the capital sharp s")
    return checked_host(host, text)


def unsettled(host: str, text: str) -> bool:
    """Whether a host came from a capital sharp s, which parsers of different age send to different hosts."""
    return "ss" in host and _CAPITAL_SHARP_S.search(text) is not None


def checked_host(host: str, text: str) -> str:
    """What the URL parser called the host, held to the canonical form; `text` is what the caller wrote."""
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
    """The key of a host pattern: `*`, `*.x.com` (every name below, not `x.com` itself), or one exact host."""
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
    """The key of a pattern that is plainly canonical already, or None if only the parser can tell."""
    # A lower-case name is its own canonical form (a test holds this against the parser); the parser is needed for
    # everything that has a second spelling: capitals, Unicode, punycode, numbers.
    if _plain_host(pattern) and len(pattern) <= LONGEST_HOST and "xn--" not in pattern:
        return pattern[1:] if pattern[0] == "*" else pattern
    return None


def host_text(key: str) -> str:
    """The pattern that a host key stands for."""
    return f"*{key}" if key == TOP or key[0] == "." else key


def host_ancestors(key: str) -> tuple[str, ...]:
    """The keys that cover a host: itself, then `.x.com` for each parent domain, then the top."""
    # An address gets chains such as `.0.0.1` too; no rule can hold such a key, so the extra probes find nothing.
    if not key:
        return (TOP,)
    dot = key.find(".", 1)
    return (key, *_parents(key[dot:])) if dot > 0 else (key, TOP)


def reversed_host(key: str) -> str:
    """A host key backwards: sorted so, the names below a domain stand together."""
    return key[::-1]


def hosts_below(key: str) -> str:
    """What every key that a host key covers begins with, backwards; nothing if it covers itself alone."""
    return key[::-1] if key[0] == "." else ""


_parents = lru_cache(4096)(host_ancestors)  # hosts are many, the domains above them few


def _bracketed(text: str) -> bool:
    return text[:1] == "[" and text[-1:] == "]"


def _refuse_host(text: str) -> NoReturn:
    hint = ""
    whole = "(protocol and method belong to whole rules, such as `network:https:get@api.example.com`)"
    if "://" in text:
        suggested = _suggested_host(text.partition("://")[2]) or "only the host belongs here, without scheme and path"
        hint = f"{suggested} {whole}"
    elif re.fullmatch(r"[0-9.]+/[0-9]+|[0-9a-fA-F:]+/[0-9]+", text):
        hint = "address ranges go under `private`"
    elif "/" in text:
        hint = _suggested_host(text.strip("/")) or "only the host belongs here, without a path"
    elif "@" in text:
        hint = f"{_suggested_host(text.rpartition('@')[2]) or 'only the host belongs here'} {whole}"
    elif text.count(":") > 1:
        hint = f"write an IPv6 address in brackets: `[{text}]`"
    raise Malformed(text, "a host name such as `api.example.com`, an IP address, `*.example.com` or `*`", hint)


def _suggested_host(rest: str) -> str:
    """A hint with the host and port of a URL without its scheme, if they are what a rule can have."""
    try:
        # Under no known scheme: of that, the parser would drop the usual port, and a rule without a port means any.
        parsed = can_ada.parse(f"tcp://{rest}")
        host = host_text(host_key(parsed.hostname))
    except (ValueError, TypeError):
        return ""
    return f"did you mean `{host}:{parsed.port}`?" if parsed.port not in ("", "0") else f"did you mean `{host}`?"


def _refuse_wildcard(pattern: str) -> NoReturn:
    raise Malformed(pattern, "`*` alone or `*.` before a name", "a wildcard inside a name is not supported")


# Paths ---------------------------------------------------------------------------------------------------------------


def path_key(text: str) -> str:
    """The key of a path in a rule: absolute (or from `~` or `${workdir}`), folded, without `..` and wildcards."""
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
    """Whether a path key starts with `~` or `${workdir}`: nobody knows yet which real path it stands for."""
    return key[:1] in ("~", "$") and key.partition("/")[0] in ("~", "${workdir}")


def directory_key(path: str) -> str:
    """The key of a real directory, for what `${workdir}` and `~` stand for."""
    if path[:1] != "/":
        raise Malformed(path, "the absolute path of a directory")
    return path_key(path)


def resolved_path(path: str) -> str:
    """An absolute path of a use with `.`, `..` and doubled slashes resolved lexically: what is decided and opened."""
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
    """The text that a path key stands for in a rule."""
    return key or "*"


def path_ancestors(key: str) -> tuple[str, ...]:
    """The keys that cover a path: itself, each directory above it, the top."""
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
    """Whether a path is one of some directories or lies in one. For real paths: rules are compared by ancestors."""
    return any(path == tree or path.startswith(f"{tree.rstrip('/')}/") for tree in trees)


def paths_below(key: str) -> str:
    """What every path below a path begins with."""
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
    """A concrete secret reference: segments of visible ASCII, separated by `/`."""
    segments = text.split("/")
    if len(text) > 1024 or any(not _SEGMENT.fullmatch(part) or part in (".", "..") for part in segments):
        raise Malformed(text, "a secret reference such as `WEATHER_API_KEY` or `github/token`")
    return text


def secret_key(text: str) -> str:
    """The key of a secret scope: a reference, `prefix/*` by whole segments, or `*`."""
    if text == "*":
        return TOP
    if text[-2:] == "/*":
        return secret_reference(text[:-2]) + "/"
    if "*" in text:
        raise Malformed(text, "`*` alone or as the last segment", "`prefix/*` covers whole segments")
    return secret_reference(text)


def secret_text(key: str) -> str:
    """The text that a secret key stands for in a rule."""
    return f"{key}*" if key == TOP or key[-1] == "/" else key


def secret_ancestors(key: str) -> tuple[str, ...]:
    """The keys that cover a secret: itself, `prefix/` for each leading run of segments, the top."""
    keys = [key]
    slash = key.rfind("/", 0, -1)
    while slash != -1:
        keys.append(key[: slash + 1])
        slash = key.rfind("/", 0, slash)
    if key:
        keys.append(TOP)
    return tuple(keys)


def secrets_below(key: str) -> str:
    """What every key that a secret key covers begins with; nothing if it covers itself alone."""
    return key if key[-1] == "/" else ""


def name(text: str) -> str:
    """A tool, connector, agent, bundle or session name."""
    if not _NAME.fullmatch(text):
        raise Malformed(text, "a name of 1 to 128 letters, digits, `_`, `.`, `/` or `-`")
    return text


def variable(text: str) -> str:
    """The name of an environment variable."""
    if not _VARIABLE.fullmatch(text):
        raise Malformed(text, "the name of an environment variable such as `PATH`")
    return text


def binary(text: str) -> str:
    """A binary: a bare name, or an absolute path that is exact."""
    if "/" in text or text[:1] == "~" or text[:2] == "${":
        path = path_key(text)
        if path == TOP:
            raise Malformed(text, "the path of a binary")
        return path
    if not _BINARY.fullmatch(text) or text in (".", ".."):
        raise Malformed(text, "a binary name such as `git`, an absolute path, or `*`")
    return text


def name_ancestors(key: str) -> tuple[str, ...]:
    """The keys that cover a name: itself and the top."""
    return (key, TOP) if key else (TOP,)


def nothing_below(key: str) -> str:
    """A name covers itself alone."""
    return ""


def name_text(key: str) -> str:
    """The text that a name key stands for in a rule."""
    return key or "*"
