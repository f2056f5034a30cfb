"""`licet allow`: puts the smallest change into a policy that allows what was refused, once a person has agreed.

It is for a person at a terminal: there is no option that agrees, and behind walls the kernel keeps the policy closed.
What a receipt says was chosen by a model or a program. So it is a use and nothing more; the lines are made from it.
"""

import os
import re
import shlex
import sys
import termios
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

import click
from msgspec import Struct

from licet.assemble import Places
from licet.assemble.acceptance import PolicyMoved
from licet.assemble.policy_change import (
    NotWritable,
    PolicyChange,
    Unsound,
    Written,
    check_writable,
    plan,
    put_in_force,
)
from licet.assemble.states import State
from licet.backends.approvals.requests import CannotAnswer
from licet.cli.advised_paths import real_use, why_not_advised
from licet.cli.diff import show_changes
from licet.cli.discovery import Named, complete_words, find_policy, named_first, nothing_here, require_trust
from licet.cli.explain import agent_of_tool, is_shell_line, one_use, with_tools_of_agent
from licet.cli.limits import USES_SHOWN
from licet.cli.options import FILE, MANIFEST, Setting, json_option, read_sound, state_of_manifest, state_of_policy
from licet.cli.output import fail, print_report, shortened, show, show_lines, show_problems, wants_json
from licet.core.algebra.rules import InvalidUse, Use, use_of_path
from licet.core.algebra.scope import inside, visible
from licet.core.algebra.set import CapabilitySet
from licet.core.decision.request import REASON_OF_DOMAIN
from licet.core.policy.layer import POLICY
from licet.core.policy.manifest import COMMANDS, PROGRAM, Manifest, asked_tool, check_command_use
from licet.core.review.mixed_scripts import mixed_look
from licet.core.review.policy_edits import ByHand
from licet.core.review.sensitive import TRUSTED, Whereabouts, why_sensitive
from licet.core.values import CHECK_AND_RUN
from licet.guard.ports import LedgerUnavailable, Unavailable
from licet.policy_files.additions import NotKept
from licet.policy_files.policy_paths import NoHome, home_directory, names_of_policy, shown_path
from licet.policy_files.trust import TrustListError

_RECEIPT = re.compile(r"r-[0-9a-f]+-\d+")
_ESCAPED = re.compile(r"\\u[0-9a-f]{4}")  # as `visible` writes them
_LACKING = frozenset({*REASON_OF_DOMAIN.values(), "SIDE_EFFECT_EXCEEDED"})  # what a line of policy may allow
_ASKS = "`licet allow` asks a person, at a terminal"


class Wish(Struct, frozen=True):
    """What is to be allowed, to which tool, and where that comes from."""

    tool: str
    uses: tuple[Use, ...]
    receipt: str = ""
    manifest: str = ""  # the digest of the policy that the receipt is about
    agent: str = ""

    @property
    def comment(self) -> str:
        """What a line says about why it is there. No text of a model is in it."""
        return self.receipt or "with `licet allow`"


class Policy(Struct, frozen=True):
    """The policy that is changed, and how its uses are named."""

    path: Path
    by_hand: bool
    places: Places
    is_shared: bool = False  # the policy of hooks for any directory without one


@click.command(name="allow")
@click.argument(
    "words", metavar="RECEIPT [USE]|[MANIFEST] [TOOL] USE", nargs=-1, required=True, shell_complete=complete_words
)
@click.option(
    "--workdir", metavar="DIR", type=FILE, help="The value of `${workdir}`.  [default: the current directory]"
)
@state_of_manifest("Where the receipt is kept.  [default: for this directory, below $XDG_STATE_HOME]")
@json_option
@click.pass_context
def command(ctx: click.Context, words: tuple[str, ...], workdir: Path | None, state: State | None) -> None:
    """Allow what was refused: change the policy by the smallest edit that does, after showing it and asking once.

    The edit is the one that `licet explain` names. It is shown as lines of the file, and as what agents can do more
    after it, with the risk, as `licet diff` says it. If you agree, the lines are written, with a comment that names the
    receipt, and if you had accepted the policy and its lock, they are accepted as they are then. A standing approval of
    deletes goes on if the edit allows no write and no delete.

    \b
      licet allow r-1f3a9c-12                    what this call was refused
      licet allow r-1f3a9c-12 https://a.example  one of several things that it was refused
      licet allow write out                      for any command of `licet run`
      licet allow fetch_weather https://api.weather.gov
      licet allow agent.yaml run /srv/data       in a policy that you name

    It asks at a terminal alone: a program, a hook and a command behind walls change no policy. Keys, homes, what other
    programs run or trust, private addresses, denies, the code of tools, and what your organisation says are for your
    own editor. MANIFEST is the policy in this directory if left out, and else that of the hooks.

    \b
    Exit codes:
      0  written, or it is allowed already
      1  nothing was written: no agreement, no terminal, not for this command, errors in the files
      2  bad command line, or not a concrete use
    """
    try:
        _allow(ctx, words, workdir, state)
    except ByHand as why:
        fixes = [f"  in an editor  {fix}" for fix in why.fixes]
        fail(f"this is for your own editor: {why}", fixes)
    except NotKept as why:
        fail(f"the file cannot be changed: {why}; {why.advice}")
    except Unsound as why:
        show_problems(why.problems, err=True)
        fail(str(why))
    except (
        NotWritable,
        PolicyMoved,
        TrustListError,
        NoHome,
        CannotAnswer,
        Unavailable,
        LedgerUnavailable,
        OSError,
    ) as why:
        fail(str(why))


