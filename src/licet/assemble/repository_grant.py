"""Adds the repository of a linked worktree or submodule to what programs hold, as a plain `.git` would be in the grant.

It is readable where `.git` is, and its data is writable where the policy lets `.git` be written: what belongs to this
tree, `objects`, `refs` and `logs`. What leads git to programs stays closed, and so does what other worktrees have. Only
the walls of programs hold it: git is a program, and handles need no repository.
"""

import os
from collections.abc import Iterable, Iterator

from msgspec.structs import replace

from licet.core.algebra.domains import DOMAINS
from licet.core.algebra.rules import Capability, capability
from licet.core.algebra.scope import inside
from licet.core.algebra.set import CapabilitySet
from licet.core.decision.reach import Reach
from licet.core.policy.layer import Layer, Rule, meet_written_layers
from licet.core.review.sensitive import GIT
from licet.guard.held_paths import HeldPaths, held_paths
from licet.guard.import_path import changeable
from licet.policy_files.linked_repository import LinkedRepository, NotFollowed, linked_repository

_CHANGES = ("write", "delete")


def with_repository(reach: Reach, workdir: str) -> Reach:
    """The same reach, with the repository that `.git` in the working directory leads to. One in doubt is left out."""
    try:
        repository = repository_of(reach, workdir)
    except NotFollowed:  # `licet run` says so where git misses it
        return reach
    if repository is None:
        return reach
    git = os.path.join(os.path.realpath(workdir), ".git")
    written = HeldPaths(meet_written_layers(reach.layers))
    allows = [_rule("read", repository.common)]
    denies = [_rule(action, path) for path in (git, *repository.leads) for action in _CHANGES]
    denies += _translated(written, git, repository)
    if _may_change(reach.grant, written, "write", git) and reach.effect not in (None, "read_only"):
        allows += [_rule("write", path) for path in repository.data]
    grant = _joined(reach.grant, allows, denies, reach)
    deletes = [_rule("delete", path) for path in repository.data]
    if _may_change(reach.grant, written, "delete", git):
        grant = _joined(grant, deletes, denies, reach)
    free = reach.free_deletes
    if _may_change(free, written, "delete", git):
        free = _joined(free, deletes, denies, reach)
    # As a layer, so that a refusal has its reason.
    rules = tuple(Rule(deny, reach.manifest.origin, GIT) for deny in denies)
    layer = Layer("protected paths", "licet itself", reach.manifest.origin, denies=rules, silent=frozenset(DOMAINS))
    return replace(reach, grant=grant, free_deletes=free, layers=(*reach.layers, layer))


def repository_of(reach: Reach, workdir: str) -> LinkedRepository | None:
    """The repository that a program of this reach does not hold yet; None if there is none. Raises `NotFollowed`."""
    if not held_paths(reach.grant).covers("read", os.path.join(os.path.realpath(workdir), ".git")):
        return None
    repository = linked_repository(workdir, lambda path: changeable(path, reach.manifest.ceiling))
    ceilings = [layer.allowed for layer in reach.layers if layer.kind == "organisation"]
    if repository is not None and not all(ceiling.has(_rule("read", repository.common)) for ceiling in ceilings):
        raise NotFollowed(f"`.git` leads to `{repository.own}`, which the organisation does not let be read")
    return repository


def _may_change(held: CapabilitySet, written: HeldPaths, action: str, git: str) -> bool:
    """Whether a grant changes what is in the tree, and the policy's own rules would let it change a plain `.git`."""
    return HeldPaths(held).covers(action, os.path.dirname(git)) and written.covers(action, git)


def _translated(written: HeldPaths, git: str, repository: LinkedRepository) -> Iterator[Capability]:
    """What the policy denies in `.git`, denied in the repository."""
    for action in ("read", *_CHANGES):
        for path in written.denied(action):
            if path != git and inside(path, (git,)):
                name = os.path.relpath(path, git)
                named = (os.path.join(place, name) for place in (repository.own, repository.common))
                # A deny of `worktrees` is about those of others: nothing but its own part is added of them.
                yield from (_rule(action, place) for place in named if not inside(repository.own, (place,)))


def _rule(action: str, path: str) -> Capability:
    # Not parsed from text: a real path may have characters that a written rule cannot.
    return capability("fs", DOMAINS["fs"].actions[action], path, None)


def _joined(held: CapabilitySet, allows: list[Capability], denies: Iterable[Capability], reach: Reach) -> CapabilitySet:
    """A set with more allows, of which every deny of the policy and of licet takes away what it names."""
    others = (rule.capability for layer in reach.layers for rule in layer.denies)
    met = [deny for deny in others if any(deny.meet(allow) is not None for allow in allows)]
    return CapabilitySet((*held.allow, *allows), (*held.deny, *denies, *met))
