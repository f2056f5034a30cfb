"""Names the walls that a command of `licet run` hit, from what the command said, and what would open them.

Only the program learns that the kernel refused it something. So a wall is named only if the last output of the command
names a path with an error that walls cause, and this run does close that path. It is told as what the output says: a
program may print what it never tried. Refused connections are known from the proxy, and come first.
What flags close is opened by a flag, what a policy closes by a line in its file. A command that ended with code 0 may
have met walls too: git switches branches without the files that it could not replace.

Names the programs on PATH that a failed command of `licet run` looked for and could not see, and what shows them.

`licet run` lets the program that it starts read its own files. What that one starts in turn is within the grants:
`make` does not find a `pytest` of a virtual environment elsewhere. This is said only if the output of the command names
the program as not found, and no file of that name on PATH can be read.
"""

import os
import re
import shlex
import stat
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from licet.assemble.program import HTTPS, Typed, flag_of_path, opening_flag
from licet.cli.advised_paths import leads_to_more, real_use, why_not_advised, written_at
from licet.cli.limits import CLOSED_SHOWN, HINT_LINES
from licet.cli.output import show
from licet.cli.refused_paths import REMOVING, last_lines, refused_paths
from licet.core.algebra.rules import InvalidUse, Use, use_of_path
from licet.core.algebra.scope import inside, is_address, visible
from licet.core.algebra.set import CapabilitySet
from licet.core.decision.advice import lacking_rules, use_lacking_rules
from licet.core.decision.decision import CapabilityDenied, address_grounds
from licet.core.decision.reach import Reach
from licet.core.decision.refused_deletes import refused_delete, refused_deletes_line
from licet.core.late_pattern import late_pattern
from licet.core.policy.addresses import address_kind
from licet.core.policy.layer import POLICY
from licet.core.policy.manifest import COMMANDS, PROGRAM
from licet.core.policy.terms import private_lists
from licet.core.review.socket_power import socket_power
from licet.core.values import COMMAND_LINE
from licet.guard.held_paths import held_paths
from licet.guard.import_path import ways
from licet.guard.result import Result
from licet.policy_files.policy_paths import PLACES, home_directory, names_of_policy, shown_path
from licet.sandbox.grant_paths import NEVER
from licet.sandbox.programs.program_files import GIT_SETTINGS, MADE_FILES, SYSTEM
from licet.sandbox.programs.system_configuration import configuration

_ACROSS = ("cross-device", "exdev", "resource busy", "ebusy")  # what a directory that is kept in place answers
_READ_ONLY = ("read-only", "erofs", "directory nonexistent")  # the last is said by sh about a directory that is hidden
_ABSENT = ("no such file", "enoent")  # with a private root, what may not be read is not there
if TYPE_CHECKING:
    from licet.policy_files.trusted_paths import TrustedPaths

_TEMPORARY = ("/tmp", "/var/tmp", "/run/scratch", *NEVER)  # noqa: S108 - may be scratch, which is the program's own


def hints(
    said: str, reach: Reach | None, workdir: str, held: Iterable[str], *, degraded: bool, whole: bool = False
) -> list[str]:
    """The walls that a command says it hit and that are there, each with the rule that explains it."""
    if reach is None:
        return []
    found: dict[str, None] = {}
    for path, error in refused_paths(said, workdir):
        why = _wall(reach, path, error, tuple(held), workdir, degraded=degraded, whole=whole)
        if why:
            found[why] = None
    return list(found)


def explanation(
    refused: Sequence[str], walls: Sequence[str], receipt: str, *, succeeded: bool = False, unseen: str = ""
) -> Iterator[tuple[str, str | None]]:
    """What a person reads of the walls that a command met, in a few lines, each with a colour or none.

    `refused`: what the proxy has refused. It comes first, as nobody needs to believe the program about it. `walls`:
    those that the output of the command names; `unseen`: why none of it was seen. `receipt`: what shows all of it.
    """
    if unseen:
        yield f"licet: {unseen}: what it said was not searched for walls", None
    most = HINT_LINES - bool(unseen)
    shown = refused[: most - 1 - (2 if walls else 0)]  # with room for the receipt, and for a wall
    yield from ((line, "red") for line in shown)
    if walls:
        room = most - 1 - len(shown) - bool(refused)
        more = f" ({len(walls) - room} more are left out)" if len(walls) > room else ""
        text = f"its output says that it was refused this, or did not find it, and the walls do close it{more}:"
        yield f"licet: {'it ended with code 0, but ' if succeeded else ''}{text}", None
        yield from ((f"  - {line}", None) for line in walls[:room])
    if refused:
        left = f"{len(refused) - len(shown)} more, and " if len(refused) > len(shown) else ""
        yield f"licet: {left}all that was checked: {receipt}", None