def _allow(ctx: click.Context, words: tuple[str, ...], workdir: Path | None, state: State | None) -> None:
    is_receipt = _RECEIPT.fullmatch(words[0]) is not None
    if MANIFEST in ctx.meta and not is_receipt:
        raise click.UsageError("--manifest goes with a RECEIPT; else name the manifest first", ctx)
    named, words = (ctx.meta.get(MANIFEST), words) if is_receipt else named_first(words)
    policy = _policy(named, workdir)
    check_writable(policy.path)  # behind walls, this is what must be said
    manifest = read_sound(policy.path, Setting(workdir=workdir, alone=True))
    require_trust(Named(policy.path, by_hand=policy.by_hand), manifest)
    if is_receipt:
        wish = _of_receipt(ctx, words[0], words[1:], policy, manifest, state)
    else:
        wish = _of_words(ctx, words, policy, manifest)
    for use in wish.uses:
        _check_ordinary(use, policy.places.workdir, manifest)
        if is_shell_line(wish.tool) or asked_tool(wish.tool, manifest)[0] == COMMANDS:
            _check_helps(use)
    standing_state = state or state_of_policy(policy.path)
    change = plan(
        policy.path,
        wish.tool,
        wish.uses,
        policy.places,
        standing_state,
        comment=wish.comment,
        admit=partial(with_tools_of_agent, tool=wish.tool),
        is_shared=policy.is_shared,
    )
    if change is None:
        _report_allowed(wish, policy)
        return
    if wish.manifest not in ("", manifest.digest) and not wants_json():
        show("the policy was changed after this call: the lines are for what it says now", err=True)
    if wants_json() or not sys.stdin.isatty():
        print_report(_document(change, wish), lambda _: _show(change, wish))
        show(f"nothing was written: {_ASKS}", err=True, colour="yellow")
        ctx.exit(1)
    _show(change, wish)
    with suppress(termios.error):
        termios.tcflush(sys.stdin, termios.TCIFLUSH)  # what was typed before it was shown is no answer to it
    if not click.confirm(f"change {visible(shown_path(change.path))} like this?", err=True):
        show("nothing was written", err=True)
        ctx.exit(1)
    _show_written(change, put_in_force(change, policy.places, standing_state))


# What is to be allowed ------------------------------------------------------------------------------------------------


def _policy(named: Path | None, workdir: Path | None) -> Policy:
    if (path := named or find_policy()) is not None:
        return Policy(path, named is not None, Places.here(workdir))
    from licet.hooks.policy_choice import NoPolicy, choose, read_policies

    try:
        choice = choose(os.getcwd(), read_policies())
    except (NoPolicy, NoHome):
        raise click.UsageError(nothing_here()) from None
    return Policy(Path(choice.policy), False, Places.here(workdir or choice.workdir), choice.is_default)


def _of_words(ctx: click.Context, words: tuple[str, ...], policy: Policy, manifest: Manifest) -> Wish:
    if not words:
        raise click.UsageError("Missing argument 'USE', such as `licet allow write out.txt`.", ctx)
    tool, rest = PROGRAM, words
    if words[0] == PROGRAM or words[0] in manifest.admissions or agent_of_tool(words[0]):
        tool, rest = words[0], words[1:]
    if not rest:
        raise click.UsageError(f"Missing argument 'USE': what may `{visible(tool)}` do?", ctx)
    return Wish(tool, (_use(ctx, rest, tool, policy, manifest),))


