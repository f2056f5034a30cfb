"""Drafts a policy for `licet learn`: what the recordings need, and the file with the lines that it lacks.

Reads recordings for `licet learn`, and finds the policy that each of them is about.

Finds repositories of git for `licet learn`: a draft lets no program write the files by which git runs others.
"""

import os
import re
import sys
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import click
from msgspec import Struct

from licet.assemble.never_writable import closed_to_grants
from licet.assemble.recording import RECORDINGS
from licet.assemble.review import Places, review, state_directory
from licet.core.algebra.domains import PATH_DOMAINS
from licet.core.algebra.rules import Capability
from licet.core.algebra.scope import NAME_PATTERN, Malformed, inside, visible
from licet.core.algebra.set import CapabilitySet
from licet.core.decision.reach import reach_of
from licet.core.policy.layer import OUTPUT, class_fits, permits
from licet.core.policy.manifest import COMMANDS, Manifest, with_commands
from licet.core.review.recording_lines import BadRecording, Recorded, RecordingStart, recording_start, touch
from licet.core.review.sensitive import TRUSTED, Whereabouts, why_path
from licet.core.review.surface import surface
from licet.core.values import Problem
from licet.learn.inside_https import inspect_entries, key_entries, offered_keys
from licet.learn.learn import Learned, Line, Surroundings, learn
from licet.learn.learned_policy import SEEN, Unused, denied_by, lacking, unused_rules, with_tools
from licet.learn.limits import (
    DEEPEST_LOOKED_AT,
    DEEPEST_REPOSITORY,
    LONGEST_LINE,
    MOST_LOOKED_AT,
    MOST_NAMED,
    MOST_SEARCHED,
    MOST_SENSITIVE,
)
from licet.own_files import is_there, open_regular, read_regular, size_text
from licet.policy_files.additions import Entry, NotKept, class_is_learned, commented_out, with_entries
from licet.policy_files.checks import is_shared_domain
from licet.policy_files.draft import empty_text
from licet.policy_files.limits import MOST_BYTES
from licet.policy_files.policy_paths import LOCK_FILE, policy_root
from licet.sandbox.kernel.namespaces import DEVICES
from licet.sandbox.programs.program_files import MADE_FILES, SYSTEM
from licet.sandbox.programs.system_configuration import configuration

_STEP = 20_000  # lines between two changes of the progress bar


class NotDrafted(Exception):
    """A policy that cannot be drafted: why, or the problems of its file."""

    def __init__(self, why: str = "", problems: Sequence[Problem] = ()) -> None:
        super().__init__(why)
        self.problems = list(problems)


class Found(Struct):
    """The recordings that are about one policy."""

    target: Path
    starts: list[RecordingStart]
    files: list[Path]
    recorded: Recorded
    incomplete: list[Path] = []  # whose last line is left out

    @property
    def is_program(self) -> bool:
        """Whether all of them are of programs, which `licet run` starts."""
        return all(start.source == "program" for start in self.starts)


def recordings_of(manifest: Path | None) -> list[Path]:
    """All recordings of a workspace: of the directory of a policy, or of the current one."""
    folder = state_directory(policy_root(manifest) if manifest is not None else Path.cwd()) / RECORDINGS
    return sorted(folder.glob("*.jsonl")) if folder.is_dir() else []


def read_recordings(paths: Sequence[Path], manifest: Path | None, here: Callable[[], Path]) -> list[Found]:
    """Read recordings and group them by policy; `here` finds that of programs. `NotDrafted` if one cannot be read."""
    found: dict[str, Found] = {}
    with _progress(paths) as tell:
        for path in paths:
            try:
                with open_regular(path) as fd, os.fdopen(os.dup(fd), "rb") as file:
                    _read_recording(
                        path, iter(partial(file.readline, LONGEST_LINE + 1), b""), manifest or here, found, tell
                    )
            except OSError as wrong:
                raise NotDrafted(f"{path} cannot be read: {wrong.strerror}") from None
            except BadRecording as wrong:
                raise NotDrafted(str(wrong)) from None
    return [one for _, one in sorted(found.items())]


