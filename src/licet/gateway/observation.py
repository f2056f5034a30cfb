"""`licet gateway --observe`: calls that the policy refuses are let through, for some time, and noted.

It is a flag of one command line. Nothing in a policy file or in the environment switches it on.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from licet.assemble.expected_lock import existing_lock, lock_backends, lock_place, machine_places
from licet.assemble.recording import CallRecording
from licet.assemble.review import Places
from licet.core.policy.addresses import common_ranges
from licet.core.policy.lock import FORMAT, BadLock, Lock, LockedServer
from licet.core.policy.manifest import Manifest
from licet.core.policy.manifest_fields import DECIDED_BY_CALL, Organisation
from licet.core.policy.servers import Server, servers_of
from licet.guard.observing import Observing
from licet.mcp.server_definitions import NotTaken, Setup, take
from licet.mcp.shown_names import without_clashes
from licet.policy_files.server_tools import is_other_server, with_server_tools

_MOST_LINES = 30  # of a summary

Report = Callable[[str], None]


class Observation(Struct, frozen=True):
    """What a gateway observes, and for how long."""

    manifest: Manifest  # the policy; a server without a lock counts as locked with what it offers now
    offered: Mapping[str, LockedServer]  # all that each server offers, also what is not in its lock
    seconds: float
    is_open: bool = False  # servers run without walls
    recording: CallRecording | None = None  # of what the calls use, for `licet learn`


def unobservable(above: Iterable[Organisation], *, is_open: bool) -> str:
    """Why a gateway must not only observe under these organisations; empty if it may.

    Destinations are kept by the walls of a server, and budgets are counted while it observes, too. What else an
    organisation says is decided by the checks that are lifted.
    """
    for one in above:
        for key in DECIDED_BY_CALL:
            if key in one.places:
                return f"{one.place(key)}: `{key}` holds here, and --observe would not keep it: leave out --observe"
        if is_open and one.layers:
            return f"{one.layers[0].origin}: `destinations` hold here, and --open would not keep them: leave out --open"
    return ""


async def observation(
    manifest: Manifest,
    seconds: float,
    *,
    is_open: bool,
    report: Report,
    workdir: Path | None = None,
    secrets_file: Path | None = None,
) -> Observation:
    """Ask each server what it offers, as `licet lock` does, and write nothing. Leaves out one that cannot."""
    places = Places.here(workdir)
    base = manifest.loaded or manifest  # before the tools of locked servers were added to it
    written = _written_lock(base, report)
    setup = Setup(
        lock_backends(secrets_file),
        places.workdir,
        places.home,
        machine_places(places.workdir, places.home),
        report,
        manifest.allow_degraded,
        tuple(common_ranges(manifest.private)),
        chooses=False,
    )
    locked: dict[str, LockedServer] = {}
    offered: dict[str, LockedServer] = {}
    for name, server in servers_of(base.servers).items():
        known = written.get(name)
        if known is not None and is_other_server(server, known):
            report(f"{name}: it has another command than in licet.lock: `licet lock --update` is for that")
            known = None
        elif known is None:
            report(f"{name}: it is not in licet.lock: run `licet lock` before you use it without --observe")
        found = known
        try:
            origin = base.places.get(f"servers.{name}", base.origin)
            found = await take(_opened(server, is_open), origin, setup, before=known, times=1)
        except NotTaken as wrong:
            report("; ".join((f"{name}: {wrong}", *wrong.lines)))
        if found is not None:
            offered[name] = _with_others(known or found, found)
        if known is not None:
            locked[name] = known
    offered = without_clashes(offered, manifest.gateway_names)  # type: ignore[arg-type]
    locked = {name: locked.get(name, found) for name, found in offered.items()}
    lock = Lock(format=FORMAT, manifests=base.lock.manifests if base.lock is not None else {}, servers=locked)
    policy = with_server_tools(replace(base, lock=lock, lock_problem=None, loaded=base))
    policy = policy.under(*manifest.organisations)
    return Observation(policy, offered, seconds, is_open)


def _written_lock(manifest: Manifest, report: Report) -> Mapping[str, LockedServer]:
    """The servers of the lock on disk. While observing, it may be of an earlier version of the policy."""
    if manifest.lock is not None:
        return manifest.lock.servers
    if manifest.lock_problem is not None:
        report(str(manifest.lock_problem))
    try:
        lock = existing_lock(lock_place(Path(manifest.origin.file)))
    except BadLock:
        return {}
    return lock.servers if lock is not None else {}


def _opened(server: Server, is_open: bool) -> Server:
    return replace(server, sandbox="native") if is_open and not server.url else server


def _with_others(locked: LockedServer, found: LockedServer) -> LockedServer:
    """A lock with the tools, resources and prompts that a server offers besides those in it."""
    kinds = ("tools", "resources", "templates", "prompts")
    more = {
        kind: tuple(one for name, one in found.listed(kind).items() if name not in locked.listed(kind))
        for kind in kinds
    }
    return replace(
        locked,
        **{kind: (*getattr(locked, kind), *more[kind]) for kind in kinds},
        refused={**found.refused, **locked.refused},
    )


def opening_lines(policy: str, duration: str, *, is_open: bool) -> Iterator[str]:
    """What the operator is told at the start."""
    yield f"OBSERVING for {duration}: what {policy} refuses is let through and noted; only the walls are enforced"
    if is_open:
        yield "OPEN: servers run without walls, as ordinary programs of this user"


def closing_lines(observing: Observing) -> Iterator[str]:
    """What the operator is told at the end."""
    yield f"observed {_calls(observing.calls)}: the policy would have refused {observing.refused}"
    counted = sorted(observing.by_reason.items(), key=lambda one: (-one[1], one[0]))
    for (reason, tool), number in counted[:_MOST_LINES]:
        yield f"  {number}x {reason}  {tool}"
    if more := sum(number for _, number in counted[_MOST_LINES:]):
        yield f"  and {more} more: see `licet receipts list --session`"


def _calls(number: int) -> str:
    return f"{number} call{'' if number == 1 else 's'}"
