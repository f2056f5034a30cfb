"""Explains why a machine has no namespaces for programs, and what helps, from kernel settings and mounts.

`attempts` tests whether namespaces work. This module only explains the result to a person.
"""

import os
import re
from collections.abc import Callable, Iterable, Mapping

from msgspec import Struct

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
            f"`sysctl {setting}=1`, {_KEEP}"
        )
    setting = "kernel.apparmor_restrict_unprivileged_userns"
    if machine.settings.get(setting) == "1":
        yield (
            f"AppArmor takes all rights from user namespaces of ordinary users (`{setting}` is 1, as on Ubuntu from "
            "23.10 on): give licet's interpreter an AppArmor profile with `userns,`, or run "
            f"`sysctl {setting}=0`, {_KEEP}"
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
            "of the container (Docker and Podman: `--security-opt seccomp=PROFILE.json`)"
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
