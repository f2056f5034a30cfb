"""`licet learn`: drafts the least policy that allows what recordings show, for a person to review."""

import difflib
import os
import re
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import click
from msgspec import Struct

from licet.assemble.never_writable import closed_to_grants
from licet.assemble.review import Places, review
from licet.core.algebra.capability import Capability
from licet.core.algebra.scope import NAME_PATTERN, Malformed, visible
from licet.core.algebra.set import CapabilitySet
from licet.core.decision.reach import reach_of
from licet.core.policy.commands import COMMANDS, with_commands
from licet.core.policy.effects import class_fits
from licet.core.policy.manifest import Manifest
from licet.core.review.learn import Learned, Line, Surroundings, learn
from licet.core.review.learn_policy import (
    SEEN,
    Unused,
    denied_by,
    lacking,
    unused_rules,
    with_tools,
)
from licet.core.review.sensitive import Whereabouts
from licet.core.review.surface import surface
from licet.policy_files.learned_text import (
    Entry,
    NotKept,
    class_is_learned,
    commented_out,
    new_policy,
    with_entries,
)
from licet.policy_files.policy_paths import LOCK_FILE
from licet.policy_files.public_suffix import is_shared_suffix
from licet.policy_files.syntax import MOST_BYTES
from licet.regular_files import read_regular
from licet.sandbox.kernel.namespaces import DEVICES
from licet.sandbox.programs.files import SYSTEM
from licet.surfaces.cli.learn_files import Found, read_recordings, recordings_of
from licet.surfaces.cli.options import FILE, json_option, refuse
from licet.surfaces.cli.output import counted, fail, make_folder, shortened, show, show_json, write_file
from licet.surfaces.cli.surface import print_surface

_READABLE = (*SYSTEM, "/proc", *DEVICES)
_SCRATCH = ("/tmp", "/var/tmp")  # noqa: S108
_MOST_SENSITIVE = 50  # comments in one file; --json has them all
_MOST_SHOWN = 10  # of each list in the report
_ABOUT = (
    "Drafted by `licet learn` from what was recorded: review every line. A comment says which calls needed it;",
    "lines that are comments themselves are sensitive, and yours to decide on.",
)


@click.command(name="learn")
@click.argument("recordings", metavar="[RECORDING]...", type=FILE, nargs=-1)
@click.option("--manifest", metavar="FILE", type=FILE, help="The policy to write.  [default: that of the recordings]")
@click.option("--agent", metavar="NAME", help="The agent of a new policy.  [default: the name of the program]")
@click.option("--generalise-hosts", is_flag=True, help="Write `*.domain` for three or more names below one domain.")
@click.option("--write", is_flag=True, help="Write the policy; otherwise it is only shown.")
@json_option
@click.pass_context
def command(
    ctx: click.Context,
    recordings: tuple[Path, ...],
    manifest: Path | None,
    agent: str | None,
    generalise_hosts: bool,
    write: bool,
    as_json: bool,
) -> None:
    """Draft the least policy that allows what was recorded.

    RECORDING is a file of `licet observe`, or of a gate or gateway that records; if left out, all recordings of this
    directory are read. For a program the policy is the one that `licet run` uses here: .licet/licet.yaml, or
    licet.yaml; for a gate or gateway it is its own. Lines are only added, each with the calls that needed it. Nothing
    is written without --write.

    Three or more siblings that were used become their directory; hosts stay single names. Sensitive lines (keys and
    credentials, dot-files of the home, secrets, private addresses, deletes) are written as comments. What was refused
    is never taken up.

    \b
      licet observe -- make test     (records what it touches)
      licet learn                    (shows the policy, and what it allows)
      licet learn --write

    \b
    Exit codes:
      0  shown or written
      1  a recording or the policy cannot be read, or the result would not be valid
      2  bad command line
    """
    if agent is not None and not re.fullmatch(NAME_PATTERN, agent):
        raise click.BadParameter("expected 1 to 128 letters, digits, `_`, `.`, `/` or `-`", param_hint="--agent")
    paths = list(recordings) or recordings_of(manifest)
    if not paths:
        fail("there are no recordings of this directory: make one with `licet observe -- CMD`", as_json)
    found = read_recordings(paths, manifest, as_json)
    drafts = [_draft(one, agent, generalise_hosts, as_json) for one in found]
    for draft in drafts:
        if write and draft.text != draft.before:
            make_folder(draft.target.parent)
            write_file(draft.target, draft.text, replace=True)
    if as_json:
        show_json({"policies": [draft.document(written=write) for draft in drafts]})
        return
    for draft in drafts:
        _show(draft, written=write)


