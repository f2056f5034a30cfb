"""The work of `licet hooks install` and `remove`: what is shown, what is asked, and what is done in which order.

The policy comes first, then the settings of agents: a hook without a policy refuses everything. Nothing is written
before all of it was shown.
"""

import asyncio
import os
import shlex
import sys
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal, get_args

import click
from msgspec import Struct
from msgspec.structs import replace

import licet
from licet.assemble.states import State
from licet.cli.hooks_policies import (
    PolicyPlan,
    enter,
    make_closed_in,
    plan_policies,
    show_plan,
    standing_step,
    tools_of,
    write_plan,
)
from licet.cli.init_mcp import Asking
from licet.cli.init_preset import AGENTS as KNOWN_AGENTS
from licet.cli.output import counted, fail, print_report, show, show_lines, show_problems, wants_json
from licet.clients.jsonc import BadConfig
from licet.clients.known import Unusable, read_own
from licet.hooks.agent_rules import RuleFile, UserRules, joined, read_rules, rule_files
from licet.hooks.agent_settings import SCOPES, Directories, Scope, found_hooks, targets
from licet.hooks.agents import AGENTS, NAMES
from licet.hooks.answering import client_words, service_alone
from licet.hooks.canary import Canary, deciding, try_command
from licet.hooks.install import (
    AgentPlan,
    Busy,
    Edit,
    codex_trust,
    find_agents,
    licet_inside,
    perform,
    plan_install,
    plan_removal,
    read_own_or_none,
    writing,
)
from licet.hooks.policy_choice import HookPolicies, NoPolicy, read_policies, write_policies
from licet.hooks.resident_control import stop_residents
from licet.hooks.switches import left_empty
from licet.policy_files.policy_paths import NoHome, home_directory

Way = Literal["walls", "hooks", "both"]  # how an agent is governed

_WHOLE = "licet init --preset coding && licet trust && licet run -- {}"
_BOTH = "licet run -- {}"  # the policy is there


class Outcome(Struct, frozen=True):
    """What came of one agent's installation."""

    agent: str
    changed: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()
    canary: Canary | None = None


def directories() -> Directories:
    """Where the settings of this user's agents lie; the project is the current directory. Exits without a home."""
    if not (home := home_directory()):
        fail(str(NoHome()))
    return Directories(Path(home), Path(os.path.realpath(Path.cwd())), dict(os.environ))


def name_state(state: State | None, *, own: bool) -> None:
    """Write down the state of all hooks, or show it."""
    if state is not None and own:
        raise click.UsageError("--own goes without a state")
    try:
        policies = read_policies()
        if state is not None or own:
            policies = replace(policies, state="" if state is None else state.spelled)
            write_policies(policies)
    except (NoPolicy, NoHome) as wrong:
        fail(str(wrong))
    print_report({"state": policies.state or None}, lambda _: show(policies.state or "a directory for each policy"))


# Install --------------------------------------------------------------------------------------------------------------


def install(named: Sequence[str], scope: Scope | None, policy: Path | None, *, yes: bool) -> None:
    """Show, ask about and make everything that the hooks of the agents here need."""
    asking, here, client = Asking(yes), directories(), client_words()
    _require_outside(here, client)
    agents = find_agents(here, named)
    if not agents:
        fail("no coding agent was found on PATH, and none has settings here: name one with --agent")
    is_root = hasattr(os, "geteuid") and os.geteuid() == 0
    try:
        plans = plan_install(agents, scope, here, client, is_root=is_root)
        policies = read_policies()
    except (Unusable, NoPolicy, NoHome) as wrong:
        fail(str(wrong))
    ways = {one.agent.name: _way(one, asking) for one in plans}
    if walled := [one for one in plans if ways[one.agent.name] == "walls"]:
        plans = [one for one in plans if one not in walled]
        _show_walls(walled, is_alone=not plans)
        if not plans:
            return
    good = [one for one in plans if not one.problem]
    names = [one.agent.name for one in good]
    rules = [_rules(name, here) for name in names]
    own = [_rules(name, here, user_only=True) for name in names]
    written = plan_policies(here, policies, policy, tools_of(names, rules), tools_of(names, own)) if good else []
    if not wants_json():
        _show(plans, written, rules, here, ways)
    is_settled = _is_settled(plans, written, policies.default)
    if not good or asking.only_shows or not (is_settled or _agrees(good, written, rules, asking)):
        _report_nothing(plans, written, rules, asking)
    problems: list[Any] = []
    accepted = {}
    try:
        with writing():
            for one in written:
                accepted[str(one.path)], more = write_plan(one, asking)
                problems += more
            enter(written, read_policies())
            made = make_closed_in(written)
            outcomes = [_install(one, here, client) for one in good]
    except (Busy, Unusable, NoPolicy) as wrong:
        fail(str(wrong))
    _report(plans, written, rules, outcomes, accepted, made, problems, ways)


