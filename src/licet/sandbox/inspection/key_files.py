"""Which value has a field of a file that people log in with?

The format follows from the name of the file, or from how it begins. Nothing is opened here, and no message has a value
in it.
"""

import json
import re
import tomllib
from collections.abc import Callable, Iterable, Iterator
from pathlib import PurePath
from urllib.parse import unquote, urlsplit

from licet.sandbox.inspection.key_shapes import CannotPlace
from licet.sandbox.limits import DEEPEST_KEY_FILE

_SECTION = re.compile(r"\[([^\]]+)\]")
_EXPORT = re.compile(r"export\s+(?=[^\s#;])")
_NETRC_TOKEN = re.compile(r'"((?:[^"\\]++|\\.)*+)"|(\S+)')
_NETRC_PARTS = {"login": "login", "user": "login", "password": "password", "account": "account"}

Fields = Iterator[tuple[str, str]]


class _Unparsable(ValueError):
    """A text does not have the format that the name of its file states."""


def value_in(path: str, raw: bytes, field: str) -> str:
    """The value of a field: a dotted path in JSON, TOML and YAML, a name in `key=value`, `HOST` in `.netrc`."""
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise CannotPlace(f"{path} is not UTF-8") from None
    kind = format_of(path, text)
    try:
        if kind in _TREES:
            values = list(_leaves(_TREES[kind](text), field.split(".")))
        else:
            values = [value for name, value in _LINES[kind](text) if name == field]
    except (_Unparsable, RecursionError, ValueError):
        raise CannotPlace(f"{path} is not {kind}") from None
    if not values:
        raise CannotPlace(f"{path}, read as {kind}, has no `{field}`")
    if any(value != values[0] for value in values):
        raise CannotPlace(f"{path} has `{field}` {len(values)} times, with different values")
    value = values[0]
    if not isinstance(value, str):
        raise CannotPlace(f"{path} has {_KINDS.get(type(value), 'no text')} under `{field}`, expected text")
    if "${" in value:
        raise CannotPlace(f"{path} has a variable under `{field}`, and not the value itself")
    if field.endswith("_password") and kind == "npmrc":
        raise CannotPlace(f"{path} has `{field}` in base64, which npm decodes: use `_authToken`, or `_auth`")
    return value


_KINDS = {dict: "a mapping", list: "a list", bool: "true or false", int: "a number", float: "a number"}


def format_of(path: str, text: str) -> str:
    """The format of a file."""
    name = PurePath(path).name.lower()
    named = {".npmrc": "npmrc", "npmrc": "npmrc", ".netrc": "netrc", "_netrc": "netrc"}
    named |= {".git-credentials": "git-credentials", ".env": "env"}
    if name in named:
        return named[name]
    if name.startswith(".env.") or name.endswith(".env"):
        return "env"
    ending = name.rpartition(".")[2]
    endings = {"json": "JSON", "toml": "TOML", "yaml": "YAML", "yml": "YAML"}
    if ending in endings:
        return endings[ending]
    return "JSON" if text.lstrip().startswith("{") else "ini"


def _leaves(node: object, path: list[str]) -> Iterator[object]:
    """What a dotted path leads to: names may have dots themselves, as `github.com` has."""
    if not path:
        yield node
    elif isinstance(node, dict):
        for parts in range(1, len(path) + 1):
            name = ".".join(path[:parts])
            if name in node:
                yield from _leaves(node[name], path[parts:])
    elif isinstance(node, list) and path[0].isascii() and path[0].isdecimal() and int(path[0]) < len(node):
        yield from _leaves(node[int(path[0])], path[1:])


def _yaml(text: str) -> object:
    import yaml

    # Every scalar is text: a key of digits is no number.
    loader = getattr(yaml, "CBaseLoader", yaml.BaseLoader)
    try:
        _check_depth(yaml.parse(text, Loader=loader))
        return yaml.load(text, Loader=loader)  # noqa: S506 - the base loader makes no objects
    except yaml.YAMLError:
        raise _Unparsable from None


def _check_depth(events: Iterable[object]) -> None:
    """Raise `_Unparsable` for what is nested so deeply that the parser would call itself until the process ends."""
    from yaml import CollectionEndEvent, CollectionStartEvent

    depth = 0
    for event in events:
        depth += isinstance(event, CollectionStartEvent) - isinstance(event, CollectionEndEvent)
        if depth > DEEPEST_KEY_FILE:
            raise _Unparsable


def _settings(text: str) -> Fields:
    """`key = value` in lines, with and without sections."""
    section = ""
    for line in map(str.strip, text.splitlines()):
        if header := _SECTION.fullmatch(line):
            section = header[1].strip()
            continue
        stated, equals, value = line.partition("=")
        name = _EXPORT.sub("", stated.rstrip(), count=1) if stated.startswith("export") else stated.rstrip()
        if equals and name and name[0] not in "#;":
            value = _unquoted(value.lstrip())
            yield name, value
            if section:
                yield f"{section}.{name}", value


def _unquoted(value: str) -> str:
    if value[:1] in ("'", '"'):
        end = value.find(value[0], 1)
        if end < 0:
            raise _Unparsable
        return value[1:end]
    return re.split(r"\s[#;]", value, maxsplit=1)[0].rstrip()


def _netrc(text: str) -> Fields:
    """`HOST` is its password, and `HOST.login` and `HOST.account` the rest."""
    lines = [line for line in text.splitlines() if not line.lstrip().startswith("#")]
    host = ""
    in_macro = False
    for line in lines:
        if in_macro:
            in_macro = bool(line.strip())
            continue
        tokens = [_netrc_token(found) for found in _NETRC_TOKEN.finditer(line)]
        words = iter(tokens)
        for word in words:
            if word == "macdef":
                in_macro = True
                break
            if word == "machine":
                host = next(words, "")
            elif word == "default":
                host = "default"
            elif word in _NETRC_PARTS:
                part, value = _NETRC_PARTS[word], next(words, "")
                yield f"{host}.{part}", value
                if part == "password":
                    yield host, value
            else:
                raise _Unparsable


def _netrc_token(found: re.Match[str]) -> str:
    return re.sub(r"\\(.)", r"\1", found[1]) if found[1] is not None else found[2]


def _git_credentials(text: str) -> Fields:
    """Lines with a URL: `HOST` is the password in it, and `HOST.username` the user."""
    for line in text.splitlines():
        url = urlsplit(line.strip())
        host = url.netloc.rpartition("@")[2]
        if url.password is not None:
            yield host, unquote(url.password)
            yield f"{host}.password", unquote(url.password)
        if url.username is not None:
            yield f"{host}.username", unquote(url.username)


def _toml(text: str) -> object:
    """A TOML file; `ValueError` for a key of many parts, which takes long to read."""
    if any(line.partition("=")[0].count(".") > DEEPEST_KEY_FILE for line in text.splitlines()):
        raise ValueError("a key has too many parts")
    return tomllib.loads(text)


_TREES: dict[str, Callable[[str], object]] = {"JSON": json.loads, "TOML": _toml, "YAML": _yaml}
_LINES: dict[str, Callable[[str], Fields]] = {
    "npmrc": _settings,
    "ini": _settings,
    "env": _settings,
    "netrc": _netrc,
    "git-credentials": _git_credentials,
}
