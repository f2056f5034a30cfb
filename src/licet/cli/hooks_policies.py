"""The policies that `licet hooks install` writes and accepts: of the project, and of every other directory.

What it writes itself is accepted at once, as `licet init` does. A policy that is there already is shown first, as
`licet trust` shows it, and accepted by a person alone.
"""

import difflib
import os
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from licet.assemble.acceptance import PolicyMoved, accept_policy, review_of
from licet.cli.init_mcp import Asking
from licet.cli.init_preset import agent_name, coding_policy, installed_agents, obstacles, schema_path, write_policy
from licet.cli.options import Setting, read_sound
from licet.cli.output import fail, show, show_problems, wants_json
from licet.cli.trust import Standing, lacks_standing, show_review, stand
from licet.core.limits import MOST_STANDING_DAYS
from licet.core.policy.manifest import Manifest
from licet.core.values import Problem
from licet.errors import LicetError
from licet.hooks.agent_rules import UserRules, argument_rules
from licet.hooks.agent_settings import Directories
from licet.hooks.agents import AGENTS
from licet.hooks.policy_choice import HookPolicies, write_policies
from licet.hooks.switches import make_missing
from licet.own_files import is_there
from licet.policy_files.load import load_own_manifest
from licet.policy_files.policy_paths import PLACES, POLICY_DIRECTORY, WORKSPACE_FILE
from licet.policy_files.trust import is_accepted

_DENIED_CHANGE = re.compile(r"\+ +- \"fs:(?:write|delete):")
_FEW = 4  # lines that are not worth folding
_SEARCHES = re.compile(r"searches .*\bweb\b")


class PolicyPlan(Struct, frozen=True):
    """One policy: where it lies, and its text if it is to be written."""

    directory: str  # that it holds in; empty: everywhere else
    path: Path
    text: str = ""
    accepted: bool = False
    lacks: tuple[str, ...] = ()  # tools whose rules a policy that is there does not have

    @property
    def is_new(self) -> bool:
        """Whether it is to be written."""
        return bool(self.text)


def tools_of(agents: Iterable[str], rules: Iterable[UserRules]) -> dict[str, Any]:
    """The entries under `tools` of a policy: searches of the web, and the user's own rules about shell lines."""
    found: dict[str, Any] = {}
    for name in agents:
        rows = AGENTS[name].tools.values()
        found |= {f"{name}.{row.name}": {} for row in rows if row.kind == "service" and _SEARCHES.match(row.about)}
    for one in rules:
        found |= argument_rules(one)
    return found


def plan_policies(
    here: Directories,
    policies: HookPolicies,
    named: Path | None,
    project_tools: Mapping[str, Any],
    user_tools: Mapping[str, Any],
) -> list[PolicyPlan]:
    """The policy of the project, unless the current directory can have none, and that of every other directory."""
    found = []
    if not _is_too_wide(here):
        found.append(_of_project(here, policies, named, project_tools))
    elif named is not None:
        fail(f"{here.project} can have no policy of its own: it would be about all of your files")
    found.append(_default(here, policies, user_tools))
    return found


def _is_too_wide(here: Directories) -> bool:
    project, home = os.path.realpath(here.project), os.path.realpath(here.home)
    return project == "/" or home == project or home.startswith(f"{project}/")


def _of_project(here: Directories, policies: HookPolicies, named: Path | None, tools: Mapping[str, Any]) -> PolicyPlan:
    directory = os.path.realpath(here.project)
    listed = next((one.policy for one in policies.projects if one.directory == directory), "")
    places = [here.project / place for place in PLACES]
    there = named or (Path(listed) if listed and is_there(listed) else None)
    there = there or next((place for place in places if is_there(place)), None)
    if there is not None:
        return _there(directory, Path(os.path.realpath(there)), tools)
    path = Path(directory, POLICY_DIRECTORY, WORKSPACE_FILE)
    _require_place(path)
    text = coding_policy(agent_name(here.project), schema_path(path), installed_agents(), Path(directory), tools)
    return PolicyPlan(directory, path, text)


def _default(here: Directories, policies: HookPolicies, tools: Mapping[str, Any]) -> PolicyPlan:
    if policies.default and is_there(policies.default):
        return _there("", Path(os.path.realpath(policies.default)), tools)
    folder = Path(os.path.realpath(here.moved("XDG_CONFIG_HOME", ".config")[0] / "licet"))
    path = folder / "default.yaml"
    if is_there(path):
        return _there("", path, tools)
    agents = installed_agents()
    return PolicyPlan("", path, coding_policy("default", schema_path(path), agents, folder, tools, everywhere=True))