def _is_offered_walls(plan: AgentPlan) -> bool:
    """Whether hooks would be new in an agent that lets calls run when a hook fails, and has no setting against it."""
    dialect = AGENTS[plan.agent.name]
    return bool(dialect.failing_hook_runs and not dialect.fail_closed and plan.edits and not plan.problem)


def _way(plan: AgentPlan, asking: Asking) -> Way:
    """Ask how an agent is to be governed. Where nobody can be asked: by hooks."""
    if asking.yes or asking.only_shows or not _is_offered_walls(plan):
        return "hooks"
    dialect = AGENTS[plan.agent.name]
    show(f"{dialect.product}: a call runs although its hook fails, after {', or '.join(dialect.failing_hook_runs)}")
    show("  walls   around the whole agent: they do not depend on a hook (recommended)")
    show("  hooks   in the agent, started as always: a decision on each call, walls around shell lines")
    show("  both    hooks in the agent, and walls around it")
    answer: Way = click.prompt("which?", type=click.Choice(get_args(Way)), default="walls", err=True)
    return answer


def _show_walls(plans: Sequence[AgentPlan], *, is_alone: bool) -> None:
    """Say how to start agents that get no hooks. With hooks of other agents, the policy of these is there already."""
    for one in plans:
        dialect = AGENTS[one.agent.name]
        how = (_WHOLE if is_alone else _BOTH).format(dialect.program)
        first = "" if is_alone else f", once this is done: {_named_model(one.agent.name)}"
        show(f"{dialect.product}: gets no hooks; start it so: {how}{first}")


def _named_model(agent: str) -> str:
    """What a policy of hooks lacks for a whole agent behind walls: the host of its model, and its key."""
    program = AGENTS[agent].program
    known = next((one for one in KNOWN_AGENTS if one.program == program), None)
    hosts = " and ".join(f"`{host}`" for host in known.hosts) if known else "the host"
    keys = " or ".join(f"`{key}`" for key in known.keys) if known else "the name of the key"
    product = AGENTS[agent].product
    return f"add {hosts} under `destinations: allow`, and {keys} to `env`: the model of {product} and its key"


def _require_outside(here: Directories, client: Sequence[str]) -> None:
    places = (sys.prefix, str(Path(licet.__file__).parent), os.path.dirname(client[0]))
    if place := licet_inside(here.project, *places):
        fail(
            f"this licet lies inside the project, in {place}",
            (
                "its files are closed to every line of an agent, so `pip install` could change nothing there any more",
                "install it elsewhere, and run that one: `pipx install licet`, or `uv tool install licet`",
            ),
        )


def _is_settled(plans: Sequence[AgentPlan], written: Sequence[PolicyPlan], default: str) -> bool:
    is_there = all(one.accepted and not one.is_new for one in written) and bool(default)
    return is_there and not any(one.edits for one in plans)


