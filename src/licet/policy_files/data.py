"""Policy from Python data: the keys of policy files in dicts and lists, with the same checks and the same digest.

Only plain values are taken, and all of them are copied: what happens to the data afterwards changes no manifest. Places
are JSON pointers.
"""

import math
import os
from collections.abc import Mapping as ReadOnly
from decimal import Decimal
from itertools import islice
from types import MappingProxyType
from typing import Any

from licet.core.decision.foreseen import address_problems, pair_problems, quorum_problems
from licet.core.origin import DATA, Origin, Problem
from licet.core.policy import manifest as core
from licet.core.policy.layer import POLICY
from licet.core.policy.manifest import Manifest
from licet.errors import ManifestError
from licet.policy_files.documents import (
    Document,
    NewerFormat,
    checked_document,
    combined,
    never_written,
    refuse_newer,
    two_workspaces,
)
from licet.policy_files.nodes import (
    DEEPEST,
    MOST_PROBLEMS,
    REFUSED,
    Mapping,
    MappingItem,
    Node,
    Scalar,
    Sequence,
    UnsafeNumber,
    plain_value,
)
from licet.policy_files.policy_paths import WORKSPACE_FILE, policy_paths
from licet.policy_files.syntax import MOST_BYTES, Unreadable, hidden_in, shown
from licet.policy_files.tool_files import tool_files
from licet.policy_files.trust_list import trusted_paths

__all__ = ["Manifest", "manifest_from_data"]

_WORKSPACE, _PERSONALITY = "the workspace data", "the personality data"
MOST_PLACES = 16 << 20  # characters: long keys around many values would make each of their pointers long
_NO_ROOT = "declare it with `needs`, or give the directory of its code: `Manifest.from_data(…, root=…)`"
_WORDS = {None: "null", True: "true", False: "false"}  # as messages about files say it
# How to write values that are nearly right.
_INSTEAD = {
    "set": "a set has no order: write a list, such as `sorted(…)`",
    "frozenset": "a set has no order: write a list, such as `sorted(…)`",
    "bytes": "write text: `….decode()`",
}


def manifest_from_data(
    data: ReadOnly[str, Any],
    workspace: ReadOnly[str, Any] | None = None,
    personality: ReadOnly[str, Any] | None = None,
    *,
    root: str | os.PathLike[str] | None = None,
) -> Manifest:
    """The manifest that some data says, or `ManifestError` with every problem; see `Manifest.from_data`."""
    problems: list[Problem] = []
    try:
        main = _document(data, DATA, problems)
        shared = _document(workspace, _WORKSPACE, problems) if workspace is not None else None
        second = _document(personality, _PERSONALITY, problems) if personality is not None else None
    except NewerFormat as newer:
        raise ManifestError([newer.problem]) from None
    if main.kind == "workspace":
        problems.append(main.wrong_kind("a manifest or a personality"))
    if shared is None:
        shared = main if main.kind == "manifest" else None  # one document may hold both
    else:
        problems += [shared.wrong_kind("a workspace")] if shared.kind == "personality" else []
        problems += two_workspaces(main, shared)
    manifest = combined(main, shared, second, problems)
    if manifest is not None:
        manifest = _protected(manifest, root, problems)
        problems += (*address_problems(manifest), *quorum_problems(manifest), *pair_problems(manifest))
    errors = [problem for problem in dict.fromkeys(problems) if problem.severity == "error"]
    if errors or manifest is None:
        raise ManifestError(sorted(errors, key=lambda problem: (problem.origin.file, problem.origin.column)))
    return manifest


def _protected(manifest: Manifest, root: str | os.PathLike[str] | None, problems: list[Problem]) -> Manifest:
    """The manifest with a layer that keeps trusted policy files and the code of its tools from being written."""
    files = () if root is None else (os.path.join(root, WORKSPACE_FILE),)  # policy may lie where the code does
    closed = dict.fromkeys(policy_paths(files, trusted_paths()), POLICY)
    if root is None:
        problems += [
            Problem(origin, f"`from: {source}`", "a directory to find it in, since data lies in none", _NO_ROOT)
            for source, origin in manifest.sources.values()
        ]
        return never_written(manifest, closed)
    sources = [source for source, _ in manifest.sources.values()]
    places = dict.fromkeys((os.path.abspath(root), os.path.realpath(root)))
    return never_written(manifest, {**dict(code for place in places for code in tool_files(sources, place)), **closed})


def _document(data: object, name: str, problems: list[Problem]) -> Document:
    origin = Origin(name, 0, 0)
    reader = _Reader(name)
    try:
        node: Node | None = reader.node(data, origin, 1)
    except Unreadable as stop:
        node = None
        reader.problems.append(stop.problem)
    problems += reader.problems
    refuse_newer(node)
    if isinstance(node, Scalar) and isinstance(node.value, str):  # a path or a text of YAML, perhaps with secrets
        hint = "`load_manifest(path)` reads a file"
        problems.append(Problem(origin, "text", "a dict with the keys of a policy file", hint))
        return Document(origin, "manifest", None)
    return checked_document(origin, node, problems)


