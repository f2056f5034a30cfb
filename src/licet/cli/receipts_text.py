"""Receipts and the results of verification, as text and as JSON data."""

import json
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn

import click

from licet.cli.limits import COMMAND_CHARACTERS_SHOWN, UNENDED_CALLS_SHOWN
from licet.cli.output import counted, print_report, show, show_lines
from licet.core.algebra.scope import visible
from licet.core.decision.approval import shown
from licet.core.decision.decision import ran_until
from licet.core.decision.request import REASON_OF_DOMAIN
from licet.core.flow.judgement import value_name
from licet.core.ledger.verify import Finding, Outcome, Pack
from licet.core.values import CHECK_AND_RUN

COLOURS = {"allow": "green", "ask": "yellow", "deny": "red"}
WORDS = {"allow": "allowed", "ask": "asks", "deny": "denied"}
_WIDTH = 14
ANY_MANIFEST = "MANIFEST"  # in advice, where the file of a policy is not known
_SPENT = {
    "calls": "calls",
    "calls_of_tool": "of this tool",
    "calls_today": "today",
    "cost_usd": "USD",
    "cost_usd_of_tool": "USD of this tool",
    "cost_usd_today": "USD today",
}
_HAPPENED = {
    "CapabilityGranted": "granted",
    "CapabilityDenied": "denied",
    "ApprovalAsked": "a person is asked",
    "ApprovalAnswered": "the answer",
    "ApprovalRemembered": "agreed to before",
    "BudgetReserved": "budget set aside",
    "BudgetSettled": "budget settled",
    "BudgetRefunded": "budget given back",
    "BudgetUnsettled": "budget not settled, so it counts as set aside",
    "SandboxEntered": "the tool is run",
    "SandboxStopped": "the tool is ended",
    "ResultNoted": "noted",
    "ServerAsked": "the server asks",
    "ServerAnswered": "the server gets",
    "ServerAskRefused": "the server may not ask",
    "RequestMade": "requests",
    "KeyPlaced": "keys placed",
    "KeyKept": "stand-ins that went on as they are",
    "SessionOpened": "session opened",
    "SessionEnded": "session ended",
    "PolicyLoaded": "policy loaded again",
    "PolicyWithdrawn": "policy withdrawn",
}
_ENDS = {"seen": "end seen by licet", "reported": "end reported by the agent", "unknown": "end unknown"}
_UNENDED = "no receipt (yet)"  # the ledger cannot show which
_WHY_UNENDED = "it still runs, or its process ended before the call did"
_LISTED = ("time", "place", "agent", "tool", "command", "verdict", "reason", "id")
_LONGEST_VALUE = 500  # characters of a value that is shown
_EXEC, _SECRET = "process:exec:", "secret:read:"

Entry = dict[str, Any]


