"""Whether a file looks like policy, valid or not: what its top level holds. If that cannot be told, it counts as one.

This is not the loader: a file that is broken today may be repaired tomorrow, and a tool must not have changed it.

Where policy lies: the paths that no grant may ever write, and the directory that a policy file speaks for.

Nothing is parsed beyond what it takes to tell policy from other files; see `policy_look`.
"""

import json
import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from licet.core.algebra.scope import Malformed, path_key
from licet.policy_files.syntax import MOST_BYTES, yaml_events
from licet.regular_files import FileTooLarge, NotRegular, read_regular

KEYS = frozenset({"capabilities", "bundles", "servers", "toolset", "safety"})

# How much is read and parsed before every further file counts as policy: whoever fills a directory with large files
# must not make every load slow.
MOST_READ = 64 << 20
MOST_PARSED = 1 << 20
_DEEPEST = 32  # parsers slow down with depth; the loader takes no more either

_WORDS = b"|".join(sorted(key.encode() for key in KEYS))
# A file without these has no such key. Escapes can spell one: "\u0073afety", or a line that is continued.
_MENTIONED = re.compile(rb"%s|\\[xuU\r\n]" % _WORDS)
_AT_LINE_START = re.compile(rb"^[\"']?(?:%s)[\"']?[ \t]*:" % _WORDS, re.MULTILINE)
_MERGE_KEY = "<<"  # brings in keys from elsewhere in the file


class Look:
    """Looks at files, and keeps count of the bytes that this has taken."""

    def __init__(self) -> None:
        self._read = self._parsed = 0

    def is_policy(self, path: str) -> bool:
        """Whether a path leads to a regular file of at most 1 MiB whose top level has a key of policy."""
        if self._read > MOST_READ:
            return os.path.isfile(path)
        try:
            data = read_regular(path, MOST_BYTES)
        except (NotRegular, FileTooLarge, FileNotFoundError):
            return False
        except OSError:
            return True
        self._read += len(data)
        return self._has_key(data, path.lower().endswith(".json"))

    def _has_key(self, data: bytes, is_json: bool) -> bool:
        data = data.replace(b"\0", b"")  # UTF-16 and UTF-32 then read like ASCII
        if not _MENTIONED.search(data):
            return False
        if not is_json and _AT_LINE_START.search(data):
            return True
        self._parsed += len(data)
        if self._parsed > MOST_PARSED:
            return True
        try:
            text = data.decode().lstrip("\ufeff")
            keys = _json_keys(text) if is_json else _yaml_keys(text)
        except (ValueError, RecursionError):  # malformed: any mention counts
            return True
        return not keys.isdisjoint(KEYS | {_MERGE_KEY})


def _json_keys(text: str) -> set[str]:
    found = json.loads(text)
    return set(found) if isinstance(found, dict) else set()


def _yaml_keys(text: str) -> set[str]:
    """The keys of the root mapping of every document. An alias as a key can stand for any text, like a merge key."""
    from yaml import events

    keys: set[str] = set()
    depth = 0
    in_mapping = at_key = False
    for event in yaml_events(text, ""):
        if isinstance(event, events.CollectionStartEvent):
            depth += 1
            if depth > _DEEPEST:
                raise ValueError("nested too deeply")
            if depth == 1:
                in_mapping = at_key = isinstance(event, events.MappingStartEvent)
            continue
        if isinstance(event, events.CollectionEndEvent):
            depth -= 1
        elif not isinstance(event, events.NodeEvent):
            continue
        elif depth == 1 and at_key:
            keys.add(event.value if isinstance(event, events.ScalarEvent) else _MERGE_KEY)
        if depth == 1:  # a child of the root has ended: keys and values take turns
            at_key = in_mapping and not at_key
    return keys


WORKSPACE_FILE = "licet.yaml"
LOCK_FILE = "licet.lock"
POLICY_DIRECTORY = ".licet"
SUFFIXES = (".yaml", ".yml", ".json")