def _agrees(
    plans: Sequence[AgentPlan], written: Sequence[PolicyPlan], rules: Sequence[UserRules], asking: Asking
) -> bool:
    if any(one.others or one.problems for one in rules) and not asking.agrees(
        "go on, although the rules named above will not hold for shell lines any more?"
    ):
        return False
    if not asking.yes:
        files = list(dict.fromkeys(str(edit.place.path) for one in plans for edit in one.edits))
        hooks = f"puts hooks into {', '.join(files)}" if files else "leaves the hooks as they are"
        new = ", ".join(str(one.path) for one in written if one.is_new)
        show("")
        show(f"a yes {hooks}, and {f'writes and accepts the policies {new}' if new else 'writes no policy'}")
    return asking.agrees("write all of this?")


def _rules(agent: str, here: Directories, *, user_only: bool = False) -> UserRules:
    """The user's own rules about shell lines, of all files that count."""
    found = []
    for one in rule_files(agent, here):
        if user_only and one.base == here.project:
            continue
        try:
            for path, text in _texts(one):
                found.append(read_rules(agent, str(path), text))
        except (Unusable, BadConfig, OSError) as wrong:
            found.append(UserRules(agent, problems=(f"{one.path} cannot be read: {wrong}",)))
    return joined(agent, found)


def _texts(one: RuleFile) -> Iterable[tuple[Path, str]]:
    below = sorted(one.path.glob(f"*{one.ending}")) if one.ending and one.path.is_dir() else []
    for path in below if one.ending else [one.path]:
        if (seen := read_own(path, one.base)) is not None:
            yield path, seen.text


def _install(plan: AgentPlan, here: Directories, client: Sequence[str]) -> Outcome:
    """Write the hooks of one agent, and see that they refuse."""
    name, changed, problems = plan.agent.name, [], []
    for edit in plan.edits:
        try:
            perform(edit)
            changed.append(str(edit.place.path))
        except Unusable as wrong:
            problems.append(str(wrong))
    if name == "codex" and not problems:
        trusted = codex_trust(plan.agent.program, here, client, write=True)
        if trusted.problem:
            problems.append(trusted.problem)
        elif trusted.runs < trusted.hooks or not trusted.hooks:
            problems.append(f"Codex runs {trusted.runs} of {trusted.hooks} hooks: it does not trust the others")
    canary = None if problems else _canary(name, here)
    if canary is not None and canary.outcome != "refused":
        problems.append(f"the hook did not refuse a test call: {canary.why}")
    return Outcome(name, tuple(changed), tuple(problems), canary)


def _canary(agent: str, here: Directories) -> Canary | None:
    for one in targets(agent, here):
        seen = read_own_or_none(one)
        if seen is not None and (hook := deciding(agent, found_hooks(one, seen.text))) is not None:
            return try_command(agent, hook, here.project)
    return None


# What is shown --------------------------------------------------------------------------------------------------------


def _show(
    plans: Sequence[AgentPlan],
    written: Sequence[PolicyPlan],
    rules: Sequence[UserRules],
    here: Directories,
    ways: Mapping[str, Way],
) -> None:
    for one in plans:
        _show_agent(one, ways[one.agent.name])
    for each in rules:
        _show_rules(each)
    for place, policy in enumerate(written):
        show_plan(policy, written[0].text if place else "")
    if not any(one.directory for one in written):
        show(f"{here.project} gets no policy of its own: it would be about all of your files")


def _show_agent(plan: AgentPlan, way: Way) -> None:
    dialect = AGENTS[plan.agent.name]
    version = f" {plan.agent.version}" if plan.agent.version else ""
    show(f"{dialect.product}{version} ({plan.scope}): {plan.agent.program or 'no program on PATH'}")
    if plan.problem:
        show(f"  not touched: {plan.problem}", colour="yellow")
        return
    show_lines((f"  {note}" for note in plan.notes), colour="yellow")
    if dialect.failing_hook_runs:
        show(f"  when the hook fails, a call runs all the same after: {'; '.join(dialect.failing_hook_runs)}")
    if _is_offered_walls(plan) and way == "hooks":
        show(f"  not chosen: walls around the whole agent, which do not depend on it: {_WHOLE.format(dialect.program)}")
    for edit in plan.edits:
        show_edit(edit)
    if not plan.edits:
        show("  its hooks are there already")
    if plan.scope == "managed":
        show("  for all users of this machine: those without a policy of their own are refused every call")
    if plan.agent.name == "codex":
        show("  then Codex is asked, through `codex app-server`, to trust these hooks: it runs no others")


