"""`licet.lock` as values: what was reviewed, so that anything else is refused.

It has the digest of each manifest, the digest and source hashes of each tool, the version and hash of each installed
distribution that tools come from, and for each MCP server its command, what the command resolved to, the hash of each
file in its `code`, and every definition that the server offers. It has no fact of one machine: paths below the working
directory and the home directory are written `${workdir}` and `~`.

Clients are shown the locked definitions, never the live ones. A description or title that a server changes by itself is
*volatile*: it is not compared. Names, schemas and annotations are always compared.
"""

import hashlib
import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from licet.core.algebra.scope import UNSEEN, visible
from licet.core.late_pattern import late_pattern
from licet.core.limits import DEEPEST_LOCK, LONGEST_SHOWN_NAME, MOST_HIDDEN
from licet.core.values import data_json, is_same_number

FORMAT: Final = 1
KINDS = ("tools", "resources", "templates", "prompts")  # the lists of definitions of a server
_OF_A_VERSION = ("instructions", *KINDS)
_JUDGED = ("inputSchema", "annotations")  # of a tool: what the policy is about
_KEY = {"tools": "name", "resources": "uri", "templates": "uriTemplate", "prompts": "name"}
_TEXTS = ("description", "title")  # the only fields that may be volatile
_NUMBERS = frozenset({int, float})  # not bool
_VALUES = frozenset({"annotations", "const", "default", "enum", "examples"})  # nothing below these is a text about it

Digest = Annotated[str, Meta(pattern=r"^sha256:[0-9a-f]{64}$")]
Definition = dict[str, Any]
_FILE_NAME = late_pattern(r"(?!\.{1,2}\Z)[^/\\\0]+")
_PLAIN_KEY = late_pattern(r"[$A-Za-z0-9_-]{1,40}")
_MOST_KEYS, _MOST_PATHS = 6, 5  # of a path, and paths, in one message
Path = tuple[str, ...]  # of keys, into a definition


class BadLock(ValueError):
    """A lock that cannot be used. The message says what was found."""


NamedPlaces = Mapping[str, str | tuple[str, ...]]  # `${workdir}` … -> its directory here, in one or more spellings


