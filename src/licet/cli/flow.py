"""`licet flow`: what the rules of `flow:` say about calls that were made.

`licet flow replay` judges the calls of a ledger again, under another manifest.
"""

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import get_args

import click
from msgspec import Struct

from licet.assemble import Places
from licet.assemble.flow_replay import Replay, Replayed, Would, replayed
from licet.assemble.ledger import is_ledger
from licet.assemble.never_writable import closed_to_grants
from licet.assemble.recorded_calls import RecordedCall, recorded_calls
from licet.cli.limits import LEARNED_ITEMS_SHOWN
from licet.cli.options import FILE, PLACE, Setting, json_option, read_sound, setting_options
from licet.cli.output import counted, fail, print_report, show, show_lines
from licet.core.flow.judgement import Judgement
from licet.core.ledger.entry import Unsound
from licet.core.policy.keys import FLOW
from licet.core.policy.manifest import Manifest
from licet.guard.flow_steps import unmet_lines
from licet.guard.ports import LedgerUnavailable

_COLOURS = {"ask": "yellow", "deny": "red", "watch": "cyan"}
_WORDS = {"ask": "asks", "deny": "denies", "watch": "only watched", "not judged": "not judged", "pass": "passes"}
_NO_BODIES = (
    "its calls were made without `record: full`, so it has neither arguments nor results: write `record: full` "
    "under `capabilities` of the policy, make some calls, and name the ledger again"
)


class _Report(Struct, frozen=True):
    ledger: Path | str
    manifest: Path
    replay: Replay

    def document(self) -> dict[str, object]:
        """The same as plain data."""
        found = self.replay
        counts = {would.replace(" ", "_"): found.count(would) for would in get_args(Would)}
        return {
            "ledger": self.ledger,
            "manifest": self.manifest,
            "sessions": found.sessions,
            **counts,
            "sessions_without_task": found.without_task,
            "without_bodies": found.unkept,
            "calls": (_document(call) for call in found.calls),
        }


@click.group(name="flow")
def command() -> None:
    """Try the rules of `flow:` on calls that were made.

    Under `flow:`, a value that matters must come from the task or from a result that the policy trusts. What meets no
    rule is asked about. `licet explain RECEIPT` says why one call was.

    \b
      licet flow replay ledger.sqlite strict.yaml
      licet flow replay ledger.sqlite strict.yaml --json

    \b
    Exit codes:
      0  done
      1  a ledger or a manifest cannot be read
      2  bad command line
    """


@command.command(name="replay")
@click.argument("ledger", metavar="LEDGER", type=PLACE)
@click.argument("manifest", metavar="MANIFEST", type=FILE)
@click.option(
    "--task",
    "tasks",
    metavar="[SESSION=]TEXT",
    multiple=True,
    help="What the user said, in one session or in all of them; may be repeated.",
)
@click.option("--session", metavar="ID", help="Only the calls of this session, and of its delegates.")
@setting_options
@json_option
def replay_command(
    ledger: Path | str, manifest: Path, tasks: tuple[str, ...], session: str | None, setting: Setting
) -> None:
    """Say what another manifest would have asked about, for the calls that a ledger has.

    Nothing is run. Each call is judged by the `flow:` of MANIFEST, and by what its session had read before. LEDGER is a
    `ledger.sqlite`, or the state directory with it. Its calls must have been made with `record: full`: others have
    neither arguments nor results. Only the rules of flow are tried: approvals of writes, budgets and the rest are not.

    A ledger does not have the words of the user. Without them nothing stands in the task, and more is asked. TEXT holds
    from the beginning of a session on, so say no more than the user had said when it mattered. A TEXT with `=` in it
    needs an empty SESSION before it: `--task "=a=b"`. Arguments and results are compared as recorded, redacted;
    and a session that was opened again counts as one that never closed, so there less may be asked than was.

    \b
      licet flow replay state strict.yaml
      licet flow replay ledger.sqlite strict.yaml --task "Pay Dora what I owe her"
      licet flow replay state strict.yaml --task s-41="Answer Bob" --task s-42="Invite Dora"
      licet flow replay state strict.yaml --session s-42 --json

    \b
    Exit codes:
      0  every call that could be judged was, whatever would have been asked
      1  the ledger or the manifest cannot be read, or has nothing to try
      2  bad command line
    """
    path = ledger_file(ledger)
    policy = closed_to_grants(read_sound(manifest, setting), Places.here(setting.workdir).workdir)
    if not FLOW.of(policy):
        fail(f"{manifest} has no `flow:`, so it would ask nothing: add `flow: {{preset: guarded}}`, and try again")
    calls = read_calls(path, session)
    named = {call.entry.session for call in calls}
    found = replayed(calls, policy, _turns(tasks, named))
    print_report(_Report(path, manifest, found), lambda one: _show(one, policy))


