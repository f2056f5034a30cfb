"""Learns the least policy from recordings: a rule for each thing that was used, and the calls that needed it.

- Only uses count that happened: a use that was refused is never taken up, and no directory is made of its siblings.
- A sensitive use (see `sensitive`) gets a line too, but as a comment, with the reason.
- What is generalised is in `generalise`. A rule for a path covers everything below it, so a directory that a program
  listed is covered as a whole; a sensitive path in it is denied.
- The order of recordings and of their lines makes no difference.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from licet.core.algebra.rules import Capability, Use, use_of_path
from licet.core.algebra.scope import Malformed, inside, path_key, visible
from licet.core.algebra.set import CapabilitySet
from licet.core.policy.layer import EffectClass
from licet.core.review.recording_lines import Calls, Recorded
from licet.core.review.sensitive import (
    GIT,
    GIT_DATA,
    GIT_LEADS,
    Whereabouts,
    above_each,
    is_wide_directory,
    no_repository,
    why_path,
    why_sensitive,
    why_trusted,
    why_written,
)
from licet.learn.generalise import steady, widened_hosts, widened_paths
from licet.learn.inside_https import LookedInto, hosts_inside, mere_tunnels, requests_inside

_NOTHING = CapabilitySet()
_REDACTED = "[redacted"
_TUNNEL = "requests inside it were seen, and have lines of their own"
_KEY_SENT = "one of these requests would have sent a key away"
_RANDOM = "a name that is different each time, in a directory that a rule for it may not cover"

Kind = Literal["allow", "sensitive", "deny"]


class Surroundings(Struct, frozen=True):
    """What is known about the place of a recording besides its lines."""

    where: Whereabouts
    readable: tuple[str, ...] = ()  # what every program may read without a grant
    scratch: tuple[str, ...] = ()  # directories in whose place a program has one of its own
    is_program: bool = False  # whether it shows programs, which `licet run` starts
    created: frozenset[str] = frozenset()  # paths that a program made: the next run makes them again
    repositories: tuple[str, ...] | None = None  # files of git below the working directory; None if not known
    secret_files: frozenset[str] = frozenset()  # files that are there and may hold secrets
    trusted_files: frozenset[str] = frozenset()  # files and directories that are there and that others run or trust
    denied: CapabilitySet = _NOTHING  # what the policy denies by name
    is_suffix: Callable[[str], bool] | None = None  # set if host names are generalised
    reaches_git: Callable[[str], bool] = (
        no_repository  # of a path: whether it is in files of a repository, or has one in it
    )
    inside: frozenset[Use] = frozenset()  # requests that were seen inside HTTPS


class Line(Struct, frozen=True):
    """One line of a policy, and the calls that needed it."""

    rule: Capability
    calls: str
    kind: Kind = "allow"
    why: str = ""  # for one that is sensitive


class LeftOut(Struct, frozen=True):
    """Uses for which no line is written."""

    what: str
    why: str


class Learned(Struct, frozen=True):
    """What recordings say about a policy."""

    lines: tuple[Line, ...]
    effect: EffectClass  # the weakest class that permits all lines that are not sensitive
    wanted: tuple[Use, ...]  # the uses that are not sensitive; the `allow` lines cover them
    left_out: tuple[LeftOut, ...]
    given: int  # uses that every program has
    refused: int
    looked_into: tuple[LookedInto, ...] = ()  # hosts whose requests were seen inside HTTPS


def learn(recorded: Recorded, around: Surroundings) -> Learned:
    """Find the lines that allow what was used."""
    uses = _as_reads(recorded) if around.is_program else dict(recorded.used.values())
    written = {use.target for use in uses if use.domain == "fs" and use.action == "write"}
    directories = above_each(use.target.rpartition("/")[0] for use in uses if use.domain == "fs")
    inside, tunnels = requests_inside(recorded), mere_tunnels(recorded)
    around = replace(around, reaches_git=_git_seen(uses, around.reaches_git), inside=inside)
    ordinary: dict[Use, Calls] = {}
    sensitive: dict[Use, tuple[Calls, str]] = {}
    left_out: list[LeftOut] = []
    given = 0
    for use, calls in uses.items():
        if _is_given(use, around, written):
            given += calls.count
        elif around.denied.has(use):
            left_out.append(LeftOut(str(use), "the policy denies it"))
        elif use in tunnels:
            left_out.append(LeftOut(str(use), _TUNNEL))
        elif recorded.keys_sent and str(use) in recorded.keys_sent:
            left_out.append(LeftOut(str(use), _KEY_SENT))
        elif why := _cannot_be_named(use):
            left_out.append(LeftOut(visible(str(use)), why))
        elif why := why_sensitive(use, around.where, directories, around.reaches_git):
            sensitive.setdefault(use, (Calls(), why))[0].merge(calls)
        else:
            ordinary[use] = calls
    refused = {use for use, _ in recorded.refused.values()} - uses.keys()
    # The class of the policy permits no delete, so a directory may be made of the siblings of one.
    kept = [use for use in (*sensitive, *refused) if use.domain == "fs" and use.effect != "delete"]
    only_writes = {
        use for use in sensitive if use.action == "write" and not why_path(use.target, around.where, directories)
    }
    closed = {
        "read": above_each(use.target for use in kept if use not in only_writes),
        "write": above_each(use.target for use in kept),
        "fill": above_each(use.target for use in kept if use not in only_writes or not _denied_whole(use, around)),
    }
    for use, calls in ordinary.items():
        if use.domain == "fs" and use.action == "write" and use.target in around.created:
            above = use.target.rpartition("/")[0]
            alone = _place(use, closed, around) == use.target and not why_path(above, around.where, directories)
            if alone and around.reaches_git(above):
                sensitive.setdefault(use_of_path("write", above), (Calls(), GIT))[0].merge(calls)
    for use in _random_and_alone(ordinary, closed, refused, around):
        sensitive[use] = ordinary.pop(use), _RANDOM
    lines = [*_lines_of(ordinary, closed, refused, around), *_sensitive_lines(sensitive, around)]
    lines += _denies(lines, sensitive, only_writes, around)
    lines += _unused_and_closed(lines, around)
    lines += _git_leads(lines, sensitive, around)
    return Learned(
        tuple(sorted(lines, key=lambda line: (line.kind, line.rule))),
        _effect(ordinary),
        tuple(sorted(ordinary, key=str)),
        tuple(sorted(left_out, key=lambda one: one.what)),
        given,
        sum(calls.count for _, calls in recorded.refused.values()),
        hosts_inside(inside, uses, ((line.rule, line.kind != "allow") for line in lines)),
    )


def _as_reads(recorded: Recorded) -> dict[Use, Calls]:
    """The uses of programs. What a program starts it must be able to read, and nothing more.

    A rule about starting decides about the first program alone, which is the one that was recorded.
    """
    found: dict[Use, Calls] = {}
    for use, calls in recorded.used.values():
        needed = use_of_path("read", use.target) if use.domain == "process" else use
        found.setdefault(needed, Calls()).merge(calls)
    return found


def _git_seen(uses: Iterable[Use], reaches_git: Callable[[str], bool]) -> Callable[[str], bool]:
    """Whether a path reaches files of a repository that is there, or that was used."""
    targets = (use.target for use in uses if use.domain == "fs" and "/.git" in use.target)
    above = above_each(path[: path.index("/.git")] for path in targets if ".git" in path.split("/"))

    def reaches(path: str) -> bool:
        return path in above or reaches_git(path)

    return reaches


def _is_given(use: Use, around: Surroundings, written: set[str]) -> bool:
    """Whether every program of `licet run` has a use without a grant."""
    if use.domain == "storage":
        return use.target != "personality"
    if use.domain != "fs":
        return False
    path = use.target
    if use.action == "read" and inside(path, around.readable):
        return True
    if not inside(path, around.scratch) or around.where.has_workdir(path):
        return False
    # What it made itself will be in its scratch; what was there before will not.
    return path in around.scratch or any(key in written for key in use.keys if key not in around.scratch)


def _cannot_be_named(use: Use) -> str:
    if _REDACTED in use.target:
        return "a secret was taken out of it"
    try:
        path_key(use.target) if use.domain == "fs" else _rule(use)
    except Malformed as wrong:
        return f"no rule can name it: expected {wrong.expected}"
    return ""


def _rule(use: Use, inside: frozenset[Use] = frozenset()) -> Capability:
    """The rule for one use. On the network it is about all methods with the same effect, or exact inside HTTPS."""
    if use.domain == "network" and use.effect in ("read", "write") and use not in inside:
        return Capability(f"network:{use.effect}:{use.action}://{use.target}:{use.port}")
    return Capability(str(use))


def _effect(uses: Iterable[Use]) -> EffectClass:
    writes = any(use.effect in ("write", "other") and use.domain in ("fs", "network", "storage") for use in uses)
    return "write_limited" if writes else "read_only"


_NOUNS = {
    "fs": "", "network": "request", "process": "start", "tool": "call", "connector": "use", "socket": "connection",
}  # fmt: skip


def _noun(use: Use) -> str:
    if use.action == "tcp":
        return "connection"
    return _NOUNS.get(use.domain) or use.action


# Lines ----------------------------------------------------------------------------------------------------------------


def _lines_of(
    uses: Mapping[Use, Calls], closed: Mapping[str, set[str]], refused: set[Use], around: Surroundings
) -> Iterator[Line]:
    def may_cover(action: str, directory: str) -> bool:
        return _may_cover(action, directory, closed, around)

    def place(use: Use) -> str:
        return _place(use, closed, around)

    merged: dict[tuple[Capability, str], Calls] = {}
    for use, rule in _widened(uses, may_cover, place, around, refused):
        merged.setdefault((rule, _noun(use)), Calls()).merge(uses[use])
    for (rule, noun), calls in merged.items():
        yield Line(rule, calls.text(noun))


def _may_cover(action: str, directory: str, closed: Mapping[str, set[str]], around: Surroundings) -> bool:
    """Whether a rule may be about a whole directory, in which nothing is known that a person must decide on."""
    where = around.where
    return (
        directory not in closed.get(action, ())
        and not is_wide_directory(directory, where)
        and not why_path(directory, where, (directory,))
        and _nameable(directory)
        and not (action == "write" and why_written(directory, where, around.reaches_git))
    )


def _may_be_filled(directory: str, closed: Mapping[str, set[str]], around: Surroundings) -> bool:
    """Whether a rule may let a program make names in a directory, which lets it write all that is there.

    In the working directory also if there are repositories and what others trust: those that are known are denied.
    """
    where, closed = around.where, {"write": closed["fill"]}
    if _may_cover("write", directory, closed, around):
        return directory != where.workdir or where.is_project
    repositories = around.repositories
    return (
        repositories is not None
        and where.is_project
        and where.has_workdir(directory)
        and not inside(directory, repositories)
        and _may_cover("write", directory, closed, replace(around, reaches_git=no_repository))
    )


def _random_and_alone(
    uses: Mapping[Use, Calls], closed: Mapping[str, set[str]], refused: set[Use], around: Surroundings
) -> list[Use]:
    """The paths with a name that is different each time, in a directory that no line may be about, or is about.

    For such a name no line is about all of the working directory: one wrong guess would allow the whole project.
    """
    places = around.where.worked_in
    found = [
        use
        for use in uses
        if use.domain == "fs"
        and (directory := steady(use.target, places)) != use.target
        and (directory in places or not _may_cover(use.action, directory, closed, around))
        and _place(use, closed, around) == use.target
    ]
    if not found:
        return []
    others = {use: calls for use, calls in uses.items() if use not in set(found)}
    allowed = CapabilitySet(line.rule for line in _lines_of(others, closed, refused, around))
    return [use for use in found if not allowed.has(use)]


def _widened(
    uses: Iterable[Use],
    may_cover: Callable[[str, str], bool],
    place: Callable[[Use], str],
    around: Surroundings,
    refused: Iterable[Use],
) -> Iterator[tuple[Use, Capability]]:
    """Each use with its rule."""
    paths: dict[str, dict[str, Use]] = {}
    requests: dict[tuple[int, str, int | None], dict[str, list[Use]]] = {}
    for use in uses:
        if use.domain == "fs":
            paths.setdefault(use.action, {})[use.target] = use
        elif use.domain == "network" and around.is_suffix is not None:
            like = _rule(use, around.inside)
            group = requests.setdefault((like.atoms, use.action, use.port), {})
            group.setdefault(use.target, []).append(use)
        else:
            yield use, _rule(use, around.inside)
    for action, named in paths.items():
        covers = partial(may_cover, action)
        placed = {path: place(use) for path, use in named.items()}
        covering = widened_paths(placed.values(), covers, around.where.has_workdir)
        rule_of = {path: Capability(f"fs:{action}:{path}") for path in set(covering.values())}
        yield from ((use, rule_of[covering[placed[path]]]) for path, use in named.items())
    apart = {use.target for use in refused if use.domain == "network"}
    for group in requests.values():
        for host, pattern in widened_hosts(group, around.is_suffix or bool, apart).items():
            for use in group[host]:
                text = str(_rule(use, around.inside))
                yield use, Capability(text if pattern == host else text.replace(host, pattern))


def _place(use: Use, closed: Mapping[str, set[str]], around: Surroundings) -> str:
    """The path that a rule must name.

    The kernel lets a program create files only in a directory that it may write: then it is the directory, the first
    one that the program has not made itself. So it is for a name that is different each time, but never all of the
    working directory: that would be a guess. In a cache or a toolchain it is the whole of it.
    """
    path, where, action = use.target, around.where, use.action

    def is_free(directory: str) -> bool:
        return _may_cover(action, directory, closed, around)

    if action == "read" and (installed := where.toolchain(path)):
        return installed
    cache = where.cache(path)
    if cache.endswith("/__pycache__") and is_free(cache):  # Python does without it
        return cache
    if action == "write" and (directory := _made_in(path, around)) != path:
        if directory not in where.worked_in or directory == where.workdir:
            return directory if _may_be_filled(directory, closed, around) else path
        return path
    if cache and is_free(cache):
        return cache
    if action == "read" and (directory := _made_in(path, around)) != path and where.has_workdir(directory):
        return directory if is_free(directory) else path  # it reads what it has made, or is about to
    above = steady(path, where.worked_in)
    return path if above in where.worked_in or not is_free(above) else above


def _made_in(path: str, around: Surroundings) -> str:
    """The first directory above a path that was there before; the path itself, if it was there.

    So it is for a random name at the top of the project: one temporary file does not open all of it.
    """
    first = steady(path, around.where.worked_in) if path in around.created else path
    if first == around.where.workdir:
        return path
    while first in around.created:
        first = first.rpartition("/")[0]
    return first


def _nameable(path: str) -> bool:
    try:
        return bool(path_key(path))
    except Malformed:
        return False


def _sensitive_lines(uses: Mapping[Use, tuple[Calls, str]], around: Surroundings) -> Iterator[Line]:
    """The lines that are written as comments. Siblings become their directory here too, so that they can be read."""
    by_reason: dict[str, dict[Use, Calls]] = {}
    for use, (calls, why) in uses.items():
        by_reason.setdefault(why, {})[use] = calls

    def may_cover(action: str, directory: str) -> bool:
        reaches = action == "write" and why_written(directory, around.where, around.reaches_git) == GIT
        is_narrow = not is_wide_directory(directory, around.where) and _nameable(directory)
        return is_narrow and (not reaches or bool(GIT_DATA.fullmatch(directory)))

    def place(use: Use) -> str:
        path, where = use.target, around.where
        directory = where.cache(path) or _made_in(path, around)
        if ".git" in directory.split("/") and directory != path:
            return directory  # git makes lock files beside all that it writes
        if directory == path:
            directory = steady(path, where.worked_in)
            if directory == where.workdir and use.action != "delete":
                return path
        return directory if may_cover(use.action, directory) else path

    alone = Surroundings(around.where, inside=around.inside)
    for why, group in by_reason.items():
        merged: dict[tuple[Capability, str], Calls] = {}
        # The directory of a random name holds something else that a person must decide on: the line is not about it.
        covers, named = (_never, _itself) if why == _RANDOM else (may_cover, place)
        for use, rule in _widened(group, covers, named, alone, ()):
            merged.setdefault((rule, _noun(use)), Calls()).merge(group[use])
        for (rule, noun), calls in merged.items():
            yield Line(rule, calls.text(noun), "sensitive", why)


def _never(action: str, directory: str) -> bool:
    return False


def _itself(use: Use) -> str:
    return use.target


def _unused_and_closed(lines: Iterable[Line], around: Surroundings) -> list[Line]:
    """A deny for each file that may hold secrets or that others trust, in a directory that a line allows."""
    known = CapabilitySet(line.rule for line in lines if line.rule.domain == "fs" and line.kind != "allow")
    allowed = CapabilitySet(line.rule for line in lines if line.kind == "allow" and line.rule.domain == "fs")
    closed = [("*", "read", path, "a file that may hold secrets") for path in sorted(around.secret_files)]
    closed += [("write", "write", path, GIT) for path in sorted(around.repositories or ())]
    closed += [
        ("write", "write", path, why_trusted(path, around.where.workdir)) for path in sorted(around.trusted_files)
    ]
    return [
        Line(Capability(f"fs:{actions}:{path}"), "never used", "deny", why)
        for actions, action, path, why in closed
        if _nameable(path) and allowed.has(use := use_of_path(action, path)) and not known.has(use)
    ]


def _denied_whole(use: Use, around: Surroundings) -> str:
    """The repository, or what others run or trust, that a path is in; empty if it is in none that is known."""
    places = (*around.trusted_files, *(around.repositories or ()))
    return next((place for place in sorted(places) if inside(use.target, (place,))), "")


def _git_leads(lines: Iterable[Line], sensitive: Mapping[Use, tuple[Calls, str]], around: Surroundings) -> list[Line]:
    """A deny for what leads git to programs and was not written, in a repository that a line is about: git commits."""
    allowed = {line.rule for line in lines if line.kind != "deny" and line.rule.domain == "fs"}
    repositories = {rule.key for rule in allowed if rule.key.endswith("/.git") and rule.key not in around.created}
    written = above_each(use.target for use in sensitive if use.domain == "fs" and use.action == "write")
    return [
        Line(Capability(f"fs:write:{path}/{name}"), "never used", "deny", GIT)
        for path in sorted(repositories)
        for name in GIT_LEADS
        if CapabilitySet(allowed).has(use_of_path("write", path)) and f"{path}/{name}" not in written
    ]


def _denies(
    lines: Iterable[Line], sensitive: Mapping[Use, tuple[Calls, str]], only_writes: set[Use], around: Surroundings
) -> list[Line]:
    """A deny for each sensitive path in a directory that a line allows: the program listed the directory itself.

    Of what may be read and not be written, the deny is about writing: about all of what others run or trust.
    """
    allowed = CapabilitySet(line.rule for line in lines if line.kind == "allow" and line.rule.domain == "fs")
    found: dict[Capability, tuple[Calls, str]] = {}
    for use, (calls, why) in sensitive.items():
        if use.domain == "fs" and use.action != "delete" and allowed.has(use):
            whole = f"write:{_denied_whole(use, around) or use.target}"
            denied = whole if use in only_writes else f"*:{use.target}"
            known = found.setdefault(Capability(f"fs:{denied}"), (Calls(), why))
            known[0].merge(calls)
    return [Line(rule, calls.text("use"), "deny", why) for rule, (calls, why) in found.items()]
