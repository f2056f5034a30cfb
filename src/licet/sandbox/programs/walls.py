"""The walls around programs: every program of a call runs behind them, with what the call holds and nothing more.

At every level these are Landlock, seccomp, limits, namespaces, a private root and the egress proxy. Without namespaces
on the machine, a supervisor makes the calls that these would confine: the grant is kept as a whole, and the receipt
lists what is missing besides. Where the kernel cannot do that either, programs run only if the manifest has
`sandbox.allow_degraded`, then without any network.
"""

import asyncio
import errno
import json
import os
import signal
import socket
import stat
import sys
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import chain
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from msgspec.structs import replace

from licet.core.algebra.rules import Capability
from licet.core.algebra.scope import inside, visible
from licet.core.decision.placing import inspection_of
from licet.core.decision.reach import Reach
from licet.core.decision.request import Reason
from licet.core.policy.addresses import refused_addresses
from licet.core.policy.inspection import Inspection
from licet.core.policy.manifest import every_key_file
from licet.core.policy.terms import least_limits, private_of
from licet.core.values import COMMAND_LINE
from licet.guard.execution import Command, Layers, SandboxUnavailable, Used, Walls
from licet.guard.grant import Grant
from licet.guard.held_paths import held_paths
from licet.guard.limits import WRITTEN_PATHS
from licet.guard.meter import Meter, SharedCount
from licet.guard.ports import Http
from licet.guard.real_paths import RealPaths
from licet.own_files import create_file, read_regular
from licet.sandbox import probe
from licet.sandbox import scratch as scratches
from licet.sandbox.grant_paths import (
    Identity,
    KernelPaths,
    KernelRule,
    around,
    closed_names,
    identity,
    kernel_paths,
    program_access,
)
from licet.sandbox.kernel import hardening, landlock
from licet.sandbox.kernel.entry_count import EntryCount
from licet.sandbox.kernel.namespaces import DEVICES, PROXY, SHARED_MEMORY, TERMINALS
from licet.sandbox.limits import (
    LAUNCHER_SECONDS,
    LONGEST_ENDING,
    LONGEST_LAUNCH_REPORT,
    MOST_KNOWN_HOSTS,
    MOST_PROGRAM_ENTRIES,
)
from licet.sandbox.programs.host_sockets import (
    granted_sockets,
    known_hosts,
    reaches_ssh,
    socket_variables,
    ssh_variables,
)
from licet.sandbox.programs.output_directories import make_output_directories
from licet.sandbox.programs.policy_cache import PLACE, OpenCache, PolicyCache, cache_of, cache_variables
from licet.sandbox.programs.program_files import (
    GIT_SETTINGS,
    MADE_FILES,
    SYSTEM,
    Placeholders,
    Shown,
    git_settings,
    made_files,
    name_of_binary,
    of_binary,
    placeholder_text,
)
from licet.sandbox.programs.system_configuration import configuration
from licet.sandbox.programs.unseen_by_git import with_unseen

# The proxy is imported only for programs that connect to it, and inspection only where something is looked into.
if TYPE_CHECKING:
    from licet.sandbox.inspection.inspected import Inspecting
    from licet.sandbox.programs.proxy import Egress

_MB = 1 << 20

# Places for scratch in the private root, which programs expect in this order. See `_scratch_places`.
_SCRATCH = ("/tmp", "/var/tmp", "/run/scratch", "/.licet-scratch")  # noqa: S108
STATE = "/.licet"  # in the private root of a program with lasting scratch; no grant has this path
# Names of loopback in a rule, their addresses, and how programs write them in `NO_PROXY`. urllib and Node would look
# for `[::1]` there, but httpx cannot read the list then, and makes no request at all.
_LOOPBACK = (
    ("localhost", "127.0.0.1", "localhost"),
    ("127.0.0.1", "127.0.0.1", "127.0.0.1"),
    ("[::1]", "::1", "::1"),
)
OWN_LOOPBACK = tuple(spelling for _, _, spelling in _LOOPBACK)
_PROXY_URL = "http://{}:{}".format(*PROXY)
_WITH_PROXY = ("http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY")

# Where the manifest states no limit. Memory and CPU time are per process; threads count as processes.
OF_A_TOOL: Mapping[str, int] = {
    "cpu_seconds": 60, "memory_mb": 2048, "open_files": 1024, "processes": 256, "file_mb": 1024, "scratch_mb": 256,
    "written_paths": WRITTEN_PATHS,
}  # fmt: skip
# Of `licet run`: a build or a coding agent fits into these, and a runaway does not take the machine. CPU is unlimited,
# and so is the number of files.
OF_A_RUN: Mapping[str, int] = {
    "memory_mb": 8192, "open_files": 65_536, "processes": 4096, "file_mb": 65_536, "scratch_mb": 4096,
}  # fmt: skip
_SPACES = probe.NAMESPACES
# Without namespaces, files of the machine that may not be read are there. Git does not go on at one of its own.
_WITHOUT_SYSTEM_FILES = {"GIT_CONFIG_NOSYSTEM": "1"}
_USABLE = landlock.READ | landlock.EXECUTE
_EVERYTHING = _USABLE | landlock.WRITE | landlock.SPECIAL | landlock.DELETE
_DO_WITHOUT = (
    "or let programs run without them, and without a network: `sandbox: {allow_degraded: true}` in the manifest"
)