class Draft(Struct, frozen=True):
    """The draft of one policy."""

    found: Found
    target: Path
    before: str  # what is in the file; empty if it is new
    text: str
    learned: Learned
    added: tuple[Line, ...]
    manifest: Manifest  # as it would be
    unused: tuple[Unused, ...]
    still_refused: tuple[str, ...]
    notes: tuple[str, ...]

    @property
    def where(self) -> Whereabouts:
        """The directories of the recordings."""
        return Whereabouts(self.found.starts[0].workdir, self.found.starts[0].home)

    def document(self, *, written: bool) -> dict[str, Any]:
        """The draft as plain data."""
        short = _shortened(self.where)
        lines = [
            {"kind": line.kind, "rule": short(line.rule), "calls": line.calls, "why": line.why or None}
            for line in self.learned.lines
        ]
        return {
            "file": str(self.target),
            "recordings": [str(path) for path in self.found.files],
            "events": self.found.recorded.events,
            "changed": self.text != self.before,
            "written": written and self.text != self.before,
            "text": self.text,
            "lines": lines,
            "added": [short(line.rule) for line in self.added],
            "left_out": [{"use": one.what, "why": one.why} for one in self.learned.left_out],
            "refused": self.learned.refused,
            "unused": [{"rule": one.text, "place": one.place} for one in self.unused],
            "still_refused": list(self.still_refused),
            "notes": list(self.notes),
            "surface": surface(self.manifest).document(),
        }


def _draft(found: Found, agent: str | None, generalise_hosts: bool, as_json: bool) -> Draft:
    where = _whereabouts(found, as_json)
    before = _text(found.target, as_json)
    base = before or new_policy(agent or _agent(found), _ABOUT)
    policy = _read(found.target, base, where, as_json)
    around = Surroundings(
        where,
        readable=_READABLE if found.is_program else (),
        scratch=_SCRATCH if found.is_program else (),
        denied=denied_by(closed_to_grants(policy, where.workdir)),
        is_suffix=is_shared_suffix if generalise_hosts else None,
    )
    learned = learn(found.recorded, around)
    if not found.is_program:
        learned = with_tools(learned, found.recorded, policy, where)
    added = lacking(learned, policy)
    entries, notes = _entries(found, added, policy, where, base)
    raised = not class_fits(learned.effect, policy.max_effect)
    if raised and not class_is_learned(base):
        notes.append(
            f"`max_side_effect_class: {policy.max_effect}` ({policy.max_effect_origin}) does not permit the writes: "
            f"they need {learned.effect}"
        )
    try:
        text = with_entries(base, entries, learned.effect if raised else "", "what was recorded writes")
    except NotKept as wrong:
        fail(f"{found.target} is not changed, because {wrong}: write the lists as blocks, one item a line", as_json)
    manifest = _read(found.target, text, where, as_json)
    seen = frozenset.intersection(*(SEEN[start.source] for start in found.starts))
    unused = unused_rules(policy, found.recorded, seen, map(str, _commands(found, where))) if before else ()
    refused = _still_refused(learned, manifest, where) if found.is_program else ()
    deletes = any(line.rule.domain == "fs" and line.rule.action == "delete" for line in learned.lines)
    if deletes and class_fits(policy.max_effect, "write_limited"):
        keys = "`max_side_effect_class: full`, `approvals: {delete: session}` and a `budget`"
        notes.append(f"it deleted or renamed files: where you allow that, the policy needs {keys}")
    if text != before and found.target.with_name(LOCK_FILE).exists():
        notes.append("licet.lock is about the policy as it was: run `licet lock` after the review")
    return Draft(found, found.target, before, text, learned, added, manifest, unused, refused, tuple(notes))


def _whereabouts(found: Found, as_json: bool) -> Whereabouts:
    places = {(start.workdir, start.home) for start in found.starts}
    if len(places) > 1:
        listed = ", ".join(visible(workdir) for workdir, _ in sorted(places))
        fail(f"the recordings are of different directories, {listed}: name those of one of them", as_json)
    return Whereabouts(*places.pop())


