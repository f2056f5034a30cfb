"""Finds the paths of policy that no tool may write, and the directory that a policy file is for.

A file counts as policy if its top level has a key of policy, even if it is invalid: it may be broken now and repaired
later, and no tool must have changed it in between. In doubt a file is policy: if it cannot be read, or if it mentions
such a key and cannot be parsed.

The directories of this user: the home directory, and those for the state, the data and the cache of licet.
"""

import json
import os
import re
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import suppress
from itertools import islice
from pathlib import Path

from licet.core.algebra.scope import Malformed, inside, path_key
from licet.errors import LicetError
from licet.own_files import FileTooLarge, NotRegular, read_regular
from licet.policy_files.limits import (
    DEEPEST_PARSED,
    MOST_BYTES,
    MOST_LISTED,
    MOST_LOOKED_AT,
    MOST_PARSED,
    MOST_READ,
    MOST_SEARCHED,
)
from licet.policy_files.nodes import yaml_events

OF_AGENTS = frozenset({"capabilities", "bundles", "toolset"})  # others use the rest, too: OpenAPI has `servers`
KEYS = OF_AGENTS | {"servers", "safety"}


_MERGE_KEY = "<<"  # copies keys from elsewhere in the file


class PolicyDetector:
    """Decides whether files are policy, and counts the bytes that it has read and parsed."""

    def __init__(self, keys: frozenset[str] = KEYS) -> None:
        self._read = self._parsed = 0
        self._keys = keys
        words = b"|".join(sorted(key.encode() for key in keys))
        # A file without a match has no such key. The escapes are for keys such as "\u0073afety", and continued lines.
        self._mentioned = re.compile(rb"%s|\\[xuU\r\n]" % words)
        self._at_line_start = re.compile(rb"^[\"']?(?:%s)[\"']?[ \t]*:" % words, re.MULTILINE)

    @property
    def is_spent(self) -> bool:
        """Whether it has read so much that from now on every file counts as policy."""
        return self._read > MOST_READ

    def is_policy(self, path: str) -> bool:
        """Whether a path is a regular file of at most 1 MiB with a key of policy at its top level."""
        if self.is_spent:
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
        if not self._mentioned.search(data):
            return False
        if not is_json and self._at_line_start.search(data):
            return True
        self._parsed += len(data)
        if self._parsed > MOST_PARSED:
            return True
        try:
            text = data.decode().lstrip("\ufeff")
            keys = _json_keys(text) if is_json else _yaml_keys(text)
        except (ValueError, RecursionError):  # malformed: any mention counts
            return True
        return not keys.isdisjoint(self._keys | {_MERGE_KEY})


def _json_keys(text: str) -> set[str]:
    found = json.loads(text)
    return set(found) if isinstance(found, dict) else set()


def _yaml_keys(text: str) -> set[str]:
    """The keys of the root mapping of every document. An alias as a key may be any text, like a merge key."""
    from yaml import events

    keys: set[str] = set()
    depth = 0
    in_mapping = at_key = False
    for event in yaml_events(text, ""):
        if isinstance(event, events.CollectionStartEvent):
            depth += 1
            if depth > DEEPEST_PARSED:
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
        if depth == 1:  # a child of the root has ended; keys and values alternate
            at_key = in_mapping and not at_key
    return keys


WORKSPACE_FILE = "licet.yaml"
LOCK_FILE = "licet.lock"
POLICY_DIRECTORY = ".licet"
SUFFIXES = (".yaml", ".yml", ".json")
PLACES = (Path(POLICY_DIRECTORY, WORKSPACE_FILE), Path(WORKSPACE_FILE))  # where commands look for one that is not named

_NOT_SEARCHED = frozenset({".git", "node_modules", "site-packages", "__pycache__"})


def policy_root(path: Path) -> Path:
    """The directory that a policy file is for: its own directory, or the parent of that if it is called `.licet`.

    It is the root for `from:` and the base of the workspace id.
    """
    return workspace_root(path.parent)


def workspace_root(directory: Path) -> Path:
    """The directory itself, or its parent if it is called `.licet`."""
    if directory.name in ("", ".."):  # `.` or a path that ends in `..` has no name of its own
        inside = os.path.basename(os.path.realpath(directory)) == POLICY_DIRECTORY
        return directory / ".." if inside else directory
    return directory.parent if directory.name == POLICY_DIRECTORY else directory


