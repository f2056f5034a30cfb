"""What `licet.lock` should say about a policy, as far as files tell: manifests, tools, and the commands of servers.

Nothing is imported or started here. `mcp/server_definitions.py` starts servers and takes their definitions, with the
ceiling and the backends that this module makes for it.
"""

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from urllib.parse import quote

from msgspec import Struct
from msgspec.structs import replace

from licet.assemble.backend_parts import secrets_from
from licet.assemble.gate import Backends
from licet.assemble.never_writable import closed_to_grants
from licet.assemble.program import RunsPrograms
from licet.assemble.review import Places, declared, straight
from licet.assemble.server_process import LockedCode, ServerError, code_now, packages_directory, server_launch
from licet.backends.http import HttpClient
from licet.core.policy.layer import Layer, Rule
from licet.core.policy.lock import (
    FORMAT,
    BadLock,
    Lock,
    LockedDistribution,
    LockedServer,
    LockedTool,
    NamedPlaces,
    with_other_platforms,
)
from licet.core.policy.lock_changes import lock_changes
from licet.core.policy.manifest import Manifest, command_text
from licet.core.policy.servers import Server, servers_of, tool_parts
from licet.core.policy.terms import MaxEffect
from licet.core.policy.tool import ToolSpec
from licet.core.values import Origin, Problem
from licet.guard.held_paths import kept_private, protection_layer
from licet.own_files import is_there
from licet.packages.distributions import ToolDistributions
from licet.packages.locked_tools import UnreadableSource, locked_tools
from licet.packages.server_packages import LaunchError, disagreement
from licet.policy_files.load import read_policy
from licet.policy_files.manifest_reader import a_kind
from licet.policy_files.organisation import under_organisation
from licet.policy_files.policy_paths import LOCK_FILE, policy_root, shown_path
from licet.policy_files.trust import load_lock
from licet.sandbox.programs.runner import LocalProcesses
from licet.sandbox.programs.walls import ProgramWalls


class LockedPolicy(Struct, frozen=True):
    """What a lock should say about some manifests in one directory, and the servers that they name."""

    lock: Lock  # without definitions of servers
    servers: Mapping[str, Server]
    origins: Mapping[str, Origin]  # of the servers
    manifests: Mapping[str, Manifest]  # by file name
    problems: tuple[Problem, ...]
    unlockable: tuple[Problem, ...] = ()  # those of `problems` that only a lock has


def lock_place(policy: Path) -> Path:
    """The path of the lock of a policy: next to the file itself, also if it was named through a link."""
    return Path(os.path.realpath(policy)).with_name(LOCK_FILE)


def existing_lock(place: Path) -> Lock | None:
    """The lock at a path; None if there is none. Raises `BadLock` if it cannot be used."""
    return load_lock(place) if is_there(place) else None


def locked_policy(files: Sequence[Path]) -> LockedPolicy:
    """What a lock should say about manifests, which lie in one directory."""
    digests: dict[str, str] = {}
    tools: dict[str, LockedTool] = {}
    servers: dict[str, Server] = {}
    origins: dict[str, Origin] = {}
    manifests: dict[str, Manifest] = {}
    problems: list[Problem] = []
    unlockable: list[Problem] = []
    distributions: dict[str, LockedDistribution] = {}
    for file in files:
        manifest, wrong = _manifest(file)
        problems += wrong
        if manifest is None:
            continue
        name = os.path.basename(os.path.realpath(file))
        digests[name], manifests[name] = manifest.digest, manifest
        try:
            found = locked_tools(manifest, _own_specs(manifest))
        except UnreadableSource as unreadable:
            unlockable.append(Problem(manifest.origin, str(unreadable), "source that can be read"))
            continue
        installed = ToolDistributions(manifest, found)
        unlockable += installed.problems
        distributions |= installed.locked()
        problems += _twice("tool", tools, found, manifest)
        tools |= found
        named = servers_of(manifest.servers)
        problems += _twice("server", servers, named, manifest)
        servers |= named
        origins |= {one: manifest.places.get(f"servers.{one}", manifest.origin) for one in named}
    listed = {name: LockedServer(command=server.command, url=server.url) for name, server in servers.items()}
    versions = {name: one.version for name, one in manifests.items() if one.version}
    lock = Lock(
        format=FORMAT, manifests=digests, versions=versions, tools=tools, distributions=distributions, servers=listed
    )
    problems += unlockable
    return LockedPolicy(lock, servers, origins, manifests, tuple(dict.fromkeys(problems)), tuple(unlockable))


def _manifest(file: Path) -> tuple[Manifest | None, list[Problem]]:
    """A manifest with the declarations of its tools from source, and the errors in it."""
    policy = read_policy(file)
    problems = [problem for problem in policy.problems if problem.severity == "error"]
    if policy.manifest is None:
        if not problems:
            expected = "the manifest of an agent"
            hint = f"name the manifests that use it; the {policy.kind} next to them is found"
            problems = [Problem(Origin(str(file), 1, 1), a_kind(policy.kind), expected, hint)]
        return None, problems
    manifest, wrong = declared(policy.manifest)
    return (None if wrong else manifest), problems + wrong


def _own_specs(manifest: Manifest) -> list[ToolSpec]:
    """The tools that the workspace declares. Those of servers are below their servers."""
    return [spec for name, spec in manifest.tools.items() if tool_parts(name, manifest.servers) is None]