MOST_LOOKED_AT = 1_000  # files in one directory that may be policy; if there are more, all of them count as policy
MOST_LISTED = 10_000  # files in one directory that are closed one by one; if there are more, the directory is closed


def policy_root(path: Path) -> Path:
    """The directory that a policy file speaks for: its own, or the parent if its own is called `.licet`.

    It is the root for `from:` and the base of the workspace id.
    """
    return workspace_root(path.parent)


def workspace_root(directory: Path) -> Path:
    """A directory itself, or its parent if it is called `.licet`."""
    if directory.name in ("", ".."):  # `.`, or a path that ends in `..`: only the real path has a name
        inside = os.path.basename(os.path.realpath(directory)) == POLICY_DIRECTORY
        return directory / ".." if inside else directory
    return directory.parent if directory.name == POLICY_DIRECTORY else directory


def policy_paths(files: Iterable[str | Path], trusted: Iterable[str | Path] = ()) -> tuple[str, ...]:
    """Every path that no grant may write because policy lies there or would be found there.

    `files` are the policy files in use, `trusted` those that this user has accepted. Next to each file in use that is
    `licet.yaml`, `licet.lock` and `.licet`, whether they exist or not, and every file that looks like policy. A
    directory called `.licet` that holds policy is closed as a whole. Paths are absolute; where links are involved, the
    link and what it leads to are both listed. A trusted file counts, whether it exists or not, as long as the directory
    that it speaks for does. Names that no rule can express are left out: no policy is loaded from
    such a file.
    """
    found: dict[str, None] = {}
    directories: dict[str, None] = {}
    for file in files:
        spellings = _spellings(file)
        found.update(dict.fromkeys(spellings))
        directories.update(dict.fromkeys(os.path.dirname(path) for path in spellings))
    look = Look()
    for directory in directories:
        found.update(dict.fromkeys(_of_directory(directory, look)))
    for file in trusted:
        # A project that is gone closes nothing: a name that cannot be made would keep programs from making others.
        if not os.path.isdir(policy_root(Path(os.path.abspath(file)))):
            continue
        for path in _spellings(file):
            found[path] = None
            if _is_policy_directory(directory := os.path.dirname(path)):
                found[directory] = None
    return tuple(path for path in found if _can_be_named(path))


def _spellings(path: str | Path) -> tuple[str, ...]:
    """The path as it was named, with the links of its directory resolved, and with all links resolved."""
    named = os.path.abspath(path)
    directory, name = os.path.split(named)
    return tuple(dict.fromkeys((named, os.path.join(os.path.realpath(directory), name), os.path.realpath(named))))


def _of_directory(directory: str, look: Look) -> Iterator[str]:
    if not _is_policy_directory(directory):
        for name in (WORKSPACE_FILE, LOCK_FILE, POLICY_DIRECTORY):
            yield from _spellings(os.path.join(directory, name))
        yield from _looking_like_policy(directory, look)
        return
    yield directory
    # A link in there may lead to a file elsewhere. And policy at the top level of the project keeps working: what
    # exists there is closed too, while new names stay free for programs.
    yield from _looking_like_policy(directory, look)
    parent = os.path.dirname(directory)
    for name in (WORKSPACE_FILE, LOCK_FILE):
        if os.path.lexists(path := os.path.join(parent, name)):
            yield from _spellings(path)
    yield from _looking_like_policy(parent, look)


def _is_policy_directory(directory: str) -> bool:
    return os.path.basename(directory) == POLICY_DIRECTORY


def _looking_like_policy(directory: str, look: Look) -> Iterator[str]:
    try:
        with os.scandir(directory) as entries:
            candidates = sorted(entry.path for entry in entries if entry.name.lower().endswith(SUFFIXES))
    except FileNotFoundError:
        return
    except OSError:  # nobody can tell what is in it
        yield directory
        return
    if len(candidates) > MOST_LISTED:
        yield directory
        return
    for path in candidates:
        if len(candidates) > MOST_LOOKED_AT or look.is_policy(path):
            yield from _spellings(path)


def _can_be_named(path: str) -> bool:
    try:
        return path_key(path) == path
    except Malformed:
        return False
