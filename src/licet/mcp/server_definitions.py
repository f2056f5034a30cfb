"""Takes the definitions of a server for `licet.lock`: starts it three times behind walls, and compares what it offers.

Its walls are made of its own grants, to read; a remote server is connected to three times. A description or title that
differs from start to start is volatile. Any other difference is refused, and so are hidden characters that nobody
accepted. A server of 2026 is asked in the era of 2025 too, in which many clients still speak.

Advice about a server that did not start behind its walls.

It comes from the policy and from what licet saw itself: the command, the pinned packages, and requests that the proxy
refused. What a server writes is shown as its words, and is no ground for advice: it could ask for `fs:read:~/.ssh`. It
only says which file beside the server's own script to look for.
"""

import asyncio
import os
import re
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

from msgspec import Struct
from msgspec.structs import replace

from licet.assemble.expected_lock import ceiling_of_grants
from licet.assemble.server_process import (
    PlacedSecrets,
    ServerError,
    ServerPlan,
    code_now,
    expanded_command,
    locked_program,
    packages_directory,
    placed_secrets,
    server_grant,
    server_launch,
    started,
)
from licet.core.algebra.rules import Capability
from licet.core.algebra.scope import Malformed, inside, visible
from licet.core.algebra.set import CapabilitySet
from licet.core.decision.advice import use_lacking_rules
from licet.core.decision.decision import CapabilityDenied
from licet.core.decision.foreseen import process_reach
from licet.core.decision.reach import Reach
from licet.core.policy.lock import (
    KINDS,
    Definition,
    LockedServer,
    NamedPlaces,
    OtherVersion,
    Resolved,
    differences,
    fixed_differences,
    hidden_in,
    other_version,
    path_text,
    path_words,
    portable,
    shortened,
    volatile_texts,
)
from licet.core.policy.servers import Server
from licet.core.values import Origin
from licet.errors import LicetError
from licet.guard.execution import Running
from licet.guard.grant import Grant
from licet.guard.ports import Ports
from licet.mcp.exchange import TimedOut, UpstreamError
from licet.mcp.http_link import remote_link
from licet.mcp.limits import (
    ENDING_SECONDS,
    LAST_LINES,
    LOCK_SECONDS,
    LOCK_STARTS,
    LONGEST_LINE,
    MOST_CAUSES,
    RESOLVE_SECONDS,
)
from licet.mcp.link import Flood, Gone, Link, PipeLink
from licet.mcp.listing import HIDDEN, BadListing, Definitions, as_locked, claimed_version, definitions
from licet.mcp.upstream import Opened, Peer, Upstream
from licet.packages.server_packages import (
    Disagrees,
    LaunchError,
    PackageError,
    image_warning,
    in_thread,
    install_missing,
    launch_of,
    resolve,
)
from licet.policy_files.server_tools import refusal_of_name


def server_wrote(lines: Iterable[str]) -> Iterator[str]:
    """What a server wrote, as its words."""
    for line in lines:
        cut = visible(line[:LONGEST_LINE])
        yield f"it wrote: {cut}{'…' if len(line) > LONGEST_LINE else ''}"


_NO_MODULE = re.compile(r"(?:ModuleNotFoundError|ImportError): No module named '(\w+)")
_NO_FILE = re.compile(r"Cannot find module '(\.?/[^']+)'")  # of Node: by a path, and not of a package
_ENDINGS = {"python": (".py", "", ".so"), "node": ("", ".js", ".cjs", ".mjs", ".json", ".node")}


def missing_code(lines: Iterable[str], server: Server, command: Sequence[str], workdir: str) -> Iterator[str]:
    """The entry of `code` that is missing, if a script imports a file that lies beside it or below.

    What the server wrote only says where to look: the advice has names of files that are there, and of the policy.
    """
    try:
        launch = launch_of(command)
    except LaunchError:
        return
    if launch.kind != "file":  # a package is pinned as a whole, and `code` is refused for it
        return
    is_module = launch.interpreter[-1:] == ("-m",)
    beside = workdir if is_module else os.path.dirname(os.path.abspath(os.path.join(workdir, launch.program)))
    kinds = [("python", _NO_MODULE), ("node", _NO_FILE)]
    named = [(kind, found[1]) for line in lines for kind, pattern in kinds if (found := pattern.search(line))]
    for kind, name in dict.fromkeys(named):
        path = os.path.normpath(os.path.join(beside, name))
        if not path.startswith(f"{beside}/") or not any(os.path.exists(path + ending) for ending in _ENDINGS[kind]):
            continue
        name = os.path.relpath(path, beside)
        if beside == workdir:
            first = "a server imports nothing from the working directory: move its files into a directory of their own,"
            yield f'{first} and name that one under `servers.{server.name}`: code: ["${{workdir}}/server"]'
        else:
            place = f"${{workdir}}{beside[len(workdir) :]}" if inside(beside, (workdir,)) else beside
            first = f"`{visible(name)}` lies beside the script, and a server imports its own files only from `code`:"
            yield f'{first} add to `servers.{server.name}`: code: ["{visible(place)}"]'
        return