def _read_recording(
    path: Path,
    lines: Iterable[bytes],
    about: Path | Callable[[], Path],
    found: dict[str, Found],
    tell: Callable[[int], None],
) -> None:
    number, size = 0, 0
    for number, line in enumerate(lines, 1):
        if len(line) > LONGEST_LINE:
            raise BadRecording(f"{visible(str(path))}:{number}: a line of more than {size_text(LONGEST_LINE)}")
        try:
            if number == 1:
                start = recording_start(line)
                target = about if isinstance(about, Path) else _target(start, about)
                group = found.setdefault(os.path.abspath(target), Found(target, [], [], Recorded()))
                group.starts.append(start)
                group.files.append(path)
                group.recorded.begin(start)
                add = partial(group.recorded.add, inspected=start.source == "program" and start.inspected is True)
            else:
                add(touch(line))
        except BadRecording as wrong:
            if number > 1 and not line.endswith(b"\n"):  # what was recording was ended while it wrote
                group.incomplete.append(path)
                break
            raise BadRecording(f"{visible(str(path))}:{number}: {wrong}") from None
        size += len(line)
        if number % _STEP == 0:
            tell(size)
            size = 0
    tell(size)
    if not number:
        raise BadRecording(f"{visible(str(path))}: it is empty")


def _target(start: RecordingStart, here: Callable[[], Path]) -> Path:
    """The policy that a recording is about. Only a file that is there is taken from a recording."""
    if start.manifest:
        if not os.path.isfile(start.manifest):
            named = f"its policy is {visible(start.manifest)}, which is not there"
            raise BadRecording(f"{named}: name the policy to write with --manifest")
        return Path(start.manifest)
    return here()


@contextmanager
def _progress(paths: Sequence[Path]) -> Iterator[Any]:
    """A function that draws progress: call it with the number of bytes read. It draws only on a terminal."""
    total = sum(path.stat().st_size for path in paths if path.is_file())
    if sys.stderr is None or not sys.stderr.isatty():
        yield lambda size: None
        return
    with click.progressbar(length=total, label="reading recordings", file=sys.stderr) as bar:
        yield bar.update


_PARTS = frozenset({"HEAD", "objects", "refs"})  # what every repository has, also one that is not called `.git`


class Repositories:
    """What is known about repositories on this machine; each directory is read once."""

    def __init__(self) -> None:
        self._left = MOST_SEARCHED
        self._has: dict[str, bool] = {}
        self._is: dict[str, bool] = {}

    def reached_by(self, path: str) -> bool:
        """Whether a path is a file of a repository, or a directory with a repository in it."""
        above = path
        while above:
            if self._is_one(above):
                return True
            above = above.rpartition("/")[0]
        return os.path.isdir(path) and not os.path.islink(path) and self._has_one(path)

    def below(self, folder: str) -> tuple[str, ...] | None:
        """The files of each repository below a directory, where they are; None if there is too much to look at."""
        found: list[str] = []
        left = MOST_SEARCHED
        for above, names, files in os.walk(folder):
            left -= len(names) + len(files)
            if left < 0:
                return None
            if self._is_one(above):
                found.append(above)
                names.clear()
            found += (os.path.join(above, name) for name in (*names, *files) if name.lower() == ".git")
            names[:] = [name for name in names if name.lower() != ".git"]
        return tuple(found)

    def _is_one(self, folder: str) -> bool:
        if folder not in self._is:
            self._is[folder] = all(os.path.lexists(os.path.join(folder, name)) for name in _PARTS)
        return self._is[folder]

    def _has_one(self, folder: str, depth: int = 0) -> bool:
        if folder not in self._has:
            self._has[folder] = self._look(folder, depth)
        return self._has[folder]

    def _look(self, folder: str, depth: int) -> bool:
        try:
            with os.scandir(folder) as listed:
                entries = list(listed)
        except OSError:  # nor can a program look there
            return False
        self._left -= len(entries)
        names = {entry.name for entry in entries}
        if (
            any(name.lower() == ".git" for name in names)
            or names >= _PARTS
            or self._left < 0
            or depth > DEEPEST_REPOSITORY
        ):
            return True
        below = [entry.path for entry in entries if entry.is_dir(follow_symlinks=False)]
        return any(self._has_one(path, depth + 1) for path in below)


