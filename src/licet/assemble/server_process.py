"""The process of an MCP server: what it may touch, how it is started, and which secrets it was given.

Its walls are made of `servers.NAME.grants` and the ceiling of the manifest. They are the walls of a whole process:
inside them, only `needs` and rules on arguments tell one tool of the server from another.

The code of the servers of a policy: which paths it is started from, and whether it is still as it was locked.

Every gate closes these paths for every agent of the policy. If a grant to write lies inside one of them as a whole,
nothing of that grant would be left: then no gate starts, and `licet check` says which directory to move.
"""

import os
from base64 import b64decode
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from licet.assemble.limits import OUTPUT_BYTES, RUN_SECONDS, SHORTEST_LINE
from licet.core.algebra.rules import Use
from licet.core.algebra.scope import inside, visible
from licet.core.algebra.set import CapabilitySet
from licet.core.decision.foreseen import process_name
from licet.core.decision.reach import Reach
from licet.core.decision.request import Approval, Ground, Request
from licet.core.decision.validate import Misfit, misfit_of
from licet.core.policy.lock import Resolved
from licet.core.policy.manifest import Manifest
from licet.core.policy.servers import Server, servers_of
from licet.core.values import Problem
from licet.errors import LicetError
from licet.guard.execution import Command, Layers, Running, SandboxUnavailable, Streams, give_secrets
from licet.guard.grant import Grant
from licet.guard.handles.messages import BadRequest, checked_value
from licet.guard.handles.secrets_and_kv import getter
from licet.guard.held_paths import held_paths
from licet.guard.import_path import ways
from licet.guard.ports import Ports, Unavailable
from licet.guard.process_record import recorded_process
from licet.guard.redaction.redact import Redactor
from licet.packages.server_packages import (
    Installed,
    Launch,
    LaunchError,
    PackageError,
    check_agreement,
    in_thread,
    install,
    installed,
    launch_of,
)
from licet.packages.started_from import Interpreters, StartedFrom, code_difference, code_digests, started_from
from licet.policy_files.policy_paths import data_root

FETCH_SECONDS = 300.0  # for what a lock pins to come from its registry


class ServerError(LicetError):
    """A server that cannot be started. The text has the reason and the fix."""


class ServerPlan(Struct, frozen=True):
    """All that is known about a server's process before it is started."""

    server: Server
    reach: Reach
    program: Installed
    command: tuple[str, ...]  # with real directories


def packages_directory() -> Path:
    """The package store of this user."""
    root = data_root()
    if not root:
        raise ServerError("this user has no home directory to install servers in: set XDG_DATA_HOME")
    return Path(root, "packages")


def expanded_command(server: Server, workdir: str, home: str) -> tuple[str, ...]:
    """The command with `${workdir}` and a leading `~/` replaced by real directories."""
    return _expanded(server.command, workdir, home)


def expanded_code(server: Server, workdir: str, home: str) -> tuple[str, ...]:
    """The directories of `code`, with real directories."""
    return _expanded(server.code, workdir, home)


def _expanded(words: Iterable[str], workdir: str, home: str) -> tuple[str, ...]:
    there = (word.replace("${workdir}", workdir) for word in words)
    return tuple(home + word[1:] if home and word.startswith("~/") else word for word in there)


def server_launch(server: Server, workdir: str, home: str) -> Launch:
    """What a server's command asks for, with its `code`. Raises `LaunchError`."""
    launch = launch_of(expanded_command(server, workdir, home))
    if server.code and launch.kind != "file":
        raise LaunchError("`code` is for a command that starts a file: a package is pinned as a whole")
    return replace(launch, code=expanded_code(server, workdir, home))


async def locked_program(server: Server, resolved: Resolved, workdir: str, home: str) -> Installed:
    """How to start what the lock pins. A package that this machine does not have yet is fetched and installed.

    Nothing is chosen: a lock that does not pin it for this platform raises `ServerError`, and so does a registry that
    takes too long.
    """
    return await in_thread(FETCH_SECONDS, lambda: _locked_program(server, resolved, workdir, home))


def _locked_program(server: Server, resolved: Resolved, workdir: str, home: str) -> Installed:
    store = packages_directory()
    try:
        launch = server_launch(server, workdir, home)
        if launch.kind == "docker" and server.kind == "native":
            check_agreement(launch, resolved)
            return Installed(expanded_command(server, workdir, home), ())
        found = installed(resolved, store, launch=launch, directory=Path(workdir))
        if found is None:
            install(launch, resolved, store, progress=lambda _: None, directory=Path(workdir))
            found = installed(resolved, store, launch=launch, directory=Path(workdir))
    except (LaunchError, PackageError) as wrong:
        raise ServerError(f"the server `{server.name}` cannot be started: {wrong}") from None
    if found is None:
        raise ServerError(f"the server `{server.name}` is not installed: run `licet lock`")
    return replace(found, argv=(*found.argv, *launch.arguments))


class PlacedSecrets(Struct, frozen=True):
    """The environment of a server's process, and a redactor of the secrets in it."""

    environment: Mapping[str, str]
    redactor: Redactor


