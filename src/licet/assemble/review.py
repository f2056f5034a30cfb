"""Reads a policy as a reviewer sees it: from files, with the declarations of tools from source. Imports and runs
nothing.

The directory where the backends of this machine keep their state.
"""

import hashlib
import os
from collections.abc import Iterable
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from licet.core.algebra.scope import Malformed
from licet.core.decision.foreseen import address_problems, pair_problems, quorum_problems
from licet.core.policy.manifest import Manifest
from licet.core.policy.tool import ToolSpec
from licet.core.review.risk import ceiling_problems
from licet.core.values import Problem
from licet.errors import ManifestError
from licet.policy_files.checks import suffix_problems
from licet.policy_files.load import directory_problems, read_policy
from licet.policy_files.manifest_reader import PolicyDocument, read_manifest
from licet.policy_files.nodes import read_nodes
from licet.policy_files.organisation import under_organisation
from licet.policy_files.policy_paths import NoHome, home_directory, policy_root, state_root, workspace_root
from licet.policy_files.schema import SHAPES
from licet.policy_files.shapes import check

__all__ = ["Places", "declared", "draft", "review", "straight"]


class Places(Struct, frozen=True):
    """The values of `${workdir}` and `~`."""

    workdir: str
    home: str  # empty if this user has none, as in some containers; then no rule can name it

    @classmethod
    def here(cls, workdir: str | Path | None = None) -> "Places":
        """The current directory, or another one, and the home directory of this user."""
        return cls(str(straight(Path(workdir or Path.cwd()))), home_directory())


def straight(path: Path) -> Path:
    """Make a path absolute and remove `..`, as the kernel would resolve it: no rule can name a `..`."""
    parts = path.absolute().parts
    if ".." not in parts:
        return Path(*parts)
    ups = len(parts) - parts[::-1].index("..")  # the part after the last `..` keeps its name, links included
    return Path(os.path.realpath(Path(*parts[:ups])), *parts[ups:])


def review(
    path: str | Path,
    workspace: str | Path | None = None,
    personality: str | Path | None = None,
    places: Places | None = None,
    *,
    draft: str | None = None,
    organisation: str | Path | None = None,
    alone: bool = False,
) -> PolicyDocument:
    """Read a policy as a reviewer sees it: tools are read from source, never imported, and directories filled in.

    A `draft` is read in place of what is in the file. The organisation of this machine narrows it, and so does a
    second file that `organisation` names. A policy that is `alone` is not narrowed: its digest, its lock and its own
    tests are about what its files say, on every machine.
    """
    policy = read_policy(path, workspace, personality, draft=draft)
    if policy.manifest is None:
        # Problems of the sources are reported in any case; whether the tools fit cannot be known yet.
        wrong = declared(policy.partial)[1] if policy.partial is not None else []
        if policy.kind == "workspace" and policy.partial is not None:  # the loader has reported these for a manifest
            wrong += (*address_problems(policy.partial), *ceiling_problems(policy.partial))
        return PolicyDocument(policy.kind, None, (*policy.problems, *wrong))
    manifest, problems = declared(policy.manifest)
    places = places or Places.here()
    if manifest.definitions:  # the code that reads installed packages is imported only if a connector is defined
        from licet.packages.distributions import installed_versions

        installed = installed_versions(manifest, places.workdir, places.home)
        manifest = replace(manifest, installed=installed, loaded=manifest.loaded or manifest)
    if manifest.sources and (crowded := list(pair_problems(manifest))):
        return PolicyDocument(policy.kind, None, (*policy.problems, *problems, *crowded))
    try:
        expanded = manifest.expand(places.workdir, places.home)
    except Malformed as wrong:
        problem = Problem(manifest.origin, f"`{wrong.found}`", wrong.expected, wrong.hint)
        return PolicyDocument(policy.kind, None, (*policy.problems, *problems, problem))
    found = (*policy.problems, *problems, *directory_problems(expanded))
    if alone:
        return PolicyDocument(policy.kind, expanded, found)
    try:
        narrowed = under_organisation(expanded, organisation)
    except ManifestError as wrong:
        return PolicyDocument(policy.kind, None, (*found, *wrong.problems))
    if narrowed is not expanded:  # keys of approvers may be in both
        known = set(quorum_problems(expanded))
        found = (*found, *(problem for problem in quorum_problems(narrowed) if problem not in known))
    return PolicyDocument(policy.kind, narrowed, found)


def draft(text: str, file: str, tools: Iterable[ToolSpec]) -> PolicyDocument:
    """Read a manifest that is not written yet, with its workspace keys and given tools, as `review` would."""
    node, found = read_nodes(text.encode(), file)
    problems = list(found)
    content = check(SHAPES["manifest"], node, problems) if node is not None else None
    if content is None:
        return PolicyDocument("manifest", None, tuple(problems))
    problems += suffix_problems(content)
    manifest = read_manifest(content, content, problems)
    sound = all(problem.severity == "warning" for problem in problems)
    return PolicyDocument("manifest", manifest.declare(tools) if sound else None, tuple(problems))


def declared(manifest: Manifest) -> tuple[Manifest, list[Problem]]:
    """Resolve every `from:` of a manifest in the directories of its files."""
    if not manifest.sources:  # the code that reads source is imported only if there is some
        return manifest.declare(()), []
    from licet.source.declarations import Modules, find_tool

    # Not made absolute, so that files found there are named relative to the manifest.
    roots = list(dict.fromkeys(policy_root(Path(file)) for file in manifest.files))
    modules = Modules()
    specs: list[ToolSpec] = []
    problems: list[Problem] = []
    for name, (reference, origin) in manifest.sources.items():
        found = find_tool(reference, roots, name=name, origin=origin, modules=modules)
        if isinstance(found, ToolSpec):
            specs.append(found)
        else:
            problems.append(found)
    return manifest.declare(specs), problems


def state_directory(workspace: Path) -> Path:
    """Return the directory where the backends of this machine keep their state for a workspace.

    A `.licet` directory belongs to its parent: a policy that moves there keeps its ledger, budgets and approvals.
    """
    root = state_root()
    if not root:
        raise NoHome
    place = workspace_root(straight(workspace))
    return Path(root) / hashlib.sha256(str(place).encode()).hexdigest()[:16]