_READABLE = (*SYSTEM, *MADE_FILES, "/proc", *DEVICES)
_SCRATCH = ("/tmp", "/var/tmp")  # noqa: S108
_ABOUT = (
    "Drafted by `licet learn` from what was recorded: review every line. A comment says which calls needed it;",
    "lines that are comments themselves are sensitive, and yours to decide on: who agrees also deletes their denies.",
)


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
    where: Whereabouts

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
            "looked_into": [{"host": one.host, "calls": one.calls} for one in self.learned.looked_into],
            "left_out": [{"use": one.what, "why": one.why} for one in self.learned.left_out],
            "refused": self.learned.refused,
            "unused": [{"rule": one.text, "place": one.place} for one in self.unused],
            "still_refused": list(self.still_refused),
            "notes": list(self.notes),
            "surface": surface(self.manifest).document(),
        }


def draft_policy(found: Found, agent: str | None, generalise_hosts: bool) -> Draft:
    """Draft the policy that some recordings are about; exits with 1 if that cannot be done."""
    where = _whereabouts(found)
    before = policy_text(found.target)
    base = before or empty_text(agent or _agent(found), _ABOUT)
    policy = _read(found.target, base, where)
    repositories = Repositories()
    around = Surroundings(
        where,
        is_program=found.is_program,
        readable=(*_READABLE, *configuration()) if found.is_program else (),
        scratch=_SCRATCH if found.is_program else (),
        created=_created(found) if found.is_program else frozenset(),
        directories=_directories(found) if found.is_program else frozenset(),
        removed=frozenset(found.recorded.removed),
        names_in=_names_in,
        secret_files=frozenset(_secret_files(where)),
        trusted_files=frozenset(_trusted_files(where)),
        denied=denied_by(closed_to_grants(policy, where.workdir)),
        is_suffix=is_shared_domain if generalise_hosts else None,
        reaches_git=repositories.reached_by,
        repositories=repositories.below(where.workdir) if found.is_program and where.is_project else None,
    )
    learned = with_tools(learn(found.recorded, around), found.recorded, policy, where)
    _check_places(found, learned, where)
    added = lacking(learned, policy)
    entries, notes = _entries(found, added, learned.outputs, policy, where, base)
    offers = _unwritten(key_entries(offered_keys(learned.looked_into, policy, os.environ)), base)
    entries = _in_order([*entries, *_unwritten(inspect_entries(learned.looked_into, policy), base), *offers])
    if offers:
        notes.append("keys that programs need not have: see the comments in `stand_ins`, and docs/how-to/keys.md")
    raised = not class_fits(learned.effect, policy.max_effect)
    if raised and not class_is_learned(base):
        notes.append(
            f"`max_side_effect_class: {policy.max_effect}` ({policy.max_effect_origin}) does not permit the writes: "
            f"they need {learned.effect}"
        )
    try:
        text = with_entries(base, entries, learned.effect if raised else "", "what was recorded writes")
    except NotKept as wrong:
        raise NotDrafted(f"{found.target} is not changed, because {wrong}: {wrong.advice}") from None
    manifest = _read(found.target, text, where)
    seen = frozenset.intersection(*(SEEN[start.source] for start in found.starts))
    unused = unused_rules(policy, found.recorded, seen, map(str, _commands(found, where))) if before else ()
    refused = _still_refused(learned, manifest, where) if found.is_program else ()
    deletes = any(line.rule.domain == "fs" and line.rule.action == "delete" for line in learned.lines)
    if deletes and class_fits(policy.max_effect, "write_limited"):
        keys = "`max_side_effect_class: full`, `approvals: {delete: session}` and a `budget`"
        notes.append(f"deletes and renames of files are left to you: where you allow them, the policy needs {keys}")
    elif manifest.max_effect == "read_only" and any(
        not permits("read_only").has(line.rule) for line in learned.lines if line.kind == "sensitive"
    ):
        keys = "`max_side_effect_class: write_limited`"
        notes.append(f"some lines left to you write or connect: where you allow that, the policy needs {keys}")
    if found.is_program and (missing := _uncreated(learned, manifest)):
        listed = ", ".join(where.short(path) for path in missing[:MOST_NAMED])
        listed += " …" if len(missing) > MOST_NAMED else ""
        why = "a program creates files only in directories that are there and that it may write"
        notes.append(f"{why}: make these first: {listed}")
    outputs = (path for path in learned.outputs if where.has_workdir(path) and not path.endswith("/__pycache__"))
    if once := sorted(path for path in outputs if found.recorded.made_once(path)):
        listed = ", ".join(where.short(path) for path in once[:MOST_NAMED]) + " …" * (len(once) > MOST_NAMED)
        again = "observe the same command again, and run this once more"
        notes.append(f"the next run finds what this one made, and may do something else with it ({listed}): {again}")
    if text != before and is_there(found.target.with_name(LOCK_FILE)):
        notes.append("licet.lock is about the policy as it was: run `licet lock` after the review")
    return Draft(found, found.target, before, text, learned, added, manifest, unused, refused, tuple(notes), where)


