"""Learns the least policy from recordings: a rule for each thing that was used, and the calls that needed it.

- Only uses count that happened: a use that was refused is never taken up, and no directory is made of its siblings.
- A sensitive use (see `sensitive`) gets a line too, but as a comment, with the reason.
- What is generalised is in `generalise`. A rule for a path covers everything below it, so a directory that a program
  listed is covered as a whole; a sensitive path in it is denied.
- The order of recordings and of their lines makes no difference.
"""

from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
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
from licet.learn.limits import MOST_BESIDE, MOST_OUTPUTS

_NOTHING = CapabilitySet()
_REDACTED = "[redacted"
_TUNNEL = "requests inside it were seen, and have lines of their own"
_KEY_SENT = "one of these requests would have sent a key away"
_RANDOM = "a name that is different each time, in a directory that a rule for it may not cover"

_OF_ITS_OWN = "a delete of what the same run had made"
_AT_FIRST = "it served to make what the next run finds"
_BESIDE = "never written, beside names that it makes"
_READ_AGAIN = "what it made, which a later run may read"
_REPLACED = "what it made, which a later run may replace"
_TOO_MUCH = "a new name beside too much else, which the line would open too"

Kind = Literal["allow", "sensitive", "deny"]


def no_names(directory: str) -> Sequence[str]:
    """Say that a directory is empty."""
    return ()


class Surroundings(Struct, frozen=True):
    """What is known about the place of a recording besides its lines."""

    where: Whereabouts
    readable: tuple[str, ...] = ()  # what every program may read without a grant
    scratch: tuple[str, ...] = ()  # directories in whose place a program has one of its own
    is_program: bool = False  # whether it shows programs, which `licet run` starts
    created: frozenset[str] = frozenset()  # paths that a program made: the next run makes them again
    directories: frozenset[str] = frozenset()  # those of them that are directories
    removed: frozenset[str] = frozenset()  # paths that were there, and that a program removed or moved away
    names_in: Callable[[str], Sequence[str] | None] = no_names  # what is in a directory; None if it has too much
    fills_top: bool = False  # whether names are made in the working directory itself
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
    outputs: frozenset[str] = frozenset()  # directories that a program makes, and finds there in the next run