def likely_causes(
    server: Server,
    grant: CapabilitySet,
    arguments: Iterable[str],
    refused: Iterable[str] = (),
    resolved: Resolved | None = None,
) -> Iterator[str]:
    """Lines that say what a server may miss. `arguments` are of its command, `refused` is what its walls refused."""
    if server.kind == "native":
        return
    named = [path for path in (_clean(word.rpartition("=")[2]) for word in arguments) if path.startswith("/")]
    found = [*_refused(refused, server), *_arguments(named, server, grant), *_newer_sdk(resolved)]
    if not found:
        found = [f"if a wall stops it, `servers.{server.name}.grants` has what its process may touch"]
    yield from list(dict.fromkeys(found))[:MOST_CAUSES]


def _refused(uses: Iterable[str], server: Server) -> Iterator[str]:
    for use in uses:
        yield f"its walls refused `{visible(use)}`: if it needs that, add it to `servers.{server.name}.grants`"


def _arguments(named: Iterable[str], server: Server, grant: CapabilitySet) -> Iterator[str]:
    """Advice about each path in the command that the grant does not cover, or that does not exist yet."""
    for path in named:
        above = os.path.dirname(path)
        if not os.path.isdir(above):
            continue
        if os.path.lexists(path):
            if rule := _missing(path, grant):
                yield f"probably a wall: its command names {path}: add `{rule}` to `servers.{server.name}.grants`"
        else:
            rule = _missing(above, grant)
            granted = f", and add `{rule}` to `servers.{server.name}.grants`" if rule else ""
            yield f"its command names {path}, which does not exist: make it first{granted}"


def _newer_sdk(resolved: Resolved | None) -> Iterator[str]:
    """Many servers on PyPI ask for `mcp` without an upper bound, and do not start with 2.x."""
    pins = (pin for each in (resolved.integrity.values() if resolved is not None else ()) for pin in each)
    versions = {pin.partition("==")[2] for pin in pins if pin.startswith("mcp==")}
    if any(not version.startswith(("0.", "1.")) for version in versions):
        yield (
            "it runs with `mcp` 2.x: if it was written for 1.x, name that before the package, "
            "`uvx --with 'mcp<2' PACKAGE`"
        )


def _missing(path: str, grant: CapabilitySet) -> Capability | None:
    """The rule that lets a path be read, if the grant does not cover it."""
    try:
        rule = Capability(f"fs:read:{path}")
    except Malformed:
        return None
    return None if CapabilitySet((rule,)) <= grant else rule


def _clean(path: str) -> str:
    return os.path.normpath(path.rstrip("./"))


_STARTS = ("first", "second", "third")

Progress = Callable[[str], None]
Era = Literal["2025", "2026", ""]
Log = deque[str]  # the last lines that tell why a server cannot be asked


class NotTaken(LicetError):
    """A server whose definitions cannot be locked: what is wrong, and further lines, such as what it wrote.

    A text of several lines, such as that of a refusal, becomes one line.
    """

    def __init__(self, text: str, lines: Iterable[str] = ()) -> None:
        self.lines = tuple(map(_one_line, lines))
        super().__init__(_one_line(text))


def _one_line(text: str) -> str:
    return " ".join(line.strip() for line in text.split("\n") if line.strip())


class Setup(Struct, frozen=True):
    """What is the same for all servers of one run: backends, directories, and how a person is told."""

    ports: Ports
    workdir: str
    home: str
    places: NamedPlaces
    progress: Progress
    degraded: bool = False  # whether a machine without namespaces may start servers
    private: tuple[str, ...] = ()  # addresses that are not public, at which a remote server may be
    chooses: bool = True  # whether versions of packages are chosen that the lock does not have


class Taken(Struct, frozen=True):
    """What a server said at one start."""

    opened: Opened
    definitions: Definitions