def show_warnings(typed: Typed, reach: Reach | None, secrets: Path | None = None) -> None:
    """Warn on stderr of a file of secrets in reach, of flags that allow nothing, and of those that open keys."""
    if reach is None:
        return
    if secrets is not None and _reaches_directory(secrets, reach):
        why = "in a directory that the command reaches: an editor outside that saves it shows it for a moment"
        show(f"licet: --secrets {shown_path(secrets)} is {why}; move it elsewhere", err=True, colour="yellow")
    if not (typed.read or typed.write):
        return
    from licet.core.review.sensitive import holds_keys, keys_below  # runs without such flags do not need its long lists

    for action, paths in (("read", typed.read), ("write", typed.write)):
        for path in paths:
            if why := _nothing(reach, use_of_path(action, path)):
                text = f"allows nothing: {why}"
            elif leads := leads_to_more(action, path, os.getcwd()):
                text = leads
            elif holds_keys(path):
                text = f"opens a place of keys and credentials to the command, which may {action} them"
            elif keys := [key for key in keys_below(path, home_directory()) if _opens(reach, action, key)]:
                others = " and other places of keys" if len(keys) > 1 else ", a place of keys"
                text = f"opens the directory to the command, and with it {_below_home(keys[0])}{others}"
            elif action == "write" and os.path.isfile(path):
                text = "names a single file: the command may write it, and not remove or rename it"
            else:
                continue
            show(f"licet: --allow-{action} {shown_path(Path(path))} {text}", err=True, colour="yellow")


def _opens(reach: Reach, action: str, path: str) -> bool:
    """Whether a path is there, and the grants reach it."""
    with suppress(InvalidUse):
        return os.path.lexists(path) and reach.grant.has(use_of_path(action, path))
    return False


def _below_home(path: str) -> str:
    home = home_directory()
    return f"~{path.removeprefix(home)}" if home and inside(path, (home,)) else path


def show_closed(closed: "TrustedPaths | None") -> None:
    """Say on stderr, in one line, that the flags leave closed what other programs run or trust, if they reach any."""
    if closed is None or not closed.paths:
        return
    familiar = ("/.git/hooks", "/.git", "/.vscode", "/.envrc")  # existing paths first, then those that people know
    paths = sorted(closed.paths, key=lambda path: (not os.path.lexists(path), not path.endswith(familiar)))
    names = ", ".join(visible(shown_path(path)) for path in paths[:CLOSED_SHOWN])
    more = f" and {len(paths) - CLOSED_SHOWN} more (`--save` lists them)" if len(paths) > CLOSED_SHOWN else ""
    text = f"not writable, since other programs run or trust it: {names}{more}"
    opening = next((f"; {flag} opens one" for path in paths if (flag := opening_flag(path))), "")
    show(f"licet: {text}{opening}", err=True)
    for path in closed.unsearched[:CLOSED_SHOWN]:
        show(f"licet: {visible(shown_path(path))} is not writable: {closed.paths[path]}", err=True, colour="yellow")


def _reaches_directory(file: Path, reach: Reach) -> bool:
    """Whether the grants reach a directory of a file, by its name, its real path or a link on the way.

    The file itself is closed. Who replaces it there removes what covers it, until it is covered again.
    """
    directories = {os.path.realpath(os.path.dirname(name)) for name in ways(str(file))}
    try:
        uses = [use_of_path(action, folder) for folder in directories for action in ("read", "write", "delete")]
    except InvalidUse:  # no rule can name it, and one about what is above may reach it
        return True
    return any(reach.grant.has(use) for use in uses)