class ProgramWalls:
    """Makes walls for the programs of calls. `http` resolves names and sends plain requests.

    `held` collects the directories that are mounted onto themselves: programs cannot move or link files across them.
    `defaults` are the limits that hold where the manifest states none. With `names_hosts` a program that may connect
    nowhere has a proxy, too: it refuses everything, and so the call knows which hosts were asked for. With `lasting`
    scratch outlives the program, and `STATE` is a second directory of it. With `caches`, programs of a policy that is a
    file have a cache that lasts.
    """

    def __init__(
        self,
        http: Http | None = None,
        support: Callable[[], probe.Support] = probe.support,
        held: set[str] | None = None,
        defaults: Mapping[str, int] = OF_A_TOOL,
        names_hosts: bool = False,
        lasting: scratches.SessionScratch | None = None,
        caches: bool = False,
    ) -> None:
        self._http, self._support, self._names_hosts = http, support, names_hosts
        self._caches = caches
        self._lasting = lasting
        self._held = set() if held is None else held
        self._defaults = defaults

    def load_code(self) -> None:
        """Import the launcher."""
        import licet.sandbox.programs.launcher  # noqa: F401

    def layers(self) -> tuple[str, ...]:
        """The layers around every program on this machine. Raises `SandboxUnavailable` if they do not hold."""
        support = self._support()
        support.require("isolated")
        supervised = (probe.SUPERVISED,) if support.supervised else ()
        return ("process", *support.layers("isolated"), *(_SPACES if support.namespaces else supervised))

    def walls(self, grant: Grant) -> Walls:
        """The walls of a program with this grant. Raises `SandboxUnavailable` if they do not hold on this machine."""
        support, in_force = self._support(), self.layers()
        reach = grant.reach
        network = any(rule.domain == "network" for rule in reach.grant.allow) and self._http is not None
        way_out = ("egress proxy",) if network else ()
        http = self._http if network or self._names_hosts else None
        if support.namespaces:
            return self._of(grant, http, Layers((*in_force, *way_out)), support)
        if support.supervised:
            return self._of(grant, http, Layers((*in_force, *way_out), _SPACES), support)
        if not reach.manifest.allow_degraded:
            lacking = (*support.without_namespaces(), *support.faults(probe.SUPERVISED))
            raise SandboxUnavailable("; ".join(("no program can be put behind its walls here", *lacking, _DO_WITHOUT)))
        # The kernel does not limit the number of processes of root; the launcher does, in a namespace. For other users
        # the kernel counts all their processes, which cannot be read inside some other sandboxes.
        counted = os.getuid() and hardening.tasks_of_user() is not None
        uncounted = () if counted else ("limit of processes",)
        layers = Layers(in_force, (*_SPACES, probe.SUPERVISED, *way_out, *uncounted))
        return self._of(grant, None, layers, support)

    def _of(self, grant: Grant, http: Http | None, layers: Layers, support: probe.Support) -> Walls:
        limits = limits_of(grant.reach, self._defaults)
        cache = _cache_of(grant.reach) if self._caches else None
        given = (grant, http, layers, self._held, support, limits, self._lasting, cache)
        inspection = inspection_of(grant.reach)
        return _InspectedWalls(inspection, *given) if inspection else _CallWalls(*given)