async def take(
    server: Server,
    origin: Origin,
    setup: Setup,
    *,
    before: LockedServer | None = None,
    newest: bool = False,
    accepted: frozenset[str] = frozenset(),
    times: int = LOCK_STARTS,
) -> LockedServer:
    """The entry of a server for the lock, from so many starts. Raises `NotTaken`.

    A package stays at the version that the lock has `before`, unless `newest` or the command asks for another one.
    `accepted` are names of definitions whose hidden characters are accepted; so are those of a definition that is in
    `before` with them.
    """
    resolved = None
    if server.kind != "remote":
        resolved = await in_thread(RESOLVE_SECONDS, lambda: _resolved(server, setup, before, newest=newest))
    try:
        code = code_now(server, setup.workdir, setup.home)
        ceiling = ceiling_of_grants(
            server,
            origin,
            setup.workdir,
            setup.home,
            kept=setup.ports.state,
            private=setup.private,
            degraded=setup.degraded,
        )
        reach = process_reach(ceiling, server, (), (setup.workdir, setup.home))
        ask = _remote(server, reach, setup) if resolved is None else await _local(server, reach, resolved, setup)
    except ServerError as wrong:
        raise NotTaken(str(wrong)) from None
    takes: list[Taken] = []
    for start in _STARTS[:times]:
        setup.progress(f"{server.name}: {start} {'connection' if server.url else 'start'}")
        takes.append(await _start(ask, takes[0].opened.era if takes else ""))
    taken = agreed(server, resolved, takes, setup.places, before or LockedServer(), accepted)
    if takes[0].opened.era == "2026":
        taken = await _also_of_2025(server, ask, taken, setup, before or LockedServer(), accepted, times)
    return replace(taken, code=code)


def _resolved(server: Server, setup: Setup, before: LockedServer | None, *, newest: bool) -> Resolved:
    """What the command starts. A package is installed."""
    store, directory = packages_directory(), Path(setup.workdir)

    def progress(text: str) -> None:
        setup.progress(f"{server.name}: {text}")

    try:
        launch = server_launch(server, setup.workdir, setup.home)
        if launch.kind == "docker" and server.kind == "native":
            if warning := image_warning(launch):
                progress(warning)
            return Resolved("docker", launch.package, program=launch.program)
        pinned = before.resolved if before is not None and before.command == server.command and not newest else None
        if launch.kind in ("npm", "pypi") and not setup.chooses:
            if pinned is None:
                raise NotTaken(
                    "it is not in licet.lock, and a gateway chooses no version of a package: run `licet lock`"
                )
            return pinned
        if pinned is not None and launch.kind in ("npm", "pypi"):
            try:
                return install_missing(launch, pinned, store, progress=progress, directory=directory)
            except Disagrees as wrong:
                progress(f"it is resolved again: {str(wrong).removesuffix(': run `licet lock`')}")
        return resolve(launch, store, progress=progress, directory=directory)
    except (LaunchError, PackageError) as wrong:
        first, *more = str(wrong).splitlines()
        raise NotTaken(first, (line.strip() for line in more)) from None


# One start ------------------------------------------------------------------------------------------------------------


class Asking(Struct, frozen=True):
    """How one server is started or connected to, and asked for its definitions."""

    ask: Callable[[Era, Log], Awaitable[Taken]]
    further: Callable[[Log], Iterator[str]]  # what to say if that fails


async def _local(server: Server, reach: Reach, resolved: Resolved, setup: Setup) -> Asking:
    program = await locked_program(server, resolved, setup.workdir, setup.home)
    secrets = await placed_secrets(server, reach, setup.ports)
    plan = ServerPlan(server, reach, program, expanded_command(server, setup.workdir, setup.home))
    grant = server_grant(server, reach)  # of all its starts, so that what its walls refused is known

    def further(log: Sequence[str]) -> Iterator[str]:
        events = (event for event in grant.events if isinstance(event, CapabilityDenied))
        denied = (str(use) for use in (use_lacking_rules(event, grant.reach) for event in events) if use is not None)
        yield from server_wrote(log)
        yield from missing_code(log, server, plan.command, setup.workdir)
        yield from likely_causes(server, reach.grant, plan.command[1:], denied, resolved)

    return Asking(lambda era, log: _ask(plan, grant, secrets, setup, era, log), further)


def _remote(server: Server, reach: Reach, setup: Setup) -> Asking:
    async def ask(era: Era, log: Log) -> Taken:
        async with remote_link(server, reach, setup.ports, report=log.append) as link:
            return await _definitions(server, link, era)

    return Asking(ask, server_wrote)


