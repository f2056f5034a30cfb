"""Accepts the policy that `licet init --mcp` has written to: the entries of clients start nothing else.

What the user agreed to is accepted at once. A policy that was there before and not accepted is shown first, as
`licet trust` shows it: the command added servers to it, and somebody else may have written the rest.
"""

import os
from collections.abc import Callable
from pathlib import Path

from licet.assemble.locking import lock_place
from licet.assemble.trust import accept_policy
from licet.core.policy.manifest import Manifest
from licet.errors import LicetError
from licet.policy_files.load import load_own_manifest
from licet.policy_files.pins import lock_state
from licet.policy_files.policy_paths import shown_path
from licet.policy_files.syntax import MOST_BYTES
from licet.policy_files.trust_list import TrustListError, is_trusted
from licet.regular_files import read_regular
from licet.surfaces.cli.init_mcp_plan import Policy
from licet.surfaces.cli.options import Setting, read_sound
from licet.surfaces.cli.output import show
from licet.surfaces.cli.trust import review_of, show_review


def is_accepted(manifest: Manifest, policy: Policy) -> bool:
    """Whether this user has accepted a policy and its lock as they are."""
    try:
        return is_trusted(policy.manifest, manifest.digest, lock_state(manifest))
    except TrustListError:  # then nothing is trusted
        return False


def texts_besides(file: Path, manifest: Manifest) -> dict[str, str]:
    """The texts of the files of a policy, without the one that servers are added to."""
    others = (one for one in manifest.files if os.path.realpath(one) != os.path.realpath(file))
    return {one: read_regular(one, MOST_BYTES).decode("utf-8") for one in others}


def _changed(policy: Policy, text: str, manifest: Manifest) -> str:
    """What is not as it was when the user was asked, of a policy that is not shown again; empty if nothing."""
    if read_regular(policy.file, MOST_BYTES, links=False).decode("utf-8") != text:
        return str(policy.file)
    if not policy.accepted:  # then all of it has been shown since, and `accept_policy` compares
        return ""
    if texts_besides(policy.file, manifest) != policy.others:
        return "another file of the policy"
    return str(lock_place(policy.manifest)) if lock_state(manifest) != policy.lock else ""


def accept_edited(policy: Policy, text: str, agrees: Callable[[str], bool], *, quiet: bool) -> bool:
    """Accept the policy after servers were added, which made its file `text`; False if it is not accepted."""
    try:
        manifest = load_own_manifest(policy.manifest)
        if is_accepted(manifest, policy):
            return True
        if not policy.accepted:
            manifest = read_sound(policy.manifest, Setting(workdir=policy.root, alone=True), quiet)
            if not quiet:
                show_review(policy.manifest, manifest, review_of(policy.manifest, manifest))
            if not agrees(f"accept {shown_path(policy.manifest)}, so that clients may start it?"):
                return False
        if changed := _changed(policy, text, manifest):
            show(f"{changed} changed meanwhile, and was not accepted", err=True, colour="yellow")
            return False
        accept_policy(policy.manifest, manifest)
    except (LicetError, OSError, ValueError) as wrong:
        show(f"the policy could not be accepted: {wrong}", err=True, colour="yellow")
        return False
    return True