def ledger_file(named: Path | str) -> Path | str:
    """The ledger that was named, or the one in the state directory that was; an address stays one."""
    return named / "ledger.sqlite" if isinstance(named, Path) and os.path.isdir(named) else named


def read_calls(ledger: Path | str, session: str | None = None) -> list[RecordedCall]:
    """The calls of a ledger with arguments and results; exits with 1 if it has none, or was changed."""
    try:
        if isinstance(ledger, Path) and not is_ledger(ledger):
            fail(f"{ledger} is no ledger: name a `ledger.sqlite`, or the state directory with it")
        calls = list(recorded_calls(ledger, session))
    except LedgerUnavailable as wrong:
        fail(f"{wrong}; name a `ledger.sqlite`, or the state directory with it")
    except Unsound as wrong:
        fail(f"an entry of {ledger} was changed: {wrong}; run `licet receipts verify {ledger}`")
    if not calls and session is not None:
        fail(f"there is no session `{session}` with calls in {ledger}: `licet session list` names those that are")
    if not calls:
        fail(f"{ledger} has no calls that have ended")
    if not any(call.has_bodies for call in calls):
        fail(f"{ledger} cannot be used: {_NO_BODIES}")
    return calls


def _turns(tasks: Sequence[str], sessions: set[str]) -> dict[str, list[str]]:
    """The turns of the user by session; those of "" are said in all sessions."""
    found: dict[str, list[str]] = {}
    for text in tasks:
        session, equals, said = text.partition("=")
        if not equals:
            session, said = "", text
        elif session and session not in sessions:
            known = ", ".join(sorted(sessions)[:LEARNED_ITEMS_SHOWN])
            wrong = f"`{session}` is no session of this ledger, which has {known}; for a text with `=`, write `=TEXT`"
            raise click.BadParameter(wrong, param_hint="--task")
        found.setdefault(session, []).append(said)
    return found


# The report -----------------------------------------------------------------------------------------------------------


def _document(call: Replayed) -> dict[str, object]:
    why = {"why": call.why} if call.why else {}
    return {
        "receipt": call.receipt,
        "agent": call.agent,
        "session": call.session,
        "tool": call.tool,
        "time": call.time,
        "would": call.would,
        "then": call.before,
        **why,
        "tainted_by": call.tainted_by,
        "unmet": (_fields(one) for one in call.unmet),
    }


def _fields(one: Struct) -> dict[str, object]:
    return {name: value for name in one.__struct_fields__ if (value := getattr(one, name)) not in ("", ())}


def _show(report: _Report, policy: Manifest) -> None:
    found = report.replay
    for call in found.calls:
        if call.unmet:
            heading, *rest = _call_lines(call)
            show(heading, colour=_COLOURS.get(call.would))
            show_lines(rest)
    left: dict[str, int] = {}
    for call in found.calls:
        if call.why:
            left[call.why] = left.get(call.why, 0) + 1
    for why, number in left.items():
        show(f"not judged    {counted(number, 'call')}: {why}", colour="yellow")
    stopped = found.count("ask", "deny", "watch")
    how = {"ask": "would be asked about", "deny": "would be refused"}[FLOW.of(policy).otherwise]
    if found.count("watch"):
        how = "would be recorded, and pass, since the preset is `watch`"
    before = sum(call.before == "unmet" for call in found.calls)
    then = f"; {before} met no rule when they were made" if any(call.before for call in found.calls) else ""
    whole = f"{counted(len(found.calls), 'call')} of {counted(found.sessions, 'session')}"
    show(f"{whole}: {found.count('pass')} pass, {stopped} {how}{then}", colour="yellow" if stopped else "green")
    if found.unkept:
        text = f"{counted(found.unkept, 'call')} without `record: full`: what they returned counts as untrusted"
        show(text, colour="yellow")
    if found.without_task and any(call.unmet for call in found.calls):
        named = ", ".join(found.without_task[:LEARNED_ITEMS_SHOWN])
        show(f"no task is known of {named}: a ledger does not have the user's words, so give them with --task")


def _call_lines(call: Replayed) -> Iterator[str]:
    known = {"unmet": ", as it did then", "met": ", unlike then", None: ""}[call.before]
    reasons = ", ".join(dict.fromkeys(one.reason for one in call.unmet))
    yield f"{call.receipt}  {call.tool}  {_WORDS[call.would]}{known}: {reasons}  (session {call.session})"
    judgement = Judgement(call.unmet, tainted_by=call.tainted_by)
    yield from (f"    {line}" for line in unmet_lines(judgement))
    for one in call.unmet[:1]:
        if one.allowed and one.argument:
            rule = f"  {one.place}" if one.place is not None else ""
            yield f"    allowed       {', '.join(one.allowed)}{rule}"
    yield f"    tainted by    {', '.join(call.tainted_by[:LEARNED_ITEMS_SHOWN])}"