def _nothing(reach: Reach, use: Use) -> str:
    """Why a flag about a path allows nothing; empty if it does."""
    if not os.path.lexists(use.target):
        return "there is no such file or directory"
    rules = (rule for layer in reach.layers if layer.kind == "protected paths" for rule in layer.denies)
    return next((rule.key for rule in rules if CapabilitySet([rule.capability]).has(use)), "")


def _wall(
    reach: Reach, path: str, error: str, held: tuple[str, ...], workdir: str, *, degraded: bool, whole: bool
) -> str:
    """The wall at a path, or an empty text if the policy closes nothing there."""
    with suppress(OSError):
        if stat.S_ISSOCK(os.stat(path).st_mode):
            return _of_socket(reach, path)
    granted = held_paths(reach.grant)
    if inside(path, _TEMPORARY) and not granted.overlaps("read", path) and not granted.overlaps("write", path):
        return ""
    try:
        read, write = use_of_path("read", path), use_of_path("write", path)
    except InvalidUse:
        return ""
    shown = f"`{visible(path)}`"
    is_refused = degraded or any(mark in error for mark in (*_ACROSS, *_READ_ONLY))
    if error.startswith(REMOVING) and is_refused and (why := _not_removed(reach, path, workdir)):
        return f"{shown} may not be {why}"
    # A closed name that was missing is there only while the program runs.
    if any(mark in error for mark in (*_ACROSS, *_READ_ONLY)) and (denied := _denied_because(reach, write)):
        return f"{shown} may not be written: {denied}"
    if any(mark in error for mark in _ACROSS):
        kept = [place for place in held if inside(path, (place,))]
        return f"a closed file lies in `{visible(kept[0])}`: nothing is moved or linked across it" if kept else ""
    if (
        not reach.grant.has(read)
        and os.path.lexists(path)
        and not inside(path, (*SYSTEM, *configuration(), *MADE_FILES, GIT_SETTINGS))
    ):
        return f"{shown} may not be read: {closed_because(reach, read, 'fs_reach.read', workdir)}"
    if any(mark in error for mark in _ABSENT):
        return ""
    if not os.path.lexists(path) and os.path.dirname(path) == workdir and _hidden(os.path.basename(path), reach):
        return ""  # a shell that was refused to start a program says it like this; `programs_not_found` names that
    # What may not be written is mounted read-only; without a private root, Landlock says that it is not permitted.
    if (degraded or any(mark in error for mark in _READ_ONLY)) and os.path.lexists(os.path.dirname(path)):
        if reach.effect in (None, "read_only") and not _flags_lack(reach, write):
            return f"{shown} may not be written: the class of the policy is read_only ({reach.class_origin})"
        if not reach.grant.has(write):
            return f"{shown} may not be written: {closed_because(reach, write, 'fs_reach.write', workdir)}"
    if reach.effect in (None, "read_only") or not reach.grant.has(write):
        return ""
    if not os.path.lexists(path):
        return _without_new_names(reach, os.path.dirname(path)) if degraded and not whole else ""
    return _not_deleted(reach, path, degraded=degraded and not whole)


def _not_removed(reach: Reach, path: str, workdir: str) -> str:
    """That removing and renaming take writing the directory, where that is what lacks; else an empty text."""
    directory = os.path.dirname(path)
    try:
        write, write_in_it = use_of_path("write", path), use_of_path("write", directory)
    except InvalidUse:
        return ""
    if reach.grant.has(write_in_it) or _denied_because(reach, write) or not os.path.lexists(path):
        return ""
    if reach.effect in (None, "read_only") and not _flags_lack(reach, write_in_it):
        return ""
    why = closed_because(reach, write_in_it, "fs_reach.write", workdir, f"`{visible(directory)}`")
    return f"removed or renamed, which takes writing its directory: {why}"