def show_edit(edit: Edit) -> None:
    """Print what changes in one file."""
    what = "a new file" if edit.before is None else "deleted" if edit.after is None else "changed"
    show(f"  {edit.place.path}: {what}")
    for line in edit.lines():
        show(f"    {line}", colour={"+": "green", "-": "red"}.get(line[:1]))


def _show_rules(rules: UserRules) -> None:
    product = AGENTS[rules.agent].product
    if rules.lines or rules.others or rules.problems:
        show(f"your own rules about shell lines of {product}: it will judge only the line that licet makes of them")
    for line in rules.lines:
        show(f"  {line.source} ({line.file}): into the policy, as `{'not' if line.verdict == 'deny' else 'ask'}`")
    for other in rules.others:
        show(f"  {other.source} ({other.file}): not in the policy: {other.why}", colour="yellow")
    show_lines((f"  {problem}" for problem in rules.problems), colour="yellow")


def _found(plans: Sequence[AgentPlan], written: Sequence[PolicyPlan], rules: Sequence[UserRules]) -> dict[str, Any]:
    agents = [
        {
            "agent": one.agent,
            "scope": one.scope,
            "edits": [{"path": edit.place.path, "diff": edit.lines()} for edit in one.edits],
            "problem": one.problem or None,
            "notes": one.notes,
            "runs_after_failure": AGENTS[one.agent.name].failing_hook_runs,
            "not_chosen": _WHOLE.format(AGENTS[one.agent.name].program) if _is_offered_walls(one) else None,
        }
        for one in plans
    ]
    policies = [
        {"directory": one.directory or None, "path": one.path, "text": one.text or None, "lacks": one.lacks}
        for one in written
    ]
    return {"agents": agents, "policies": policies, "rules": [_rules_document(one) for one in rules]}


def _rules_document(rules: UserRules) -> Mapping[str, Any]:
    return {
        "agent": rules.agent,
        "written": [{"rule": one.source, "file": one.file, "verdict": one.verdict} for one in rules.lines],
        "not_written": rules.others,
        "problems": rules.problems,
    }


def _report_nothing(
    plans: Sequence[AgentPlan], written: Sequence[PolicyPlan], rules: Sequence[UserRules], asking: Asking
) -> None:
    how = ": add --yes, or run it at a terminal, which asks" if asking.only_shows else ""
    found = {**_found(plans, written, rules), "changed": []}
    print_report(found, lambda _: show(f"nothing was changed{how}", err=True))
    click.get_current_context().exit(1)


def _report(
    plans: Sequence[AgentPlan],
    written: Sequence[PolicyPlan],
    rules: Sequence[UserRules],
    outcomes: Sequence[Outcome],
    accepted: Mapping[str, bool],
    made: Sequence[str],
    problems: Sequence[Any],
    ways: Mapping[str, Way],
) -> None:
    wrong = [f"{one.agent}: {problem}" for one in outcomes for problem in one.problems]
    wrong += [f"{one.agent.name}: {one.problem}" for one in plans if one.problem]
    steps = [
        f"licet trust {shlex.quote(path)}  (until then every call is refused)"
        for path, yes in accepted.items()
        if not yes
    ]
    steps += [step for one in written if accepted.get(str(one.path)) and (step := standing_step(one))]
    walled = [one.agent.name for one in plans if ways[one.agent.name] == "both"]
    both = [_BOTH.format(AGENTS[name].program) for name in walled]
    policy = next((one.path for one in written if one.directory), None)
    if policy is not None and walled:
        again = f"; then `licet trust {shlex.quote(str(policy))}`"
        steps = [*(f"in {policy}, {_named_model(name)}{again}" for name in walled), *steps]
    how = f"these so: {', '.join(both)}" if both else "as always"
    steps += [f"start your agents anew, {how}", "licet hooks status"]

    def text(_: object) -> None:
        show_problems(problems, err=True)
        for one in outcomes:
            refused = "" if one.canary is None or one.canary.outcome != "refused" else ": its hook refuses a test call"
            changes = f"changed {counted(len(one.changed), 'file')}" if one.changed else "nothing to change"
            show(f"{AGENTS[one.agent].product}: {changes}{refused}")
        if made:
            show(f"made, empty, because they are closed to agents: {', '.join(made)}")
        show_lines(wrong, err=True, colour="red")
        show("undo it with: licet hooks remove")
        show("next:")
        show_lines(f"  {number}. {step}" for number, step in enumerate(steps, 1))

    found = _found(plans, written, rules)
    print_report(
        {**found, "outcomes": outcomes, "accepted": accepted, "made": made, "problems": wrong, "next": steps}, text
    )
    if wrong or not all(accepted.values()):
        click.get_current_context().exit(1)