class Resolved(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """What the command of a server is: a package, a program of an installed distribution, or a file."""

    kind: Literal["npm", "pypi", "distribution", "file", "docker"]
    name: str = ""
    version: str = ""
    program: str = ""
    integrity: Mapping[str, Mapping[str, str]] = {}  # platform -> package -> hash
    digest: str = ""  # of a file


class OtherVersion(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """What a server offers in another version of the protocol: what differs there. Each list is complete."""

    instructions: str | UnsetType = UNSET
    tools: tuple[Definition, ...] | UnsetType = UNSET
    resources: tuple[Definition, ...] | UnsetType = UNSET
    templates: tuple[Definition, ...] | UnsetType = UNSET
    prompts: tuple[Definition, ...] | UnsetType = UNSET


class LockedServer(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True, dict=True):
    """What one server was when it was locked."""

    command: tuple[str, ...] = ()
    code: Mapping[str, Mapping[str, Digest]] = {}  # directory as `servers.NAME.code` has it -> file in it -> hash
    url: str = ""
    resolved: Resolved | None = None
    version: str = ""  # of the protocol, as `2025-11-25`
    claimed_version: str = ""  # of a server that names a connector and is no package: what it says of itself
    announced: tuple[str, ...] = ()  # the client capabilities that the server was shown
    instructions: str = ""  # what it tells models; clients are shown this text, whatever it says later
    tools: tuple[Definition, ...] = ()
    resources: tuple[Definition, ...] = ()
    templates: tuple[Definition, ...] = ()
    prompts: tuple[Definition, ...] = ()
    volatile: Mapping[str, tuple[str, ...]] = {}  # `tools/NAME` -> paths of texts that differ from start to start
    hidden: tuple[str, ...] = ()  # as `tools/NAME` or `instructions`, whose hidden characters were accepted
    refused: Mapping[str, str] = {}  # `tools/NAME` or `prompts/NAME` that cannot be used, with the reason
    other_versions: Mapping[str, OtherVersion] = {}  # of the protocol, in which it was asked too

    def listed(self, kind: str) -> Mapping[str, Definition]:
        """The definitions of one kind by name or URI."""
        return self._listed[kind]

    @cached_property
    def _listed(self) -> Mapping[str, Mapping[str, Definition]]:
        return {kind: {str(one[key]): one for one in getattr(self, kind)} for kind, key in _KEY.items()}

    def in_all_versions(self, kind: str) -> Mapping[str, Definition]:
        """The definitions of one kind by name or URI, also those that only another version of the protocol has."""
        found = dict(self.listed(kind))
        for version in self.other_versions:
            found |= {name: one for name, one in self.in_version(version).listed(kind).items() if name not in found}
        return found

    def in_version(self, version: str) -> "LockedServer":
        """What it was in another version of the protocol that the lock has.

        A tool that takes other arguments there, or has other hints, is refused there: the policy is about the tool of
        the main version.
        """
        if version not in self._in_versions:
            return self
        return self._in_versions[version]

    @cached_property
    def _in_versions(self) -> Mapping[str, "LockedServer"]:
        found = {}
        for version, other in self.other_versions.items():
            lists = {field: given for field in _OF_A_VERSION if (given := getattr(other, field)) is not UNSET}
            there = msgspec.structs.replace(self, version=version, other_versions={}, **lists)
            why = f"it takes other arguments in protocol {version} than in {self.version}"
            both = self.listed("tools").keys() & there.listed("tools").keys()
            unlike = (name for name in both if _is_unlike(self.listed("tools")[name], there.listed("tools")[name]))
            refused = {f"tools/{name}": why for name in sorted(unlike)}
            found[version] = msgspec.structs.replace(there, refused={**self.refused, **refused})
        return found


class LockedTool(Struct, frozen=True, forbid_unknown_fields=True):
    """One tool of the workspace: the digest of its declaration, and the hashes of its source files."""

    digest: Digest
    sources: Mapping[str, Digest] = {}  # path from the root of the workspace -> hash


class LockedDistribution(Struct, frozen=True, forbid_unknown_fields=True):
    """One installed distribution that tools come from."""

    version: str
    files: Mapping[str, Digest]  # platform -> hash over its installed files

    def accepts(self, now: "LockedDistribution") -> bool:
        """Whether a distribution, as it is installed on one platform, is the one that was locked.

        Equal files are accepted on a platform that the lock does not have: most wheels are for every platform.
        """
        known = set(self.files.values())
        same = all(self.files.get(one, digest) == digest and digest in known for one, digest in now.files.items())
        return self.version == now.version and same


class Lock(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """The content of `licet.lock`."""

    format: Literal[1]
    manifests: Mapping[str, Digest] = {}  # name of a file next to the lock -> digest
    versions: Mapping[str, str] = {}  # the same name -> the `version` that the manifest states, if it does
    tools: Mapping[str, LockedTool] = {}
    distributions: Mapping[str, LockedDistribution] = {}  # that tools come from
    servers: Mapping[str, LockedServer] = {}


def read_lock(data: bytes) -> Lock:
    """Read a lock; `BadLock` if it is no JSON, has a key twice, or does not fit."""
    try:
        plain = _decoded(data)
        msgspec.json.encode(plain)  # a lone surrogate can be read, and never written
    except (ValueError, RecursionError):
        raise BadLock("a lock that is no JSON, or has a key twice") from None
    if not isinstance(plain, dict) or type(plain.get("format")) is not int or plain["format"] != FORMAT:
        raise BadLock(f"a lock that has not format {FORMAT}")
    if _is_deep(plain):
        raise BadLock(f"a lock that is nested more than {DEEPEST_LOCK} deep")
    try:
        lock = msgspec.convert(plain, Lock)
    except msgspec.ValidationError as wrong:
        raise BadLock(f"a lock that does not fit: {wrong}") from None
    for name in lock.manifests:  # a policy was accepted for its own directory, and a lock is about no other
        if not _FILE_NAME.fullmatch(name):
            raise BadLock(f"a lock that does not fit: the manifest `{shortened(name)}`, which is no file next to it")
    for name, server in lock.servers.items():
        if wrong_part := _wrong_part(server) or "".join(map(_wrong_part, server.other_versions.values())):
            raise BadLock(f"a lock that does not fit: {wrong_part} of server `{name}`")
    return lock


def with_other_platforms(now: Lock, locked: Lock) -> Lock:
    """What a lock should say now, with its hashes for other platforms. One without versions gets them with a change."""
    kept = {
        name: was
        if was is not None and was.accepts(one)
        else LockedDistribution(one.version, {**was.files, **one.files})
        if was is not None and was.version == one.version
        else one
        for name, one in now.distributions.items()
        for was in (locked.distributions.get(name),)
    }
    versions = now.versions if locked.versions or now.manifests != locked.manifests else {}
    return msgspec.structs.replace(now, distributions=kept, versions=versions)


def write_lock(lock: Lock) -> bytes:
    """The bytes of a lock: canonical JSON and a newline. Definitions may hold floats, which RFC 8785 writes."""
    return data_json(msgspec.to_builtins(lock)) + b"\n"


def lock_digest(lock: Lock | None) -> str:
    """The digest of what a lock says, however it is written; empty if there is none."""
    return "" if lock is None else f"sha256:{hashlib.sha256(write_lock(lock)).hexdigest()}"


def _decoded(data: bytes) -> Any:
    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) != len(pairs):
            raise ValueError("a key twice")
        return found

    def no_number(text: str) -> Any:
        raise ValueError(f"{text} is no JSON")

    def finite(text: str) -> float:
        number = float(text)
        return number if math.isfinite(number) else no_number(text[:40])  # `1e400` is infinite as a float

    return json.loads(data.decode(), object_pairs_hook=unique, parse_constant=no_number, parse_float=finite)


def _is_deep(value: Any) -> bool:
    level = [value]
    for _ in range(DEEPEST_LOCK):
        level = [item for one in level if isinstance(one, dict | list) for item in _items(one)]
    return bool(level)


def _items(one: dict[str, Any] | list[Any]) -> Iterator[Any]:
    return iter(one.values() if isinstance(one, dict) else one)


def _wrong_part(server: LockedServer | OtherVersion) -> str:
    """What in the definitions of a server cannot be compared; empty if all can."""
    for kind in KINDS:
        definitions = getattr(server, kind)
        names = [one.get(_KEY[kind]) for one in definitions] if definitions is not UNSET else []
        if not all(isinstance(name, str) and name for name in names):
            return f"`{kind}` with an entry without `{_KEY[kind]}`"
        if len(set(names)) < len(names):
            return f"`{kind}` with an entry twice"
    for texts in server.volatile.values() if isinstance(server, LockedServer) else ():
        for text in texts:
            if not _may_be_volatile(tuple(text.split("/"))):
                return f"`{text}` under `volatile`, which is no description or title,"
    return ""


def _is_unlike(tool: Definition, there: Definition) -> bool:
    return any(any(differences(tool.get(key), there.get(key))) for key in _JUDGED)


def other_version(locked: LockedServer, there: LockedServer) -> OtherVersion:
    """What a server offers in another version of the protocol, as far as it differs. Texts that change do not count."""
    fields: dict[str, Any] = {kind: getattr(there, kind) for kind in KINDS if changed(locked, there, kind)}
    if locked.instructions != there.instructions:
        fields["instructions"] = there.instructions
    return OtherVersion(**fields)


# Texts that change by themselves --------------------------------------------------------------------------------------


def volatile_texts(one: Definition, two: Definition) -> Iterator[Path]:
    """The paths of descriptions and titles that differ between two definitions of the same thing."""
    yield from (path for path, old, new in differences(one, two) if _is_text(path, old, new))


def fixed_differences(one: Definition, two: Definition) -> Iterator[Path]:
    """The paths of everything else that differs."""
    yield from (path for path, old, new in differences(one, two) if not _is_text(path, old, new))


def _is_text(path: Path, old: Any, new: Any) -> bool:
    return _may_be_volatile(path) and isinstance(old, str) and isinstance(new, str)


def _may_be_volatile(path: Path) -> bool:
    """Whether a path leads to a description or title, and not to a property of that name, a value or an annotation."""
    if not path or path[-1] not in _TEXTS or path[-2:-1] == ("properties",):
        return False
    return _VALUES.isdisjoint(path) and not any("/" in key for key in path)  # `volatile` separates keys by slashes


def differences(one: Any, two: Any, path: Path = ()) -> Iterator[tuple[Path, Any, Any]]:
    """Every place where two values differ, with both values; a missing one is None.

    What a lock writes alike is no difference: a server sends `1.0`, and its lock has `1`. `true` is not `1`.
    """
    if isinstance(one, dict) and isinstance(two, dict):
        for key in sorted(one.keys() | two.keys()):
            if key not in one or key not in two:
                yield (*path, key), one.get(key), two.get(key)
            else:
                yield from differences(one[key], two[key], (*path, key))
    elif isinstance(one, list) and isinstance(two, list) and len(one) == len(two):
        for index, (old, new) in enumerate(zip(one, two, strict=True)):
            yield from differences(old, new, (*path, str(index)))
    elif not _is_same(one, two):
        yield path, one, two


def _is_same(one: Any, two: Any) -> bool:
    """Whether two values that are not both objects, or both lists of one length, are written alike in a lock."""
    if type(one) in _NUMBERS and type(two) in _NUMBERS:
        return is_same_number(one, two)
    return type(one) is type(two) and bool(one == two)


def without(definition: Definition, volatile: tuple[str, ...]) -> Definition:
    """A definition without `_meta` and its volatile texts, for comparisons."""
    copied: Definition = msgspec.json.decode(msgspec.json.encode(definition))
    copied.pop("_meta", None)  # no client is shown it, and no lock has it
    for text in volatile:
        *way, last = text.split("/")
        found: Any = copied
        for key in way:
            found = _below(found, key)
        if isinstance(found, dict) and isinstance(found.get(last), str):
            del found[last]
    return copied


def _below(value: Any, key: str) -> Any:
    if isinstance(value, list):
        return value[int(key)] if key.isdecimal() and int(key) < len(value) else None
    return value.get(key) if isinstance(value, dict) else None


def path_text(path: Path) -> str:
    """A path as it is written under `volatile`."""
    return "/".join(path)


def path_words(paths: Iterable[Path]) -> str:
    """Paths for a message. A key that is no short plain word is left out: it is the server's, and may be a sentence."""
    texts = dict.fromkeys("/".join(_key_word(key) for key in path[:_MOST_KEYS]) for path in paths)
    listed = ", ".join(list(texts)[:_MOST_PATHS])
    return f"{listed} and {len(texts) - _MOST_PATHS} more" if len(texts) > _MOST_PATHS else listed


def _key_word(key: str) -> str:
    return key if _PLAIN_KEY.fullmatch(key) else "…"


def shortened(name: str) -> str:
    """The name of something that a server offers, for a message."""
    return visible(name[:LONGEST_SHOWN_NAME]) + "…" * (len(name) > LONGEST_SHOWN_NAME)


# What changed ---------------------------------------------------------------------------------------------------------


def changed(locked: LockedServer, live: LockedServer, kind: str = "tools") -> Mapping[str, str]:
    """By name, what is different now about the definitions of one kind: added, removed, or the fields that changed."""
    old, new, found = locked.listed(kind), live.listed(kind), {}
    for name in sorted(old.keys() | new.keys()):
        if name not in new:
            found[name] = "is not there any more"
        elif name not in old:
            found[name] = "is new"
        else:
            texts = locked.volatile.get(f"{kind}/{name}", ())
            places = differences(without(old[name], texts), without(new[name], texts))
            if fields := path_words(path for path, _, _ in places):
                found[name] = f"has another {fields}"
    return found


# Hidden characters ----------------------------------------------------------------------------------------------------

# Tag characters, bidirectional controls, zero-width and other characters without a glyph: a person who reviews a text
# does not see them, and a model reads them. Line breaks and tabs are ordinary.
_HIDDEN_CLASS = (
    "[\u0000-\u0008\u000b\u000c\u000e-\u001f\u007f-\u009f\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff"
    f"\ufff0-\ufffb{UNSEEN}\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff]"
)
_HIDDEN_RUN = late_pattern(f"{_HIDDEN_CLASS}+")
_SEEN_ASCII = bytes((*b"\t\n\r", *range(0x20, 0x7F)))
_EMOJI = "\u00a9\u00ae\u203c-\u3299\U0001f000-\U0001faff"
# What joins and colours emoji is ordinary next to one, and hidden anywhere else.
_OUT_OF_PLACE = late_pattern(
    f"{_HIDDEN_CLASS}(?<![{_EMOJI}]\ufe0f)(?!(?<=[0-9#*]\ufe0f)\u20e3)(?!(?<=[{_EMOJI}\ufe0f]\u200d)[{_EMOJI}])"
)
_WINDOW = 1 << 15  # characters


def hidden_in(value: Any) -> tuple[str, ...]:
    """The hidden characters in all texts of a value, keys included, each once, as `U+202E`; 50 at most."""
    found: set[str] = set()
    for text in _texts(value):
        if text.isascii():  # for 1 MB of ASCII this takes 1 ms, and the pattern 100
            found.update(map(chr, set(text.encode().translate(None, _SEEN_ASCII))))
        else:
            _add_hidden(text, found)
        if len(found) >= MOST_HIDDEN:
            break
    return tuple(f"U+{ord(char):04X}" for char in sorted(found)[:MOST_HIDDEN])


def _add_hidden(text: str, found: set[str]) -> None:
    """Add what is hidden in a text, which a server chooses: a character that is repeated costs one step.

    The pattern holds Python's lock, so it looks at one window after the other.
    """
    start = 0
    while start < len(text) and len(found) < MOST_HIDDEN:
        end = start + _WINDOW
        hidden = _OUT_OF_PLACE.search(text, start, end + 1)  # what is ordinary depends on the character after it
        if hidden is None or hidden.start() >= end:
            start = end
        else:
            found.add(hidden[0])
            text, start = text[hidden.start() :].replace(hidden[0], ""), 0


def shown(value: Any) -> Any:
    """A value with the hidden characters in its texts written visibly, as `\\u202e`."""
    if isinstance(value, str):
        return _HIDDEN_RUN.sub(lambda run: _escaped(run[0]), value)
    if isinstance(value, dict):
        return {shown(key): shown(item) for key, item in value.items()}
    return [shown(item) for item in value] if isinstance(value, list) else value


def _escaped(run: str) -> str:
    return run.encode("unicode_escape").decode().replace("\\x", "\\u00")


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for key, item in value.items():
            yield key
            yield from _texts(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _texts(item)


# Facts of one machine -------------------------------------------------------------------------------------------------


def portable(value: Any, places: NamedPlaces) -> Any:
    """A value with the paths of this machine written by name, the longest first: one may lie in another."""
    spelled = [(place, name) for name, given in places.items() for place in _spellings(given)]
    named = sorted((one for one in spelled if one[0] not in ("", "/")), key=lambda one: -len(one[0]))
    return _replaced(
        value, [(re.compile(rf"(?<![\w.-]){re.escape(place)}(?![\w-]|\.\w)"), name) for place, name in named]
    )


def local(value: Any, places: NamedPlaces) -> Any:
    """The reverse of `portable`, for texts that a client is shown. A `~` stays: it may be an ordinary character."""
    first = {name: _spellings(given)[0] for name, given in places.items() if name != "~" and given}
    return _replaced(value, [(re.compile(re.escape(name)), place) for name, place in first.items()])


def _spellings(given: str | tuple[str, ...]) -> tuple[str, ...]:
    return (given,) if isinstance(given, str) else given


def _replaced(value: Any, pairs: list[tuple["re.Pattern[str]", str]]) -> Any:
    if isinstance(value, str):
        for pattern, text in pairs:
            value = pattern.sub(lambda _, text=text: text, value)  # type: ignore[misc]
        return value
    if isinstance(value, dict):
        return {_replaced(key, pairs): _replaced(item, pairs) for key, item in value.items()}
    return [_replaced(item, pairs) for item in value] if isinstance(value, list) else value