def _of_socket(reach: Reach, path: str) -> str:
    """What opens a unix socket of the machine, with what it gives; empty if a rule has opened it."""
    try:
        use = Use(f"socket:connect:{path}")
    except InvalidUse:
        return ""
    if reach.grant.has(use):
        return ""
    opens = f"`--allow-socket {shlex.quote(path)}`" if _flags_lack(reach, use) else f"`{use}` under `grants`"
    return f"`{visible(path)}` is a unix socket of the machine; {visible(opens)} opens it, and is {socket_power(path)}"


def closed_because(reach: Reach, use: Use, key: str, workdir: str, path: str = "the path") -> str:
    """The rule that denies a use that the output of a program names, or how to allow it, unless a person must decide.

    The program may never have asked for it, and only wants it: so nothing is advised about keys, homes, and what other
    programs run.
    """
    if denied := _denied_because(reach, use):
        return denied
    if use.action == "write" and names_of_policy(use.target, workdir):
        return POLICY
    if why := why_not_advised(use, workdir):
        return why
    meant = real_use(use)
    if denied := _denied_because(reach, meant):
        return denied
    if meant != use and reach.grant.has(meant):
        return f"it leads to `{visible(meant.target)}`, which is allowed: use that name"
    return because(reach, meant, key, path if meant == use else f"`{visible(meant.target)}`")


def _denied_because(reach: Reach, use: Use) -> str:
    for layer in reach.layers:
        for rule in layer.denies:
            if CapabilitySet([rule.capability]).has(use):
                return rule.key if layer.kind == "protected paths" else f"`{rule.capability}` is denied ({rule.origin})"
    return ""


def because(reach: Reach, use: Use, key: str, path: str = "the path") -> str:
    """The rule that denies a use, or how to allow it; `path` is the spelling that a line of policy would need."""
    if denied := _denied_because(reach, use):
        return denied
    line = f"add {path} under `{key}` ({reach.manifest.origin})"
    if not _flags_lack(reach, use):
        return f"no rule allows it; to allow it, {line}{_allowing(reach, use)}"
    return f"no flag allows it; add {_flag(use)}{'' if _files_allow(reach, use) else f', and {line}'}"


def _allowing(reach: Reach, use: Use) -> str:
    """The command line with which a person allows the use of a path; empty if that is a whole project."""
    file, tool = Path(reach.manifest.origin.file), reach.spec.name
    named = () if file in PLACES and tool in (COMMANDS, PROGRAM) else (str(file), PROGRAM if tool == COMMANDS else tool)
    target = written_at(use.target) if use.action == "write" else use.target
    if os.path.isdir(target) and inside(os.getcwd(), (target,)):
        return ""
    return f", or run `licet allow {shlex.join((*named, use.action, target))}`"


def _is_lacking(event: CapabilityDenied, reach: Reach) -> bool:
    """Whether lines of a policy file, and not only flags, would allow what was refused."""
    use = use_lacking_rules(event, reach) if reach.manifest.files else None
    return use is not None and not _files_allow(reach, use)


def allowing_receipt(result: Result, reach: Reach | None) -> str:
    """The command line with which a person allows what a run was refused; empty if no line of a policy file would."""
    denials = [event for event in result.events if isinstance(event, CapabilityDenied)]
    if reach is None or not any(_is_lacking(event, reach) for event in denials):
        return ""
    file = Path(reach.manifest.origin.file)
    return f"licet allow {result.receipt}{'' if file in PLACES else f' --manifest {shlex.quote(str(file))}'}"


def _flags_lack(reach: Reach, use: Use) -> bool:
    """Whether the flags of this run leave out a use: they are its policy, or narrow it."""
    return any(layer.origin.file == COMMAND_LINE and not layer.without_denies.has(use) for layer in reach.layers)


def _files_allow(reach: Reach, use: Use) -> bool:
    """Whether every layer that flags did not write allows a use."""
    written = (one for one in reach.layers if one.origin.file != COMMAND_LINE and one.kind != "protected paths")
    return all(layer.without_denies.has(use) for layer in written)


def _flag(use: Use) -> str:
    """The flag that allows a use."""
    if use.domain == "network":
        port = "" if use.port == HTTPS else f":{use.port}"
        wider = " (no flag says less than any connection to that port)" if use.method else ""
        return f"`--allow-net {shlex.quote(f'{use.target}{port}')}`{wider}"
    return flag_of_path("read", use.target) if use.action == "read" else flag_of_path("write", written_at(use.target))


