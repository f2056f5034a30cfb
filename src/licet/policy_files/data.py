"""Reads policy from Python data: dicts and lists with the keys of policy files, the same checks and the same digest.

Only plain values are accepted, and all of them are copied, so later changes of the data do not change the manifest. The
origins in messages are JSON pointers.
"""

import math
import os
from collections.abc import Mapping as ReadOnly
from decimal import Decimal
from itertools import islice
from types import MappingProxyType
from typing import Any

from licet.core.decision.foreseen import address_problems, pair_problems, quorum_problems
from licet.core.policy.layer import POLICY
from licet.core.policy.manifest import Manifest
from licet.core.values import DATA, Origin, Problem
from licet.errors import ManifestError
from licet.policy_files.limits import DEEPEST, MOST_BYTES, MOST_POINTERS, MOST_PROBLEMS
from licet.policy_files.manifest_reader import (
    Document,
    NewerFormat,
    checked_document,
    combined,
    refuse_newer,
    with_protected_paths,
    workspace_conflicts,
)
from licet.policy_files.nodes import (
    REFUSED,
    Mapping,
    MappingItem,
    Node,
    Scalar,
    Sequence,
    Unreadable,
    UnsafeNumber,
    hidden_in,
    plain_value,
    shown,
)
from licet.policy_files.policy_paths import WORKSPACE_FILE, policy_paths
from licet.policy_files.trust import trusted_paths
from licet.source.finder import tool_files

_WORKSPACE, _PERSONALITY = "the workspace data", "the personality data"
_NO_ROOT = "declare it with `needs`, or give the directory of its code: `Manifest.from_data(…, root=…)`"
_WORDS = {None: "null", True: "true", False: "false"}  # as YAML writes them
# Hints for values of a similar type.
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
    """Read a manifest from data, or raise `ManifestError` with all problems; see `Manifest.from_data`."""
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
        problems += workspace_conflicts(main, shared)
    manifest = combined(main, shared, second, problems)
    if manifest is not None:
        manifest = _protected(manifest, root, problems)
        problems += (*address_problems(manifest), *quorum_problems(manifest), *pair_problems(manifest))
    errors = [problem for problem in dict.fromkeys(problems) if problem.severity == "error"]
    if errors or manifest is None:
        raise ManifestError(sorted(errors, key=lambda problem: (problem.origin.file, problem.origin.column)))
    return manifest


def _protected(manifest: Manifest, root: str | os.PathLike[str] | None, problems: list[Problem]) -> Manifest:
    """The manifest with a layer that denies writing trusted policy files and the code of its tools."""
    files = () if root is None else (os.path.join(root, WORKSPACE_FILE),)  # there may be policy files next to the code
    closed = dict.fromkeys(policy_paths(files, trusted_paths()), POLICY)
    if root is None:
        problems += [
            Problem(origin, f"`from: {source}`", "a directory to find it in, since data has none", _NO_ROOT)
            for source, origin in manifest.sources.values()
        ]
        return with_protected_paths(manifest, closed)
    sources = [source for source, _ in manifest.sources.values()]
    places = dict.fromkeys((os.path.abspath(root), os.path.realpath(root)))
    return with_protected_paths(
        manifest, {**dict(code for place in places for code in tool_files(sources, place)), **closed}
    )


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
    if isinstance(node, Scalar) and isinstance(node.value, str):
        # A path or YAML text. It may contain secrets, so it is not quoted.
        hint = "`load_manifest(path)` reads a file"
        problems.append(Problem(origin, "text", "a dict with the keys of a policy file", hint))
        return Document(origin, "manifest", None)
    return checked_document(origin, node, problems)


class _Reader:
    """Copies plain data into nodes and collects problems; size, depth and the number of problems are bounded.

    Each value is read once, with the methods of the built-in type, so that a subclass cannot return different values to
    the check and to the manifest.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.problems: list[Problem] = []
        self.size_left = MOST_BYTES  # characters that the rest of the data may take as JSON, roughly
        self.pointers_left = MOST_POINTERS  # characters that further JSON pointers may take
        self.count = 0  # values so far; it is used as the column, which keeps problems in the order of the data
        self.enclosing: list[int] = []  # ids of the collections that contain the current value

    def origin(self, pointer: str) -> Origin:
        self.count += 1
        self.pointers_left -= len(pointer)
        if self.pointers_left < 0:
            expected = f"at most {MOST_POINTERS} characters in all JSON pointers together"
            raise Unreadable(Problem(Origin(self.name, 0, self.count), "long keys around many values", expected))
        return Origin(self.name, 0, self.count, pointer)

    def refuse(self, origin: Origin, found: str, expected: str, hint: str = "") -> Scalar:
        """Report a problem; return a scalar that replaces the value and is not reported again."""
        if len(self.problems) >= MOST_PROBLEMS:
            raise Unreadable(Problem(origin, f"{MOST_PROBLEMS} problems before this", "fewer, to read the rest"))
        self.problems.append(Problem(origin, found, expected, hint))
        return Scalar("", REFUSED, False, origin)

    def spend(self, size: int, origin: Origin) -> None:
        """Count the size of the data, since one object may be in it a million times."""
        self.size_left -= size
        if self.size_left < 0:
            raise Unreadable(Problem(origin, "more data", f"at most {MOST_BYTES} characters as JSON (1 MiB)"))

    def node(self, value: Any, origin: Origin, depth: int) -> Node:
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
        if id(value) in self.enclosing:
            return self.refuse(origin, "a value that contains itself", "data that ends")
        if depth > DEEPEST:
            raise Unreadable(Problem(origin, f"nesting deeper than {DEEPEST}", f"at most {DEEPEST} levels"))
        self.enclosing.append(id(value))
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
        self.enclosing.pop()
        return node

    def pairs(self, value: Any) -> list[tuple[Any, Any]] | None:
        """The items of a mapping; None if it is a read-only view of a mapping that cannot be read."""
        if issubclass(type(value), dict):
            return list(dict.items(value))
        try:
            found = list(islice(MappingProxyType.items(value), MOST_BYTES))
            return [(key, item) for key, item in found]
        except Exception:  # the mapping may be of any class, whose code may raise anything
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
            elif name in found:  # possible if keys are of a subclass of str with its own `__eq__`
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
        """Read a number as from a file. A float becomes the shortest decimal that is equal to it."""
        kind = type(value)
        if issubclass(kind, int):
            integer = int.__index__(value)
            text, finite = (
                str(integer if integer.bit_length() < 64 else 1 << 64),
                True,
            )  # avoids Python's limit on digits
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