def _use(ctx: click.Context, words: tuple[str, ...], tool: str, policy: Policy, manifest: Manifest) -> Use:
    name, governed = asked_tool(tool, manifest)
    try:
        is_command = name == COMMANDS or is_shell_line(tool)
        use = one_use(words, policy.places, commands=governed if is_command else None)
        if name == COMMANDS:
            check_command_use(use)
    except InvalidUse as wrong:
        raise click.BadParameter(str(wrong), ctx, param_hint="USE") from None
    return use


def _of_receipt(
    ctx: click.Context, receipt: str, words: tuple[str, ...], policy: Policy, manifest: Manifest, state: State | None
) -> Wish:
    """What a receipt of this policy says was refused; of several things, the one that is named."""
    from licet.cli.receipts import calls_of

    # The calls of a policy for any directory are kept with the directory.
    place = state if state is not None or not (policy.by_hand or policy.is_shared) else None
    entries = [entry for call in calls_of(receipt, place) if (entry := call.last) is not None]
    if len(entries) != 1 or entries[0]["kind"] != "receipt":
        fail(f"{receipt} is not the receipt of one call that has ended: see `licet receipts show {receipt}`")
    entry = entries[0]
    if entry["agent"] == CHECK_AND_RUN or entry["agent"] != manifest.agent:
        found = f"{receipt} is of the agent `{visible(entry['agent'])}`"
        other = f"{shown_path(policy.path)} is for `{visible(manifest.agent)}`"
        fail(f"{found}, and {other}: name the policy with --manifest")
    if state is not None and MANIFEST not in ctx.meta and entry["manifest"] != manifest.digest:
        fail(f"{receipt} is of another policy than {shown_path(policy.path)}, or of it before it was changed")
    uses = _refused_uses(entry)
    if words:
        wanted = _use(ctx, words, entry["tool"], policy, manifest)
        if wanted not in uses:
            fail(f"{receipt} was not refused {visible(str(wanted))}", _choices(receipt, uses))
        uses = (wanted,)
    if not uses:
        _fail_without_use(entry)
    if len(uses) > 1:
        fail(f"{receipt} was refused {len(uses)} things: name the one that you want to allow", _choices(receipt, uses))
    return Wish(entry["tool"], uses, receipt, entry["manifest"], entry["agent"])


def _refused_uses(entry: Mapping[str, Any]) -> tuple[Use, ...]:
    """The uses that rules were missing for, each once. A program chose what it tried, and a model what it asked for.

    Receipts have characters that cannot be seen as escapes: what they stand for is not known any more.
    """
    found: dict[Use, None] = {}
    for event in entry["events"]:
        text = str(event.get("capability") or "")
        if event["kind"] == "CapabilityDenied" and event.get("reason") in _LACKING and not text.startswith("tool:"):
            if _ESCAPED.search(text):
                raise ByHand("its name has characters that cannot be seen")
            try:
                found[Use(text)] = None
            except InvalidUse:  # such as an event that summarises many others
                continue
    return tuple(found)


def _choices(receipt: str, uses: tuple[Use, ...]) -> list[str]:
    lines = [f"  licet allow {receipt} {shlex.quote(str(use))}" for use in uses[:USES_SHOWN]]
    return (
        [*lines, f"  and {len(uses) - USES_SHOWN} more: `licet receipts show {receipt}`"]
        if uses[USES_SHOWN:]
        else lines
    )


def _fail_without_use(entry: Mapping[str, Any]) -> NoReturn:
    receipt, reason = entry["id"], entry["reason"]
    if entry["verdict"] == "ask" or reason.startswith("APPROVAL_"):
        fail(f"{receipt} waits for approval, which `licet approvals list` shows: no line of policy is missing")
    if entry["verdict"] == "allow":
        fail(f"{receipt} was refused nothing")
    raise ByHand(f"{receipt} was refused for {reason}: {visible('; '.join(entry['rules']) or entry['error'])}")


def _check_helps(use: Use) -> None:
    """Exit where a line would be of no use: walls let a program make a name only in a directory that it may write."""
    if f"{use.domain}:{use.action}" == "fs:write" and not os.path.lexists(use.target):
        why = "is not there, and a program makes a new file only where it may write the directory"
        folder = shlex.quote(os.path.dirname(use.target))
        fail(f"{visible(use.target)} {why}: make it first, or `licet allow write {folder}`")