def refusals(result: Result, reach: Reach | None, *, only_keys: bool = False) -> list[str]:
    """Deletes and connections that were refused, since many programs do not report it; or deletes and keys alone."""
    events = [event for event in result.events if isinstance(event, CapabilityDenied) and not refused_delete(event)]
    if only_keys:
        events = [event for event in events if event.reason == "SECRET_NOT_DECLARED"]
    deletes = refused_deletes_line(result.events, reach)
    if deletes and reach is not None and reach.approvals.delete == "session":
        deletes += "; or run with `--ask`"
    lines = (f"licet: {deletes}" if deletes else "", *(visible(refusal_line(event, reach)) for event in events))
    return list(dict.fromkeys(filter(None, lines)))


def refusal_line(event: CapabilityDenied, reach: Reach | None) -> str:
    """A connection that the proxy refused, why, and the flag or the line that would allow it, if rules would."""
    about = f"licet: refused {event.capability}: "
    try:
        use = Use(event.capability)
    except InvalidUse:  # nothing that a rule could allow
        return about + event.rule
    if reach is None or use.domain != "network":
        return about + event.rule
    alone = reach.manifest.origin.file == COMMAND_LINE
    if event.reason == "ADDRESS_NOT_ALLOWED":
        return f"{about}{event.rule}{_open_address(use, reach, alone=alone)}"
    if not lacking_rules(event.rule, use, reach):
        return about + event.rule
    flag = f"add {_flag(use)}" if _flags_lack(reach, use) else ""
    if flag and alone:
        return f"{about}no flag allows it; {flag}"
    rest = replace(reach, layers=tuple(one for one in reach.layers if one.origin.file != COMMAND_LINE))
    return f"{about}{event.rule}{_to_allow(flag, *(ground.fix for ground in rest.obstacles_of(use)))}"


def _open_address(use: Use, reach: Reach, *, alone: bool) -> str:
    """How a private address is opened; empty if nothing opens it."""
    literal = is_address(use.target)
    if literal and address_kind(use.target.strip("[]")).metadata:
        return ""
    if alone and literal:
        return f"; add {_flag(use)}"
    if alone:
        return f"; write the address instead of the name, also as `--allow-net ADDRESS:{use.port}`"
    if literal:
        fixes = [ground.fix for ground in address_grounds(use, [use.target.strip("[]")], reach)]
    else:
        fixes = [f"list its address under `{one.key}` ({one.origin})" for one in private_lists(reach.manifest, ())]
    return _to_allow(*fixes)


def _to_allow(*fixes: str) -> str:
    steps = dict.fromkeys(filter(None, fixes))
    return f"; to allow it, {'; '.join(steps)}" if steps else ""


def _not_deleted(reach: Reach, path: str, *, degraded: bool) -> str:
    """That nothing is renamed or deleted where a file is, if that is so."""
    if reach.effect == "destructive" or held_paths(reach.free_deletes).covers("delete", path):
        return ""
    if not degraded and held_paths(reach.judged_deletes).covers("delete", path):
        return ""  # each delete was judged, and `refused_deletes_line` names those that were refused
    if reach.effect != "full":
        why = f"the class is {reach.effect}; it takes full, `approvals.delete: session` or `manifest`, and a budget"
    elif reach.free_deletes:
        why = "it is not inside `fs_reach.write`, or deletes there are denied"
    else:
        asking = "; or run with `--ask`" if reach.approvals.delete == "session" else ""
        why = f"it takes `approvals.delete: session` or `manifest` ({reach.delete_origin}){asking}"
    return f"`{visible(path)}` may be written, and not renamed or deleted: {why}"


def _without_new_names(reach: Reach, directory: str) -> str:
    """That without a private root no name can be made in a directory, if that is so."""
    if directory not in held_paths(reach.grant).directories_with_closed_names():
        return ""
    other = "" if reach.manifest.origin.file == COMMAND_LINE else ", or through a tool with `ctx.fs`"
    why = "without namespaces, and with closed names in it"
    return f"no new names can be made directly in `{visible(directory)}`, {why}: write below it{other}"


