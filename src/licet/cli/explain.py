"""`licet explain`: whether a tool may do something, the rule that decides it and its place, and what would allow it.

A use is typed as in a rule, as a URL with or without its method, or as a path with or without its action.
"""

import asyncio
import json
import re
import shlex
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

import click

from licet.assemble import Places
from licet.assemble.never_writable import closed_to_grants
from licet.assemble.states import State
from licet.cli.discovery import complete_words, find_policy, named_first, named_or_found
from licet.cli.limits import GROWTH_LINES_SHOWN, TOOLS_SUGGESTED
from licet.cli.options import (
    MANIFEST,
    Setting,
    json_option,
    read,
    read_sound,
    setting_options,
    state_here,
    state_of_manifest,
)
from licet.cli.output import first_and_others, organisation_document, organisation_line, print_report, show, show_lines
from licet.core.algebra.rules import InvalidUse, Use
from licet.core.algebra.scope import visible
from licet.core.decision.decide import decide
from licet.core.decision.decision import Allow, Decision, Deny, asking_grounds, explain
from licet.core.decision.foreseen import foreseen
from licet.core.decision.reach import Reach, reach_of
from licet.core.decision.request import Request
from licet.core.policy.manifest import COMMANDS, PROGRAM, Manifest, asked_tool, check_command_use
from licet.core.policy.servers import CODING_AGENTS
from licet.core.review.allowing import growth_if_allowed
from licet.core.review.changes import Change
from licet.core.review.examples import asked_use, has_verb
from licet.core.review.policy_edits import is_allowable
from licet.core.values import nearest
from licet.errors import Refused
from licet.policy_files.load import read_policy
from licet.policy_files.policy_paths import PLACES as DEFAULT_PLACES


def one_use(words: tuple[str, ...], places: Places, *, commands: Manifest | None = None) -> Use:
    """Join the words of a command line to one use: `POST URL`, `write PATH`, or a single word."""
    # Two paths are not one path with a space in it: the answer would be about another path.
    joined = " ".join(words)
    if len(words) > 1 and not (len(words) == 2 and has_verb(joined)):
        raise InvalidUse(joined, "one use; ask about each by itself, and quote a path that holds spaces")
    return asked_use(joined, places.workdir, places.home, commands=commands)


_RECEIPT = re.compile(r"r-[0-9a-f]+-\d+")
COLOURS = {"allow": "green", "ask": "yellow", "deny": "red"}


@click.command(name="explain")
@click.argument(
    "words", metavar="[MANIFEST] TOOL [USE]|RECEIPT", nargs=-1, required=False, shell_complete=complete_words
)
@state_of_manifest("Where the receipt is kept.  [default: for this directory, below $XDG_STATE_HOME]")
@setting_options
@json_option
@click.pass_context
def command(
    ctx: click.Context,
    words: tuple[str, ...],
    state: State | None,
    setting: Setting,
) -> None:
    """Show why a tool may or may not do something, and what would allow it.

    The command prints the rules that decided, each with file and line, the change that would allow a denied use, and
    what else that change would allow.
    Without USE it shows whether the tool can be called at all. With only a RECEIPT it shows why that call ended as it
    did. MANIFEST is the policy in this directory if left out: .licet/licet.yaml, or licet.yaml. TOOL is `run` for any
    command of `licet run`, unless a tool has that name.

    \b
    USE is one concrete act; quote it if it has spaces:
      https://api.example.com/v1        a request; GET unless a method precedes it; for `run`, tcp,
                                        unless its host is under `inspect`
      POST https://api.example.com/v1
      /srv/data/a.csv                   a path; read unless `write` or `delete` precedes it
      write out.txt                     from the working directory, as is ./out.txt
      ${workdir}/out.txt, ~/notes       as in a rule
      secret:read:WEATHER_API_KEY       any use, as domain:action:scope
      process:exec:git

    \b
    Exit codes:
      0  allowed
      1  denied; or allowed only with approval; or the files have errors
      2  not a concrete use, or a bad command line
    """
    if len(words) == 1 and _RECEIPT.fullmatch(words[0]):
        _explain_receipt(ctx, words[0], state)
    if MANIFEST in ctx.meta:
        raise click.UsageError("--manifest goes with a RECEIPT; to ask about a tool, name its manifest before it", ctx)
    manifest, words = named_first(words)
    if not words:
        path = named_or_found(manifest, "[MANIFEST] TOOL [USE]|RECEIPT").path
        raise click.UsageError(f"Missing argument 'TOOL'{_choices(read_policy(path).manifest, manifest)}.", ctx)
    tool, *rest = words
    use = tuple(rest)
    places = Places.here(setting.workdir)
    try:
        uses = (one_use(use, places),) if use else ()
    except InvalidUse as wrong:
        here = manifest or find_policy()
        known = read_policy(here).manifest if here is not None else None
        is_tool = known is None or tool in _tools(known)
        more = "" if is_tool else f"; and `{visible(tool)}` is no tool{_choices(known, manifest)}"
        raise click.BadParameter(f"{wrong}{more}", ctx, param_hint="USE") from None
    named = named_or_found(manifest, "MANIFEST")
    policy = closed_to_grants(read_sound(named.path, setting), places.workdir)
    tool, policy = asked_tool(tool, policy)
    if tool == COMMANDS:
        uses = (one_use(use, places, commands=policy),) if use else ()
        try:
            check_command_use(*uses)
        except InvalidUse as wrong:
            raise click.BadParameter(str(wrong), ctx, param_hint="USE") from None
    decision = foreseen(decide(Request(tool, uses), policy), policy)
    refused = decision.use if isinstance(decision, Deny) else None
    growth = growth_if_allowed(policy, tool, refused) if refused is not None else None
    found = {**_document(decision, growth), **organisation_document(policy.organisations)}
    print_report(found, lambda _: _show(decision, policy, growth, manifest))
    ctx.exit(0 if isinstance(decision, Allow) else 1)