def _check_closed(use: Use, workdir: str, manifest: Manifest) -> None:
    """Raise `ByHand` for a write of policy, and of a directory with names that other programs act on.

    Such names are let through where the policy denies them. Those that are missing count in the working directory.
    """
    if any(inside(use.target, (name,)) for name in names_of_policy(use.target, workdir)):
        raise ByHand(POLICY)
    denied = CapabilitySet(["fs:write:*"], [rule.capability for layer in manifest.layers for rule in layer.denies])
    for trusted in TRUSTED if os.path.isdir(use.target) or inside(workdir, (use.target,)) else ():
        path = os.path.join(use.target, trusted.path)
        is_expected = trusted.closing == "always" and inside(workdir, (use.target,))
        is_closed = trusted.closing == "never" or not (is_expected or os.path.lexists(path))
        if not is_closed and denied.has(use_of_path("write", path)):
            raise ByHand(f"`{visible(path)}` is in it, and not denied: {trusted.why}")


def _check_ordinary(use: Use, workdir: str, manifest: Manifest) -> None:
    """Raise `ByHand` for what nobody should open by agreeing to a line that somebody else began."""
    try:
        # A delete is judged as a write of the same name is: here a person agrees to it.
        judged = Use(f"{use.domain}:write:{use.target}") if use.effect == "delete" and use.domain == "fs" else use
        if use.domain == "fs":
            if judged.action == "write":
                _check_closed(judged, workdir, manifest)
            if why := why_not_advised(judged, workdir):
                raise ByHand(why)
            if (real := real_use(use)) != use:
                raise ByHand(f"it leads to `{visible(real.target)}`: name that, if you want to allow it")
        elif why := why_sensitive(use, Whereabouts(workdir, home_directory())):
            raise ByHand(why)
    except InvalidUse:
        raise ByHand("no rule can name it") from None


# What is shown --------------------------------------------------------------------------------------------------------


def _report_allowed(wish: Wish, policy: Policy) -> None:
    what = ", ".join(visible(str(use)) for use in wish.uses)
    text = f"`{visible(wish.tool)}` may {what} already, under {shown_path(policy.path)}: nothing was changed"
    about = {"file": shown_path(policy.path), "uses": list(map(str, wish.uses)), "allowed": True, "written": False}
    print_report(about, lambda _: show(text))


def _show(change: PolicyChange, wish: Wish) -> None:
    what = ", ".join(str(use) for use in wish.uses)
    show(f"{shown_path(change.path)}, so that `{wish.tool}` may {what}:")
    show_lines(f"  {line}" for line in change.lines)
    show("what it allows more:")
    show_changes(change.changes, shortened(None))
    for line in _consequences(change, wish):
        show(line)


def _consequences(change: PolicyChange, wish: Wish) -> list[str]:
    hosts = [use.target for use in wish.uses if use.domain == "network"]
    lines = [f"`{host}` {looks}" for host in hosts if (looks := mixed_look(host))]
    approvals = change.new.approvals.delete
    is_approved = approvals == "manifest" and change.standing is not None and change.standing_goes_on
    if any(use.effect == "delete" for use in wish.uses) and not is_approved:
        lines.append(f"the delete still needs an approval (`approvals.delete: {approvals}`): see `licet trust`")
    if not change.is_accepted:
        lines.append("the policy is not accepted as it is now, and stays so: `licet trust` accepts it")
    if change.standing is not None:
        text = "goes on until it ends" if change.standing_goes_on else "ends: `licet trust` gives one again"
        lines.append(f"its standing approval of deletes, {change.standing.id}, {text}")
    return lines


def _show_written(change: PolicyChange, written: Written) -> None:
    accepted = ", and accepted it" if written.is_accepted else ""
    locked = " with its lock" if written.is_locked else ""
    show(f"wrote {shown_path(change.path)}{locked}{accepted}", colour="green")
    if written.standing:
        show(f"standing approval {written.standing} takes the place of {change.standing.id if change.standing else ''}")


def _document(change: PolicyChange, wish: Wish) -> dict[str, object]:
    return {
        "file": shown_path(change.path),
        "receipt": wish.receipt or None,
        "tool": wish.tool,
        "uses": list(map(str, wish.uses)),
        "allowed": False,
        "edits": list(map(str, change.edits)),
        "lines": list(change.lines),
        "changes": change.changes.document(),
        "accepted": change.is_accepted,
        "standing": change.standing.id if change.standing is not None else None,
        "standing_goes_on": change.standing_goes_on,
        "written": False,
    }