async def _start(asking: Asking, era: Era) -> Taken:
    log: Log = deque(maxlen=LAST_LINES)
    try:
        try:
            return await asking.ask(era, log)
        except Gone:
            if era:
                raise
            log.clear()  # a server of 2025 may end when it is asked something that it does not know
            return await asking.ask("2025", log)
    except ServerError as wrong:
        raise NotTaken(str(wrong)) from None
    except (Gone, Flood, OSError, UpstreamError, TimedOut, BadListing) as wrong:
        raise NotTaken(f"it cannot be asked for its definitions: {_why(wrong)}", asking.further(log)) from None


def _why(wrong: Exception) -> str:
    if isinstance(wrong, TimedOut):
        return f"no answer within {LOCK_SECONDS:g} s"
    if isinstance(wrong, OSError):
        return f"it cannot be started ({wrong.strerror or wrong})"
    return str(wrong)


async def _definitions(server: Server, link: Link, era: Era) -> Taken:
    upstream = Upstream(server.name, link, Peer(), server.client.capabilities)
    try:
        opened = await upstream.open(era, seconds=LOCK_SECONDS)
        return Taken(opened, await definitions(upstream, opened, seconds=LOCK_SECONDS))
    finally:
        await upstream.close()


async def _ask(plan: ServerPlan, grant: Grant, secrets: PlacedSecrets, setup: Setup, era: Era, log: Log) -> Taken:
    running = None
    try:
        async with started(plan, setup.ports, secrets, setup.workdir, grant) as running:
            link = PipeLink(*running.handed(), redactor=secrets.redactor, log=log.append)
            try:
                return await _definitions(plan.server, link, era)
            except Gone:
                await _ended(running)
                raise
    except Gone as gone:
        raise Gone(_ending(running) or str(gone)) from None


async def _ended(running: Running) -> None:
    """Wait a little for the exit code of a server that closed its output."""
    try:
        async with asyncio.timeout(ENDING_SECONDS):
            await running.ended()
    except TimeoutError:
        return


def _ending(running: Running | None) -> str:
    ending = running.ending if running is not None else None
    if ending is None:
        return ""
    return f"it ended with code {ending.returncode}" + (f" ({ending.limit})" if ending.limit else "")


async def _also_of_2025(
    server: Server,
    asking: Asking,
    taken: LockedServer,
    setup: Setup,
    before: LockedServer,
    accepted: frozenset[str],
    times: int,
) -> LockedServer:
    """The entry with what the server offers in the era of 2025, if it knows that one too.

    A client of 2025 can be asked only in its own era. One more start says whether the server knows it, and whether it
    offers something else there; only then it is started as often as in its own era.
    """
    setup.progress(f"{server.name}: one more {'connection' if server.url else 'start'}, as clients of 2025 do")
    takes: list[Taken] = []
    try:
        takes.append(await _start(asking, "2025"))
    except NotTaken:
        return taken  # it knows 2026 alone
    version = takes[0].opened.version
    earlier = before.in_version(version) if version in before.other_versions else LockedServer()
    try:
        there = agreed(server, taken.resolved, takes, setup.places, earlier, accepted)
        if other_version(taken, there) != OtherVersion():
            for start in _STARTS[1:times]:
                setup.progress(
                    f"{server.name}: {start} {'connection' if server.url else 'start'} as clients of 2025 do"
                )
                takes.append(await _start(asking, "2025"))
            there = agreed(server, taken.resolved, takes, setup.places, earlier, accepted)
    except NotTaken as error:
        lines = "; ".join((str(error), *error.lines))
        setup.progress(f"{server.name}: in protocol {version}, {lines}: clients of it are served in {taken.version}")
        return taken
    if there.claimed_version != taken.claimed_version:
        setup.progress(f"{server.name}: in protocol {version}, it claims another version of itself: it is left out")
        return taken
    texts = {
        key: tuple(sorted({*taken.volatile.get(key, ()), *there.volatile.get(key, ())}))
        for key in (*taken.volatile, *there.volatile)
    }
    both = replace(
        taken,
        volatile=texts,
        hidden=tuple(sorted({*taken.hidden, *there.hidden})),
        refused={**_refused_without(there, taken), **_refused_without(taken, there)},
    )
    for one in (taken, there):
        for key in sorted(one.refused.keys() - both.refused.keys()):
            setup.progress(f"{server.name}: in protocol {one.version}, {key} is left out: {one.refused[key]}")
    return replace(both, other_versions={version: other_version(both, there)})


def _refused_without(one: LockedServer, other: LockedServer) -> dict[str, str]:
    """What is refused in one era, without what another one can use: there is no entry for it in the first one at all.

    A tool that its server hides from models in one era is not for models in any.
    """
    refused = {}
    for key, why in one.refused.items():
        kind, _, name = key.partition("/")
        if why.startswith(HIDDEN) or key in other.refused or name not in other.listed(kind):
            refused[key] = why
    return refused