def learn(recorded: Recorded, around: Surroundings) -> Learned:
    """Find the lines that allow what was used."""
    uses = _as_reads(recorded) if around.is_program else dict(recorded.used.values())
    written = {use.target for use in uses if use.domain == "fs" and use.action == "write"}
    directories = above_each(use.target.rpartition("/")[0] for use in uses if use.domain == "fs")
    requests, tunnels = requests_inside(recorded), mere_tunnels(recorded)
    around = replace(around, reaches_git=_git_seen(uses, around.reaches_git), inside=requests)
    ordinary: dict[Use, Calls] = {}
    sensitive: dict[Use, tuple[Calls, str]] = {}
    left_out: list[LeftOut] = []
    given = compiled = 0
    at_first = tuple(recorded.only_at_first())
    for use, calls in uses.items():
        if use.domain == "fs" and inside(use.target, at_first):
            left_out.append(LeftOut(str(use), _AT_FIRST))
        elif _is_given(use, around, written):
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
            if use.domain == "fs" and use.action != "read" and "__pycache__" in use.target.split("/"):
                compiled += calls.count
                continue
            if use.effect == "delete" and use.domain == "fs" and str(use) not in recorded.not_own:
                why = _OF_ITS_OWN
            sensitive.setdefault(use, (Calls(), why))[0].merge(calls)
        else:
            ordinary[use] = calls
    if compiled:
        left_out.append(LeftOut(f"compiled files of Python ({compiled} uses)", "Python does without them"))
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
    around = replace(around, fills_top=any(_is_made_at_top(use, around) for use in (*ordinary, *sensitive)))
    beside = _beside(ordinary, sensitive, closed, around) if around.fills_top else ()
    if beside is None:
        around = replace(around, fills_top=False)
    for use, calls in ordinary.items():
        if use.domain == "fs" and use.action == "write" and use.target in around.created:
            above = use.target.rpartition("/")[0]
            alone = _place(use, closed, around) == use.target and not why_path(above, around.where, directories)
            if alone and _output(use.target, around) != use.target:
                why = GIT if around.reaches_git(above) else _TOO_MUCH if beside is None else ""
                if why:
                    sensitive.setdefault(use_of_path("write", above), (Calls(), why))[0].merge(calls)
    for use in _random_and_alone(ordinary, closed, refused, around):
        sensitive[use] = ordinary.pop(use), _RANDOM
    lines = [*_lines_of(ordinary, closed, refused, around)]
    allowed = {line.rule for line in lines}
    lines += _sensitive_lines(sensitive, around, allowed, may_cover_top=beside is not None)
    lines += _of_what_it_made(lines, ordinary, closed, around)
    lines += _denies(lines, sensitive, only_writes, around)
    lines += _unused_and_closed(lines, around)
    lines += _closed_beside(lines, beside or (), around)
    lines += _git_leads(lines, sensitive, around)
    return Learned(
        tuple(sorted(lines, key=lambda line: (line.kind, line.rule))),
        _effect(ordinary),
        tuple(sorted(ordinary, key=str)),
        tuple(sorted(left_out, key=lambda one: one.what)),
        given,
        sum(calls.count for _, calls in recorded.refused.values()),
        hosts_inside(requests, uses, ((line.rule, line.kind != "allow") for line in lines)),
        outputs=frozenset(filter(None, (_output(use.target, around) for use in uses if use.domain == "fs"))),
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
        and not (action == "write" and directory == where.workdir and not around.fills_top)
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
        covering = {} if action == "read" else _outputs_of(placed.values(), covers, around)
        covering |= widened_paths({*placed.values()} - covering.keys(), covers, around.where.has_workdir)
        rule_of = {path: Capability(f"fs:{action}:{path}") for path in set(covering.values())}
        yield from ((use, rule_of[covering[placed[path]]]) for path, use in named.items())
    apart = {use.target for use in refused if use.domain == "network"}
    for group in requests.values():
        for host, pattern in widened_hosts(group, around.is_suffix or bool, apart).items():
            for use in group[host]:
                text = str(_rule(use, around.inside))
                yield use, Capability(text if pattern == host else text.replace(host, pattern))


def _outputs_of(paths: Iterable[str], may_cover: Callable[[str], bool], around: Surroundings) -> dict[str, str]:
    """For each path in an output, the path of its rule: the output, or the directory of many of them.

    A few directories in one are no reason to open that: `node_modules/.vite` is not `node_modules`.
    """
    outputs = {path: directory for path in paths if (directory := _output(path, around))}
    covered = {path: directory for path, directory in outputs.items() if directory in outputs}
    siblings = Counter(directory.rpartition("/")[0] for directory in {*covered.values()})
    crowded = {above for above, number in siblings.items() if number > MOST_OUTPUTS and may_cover(above)}
    return {
        path: above if (above := directory.rpartition("/")[0]) in crowded else directory
        for path, directory in covered.items()
    }


def _place(use: Use, closed: Mapping[str, set[str]], around: Surroundings) -> str:
    """The path that a rule must name.

    The kernel lets a program create files only in a directory that it may write: then it is the directory, the first
    one that the program has not made itself, unless that is an output. So it is for a name that is different each time.
    In a cache or a toolchain it is the whole of it.
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
        if directory == where.workdir:
            return directory if around.fills_top and _may_be_filled(directory, closed, around) else path
        if directory not in where.worked_in:
            return directory if _may_be_filled(directory, closed, around) else path
        return path
    if cache and is_free(cache):
        return cache
    if action == "read" and (directory := _made_in(path, around)) != path and where.has_workdir(directory):
        return directory if is_free(directory) else path  # it reads what it has made, or is about to
    above = steady(path, where.worked_in)
    return path if above in where.worked_in or not is_free(above) else above


def _made_in(path: str, around: Surroundings) -> str:
    """The directory in which a program made a path; the path itself, if it was there before.

    It is the outermost one that the program made, since the next run finds that, or else the one around it.
    """
    outermost = _outermost_made(path, around)
    return (_output(path, around) or outermost.rpartition("/")[0]) if outermost else path


def _outermost_made(path: str, around: Surroundings) -> str:
    """The path, or the directory farthest above it, that a program made; empty if it was there before."""
    outermost = ""
    while path:
        outermost = path if path in around.created else outermost
        path = path.rpartition("/")[0]
    return outermost


def _output(path: str, around: Surroundings) -> str:
    """The directory that a program made around a path, and finds there in the next run; empty if there is none.

    Not one that it removes or replaces, or that has another name each time: that is a name in the directory above.
    """
    outermost = _outermost_made(path, around)
    if outermost not in around.directories or outermost in around.removed or "/.git/" in outermost:  # of hashes
        return ""
    if around.fills_top and outermost.rpartition("/")[0] == around.where.workdir:
        return ""
    return outermost if steady(outermost, around.where.worked_in) == outermost else ""


def _is_made_at_top(use: Use, around: Surroundings) -> bool:
    """Whether a use is about a name that a program made in the working directory, and that is no output."""
    if use.domain != "fs" or use.action == "read":
        return False
    workdir, outermost = around.where.workdir, _outermost_made(use.target, around)
    if use.action == "delete" and not outermost:
        return steady(use.target, around.where.worked_in) == workdir
    return outermost.rpartition("/")[0] == workdir and not _output(use.target, around)


# Names that are made in the working directory -------------------------------------------------------------------------


def _beside(
    uses: Mapping[Use, Calls], sensitive: Iterable[Use], closed: Mapping[str, set[str]], around: Surroundings
) -> tuple[str, ...] | None:
    """What a rule for the working directory would open, and no program wrote: it is denied. None if it is too much.

    The kernel lets a program make a name only in a directory that it may write, with all that is there.
    """
    workdir = around.where.workdir
    if not _may_be_filled(workdir, closed, around):
        return None
    written = [use for use in uses if use.domain == "fs" and use.action == "write"]
    places = {_place(use, closed, around) for use in written} - {workdir}
    may_cover = partial(_may_cover, "write", closed=closed, around=replace(around, fills_top=False))
    changed = {*widened_paths(places, may_cover, around.where.has_workdir).values()}
    changed |= {path for path in around.created if path.rpartition("/")[0] == workdir} - {workdir}
    touched = above_each((*changed, *(use.target for use in sensitive if use.domain == "fs" and use.action == "write")))
    beside: list[str] = []
    left = [workdir]
    while left:
        directory = left.pop()
        names = around.names_in(directory)
        if names is None:
            return None
        for path in (f"{directory}/{name}" for name in names):
            if path in changed or _is_closed(path, around):
                continue
            if path in touched:
                left.append(path)
            elif not _nameable(path) or len(beside) >= MOST_BESIDE:
                return None
            else:
                beside.append(path)
    return tuple(sorted(beside))


def _is_closed(path: str, around: Surroundings) -> bool:
    """Whether a path is denied for another reason."""
    return (
        path in around.trusted_files
        or path in (around.repositories or ())
        or path in around.secret_files
        or around.denied.has(use_of_path("write", path))
    )


def _closed_beside(lines: Iterable[Line], beside: Iterable[str], around: Surroundings) -> list[Line]:
    """A deny for each path beside names that a program makes, of deletes too if a line is about these."""
    workdir = around.where.workdir
    drafted = {line.rule for line in lines}
    actions = [action for action in ("write", "delete") if Capability(f"fs:{action}:{workdir}") in drafted]
    paths = {"write": [*beside], "delete": sorted({*beside, *around.trusted_files, *(around.repositories or ())})}
    return [
        Line(rule, "never used", "deny", _BESIDE)
        for action in actions
        for path in paths[action]
        if _nameable(path) and (rule := Capability(f"fs:{action}:{path}")) not in drafted
    ]


def _of_what_it_made(
    lines: Iterable[Line], uses: Iterable[Use], closed: Mapping[str, set[str]], around: Surroundings
) -> Iterator[Line]:
    """Reads, and deletes as comments, of what a program made: the next run finds it there."""
    drafted = [line.rule for line in lines if line.kind != "deny" and line.rule.domain == "fs"]
    allowed = CapabilitySet(line.rule for line in lines if line.kind == "allow" and line.rule.domain == "fs")
    written = (use.target for use in uses if use.domain == "fs" and use.action == "write")
    made = [path for path in written if _outermost_made(path, around)]
    reads = {_output(path, around) or path for path in made if steady(path, around.where.worked_in) == path}
    reads -= closed["read"]  # something sensitive is at it, or in it
    unread = [path for path in reads if not allowed.has(use_of_path("read", path))]
    may_cover = partial(_may_cover, "read", closed=closed, around=around)
    for path in sorted({*widened_paths(unread, may_cover, lambda directory: False).values()}):
        yield Line(Capability(f"fs:read:{path}"), _READ_AGAIN)
    outputs = {_output(path, around) for path in made} - {""}
    may_fill = partial(_may_cover, "write", closed=closed, around=around)
    for path in sorted({*_outputs_of(outputs, may_fill, around).values()}):
        if path.endswith("/__pycache__"):
            continue
        if not any(rule.action == "delete" and inside(path, (rule.key,)) for rule in drafted):
            yield Line(Capability(f"fs:delete:{path}"), _REPLACED, "sensitive", "a delete")


def _nameable(path: str) -> bool:
    try:
        return bool(path_key(path))
    except Malformed:
        return False


def _sensitive_lines(
    uses: Mapping[Use, tuple[Calls, str]], around: Surroundings, allowed: Container[Capability], *, may_cover_top: bool
) -> Iterator[Line]:
    """The lines that are written as comments. Siblings become their directory here too, so that they can be read."""
    around = replace(around, fills_top=False)  # an output is one here, too
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
        if Capability(f"fs:{use.action}:{directory}") in allowed:
            return path  # a line is about the directory: this part of it is denied
        if ".git" in directory.split("/") and directory != path:
            return directory  # git makes lock files beside all that it writes
        if directory == path:
            directory = steady(path, where.worked_in)
            if directory == where.workdir and use.action != "delete":
                return path
        if directory == where.workdir and not may_cover_top:
            return path
        return directory if may_cover(use.action, directory) else path

    alone, deleted = replace(around, is_suffix=None), set[Capability]()
    for why, group in sorted(by_reason.items(), key=lambda pair: pair[0] == _OF_ITS_OWN):  # the weaker reason last
        merged: dict[tuple[Capability, str], Calls] = {}
        # The directory of a random name holds something else that a person must decide on: the line is not about it.
        covers, named = (_never, _itself) if why == _RANDOM else (may_cover, place)
        for use, rule in _widened(group, covers, named, alone, ()):
            merged.setdefault((rule, _noun(use)), Calls()).merge(group[use])
        for (rule, noun), calls in merged.items():
            if why != _OF_ITS_OWN or rule not in deleted:
                yield Line(rule, calls.text(noun), "sensitive", why)
            deleted.add(rule)


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