def _tools(manifest: Manifest) -> list[str]:
    """What can be explained under a manifest: its tools, and `run` if it allows programs."""
    names = sorted(manifest.admissions.keys() - {COMMANDS})
    programs = any(rule.capability.domain == "process" for layer in manifest.layers for rule in layer.allows)
    return [*names, *([PROGRAM] if programs and PROGRAM not in names else [])]


def _choices(manifest: Manifest | None, named: Path | None) -> str:
    """The tools that can be explained, and a command line that does; empty if there is none."""
    if manifest is None or not (names := _tools(manifest)):
        return ""
    few = names if len(names) <= TOOLS_SUGGESTED else [*names[: TOOLS_SUGGESTED - 1], "…", names[-1]]
    listed = ", ".join(few) + " (any command)" * (names[-1] not in manifest.admissions)
    file = f" {shlex.quote(str(named))}" if named is not None else ""
    return f": expected {listed}, such as `licet explain{file} {names[-1]} write out.txt`"


def _explain_receipt(ctx: click.Context, receipt: str, state: State | None) -> NoReturn:
    """Print why a call ended as it did, from its receipt."""
    from licet.cli.receipts import calls_of
    from licet.cli.receipts_text import ANY_MANIFEST, explanation, flow_lines

    entries = [entry for call in calls_of(receipt, state) if (entry := call.last) is not None]

    def text(_: object) -> None:
        for entry in entries:
            file = _policy_of(entry["manifest"], ctx.meta.get(MANIFEST), is_here=state is None)
            named = ANY_MANIFEST if file is None else shlex.quote(str(file))
            about_flow = [*flow_lines(entry, _arguments_of(entry, state))]
            for line in about_flow:
                show(line, colour=COLOURS[entry["verdict"]] if line is about_flow[0] else None)
            heading, *rest = explanation(entry, named, partial(_fixes_now, file))
            show(heading, colour=COLOURS[entry["verdict"]])
            show_lines(rest)

    each = ({"verdict": one["verdict"], "reason": one["reason"], "receipt": one} for one in entries)
    print_report(first_and_others(each), text)
    ctx.exit(0 if all(entry["verdict"] == "allow" for entry in entries) else 1)


def _arguments_of(entry: dict[str, Any], state: State | None) -> Mapping[str, object] | None:
    """The arguments of a call, as far as its receipt or its request for approval still has them."""
    kept = (entry.get("bodies") or {}).get("arguments")
    if kept:
        found: object = json.loads(kept)
        return found if isinstance(found, dict) else None
    request = (entry.get("flow") or {}).get("request")
    if not request:
        return None
    from licet.assemble.gate import stored_approvals
    from licet.backends.approvals.requests import CannotAnswer
    from licet.guard.ports import Unavailable

    try:
        return asyncio.run(stored_approvals(state or state_here()).find(request)).arguments
    except (CannotAnswer, Unavailable):
        return None


def _fixes_now(file: Path | None, tool: str, use: str, receipt: str) -> tuple[str, ...]:
    """The edits that would allow a refused use under the policy as it is now, and the command that makes them.

    Nothing if the policy is not known, or allows the use by now.
    """
    policy = None if file is None else read(file, Setting()).manifest
    if policy is None:
        return ()
    places = Places.here()
    name, policy = asked_tool(tool, with_tools_of_agent(closed_to_grants(policy, places.workdir), tool))
    try:
        uses = (Use(use),) if use else ()
    except InvalidUse:
        return ()
    decision = foreseen(decide(Request(name, uses), policy), policy)
    if not isinstance(decision, Deny):
        return ()
    fixes = tuple(dict.fromkeys(ground.fix for ground in decision.rules if ground.fix))
    if not (fixes and is_allowable(decision)):
        return fixes
    named = "" if file in DEFAULT_PLACES else f" --manifest {shlex.quote(str(file))}"
    return (*fixes, f"or run `licet allow {receipt}{named}`, at a terminal")


def agent_of_tool(tool: str) -> str:
    """The coding agent whose tool this is; empty if it is none."""
    name, dot, _ = tool.partition(".")
    return name if dot and name in CODING_AGENTS else ""


