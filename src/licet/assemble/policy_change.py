"""Makes the smallest change of a policy file that allows one use, and puts it in force as `licet trust` and `lock` do.

First the change is planned: the new text, what it means, and what is accepted with it. Nothing is written, so a person
can be shown all of it and asked. Then it is written, if the files are still those that were shown. A new text is never
written unless it reads as exactly the old one with these lines, and allows no more than the advice about the use.
"""

import asyncio
import os
import stat
from collections.abc import Callable, Sequence
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from licet.assemble.acceptance import PolicyMoved, accept_policy, deletes_to_approve, with_standing
from licet.assemble.expected_lock import lock_place
from licet.assemble.gate import standing_approvals
from licet.assemble.never_writable import closed_to_grants
from licet.assemble.review import Places, review
from licet.assemble.states import State
from licet.core.algebra.rules import Use
from licet.core.algebra.scope import visible
from licet.core.algebra.set import CapabilitySet
from licet.core.decision.decide import decide
from licet.core.decision.decision import Deny
from licet.core.decision.fixes import Addition
from licet.core.decision.foreseen import foreseen
from licet.core.decision.request import Request
from licet.core.policy.layer import WRITES, class_fits, meet_written_layers
from licet.core.policy.lock import Lock, LockedTool, write_lock
from licet.core.policy.manifest import Manifest, asked_tool
from licet.core.policy.terms import StandingApproval
from licet.core.review.allowing import allowing
from licet.core.review.changes import Changes
from licet.core.review.diff import diff
from licet.core.review.policy_edits import ByHand, Edit, policy_edits
from licet.core.values import Problem
from licet.errors import LicetError
from licet.own_files import locked_directory, read_regular, replace_file
from licet.packages.locked_tools import locked_tools
from licet.policy_files.additions import ALLOWED, Entry, NotKept, with_allowed
from licet.policy_files.limits import MOST_BYTES
from licet.policy_files.load import read_policy
from licet.policy_files.policy_paths import POLICY_DIRECTORY
from licet.policy_files.trust import acceptance, lock_state

Govern = Callable[[Manifest], Manifest]  # what admits further tools, such as those of a coding agent


class NotWritable(LicetError):
    """The policy file cannot be written from here, such as behind walls."""


class Unsound(LicetError):
    """A policy that has errors, or differs from its lock; `problems` may list them."""

    def __init__(self, text: str, problems: Sequence[Problem] = ()) -> None:
        super().__init__(text)
        self.problems = tuple(problems)


class PolicyChange(Struct, frozen=True):
    """A change that was planned: two texts of one file, what they mean, and what is put in force with the new one."""

    path: Path
    before: bytes
    after: bytes
    edits: tuple[Edit, ...]
    old: Manifest
    new: Manifest
    changes: Changes
    is_accepted: bool  # whether the old policy is on the trust list, so that the new one will be
    lock: Lock | None  # the new one; None if there is none
    standing: StandingApproval | None  # of the old policy
    standing_goes_on: bool  # bound anew, since the new policy writes and deletes no more

    @property
    def digest(self) -> str:
        """The digest of the new policy."""
        return self.new.digest

    @property
    def lines(self) -> tuple[str, ...]:
        """The lines of the new text that the old one does not have."""
        import difflib

        old, new = (text.decode().splitlines() for text in (self.before, self.after))
        changed = difflib.unified_diff(old, new, n=0, lineterm="")
        return tuple(line for line in changed if not line.startswith(("---", "+++", "@@")))


class Written(Struct, frozen=True):
    """What was put in force."""

    is_accepted: bool
    is_locked: bool
    standing: str  # the id of the approval that was bound anew; empty if none was