def _agent(found: Found) -> str:
    start = found.starts[0]
    named = start.agent or os.path.basename(start.command[0] if start.command else "")
    return named if re.fullmatch(NAME_PATTERN, named) else "program"


def _text(target: Path, as_json: bool) -> str:
    if not os.path.lexists(target):
        return ""
    if target.suffix == ".json":
        fail(f"{target} is JSON, which has no comments: `licet learn` writes YAML", as_json)
    try:
        return read_regular(target, MOST_BYTES).decode()
    except (OSError, ValueError) as wrong:
        fail(f"{target} cannot be read: {wrong}", as_json)


def _read(target: Path, text: str, where: Whereabouts, as_json: bool) -> Manifest:
    policy = review(target, places=Places(where.workdir, where.home), draft=text)
    errors = [problem for problem in policy.problems if problem.severity == "error"]
    if policy.kind == "workspace" and not errors:
        fail(f"{target} is a workspace without an agent: name the policy to write with --manifest", as_json)
    # A lock of another version is to be made again after the review; nothing is run here.
    errors = [problem for problem in errors if os.path.basename(problem.origin.file) != LOCK_FILE]
    manifest = policy.manifest or policy.partial
    if errors or manifest is None:
        refuse(errors, as_json)
    return manifest


# Lines of the file ----------------------------------------------------------------------------------------------------

_KEYS = {
    ("fs", "read"): ("fs_reach", "read"),
    ("fs", "write"): ("fs_reach", "write"),
    ("process", "exec"): ("process", "allowed_binaries"),
    ("env", "read"): ("env",),
    ("secret", "read"): ("secrets",),
    ("tool", "call"): ("tools",),
    ("connector", "use"): ("connectors",),
}
_ORDER = ("tools", "process", "fs_reach", "env", "secrets", "connectors", "storage", "grants", "deny")


def _entries(
    found: Found, lines: Sequence[Line], policy: Manifest, where: Whereabouts, text: str
) -> tuple[list[Entry], list[str]]:
    """The entries that a file lacks, in the order of its keys, and notes about what is not written."""
    entries = list(_program_entries(found, lines, policy, where)) if found.is_program else []
    entries += [_entry(line, policy, where) for line in lines]
    sensitive = [entry for entry in entries if entry.off]
    notes = []
    if len(sensitive) > _MOST_SENSITIVE:
        more = len(sensitive) - _MOST_SENSITIVE
        notes.append(f"{more} more sensitive lines are not written: --json lists them")
        entries = [entry for entry in entries if entry not in sensitive[_MOST_SENSITIVE:]]
    known = commented_out(text)
    entries = [entry for entry in entries if not (entry.off and entry.text in known)]
    return sorted(entries, key=lambda one: (_ORDER.index(one.key[0]), one.key, one.off)), notes


def _program_entries(found: Found, lines: Sequence[Line], policy: Manifest, where: Whereabouts) -> list[Entry]:
    """The command itself, and the variables without which most programs find nothing. No recording shows these."""
    layers = [layer for layer in policy.layers if layer.kind == "manifest"]
    allowed = CapabilitySet(rule.capability for layer in layers for rule in layer.allows)
    entries = []
    for rule in _commands(found, where):
        if not allowed.has(rule) and all(line.rule != rule for line in lines):
            name = where.short(rule.key)
            entries.append(Entry(("process", "allowed_binaries"), name, "the command that was recorded"))
    variables = {"PATH": "variables are not recorded; programs find others by this one"}
    if any(line.kind == "allow" and where.short(line.rule.key).startswith("~") for line in lines):
        variables["HOME"] = "files below the home were used"
    for name, why in variables.items():
        if not allowed.has(Capability(f"env:read:{name}")):
            entries.append(Entry(("env",), name, why))
    return entries


def _commands(found: Found, where: Whereabouts) -> list[Capability]:
    """The commands of the recordings, as they were given."""
    rules = []
    for command in sorted({start.command[0] for start in found.starts if start.command}):
        word = os.path.normpath(os.path.join(where.workdir, command)) if "/" in command else command
        with suppress(Malformed):  # a name that no rule can have
            rules.append(Capability(f"process:exec:{word}"))
    return rules


