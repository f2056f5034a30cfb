"""Which policy holds for a session of a coding agent: settled once, by the directory that the agent was started in.

`licet hooks install` keeps a list for the user: projects with their policies, and a policy for everything else. It lies
in licet's own state, which no grant reads or writes. The nearest directory of the list at or above the start wins. The
directory where the agent is later, which any `cd` moves, is never looked at.
"""

import json
import os
from pathlib import Path

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from licet.core.algebra.scope import inside
from licet.errors import LicetError
from licet.hooks.limits import LIST_BYTES
from licet.own_files import read_regular, replace_file
from licet.policy_files.policy_paths import NoHome, home_directory, state_root

_FORMAT = 1
_LIST = "policies.json"


class NoPolicy(LicetError):
    """No policy holds for a session, so each of its calls is refused. The text has the reason and the fix."""


class Project(Struct, frozen=True):
    """A directory, and the policy of the agents that are started in it or below it."""

    directory: str
    policy: str


class HookPolicies(Struct, frozen=True):
    """The list that `licet hooks install` keeps for one user."""

    projects: tuple[Project, ...] = ()
    default: str = ""  # the policy of sessions elsewhere; empty: there is none
    format: int = _FORMAT
    state: str = ""  # a state for all of them, such as a database; empty: that of each policy

    def with_project(self, directory: str, policy: str) -> "HookPolicies":
        """The list with one more project, or with another policy of one."""
        others = (one for one in self.projects if one.directory != directory)
        return replace(self, projects=(*others, Project(directory, policy)))

    def without_project(self, directory: str) -> "HookPolicies":
        """The list without a project."""
        return replace(self, projects=tuple(one for one in self.projects if one.directory != directory))


class Choice(Struct, frozen=True):
    """The policy of a session, and the directory that `${workdir}` is in it."""

    policy: str
    workdir: str
    is_default: bool = False
    state: str = ""  # the state that `licet hooks state` names; empty: that of the policy


def hooks_directory() -> Path:
    """The directory where the hooks keep their list and their sessions. Raises `NoHome`."""
    root = state_root()
    if not root:
        raise NoHome
    return Path(root) / "hooks"


def read_policies(directory: Path | None = None) -> HookPolicies:
    """The list of this user, empty if there is none yet; `NoPolicy` if it cannot be read."""
    path = (directory or hooks_directory()) / _LIST
    try:
        found = msgspec.json.decode(read_regular(path, LIST_BYTES, links=False), type=HookPolicies)
    except FileNotFoundError:
        return HookPolicies()
    except (OSError, msgspec.MsgspecError) as wrong:
        why = wrong.strerror if isinstance(wrong, OSError) else "it is not the list that `licet hooks install` writes"
        raise NoPolicy(f"{path} cannot be read: {why}; `licet hooks install` writes it anew") from None
    if found.format != _FORMAT:
        raise NoPolicy(f"{path} is of another version of licet: `licet hooks install` writes it anew")
    return found


def write_policies(policies: HookPolicies, directory: Path | None = None) -> Path:
    """Write the list; returns its path."""
    place = directory or hooks_directory()
    place.mkdir(mode=0o700, parents=True, exist_ok=True)
    path = place / _LIST
    replace_file(path, (json.dumps(msgspec.to_builtins(policies), indent=2) + "\n").encode())
    return path


def choose(start: str, policies: HookPolicies) -> Choice:
    """The policy for a session that was started in a directory. Raises `NoPolicy`."""
    place = os.path.realpath(start)
    around = [one for one in policies.projects if inside(place, (os.path.realpath(one.directory),))]
    if around:
        nearest = max(around, key=lambda one: len(os.path.realpath(one.directory)))
        return Choice(nearest.policy, os.path.realpath(nearest.directory), state=policies.state)
    if not policies.default:
        text = f"no policy holds in {place}: `licet hooks install`, run there, writes one for that project"
        raise NoPolicy(text)
    home = home_directory()
    if place == "/" or (home and inside(os.path.realpath(home), (place,))):
        why = "its working directory would be all of your files"
        raise NoPolicy(f"the default policy does not hold in {place}: {why}; start the agent in a project's directory")
    return Choice(policies.default, place, is_default=True, state=policies.state)