class _CallWalls:
    """The walls of one call's programs."""

    def __init__(
        self,
        grant: Grant,
        http: Http | None,
        layers: Layers,
        held: set[str],
        support: probe.Support,
        limits: Mapping[str, int],
        lasting: scratches.SessionScratch | None,
        cache: PolicyCache | None,
    ) -> None:
        self._lasting, self._cache = lasting, cache
        self.layers, self._version = layers, support.landlock
        self._held, self._limits = held, limits
        self._grant, self._http, self._spaces = grant, http, not layers.missing
        self._supervised = not self._spaces and probe.SUPERVISED in layers.in_force
        self._unix = self._spaces and support.wall_holds(probe.SOCKETS)
        # The process that makes the connections counts too.
        counts = (self._unix or self._supervised) and not grant.outlives_calls
        self._most = limits.get("written_paths") if counts else None
        # Who makes its connections judges its removals too.
        self._judges = (self._unix or self._supervised) and bool(grant.reach.judged_deletes)

    def around(self, command: Command) -> Command:
        """The same command with its walls; it must be run in the running loop."""
        limits, placeholders = self._limits, Placeholders()
        make_output_directories(self._grant.reach)
        try:
            closed = closed_names(self._grant, judged=self._judges) if self._spaces else []
            return self._around(command, limits, placeholders, placeholders.hold(closed), closed)
        except BaseException:
            placeholders.release()
            raise

    def _around(
        self,
        command: Command,
        limits: Mapping[str, int],
        placeholders: Placeholders,
        missing: Collection[str],
        closed: Iterable[str],
    ) -> Command:
        # Of this start alone, and looked at once the missing names are held: a line may have left links for the next.
        real = RealPaths()
        paths = kernel_paths(
            self._grant, private_root=self._spaces, program=True, missing=missing, real=real, judged=self._judges
        )
        own = of_binary(command, self._grant.reach)
        sockets = granted_sockets(self._grant.reach) if self._unix or self._supervised else ()
        unread = held_paths(self._grant.capabilities).denied("read")
        shown_in_etc = configuration(self._grant.reach.manifest.ceiling)
        system = (*SYSTEM, *(path for path in shown_in_etc if not inside(path, unread)))
        shown = self._shown(command, paths, self._seen_anyway(command, own))
        if self._spaces:
            shown = with_unseen(shown, placeholders.files, held_paths(self._grant.capabilities))
        shown, ssh = self._with_ssh(shown)
        paths = self._with_keys_in_place(paths, shown)
        if shown.keys:  # a copy lies in the private root itself where only its file was granted
            alone = [path for path in (*paths.read, *paths.write) if real.of(path) in shown.keys]
            read, write = (tuple(path for path in some if path not in alone) for some in (paths.read, paths.write))
            paths = replace(paths, read=read, write=write)
        self._held.update(paths.hold)
        places = _scratch_places(tuple(own), paths, real) if self._spaces else self._places_of_host()
        scratch = [*places][-1]
        named = name_of_binary(command, self._grant.reach)
        kept = (
            self._kept(places, (*named, *own, *shown.paths), paths, real)
            if self._spaces and self._lasting is not None
            else _Kept()
        )
        if self._lasting is not None:
            places = {**places, STATE if self._spaces else self._lasting.state: _EVERYTHING}
        cache, opened_cache = self._opened_cache()
        if cache:
            kept = kept._replace(places={**kept.places, cache: self._cache.files if self._cache else ""})
        try:
            # Runtimes look for a home directory when they start, and some do not start without one.
            # GNU screen wants a directory for its sockets that is its own; that of the machine is not shown.
            environment = {"HOME": scratch, "SCREENDIR": f"{scratch}/.screen", **command.environment, "TMPDIR": scratch}
            environment |= proxy_variables(tuple(_own_loopback(self._grant.reach))) if self._http else {}
            environment |= shown.environment
            environment |= socket_variables(sockets, os.environ)
            environment = {**ssh, **environment}
            if self._supervised:
                environment |= _WITHOUT_SYSTEM_FILES
            if cache:
                held = held_paths(self._grant.capabilities)
                environment = {**cache_variables(cache, command.environment, held), **environment}
            rights = {**places, cache: _EVERYTHING} if cache else places
            if self._judges and not self._spaces:
                # Scratch lies on a disk of the host, and goes with all that is in it: nothing is moved into it.
                rights = {path: allowed & ~landlock.MOVE for path, allowed in rights.items()}
            common = _with_copies(tuple(self._rules(system, own, command.runtime, rights, real)), shown)
            made, settings = dict(made_files(environment["HOME"])), git_settings(self._grant.reach)
            if settings and self._spaces:
                made[GIT_SETTINGS] = settings
                common = (*common, KernelRule(GIT_SETTINGS, landlock.READ_FILE))
            elif settings:
                # Git reads no file of the system where this variable is set, too.
                environment.pop("GIT_CONFIG_NOSYSTEM", None)
                environment.setdefault("GIT_CONFIG_SYSTEM", _file_in(scratch, settings))
            granted = _with_copies(paths.rules, shown)
            orders: dict[str, Any] = {
                "binary": command.binary,
                "argv": command.argv,
                "environment": environment,
                "directory": command.directory,
                "namespaces": self._spaces,
                "supervised": self._supervised,
                "landlock": self._version,
                "network": self._http is not None,
                "own_terminal": command.own_terminal,
                "unix": self._unix,
                "sockets": [(one.real, one.device, one.inode) for one in sockets],
                "entries": self._most,
                "removals": self._removals(paths, (*rights, *kept.covered)) if self._judges else None,
                "scratch": ([*places], limits["scratch_mb"] * _MB),
                "memory": [*(place for place in places if place not in kept.places), *kept.covered],
                "lasting": dict(kept.places),
                "limits": {
                    "cpu_seconds": limits.get("cpu_seconds"),
                    "memory_bytes": limits["memory_mb"] * _MB,
                    "address_bytes": 0,  # runtimes reserve far more addresses than they use
                    "open_files": limits["open_files"],
                    "processes": limits["processes"],
                    "file_bytes": limits["file_mb"] * _MB,
                },
                # Where nothing of the host is shown, there is nothing to hide, but what a program has put there.
                "mounts": {
                    "read": (*system, *paths.read, *named, *(one.path for one in sockets)),
                    "found": tuple(own.items()),
                    "write": paths.write,
                    "hide": (*(path for path in paths.hide if kept.shows(path)), *shown.hide),
                    "over": tuple(path for path in command.runtime if path in own and inside(path, paths.hide)),
                    "hold": paths.hold,
                    "made": made,
                    "copies": shown.copies,
                    "contents": shown.contents,
                    "names": shown.names,
                    "keys": shown.keys,
                    "closed": {path: placeholder_text(path) for path in closed},
                    "absent": paths.absent,
                },
                "rules": (*common, *granted),
                "trees": self._trees_of(paths),
                "wide": list(self._wide_rules(paths)),
            }
            rules_text = program_access(self._grant.reach, orders, granted, common)
            self._grant.program_access = self._grant.program_access.with_program(rules_text)
            removed = None if self._spaces or self._lasting is not None else scratch
            meter = None if self._most is None else self._grant.meter
            refused = self._grant.note_unapproved
            watch = LauncherClient(orders, self._egress(), removed, placeholders, meter, opened_cache, refused)
        except BaseException:
            if opened_cache is not None:
                os.close(opened_cache.lock)
            if not self._spaces and self._lasting is None:
                scratches.remove(scratch)
            raise
        return replace(command, watch=watch)

    def _opened_cache(self) -> tuple[str, OpenCache | None]:
        """Where the program finds the cache of its policy, and what keeps it; on a full disk there is none."""
        if self._cache is None:
            return "", None
        with suppress(OSError):
            opened = self._cache.open(os.path.realpath(self._grant.reach.manifest.origin.file))
            return PLACE if self._spaces else self._cache.files, opened
        return "", None

    def _removals(self, paths: KernelPaths, places: Iterable[str]) -> Mapping[str, Any]:
        """What may be removed though nobody has approved deletes: all in scratch, and what was made since."""
        since = None if self._lasting is None else self._lasting.began
        return {"since": since, "directories": paths.write, "scratch": [*places, SHARED_MEMORY]}

    def _trees_of(self, paths: KernelPaths) -> list[dict[str, Any]]:
        """The trees with closed names, where a supervisor opens and makes what lies beside these."""
        return [tree._asdict() for tree in paths.trees] if self._supervised else []

    def _wide_rules(self, paths: KernelPaths) -> Iterator[KernelRule]:
        """The rules that this supervisor has besides: it decides itself what is closed in them."""
        for tree in paths.trees if self._supervised else ():
            for root in tree.roots:
                with suppress(OSError):  # removed meanwhile
                    yield KernelRule(root, tree.rights, identity(root))

    def _places_of_host(self) -> Mapping[str, int]:
        """Scratch where there is no private root."""
        if self._lasting is None:
            return {_new_scratch(): _EVERYTHING}
        try:
            return {self._lasting.place("", {}): _EVERYTHING}
        except OSError as wrong:
            raise SandboxUnavailable(_NO_SCRATCH.format(wrong)) from wrong

    def _kept(self, places: Iterable[str], own: Sequence[str], paths: KernelPaths, real: RealPaths) -> "_Kept":
        """The directories of the host for the places of lasting scratch, and what is mounted over names in them.

        Paths that the policy allows count too, whether they are there or not: so the names are the same for each line.
        """
        assert self._lasting is not None  # noqa: S101
        held = held_paths(self._grant.capabilities)
        shown = (*own, *paths.read, *paths.write)
        mounted = {*shown, *map(real.of, shown)}
        allowed = (*paths.hold, *chain.from_iterable(map(held.allowed, ("read", "write", "delete"))))
        every = {*mounted, *allowed, *map(real.of, allowed)}
        found, covered, over = {STATE: self._lasting.state}, list[str](), set[str]()
        try:
            for place in places:
                names = {path[len(place) + 1 :].partition("/")[0] for path in every if path.startswith(f"{place}/")}
                if any(os.path.islink(os.path.join(place, name)) for name in names):
                    continue  # a program could replace a link in scratch, and nothing is mounted over one
                files = {name for name in names if (path := os.path.join(place, name)) in mounted and _is_file(path)}
                found[place] = self._lasting.place(place, {name: name not in files for name in names})
                covered += [os.path.join(place, name) for name in names - files]
                over |= {os.path.join(place, name) for name in names}
        except OSError as wrong:
            raise SandboxUnavailable(_NO_SCRATCH.format(wrong)) from wrong
        return _Kept(found, tuple(sorted(covered)), frozenset(over))

    def _with_keys_in_place(self, paths: KernelPaths, shown: Shown) -> KernelPaths:
        """The same, where no file with a key is moved. Other programs of the agent see a copy at its path alone."""
        known = every_key_file(self._grant.reach.manifest)  # real paths of which some may be missing
        files = dict.fromkeys((*shown.keys, *(os.path.realpath(path) for path in known if path.startswith("/"))))
        if not files:
            return paths
        from licet.sandbox.inspection.operator_files import kept_in_place

        kept = kept_in_place(files, paths.write)
        for path in kept if not self._spaces else ():
            if _rights_on(path, paths.rules) & landlock.DELETE:
                raise SandboxUnavailable(_MOVES_A_KEY.format(path))
        return replace(paths, hold=(*paths.hold, *(path for path in kept if path not in paths.hold)))

    def _seen_anyway(self, command: Command, own: Iterable[str]) -> tuple[str, ...]:
        """What this program reads besides its grants: its own files, and lasting scratch.

        Its runtime is shown where it is closed, too.
        """
        lasting = () if self._lasting is None else (self._lasting.state,)
        hidden = held_paths(self._grant.capabilities).denied("read")
        return (*(path for path in own if path in command.runtime or not inside(path, hidden)), *lasting)

    def _shown(self, command: Command, paths: KernelPaths, seen: Sequence[str]) -> Shown:
        """What the program sees besides, because keys are placed for it; `seen` is what no grant names."""
        return Shown()

    def _with_ssh(self, shown: Shown) -> tuple[Shown, dict[str, str]]:
        """The same with copies of the lists of host keys, and the variables for git, where ssh may connect."""
        if self._http is None or not reaches_ssh(self._grant.reach):
            return shown, {}
        lists = known_hosts(os.path.expanduser("~"))
        for path in lists:
            with suppress(OSError):
                shown = shown.with_copy(path, read_regular(path, MOST_KNOWN_HOSTS, links=False))
        return shown, ssh_variables(lists)

    def _egress(self) -> "_LateEgress | None":
        return _LateEgress(self._grant, self._http) if self._http is not None else None

    def _rules(
        self,
        system: Sequence[str],
        own: Mapping[str, Identity],
        runtime: Sequence[str],
        scratch: Mapping[str, int],
        real: RealPaths,
    ) -> Iterator[KernelRule]:
        """The rules of every program: the system, its own files, some devices, and scratch.

        A runtime may lie in a directory that is closed otherwise, as the package of a server does.
        """
        unread = held_paths(self._grant.capabilities).denied("read")
        for path in system:
            for part in (path,) if self._spaces else around(real.of(path), unread):
                yield KernelRule(part, _USABLE)
        for path, found in own.items():
            for part in (path,) if self._spaces or path in runtime else around(path, unread):
                with suppress(OSError):  # removed meanwhile, or neither a file nor a directory
                    yield KernelRule(part, _USABLE, found if part == path else identity(part))
        for device in DEVICES:
            # The terminal that controls the program was made for it or by it: it may read and set its settings.
            settings = landlock.TERMINAL if device == "/dev/tty" else 0
            yield KernelRule(device, landlock.READ_FILE | landlock.WRITE | settings)
        for place, access in scratch.items():
            yield KernelRule(place, access)
        if self._spaces:
            # Parts of its own namespace; the last are generated files.
            yield KernelRule("/proc", landlock.READ)
            yield KernelRule(SHARED_MEMORY, _EVERYTHING)
            yield KernelRule(TERMINALS, landlock.READ | landlock.TERMINAL)
            for path in MADE_FILES:
                yield KernelRule(path, landlock.READ_FILE)
        elif self._supervised:
            # Those of the machine: Landlock keeps what the processes in /proc have from those of the run.
            yield KernelRule("/proc", landlock.READ)
            for path in MADE_FILES:
                for part in around(real.of(path), unread):
                    yield KernelRule(part, landlock.READ_FILE)


