"""What gives the programs of ordinary users namespaces on this machine, and writes it where root may.

Ubuntu lets only programs with an AppArmor profile make user namespaces. A profile for the interpreter itself would open
them to every Python program of every user. So licet has a launcher of its own: a script that root owns, that one group
of users may start, and that a profile is attached to by its path. What this group starts through it may make
namespaces, and nothing else on the machine changes. Programs behind walls gain nothing: their filter refuses them.
"""

import os
import stat
import subprocess
from contextlib import suppress
from pathlib import Path

from msgspec import Struct

from licet.sandbox.launcher_script import LAUNCHERS, launcher_text
from licet.sandbox.probe import Machine

_PROFILE = "etc/apparmor.d/licet"
_SETTINGS = "etc/sysctl.d/60-licet-namespaces.conf"
_RESTRICTED = "kernel.apparmor_restrict_unprivileged_userns"
_CLONE = "kernel.unprivileged_userns_clone"
_ENOUGH = 15000
_PROFILE_TEXT = f"""# Written by `licet doctor --fix`: licet's launchers may make user namespaces.
abi <abi/4.0>,
include <tunables/global>

profile licet /{LAUNCHERS}/* flags=(unconfined) {{
  userns,
  include if exists <local/licet>
}}
"""


class Change(Struct, frozen=True):
    """A file with its content, mode and group."""

    path: str
    text: str
    mode: int = 0o644
    group: int = 0


class Remedy(Struct, frozen=True):
    """What has to be done: files that are written, and a command that makes them count; or only a hint."""

    hint: str
    changes: tuple[Change, ...] = ()
    command: tuple[str, ...] = ()

    def lines(self) -> list[str]:
        """All that `apply` does, for a person to read."""
        shown = []
        for change in self.changes:
            shown.append(f"writes {change.path} (mode {change.mode:o}, group {change.group}):")
            shown += [f"    {line}" for line in change.text.splitlines()]
        return [*shown, *([f"runs {' '.join(self.command)}"] if self.command else [])]


def remedy(machine: Machine, user: int, group: int, root: str = "/") -> Remedy | None:
    """What gives this user namespaces on a machine; None if no setting of it refuses them."""
    settings = {name: str(_ENOUGH) for name, value in machine.settings.items() if value == "0" and "max_" in name}
    if machine.settings.get(_CLONE) == "0":
        settings[_CLONE] = "1"
    if settings:
        text = "".join(f"{name} = {value}\n" for name, value in sorted(settings.items()))
        path = os.path.join(root, _SETTINGS)
        change = Change(path, f"# Written by `licet doctor --fix`: user namespaces for ordinary users.\n{text}")
        return Remedy("sudo licet doctor --fix", (change,), ("sysctl", "--quiet", "--load", path))
    if machine.settings.get(_RESTRICTED) == "1":
        profile = Change(os.path.join(root, _PROFILE), _PROFILE_TEXT)
        launcher = Change(os.path.join(root, LAUNCHERS, str(user)), launcher_text(), 0o750, group)
        return Remedy("sudo licet doctor --fix", (profile, launcher), ("apparmor_parser", "--replace", profile.path))
    marks = (".dockerenv", "run/.containerenv")
    if machine.filtered and any(os.path.exists(os.path.join(root, mark)) for mark in marks):
        return Remedy("in a container: start it with `--cap-add SYS_PTRACE`, which lets a supervisor make the calls")
    return None


def is_applied(remedy: Remedy) -> bool:
    """Whether all files of a remedy are as it would write them."""
    return bool(remedy.changes) and all(_is_written(change) for change in remedy.changes)


def apply(remedy: Remedy) -> None:
    """Write the files and run the command. Raises `OSError` and `subprocess.SubprocessError`."""
    for change in remedy.changes:
        if _is_written(change):
            continue
        directory = Path(change.path).parent
        directory.mkdir(mode=0o755, parents=True, exist_ok=True)
        new = f"{change.path}.new"
        with suppress(FileNotFoundError):
            os.unlink(new)
        with open(os.open(new, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_NOFOLLOW, 0o600), "w") as file:
            file.write(change.text)
            os.fchown(file.fileno(), os.geteuid(), change.group)
            os.fchmod(file.fileno(), change.mode)
        os.replace(new, change.path)
    if remedy.command:
        subprocess.run(remedy.command, check=True, stdin=subprocess.DEVNULL, timeout=60)  # noqa: S603 - of this module


def _is_written(change: Change) -> bool:
    try:
        about = os.lstat(change.path)
        with open(change.path, encoding="utf-8") as file:
            same = file.read() == change.text
    except (OSError, ValueError):
        return False
    return same and stat.S_IMODE(about.st_mode) == change.mode and about.st_gid == change.group
