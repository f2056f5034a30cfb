"""Loads policy files: a workspace, a manifest and a personality, in YAML or JSON.

Everything is checked before anything is used, and all problems are reported at once. `schema` has the allowed keys and
values, `reader` gives them their meaning.
"""

import os
from collections.abc import Iterator
from pathlib import Path

from msgspec.structs import replace

from licet.core.algebra.scope import Malformed, path_key, visible
from licet.core.decision.foreseen import address_problems, pair_problems, quorum_problems
from licet.core.origin import Origin, Problem
from licet.core.policy.layer import POLICY
from licet.core.policy.manifest import Manifest
from licet.core.review.wide import ceiling_problems
from licet.errors import ManifestError
from licet.policy_files.documents import (
    Document,
    NewerFormat,
    PolicyDocument,
    checked_document,
    combined,
    refuse_newer,
    with_protected_paths,
    workspace_conflicts,
)
from licet.policy_files.foreign import foreign
from licet.policy_files.nodes import read_nodes
from licet.policy_files.pins import with_pin
from licet.policy_files.policy_paths import WORKSPACE_FILE, policy_paths, policy_root
from licet.policy_files.public_suffix import suffix_problems
from licet.policy_files.schema import SHAPES
from licet.policy_files.server_tools import with_server_tools
from licet.policy_files.syntax import MOST_BYTES
from licet.policy_files.tool_files import tool_files
from licet.policy_files.trust_list import trusted_paths
from licet.policy_files.workspace_reader import declarations, shared_layers, workspace_layer
from licet.regular_files import open_regular, read_most

__all__ = ["PolicyDocument", "is_agent_policy", "load_manifest", "read_policy"]


def load_manifest(
    path: str | Path, workspace: str | Path | None = None, personality: str | Path | None = None
) -> Manifest:
    """Load an agent's manifest and the `licet.yaml` next to it, or raise `ManifestError` with all errors."""
    policy = read_policy(path, workspace, personality)
    if not policy.sound or policy.manifest is None:
        raise ManifestError(problem for problem in policy.problems if problem.severity == "error")
    return policy.manifest


def read_policy(
    path: str | Path,
    workspace: str | Path | None = None,
    personality: str | Path | None = None,
    *,
    draft: str | None = None,
) -> PolicyDocument:
    """Read a policy file of any kind, with its workspace and personality; problems are returned, not raised.

    A `draft` is read in place of what is in the file, which need not exist yet.
    """
    try:
        return _read_policy(path, workspace, personality, draft)
    except NewerFormat as newer:
        return PolicyDocument("manifest", None, (newer.problem,))


def _read_policy(
    path: str | Path, workspace: str | Path | None, personality: str | Path | None, draft: str | None
) -> PolicyDocument:
    problems: list[Problem] = []
    file = _read(Path(path), problems, draft)
    if file.kind == "workspace":
        if workspace is not None or personality is not None:
            problems.append(file.wrong_kind("a manifest or a personality"))
        problems += suffix_problems(file.content)
        partial = _workspace_alone(file, problems)
        return PolicyDocument("workspace", None, tuple(problems), partial)
    shared = _workspace(file, workspace, problems)
    second = None if personality is None else _read(Path(personality), problems)
    manifest = combined(file, shared, second, problems)
    if manifest is not None:
        used = (file, shared, second if second is not None and second.kind == "personality" else None)
        names = tuple(dict.fromkeys(one.name for one in used if one is not None and one.content is not None))
        manifest = _protected(replace(manifest, files=names), problems)
        assigned = {admission.bundle for admissions in manifest.admissions.values() for admission in admissions}
        bundles = shared_layers(shared.content.value, but=assigned) if shared is not None and shared.content else ()
        problems += (*address_problems(manifest, bundles), *ceiling_problems(manifest))
        problems += (*quorum_problems(manifest), *pair_problems(manifest), *directory_problems(manifest))
    sound = all(problem.severity == "warning" for problem in problems)
    if manifest is not None and sound:
        manifest = with_server_tools(with_pin(manifest, path))
        problems += [manifest.lock_problem] if manifest.lock_problem is not None else []
    return PolicyDocument(file.kind, manifest if sound else None, tuple(problems), manifest)


