"""The directory where the backends of this machine keep their state."""

import hashlib
import shlex
from pathlib import Path

from licet.assemble.review import straight
from licet.policy_files.policy_paths import workspace_root
from licet.policy_files.user_directories import NoHome, state_root


def state_directory(workspace: Path) -> Path:
    """Return the directory where the backends of this machine keep their state for a workspace.

    A `.licet` directory belongs to its parent: a policy that moves there keeps its ledger, budgets and approvals.
    """
    root = state_root()
    if not root:
        raise NoHome
    place = workspace_root(straight(workspace))
    return Path(root) / hashlib.sha256(str(place).encode()).hexdigest()[:16]


def state_option(state: Path) -> str:
    """Return the `--state` option that a command needs to find a directory; empty if it looks there by default."""
    place = straight(state)
    try:
        found = place == state_directory(Path.cwd())
    except NoHome:
        found = False
    return "" if found else f" --state {shlex.quote(str(place))}"