_NAME = r"['\"`‘“]?([\w.+-]+)['\"`’”]?"
# As sh, bash, zsh, make, env, Python and Node say it.
_NOT_FOUND = late_pattern(
    rf": {_NAME}: (?:command )?not found\s*$|command not found: {_NAME}\s*$|spawn {_NAME} ENOENT"
    rf"|: {_NAME}: (?:no such file or directory|permission denied)\s*$|no such file or directory: {_NAME}\s*$",
    re.IGNORECASE,
)
_OTHER_PYTHON = late_pattern(r"(?:^|(?<=\s))((?:/\S*/)?)(python[\d.]*): No module named ")  # the next one on PATH


def programs_not_found(said: str, reach: Reach | None) -> list[str]:
    """The programs that the output of a command shows it did not find, each with what would show it."""
    if reach is None or not reach.grant.has(Use("env:read:PATH")):
        return []
    found: dict[str, None] = {}
    for line in last_lines(said):
        for match in _NOT_FOUND.finditer(line):
            name = next(filter(None, match.groups()))
            if hidden := _hidden(name, reach):
                found |= dict.fromkeys(_walls(name, hidden, reach))
        for match in _OTHER_PYTHON.finditer(line):
            places = _on_path(match[2])
            started = next((place for place in places if _readable(place, reach)), "")
            is_from_path = not match[1] or match[1] + match[2] == started  # or it was named by its path
            if places and is_from_path and not _readable(places[0], reach):
                found |= dict.fromkeys(_walls(match[2], places[0], reach))
    return list(found)


def _hidden(name: str, reach: Reach) -> str:
    """The first file of a program on PATH, if none of that name can be read; else an empty text."""
    places = _on_path(name) if reach.grant.has(Use("env:read:PATH")) else []
    return places[0] if places and not any(_readable(place, reach) for place in places) else ""


def _on_path(name: str) -> list[str]:
    """The files of a program on PATH, without those of version managers, which start another program."""
    folders = dict.fromkeys(filter(os.path.isabs, os.environ.get("PATH", "").split(os.pathsep)))
    paths = [os.path.join(os.path.normpath(folder), name) for folder in folders if not folder.endswith("/shims")]
    return [path for path in paths if os.path.isfile(path) and os.access(path, os.X_OK)]


def _readable(path: str, reach: Reach) -> bool:
    granted = held_paths(reach.grant)
    return all(inside(one, SYSTEM) or granted.covers("read", one) for one in (path, os.path.realpath(path)))


def _walls(name: str, path: str, reach: Reach) -> Iterator[str]:
    for file in _needed(path):
        if not _readable(file, reach):
            with suppress(InvalidUse):
                use = use_of_path("read", _installed_in(file))
                if reach.grant.has(use):
                    use = use_of_path("read", file)
                why = closed_because(reach, use, "fs_reach.read", os.getcwd())
                told = f"`{visible(name)}` is `{visible(path)}` on your PATH"
                yield f"{told}, and `{visible(use.target)}` may not be read: {why}"


def _needed(path: str) -> Iterator[str]:
    """A program, the interpreter in its first line, and where links from them lead."""
    from licet.packages.package_store import PackageError
    from licet.packages.programs import first_line  # reads packages, which takes long to import

    yield path
    yield os.path.realpath(path)
    with suppress(PackageError):
        starter, _ = first_line(path)
        if os.path.isabs(starter):
            yield starter
            yield os.path.realpath(starter)


def _installed_in(file: str) -> str:
    """The directory that a program is installed in, such as a virtual environment; the file itself if that is wide."""
    from licet.core.review.sensitive import Whereabouts

    if toolchain := Whereabouts(os.getcwd(), home_directory()).toolchain(file):
        return toolchain
    above, folder = os.path.split(os.path.dirname(file))
    is_wide = inside(os.path.expanduser("~"), (above,)) or inside(os.getcwd(), (above,))
    return above if folder == "bin" and above.count("/") >= 2 and not is_wide else file