def _with_copies(rules: tuple[KernelRule, ...], shown: Shown) -> tuple[KernelRule, ...]:
    """Kernel rules with those for copies. The rule of a file that was checked would refuse the copy in its place."""
    if not shown.copies:
        return rules
    kept = (rule for rule in rules if rule.path not in shown.paths)
    return (*kept, *(KernelRule(path, landlock.READ) for path in (*shown.paths, *shown.directories)))


def _is_file(path: str) -> bool:
    return os.path.exists(path) and not os.path.isdir(path)


class _InspectedWalls(_CallWalls):
    """The same, where the proxy looks into connections and places keys. Each program has an authority of its own."""

    def __init__(self, inspection: Inspection, *given: Any) -> None:
        super().__init__(*given)
        self._inspection = inspection
        self._inspecting: Inspecting | None = None

    async def take_secrets(self, value: Callable[[str], Awaitable[str]]) -> None:
        """Make the authority, and read the keys and the files that they are in; see `TakesSecrets`."""
        from licet.sandbox.inspection.shown import begin

        self._inspecting = await begin(self._inspection, value, self._grant.reach)

    def _shown(self, command: Command, paths: KernelPaths, seen: Sequence[str]) -> Shown:
        from licet.sandbox.inspection.shown import shown_to

        if self._inspecting is None:
            raise SandboxUnavailable("the keys of this program were not read before its start")
        network = self._http is not None
        reach, spaces = self._grant.reach, self._spaces
        return shown_to(command, self._inspecting, paths, reach, seen, network=network, spaces=spaces)

    def _egress(self) -> "_LateEgress | None":
        return _LateEgress(self._grant, self._http, self._inspecting) if self._http is not None else None