def check_writable(path: Path) -> None:
    """Raise `NotWritable` unless the kernel lets this process write a policy file, which is its own and no link.

    Behind walls the kernel says no, whoever asks and at whatever terminal: so this comes before anything else.
    """
    shown = visible(str(path))
    linked = [one for one in (path, path.parent) if (one == path or one.name == POLICY_DIRECTORY) and one.is_symlink()]
    if linked:
        raise NotWritable(
            f"{visible(str(linked[0]))} is a link: name the policy that it leads to, {os.path.realpath(path)}"
        )
    try:
        fd = os.open(path, os.O_WRONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        if isinstance(error, FileNotFoundError):
            raise NotWritable(f"there is no {shown}") from None
        where = "inside `licet run`, and in a command of a coding agent, no policy is changed: use your own terminal"
        raise NotWritable(f"{shown} cannot be written from here ({(error.strerror or '').lower()}); {where}") from None
    try:
        about = os.fstat(fd)
    finally:
        os.close(fd)
    if not stat.S_ISREG(about.st_mode) or about.st_nlink != 1:
        raise NotWritable(f"{shown} is not a file with one name: the other name would keep the old policy")


def plan(
    path: Path,
    tool: str,
    uses: Sequence[Use],
    places: Places,
    state: State,
    *,
    comment: str,
    admit: Govern = lambda manifest: manifest,
    is_shared: bool = False,
) -> PolicyChange | None:
    """The change after which a tool may do some uses; None if it may already.

    A policy that `is_shared` by many directories gets no path with `${workdir}`, which is another one in each.
    Raises `ByHand`, `NotKept`, `Unsound`, `PolicyMoved`, or an `OSError`.
    """
    if path.suffix == ".json":
        raise NotKept("it is JSON, which has no comments", "add the lines that `licet explain` names")
    before = read_regular(path, MOST_BYTES, links=False)
    text = _decoded(path, before)
    own = _sound(path, text, places, alone=True)
    if own.lock_problem is not None:
        raise Unsound(str(own.lock_problem))
    governed = _decided(path, text, places, admit, is_shared=is_shared)
    edits: dict[Edit, None] = {}
    for use in uses:
        edits |= dict.fromkeys(policy_edits(*_asked(governed, tool), use))
    if not edits:
        return None
    items = [Entry(edit.key, edit.text, comment, mark=ALLOWED) for edit in edits if isinstance(edit, Addition)]
    values = {edit.key: edit.value for edit in edits if not isinstance(edit, Addition)}
    for edit in edits:
        if visible(str(edit)) != str(edit):
            raise ByHand("its name has characters that cannot be seen")
    new_text = with_allowed(text, items, values, comment)
    new = replace(_sound(path, new_text, places, alone=True), lock_problem=None)
    _check_meaning(governed, _decided(path, new_text, places, admit, is_shared=is_shared), tool, uses)
    declaring = {edit.key[1] for edit in edits if edit.key[0] == "tools"}
    lock = own.lock and _lock_with(own.lock, path, (text, new_text), declaring, new.digest)
    known = acceptance(path, own.digest, lock_state(own)).answer == "accepted"
    standing = _standing_of(path, own, state)
    goes_on = standing is not None and own.approvals.keys is None and not _writes_more(own, new)
    return PolicyChange(
        path, before, new_text.encode(), tuple(edits), own, new, diff(own, new), known, lock, standing, goes_on
    )


def _decoded(path: Path, content: bytes) -> str:
    try:
        return content.decode()
    except ValueError:
        raise Unsound(f"{path} is not UTF-8") from None


def _sound(path: Path, text: str, places: Places, *, alone: bool) -> Manifest:
    policy = review(path, places=places, draft=text, alone=alone)
    if policy.manifest is None or not policy.sound:
        problems = [problem for problem in policy.problems if problem.severity == "error"]
        raise Unsound(f"{path} has errors: `licet check` lists them", problems)
    return policy.manifest


def _decided(path: Path, text: str, places: Places, admit: Govern, *, is_shared: bool) -> Manifest:
    """The policy as calls find it: narrowed by an organisation, with what no grant reaches closed."""
    manifest = replace(_sound(path, text, places, alone=False), lock_problem=None)
    if is_shared:
        roots = {name: directory for name, directory in manifest.roots.items() if name != "${workdir}"}
        manifest = replace(manifest, roots=roots)
    return closed_to_grants(admit(manifest), places.workdir)


def _asked(manifest: Manifest, tool: str) -> tuple[Manifest, str]:
    """The policy that has the tool which people mean by a name, and its name there."""
    name, policy = asked_tool(tool, manifest)
    return policy, name


def _check_meaning(old: Manifest, new: Manifest, tool: str, uses: Sequence[Use]) -> None:
    """Raise `NotKept` unless the new policy allows the uses, and no more than following the advice by hand would."""
    (before, name), (after, _) = _asked(old, tool), _asked(new, tool)
    for use in uses:
        if isinstance(foreseen(decide(Request(name, (use,)), after), after), Deny):
            raise NotKept("the new lines would not allow it")
        modelled = allowing(before, name, use)
        if modelled is None:
            raise NotKept("what else the new lines allow is not known")
        before = modelled
    wanted, written = meet_written_layers(before.layers), meet_written_layers(after.layers)
    if not (written <= wanted and class_fits(after.max_effect, before.max_effect)):
        raise NotKept("the new lines would allow more than that")


def _lock_with(lock: Lock, path: Path, texts: tuple[str, str], tools: set[str], digest: str) -> Lock:
    """The lock with the digest of the new policy, and the tools that declare more there. All else stays pinned."""
    was, now = (_locked(path, text, tools) for text in texts)
    if any(lock.tools.get(name) != was[name] for name in was):
        raise Unsound("the lock differs from the tools of today: review it with `licet lock --update` first")
    return replace(lock, manifests={**lock.manifests, path.name: digest}, tools={**lock.tools, **now})


def _locked(path: Path, text: str, tools: set[str]) -> dict[str, LockedTool]:
    manifest = read_policy(path, draft=text).manifest if tools else None
    return {} if manifest is None else locked_tools(manifest, [manifest.declare(()).tools[name] for name in tools])


def _standing_of(path: Path, manifest: Manifest, state: State) -> StandingApproval | None:
    known = replace(manifest, standing=None, standing_problem="")
    return with_standing(known, path, state).standing if deletes_to_approve(manifest) else None


def _writes_more(old: Manifest, new: Manifest) -> bool:
    """Whether a policy lets anything write or delete more than the one before it."""
    more = CapabilitySet(piece.rule for piece in meet_written_layers(new.layers) - meet_written_layers(old.layers))
    return bool((more & WRITES).allow) or not class_fits(new.max_effect, old.max_effect)


def _replace_lock(place: Path, lock: Lock, path: Path) -> None:
    try:
        replace_file(place, write_lock(lock), 0o666, keep_mode=True)
    except OSError as error:
        why = f"{place} cannot be written: {error.strerror}; {path} was changed"
        raise NotWritable(f"{why}, so nothing runs until `licet lock --update` has written the lock too") from None


def put_in_force(change: PolicyChange, places: Places, state: State) -> Written:
    """Write a change that a person has agreed to, and accept it. Raises `PolicyMoved` if a file is not as it was shown.

    The policy comes first: until its lock and the trust list have it too, gates refuse it, and never use the old one.
    """
    path, place = change.path, lock_place(change.path)
    check_writable(path)
    try:
        with locked_directory(os.path.dirname(os.path.abspath(path))):
            if read_regular(path, MOST_BYTES, links=False) != change.before:
                raise PolicyMoved(f"{path} has changed since it was shown: nothing was written; try again")
            now = _sound(path, change.before.decode(), places, alone=True)
            if lock_state(now) != lock_state(change.old):
                raise PolicyMoved(f"{place} has changed since it was shown: nothing was written; try again")
            replace_file(path, change.after, keep_mode=True)
            if change.lock is not None:
                _replace_lock(place, change.lock, path)
    except OSError as error:
        raise NotWritable(f"{path} cannot be written: {error.strerror}; nothing was changed") from None
    written = _sound(path, change.after.decode(), places, alone=True)
    if written.digest != change.digest or written.lock_problem is not None:
        raise PolicyMoved(f"{path} changed while it was written: review it with `licet diff` and `licet trust`")
    if change.is_accepted:
        accept_policy(path, written)
    bound = ""
    if change.standing is not None and change.standing_goes_on:
        bound = _bound_anew(change.standing, written, state)
    return Written(change.is_accepted, change.lock is not None, bound)


def _bound_anew(standing: StandingApproval, manifest: Manifest, state: State) -> str:
    store = standing_approvals(state)
    return asyncio.run(store.bind_anew(standing.id, manifest.digest, manifest.approvals)).request.id
