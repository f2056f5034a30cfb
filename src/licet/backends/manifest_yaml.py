"""Loading policy files: a workspace, a manifest, a personality, in YAML or JSON, checked whole before anything is used.

Every problem of a run is reported at once. What the keys mean is in `manifest_reader`, what they may hold in
`manifest_shapes`.
"""

import os
from pathlib import Path
from typing import Any, Literal

from licet.backends.foreign import foreign
from licet.backends.manifest_reader import read_manifest, read_personality
from licet.backends.manifest_shapes import FORMAT, SHAPES, WORKSPACE_FIELDS
from licet.backends.policy_paths import WORKSPACE_FILE, policy_paths, policy_root
from licet.backends.public_suffix import suffix_problems
from licet.backends.regular_files import open_regular, read_most
from licet.backends.shape_parts import number_of
from licet.backends.shapes import Located, check
from licet.backends.tool_files import tool_files
from licet.backends.trust_list import trusted_paths
from licet.backends.workspace_reader import declarations
from licet.backends.yaml_nodes import Mapping, Node, Scalar, read_nodes
from licet.backends.yaml_text import MOST_BYTES
from licet.core.capability import capability
from licet.core.domain import DOMAINS
from licet.core.foreseen import address_problems, pair_problems, quorum_problems
from licet.core.manifest import EVERY_DOMAIN, POLICY, Layer, Manifest, Rule
from licet.core.origin import Origin, Problem
from licet.core.scope import Malformed, path_key, visible
from licet.errors import ManifestError
from licet.values import dataclass, replace

Kind = Literal["workspace", "manifest", "personality"]


@dataclass(frozen=True, slots=True)
class Policy:
    """What a policy file holds: its kind, every problem in order, and the manifest if there is one and it is sound."""

    kind: Kind
    manifest: Manifest | None
    problems: tuple[Problem, ...]
    partial: Manifest | None = None  # what could be read, to look for more that is wrong and for nothing else

    def __post_init__(self) -> None:
        placed = sorted(
            dict.fromkeys(self.problems), key=lambda one: (one.origin.file, one.origin.line, one.origin.column)
        )
        object.__setattr__(self, "problems", tuple(placed))

    @property
    def sound(self) -> bool:
        """Whether nothing is wrong; warnings are not wrong."""
        return all(problem.severity == "warning" for problem in self.problems)


class _Newer(Exception):
    """A file of a format that this licet does not know: nothing else that it would say about it can be relied on."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem)
        self.problem = problem


@dataclass(frozen=True, slots=True)
class _File:
    path: Path
    kind: Kind
    content: Located[Any] | None


def load_manifest(
    path: str | Path, workspace: str | Path | None = None, personality: str | Path | None = None
) -> Manifest:
    """Load an agent's manifest with the `licet.yaml` beside it, or raise `ManifestError` with every problem."""
    policy = read_policy(path, workspace, personality)
    if not policy.sound or policy.manifest is None:
        raise ManifestError(problem for problem in policy.problems if problem.severity == "error")
    return policy.manifest


def read_policy(path: str | Path, workspace: str | Path | None = None, personality: str | Path | None = None) -> Policy:
    """Read a policy file of any kind and everything it refers to; problems are returned, not raised."""
    try:
        return _read_policy(path, workspace, personality)
    except _Newer as newer:
        return Policy("manifest", None, (newer.problem,))


def _read_policy(path: str | Path, workspace: str | Path | None, personality: str | Path | None) -> Policy:
    problems: list[Problem] = []
    file = _read(Path(path), problems)
    if file.kind == "workspace":
        if workspace is not None or personality is not None:
            problems.append(_wrong_kind(file, "a manifest or a personality"))
        problems += suffix_problems(file.content)
        partial = _only_sources(file, problems)
        return Policy("workspace", None, tuple(problems), partial)
    shared = _workspace(file, workspace, problems)
    files = [one for one in (file, shared) if one is not None]
    manifest = _manifest(file, shared, problems)
    if personality is not None:
        second = _read(Path(personality), problems)
        if second.content is not None and second.kind != "personality":
            problems.append(_wrong_kind(second, "a personality"))
        elif second.content is not None:
            files.append(second)
            other = read_personality(second.content, None if shared is None else shared.content, problems)
            manifest = manifest.meet(other) if manifest is not None else None
    for one in {one.path: one for one in files}.values():
        problems += suffix_problems(one.content)
    if manifest is not None:
        names = tuple(dict.fromkeys(str(one.path) for one in files))
        manifest = _protected(replace(manifest, files=names), files, problems)
        problems += (*address_problems(manifest), *quorum_problems(manifest), *pair_problems(manifest))
    sound = all(problem.severity == "warning" for problem in problems)
    return Policy(file.kind, manifest if sound else None, tuple(problems), manifest)


def _only_sources(file: _File, problems: list[Problem]) -> Manifest | None:
    """A workspace alone, as far as tools are declared in it."""
    if file.content is None:
        return None
    _, sources = declarations(file.content.value, problems)
    return Manifest(agent="", origin=file.content.origin, sources=sources, files=(str(file.path),))


