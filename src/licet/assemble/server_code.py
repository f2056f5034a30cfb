"""The code of the servers of a policy: which paths it is started from, and whether it is still as it was locked.

Every gate closes these paths for every agent of the policy. If a grant to write lies inside one of them as a whole,
nothing of that grant would be left: then no gate starts, and `licet check` says which directory to move.
"""

import os
from collections.abc import Iterator, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from licet.assemble.servers import ServerError, expanded_code, packages_directory, server_launch
from licet.backends.packages import LaunchError, PackageError
from licet.backends.packages.code_files import code_difference, code_digests
from licet.backends.packages.started_from import Interpreters, StartedFrom, started_from
from licet.core.algebra.scope import inside, visible
from licet.core.algebra.set import CapabilitySet
from licet.core.decision.request import Ground
from licet.core.decision.validate import Misfit, misfit_of
from licet.core.origin import Problem
from licet.core.policy.manifest import Manifest
from licet.core.policy.servers import Server, servers_of
from licet.guard.held_paths import held_paths
from licet.guard.import_path import ways

LockedCode = Mapping[str, Mapping[str, str]]  # directory as the policy has it -> file in it -> hash


# The files in `code` --------------------------------------------------------------------------------------------------


def code_now(server: Server, workdir: str, home: str) -> dict[str, dict[str, str]]:
    """What the lock should say about the files in `code`. Raises `ServerError`."""
    try:
        places = zip(server.code, expanded_code(server, workdir, home), strict=True)
        return {written: code_digests(place) for written, place in places}
    except PackageError as wrong:
        raise ServerError(f"the code of server `{server.name}` cannot be pinned: {wrong}") from None


def check_code(server: Server, locked: LockedCode, workdir: str, home: str) -> None:
    """Raise `ServerError` unless each file in `code` is as the lock has it."""
    now = code_now(server, workdir, home)
    for place in sorted(locked.keys() | now.keys()):
        if place not in now or place not in locked:
            what = f"`{visible(place)}` is {'not in the lock' if place in now else 'no code of it any more'}"
        elif difference := code_difference(locked[place], now[place]):
            what = f"{difference} in `{visible(place)}`"
        else:
            continue
        raise ServerError(
            f"the code of server `{server.name}` is not as it was locked: {what}; "
            "`licet lock --update` shows and accepts the difference"
        )


# What is closed -------------------------------------------------------------------------------------------------------


def server_paths(manifest: Manifest, workdir: str, home: str) -> Iterator[tuple[Server, StartedFrom]]:
    """What each server is started from: those of this policy, and those of other agents in the same lock."""
    links: dict[str, bool] = {}
    known: Interpreters = {}
    for server in _servers(manifest):
        passed = {name: os.environ[name] for name in server.env if name in os.environ}
        try:
            launch = server_launch(server, workdir, home)
            found = started_from(launch, workdir, home, passed, _store(), known)
        except LaunchError:  # it is never started by this command; its code may get another one
            found = StartedFrom(expanded_code(server, workdir, home))
        every = (way for path in found.own for way in ways(path, links))
        yield server, replace(found, own=tuple(dict.fromkeys(every)))


def _servers(manifest: Manifest) -> Iterator[Server]:
    own = servers_of(manifest.servers)
    yield from (server for server in own.values() if server.command)
    for name, locked in (manifest.lock.servers if manifest.lock is not None else {}).items():
        if locked.command and (name not in own or own[name].command != locked.command):
            yield Server(name=name, command=locked.command, code=tuple(locked.code))


def _store() -> str:
    try:
        return str(packages_directory())
    except ServerError:  # no home directory: then no package is started either
        return ""


# Grants inside of it --------------------------------------------------------------------------------------------------


class Conflict(Struct, frozen=True):
    """A grant to write that lies as a whole inside what a server is started from."""

    server: str
    path: str
    granted: str

    @property
    def text(self) -> str:
        """What is wrong, for a person."""
        where = "there" if self.granted == self.path else f"to {visible(self.granted)} in it"
        return (
            f"the server `{self.server}` is started from {visible(self.path)}, and a grant lets tools write {where}: "
            "closing it would take the whole of that grant away"
        )

    @property
    def fix(self) -> str:
        """What to move."""
        if self.granted == self.path:
            own = visible(os.path.join(self.path, "server"))
            return f"move the server's files from {visible(self.path)} to a directory of their own, such as {own}"
        return f"move {visible(self.granted)} out of {visible(self.path)}, or the server's files elsewhere"


def conflicts(manifest: Manifest, workdir: str, home: str) -> Iterator[Conflict]:
    """Every grant of a policy that would be taken away as a whole: of an agent, or of a server's process."""
    started = list(server_paths(manifest, workdir, home))
    if not started:
        return
    ceiling = manifest.expand(workdir, home).ceiling
    sets = [ceiling]
    sets += [CapabilitySet(one.grants).expand(workdir, home) for one in servers_of(manifest.servers).values()]
    granted = dict.fromkeys(way for one in sets for path in held_paths(one).allowed("write") for way in ways(path))
    for server, found in started:
        yield from _inside(server.name, found.own, tuple(granted))


def _inside(server: str, closed: Sequence[str], granted: Sequence[str]) -> Iterator[Conflict]:
    for path in granted:
        around = [one for one in closed if inside(path, (one,))]
        if around:
            yield Conflict(server, min(around, key=len), path)


def conflict_problems(manifest: Manifest, workdir: str, home: str) -> Iterator[Problem]:
    """The same for `licet check`."""
    for one in conflicts(manifest, workdir, home):
        place = manifest.places.get(f"servers.{one.server}", manifest.origin)
        yield Problem(place, f"that {one.text}", "code that no grant covers as a whole", one.fix)


def conflict_misfits(manifest: Manifest, workdir: str, home: str) -> list[Misfit]:
    """The same for a gate, which then does not start."""
    return [
        misfit_of(
            f"server {one.server}", Ground("PATH_NOT_REACHABLE", one.text, None, one.fix, f"fs:write:{one.granted}")
        )
        for one in conflicts(manifest, workdir, home)
    ]