class _Kept(NamedTuple):
    """Lasting scratch: places with their directories on the host, and the directories in them that are in memory."""

    places: Mapping[str, str] = MappingProxyType({})
    covered: tuple[str, ...] = ()
    names: frozenset[str] = frozenset()  # the paths in the places that something else is mounted over

    def shows(self, path: str) -> bool:
        """Whether a path is not in lasting scratch itself."""
        return not inside(path, tuple(self.places)) or inside(path, tuple(self.names))


def _new_scratch() -> str:
    """A scratch directory on the host, for programs without a private root."""
    try:
        return scratches.new()
    except OSError as wrong:
        raise SandboxUnavailable(_NO_SCRATCH.format(wrong)) from wrong


def _file_in(scratch: str, settings: str) -> str:
    """A file of scratch with settings of git, where there is no private root to have one in."""
    path = os.path.join(scratch, ".licet-gitconfig")
    with suppress(FileNotFoundError):
        os.unlink(path)
    try:
        create_file(path, settings.encode())
    except OSError as error:
        raise SandboxUnavailable(_NO_SCRATCH.format(error)) from error
    return path


def _scratch_places(own: Sequence[str], paths: KernelPaths, real: RealPaths) -> Mapping[str, int]:
    """The places for scratch with the rights on them. The last one has all of them, and is the one for new files.

    A Landlock rule applies to everything below a path. So a place with granted paths in it has only the rights that
    these have anyway: where files are written and never deleted, that holds for all of the place.
    """
    places: dict[str, int] = {}
    only_read = [real.of(path) for path in (*own, *paths.read)]
    written = [real.of(path) for path in paths.write]
    for place in _SCRATCH:
        if inside(place, (*only_read, *written)):
            continue
        if real.of(place) != place and any(inside(path, (place,)) for path in (*own, *paths.read, *paths.write)):
            continue  # the link on the way to a granted path must stay
        rights = _EVERYTHING
        for path in written:
            rights &= _rights_on(path, paths.rules) if inside(path, (place,)) else _EVERYTHING
        # What is mounted read-only cannot be written whatever the rule says, except for pipes.
        if any(inside(path, (place,)) and not inside(path, written) and _has_pipes(path) for path in only_read):
            continue
        if rights & _LEAST == _LEAST:
            places[place] = rights
        if rights == _EVERYTHING:
            return places
    raise SandboxUnavailable("everything is granted, so no place is left for scratch")