def policy_paths(files: Iterable[str | Path], trusted: Iterable[str | Path] = ()) -> tuple[str, ...]:
    """Every path that no tool may write, because it is policy or would be found as policy.

    `files` are the policy files in use, `trusted` those that this user has accepted. The result has absolute paths:
    - next to each file in use: `licet.yaml`, `licet.lock` and `.licet`, even if they do not exist, and every file that
      looks like policy;
    - each directory called `.licet` that contains a file in use or a trusted file, with everything below it;
    - each trusted file, even if it does not exist, as long as the directory that it is for exists;
    - for a symbolic link, both the link and its target.

    Names that no rule can express are left out, since no policy is loaded from such a file.
    """
    found: dict[str, None] = {}
    directories: dict[str, None] = {}
    for file in files:
        variants = _link_variants(file)
        found.update(dict.fromkeys(variants))
        directories.update(dict.fromkeys(os.path.dirname(path) for path in variants))
    detector = PolicyDetector()
    for directory in directories:
        found.update(dict.fromkeys(_protected_in(directory, detector)))
    for file in trusted:
        # Skip deleted projects: something empty would stand for each closed path while a program runs.
        if not os.path.isdir(policy_root(Path(os.path.abspath(file)))):
            continue
        for path in _link_variants(file):
            found[path] = None
            if _is_policy_directory(directory := os.path.dirname(path)):
                found[directory] = None
    return tuple(path for path in found if _can_be_named(path))


def policies_below(trees: Iterable[str]) -> tuple[str, ...]:
    """The policy of agents at and below some directories, or the files themselves; the nearest first.

    A `.licet` counts as the `licet.yaml` in it, whether there is one or not. Links are not followed, and libraries not
    searched. The search ends after 100,000 names, and reads 64 MiB: what is deeper than that is not found.
    """
    detector, found, names = PolicyDetector(OF_AGENTS), dict[str, None](), 0
    left = deque(dict.fromkeys(os.path.realpath(tree) for tree in trees))
    found.update((path, None) for path in left if os.path.isfile(path) and _may_be_policy(path, detector))
    seen = set(left)
    while left and names < MOST_SEARCHED:
        with suppress(OSError), os.scandir(left.popleft()) as entries:  # a file, or not readable
            for entry in islice(entries, MOST_SEARCHED - names):
                names += 1
                if not entry.is_dir(follow_symlinks=False):
                    if _may_be_policy(entry.path, detector):
                        found[entry.path] = None
                elif entry.name == POLICY_DIRECTORY:
                    found[os.path.join(entry.path, WORKSPACE_FILE)] = None
                elif entry.name not in _NOT_SEARCHED and entry.path not in seen:
                    seen.add(entry.path)
                    left.append(entry.path)
    return tuple(found)


def policies_above(paths: Iterable[str]) -> tuple[str, ...]:
    """The policy of agents in the directories that some paths are in, the nearest first."""
    detector, found = PolicyDetector(OF_AGENTS), dict[str, None]()
    for path in paths:
        for above in Path(os.path.realpath(path)).parents:
            for folder in (above, above / POLICY_DIRECTORY):
                with suppress(OSError), os.scandir(folder) as entries:  # none, or not readable
                    names = (entry.path for entry in islice(entries, MOST_LISTED))
                    found.update((name, None) for name in names if _may_be_policy(name, detector))
    return tuple(found)


def names_of_policy(tree: str, workdir: str) -> tuple[str, ...]:
    """The names of policy at or in a tree, there or not: itself, the `.licet` that it is in, or those of a project.

    A tree around the working directory counts as a project. Others are left: commands empty and pack directories for
    output, where names that cannot be removed are in the way.
    """
    named = os.path.abspath(tree)
    places = dict.fromkeys((named, os.path.realpath(named)))
    found: list[str] = []
    for place in places:
        parts = place.split("/")
        if POLICY_DIRECTORY in parts:
            found.append("/".join(parts[: parts.index(POLICY_DIRECTORY) + 1]))
        elif parts[-1] in (WORKSPACE_FILE, LOCK_FILE):
            found.append(place)
        elif inside(os.path.realpath(workdir), (place,)):
            found += (os.path.join(place, name) for name in (WORKSPACE_FILE, LOCK_FILE, POLICY_DIRECTORY))
    return tuple(path for path in found if _can_be_named(path))