def _twice(
    kind: str, known: Mapping[str, object], found: Mapping[str, object], manifest: Manifest
) -> Iterable[Problem]:
    for name in sorted(known.keys() & found.keys()):
        if known[name] != found[name]:
            text = f"the {kind} `{name}`, which another manifest next to it declares differently"
            hint = "give it another name, or put one of the manifests into another directory"
            yield Problem(manifest.origin, text, f"one {kind} of a name for one lock", hint)


# Comparing ------------------------------------------------------------------------------------------------------------


def lock_problems(file: Path, places: Places | None = None) -> list[Problem]:
    """Everything in which the lock next to a policy differs from the files now. No server is started."""
    places = places or Places.here(policy_root(file))
    place = lock_place(file)
    origin = Origin(shown_path(place), 1, 1)
    try:
        lock = existing_lock(place)
    except BadLock as wrong:
        return [Problem(origin, str(wrong), "a lock", "`licet lock --update` writes it again")]
    if lock is None:
        return [Problem(Origin(str(file), 1, 1), f"no {LOCK_FILE} next to it", "a lock", f"run `licet lock {file}`")]
    name = os.path.basename(os.path.realpath(file))
    others = [Path(os.path.dirname(file), other) for other in lock.manifests if other != name]
    now = locked_policy([file, *filter(is_there, others)])
    if now.problems:  # those in `file` itself are reported when it is loaded
        return [one for one in now.problems if one in now.unlockable or one.origin.file != str(file)]
    try:
        code = {name: code_now(server, places.workdir, places.home) for name, server in now.servers.items()}
    except ServerError as wrong:
        return [Problem(origin, f"a difference: {wrong}", "the files that were locked")]
    changes = lock_changes(lock, with_definitions(now.lock, lock, code))
    hint = "review it, then take it with `licet lock --update`"
    found = [
        Problem(origin, f"a difference: {one}", "the policy and the sources of today", hint) for one in _joined(changes)
    ]
    return found + [
        Problem(origin, f"the server `{name}`, of which {differs}", "what the command starts", "run `licet lock`")
        for name, server in now.servers.items()
        if name in lock.servers and (differs := _disagreement(server, lock.servers[name], places))
    ]


def _joined(changes: Iterable[str]) -> list[str]:
    """Each difference in one line, with the indented lines that belong to it."""
    found: list[str] = []
    for line in changes:
        if line.startswith(" ") and found:
            found[-1] += f" {line.strip()}"
        else:
            found.append(line)
    return found


def _disagreement(server: Server, locked: LockedServer, places: Places) -> str:
    """In which words the command of a server and the lock differ about what is started; empty if they agree."""
    if server.url:
        return ""
    if locked.resolved is None:
        return f"the command says {command_text(server.command)}, and licet.lock says nothing"
    try:
        return disagreement(server_launch(server, places.workdir, places.home), locked.resolved)
    except LaunchError as wrong:
        return f"the command cannot be started: {wrong}"


def with_definitions(now: Lock, locked: Lock, code: Mapping[str, LockedCode]) -> Lock:
    """What a lock should say now, with the definitions that servers had when they were locked, and their `code`."""
    servers = {
        name: replace(locked.servers[name], command=server.command, url=server.url, code=code.get(name, {}))
        if name in locked.servers
        else server
        for name, server in now.servers.items()
    }
    return with_other_platforms(replace(now, servers=servers), locked)


# Starting servers -----------------------------------------------------------------------------------------------------


def ceiling_of_grants(
    server: Server,
    origin: Origin,
    workdir: str,
    home: str,
    *,
    kept: tuple[str, ...] = (),
    private: tuple[str, ...] = (),
    degraded: bool = False,
) -> Manifest:
    """A manifest that allows what one server is granted, to read: its definitions do not depend on an agent.

    Paths in `kept` stay private, such as a file of secrets. `private` are addresses that are not public, at which a
    remote server may be.
    """
    rules = tuple(Rule(rule, origin, f"servers.{server.name}.grants") for rule in server.holds.allow)
    layer = Layer("manifest", f"the grants of server `{server.name}`", origin, rules, (), frozenset({"connector"}))
    manifest = Manifest(
        agent="licet-lock",
        origin=origin,
        layers=(layer,),
        max_effects=(MaxEffect("read_only", origin, True),),
        private=(private,),
        allow_degraded=degraded,
        places={f"servers.{server.name}": origin},
    )
    closed = closed_to_grants(under_organisation(manifest).expand(workdir, home), workdir)
    return replace(closed, layers=(*closed.layers, protection_layer(kept_private(kept), origin)))


def lock_backends(secrets_file: Path | None) -> Backends:
    """Backends that start servers behind walls, and record nothing: no call is made."""
    http = HttpClient()
    sources = [os.environ] if secrets_file is None else [secrets_file, os.environ]
    secrets, files = secrets_from(sources)
    return Backends(
        http=http,
        processes=LocalProcesses(),
        sandbox=RunsPrograms(ProgramWalls(http)),
        secrets=secrets,
        environ=os.environ,
        state=tuple(dict.fromkeys(str(way) for file in files for way in (straight(file), file.resolve()))),
    )


def machine_places(workdir: str, home: str) -> NamedPlaces:
    """The directories of this machine that a lock writes by name, as they are spelled in paths and in URIs."""
    named = {"${workdir}": workdir, "~": home, "${packages}": str(packages_directory())}
    both = {name: (place, os.path.realpath(place)) for name, place in named.items() if place}
    return {name: tuple(dict.fromkeys((*ways, *map(quote, ways)))) for name, ways in both.items()}