def _manifest(file: _File, shared: _File | None, problems: list[Problem]) -> Manifest | None:
    if file.content is None or (shared is not None and shared.content is None):
        return None
    read = read_personality if file.kind == "personality" else read_manifest
    return read(file.content, None if shared is None else shared.content, problems)


def _workspace(file: _File, given: str | Path | None, problems: list[Problem]) -> _File | None:
    """The workspace that was named, the file itself, or the one beside it; never one from a parent directory."""
    own = [key for key in WORKSPACE_FIELDS if file.content is not None and key in file.content.value]
    if given is None:
        beside = file.path.parent / WORKSPACE_FILE
        if file.path.name == WORKSPACE_FILE or not os.path.lexists(beside):
            return file if file.kind == "manifest" else None
        if own and file.kind == "manifest" and _is_whole(beside):
            return file  # two policies of one file each, such as two versions of one: neither is about the other
        given = beside
    shared = _read(Path(given), problems)
    if shared.kind == "personality":
        problems.append(_wrong_kind(shared, "a workspace"))
    if file.kind == "manifest" and own:
        origin = file.content.value.get(own[0], file.content).key_origin or file.content.origin  # type: ignore[union-attr]
        expected = f"workspace keys in one file, here or in {shared.path.name}"
        hint = f"move it there, or move {shared.path.name} away: what it says to every agent would not hold here"
        problems.append(Problem(origin, f"the workspace key `{own[0]}` beside a workspace file", expected, hint))
    return shared


def _is_whole(path: Path) -> bool:
    """Whether a file is the policy of an agent, and not only what agents share."""
    file = _read(path, [])
    return file.content is not None and file.kind == "manifest" and "agent" in file.content.value


def _read(path: Path, problems: list[Problem]) -> _File:
    origin = Origin(str(path), 1, 1)
    try:
        with open_regular(path) as fd:
            data = read_most(fd, MOST_BYTES + 1)  # `read_nodes` says what is too long
    except (OSError, ValueError) as error:  # a path with a NUL is a ValueError
        why = (getattr(error, "strerror", None) or "an unreadable path").lower()
        missing = "no file there" if isinstance(error, FileNotFoundError) else f"a file that cannot be read ({why})"
        problems.append(Problem(origin, missing, "a policy file"))
        return _File(path, "manifest", None)
    node, found = read_nodes(data, str(path))
    _refuse_newer(node)
    if other := foreign(node, data, found):
        problems.append(Problem(origin, other, f"a policy file, {SHAPES['manifest'].expected}"))
        return _File(path, "manifest", None)
    problems += found
    kind = _kind(node)
    if node is None:
        return _File(path, kind, None)
    return _File(path, kind, check(SHAPES[kind], node, problems))


def _refuse_newer(node: Node | None) -> None:
    entry = node.entries.get("licet") if isinstance(node, Mapping) else None
    if entry is None or not isinstance(entry.node, Scalar):
        return
    number = number_of(entry.node)
    if number is not None and number > FORMAT:
        found, expected = f"format {entry.node.text}", f"format {FORMAT}, the newest that this licet reads"
        raise _Newer(Problem(entry.key_origin, found, expected, "upgrade licet, or write the file for this one"))


def _kind(node: Node | None) -> Kind:
    keys = node.entries.keys() if isinstance(node, Mapping) else set()
    if keys & {"id", "toolset", "safety"}:
        return "personality"
    if keys & {"agent", "capabilities"} or not keys & WORKSPACE_FIELDS.keys():
        return "manifest"
    return "workspace"


def _wrong_kind(file: _File, expected: str) -> Problem:
    return Problem(Origin(str(file.path), 1, 1), f"a {file.kind}", expected)


def _protected(manifest: Manifest, files: list[_File], problems: list[Problem]) -> Manifest:
    """The manifest with a layer that keeps policy files and the code of its tools from being written by any grant."""
    for file in files:
        for path in (os.path.abspath(file.path), os.path.realpath(file.path)):
            try:
                path_key(path)
            except Malformed as wrong:
                found, expected = f"the path {visible(path)}", f"a policy file that a rule can name: {wrong.expected}"
                problems.append(Problem(Origin(str(file.path), 1, 1), found, expected))
    closed = dict.fromkeys(policy_paths([file.path for file in files], trusted_paths()), POLICY)
    # Whoever writes the code of a tool does what no manifest says.
    sources = [reference for reference, _ in manifest.sources.values()]
    spelled = [path for file in files for path in (os.path.abspath(file.path), os.path.realpath(file.path))]
    roots = dict.fromkeys(str(policy_root(Path(path))) for path in spelled)
    closed = {**dict(code for root in roots for code in tool_files(sources, root)), **closed}
    rules = tuple(
        Rule(capability("fs", DOMAINS["fs"].actions[action], key, None), manifest.origin, why)
        for key, why in closed.items()
        for action in ("write", "delete")
    )
    layer = Layer("policy files", "licet itself", manifest.origin, denies=rules, silent=EVERY_DOMAIN)
    return replace(manifest, layers=(*manifest.layers, layer))