_NOT_LOOKED_INTO = frozenset({".git", ".venv", "venv", "node_modules", "__pycache__"})


def _secret_files(where: Whereabouts) -> Iterator[str]:
    """The files of the project whose names say that they may hold secrets, near its top."""
    left = MOST_LOOKED_AT
    for folder, names, files in os.walk(where.workdir):
        left -= len(names) + len(files)
        if left < 0:
            return
        if folder.removeprefix(where.workdir).count("/") >= DEEPEST_LOOKED_AT:
            names.clear()
        names[:] = [name for name in names if name not in _NOT_LOOKED_INTO]
        yield from (path for name in files if why_path(path := os.path.join(folder, name), where))


def _trusted_files(where: Whereabouts) -> Iterator[str]:
    """What is at the top of the project and others run or trust. Repositories of git are searched on their own."""
    paths = (os.path.join(where.workdir, one.path) for one in TRUSTED if one.path != ".git")
    return (path for path in paths if os.path.lexists(path))


def _created(found: Found) -> frozenset[str]:
    """The paths that a program made, and those that were written and are not there, where their directory is."""
    written = (use.target for use, _ in found.recorded.used.values() if use.domain == "fs" and use.action == "write")
    gone = (path for path in written if not os.path.lexists(path))
    return frozenset((*found.recorded.made, *(path for path in gone if os.path.isdir(os.path.dirname(path)))))


def _directories(found: Found) -> frozenset[str]:
    """The directories that a program made. Older recordings do not say which names are: these are looked at."""
    recorded = found.recorded
    return frozenset((*recorded.directories, *filter(os.path.isdir, recorded.made)))


def _names_in(directory: str) -> list[str] | None:
    """What is in a directory; None if it has more than could be denied. Links are what they lead to."""
    try:
        with os.scandir(directory) as entries:
            names = [entry.name for entry in islice(entries, MOST_LOOKED_AT + 1) if not entry.is_symlink()]
    except OSError:
        return []
    return sorted(names) if len(names) <= MOST_LOOKED_AT else None