def _there(directory: str, path: Path, tools: Mapping[str, Any]) -> PolicyPlan:
    try:
        manifest = load_own_manifest(path)
    except (LicetError, OSError) as wrong:
        fail(f"{path} cannot be used as the policy of hooks: {str(wrong).splitlines()[0]}")
    lacks = tuple(name for name, entry in tools.items() if entry and name not in manifest.admissions)
    return PolicyPlan(directory, path, accepted=is_accepted(path, manifest), lacks=lacks)


def _require_place(path: Path) -> None:
    if problems := obstacles(path, False):
        show_problems(problems, err=True)
        fail(f"{path} cannot be written")


def show_plan(plan: PolicyPlan, shown: str = "") -> None:
    """Print what happens to one policy. Of one that is much like the text that was shown, only what differs is."""
    where = plan.directory or "every other directory"
    if plan.is_new:
        show(f"a new policy for {where}: {plan.path}")
        if shown:
            show("  the same as the one above, but for these lines:")
        old = shown.splitlines()
        differ = (line for line in difflib.ndiff(old, plan.text.splitlines()) if line[0] in "+-")
        lines = differ if shown else (f"+ {line}" for line in plan.text.splitlines())
        for line in _folded(lines):
            show(f"  {line}", colour="green" if line[0] == "+" else "red")
    else:
        show(f"the policy for {where}: {plan.path}{'' if plan.accepted else ' (not accepted yet)'}")
    if plan.lacks:
        names = ", ".join(plan.lacks)
        text = f"it has no rules for {names}: yours about shell lines, which are named above, do not hold under it"
        show(f"  {text}", err=True, colour="yellow")


def _folded(lines: Iterable[str]) -> Iterator[str]:
    """Lines of a policy, with the many denied writes in one; denied reads, and what a policy lacks, are all shown."""
    for is_denied, some in groupby(lines, lambda line: _DENIED_CHANGE.match(line) is not None):
        names = list(some)
        if not is_denied or len(names) < _FEW:
            yield from names
            continue
        count = len({name.split('"')[1].partition("${workdir}")[2] for name in names})
        yield f"+     … (no writes to {count} names that other programs run or trust: --json lists them)"


def write_plan(plan: PolicyPlan, asking: Asking) -> tuple[bool, list[Problem]]:
    """Write and accept one policy; returns whether it is accepted, and what went wrong."""
    if plan.is_new:
        if not plan.directory:
            plan.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            _require_place(plan.path)
        problems = write_policy(plan.path, plan.text)
        manifest = load_own_manifest(plan.path)
        accepted = is_accepted(plan.path, manifest)
    else:
        problems, accepted = [], plan.accepted or _review(plan.path, asking)
    if accepted and not asking.yes and not wants_json():
        stand(plan.path, _sound(plan), _standing(plan), asks=True)
    return accepted, problems


def standing_step(plan: PolicyPlan) -> str:
    """The command with which a person agrees to the deletes of an accepted policy; empty if that is done."""
    if not lacks_standing(plan.path, _sound(plan), _standing(plan)):
        return ""
    is_found = plan.path in [Path(plan.directory, place) for place in PLACES] if plan.directory else False
    where = "here" if plan.directory else "in every other directory"
    command = "licet trust" if is_found else f"licet trust {shlex.quote(str(plan.path))}"
    return f"{command}  (at a terminal: agree to renames and deletes {where}, which are asked about until then)"


def _sound(plan: PolicyPlan) -> Manifest:
    return read_sound(plan.path, Setting(workdir=Path(plan.directory) if plan.directory else None, alone=True))


def _standing(plan: PolicyPlan) -> Standing:
    return Standing(
        MOST_STANDING_DAYS, Path(plan.directory) if plan.directory else None, None, anywhere=not plan.directory
    )


def _review(path: Path, asking: Asking) -> bool:
    """Show a policy that is there, and ask a person to accept it. `--yes` accepts nothing that it did not write."""
    if asking.yes or asking.only_shows:
        return False
    manifest = read_sound(path, Setting(workdir=None, alone=True))
    show_review(path, manifest, review_of(path, manifest))
    if not asking.agrees(f"accept {path}?"):
        return False
    try:
        accept_policy(path, manifest)
    except (PolicyMoved, OSError) as wrong:
        show(f"it could not be accepted: {wrong}", err=True, colour="yellow")
        return False
    return True


def enter(plans: Sequence[PolicyPlan], policies: HookPolicies) -> HookPolicies:
    """Enter policies in the list that hooks choose from, and make what must be closed in the project."""
    for plan in plans:
        if plan.directory:
            policies = policies.with_project(plan.directory, str(plan.path))
        else:
            policies = replace(policies, default=str(plan.path))
    write_policies(policies)
    return policies


def make_closed_in(plans: Sequence[PolicyPlan]) -> list[str]:
    """Make the missing directories of agents in the project, empty. Returns their names."""
    return [name for plan in plans if plan.directory for name in make_missing(plan.directory)]