_NO_SCRATCH = "no scratch directory can be made: {}"
_MOVES_A_KEY = (
    "a program could move a file with a key, because there are no namespaces: `{}` lies where it may delete; keep the "
    "file elsewhere"
)
_LEAST = landlock.READ | landlock.WRITE


def _rights_on(path: str, rules: Iterable[KernelRule]) -> int:
    rights = 0
    for rule in rules:
        rights |= rule.access if inside(path, (rule.path,)) else 0
    return rights


def _has_pipes(path: str) -> bool:
    """Whether a path is or contains a FIFO, or more than can be searched."""
    seen, left = 0, [path]
    while left and seen <= MOST_PROGRAM_ENTRIES:
        one = left.pop()
        try:
            about = os.lstat(one)
            if stat.S_ISFIFO(about.st_mode):
                return True
            if stat.S_ISDIR(about.st_mode):
                with os.scandir(one) as entries:
                    found = list(entries)
                seen += len(found)
                left += [entry.path for entry in found if not (entry.is_symlink() or entry.is_file())]
        except FileNotFoundError:
            continue
        except OSError:  # it cannot be listed
            return True
    return bool(left)


def proxy_variables(own: Sequence[str] = ()) -> Mapping[str, str]:
    """The variables that lead programs to the proxy on their own loopback, except for the hosts in `own`."""
    past = dict.fromkeys(("NO_PROXY", "no_proxy"), ",".join(own))
    return {**dict.fromkeys(_WITH_PROXY, _PROXY_URL), **past, "NODE_USE_ENV_PROXY": "1"}