# Remove ---------------------------------------------------------------------------------------------------------------


def remove(named: Sequence[str], scope: Scope | None, *, yes: bool) -> None:
    """Show, ask about and make the removal of everything that was installed."""
    asking, here = Asking(yes), directories()
    scopes: tuple[Scope, ...] = (scope,) if scope else SCOPES
    try:
        edits, problems = plan_removal(named or NAMES, scopes, here)
    except (Unusable, NoHome) as wrong:
        fail(str(wrong))
    done: list[str] = []
    if not wants_json():
        for edit in edits:
            show_edit(edit)
    if edits and asking.agrees("take these out?"):
        try:
            with writing():
                for edit in edits:
                    try:
                        perform(edit)
                        done.append(str(edit.place.path))
                    except Unusable as wrong:
                        problems.append(str(wrong))
        except Busy as wrong:
            fail(str(wrong))
    if not asking.only_shows and not _has_hooks(here):
        stop_residents()
        asyncio.run(_end_sessions())
    stays = _what_stays(here)

    def text(_: object) -> None:
        show_lines(f"{path}: our hooks are out" for path in done)
        if not edits:
            show("no hooks of licet are in the settings of any agent here")
        elif not done:
            show("nothing was changed" + (": add --yes" if asking.only_shows else ""), err=True)
        show_lines(problems, err=True, colour="red")
        show_lines(f"stays: {one}" for one in stays)

    edited = [{"path": edit.place.path, "diff": edit.lines()} for edit in edits]
    print_report({"edits": edited, "changed": done, "problems": problems, "stays": stays}, text)
    if problems or (edits and not done):
        click.get_current_context().exit(1)


def _has_hooks(here: Directories) -> bool:
    """Whether hooks are in the settings of any agent, as far as they can be read."""
    for one in (place for name in NAMES for place in targets(name, here)):
        try:
            seen = read_own_or_none(one)
            if seen is not None and found_hooks(one, seen.text):
                return True
        except (Unusable, BadConfig):
            return True
    return False


async def _end_sessions() -> None:
    service = service_alone()
    try:
        await service.end_all()
    finally:
        await service.close()


def _empty(here: Directories, policies: HookPolicies) -> list[str]:
    """The directories of agents that were made empty, and still are, with the command that removes them."""
    files: list[str] = []
    found: list[str] = []
    for project in dict.fromkeys((str(here.project), *(one.directory for one in policies.projects))):
        with suppress(OSError):
            more, empty = left_empty(project)
            files, found = [*files, *more], [*found, *empty]
    if not found:
        return []
    command = f"rmdir {shlex.join(found)}"
    command = f"rm {shlex.join(files)}; {command}" if files else command
    return [f"{counted(len(found), 'empty directory', 'empty directories')} of agents; remove them with: {command}"]


def _what_stays(here: Directories) -> list[str]:
    try:
        policies = read_policies()
    except (NoPolicy, NoHome):
        return []
    found = [f"the policy {one.policy} of {one.directory}" for one in policies.projects]
    found += [f"the policy {policies.default} of every other directory"] if policies.default else []
    return [*found, "receipts and approvals", *_empty(here, policies)] if found else []
