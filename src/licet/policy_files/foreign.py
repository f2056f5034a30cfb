"""Recognizes files that are not policy at all, such as a file with secrets that was named by mistake.

The message about such a file quotes nothing from it. A file counts as policy if one of its first top-level keys is a
known key, or is similar to one.
"""

import re
from collections.abc import Collection, Iterable
from itertools import islice

from licet.core.origin import Problem
from licet.policy_files.nodes import Mapping, Node, Scalar, Sequence
from licet.policy_files.schema import SHAPES
from licet.policy_files.shapes import did_you_mean

_MOST_COMPARED = 20
_KNOWN = {name for shape in SHAPES.values() for name in shape.fields}

# Keys in a text that cannot be parsed: at the start of a line, or inside braces.
_BLOCK_KEY = re.compile(rb"^[\"']?([\w-]{1,64})[\"']?[ \t]*:", re.MULTILINE)
_FLOW_KEY = re.compile(rb"[{,\s][\"']?([\w-]{1,64})[\"']?\s*:")


def foreign(node: Node | None, data: bytes, problems: Collection[Problem]) -> str:
    """A phrase for a file that is not policy, such as `a list`; empty if it may be policy.

    `node` and `problems` are the results of reading `data`.
    """
    match node:
        case Scalar():
            return "text"
        case Sequence():
            return "a list"
        case Mapping() if node.entries:
            return "" if _like_policy(node.entries) else "a mapping with other keys"
    if not any(map(_quotes, problems)):
        return ""  # empty or not text: the message then quotes nothing from the file
    keys = (_FLOW_KEY if data.lstrip()[:1] == b"{" else _BLOCK_KEY).finditer(data)
    return "" if _like_policy(key[1].decode("ascii") for key in keys) else "what cannot be read as keys"


def _quotes(problem: Problem) -> bool:
    return not {"`", "'", '"'}.isdisjoint(problem.found + problem.hint)


def _like_policy(keys: Iterable[str]) -> bool:
    return any(key in _KNOWN or did_you_mean(key, _KNOWN, []) for key in islice(keys, _MOST_COMPARED))