def is_shell_line(tool: str) -> bool:
    """Whether this is the tool with which a coding agent runs shell lines, which are programs."""
    if not (agent := agent_of_tool(tool)):
        return False
    from licet.hooks.agent_tools import tool_name
    from licet.hooks.agents import AGENTS

    return any(tool_name(agent, row.name) == tool and row.kind == "shell" for row in AGENTS[agent].tools.values())


def with_tools_of_agent(manifest: Manifest, tool: str) -> Manifest:
    """The manifest that admits the built-in tools of a coding agent, which no policy declares, if this is one."""
    if not (agent := agent_of_tool(tool)):
        return manifest
    from licet.hooks.agent_tools import admit_built_in, agent_tools
    from licet.hooks.agents import AGENTS

    tools = agent_tools(manifest, agent, AGENTS[agent].tools.values())
    return admit_built_in(manifest, tools).declare(one.spec for one in tools)


def _policy_of(digest: str, named: Path | None, *, is_here: bool) -> Path | None:
    """The policy file that a call was made with: the one that was named, or the one here that has its digest."""
    from licet.cli.diff import manifests_of

    if named is not None and named.is_file():
        return named
    try:
        files = manifests_of(named or Path())
        read_here = [(file, read(file, Setting(alone=True)).manifest) for file in files]
    except click.ClickException:
        return None
    same = [file for file, manifest in read_here if manifest is not None and manifest.digest == digest]
    # The policy may have changed since. If there is only one in the directory of this ledger, it is that one.
    found = same or (list(files) if len(files) == 1 and is_here else [])
    return found[0] if found else None


def _show(decision: Decision, manifest: Manifest, more: tuple[Change, ...] | None, named: Path | None) -> None:
    """Print a decision as a tree: the verdict, the checks that decided, the change that would allow it."""
    tool = decision.request.tool
    verdict, *lines = explain(decision, reach_of(manifest, tool)).splitlines()
    lines = [line.removeprefix("  ") for line in lines]
    if isinstance(decision, Deny) and decision.use is not None:
        refused = sum(line.startswith("because ") for line in lines)
        lines = [f"{'✗' if line.startswith('because ') else ' '} {line}" for line in lines]
        lines[refused:refused] = [f"✓ {line}" for line in _passed(decision.use, reach_of(manifest, tool))]
    known = manifest.admissions.keys() | manifest.tools.keys()
    if tool not in known and (near := nearest(tool, known)):
        lines.append(f"did you mean  {near}")
    elif tool not in known and (choices := _choices(manifest, named)):
        lines.append(f"known here    {choices.removeprefix(': expected ')}")
    lines += (f"  {line}" for line in _growth(more))
    lines += (f"  under         {organisation_line([above])}" for above in manifest.organisations)
    show(verdict, colour=COLOURS[decision.verdict])
    for number, line in enumerate(lines, 1):
        show(f"{'└─' if number == len(lines) else '├─'} {line}", colour=_MARKS.get(line[:1]))


_MARKS = {"✗": "red", "✓": "green"}


def _passed(use: Use, reach: Reach | None) -> Iterator[str]:
    """The checks that a refused use would pass."""
    if reach is None:
        return
    if reach.spec.touches.has(use):
        yield f"declared      `{reach.spec.name}` needs it"
    if reach.effect and reach.permitted.has(use):
        yield f"class         {reach.effect} permits it"
    for layer in reach.layers:
        rules = layer.nearest_allows(use) if layer.allowed.has(use) else []
        yield from (f"allowed by    {layer.title}: {rule.capability} ({rule.origin})" for rule in rules[:1])


def _growth(more: tuple[Change, ...] | None) -> Iterator[str]:
    """What else the change would allow."""
    if more is None:
        return
    for change in more[:GROWTH_LINES_SHOWN]:
        subject = f"{change.tool}: " if change.tool and not change.text.startswith("`") else ""
        yield f"also allows   {subject}{change.text} ({change.risk.level} risk)"
    if more[GROWTH_LINES_SHOWN:]:
        yield f"              and {len(more) - GROWTH_LINES_SHOWN} more"
    if not more:
        yield "also allows   nothing else"


def _document(decision: Decision, more: tuple[Change, ...] | None) -> dict[str, object]:
    refusal = None if isinstance(decision, Allow) else Refused(decision)
    uses = decision.request.uses
    asking = asking_grounds(decision.reach) if isinstance(decision, Allow) else ()
    return {
        "verdict": decision.verdict,
        "reason": refusal.code if refusal else None,
        "tool": decision.request.tool,
        "use": str(uses[0]) if uses else None,
        "rules": [
            {"text": ground.text, "reason": ground.reason, "origin": ground.origin, "fix": ground.fix or None}
            for ground in decision.rules
        ],
        "message": str(refusal) if refusal else None,
        "also_allows": more,
        **({"asks_about": [{"text": one.text, "origin": one.origin} for one in asking]} if asking else {}),
    }
