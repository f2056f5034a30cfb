"""What `licet hooks install` and `remove` would write, as a plan that is shown, and then done.

A plan is made from the files as they are; when it is done, each file must still be the one that was read. What is
needed to undo an edit is kept first, so that no crash loses it. A file of another user, or behind a link, is refused.
"""

import base64
import difflib
import json
import os
import re
import stat
import subprocess
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from licet.clients.jsonc import BadConfig, Jsonc, apply
from licet.clients.known import Seen, Unusable, digest, read_own, replace_own
from licet.clients.toml_tables import Toml
from licet.core.algebra.scope import inside
from licet.errors import LicetError
from licet.hooks.agent_settings import (
    Directories,
    Scope,
    Target,
    codex_rules_file,
    codex_rules_text,
    found_hooks,
    is_codex_rules,
    target,
    targets,
    with_hooks,
    without_hooks,
)
from licet.hooks.agents import AGENTS, NAMES
from licet.hooks.codex_app_server import NoAnswer, app_server
from licet.hooks.limits import INSTALL_SECONDS, LIST_BYTES, VERSION_SECONDS
from licet.hooks.policy_choice import hooks_directory
from licet.own_files import create_file, find_on_path, locked_directory, read_regular, replace_file

_RECORD = "installed.json"
_FORMAT = 1
_HOMES = {
    "claude": ".claude",
    "codex": ".codex",
    "gemini": ".gemini",
    "copilot": ".copilot",
    "opencode": ".config/opencode",
    "cursor": ".cursor",
}
_VERSION = re.compile(r"\d+\.\d+\.\d+(?:[-+][\w.]+)?")
_BLOCKS_SINCE = (2, 1, 295)  # Claude Code ignores `onFailure` before


class AgentHere(Struct, frozen=True):
    """An agent on this machine. `program` is empty if it has settings, and no program on PATH."""

    name: str
    program: str
    version: str


class Edit(Struct, frozen=True):
    """What happens to one file: bytes before and after; None where there is no file."""

    place: Target
    before: bytes | None
    after: bytes | None
    removes: bool = False  # takes our hooks out, and does not put any in

    def lines(self) -> list[str]:
        """The changed lines, as in a diff, without those that get or lose a comma alone."""
        old, new = (_shown_lines(data) for data in (self.before, self.after))
        found = [
            line
            for line in difflib.unified_diff(old, new, lineterm="", n=0)
            if not line.startswith(("---", "+++", "@@"))
        ]
        bare = [line[1:].rstrip().rstrip(",") for line in found if line[0] == "-"]
        added = [line[1:].rstrip().rstrip(",") for line in found if line[0] == "+"]
        both = {one for one in bare if one in added}
        return [line for line in found if line[1:].rstrip().rstrip(",") not in both]


class AgentPlan(Struct, frozen=True):
    """What is done for one agent. With a `problem` nothing is."""

    agent: AgentHere
    scope: Scope
    edits: tuple[Edit, ...] = ()
    problem: str = ""
    notes: tuple[str, ...] = ()


class Kept(Struct, frozen=True):
    """What is kept of an edited file, to undo the edit."""

    agent: str
    scope: str
    path: str
    base: str
    before: str | None  # base64; None: there was no file
    digest_after: str
    made: tuple[str, ...] = ()  # directories
    keys: tuple[str, ...] = ()  # of hooks that Codex was told to trust


class _Record(Struct, frozen=True):
    files: tuple[Kept, ...] = ()
    format: int = _FORMAT


class Busy(LicetError):
    """Another `licet hooks` of this user is writing."""


# What is there --------------------------------------------------------------------------------------------------------


def find_agents(here: Directories, wanted: Iterable[str] = ()) -> list[AgentHere]:
    """The agents on this machine: those with a program on PATH, and those with settings in the home directory."""
    named = set(wanted)
    programs = {name: find_on_path(AGENTS[name].program) or "" for name in NAMES}
    found = [
        name for name in NAMES if (name in named if named else programs[name] or (here.home / _HOMES[name]).is_dir())
    ]
    with ThreadPoolExecutor(max_workers=len(NAMES)) as pool:
        versions = list(pool.map(lambda name: version_of(programs[name]), found))
    return [AgentHere(name, programs[name], version) for name, version in zip(found, versions, strict=True)]