class _Reader:
    """Copies plain data into nodes and gathers problems; size, depth and the number of problems are bounded.

    Values are read through the methods of the built-in types, once: a subclass cannot give two answers.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.problems: list[Problem] = []
        self.left = MOST_BYTES  # characters that the data may still take as JSON, about
        self.places = MOST_PLACES  # characters of the pointers that may still be made
        self.count = 0  # of values so far; as the column of a place, it keeps problems in the order of the data
        self.around: list[int] = []  # the collections that the current value is in

    def origin(self, pointer: str) -> Origin:
        """A place in the data."""
        self.count += 1
        self.places -= len(pointer)
        if self.places < 0:
            expected = f"at most {MOST_PLACES} characters in all JSON pointers together"
            raise Unreadable(Problem(Origin(self.name, 0, self.count), "long keys around many values", expected))
        return Origin(self.name, 0, self.count, pointer)

    def refuse(self, origin: Origin, found: str, expected: str, hint: str = "") -> Scalar:
        """Report a problem; the scalar stands where the value was, and nobody complains about it again."""
        if len(self.problems) >= MOST_PROBLEMS:
            raise Unreadable(Problem(origin, f"{MOST_PROBLEMS} problems before this", "fewer, to read the rest"))
        self.problems.append(Problem(origin, found, expected, hint))
        return Scalar("", REFUSED, False, origin)

    def spend(self, size: int, origin: Origin) -> None:
        """Count the size of the data: the same object may be in it a million times."""
        self.left -= size
        if self.left < 0:
            raise Unreadable(Problem(origin, "more data", f"at most {MOST_BYTES} characters as JSON (1 MiB)"))

    def node(self, value: Any, origin: Origin, depth: int) -> Node:
        """A value as nodes."""
        self.spend(2, origin)
        kind = type(value)
        if issubclass(kind, dict | MappingProxyType | list | tuple):
            return self.collection(value, origin, depth)
        if issubclass(kind, str):
            return self.text(value, origin)
        if value is None or kind is bool:
            return Scalar(_WORDS[value], value, False, origin)
        if issubclass(kind, int | float | Decimal):
            return self.number(value, origin)
        name, expected = kind.__name__, "plain data: a dict, a list, text, a number, a boolean or None"
        return self.refuse(origin, f"a value of type {shown(name)}", expected, _INSTEAD.get(name, ""))

    def collection(self, value: Any, origin: Origin, depth: int) -> Node:
        kind, pointer = type(value), origin.pointer
        if id(value) in self.around:
            return self.refuse(origin, "a value that contains itself", "data that ends")
        if depth > DEEPEST:
            raise Unreadable(Problem(origin, f"nesting deeper than {DEEPEST}", f"at most {DEEPEST} levels"))
        self.around.append(id(value))
        node: Node
        if issubclass(kind, list | tuple):
            items = enumerate(list.__iter__(value) if issubclass(kind, list) else tuple.__iter__(value))
            read = (self.node(item, self.origin(f"{pointer}/{place}"), depth + 1) for place, item in items)
            node = Sequence(tuple(read), origin)
        else:
            pairs = self.pairs(value)
            if pairs is None:
                node = self.refuse(origin, "a mapping whose items cannot be read", "a dict with text keys")
            else:
                node = Mapping(self.entries(pairs, origin, depth), origin)
        self.around.pop()
        return node

    def pairs(self, value: Any) -> list[tuple[Any, Any]] | None:
        """The items of a mapping, read once; None where a read-only view stands before something that is no dict."""
        if issubclass(type(value), dict):
            return list(dict.items(value))
        try:
            found = list(islice(MappingProxyType.items(value), MOST_BYTES))
            return [(key, item) for key, item in found]
        except Exception:  # it is code of whoever made the mapping, and may do anything
            return None

    def entries(self, pairs: list[tuple[Any, Any]], around: Origin, depth: int) -> dict[str, MappingItem]:
        found: dict[str, MappingItem] = {}
        for key, value in pairs:
            if not issubclass(type(key), str):
                what = f"a key of type {shown(type(key).__name__)}"
                self.refuse(around, what, "a key that is text", "write it in quotes")
                continue
            name = str.__str__(key)
            if self.text(name, around).value is REFUSED:
                continue
            origin = self.origin(f"{around.pointer}/{name.replace('~', '~0').replace('/', '~1')}")
            if not name:
                self.refuse(around, "an empty key", "a key that is text")
            elif name in found:  # two keys of one text, of a subclass that compares otherwise
                self.refuse(origin, f"the key {shown(name)} a second time", "each key once")
            else:
                found[name] = MappingItem(origin, self.node(value, origin, depth + 1))
        return found

    def text(self, value: str, origin: Origin) -> Scalar:
        text = str.__str__(value)
        self.spend(len(text), origin)
        if hidden := hidden_in(text):
            return self.refuse(origin, f"{hidden} in {shown(text)}", "only characters that can be seen")
        return Scalar(text, text, True, origin)

    def number(self, value: Any, origin: Origin) -> Scalar:
        """The number as a file would have it: a float is the shortest decimal that reads as that float."""
        kind = type(value)
        if issubclass(kind, int):
            whole = int.__index__(value)
            text, finite = str(whole if whole.bit_length() < 64 else 1 << 64), True  # Python limits how many digits
        elif issubclass(kind, float):
            text, finite = float.__repr__(value), math.isfinite(float.__float__(value))
        else:
            text, finite = Decimal.__str__(value), Decimal.is_finite(value)
        if not finite:
            return self.refuse(origin, shown(text), "a finite number")
        try:
            return Scalar(text, plain_value(text), False, origin)
        except UnsafeNumber as wrong:
            return self.refuse(origin, shown(text), str(wrong))


core.data_reader = manifest_from_data
