"""Which levels this machine supports, from real attempts, and what to do if one is not supported.

`attempts` makes the attempts in an interpreter of its own. A wall that was not seen to hold counts as missing, whatever
the reason.

Explains why a machine has no namespaces for programs, and what helps, from kernel settings and mounts.

`attempts` tests whether namespaces work. This module only explains the result to a person.
"""

import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

from licet.sandbox.launcher_script import by_launcher
from licet.sandbox.limits import PROBE_SECONDS
from licet.sandbox.programs.supervisor_client import libraries, own_interpreter, scratch_places

if TYPE_CHECKING:
    from licet.core.policy.layer import Level

# The namespaces that programs get: the file in /proc/self/ns, the limit in /proc/sys/user, and the kernel's option.
_KINDS = {
    "user": ("max_user_namespaces", "CONFIG_USER_NS"),
    "mnt": ("max_mnt_namespaces", "CONFIG_NAMESPACES"),
    "pid": ("max_pid_namespaces", "CONFIG_PID_NS"),
    "net": ("max_net_namespaces", "CONFIG_NET_NS"),
    "ipc": ("max_ipc_namespaces", "CONFIG_IPC_NS"),
    "uts": ("max_uts_namespaces", "CONFIG_UTS_NS"),
    "cgroup": ("max_cgroup_namespaces", "CONFIG_CGROUPS"),
}
_ENOUGH = 15000
_KEEP = "and put it in a file in `/etc/sysctl.d` to keep it"


class Machine(Struct, frozen=True):
    """A machine: user id, settings by name, kinds of namespaces, mount points, and whether a seccomp filter is set."""

    user: int
    settings: Mapping[str, str]
    kinds: frozenset[str]
    mounts: tuple[str, ...]  # mount points; empty if they cannot be read
    filtered: bool  # by a seccomp filter of another sandbox

    @classmethod
    def here(cls, proc: str = "/proc") -> "Machine":
        """This machine, as far as /proc tells."""
        names = ["kernel.apparmor_restrict_unprivileged_userns", "kernel.unprivileged_userns_clone"]
        names += [f"user.{limit}" for limit, _ in _KINDS.values()]
        settings = {name: _text(os.path.join(proc, "sys", *name.split("."))).strip() for name in names}
        kinds = frozenset(kind for kind in _KINDS if os.path.exists(os.path.join(proc, "self", "ns", kind)))
        lines = _text(os.path.join(proc, "self", "mountinfo")).splitlines()
        mounts = tuple(words[4] for line in lines if len(words := line.split()) > 4)
        status = _text(os.path.join(proc, "self", "status"))
        return cls(os.getuid(), settings, kinds, mounts, bool(re.search(r"^Seccomp:\s*[12]$", status, re.MULTILINE)))