def table(rows: Sequence[Entry]) -> Iterator[tuple[str, str]]:
    """Format receipts as columns, one line each, with the verdict for its colour; first the heading, without one."""
    unused = {"command"} if not any(map(_command, rows)) else set()
    unused |= {"place"} if not any("place" in row for row in rows) else set()
    names = [name for name in _LISTED if name not in unused]
    cells = [[*names[:-1], "receipt"], *([_cell(row, name) for name in names] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    verdicts = ["", *(row["verdict"] for row in rows)]
    for line, verdict in zip(cells, verdicts, strict=True):
        yield "  ".join(f"{cell:<{width}}" for cell, width in zip(line, widths, strict=True)).rstrip(), verdict


def _cell(row: Entry, name: str) -> str:
    text = visible(str(listed(row).get(name, "")))
    if name == "command" and len(text) > COMMAND_CHARACTERS_SHOWN:
        text = f"{text[: COMMAND_CHARACTERS_SHOWN - 1]}…"
    if name == "reason" and "observed" in row:
        text = f"{text} {_observed(row)}"
    if name == "agent" and "coding_agent" in row:
        text = f"{text} (by {visible(row['coding_agent']['name'])})"
    return text[:19].replace("T", " ") + "Z" if name == "time" else text


def listed(entry: Entry) -> Entry:
    """The facts that a list shows about a receipt, or about a decision without one, as plain data."""
    names = ("id", "time", "agent", "session", "tool", "verdict", "code", "reason", "error", "cost_usd", "duration_ms")
    facts = {name: entry[name] for name in (*names, "number", "kind")}
    if command := _command(entry):
        facts["command"] = command
    facts |= {name: entry[name] for name in ("observed", "coding_agent", "place") if name in entry}
    return facts if entry["kind"] == "receipt" else {**facts, "reason": _UNENDED}


def so_far(decision: Entry, progress: Iterable[Entry]) -> Entry:
    """What is known about a call without a receipt: its decision, with the events that were written while it ran."""
    events = (event for entry in progress for event in entry["events"])
    return {**decision, "events": [*decision["events"], *events]}


def _command(entry: Entry) -> str:
    """The first program of a call; with its arguments only where the policy has receipts keep them (`record: full`)."""
    with suppress(ValueError, TypeError, AttributeError):  # a tool may have an argument of this name and any type
        command = json.loads((entry.get("bodies") or {}).get("arguments") or "{}").get("command")
        if isinstance(command, list) and command:
            return shlex.join(command)
    uses = (str(event.get("capability") or "") for event in entry["events"])
    return next((use.removeprefix(_EXEC) for use in uses if use.startswith(_EXEC)), "")


def _observed(entry: Entry) -> str:
    """What a list adds to a call of a gateway that only observed."""
    reasons = ", ".join(entry["observed"]["reasons"])
    return f"(observed: {visible(reasons)})" if reasons else "(observed)"


def _observation(entry: Entry) -> Iterator[tuple[str, str]]:
    """That a gateway only observed a call, and what the policy would have said."""
    if (found := entry.get("observed")) is None:
        return
    walls = "" if found["walls"] else ", and its server ran without walls"
    would = {"allow": "allowed it", "ask": "asked a person", "deny": "refused it"}[found["verdict"]]
    reasons = f": {', '.join(found['reasons'])}" if found["reasons"] else ""
    yield "observed", f"the policy was not enforced{walls}; it would have {would}{reasons}"
    yield from (("would say", rule) for rule in found["rules"])


def _made_by(entry: Entry) -> Iterator[tuple[str, str]]:
    """Which coding agent made a call through its hook, and how its end is known."""
    if (found := entry.get("coding_agent")) is None:
        return
    made = ", ".join(
        (
            f"by {found['name']} {found['version']}".rstrip(),
            *([f"call {found['call']}"] if found["call"] else ()),
            *([f"in subagent {found['subagent']}"] if found["subagent"] else ()),
        )
    )
    facts = [made]
    facts += ["rewritten"] * found["rewritten"] + ["asked in the agent"] * found["asked"]
    facts += [_ENDS[found["end"]]] if "end" in found else []
    facts += ["equal calls were under way, so their ends were taken in order"] * found["in_order"]
    yield "made", "; ".join(facts)


def story(decision: Entry | None, progress: Sequence[Entry], receipt: Entry | None) -> Iterator[str]:
    """Format everything that a ledger has about one call, one fact per line; the first line is the result."""
    last = receipt or (so_far(decision, progress) if decision is not None else None)
    if last is None:
        return
    if "standing" in last:
        yield from _standing(last)
        return
    if "state" in last:
        yield from _of_the_state(last)
        return
    yield f"{last['id']}: {_outcome(last, receipt)}"
    for title, text in _facts(last, decision, progress, receipt):
        yield f"  {title:<{_WIDTH}}{visible(text)}"


def _standing(entry: Entry) -> Iterator[str]:
    """A standing approval of deletes, or its withdrawal."""
    about, given = entry["standing"], entry["kind"] == "approval"
    yield f"{entry['id']}: a standing approval of deletes {'was given' if given else 'was withdrawn'}"
    facts = [("deletes", rule) for rule in about["deletes"]]
    facts += [("directory", about["directory"]), ("agent", entry["agent"]), ("manifest", entry["manifest"])]
    facts += [("given by", name) for one in entry["approvals"] for name in one["by"]]
    facts += [("until", about["expires"]), ("entry", f"{_number(entry)}, {entry['recorded']}")]
    for title, text in facts:
        yield f"  {title:<{_WIDTH}}{visible(text)}"


_ACTS = {"freeze": "calls were frozen", "thaw": "freezes were ended", "operators": "the keys of operators were set"}


def _of_the_state(entry: Entry) -> Iterator[str]:
    """A freeze, its end, or the keys of the operators."""
    about = entry["state"]
    yield f"{entry['id']}: {_ACTS[entry['kind']]}"
    facts = [(name, about[name]) for name in ("why", "agent", "tool") if name in about]
    facts += [("ends" if entry["kind"] == "thaw" else "operator", name) for name in about["about"]]
    facts += [("by", about["by"]), ("signed", "by an operator" if "act" in about else "no")]
    facts += [("entry", f"{_number(entry)}, {entry['recorded']}")]
    for title, text in facts:
        yield f"  {title:<{_WIDTH}}{visible(text)}"


def _outcome(last: Entry, receipt: Entry | None) -> str:
    if receipt is None:
        return f"allowed, and {_UNENDED}: {_WHY_UNENDED}"
    word = WORDS[last["verdict"]]
    return word if last["code"] == "ok" else f"{word}, {last['code']}" if last["code"] else word


def _facts(
    last: Entry, decision: Entry | None, progress: Sequence[Entry], receipt: Entry | None
) -> Iterator[tuple[str, str]]:
    yield "tool", last["tool"]
    yield "agent", f"{last['agent']}, session {last['session']}"
    if last["parent"]:
        yield "delegated by", f"{last['parent']['agent']}, session {last['parent']['session']}"
    yield from _made_by(last)
    took = f", took {last['duration_ms']} ms" if last["duration_ms"] else ""
    yield "time", f"{last['time']}{took}"
    if caller := last["caller"]:
        yield "caller", ", ".join(filter(None, (caller["person"], caller["client"], *caller["actors"])))
    if last["purpose"]:
        yield "purpose", last["purpose"]
    if "call_id" in last:
        yield "call id", last["call_id"]
    if "repeats" in last:
        yield "repeats", f"{last['repeats']}: nothing ran again"
    if flags := last.get("flags"):
        yield "flags", shlex.join(flags)
    yield "reason", last["reason"]
    yield from _observation(last)
    if last["error"]:
        yield "said", last["error"]
    yield from (("because", rule) for rule in last["rules"])
    yield from (("approval", _approval(one)) for one in last["approvals"])
    if last["budget"]:
        yield "budget", _spending(last["budget"])
        for name, spent in last["budget"].get("bundles", {}).items():
            yield f"of {name}", _spending(spent)
    if last["cost_usd"] != "0":
        yield "cost", f"{last['cost_usd']} USD"
    yield from _walls(last["sandbox"])
    for event in last["events"]:
        yield "event", _event(event)
    if last["truncated"]:
        yield "truncated", "the value was longer than the limits allow"
    for name in ("arguments", "result"):
        yield name, _body(last, name)
    yield "tool digest", last["tool_digest"] or "none"
    yield "manifest", last["manifest"]
    yield from (("organisation", digest) for digest in last.get("organisation", ()))
    for entry in (decision, *progress[:1], *progress[1:][-1:], receipt):  # the first and the last of many
        if entry is not None:
            between = f", one of {len(progress)}" if entry["kind"] == "progress" and len(progress) > 1 else ""
            place = f"number {entry['sequence']} of its session, {entry['recorded']}"
            yield "entry", f"{_number(entry)} ({entry['kind']}{between}), {place}"


def _number(entry: Entry) -> str:
    """The number of an entry in the ledger; one that waits for its place has none."""
    return str(entry["number"] or "without a number yet")


def _approval(one: Entry) -> str:
    if one.get("standing"):
        return f"deletes of files, by the standing approval {one['request']} of {', '.join(one['by'])}"
    what = one["use"] or ("exactly these arguments" if one["arguments"] else "the call")
    what += ", with its deletes of files" if one.get("deletes") else ""
    request = f" ({one['request']})" if one["request"] else ""
    return f"{what}, by {', '.join(one['by']) or 'nobody'}{request}"


def _spending(budget: Entry) -> str:
    before, after = budget["before"], budget["after"]
    shown = ((word, name) for name, word in _SPENT.items() if name in before)
    return ", ".join(f"{word} {before[name]} → {after[name]}" for word, name in shown)


def _walls(sandbox: Entry) -> Iterator[tuple[str, str]]:
    idle = "none but those around its programs" if sandbox["programs"] else "none, it did not run"
    layers = ", ".join(sandbox["layers"]) or idle
    yield "layers", f"{sandbox['level'] or 'no level'}: {layers}"
    yield from _access("access", sandbox["access"])
    if programs := sandbox["programs"]:
        missing = f"; missing: {', '.join(programs['missing'])}" if programs["missing"] else ""
        codes = ", ".join(map(str, programs["ended"]))
        ended = f"; ended with {codes}" if codes else ""
        yield "programs", f"{', '.join(programs['layers'])}{missing}{ended}"
        around = programs["access"] or {"sets": [], "more": 0}
        for one in around["sets"]:
            yield from _access("their access", one)
        if around["more"]:
            yield "their access", f"{around['more']} more programs with other rules, {around['digest']}"


def _access(title: str, access: Entry | None) -> Iterator[tuple[str, str]]:
    """The rules that the kernel enforced on a process."""
    if access is None:
        return
    if not access["direct"]:
        yield title, "none of its own: everything but what it runs from goes through handles"
    for name, word in (("granted", "granted "), ("closed", "closed "), ("rules", "")):
        yield from ((title, f"{word}{text}") for text in access[name])
        if more := access["counts"][name] - len(access[name]):
            yield title, f"{word}{more} more"
    yield title, f"and what it runs from; digest of all rules {access['digest']}"


def _event(event: Entry) -> str:
    if (said := _of_a_program(event)) is not None:
        return said
    word, about = _HAPPENED.get(event["kind"], event["kind"]), event.get("capability")
    why = ": ".join(part for part in (event.get("reason"), event.get("rule")) if part)
    return f"{word}{f' {about}' if about else ''}{f'  {why}' if why else ''}"


def _of_a_program(event: Entry) -> str | None:
    """An event of a program whose requests are looked into; None if it is another one, or stands for many."""
    about, rule = str(event.get("capability") or ""), str(event.get("rule") or "")
    if not about or "count" in event:
        return None
    match event["kind"]:
        case "RequestMade":
            method, _, rest = rule.partition(" ")
            return f"{method} {about.rpartition('@')[2]} {rest}"
        case "KeyPlaced":
            return f"key {about.removeprefix(_SECRET)} first placed at {rule}"
        case "KeyKept":
            return f"stand-in of {about.removeprefix(_SECRET)} went on as it is, {rule}"
    return None


def _body(entry: Entry, name: str) -> str:
    bodies = entry.get("bodies") or {}
    digest = entry[name] or "none"
    return digest if bodies.get(name) is None else f"{bodies[name]}  ({digest})"


Fixes = Callable[[str, str, str], tuple[str, ...]]  # of a tool, a use and a receipt, under the policy of today


def explanation(
    entry: Entry, manifest: str = ANY_MANIFEST, fixes: Fixes = lambda tool, use, receipt: ()
) -> Iterator[str]:
    """Explain why one call was allowed or refused, from its receipt. `manifest` is the file of its policy."""
    verdict, tool, call = entry["verdict"], entry["tool"], f"tool:call:{entry['tool']}"
    checks = [event for event in entry["events"] if event["kind"].startswith("Capability")]
    denied = [event for event in checks if event["kind"] != "CapabilityGranted"]
    began = checks[:1] != denied[:1]  # the first check is about the call itself
    # An allowed call may have denied uses, because its tool continued without them. A call that did not begin was
    # refused for itself, or for a use that an argument names: then the tool alone would not show why.
    named = entry["reason"] == "ARGUMENT_NOT_ALLOWED" and bool(denied) and denied[-1]["capability"] != call
    about_a_use = denied and (verdict == "ask" or (verdict == "deny" and (began or named)))
    what = denied[-1]["capability"] if about_a_use else call
    ended = verdict == "deny" and began and what == call
    yield visible(f"{WORDS[verdict]}: `{tool}` {_may(entry, what, ended)}")
    lines = [*_made_by(entry), *_observation(entry), *(("because", rule) for rule in entry["rules"])]
    if verdict == "allow" or ended:
        uses = checks[1:-1] if ended else checks[1:]  # the last check ended the call, and the first line reports it
        lines += [line for event in uses for line in _checked(event, entry, manifest, fixes, refused=event in denied)]
    if verdict == "allow":
        lines += [("but", entry["error"] or entry["reason"])] * (entry["code"] not in ("ok", None))
    if entry["kind"] == "decision":
        lines.append(("but", f"{_UNENDED}: {_WHY_UNENDED}"))
    lines += [("approval", _approval(one)) for one in entry["approvals"]]
    if verdict == "ask":
        lines.append(("to settle it", "answer with `licet approvals`, and make the call again"))
    if verdict == "deny" and not ended:
        lines += _ways_out(entry, manifest, "" if what == call else what, fixes)
    lines += [
        ("manifest", entry["manifest"]),
        *(("organisation", digest) for digest in entry.get("organisation", ())),
        ("when", f"{entry['time']}, {entry['agent']}, session {entry['session']}"),
        ("receipt" if entry["kind"] == "receipt" else "call", entry["id"]),
    ]
    shown = [f"  {title:<{_WIDTH}}{visible(str(text))}" for title, text in lines]
    if began and verdict != "allow" and entry["reason"].startswith("APPROVAL_"):
        shown.insert(-3, ran_until(entry["cost_usd"]))
    yield from shown


_NOT_MET = {
    "FLOW_ORIGIN": "it may write or send, and this session has read text that somebody else wrote",
    "FLOW_SECRET": "this session has read a secret, and the call could pass it on",
    "FLOW_NOT_ASKED_FOR": "the words of the task do not ask for it",
}
_MADE_UP = "nowhere: the model wrote this itself, or changed it"


def flow_lines(entry: Entry, arguments: Mapping[str, object] | None = None) -> Iterator[str]:
    """Which values of a call met no rule of flow, where they stood, and what allows the call. First a heading.

    A receipt has digests of values. With the arguments, which `record: full` or a request for approval keeps, they are
    shown. Nothing if every rule was met.
    """
    flow = entry.get("flow") or {}
    unmet = flow.get("unmet") or []
    if not unmet:
        return
    ran = entry["verdict"] == "allow"
    how = "was only watched" if flow.get("watched") else "was run, since it was approved" if ran else "was not run"
    first = unmet[0]
    why = _NOT_MET[first["reason"]]
    if first["reason"] == "FLOW_ORIGIN" and first.get("argument"):
        why = f"{value_name(first['argument'], first.get('pointer', ''))} does not come from where the policy says"
    yield visible(f"{first['reason']}  {entry['tool']} {how}: {why}")
    for one in unmet:
        yield from _unmet_lines(one, arguments)
    for title, text in _flow_facts(entry, flow, ran=ran):
        yield f"  {title:<{_WIDTH}}{visible(text)}"


def _unmet_lines(one: Entry, arguments: Mapping[str, object] | None) -> Iterator[str]:
    name, pointer = one.get("argument", ""), one.get("pointer", "")
    if name:
        value = _pointed_at(arguments, name, pointer)
        shown_value = one.get("value_digest", "") if value is None else shown(value)[:_LONGEST_VALUE]
        yield f"  {visible(value_name(name, pointer))} = {shown_value}"
    unknown = [{"origin": "unknown"}] if name else []  # without a name, it is about the call and what was read
    for found in one["origins"] or unknown:
        where = "  ".join(filter(None, (found.get("receipt"), found.get("tool"), found.get("pointer"))))
        label = f"  {found['label']}" if "label" in found else ""
        text = {"unknown": _MADE_UP, "task": "the task"}.get(found["origin"], f"{where}{label}")
        yield f"     {found['origin']:<11}{visible(text)}"
    allowed = f"{', '.join(one['allowed'])}  " if one["allowed"] else ""
    if allowed or "rule" in one:
        yield f"  {'rule':<{_WIDTH}}{visible(allowed + one.get('rule', ''))}"


def _flow_facts(entry: Entry, flow: Entry, *, ran: bool) -> Iterator[tuple[str, str]]:
    yield from (("tainted by", why) for why in flow["tainted_by"][:UNENDED_CALLS_SHOWN])
    if flow.get("reopened"):
        yield "note", "this session was opened again: values that it had read before are unknown"
    if ran:
        return
    if entry["verdict"] == "ask":
        request = flow.get("request")
        yield "to allow", f"approve this call: licet approvals approve {request}" if request else "approve this call"
    if any(one.get("argument") for one in flow["unmet"]):
        yield "" if entry["verdict"] == "ask" else "to allow", "let the user say the value in the task"


def _pointed_at(arguments: Mapping[str, object] | None, name: str, pointer: str) -> object:
    """The value that a pointer leads to in an argument; None if it is not known."""
    value: object = (arguments or {}).get(name)
    for part in pointer.split("/")[1:]:
        part = part.replace("~1", "/").replace("~0", "~")
        if isinstance(value, list) and part.isdigit() and int(part) < len(value):
            value = value[int(part)]
        elif isinstance(value, dict) and part in value:
            value = value[part]
        else:
            return None
    return value


def _checked(event: Entry, entry: Entry, manifest: str, fixes: Fixes, *, refused: bool) -> Iterator[tuple[str, str]]:
    """One check of a call, and what would allow a request of a program that a rule refused: the program went on."""
    yield "refused" if refused else "held", _event(event)
    what = event["capability"]
    if refused and event["reason"] == REASON_OF_DOMAIN["network"] and "<" not in what and what.startswith("network:"):
        yield from _ways_out(entry, manifest, what, fixes)


def _ways_out(entry: Entry, manifest: str, use: str, fixes: Fixes) -> Iterator[tuple[str, str]]:
    """What would allow a denied call. Not every refusal comes from a manifest."""
    if entry["reason"] == "INPUT_INVALID":
        yield "to correct it", "make the call again, with arguments that fit the parameters of the tool"
    elif entry["reason"] == "INTERRUPTED":
        yield "to have it", "make the call again"
    elif entry["agent"] == CHECK_AND_RUN:
        yield "to allow it", "see `result.explain()` of this `check_and_run`: its `allow` decides, and no manifest"
    elif edits := fixes(entry["tool"], use, entry["id"]):
        yield from (("to allow it", edit) for edit in edits)
    else:
        yield "to allow it", f"see `licet explain {manifest} {entry['tool']}{f' {shlex.quote(use)}' if use else ''}`"


def _may(entry: Entry, what: str, ended: bool) -> str:
    if ended:
        return f"was called, and ended: {entry['reason']}"
    may = "be called" if what.startswith("tool:call:") else what
    return {"allow": f"may {may}", "ask": f"may {may} once a person agrees", "deny": f"may not {may}"}[entry["verdict"]]


def report_ledger(path: str, outcome: Outcome, key: str, given: str | None, held: bool) -> NoReturn:
    """Print the result of verifying a ledger, and exit."""
    notes, signed_by = list(_notes(outcome, given, held)), counted(outcome.checkpoints, "checkpoint")
    found = {
        "ok": outcome.ok,
        "file": path,
        "ledger": outcome.ledger,
        "entries": outcome.entries,
        "checkpoints": outcome.checkpoints,
        "signed": outcome.signed,
        "root": outcome.root or None,
        "key": key,
        "unknown": outcome.unknown,
        "waiting": outcome.waiting,
        "finding": _finding_document(outcome.finding),
        "notes": notes,
    }
    rows = (
        ("file", path),
        ("ledger", outcome.ledger or "none"),
        ("size", f"{entries(outcome.entries)}, {outcome.signed:,} of them signed by {signed_by}"),
        ("root", outcome.root or "none"),
        ("key", key),
        *(("unknown", text) for text in _unknown(outcome.unknown)),
        *(("note", note) for note in notes),
    )
    print_report(found, lambda _: _show_verified(outcome.finding, outcome.entries, rows))
    click.get_current_context().exit(0 if outcome.ok else 1)


def _show_verified(wrong: Finding | str | None, number: int, rows: Iterable[tuple[str, str]]) -> None:
    if wrong is None:
        show(f"fine: {entries(number)} as they were written", colour="green")
    else:
        show(f"wrong: {wrong}", colour="red")
    show_lines(f"  {title:<10}{text}" for title, text in rows)


def _unknown(calls: Sequence[str]) -> Iterator[str]:
    """The calls whose end the ledger does not know."""
    yield from (f"{visible(call)} began, and has no receipt: {_WHY_UNENDED}" for call in calls[:UNENDED_CALLS_SHOWN])
    if len(calls) > UNENDED_CALLS_SHOWN:
        yield f"and {counted(len(calls) - UNENDED_CALLS_SHOWN, 'more call')}: see `licet receipts list`"


def _notes(outcome: Outcome, given: str | None, held: bool) -> Iterator[str]:
    """The limits of what the verification proves."""
    if outcome.finding is not None:
        if outcome.finding.kind == "clock":
            yield "everything else is right: the clock of that machine was set back, or the entry was dated back"
        if outcome.finding.kind == "twice":
            yield "everything else is right: an older licet gave the calls of processes that were forked the same ids"
        return
    if late := outcome.entries - outcome.signed:
        text = f"{entries(late)} after the last checkpoint: linked, and not signed yet"
        if outcome.tagged:
            yield f"{text}; the key next to the ledger shows that its holder wrote them"
        else:
            yield f"{text}, so not proven: anybody who can write the file could have written them without the key"
    if outcome.waiting:
        are = "1 entry has" if outcome.waiting == 1 else f"{entries(outcome.waiting)} have"
        yield f"{are} no place in the tree yet: signed by nodes, and by no checkpoint"
    if given is None:
        yield "the key was next to the ledger: only `--key` from elsewhere reveals a ledger that was replaced"
    if not held:
        yield "without `--head` from elsewhere an older copy of the whole ledger looks the same"


def report_pack(path: Path, pack: Pack | Finding, key: str) -> NoReturn:
    """Print the result of verifying a pack, and exit."""
    found: dict[str, object] = {"ok": isinstance(pack, Pack), "file": path, "key": key}
    if isinstance(pack, Finding):
        rows, wrong = [("file", str(path)), ("key", key)], pack if pack.number else pack.text
        found = {**found, "finding": _finding_document(pack)}
        print_report(found, lambda _: _show_verified(wrong, 0, rows))
        click.get_current_context().exit(1)
    checkpoint = pack.checkpoint
    rows = [
        ("file", str(path)),
        *(("entry", f"{one['number']}: {one['kind']} {one['id']}, {one['verdict']}") for one in pack.entries),
        ("ledger", checkpoint.ledger),
        ("size", f"{entries(checkpoint.size)} when its checkpoint was signed, {checkpoint.time}"),
        ("root", checkpoint.root),
        ("key", key),
    ]
    found = {**found, **pack_document(pack), "finding": None}
    print_report(found, lambda _: _show_verified(None, len(pack.entries), rows))
    click.get_current_context().exit(0)


def pack_document(pack: Pack) -> dict[str, Any]:
    """A pack as plain data."""
    return {
        "key": pack.key,
        "checkpoint": {name: getattr(pack.checkpoint, name) for name in ("ledger", "size", "root", "time", "key")},
        "entries": list(pack.entries),
    }


def _finding_document(finding: Finding | None) -> dict[str, Any] | None:
    if finding is None:
        return None
    last = max(finding.number, finding.until)
    name = finding.id if isinstance(finding.id, str) else ascii(finding.id)[:200]  # SQLite takes any type in any column
    where = {"entry": finding.number or None, "until": last or None, "receipt": name or None}
    return {"kind": finding.kind, **where, "text": finding.text, "message": str(finding)}


def entries(number: int) -> str:
    """So many entries: `1 entry`, `1,200 entries`."""
    return f"{number:,} {'entry' if number == 1 else 'entries'}"
