"""The packages that MCP servers run from: installed once without running their code, pinned, and started offline.

`launch_of` reads a command, `resolve` installs and pins what it asks for, `install` installs what a lock pins, and
`installed` finds it again at each start, without a network. `install_missing` installs what is not there as it was, and
adds this platform to a lock. Whatever may ask a registry runs `in_thread`.
"""

from pathlib import Path

from licet.packages.clients import PackageChanged, PackageError, in_thread
from licet.packages.launchers import Launch, LaunchError, image_warning, launch_of
from licet.packages.npm import install_npm, installed_npm, npm_pins_here, resolve_npm
from licet.packages.package_store import Installed, Progress, Resolved
from licet.packages.programs import find_program, same_program
from licet.packages.pypi import (
    Disagrees,
    check_agreement,
    disagreement,
    install_pypi,
    installed_pypi,
    platform_tag,
    resolve_pypi,
)

__all__ = [
    "Disagrees",
    "Installed",
    "Launch",
    "LaunchError",
    "PackageError",
    "Resolved",
    "check_agreement",
    "disagreement",
    "image_warning",
    "in_thread",
    "install",
    "install_missing",
    "installed",
    "is_pinned_here",
    "launch_of",
    "resolve",
]

_NOT_IN_LOCK = (
    "`docker run` is for servers with `sandbox: native` alone: Docker starts the server, outside of every wall"
)


def resolve(launch: Launch, store: Path, *, progress: Progress, directory: Path | None = None) -> Resolved:
    """Pin what a command asks for, in the newest version that it allows; a package is installed.

    Paths in the command are relative to `directory`, or else to the current one. Raises `LaunchError` or
    `PackageError`.
    """
    match launch.kind:
        case "npm":
            return resolve_npm(launch, store, progress)
        case "pypi":
            return resolve_pypi(launch, store, progress)
        case "file":
            return find_program(launch, directory or Path.cwd()).resolved
        case "docker":
            raise LaunchError(f"{_NOT_IN_LOCK}; the lock then has the image as it is written")


def install(
    launch: Launch, resolved: Resolved, store: Path, *, progress: Progress, directory: Path | None = None
) -> Resolved:
    """Install exactly what a lock pins, and return it. No version is chosen.

    Used when the store lacks the package, or it was changed there. Raises `PackageError` if the registry does not have
    it, or the lock does not pin it for this platform.
    """
    check_agreement(launch, resolved)
    match launch.kind:
        case "npm":
            return install_npm(launch, resolved, store, progress)
        case "pypi":
            return install_pypi(launch, resolved, store, progress)
        case _:
            return resolve(launch, store, progress=progress, directory=directory)


def install_missing(
    launch: Launch, resolved: Resolved, store: Path, *, progress: Progress, directory: Path | None = None
) -> Resolved:
    """Install what a lock pins, if it is not in the store or was changed there; return what is pinned.

    A platform that the lock does not have yet is added, with the same versions: only `licet lock` does that.
    """
    try:
        if installed(resolved, store, launch=launch, directory=directory) is not None:
            return resolved
    except PackageChanged as changed:
        progress(str(changed))
    if launch.kind == "pypi" and platform_tag() not in resolved.integrity:
        check_agreement(launch, resolved)
        return resolve_pypi(launch, store, progress, like=resolved)
    return install(launch, resolved, store, progress=progress, directory=directory)


def installed(
    resolved: Resolved,
    store: Path,
    *,
    launch: Launch | None = None,
    directory: Path | None = None,
    verify: bool = False,
) -> Installed | None:
    """Return how to start what a lock pins; `None` if it is not in the store, and `licet lock` would install it.

    Nothing is asked of a network. `launch` is needed for files and distributions, because a lock has no paths; if it is
    given, what the lock says must agree with it. Raises `PackageError` if the package, the version or the file was
    changed. `verify` reads every file of a package, and not
    only its size and times.
    """
    if launch is not None:
        check_agreement(launch, resolved)
    match resolved.kind:
        case "npm":
            return installed_npm(resolved, store, verify=verify, launch=launch)
        case "pypi":
            return installed_pypi(resolved, store, verify=verify, launch=launch)
        case "file" | "distribution":
            if launch is None:
                raise TypeError("a file or a distribution is found by its command: pass `launch`")
            return same_program(resolved, launch, directory or Path.cwd())
        case "docker":
            raise PackageError(_NOT_IN_LOCK)


def is_pinned_here(resolved: Resolved) -> bool:
    """Whether a lock says what is to be installed on this platform. Only packages differ from platform to platform."""
    match resolved.kind:
        case "npm":
            return npm_pins_here(resolved)
        case "pypi":
            return platform_tag() in resolved.integrity
        case _:
            return True
