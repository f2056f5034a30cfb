"""Files that cannot be meant as policy: somebody named the wrong one, perhaps one with secrets, so nothing is repeated.

Told by keys alone: a policy file has one at its top that is known, or like one that is.
"""

import re
from collections.abc import Collection, Iterable
from itertools import islice

from licet.core.origin import Problem
from licet.policy_files.nodes import Mapping, Node, Scalar, Sequence
from licet.policy_files.schema import SHAPES
from licet.policy_files.shapes import nearest

_MOST_COMPARED = 20
_KNOWN = {name for shape in SHAPES.values() for name in shape.fields}

# What looks like a key, in a text that no parser gets to the end of: one that begins a line, or stands in braces.
_BLOCK_KEY = re.compile(rb"^[\"']?([\w-]{1,64})[\"']?[ \t]*:", re.MULTILINE)
_FLOW_KEY = re.compile(rb"[{,\s][\"']?([\w-]{1,64})[\"']?\s*:")


def foreign(node: Node | None, data: bytes, problems: Collection[Problem]) -> str:
    """What a file is that cannot be meant as policy, or nothing if it can; `node` and `problems` were read from it."""
    match node:
        case Scalar():
            return "text"
        case Sequence():
            return "a list"
        case Mapping() if node.entries:
            return "" if _like_policy(node.entries) else "a mapping with other keys"
    if not any(map(_quotes, problems)):
        return ""  # empty, or not even text: saying so repeats nothing
    keys = (_FLOW_KEY if data.lstrip()[:1] == b"{" else _BLOCK_KEY).finditer(data)
    return "" if _like_policy(key[1].decode("ascii") for key in keys) else "what cannot be read as keys"


def _quotes(problem: Problem) -> bool:
    return not {"`", "'", '"'}.isdisjoint(problem.found + problem.hint)


def _like_policy(keys: Iterable[str]) -> bool:
    return any(key in _KNOWN or nearest(key, _KNOWN, []) for key in islice(keys, _MOST_COMPARED))