def version_of(program: str) -> str:
    """What a program says its version is; empty if it does not say it in time."""
    if not program:
        return ""
    try:
        said = subprocess.run(  # noqa: S603 - the person's own agent
            [program, "--version"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=VERSION_SECONDS,
            check=False,
            cwd="/",
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    found = _VERSION.search(said.stdout.decode("utf-8", "replace"))
    return found[0] if found else ""


def licet_inside(project: Path, *places: str) -> str:
    """A directory of licet that lies inside the project; empty if none does.

    Its files are closed to every line, so a package manager of the project could change nothing there any more.
    """
    root = os.path.realpath(project)
    return next((place for place in places if inside(os.path.realpath(place), (root,))), "")


def readable_by_all(client: Sequence[str]) -> bool:
    """Whether every user of this machine may start the client."""
    files = [word for word in client if word.startswith("/")]
    return all(_reads(path) for file in files for path in (file, os.path.realpath(file)))


def _reads(path: str) -> bool:
    try:
        if not os.stat(path).st_mode & stat.S_IROTH:
            return False
        return all(os.stat(above).st_mode & stat.S_IXOTH for above in Path(path).parents)
    except OSError:
        return False


# The plan of an installation ------------------------------------------------------------------------------------------


def plan_install(
    agents: Iterable[AgentHere], wanted: Scope | None, here: Directories, client: Sequence[str], *, is_root: bool
) -> list[AgentPlan]:
    """What is to be written so that the hooks of these agents are there once, and start this client."""
    for_all = is_root and readable_by_all(client)
    return [_plan_agent(agent, wanted, here, client, for_all=for_all) for agent in agents]


def _plan_agent(
    agent: AgentHere, wanted: Scope | None, here: Directories, client: Sequence[str], *, for_all: bool
) -> AgentPlan:
    managed = target(agent.name, "managed", here)
    scope: Scope = wanted or ("managed" if for_all and managed else "user")
    if wanted == "managed" and managed is None:
        return AgentPlan(
            agent, scope, problem=f"{AGENTS[agent.name].product} has no managed hooks that licet can write"
        )
    if wanted == "managed" and not readable_by_all(client):
        why = "another user cannot start this licet, so each of their calls would be refused: install it for all users"
        return AgentPlan(agent, scope, problem=why)
    notes: list[str] = []
    try:
        there = {one.scope: one for one in targets(agent.name, here) if _has_hooks(one)}
        widest = max((*there, scope), key=SCOPES_BY_WIDTH.index)
        if widest != scope:
            notes.append(f"they are there for the {_WHOSE[widest]} already, which covers this")
        place = target(agent.name, widest, here)
        assert place is not None  # noqa: S101 - it was found there, or every agent has it
        edits: list[Edit | None] = [_install_edit(place, client)]
        edits += [_removal(one, Recorded()) for one in there.values() if one.scope != widest]
        if agent.name == "codex":
            edits.append(_own_edit(codex_rules_file(here), codex_rules_text(client)))
    except (Unusable, BadConfig) as wrong:
        return AgentPlan(agent, scope, problem=str(wrong), notes=tuple(notes))
    changed = tuple(edit for edit in edits if edit is not None and edit.before != edit.after)
    return AgentPlan(agent, widest, changed, notes=(*notes, *notes_about(agent)))


SCOPES_BY_WIDTH: tuple[Scope, ...] = ("project", "user", "managed")
_WHOSE = {"project": "project", "user": "user", "managed": "whole machine"}


def notes_about(agent: AgentHere) -> Iterator[str]:
    """What a person should know of the agent itself, as it is on this machine."""
    numbers = tuple(int(part) for part in agent.version.split("-")[0].split(".")) if agent.version else ()
    if agent.name == "claude" and numbers and numbers < _BLOCKS_SINCE:
        yield "this version ignores `onFailure`: when the hook fails, the call runs. Update it to 2.1.295 or later"
    if not agent.program:
        yield "it has settings here, and no program on PATH"


def _has_hooks(one: Target) -> bool:
    seen = read_own_or_none(one)
    return seen is not None and bool(found_hooks(one, seen.text))


def read_own_or_none(one: Target) -> Seen | None:
    """A file of settings as it is; None if there is none. Raises `Unusable`."""
    return read_own(one.path, one.base)


def _install_edit(one: Target, client: Sequence[str]) -> Edit:
    seen = read_own_or_none(one)
    if one.is_own:
        return _own_edit(one, with_hooks(one, None, client))
    try:
        text = with_hooks(one, seen.text if seen else None, client)
    except BadConfig as wrong:
        raise BadConfig(f"{one.path} cannot be edited: {wrong}") from None
    return Edit(one, seen.data if seen else None, text.encode())


def _own_edit(one: Target, text: str) -> Edit:
    seen = read_own_or_none(one)
    if seen is not None and not _is_ours(one, seen.text):
        raise Unusable(f"{one.path} is there, and licet did not write it: move it away")
    return Edit(one, seen.data if seen else None, text.encode())


def _is_ours(one: Target, text: str) -> bool:
    if one.path.suffix == ".rules":
        return is_codex_rules(text)
    try:
        return bool(found_hooks(one, text))
    except BadConfig:
        return False


# The plan of a removal ------------------------------------------------------------------------------------------------


def plan_removal(agents: Iterable[str], scopes: Iterable[Scope], here: Directories) -> tuple[list[Edit], list[str]]:
    """What is to be written so that nothing of ours is left in the settings of agents, and what could not be read."""
    record, edits, problems = Recorded(), list[Edit](), list[str]()
    for agent in agents:
        files = [one for one in targets(agent, here) if one.scope in scopes]
        if agent == "codex" and "user" in scopes:
            files.append(codex_rules_file(here))
            files += [_trust_file(one) for one in record.of("codex") if one.keys]
        for one in files:
            try:
                edit = _trust_removal(one, record) if one.path.suffix == ".toml" else _removal(one, record)
            except (Unusable, BadConfig) as wrong:
                problems.append(f"{one.path}: {wrong}")
                continue
            if edit is not None:
                edits.append(edit)
    return edits, problems


def _removal(one: Target, record: "Recorded") -> Edit | None:
    seen, kept = read_own_or_none(one), record.find(one.path)
    if seen is None:
        return None
    if kept is not None and kept.digest_after == digest(seen.data):
        return Edit(one, seen.data, _decoded(kept.before), removes=True)
    if one.is_own:
        return Edit(one, seen.data, None, removes=True) if _is_ours(one, seen.text) else None
    before = _decoded(kept.before) if kept is not None else None
    was = Jsonc().read(before.decode()) if before else {}
    text = without_hooks(one, seen.text, was)
    if text == seen.text:
        return None
    is_left = Jsonc().read(text) not in ({}, {"version": 1}) or not (kept is not None and kept.before is None)
    return Edit(one, seen.data, text.encode() if is_left else None, removes=True)


def _trust_file(kept: Kept) -> Target:
    return Target("codex", "user", Path(kept.path), Path(kept.base))


def _trust_removal(one: Target, record: "Recorded") -> Edit | None:
    seen, kept = read_own_or_none(one), record.find(one.path)
    if seen is None or kept is None:
        return None
    if kept.digest_after == digest(seen.data):
        return Edit(one, seen.data, _decoded(kept.before), removes=True)
    text = seen.text
    for key in kept.keys:
        text = apply(text, Toml().put_back(text, ("hooks", "state"), key, {}))
    is_left = bool(text.strip()) or kept.before is not None
    return Edit(one, seen.data, text.encode() if is_left else None, removes=True) if text != seen.text else None


# What is done ---------------------------------------------------------------------------------------------------------


class Recorded:
    """The list of the files that were edited, with what is needed to undo each edit."""

    def __init__(self) -> None:
        self._path = hooks_directory() / _RECORD
        try:
            self._record = msgspec.json.decode(read_regular(self._path, LIST_BYTES, links=False), type=_Record)
        except FileNotFoundError:
            self._record = _Record()
        except (OSError, msgspec.MsgspecError):
            raise Unusable(f"{self._path} cannot be read: move it away; edits are then undone entry by entry") from None
        if self._record.format != _FORMAT:
            raise Unusable(f"{self._path} is of another version of licet: undo its edits with that one")

    def find(self, path: Path) -> Kept | None:
        """What is kept of a file."""
        return next((one for one in self._record.files if one.path == str(path)), None)

    def of(self, agent: str) -> list[Kept]:
        """What is kept of the files of an agent."""
        return [one for one in self._record.files if one.agent == agent]

    def keep(self, new: Kept) -> None:
        """Keep what undoes an edit, in place of what was kept of the same file."""
        self._write((*(one for one in self._record.files if one.path != new.path), new))

    def forget(self, path: Path) -> None:
        """Forget an edit that was undone."""
        self._write(tuple(one for one in self._record.files if one.path != str(path)))

    def _write(self, files: tuple[Kept, ...]) -> None:
        self._record = _Record(files)
        self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        data = json.dumps(msgspec.to_builtins(self._record), indent=1).encode() + b"\n"
        if len(data) > LIST_BYTES:
            raise Unusable(f"{self._path} would be too large")
        replace_file(self._path, data)


@contextmanager
def writing() -> Iterator[None]:
    """One `licet hooks` of this user at a time. Raises `Busy`."""
    place = hooks_directory()
    place.mkdir(mode=0o700, parents=True, exist_ok=True)
    end = time.monotonic() + INSTALL_SECONDS
    with ExitStack() as held:
        while True:
            try:
                held.enter_context(locked_directory(str(place)))
                break
            except BlockingIOError:
                if time.monotonic() > end:
                    raise Busy("another `licet hooks` of this user is writing: try again when it has ended") from None
        yield


def perform(edit: Edit) -> None:
    """Make one edit. Raises `Unusable` if the file is another one than was shown."""
    if edit.removes:
        _remove(edit)
    else:
        _install(edit)


def _install(edit: Edit) -> None:
    one, record = edit.place, Recorded()
    seen = _unchanged(edit)
    if seen is _DONE:
        return
    assert edit.after is not None  # noqa: S101 - what deletes is a removal
    kept = record.find(one.path)
    before, made = edit.before, _missing(one.path.parent, one.base)
    if kept is not None:
        made = list(kept.made)
        undone = _removal(one, record) if before is not None else None
        before = undone.after if undone is not None else before
    record.keep(
        Kept(one.agent, one.scope, str(one.path), str(one.base), _encoded(before), digest(edit.after), tuple(made))
    )
    _make(one)
    _write(one, seen, edit.after)


def _remove(edit: Edit) -> None:
    one, record = edit.place, Recorded()
    seen = _unchanged(edit)
    kept = record.find(one.path)
    if isinstance(seen, Seen):
        if edit.after is None:
            try:
                os.unlink(one.path)
            except OSError as wrong:
                raise Unusable(f"{one.path} cannot be removed: {wrong.strerror}") from None
        else:
            replace_own(seen, edit.after, one.base)
    if kept is not None:
        record.forget(one.path)
        for made in reversed(kept.made):
            with suppress(OSError):  # something else is in it
                os.rmdir(made)


_DONE = object()


def _unchanged(edit: Edit) -> Any:
    """The file as it is, if it is the one that was shown; `_DONE` if another has done the same meanwhile."""
    seen = read_own_or_none(edit.place)
    now = seen.data if seen else None
    if now == edit.before:
        return seen
    if now == edit.after:
        return _DONE
    raise Unusable(f"{edit.place.path} changed meanwhile: try again")


def _missing(folder: Path, base: Path) -> list[str]:
    every = (*reversed(folder.parents), folder)
    return [str(one) for one in every if not one.exists() and inside(str(one), (str(base),))]


def _make(one: Target) -> None:
    mode = 0o700 if one.scope == "user" else 0o755
    for folder in _missing(one.path.parent, one.base.parent):
        try:
            os.mkdir(folder, mode)
        except FileExistsError:
            continue
        except OSError as wrong:
            raise Unusable(f"the directory {folder} cannot be made: {wrong.strerror}") from None


def _write(one: Target, seen: Seen | None, data: bytes) -> None:
    if seen is not None:
        replace_own(seen, data, one.base)
        return
    try:
        create_file(one.path, data, 0o600 if one.scope == "user" else 0o644)
    except FileExistsError:
        raise Unusable(f"{one.path} changed meanwhile: try again") from None
    except OSError as wrong:
        raise Unusable(f"{one.path} cannot be written: {wrong.strerror}") from None


def _encoded(data: bytes | None) -> str | None:
    return None if data is None else base64.b64encode(data).decode()


def _decoded(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)


def _shown_lines(data: bytes | None) -> list[str]:
    return [] if data is None else data.decode("utf-8", "replace").splitlines()


# The trust of Codex ---------------------------------------------------------------------------------------------------


class Trusted(Struct, frozen=True):
    """What Codex says about our hooks: how many there are, and how many of them it runs."""

    hooks: int
    runs: int
    problem: str = ""


def codex_trust(program: str, here: Directories, client: Sequence[str], *, write: bool) -> Trusted:
    """Ask Codex whether it runs our hooks; with `write`, have it trust them first."""
    from licet.hooks.agent_settings import our_words

    def ours(hooks: Iterable[Any]) -> list[Any]:
        start = tuple(client)
        return [one for one in hooks if (our_words(one.command, "codex") or ())[: len(start)] == start]

    folder, base = here.moved("CODEX_HOME", ".codex")
    file = Target("codex", "user", folder / "config.toml", base)
    if not program:
        return Trusted(0, 0, "Codex is not on PATH, so nothing can have it trust these hooks: it runs none of them")
    try:
        with app_server(program, here.project, {**os.environ, **here.environ}) as server:
            found = ours(server.hooks(here.project))
            new = [one for one in found if one.trust not in ("trusted", "managed")]
            if new and write:
                _trust(server, file, new)
                found = ours(server.hooks(here.project))
    except (NoAnswer, Unusable) as wrong:
        return Trusted(0, 0, str(wrong))
    return Trusted(len(found), sum(one.enabled and one.trust in ("trusted", "managed") for one in found))


def _trust(server: Any, file: Target, new: Sequence[Any]) -> None:
    record, seen = Recorded(), read_own_or_none(file)
    kept = record.find(file.path)
    before = seen.data if seen else None
    if kept is not None:
        undone = _trust_removal(file, record)
        before = undone.after if undone is not None else before
    server.trust(new)
    after = read_own_or_none(file)
    if after is not None:
        keys = tuple(dict.fromkeys((*(kept.keys if kept else ()), *(one.key for one in new))))
        record.keep(
            Kept("codex", "user", str(file.path), str(file.base), _encoded(before), digest(after.data), keys=keys)
        )
