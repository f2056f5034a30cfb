"""The walls around programs: each one that a call starts runs behind these, with what the call holds and nothing more.

Whatever the level of the tool: Landlock, seccomp and limits always; namespaces, a private root and the only way out to
the network besides. A machine without namespaces runs programs only where the manifest says `sandbox.allow_degraded`,
then without any network, and the receipt says what was missing.
"""

import asyncio
import json
import os
import signal
import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Literal

from licet.core.algebra.scope import TOP, inside
from licet.core.decision.decision import Reason
from licet.core.decision.reach import Reach
from licet.core.policy.manifest import least_limits
from licet.guard.execution import Command, Layers, SandboxUnavailable, Used, Walls
from licet.guard.grant import Holding
from licet.guard.handles.files import held_paths
from licet.guard.ports import Http
from licet.sandbox import probe
from licet.sandbox import scratch as scratches
from licet.sandbox.grant_paths import Identity, KernelRule, around, identity, kernel_paths
from licet.sandbox.kernel import hardening, landlock
from licet.sandbox.kernel.namespaces import DEVICES
from licet.sandbox.programs.files import SYSTEM, of_binary
from licet.sandbox.rules_in_force import program_access
from licet.values import replace

# The way out is loaded only for programs that have one.
if TYPE_CHECKING:
    from licet.sandbox.programs.proxy import Egress

_MOST_SAID = 1 << 16
_GRACE = 2.0
_MB = 1 << 20

# Of the private root, where nobody else is. The first that is neither around nor inside what is granted: Landlock's
# rules hold for everything below a path, and so would those for scratch.
_SCRATCH = ("/tmp", "/var/tmp", "/run/scratch", "/.licet-scratch")  # noqa: S108
_WITH_PROXY = ("http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY")

# Where no limit is stated. Memory is per process, and so is the time of the processor.
_DEFAULTS = {"cpu_seconds": 60, "memory_mb": 2048, "open_files": 1024, "processes": 256, "file_mb": 1024}
_DEFAULTS |= {"scratch_mb": 256}
_SPACES = ("namespaces", "private root")
_DO_WITHOUT = (
    "or let programs run without them, and without a network: `sandbox: {allow_degraded: true}` in the manifest"
)


class ProgramWalls:
    """Makes walls for the programs of calls. `http` is how names are resolved and plain requests are sent.

    `held` collects the directories that are mounted onto themselves, across which programs cannot move or link files.
    """

    def __init__(
        self,
        http: Http | None = None,
        support: Callable[[], probe.Support] = probe.support,
        held: set[str] | None = None,
    ) -> None:
        self._http, self._support = http, support
        self._held = set() if held is None else held

    def load_code(self) -> None:
        """Import what programs get to the network through."""
        import licet.sandbox.programs.launcher  # noqa: F401

    def layers(self) -> tuple[str, ...]:
        """What is in force around every program here; `SandboxUnavailable` where not even that can be kept."""
        support = self._support()
        support.require("isolated")
        return ("process", *support.layers("isolated"), *(_SPACES if support.namespaces else ()))

    def walls(self, holding: Holding) -> Walls:
        """The walls of a child process with this grant; `SandboxUnavailable` if they cannot be kept here."""
        support, in_force = self._support(), self.layers()
        reach = holding.reach
        network = any(rule.domain == "network" for rule in reach.grant.allow) and self._http is not None
        way_out = ("egress proxy",) if network else ()
        if support.namespaces:
            http = self._http if network else None
            return _Around(holding, http, Layers((*in_force, *way_out)), self._held, support.landlock)
        if not reach.manifest.allow_degraded:
            reasons = ("no program can be put behind all its walls here", *support.without_namespaces(), _DO_WITHOUT)
            raise SandboxUnavailable("; ".join(reasons))
        # The kernel does not hold root to a number of processes, and who counts them does so in a namespace. For others
        # it counts all that they have, which another sandbox may not tell.
        counted = os.getuid() and hardening.tasks_of_user() is not None
        uncounted = () if counted else ("limit of processes",)
        layers = Layers(in_force, (*_SPACES, *way_out, *uncounted))
        return _Around(holding, None, layers, self._held, support.landlock)