# What the starts have in common ---------------------------------------------------------------------------------------


def agreed(
    server: Server,
    resolved: Resolved | None,
    takes: Sequence[Taken],
    places: NamedPlaces,
    before: LockedServer,
    accepted: frozenset[str],
) -> LockedServer:
    """The entry for the lock, or `NotTaken` with everything that speaks against it."""
    first, *others = [
        replace(as_locked(one.definitions, places), instructions=portable(one.opened.instructions, places))
        for one in takes
    ]
    wrong: list[str] = []
    if len({one.opened.version for one in takes}) > 1:
        wrong.append("it wants another protocol version from start to start")
    claims = {claimed_version(one.opened) for one in takes} if _claims_count(server, resolved) else {""}
    if len(claims) > 1:
        wrong.append("it claims another version of itself from start to start, so no connector list can be about it")
    volatile: dict[str, tuple[str, ...]] = {}
    for kind in KINDS:
        for start, other in zip(_STARTS[1:], others, strict=False):
            wrong += _differences(kind, first, other, start, volatile)
    hidden, not_accepted = _hidden(server, [first, *others], before, accepted)
    wrong += not_accepted
    if wrong:
        raise NotTaken("its definitions cannot be locked", wrong)
    tools = first.listed("tools")
    return replace(
        first,
        command=server.command,
        url=server.url,
        resolved=resolved,
        version=takes[0].opened.version,
        claimed_version=min(claims),
        announced=tuple(sorted(server.client.capabilities)),
        **{kind: _in_order(kind, [first, *others]) for kind in KINDS},
        volatile=volatile,
        hidden=hidden,
        refused={
            **first.refused,
            **{f"tools/{name}": why for name in tools if (why := refusal_of_name(server.name, name))},
        },
    )


def _claims_count(server: Server, resolved: Resolved | None) -> bool:
    """Whether what a server says of its version counts: connector lists are about it, and no package has a version."""
    return server.uses_connectors and (resolved is None or not resolved.version)


def _differences(
    kind: str, first: LockedServer, other: LockedServer, start: str, volatile: dict[str, tuple[str, ...]]
) -> Iterator[str]:
    """Differences that are refused. Texts that may differ are added to `volatile`."""
    one, two = first.listed(kind), other.listed(kind)
    for name in sorted(one.keys() ^ two.keys()):
        yield f"{kind}: `{shortened(name)}` is {'not ' if name in one else ''}there at the {start} start"
    for name in sorted(one.keys() & two.keys()):
        if fixed := path_words(fixed_differences(one[name], two[name])):
            yield f"{kind}: `{shortened(name)}` has another {fixed} at the {start} start"
        if texts := {path_text(path) for path in volatile_texts(one[name], two[name])}:
            key = f"{kind}/{name}"
            volatile[key] = tuple(sorted(texts | set(volatile.get(key, ()))))


def _hidden(
    server: Server, takes: Sequence[LockedServer], before: LockedServer, accepted: frozenset[str]
) -> tuple[tuple[str, ...], list[str]]:
    """The definitions with accepted hidden characters, and what to say about the others."""
    found: dict[str, None] = {}
    wrong: dict[str, None] = {}
    known = _reviewed(before)
    for key, what in (item for one in takes for item in _reviewed(one).items()):
        chars = hidden_in(what)
        if not chars:
            continue
        kind, _, name = key.partition("/")
        name = name or kind
        if (key in before.hidden and not any(differences(known.get(key), what))) or f"{server.name}.{name}" in accepted:
            found[key] = None
        else:
            fix = f"review it, and accept it with `--accept-hidden {server.name}.{shortened(name)}`"
            wrong[f"{kind}: `{shortened(name)}` has hidden characters ({', '.join(chars)}): {fix}"] = None
    return tuple(sorted(found)), list(wrong)


def _reviewed(one: LockedServer) -> dict[str, Any]:
    """Everything with a text of the server, by the key that `hidden` has for it."""
    listed = {f"{kind}/{name}": definition for kind in KINDS for name, definition in one.listed(kind).items()}
    return {**listed, "instructions": one.instructions}


def _in_order(kind: str, takes: Sequence[LockedServer]) -> tuple[Definition, ...]:
    """The definitions in the order of the server, or by name if that order differs from start to start."""
    orders = {tuple(one.listed(kind)) for one in takes}
    listed = takes[0].listed(kind)
    return tuple(listed.values()) if len(orders) == 1 else tuple(listed[name] for name in sorted(listed))