def _own_loopback(reach: Reach) -> Iterator[str]:
    """The names of loopback that mean the program's own network, where its own servers listen.

    A name that the grant reaches means the loopback of the machine, and leads to the proxy.
    """
    private = private_of(reach.manifest, reach.bundles)
    rules = [rule for rule in reach.grant.allow if rule.domain == "network"]
    for name, address, spelling in _LOOPBACK:
        asked = Capability(f"network:*:{name}")
        reached = [rule for rule in rules if rule.meet(asked) is not None]
        written = any(rule.key == asked.key for rule in reached)
        if not written and (not reached or refused_addresses((address,), private)):
            yield spelling


def limits_of(reach: Reach, defaults: Mapping[str, int] = OF_A_TOOL) -> Mapping[str, int]:
    """The limits of a program: the tightest of manifest, bundle and tool, or a default."""
    limits = reach.manifest.limits
    for admission in reach.admissions:
        limits = least_limits(limits, admission.limits)
    return {**defaults, **limits}


_OF_LAUNCHERS: tuple[Reason, ...] = ("LIMIT_PROCESSES", "LIMIT_DISK", "LIMIT_PATHS", "CLOSED_FILE_REPLACED")


def _cache_of(reach: Reach) -> PolicyCache | None:
    """The cache of a policy that is a file, and whose programs may write; flags have none."""
    origin = reach.manifest.origin
    if reach.effect in (None, "read_only") or not origin.line or origin.file == COMMAND_LINE:
        return None
    return cache_of(origin.file, reach.manifest.agent)


class _LateEgress:
    """The proxy, which is imported and made when a program first connects to it: most programs never do."""

    def __init__(self, grant: Grant, http: Http, inspecting: "Inspecting | None" = None) -> None:
        self._grant, self._http, self._inspecting = grant, http, inspecting
        self._waiting: socket.socket | None = None
        self._egress: Egress | None = None

    def serve(self, listener: socket.socket) -> None:
        """Accept connections from now on; through a unix socket the launcher passes them in."""
        if listener.family == socket.AF_UNIX:
            listener = _PassedIn(fileno=listener.detach())
        self._waiting = listener
        asyncio.get_running_loop().add_reader(listener, self._start)

    def _start(self) -> None:
        listener = self._stop_waiting()
        if isinstance(listener, _PassedIn) and listener.has_ended():
            listener.close()
        elif listener is not None:
            from licet.sandbox.programs.proxy import Egress

            self._egress = Egress(self._grant, self._http, inspecting=self._inspecting)
            self._egress.serve(listener)

    def _stop_waiting(self) -> socket.socket | None:
        listener, self._waiting = self._waiting, None
        if listener is not None:
            asyncio.get_running_loop().remove_reader(listener)
        return listener

    async def close(self) -> None:
        """Accept nothing more, and close all connections."""
        listener = self._stop_waiting()
        if listener is not None:
            listener.close()
        if self._egress is not None:
            await self._egress.close()


class _PassedIn(socket.socket):
    """Takes connections that the launcher passes in, as a listener takes those that it accepts."""

    def accept(self) -> tuple[socket.socket, None]:
        """The next connection."""
        self.setblocking(False)
        text, ancillary, _, _ = self.recvmsg(1, socket.CMSG_SPACE(4), socket.MSG_CMSG_CLOEXEC)
        for level, kind, files in ancillary:
            if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS) and len(files) == 4:
                return socket.socket(fileno=int.from_bytes(files, sys.byteorder)), None
        if not text:
            raise OSError(errno.EPIPE, "the launcher has ended")
        raise ConnectionAbortedError("no connection came")

    def has_ended(self) -> bool:
        """Whether no connection will come any more."""
        return not self.recv(1, socket.MSG_PEEK)