def _may_be_policy(path: str, detector: PolicyDetector) -> bool:
    name = os.path.basename(path)
    if name in (WORKSPACE_FILE, LOCK_FILE):
        return True
    return name.lower().endswith(SUFFIXES) and not detector.is_spent and detector.is_policy(path)


def _link_variants(path: str | Path) -> tuple[str, ...]:
    """The path as it was named, with the links of its directory resolved, and with all links resolved."""
    named = os.path.abspath(path)
    directory, name = os.path.split(named)
    return tuple(dict.fromkeys((named, os.path.join(os.path.realpath(directory), name), os.path.realpath(named))))


def _protected_in(directory: str, detector: PolicyDetector) -> Iterator[str]:
    if not _is_policy_directory(directory):
        for name in (WORKSPACE_FILE, LOCK_FILE, POLICY_DIRECTORY):
            yield from _link_variants(os.path.join(directory, name))
        yield from _policy_files_in(directory, detector)
        return
    yield directory
    # A link in `.licet` may lead to a file elsewhere. Policy at the top level of the project works, too: existing files
    # there are closed, but programs may create new ones.
    yield from _policy_files_in(directory, detector)
    parent = os.path.dirname(directory)
    for name in (WORKSPACE_FILE, LOCK_FILE):
        if os.path.lexists(path := os.path.join(parent, name)):
            yield from _link_variants(path)
    yield from _policy_files_in(parent, detector)


def _is_policy_directory(directory: str) -> bool:
    return os.path.basename(directory) == POLICY_DIRECTORY


def _policy_files_in(directory: str, detector: PolicyDetector) -> Iterator[str]:
    try:
        with os.scandir(directory) as entries:
            candidates = sorted(entry.path for entry in entries if entry.name.lower().endswith(SUFFIXES))
    except FileNotFoundError:
        return
    except OSError:  # its content is not known
        yield directory
        return
    if len(candidates) > MOST_LISTED:
        yield directory
        return
    for path in candidates:
        if len(candidates) > MOST_LOOKED_AT or detector.is_policy(path):
            yield from _link_variants(path)


def _can_be_named(path: str) -> bool:
    try:
        return path_key(path) == path
    except Malformed:
        return False


def shown_path(path: str | Path) -> str:
    """A path for messages: relative where it is below the current directory, unless that is `/`.

    A client may start a gateway in `/`: who reads its messages is somewhere else.
    """
    try:
        below = os.path.abspath(path) if os.getcwd() == "/" else os.path.relpath(path)
    except (OSError, ValueError):  # the current directory was removed, or another drive
        return str(path)
    return str(path) if below.startswith("..") else below


_BELOW_HOME = {"XDG_STATE_HOME": ".local/state", "XDG_DATA_HOME": ".local/share", "XDG_CACHE_HOME": ".cache"}


class NoHome(LicetError):
    """This user has no directory to keep state in."""

    def __init__(self) -> None:
        super().__init__("this user has no home directory to keep state in: say where, or set XDG_STATE_HOME")


def home_directory() -> str:
    """The home directory of this user; empty if there is none."""
    try:
        home = str(Path.home())
    except RuntimeError:  # HOME is not set, and the user database has no entry
        return ""
    return home if home.startswith("/") and os.environ.get("HOME") != "" else ""


def state_root() -> str:
    """The directory for state, of all workspaces; empty if this user has no home directory."""
    return _user_directory("XDG_STATE_HOME")


def data_root() -> str:
    """The directory for files that licet installs or builds; empty if this user has no home directory."""
    return _user_directory("XDG_DATA_HOME")


def cache_root() -> str:
    """The directory for what can be made again; empty if this user has no home directory."""
    return _user_directory("XDG_CACHE_HOME")


def own_directories() -> tuple[str, ...]:
    """Every directory of licet in the home of this user: those that variables name, and those without variables."""
    every = (place for variable in _BELOW_HOME for place in (_user_directory(variable), _usual_directory(variable)))
    return tuple(dict.fromkeys(filter(None, every)))


def _user_directory(variable: str) -> str:
    stated = os.environ.get(variable, "")
    return os.path.join(stated, "licet") if stated.startswith("/") else _usual_directory(variable)


def _usual_directory(variable: str) -> str:
    home = home_directory()
    return os.path.join(home, _BELOW_HOME[variable], "licet") if home else ""
