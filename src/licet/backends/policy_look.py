"""Whether a file looks like policy, valid or not: what its top level holds. If that cannot be told, it counts as one.

This is not the loader: a file that is broken today may be repaired tomorrow, and a tool must not have changed it.
"""

import json
import os
import re

from licet.backends.regular_files import NotRegular, TooLarge, read_regular
from licet.backends.yaml_events import yaml_events
from licet.backends.yaml_text import MOST_BYTES

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
        except (NotRegular, TooLarge, FileNotFoundError):
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