def _uncreated(learned: Learned, manifest: Manifest) -> list[str]:
    """The files that the next run cannot create: no rule is about a directory of theirs that is there."""
    rules = [rule.capability for layer in manifest.layers for rule in layer.allows]
    places = {rule.key for rule in rules if rule.domain == "fs" and rule.action != "read" and os.path.isdir(rule.key)}
    places |= {rule.capability.key for layer in manifest.layers for rule in layer.allows if rule.key.endswith(OUTPUT)}
    written = (use for use in learned.wanted if use.domain == "fs" and use.action == "write")
    gone = (use for use in written if not os.path.lexists(use.target))
    # Python does without the directories of its compiled files.
    return [use.target for use in gone if places.isdisjoint(use.keys) and "__pycache__" not in use.target.split("/")]


def _whereabouts(found: Found) -> Whereabouts:
    """The directories that `${workdir}` and `~` will be. A recording is believed only about what is so."""
    places = {(start.workdir, start.home) for start in found.starts}
    if len(places) > 1:
        listed = ", ".join(visible(workdir) for workdir, _ in sorted(places))
        raise NotDrafted(f"the recordings are of different directories, {listed}: name those of one of them")
    workdir, home = places.pop()
    here, root = Places.here(), Places.here(policy_root(found.target))
    return Whereabouts(workdir if workdir == root.workdir else here.workdir, here.home, home)


def _check_places(found: Found, learned: Learned, where: Whereabouts) -> None:
    """Exit with 1 if lines are about a directory or a home that is another one here."""
    start = found.starts[0]
    paths = [line.rule.key for line in learned.lines if line.rule.domain in ("fs", "process")]
    for name, recorded, now in (("directory", start.workdir, where.workdir), ("home", start.home, where.home)):
        if recorded not in ("", "/", now) and any(inside(path, (recorded,)) for path in paths):
            known = f"was made with the {name} {visible(recorded)}, which is {visible(now) or 'none'} here"
            raise NotDrafted(f"the recording {known}: run `licet learn` where it was made, as the same user")


def _agent(found: Found) -> str:
    start = found.starts[0]
    named = start.agent or os.path.basename(start.command[0] if start.command else "")
    return named if re.fullmatch(NAME_PATTERN, named) else "program"


def policy_text(target: Path) -> str:
    """The text of a policy file; empty if there is none. `NotDrafted` if it cannot be read, or is no YAML."""
    if target.suffix == ".json":
        raise NotDrafted(f"{target} is JSON, which has no comments: `licet learn` writes YAML")
    if not all(name.endswith((".yaml", ".yml")) for name in (target.name, os.path.realpath(target))):
        raise NotDrafted(f"{visible(str(target))} is no policy file: its name must end with .yaml or .yml")
    if not is_there(target):
        return ""
    try:
        return read_regular(target, MOST_BYTES).decode()
    except (OSError, ValueError) as wrong:
        raise NotDrafted(f"{target} cannot be read: {wrong}") from None


def _read(target: Path, text: str, where: Whereabouts) -> Manifest:
    policy = review(target, places=Places(where.workdir, where.home), draft=text, alone=True)
    errors = [problem for problem in policy.problems if problem.severity == "error"]
    if policy.kind == "workspace" and not errors:
        raise NotDrafted(f"{target} is a workspace without an agent: name the policy to write with --manifest")
    # A lock of another version is to be made again after the review; nothing is run here.
    errors = [problem for problem in errors if os.path.basename(problem.origin.file) != LOCK_FILE]
    manifest = policy.manifest or policy.partial
    if errors or manifest is None:
        raise NotDrafted(problems=errors)
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
_ORDER = (
    *("tools", "process", "fs_reach", "env", "secrets", "connectors", "storage"),
    *("grants", "inspect", "stand_ins", "deny"),
)