class _Around:
    """The walls of one call's programs."""

    def __init__(self, holding: Holding, http: Http | None, layers: Layers, held: set[str], version: int) -> None:
        self.layers, self._version = layers, version
        self._held = held
        self._holding, self._http, self._spaces = holding, http, not layers.missing

    def around(self, command: Command) -> Command:
        """The same command with all that starts it inside; it is to be run in the running loop."""
        limits = limits_of(self._holding.reach)
        anything = any(rule.domain == "process" and rule.key == TOP for rule in self._holding.reach.grant.allow)
        paths = kernel_paths(self._holding, private_root=self._spaces, execute=anything)
        self._held.update(paths.hold)
        own = of_binary(command, self._holding.reach)
        scratch = _apart((*own, *paths.read, *paths.write)) if self._spaces else _new_scratch()
        try:
            environment = {**command.environment, "TMPDIR": scratch, **(_proxied() if self._http else {})}
            common = tuple(self._rules(own, scratch, anything))
            orders: dict[str, Any] = {
                "binary": command.binary,
                "argv": command.argv,
                "environment": environment,
                "directory": command.directory,
                "namespaces": self._spaces,
                "landlock": self._version,
                "network": self._http is not None,
                "scratch": (scratch, limits["scratch_mb"] * _MB),
                "limits": {
                    "cpu_seconds": limits["cpu_seconds"],
                    "memory_bytes": limits["memory_mb"] * _MB,
                    "address_bytes": 0,  # runtimes reserve far more addresses than they ever use
                    "open_files": limits["open_files"],
                    "processes": limits["processes"],
                    "file_bytes": limits["file_mb"] * _MB,
                },
                "mounts": {
                    "read": (*SYSTEM, *paths.read),
                    "found": tuple(own.items()),
                    "write": paths.write,
                    "hide": paths.hide,
                    "hold": paths.hold,
                },
                "rules": (*common, *paths.rules),
            }
            told = program_access(self._holding.reach, orders, paths.rules, common)
            self._holding.program_access = self._holding.program_access.with_program(told)
            watch = Attendant(orders, self._egress(), None if self._spaces else scratch)
        except BaseException:
            if not self._spaces:
                scratches.remove(scratch)
            raise
        return replace(command, watch=watch)

    def _egress(self) -> "Egress | None":
        if self._http is None:
            return None
        from licet.sandbox.programs.proxy import Egress

        return Egress(self._holding, self._http)

    def _rules(self, own: Mapping[str, Identity], scratch: str, anything: bool) -> Iterator[KernelRule]:
        """What every program may use: the system, its own files, some devices, and scratch."""
        unread = held_paths(self._holding.reach.grant).denied("read")
        usable = landlock.READ | landlock.EXECUTE
        for path in SYSTEM:
            for part in (path,) if self._spaces else around(os.path.realpath(path), unread):
                yield KernelRule(part, usable)
        for path, found in own.items():
            for part in (path,) if self._spaces else around(path, unread):
                with suppress(OSError):  # gone meanwhile, or neither a file nor a directory
                    yield KernelRule(part, usable, found if part == path else identity(part))
        for device in DEVICES:
            yield KernelRule(device, landlock.READ_FILE | landlock.WRITE)
        everything = landlock.READ | landlock.WRITE | landlock.DELETE
        yield KernelRule(scratch, everything | (landlock.EXECUTE if anything else 0))
        if self._spaces:
            yield KernelRule("/proc", landlock.READ)  # its own: it shows nobody else


def _new_scratch() -> str:
    """A directory of the host, for programs that have no root of their own."""
    try:
        return scratches.new()
    except OSError as wrong:
        raise SandboxUnavailable(f"there is no place for scratch: {wrong}") from wrong


def _apart(paths: Sequence[str]) -> str:
    """A place for scratch that has nothing to do with what is granted."""
    reals = [os.path.realpath(path) for path in paths]
    for place in _SCRATCH:
        if not inside(place, reals) and not any(inside(path, (place,)) for path in (*reals, *paths)):
            return place
    raise SandboxUnavailable("everything is granted, and so no place is left for scratch")