def _text(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read(1 << 20)
    except OSError:
        return ""


Lines = Iterable[str]


def _unreadable(machine: Machine) -> Lines:
    if not machine.kinds and not machine.mounts:
        yield "/proc cannot be read here, and so nothing is known of namespaces: mount it, or do not hide it"


def _not_in_the_kernel(machine: Machine) -> Lines:
    for kind, (_, option) in _KINDS.items():
        if machine.kinds and kind not in machine.kinds:
            yield f"this kernel has no {kind} namespaces: use one that is built with {option}"


def _limits(machine: Machine) -> Lines:
    for kind, (limit, _) in _KINDS.items():
        if machine.settings.get(f"user.{limit}") == "0":
            setting = f"user.{limit}"
            yield f"{kind} namespaces are limited to none (`{setting}` is 0): run `sysctl {setting}={_ENOUGH}`, {_KEEP}"


def _distributions(machine: Machine) -> Lines:
    """Restrictions of distributions for users other than root."""
    if machine.user == 0:
        return
    setting = "kernel.unprivileged_userns_clone"
    if machine.settings.get(setting) == "0":
        yield (
            f"ordinary users may make no user namespaces (`{setting}` is 0, as on older Debian): run "
            f"`sudo licet doctor --fix`, or `sysctl {setting}=1`, {_KEEP}"
        )
    setting = "kernel.apparmor_restrict_unprivileged_userns"
    if machine.settings.get(setting) == "1":
        yield (
            f"AppArmor takes all rights from user namespaces of ordinary users (`{setting}` is 1, as on Ubuntu from "
            "23.10 on): run `sudo licet doctor --fix`, which gives licet's launcher an AppArmor profile with `userns,`"
        )


def _root_directory(machine: Machine) -> Lines:
    if machine.mounts and "/" not in machine.mounts:
        yield (
            "this process is in a chroot, where the kernel makes no user namespaces: enter the root with `pivot_root`, "
            "as containers do, instead of `chroot`"
        )


def _filter(machine: Machine) -> Lines:
    if machine.filtered:
        yield (
            "a seccomp filter is around this process, as in a container, and may refuse what namespaces take: allow "
            "`unshare`, `mount`, `umount2`, `pivot_root`, `open_tree`, `move_mount` and `mount_setattr` in the profile "
            "of the container (Docker and Podman: `--security-opt seccomp=PROFILE.json`); supervised calls take "
            "`pidfd_getfd` alone (Docker: `--cap-add SYS_PTRACE`)"
        )


def _covered(machine: Machine) -> Lines:
    covered = [mount for mount in machine.mounts if mount.startswith("/proc/")]
    if covered:
        named = ", ".join(covered[:3]) + (" …" if covered[3:] else "")
        yield (
            f"parts of /proc are covered here ({named}), and so the kernel "
            "gives no namespace a /proc of its own: start the container with all of it (Docker and Podman: "
            "`--security-opt systempaths=unconfined` or `unmask=ALL`; Kubernetes: `procMount: Unmasked`)"
        )


_CHECKS: tuple[Callable[[Machine], Lines], ...] = (
    _unreadable, _not_in_the_kernel, _limits, _distributions, _root_directory, _filter, _covered,
)  # fmt: skip

# Errors of the kernel that no setting explains.
_ANSWERS = (
    ("No space left on device", "there are as many namespaces as this user may have: raise `user.max_*_namespaces`"),
    ("Function not implemented", "a call is missing: programs in a private root need Linux 5.12 or newer"),
)
_NO_SETTING = (
    "no setting explains it: another sandbox (Landlock, SELinux) is around this process; run licet "
    "outside of it, or allow `unshare`, `mount` and `pivot_root` there"
)


def causes(machine: Machine, outcomes: Iterable[str]) -> tuple[str, ...]:
    """Why namespaces do not work, and what helps, one line each; `outcomes` are the results of the attempts."""
    found = tuple(line for check in _CHECKS for line in check(machine))
    if found:
        return found
    said = " ".join(outcomes)
    return (next((text for answer, text in _ANSWERS if answer in said), _NO_SETTING),)


_HOLDS, _ALREADY = "holds", "holds already"  # `holds already`: another sandbox around this process stops it
WORKER_WALLS: Final = ("landlock", "seccomp", "hardening")
# The walls of a level; all of them must hold. Programs also get namespaces if the machine has them.
_OF_LEVEL: Final[dict["Level", tuple[str, ...]]] = {"restricted": WORKER_WALLS, "isolated": WORKER_WALLS, "native": ()}
NAMESPACES: Final = ("namespaces", "private root")
SUPERVISED: Final = "supervised calls"  # as `execution` has it: where there are no namespaces, these take their place
SOCKETS: Final = "unix sockets"  # where this does not hold, programs have none
ENTRIES: Final = "limit of entries"  # where this does not hold, what a tool makes in directories itself is not counted
WALLS: Final = (*WORKER_WALLS, *NAMESPACES, SUPERVISED, SOCKETS, ENTRIES)


class Attempted(Struct, frozen=True):
    """One attempt: the wall, what was tried, and the outcome."""

    wall: str
    about: str
    outcome: str

    @property
    def holds(self) -> bool:
        """Whether it was stopped: by the wall, or by another sandbox around this process."""
        return self.outcome in (_HOLDS, _ALREADY)


class Support(Struct, frozen=True):
    """The walls that hold on this machine. `landlock` is its version or 0; `trouble` says why nothing was tried."""

    landlock: int
    findings: tuple[Attempted, ...]
    trouble: str = ""

    def wall_holds(self, wall: str) -> bool:
        """Whether every attempt on a wall was stopped, at least one of them by the wall itself."""
        found = [finding for finding in self.findings if finding.wall == wall]
        return any(finding.outcome == _HOLDS for finding in found) and all(finding.holds for finding in found)

    @property
    def namespaces(self) -> bool:
        """Whether programs get namespaces and a private root."""
        return all(map(self.wall_holds, NAMESPACES))

    @property
    def supervised(self) -> bool:
        """Whether programs, which get no namespaces, have a supervisor that makes their calls instead."""
        return not self.namespaces and self.wall_holds(SUPERVISED)

    def keeps(self, level: "Level") -> bool:
        """Whether all walls of a level hold."""
        return all(map(self.wall_holds, _OF_LEVEL[level]))

    def layers(self, level: "Level", without: tuple[str, ...] = ()) -> tuple[str, ...]:
        """The walls of a level as a receipt names them."""
        walls = (wall for wall in _OF_LEVEL[level] if wall not in without)
        return tuple(f"landlock-{self.landlock}" if wall == "landlock" else wall for wall in walls)

    def uncounted(self, level: "Level") -> tuple[str, ...]:
        """The limit that a level lacks here, if it does: tools then run without it, and receipts say so."""
        return (ENTRIES,) if level == "isolated" and not self.wall_holds(ENTRIES) else ()

    def walls_in_spec(self, without: tuple[str, ...] = ()) -> dict[str, object]:
        """The part of a worker's specification that says which walls it builds."""
        return {"landlock": self.landlock, "walls": [wall for wall in WORKER_WALLS if wall not in without]}

    def missing(self, level: "Level") -> tuple[str, ...]:
        """Why a level is not supported, one line each."""
        walls = [wall for wall in _OF_LEVEL[level] if not self.wall_holds(wall)]
        if self.trouble and walls:
            return (self.trouble,)
        return tuple(line for wall in walls for line in self.faults(wall))

    def faults(self, wall: str) -> Iterator[str]:
        """How a wall fails, one line for each reason."""
        if self.trouble:
            yield f"{wall}: {self.trouble}"
            return
        reasons: dict[str, str] = {}
        for finding in self.findings:
            if finding.wall == wall and not finding.holds:
                reasons.setdefault(finding.outcome, finding.about)
        for outcome, about in reasons.items():
            yield f"{wall}: {outcome} (tried to {about})"
        if not reasons and not self.wall_holds(wall):
            yield f"{wall}: nothing was tried that only this wall stops"

    def without_namespaces(self, machine: Machine | None = None) -> tuple[str, ...]:
        """Why programs get no namespaces: the failed attempts, the causes, and what helps; empty if they get them."""
        if self.namespaces:
            return ()
        faults = tuple(line for wall in NAMESPACES if not self.wall_holds(wall) for line in self.faults(wall))
        if sys.platform != "linux":
            return (*faults, help_with("namespaces"))
        return (*faults, *causes(Machine.here() if machine is None else machine, faults))

    def advice(self, level: "Level") -> tuple[str, ...]:
        """How to get the missing walls of a level, one line each."""
        if self.trouble and sys.platform == "linux":  # walls that were not tried may hold
            return ()
        return tuple(dict.fromkeys(help_with(wall) for wall in _OF_LEVEL[level] if not self.wall_holds(wall)))

    def require(self, level: "Level") -> None:
        """Raise `SandboxUnavailable` if a level is not supported, with what is missing and how to get it."""
        if missing := self.missing(level):
            from licet.guard.execution import SandboxUnavailable

            text = "; ".join((*missing, *self.advice(level)))
            raise SandboxUnavailable(f"`{level}` cannot be kept here: {text}")


def help_with(wall: str) -> str:
    """How to get a wall."""
    if sys.platform != "linux":
        return "walls need Linux; on this system only `native` runs"
    if wall == "landlock":
        return (
            "Landlock needs Linux 5.13 or newer, `landlock` in the boot parameter `lsm=`, and in a container a seccomp "
            "profile that allows the landlock_* calls"
        )
    if wall == "seccomp":
        return "seccomp needs a kernel with CONFIG_SECCOMP_FILTER, on x86_64 or aarch64"
    if wall == "hardening":
        return "see which attempt failed: limits and capabilities are part of every kernel"
    if wall == ENTRIES:
        return (
            "counting what tools make in directories takes Linux 5.5 or newer, and no other sandbox around licet that "
            "is told of system calls, as `licet run` is"
        )
    return "in a container, allow unshare, mount and pivot_root in its seccomp profile, and do not mask /proc"


_lock = threading.Lock()
_known: tuple[int, Support] | None = None
_under_way: tuple[int, Callable[[], bytes]] | None = None


def expect(answer: Callable[[], bytes]) -> None:
    """Use the results of attempts that are under way in another process, instead of making them here."""
    global _under_way
    _under_way = (os.getpid(), answer)


def support() -> Support:
    """The walls that hold on this machine, tested once in each process."""
    global _known
    with _lock:
        if _known is None or _known[0] != os.getpid():
            _known = (os.getpid(), _expected() or look())
        return _known[1]


def _fresh_lock() -> None:
    """Replace the lock in a fork: the thread that held it does not exist there."""
    global _lock
    _lock = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_fresh_lock)