async def placed_secrets(server: Server, reach: Reach, ports: Ports) -> PlacedSecrets:
    """The variables that a server gets: those listed under `env`, and those set to secrets."""
    redactor, environment = Redactor(), {}
    for name in server.env:
        if reach.grant.has(Use(f"env:read:{name}")) and name in (ports.environ or {}):
            environment[name] = (ports.environ or {})[name]
    for name, reference in server.secrets.items():
        environment[name] = await secret(server, reach, ports, reference, redactor)
    return PlacedSecrets(environment, redactor)


async def secret(server: Server, reach: Reach, ports: Ports, reference: str, redactor: Redactor) -> str:
    """The value of a secret that a server may have; it is redacted from everything that the server sends."""
    if not reach.grant.has(Use(f"secret:read:{reference}")):
        raise ServerError(f"the server `{server.name}` may not have the secret `{reference}` under this manifest")
    try:
        value = None if ports.secrets is None else await getter(ports.secrets)(reference)
    except Unavailable as wrong:
        raise ServerError(f"the secret `{reference}` of server `{server.name}` cannot be read: {wrong}") from None
    if value is None:
        fix = f"write `{reference}=…` into a file that only you can read, and name it with `--secrets FILE`"
        raise ServerError(f"the secret `{reference}` of server `{server.name}` is not known here: {fix}")
    redactor.add(reference, value)
    for line in value.splitlines():  # a server may log it line by line
        if len(line.strip()) >= SHORTEST_LINE:
            redactor.add(reference, line.strip())
    return value


async def header_secrets(server: Server, reach: Reach, ports: Ports) -> tuple[tuple[tuple[str, str], ...], Redactor]:
    """The headers that a remote server gets, and a redactor of the secrets in them."""
    redactor, headers = Redactor(), []
    for name, reference in server.headers.items():
        value = await secret(server, reach, ports, reference, redactor)
        try:
            headers.append((name, checked_value(name, value)))
        except BadRequest as wrong:
            raise ServerError(f"the secret `{reference}` of server `{server.name}` cannot be sent: {wrong}") from None
        # A server may repeat `Bearer TOKEN` without its first word, and `Basic` encodes a name and a password.
        scheme, _, token = headers[-1][1].partition(" ")
        redactor.add(reference, token.strip())
        if scheme.lower() == "basic":
            with suppress(ValueError):
                redactor.add(reference, b64decode(token).decode().partition(":")[2])
    return tuple(headers), redactor


def server_grant(server: Server, reach: Reach) -> Grant:
    """The grant that a server holds as long as it runs, or is connected to."""
    grant = Grant(Request(process_name(server)), reach, reach.manifest.digest, (), _nobody_is_asked)
    grant.outlives_calls = True
    return grant


async def _nobody_is_asked(approval: Approval, use: Use) -> None:
    raise RuntimeError("a server's process asks nobody")


@asynccontextmanager
async def started(
    plan: ServerPlan, ports: Ports, secrets: PlacedSecrets, workdir: str, grant: Grant | None = None
) -> AsyncIterator[Running]:
    """The running process of a server, with pipes for its three streams. It ends with the context.

    `grant` is one of `server_grant`, for a caller that wants to know what the walls refused.
    """
    server, reach, program = plan.server, plan.reach, plan.program
    grant = grant or server_grant(server, reach)
    if server.stand_ins and server.kind == "native":
        raise ServerError(f"the server `{server.name}` runs without walls, where no key can be kept from it")
    if ports.processes is None or ports.sandbox is None:
        raise ServerError("servers need backends that run programs: use `Backends.local()`")
    binary = ports.processes.find(program.argv[0])
    if binary is None:
        raise ServerError(f"the program of server `{server.name}` is not there: {os.path.basename(program.argv[0])}")
    environment = {**program.environment, **secrets.environment}
    directory = workdir if server.kind == "native" else _start_directory(reach.grant, workdir)
    command = Command(
        binary, program.argv, environment, directory, b"", float(RUN_SECONDS), OUTPUT_BYTES, runtime=program.readable
    )
    walls = _NoWalls() if server.kind == "native" else ports.sandbox.walls(grant)
    streams = Streams(stdin=True, stdout=True, stderr=True)
    try:
        await give_secrets(walls, lambda reference: secret(server, reach, ports, reference, secrets.redactor))
        async with recorded_process(grant, ports), ports.processes.start(command, walls, streams) as running:
            yield running
    except (SandboxUnavailable, Unavailable) as wrong:
        place = wrong.place if isinstance(wrong, SandboxUnavailable) else None
        text = f"{wrong} ({place})" if place else str(wrong)
        raise ServerError(f"the server `{server.name}` cannot be started: {text}") from None


def _start_directory(grant: CapabilitySet, workdir: str) -> str:
    """Where a server starts: rules on arguments take a relative path as one from the working directory.

    Behind walls that directory is there if the server holds it, or something that exists in it.
    """
    inside = CapabilitySet((f"fs:*:{workdir}",)) & grant
    return workdir if any(os.path.exists(rule.scope) for rule in inside.allow) else "/"


class _NoWalls:
    """A native server has none."""

    @property
    def layers(self) -> Layers:
        return Layers()

    def around(self, command: Command) -> Command:
        return command


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