def directory_problems(manifest: Manifest) -> Iterator[Problem]:
    """Directories where a program is expected: the path of a program is exact, so such a rule would allow nothing."""
    named = [(rule.capability, rule.origin) for layer in manifest.layers for rule in layer.allows]
    named += [(need, tool.origin) for tool in manifest.tools.values() for need in tool.needs.allow if tool.origin]
    for rule, origin in dict.fromkeys(named):
        if rule.domain == "process" and rule.key.startswith("/") and os.path.isdir(rule.key):
            found = f"the directory `{visible(rule.key)}`"
            hint = "name each program that licet itself may start; what these start in turn needs no line"
            yield Problem(origin, found, "the name of a program, or its path, which covers nothing below it", hint)


def _workspace_alone(file: Document, problems: list[Problem]) -> Manifest | None:
    """A manifest with what a workspace alone gives: the sources of tools, and its own and its bundles' hosts."""
    if file.content is None:
        return None
    shared = file.content.value
    _, sources = declarations(shared, problems)
    layers = (*workspace_layer(shared, []), *shared_layers(shared))
    return Manifest(agent="", origin=file.content.origin, layers=layers, sources=sources, files=(file.name,))


def _workspace(file: Document, given: str | Path | None, problems: list[Problem]) -> Document | None:
    """The workspace: the one that was named, `licet.yaml` next to the file, or the file itself; never from a parent."""
    if given is None:
        path = Path(file.name)
        neighbour = path.parent / WORKSPACE_FILE
        if path.name == WORKSPACE_FILE or not os.path.lexists(neighbour):
            return file if file.kind == "manifest" else None
        if file.workspace_keys and file.kind == "manifest" and is_agent_policy(neighbour):
            return file  # two independent policies with one file each, such as two versions
        given = neighbour
    shared = _read(Path(given), problems)
    if shared.kind == "personality":
        problems.append(shared.wrong_kind("a workspace"))
    problems += workspace_conflicts(file, shared)
    return shared


def is_agent_policy(path: Path) -> bool:
    """Whether a file is the manifest of an agent, and not only a workspace."""
    file = _read(path, [])
    return file.content is not None and file.kind == "manifest" and "agent" in file.content.value


def read_bytes(path: Path, what: str, problems: list[Problem]) -> bytes | None:
    """The content of a file; None, and a problem, if it cannot be read. `what` is the kind of file that is expected."""
    try:
        with open_regular(path) as fd:
            return read_most(fd, MOST_BYTES + 1)  # one more, so that `read_nodes` reports a file that is too long
    except (OSError, ValueError) as error:  # a path with a NUL is a ValueError
        why = (getattr(error, "strerror", None) or "an unreadable path").lower()
        missing = "no file there" if isinstance(error, FileNotFoundError) else f"a file that cannot be read ({why})"
        problems.append(Problem(Origin(str(path), 1, 1), missing, what))
        return None


def _read(path: Path, problems: list[Problem], draft: str | None = None) -> Document:
    origin = Origin(str(path), 1, 1)
    # A lone surrogate makes a text that is not UTF-8, which `read_nodes` reports.
    data = read_bytes(path, "a policy file", problems) if draft is None else draft.encode("utf-8", "surrogatepass")
    if data is None:
        return Document(origin, "manifest", None)
    node, found = read_nodes(data, str(path))
    refuse_newer(node)
    if other := foreign(node, data, found):
        problems.append(Problem(origin, other, f"a policy file, {SHAPES['manifest'].expected}"))
        return Document(origin, "manifest", None)
    problems += found
    return checked_document(origin, node, problems)


def _protected(manifest: Manifest, problems: list[Problem]) -> Manifest:
    """The manifest with a layer that denies every tool to write policy files and the code of tools."""
    spelled = [(path, file) for file in manifest.files for path in (os.path.abspath(file), os.path.realpath(file))]
    for path, file in spelled:
        try:
            path_key(path)
        except Malformed as wrong:
            found, expected = f"the path {visible(path)}", f"a policy file that a rule can name: {wrong.expected}"
            problems.append(Problem(Origin(file, 1, 1), found, expected))
    closed = dict.fromkeys(policy_paths(manifest.files, trusted_paths()), POLICY)
    # A tool that could write the code of a tool could do anything at the next start.
    sources = [reference for reference, _ in manifest.sources.values()]
    roots = dict.fromkeys(str(policy_root(Path(path))) for path, _ in spelled)
    return with_protected_paths(
        manifest, {**dict(code for root in roots for code in tool_files(sources, root)), **closed}
    )