def _entry(line: Line, policy: Manifest, where: Whereabouts) -> Entry:
    rule, short = line.rule, _shortened(where)
    comment = f"{line.calls}: {line.why}" if line.why else line.calls
    if line.kind == "deny":
        return Entry(("deny",), short(rule), comment)
    key: tuple[str, ...] = _KEYS.get((rule.domain, rule.action), ("grants",))
    if line.kind == "sensitive" and rule.domain != "tool":
        key = ("grants",)
    if rule.domain == "fs" and rule.action == "write" and not class_fits(policy.max_effect, "write_limited"):
        key = ("grants",)  # at this class, `fs_reach.write` would allow deletes too
    if rule.domain == "storage":
        key = ("storage",)
    text = short(rule) if key == ("grants",) else where.short(rule.scope) if rule.domain == "fs" else rule.scope
    if key == ("process", "allowed_binaries"):
        text = where.short(rule.scope)
    return Entry(key, text, comment, off=line.kind == "sensitive")


def _shortened(where: Whereabouts) -> Any:
    def short(rule: Capability) -> str:
        if rule.domain not in ("fs", "process") or not rule.key.startswith("/"):
            return str(rule)
        return f"{rule.domain}:{rule.action}:{where.short(rule.key)}"

    return short


def _still_refused(learned: Learned, manifest: Manifest, where: Whereabouts) -> tuple[str, ...]:
    """What was used and would still be refused: by a workspace, by a class, or since policy is never written."""
    policy = with_commands(closed_to_grants(manifest, where.workdir))
    reach = reach_of(policy, COMMANDS)
    held = reach.grant if reach is not None else CapabilitySet()
    return tuple(str(use) for use in learned.wanted if use.domain in SEEN["program"] and not held.has(use))


# The report -----------------------------------------------------------------------------------------------------------


def _show(draft: Draft, *, written: bool) -> None:
    short = shortened(Path(draft.where.workdir))
    if draft.text == draft.before:
        show(f"{draft.target} allows all that was recorded: nothing to add")
    elif not draft.before:
        show(f"--- {draft.target}, {'written' if written else 'as it would be'}")
        click.echo("".join(f"{visible(line)}\n" for line in draft.text.splitlines()), nl=False)
    else:
        name = str(draft.target)
        changes = difflib.unified_diff(draft.before.splitlines(), draft.text.splitlines(), name, name, lineterm="")
        for line in changes:
            show(line, colour={"+": "green", "-": "red"}.get(line[:1]))
    click.echo()
    print_surface(surface(closed_to_grants(draft.manifest, draft.where.workdir)), short)
    click.echo()
    recorded, learned = draft.found.recorded, draft.learned
    uses = counted(recorded.events, "use")
    given = f"; {learned.given} are open to every program" if learned.given else ""
    refused = f"; not taken up: {learned.refused} that were refused" if learned.refused else ""
    show(f"{uses} in {counted(len(draft.found.files), 'recording')}{given}{refused}")
    sensitive = [line for line in learned.lines if line.kind == "sensitive"]
    if sensitive:
        show(f"{counted(len(sensitive), 'line')} left to you, as comments: see `grants`", colour="yellow")
    _list("left out", [f"{short(one.what)}: {one.why}" for one in learned.left_out])
    _list("allowed, and not used", [f"{short(one.text)} ({one.place})" for one in draft.unused])
    _list("still refused", [short(text) for text in draft.still_refused])
    for note in draft.notes:
        show(note, colour="yellow")
    _show_next(draft, written=written)


def _list(title: str, items: Sequence[str]) -> None:
    if items:
        show(f"{title}:")
        for item in items[:_MOST_SHOWN]:
            show(f"  {item}")
        if len(items) > _MOST_SHOWN:
            show(f"  and {len(items) - _MOST_SHOWN} more: --json lists them")


def _show_next(draft: Draft, *, written: bool) -> None:
    if draft.text != draft.before and not written:
        show("nothing is written yet: `licet learn --write` does that")
    elif written and draft.text != draft.before:
        ask = " --ask" if draft.manifest.max_effect != "read_only" else ""
        way = f", and try it: `licet run{ask} -- CMD`" if draft.found.is_program else ""
        show(f"wrote {draft.target}: review it, accept it with `licet trust`{way}")