class LauncherClient:
    """The host's side of one launcher: sends its orders, and serves the proxy while the program runs."""

    def __init__(
        self,
        orders: Mapping[str, Any],
        egress: _LateEgress | None,
        scratch: str | None,
        placeholders: Placeholders | None = None,
        meter: Meter | None = None,
        cache: OpenCache | None = None,
        refused_deletes: Callable[[Sequence[str], int], None] = lambda paths, count: None,
    ) -> None:
        self._limits, self._cache, self._refused_deletes = orders["limits"], cache, refused_deletes
        self.has_jobs = bool(orders["namespaces"])  # the first process there lets a stopped program go on
        self._placeholders = placeholders or Placeholders()
        self._ending, ending = os.pipe()
        os.set_blocking(self._ending, False)
        text = json.dumps(orders).encode()
        self._loop = asyncio.get_running_loop()
        self._egress, self._scratch = egress, scratch
        self._limit: Reason | Literal[""] = ""
        self.detail = ""
        self._said = bytearray()
        self._near, far = socket.socketpair()
        self._near.setblocking(False)
        self.files = (far.detach(), ending)
        self._meter = meter
        count = None if meter is None else meter.share_count(lambda: EntryCount(orders["entries"]))
        self._task = self._loop.create_task(self._attend(len(text).to_bytes(8, "big") + text, count))

    async def started(self) -> Exception | None:
        """Wait until the binary runs or an error was reported: then the launcher's end of the socket is closed."""
        await asyncio.wait([self._task])
        return _start_error(bytes(self._said))

    async def ended(self) -> Exception | None:
        """Clean up; returns why the walls could not be built, or the program not be started."""
        # Every process with the other end of the socket has ended, so the report is complete.
        await asyncio.wait([self._task], timeout=LAUNCHER_SECONDS)
        self._task.cancel()
        with suppress(asyncio.CancelledError, OSError):
            await self._task
        self._near.close()
        try:
            with suppress(BlockingIOError):  # no reason was reported
                self._take_report(os.read(self._ending, LONGEST_ENDING).decode(errors="replace"))
        finally:
            os.close(self._ending)
            self._placeholders.release()
            if self._meter is not None:
                self._meter.unshare_count()
            if self._egress is not None:
                await self._egress.close()
            if self._cache is not None:
                await asyncio.to_thread(self._cache.close)
            if self._scratch is not None:
                await asyncio.to_thread(scratches.remove, self._scratch)
        return _start_error(bytes(self._said))

    def _take_report(self, text: str) -> None:
        """Take what the walls say: the limit that ended the program, why, and in a second line the refused deletes."""
        name, _, detail = text.partition(" ")
        refused = ""
        if name != "CLOSED_FILE_REPLACED":  # of this there is a text, and nothing else
            name, _, refused = text.partition("\n")
            detail = ""
        self._limit = next((reason for reason in _OF_LAUNCHERS if reason == name), "")
        self.detail = visible(detail) if self._limit else ""
        if refused:
            paths, count = list[str](), 1
            with suppress(ValueError, KeyError):  # it was cut, so at least one was refused
                report = json.loads(refused)
                paths, count = report["paths"], report["count"]
            self._refused_deletes(paths, count)

    def limit(self, used: Used) -> Reason | Literal[""]:
        """Which limit ended the program, as the kernel and the first process of its namespace report it."""
        if self.detail:
            return self._limit
        killed = used.returncode == -signal.SIGKILL
        most = self._limits["cpu_seconds"]
        if most is not None and (used.returncode == -signal.SIGXCPU or (killed and used.cpu_seconds >= most)):
            return "LIMIT_CPU"
        if used.returncode == -signal.SIGXFSZ:
            return "LIMIT_FILE_SIZE"
        # Only the program learns that memory was refused. One that fails with nearly all of it in use met this limit.
        if used.returncode and used.memory_bytes >= self._limits["memory_bytes"] * 9 // 10:
            return "LIMIT_MEMORY"
        # Reported by the launcher, from outside of the program's namespace.
        return self._limit

    async def _attend(self, orders: bytes, count: SharedCount | None) -> None:
        with suppress(BrokenPipeError, ConnectionResetError):
            if count is not None:  # the buffer is empty, so some bytes are sent at once
                orders = orders[socket.send_fds(self._near, [orders[:8]], [count.file]) :]
            await self._loop.sock_sendall(self._near, orders)
        while True:
            await self._readable()
            data, files, _, _ = socket.recv_fds(self._near, LONGEST_LAUNCH_REPORT, 1)
            if files and self._egress is not None:
                self._egress.serve(socket.socket(fileno=files[0]))
                data = data[1:]
            self._said += data[: LONGEST_LAUNCH_REPORT - len(self._said)]
            if not data and not files:
                return

    async def _readable(self) -> None:
        ready: asyncio.Future[None] = self._loop.create_future()

        def is_ready() -> None:
            self._loop.remove_reader(self._near)
            if not ready.done():
                ready.set_result(None)

        self._loop.add_reader(self._near, is_ready)
        try:
            await ready
        finally:
            self._loop.remove_reader(self._near)


def _start_error(said: bytes) -> Exception | None:
    """The error that the launcher reported; None means that the program was started."""
    if not said:
        return None
    try:
        report = json.loads(said)
        if report["stage"] == "start":
            return OSError(int(report["errno"]), os.strerror(int(report["errno"])))
        return SandboxUnavailable(f"the walls could not be built: {report['text']}")
    except (ValueError, KeyError, TypeError):
        return SandboxUnavailable("the walls could not be built, and the report about it cannot be read")