def _expected() -> Support | None:
    """The results of attempts that were under way; None if there were none, or they cannot be read."""
    if _under_way is None or _under_way[0] != os.getpid():
        return None
    try:
        return _read(_under_way[1]())
    except _UNREADABLE:
        return None


def look(*, namespaces: bool = True) -> Support:
    """Make the attempts now, in a new interpreter; without `namespaces` as on a machine that has none."""
    if sys.platform != "linux":
        return Support(0, (), "this system is not Linux")
    try:
        # The attempts have their scratch where walled calls will have it.
        ended = subprocess.run(  # noqa: S603 - our own interpreter and our own text
            [
                *by_launcher(own_interpreter("from licet.sandbox.attempts import main; main()")),
                *(() if namespaces else ("without-namespaces",)),
            ],
            stdin=subprocess.DEVNULL, capture_output=True, timeout=PROBE_SECONDS, check=False,
            cwd="/", env={**libraries(), **scratch_places()},
        )  # fmt: skip
        return _read(ended.stdout) if ended.returncode == 0 else _untried(ended)
    except (*_UNREADABLE, subprocess.TimeoutExpired) as wrong:
        return Support(0, (), f"the attempts could not be made: {wrong}")


_UNREADABLE = (OSError, ValueError, KeyError, TypeError)


def _read(said: bytes) -> Support:
    document: dict[str, Any] = json.loads(said)
    findings = (Attempted(str(one["wall"]), str(one["about"]), str(one["outcome"])) for one in document["attempts"])
    return Support(int(document["landlock"]), tuple(findings))


def _untried(ended: subprocess.CompletedProcess[bytes]) -> Support:
    last = ended.stderr.decode(errors="replace").strip().rpartition("\n")[2]
    return Support(0, (), f"the attempts could not be made: {last or f'they ended with {ended.returncode}'}")