def _entries(
    found: Found, lines: Sequence[Line], outputs: Container[str], policy: Manifest, where: Whereabouts, text: str
) -> tuple[list[Entry], list[str]]:
    """The entries that a file lacks, in the order of its keys, and notes about what is not written."""
    entries = list(_program_entries(found, lines, policy, where)) if found.is_program else []
    entries += [_entry(line, policy, where, outputs) for line in lines]
    sensitive = [entry for entry in entries if entry.off]
    notes = []
    if len(sensitive) > MOST_SENSITIVE:
        more = len(sensitive) - MOST_SENSITIVE
        notes.append(f"{more} more sensitive lines are not written: --json lists them")
        entries = [entry for entry in entries if entry not in sensitive[MOST_SENSITIVE:]]
    return _in_order(_unwritten(entries, text)), notes


def _unwritten(entries: Iterable[Entry], text: str) -> list[Entry]:
    """Entries without comments that a file has already."""
    known = commented_out(text)
    return [entry for entry in entries if not (entry.off and entry.text in known)]


def _in_order(entries: Iterable[Entry]) -> list[Entry]:
    return sorted(entries, key=lambda one: (_ORDER.index(one.key[0]), one.key, one.off))


def _program_entries(found: Found, lines: Sequence[Line], policy: Manifest, where: Whereabouts) -> list[Entry]:
    """The command itself, and the variables without which most programs find nothing. No recording shows these."""
    layers = [layer for layer in policy.layers if layer.kind == "manifest"]
    allowed = CapabilitySet(rule.capability for layer in layers for rule in layer.allows)
    entries = []
    for rule in _commands(found, where):
        if not allowed.has(rule) and all(line.rule != rule for line in lines):
            name = where.short(rule.key)
            entries.append(Entry(("process", "allowed_binaries"), name, "the command that was recorded"))
    variables = {
        "PATH": "variables are not recorded; programs find others by this one",
        "TERM": "what a terminal can show",
        "LANG": "the language, and how text is written",
    }
    used = (line.rule.key for line in lines if line.kind != "deny" and line.rule.domain == "fs")
    if any(where.short(path).startswith("~") and not where.toolchain(path) for path in used):
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


def _entry(line: Line, policy: Manifest, where: Whereabouts, outputs: Container[str]) -> Entry:
    rule, short = line.rule, _shortened(where)
    comment = f"{line.calls}: {line.why}" if line.why else line.calls
    if line.kind == "deny":
        return Entry(("deny",), short(rule), comment)
    key: tuple[str, ...] = _KEYS.get((rule.domain, rule.action), ("grants",))
    if line.kind == "sensitive" and rule.domain != "tool":
        key = ("grants",)
    if rule.domain == "fs" and rule.action == "write" and not class_fits(policy.max_effect, "write_limited"):
        key = ("grants",)  # at this class, `fs_reach.write` would allow deletes too
    if rule.domain == "fs" and rule.action == "write" and rule.key in outputs:
        key = tuple(OUTPUT.split("."))
    if rule.domain == "storage":
        key = ("storage",)
    text = short(rule) if key == ("grants",) else where.short(rule.scope) if rule.domain == "fs" else rule.scope
    if key == ("process", "allowed_binaries"):
        text = where.short(rule.scope)
    return Entry(key, text, comment, off=line.kind == "sensitive")


def _shortened(where: Whereabouts) -> Any:
    def short(rule: Capability) -> str:
        if rule.domain not in PATH_DOMAINS or not rule.key.startswith("/"):
            return str(rule)
        return f"{rule.domain}:{rule.action}:{where.short(rule.key)}"

    return short


def _still_refused(learned: Learned, manifest: Manifest, where: Whereabouts) -> tuple[str, ...]:
    """What was used and would still be refused: by a workspace, by a class, or since policy is never written."""
    policy = with_commands(closed_to_grants(manifest, where.workdir))
    reach = reach_of(policy, COMMANDS)
    held = reach.grant if reach is not None else CapabilitySet()
    return tuple(str(use) for use in learned.wanted if use.domain in SEEN["program"] and not held.has(use))