def _proxied() -> Mapping[str, str]:
    from licet.sandbox.programs.launcher import PROXY_URL

    return {**dict.fromkeys(_WITH_PROXY, PROXY_URL), "NO_PROXY": "", "no_proxy": "", "NODE_USE_ENV_PROXY": "1"}


def limits_of(reach: Reach) -> Mapping[str, int]:
    """What a program of a call may use up: the tightest that manifest, bundle and tool say, or a safe default."""
    limits = reach.manifest.limits
    for seat in reach.seats:
        limits = least_limits(limits, seat.limits)
    return {**_DEFAULTS, **limits}


_OF_THE_LAUNCHER: Mapping[bytes, Reason] = {b"LIMIT_PROCESSES": "LIMIT_PROCESSES", b"LIMIT_DISK": "LIMIT_DISK"}


class Attendant:
    """Stays outside while one program runs: gives the launcher its orders, and serves the way out to the network."""

    def __init__(self, orders: Mapping[str, Any], egress: "Egress | None", scratch: str | None) -> None:
        self._limits = orders["limits"]
        self._ending, ending = os.pipe()
        os.set_blocking(self._ending, False)
        text = json.dumps(orders).encode()
        self._loop = asyncio.get_running_loop()
        self._egress, self._scratch = egress, scratch
        self._limit = b""
        self._said = bytearray()
        self._near, far = socket.socketpair()
        self._near.setblocking(False)
        self.files = (far.detach(), ending)
        self._task = self._loop.create_task(self._attend(len(text).to_bytes(8, "big") + text))

    async def started(self) -> Exception | None:
        """Wait until the binary runs, or something was said: with the launcher its end of the socket goes."""
        await asyncio.wait([self._task])
        return _trouble(bytes(self._said))

    async def ended(self) -> Exception | None:
        """Clear up; why the program could not be put behind walls, or could not be started there."""
        # Every process that held the other end is gone, so what was said is there to be read.
        await asyncio.wait([self._task], timeout=_GRACE)
        self._task.cancel()
        with suppress(asyncio.CancelledError, OSError):
            await self._task
        self._near.close()
        with suppress(BlockingIOError):  # nobody has said anything, and somebody still could
            self._limit = os.read(self._ending, 64)
        os.close(self._ending)
        if self._egress is not None:
            await self._egress.close()
        if self._scratch is not None:
            await asyncio.to_thread(scratches.remove, self._scratch)
        return _trouble(bytes(self._said))

    def limit(self, used: Used) -> Reason | Literal[""]:
        """Which limit has ended the program, by what the kernel and the first process of its namespace say."""
        killed = used.returncode == -signal.SIGKILL
        if used.returncode == -signal.SIGXCPU or (killed and used.cpu_seconds >= self._limits["cpu_seconds"]):
            return "LIMIT_CPU"
        if used.returncode == -signal.SIGXFSZ:
            return "LIMIT_FILE_SIZE"
        # That memory was refused only the program hears. One that fails with nearly all of it in use has met its end.
        if used.returncode and used.memory_bytes >= self._limits["memory_bytes"] * 9 // 10:
            return "LIMIT_MEMORY"
        # Words of the launcher's, from outside of the program's namespace.
        return _OF_THE_LAUNCHER.get(self._limit, "")

    async def _attend(self, orders: bytes) -> None:
        with suppress(BrokenPipeError, ConnectionResetError):
            await self._loop.sock_sendall(self._near, orders)
        while True:
            await self._readable()
            data, files, _, _ = socket.recv_fds(self._near, _MOST_SAID, 1)
            if files and self._egress is not None:
                await self._egress.serve(socket.socket(fileno=files[0]))
                data = data[1:]
            self._said += data[: _MOST_SAID - len(self._said)]
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


def _trouble(said: bytes) -> Exception | None:
    """What the launcher said before it gave up; silence means that the program was started."""
    if not said:
        return None
    try:
        told = json.loads(said)
        if told["stage"] == "start":
            return OSError(int(told["errno"]), os.strerror(int(told["errno"])))
        return SandboxUnavailable(f"the walls could not be built: {told['text']}")
    except (ValueError, KeyError, TypeError):
        return SandboxUnavailable("the walls could not be built, and what was said about it cannot be read")
