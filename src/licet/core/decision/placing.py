"""Which connections the proxy of one call or server looks into, and which keys it places there: `inspection_of`.

A key is only given to who holds it: `secret:read:REFERENCE`, or for a key in a file, reading that file. So a delegate
that has fewer rules has fewer keys, and everything else is the tighter of what manifest, personality, organisation and
bundles say.
"""

from collections.abc import Iterator

from licet.core.algebra.domains import TCP
from licet.core.algebra.rules import InvalidUse, Use, use_of_path
from licet.core.algebra.scope import TOP
from licet.core.algebra.set import CapabilitySet
from licet.core.decision.reach import Reach, reach_of
from licet.core.decision.request import REASON_OF_DOMAIN, Ground
from licet.core.policy.inspection import (
    AUTHORIZATION,
    NOTHING_INSPECTED,
    Inspection,
    StandIn,
    hosts_of,
    is_inspected,
    met_inspect,
    places_of,
)
from licet.core.policy.manifest import COMMANDS, Manifest
from licet.core.policy.servers import SERVER_PROCESS, Server, server_of, servers_of
from licet.core.policy.terms import inspection_under, stated_inspection
from licet.core.values import Origin, Problem


def inspection_of(reach: Reach) -> Inspection:
    """What is looked into and placed for the programs of one call, or for the process of a server."""
    manifest = reach.manifest
    server = _server_of(reach)
    if server is None and not manifest.values and not any(bundle.inspect for bundle in reach.bundles):
        return NOTHING_INSPECTED
    stated = inspection_under(stated_inspection(manifest), reach.bundles)
    if server is not None:  # its process has its own variables alone; it shares them with nothing else of the agent
        stated = Inspection(met_inspect(stated.inspect, server.inspect), server.stand_ins)
    placed = tuple(entry for entry in stated.stand_ins if _is_held(entry, reach.grant))
    return Inspection(stated.inspect, placed)


def _server_of(reach: Reach) -> Server | None:
    prefix, _, name = reach.spec.name.partition(" ")
    if prefix != SERVER_PROCESS or name not in reach.manifest.servers:  # no tool has a name with a space
        return None
    return server_of(name, reach.manifest.servers[name])


def _is_held(entry: StandIn, grant: CapabilitySet) -> bool:
    """Whether who gets a stand-in holds what it stands for."""
    if entry.secret:
        return grant.has(Use(f"secret:read:{entry.secret}"))
    try:
        return grant.has(use_of_path("read", entry.file))
    except InvalidUse:  # `~` or `${workdir}` is not filled in yet
        return False


def tunnel_grounds(use: Use, reach: Reach) -> Iterator[Ground]:
    """Why a program gets no plain connection to a place that is looked into, although a `tcp` rule names it."""
    if use.domain != "network" or use.action != "tcp" or use.port is None:
        return
    if not is_inspected(places_of(inspection_of(reach).inspect), use.target, use.port):
        return
    (host,) = hosts_of(places_of((f"{use.target}:{use.port}",)))
    text = f"{host} is under `inspect`: rules about requests decide there, and `tcp` is for upgrades such as WebSocket"
    ask = f"ask about a request, such as `GET https://{host}/`"
    place = _place_of_inspect(use, reach)
    yield Ground(REASON_OF_DOMAIN["network"], text, place, f"{ask}; or take it out of `inspect` in {place.file}")


def _place_of_inspect(use: Use, reach: Reach) -> Origin:
    """Where a place is named that is looked into."""
    manifest = reach.manifest
    for above in manifest.organisations:
        if is_inspected(places_of(above.inspect), use.target, use.port or 0):
            return above.place("inspect")
    for bundle in reach.bundles:
        if is_inspected(places_of(bundle.inspect), use.target, use.port or 0):
            return bundle.place("inspect")
    return manifest.places.get("inspect", manifest.origin)


def place_of_key(name: str, reach: Reach) -> Origin:
    """Where the entry of a key is written that is placed for the programs of a call, or the process of a server."""
    server = _server_of(reach)
    return _place_of_entry(name, reach.manifest, f"servers.{server.name}.secrets" if server else "stand_ins")


def _place_of_entry(name: str, manifest: Manifest, key: str = "stand_ins") -> Origin:
    return manifest.places.get(f"{key}.{name}", manifest.places.get(key, manifest.origin))


def placing_problems(manifest: Manifest, workdir: str, home: str) -> Iterator[Problem]:
    """Find keys that are in a variable, too, files that programs may not read or may see replaced, and wide tunnels."""
    written, manifest = manifest, manifest.expand(workdir, home)
    held, files = manifest.ceiling, {one.name: one.file for one in stated_inspection(written).stand_ins}
    yield from _tunnel_problems(manifest)
    for entry in stated_inspection(manifest).stand_ins:
        place = _place_of_entry(entry.name, manifest)
        if entry.secret and held.has(Use(f"env:read:{entry.name}")):
            found, expected = f"`{entry.name}` under `env`, too", "a variable that is only a stand-in"
            hint = f"tools read the real value of the variable: remove `{entry.name}` from `env`"
            yield Problem(place, found, expected, hint, "warning")
        if entry.file and not _is_held(entry, held):
            found, expected = f"`{files[entry.name]}`, which programs may not read", "a file that they read"
            hint = f"add `{files[entry.name]}` under `fs_reach.read`: they see a copy with the stand-in"
            yield Problem(place, found, expected, hint, "warning")
        if entry.file and _reaches_directory(entry.file, held):
            found, why, hint = reached_directory(entry.name, files[entry.name])
            yield Problem(place, found, why, hint)


def _reaches_directory(file: str, grant: CapabilitySet) -> bool:
    directory = file.rpartition("/")[0] or "/"
    try:
        return any(grant.has(use_of_path(action, directory)) for action in ("read", "write", "delete"))
    except InvalidUse:  # `~` or `${workdir}` is not filled in yet
        return False


def reached_directory(name: str, file: str) -> tuple[str, str, str]:
    """What is wrong where programs reach the directory of a file with a key, what is expected, and what to do.

    A copy covers a file, not its name: a log-in that replaces the file while a program runs would show it the new key.
    """
    found = f"`{file}` of the stand-in `{name}`, in a directory that programs reach"
    expected = (
        "a directory that no grant reaches, because a log-in during a run replaces the file and would show the key"
    )
    hint = (
        f"grant the file alone, as `read: [{file}]`; or, where programs need its directory, give them the key as a "
        f"variable, `VARIABLE: {{secret: REFERENCE, hosts: […]}}`"
    )
    return found, expected, hint


def _tunnel_problems(manifest: Manifest) -> Iterator[Problem]:
    """Warn about a rule that opens tunnels to every host at the port of one that is looked into."""
    places = places_of(stated_inspection(manifest).inspect)
    ports = {None, *(rule.port for rule in places.allow)} if places else set()
    for rule in manifest.ceiling.allow:
        if rule.domain == "network" and rule.key == TOP and rule.atoms & TCP and rule.port in ports:
            place = manifest.places.get("inspect", manifest.origin)
            found, expected = f"`{rule}` beside `inspect`", "tunnels to hosts that are named"
            hint = (
                "a program may reach a host under `inspect` by another name of it, and one that only a wildcard covers "
                "by its address too: name the hosts of tunnels"
            )
            yield Problem(place, found, expected, hint, "warning")


def handed_over(manifest: Manifest) -> Iterator[Problem]:
    """Notes about secrets that servers are given as they are, with the form that keeps them outside."""
    for server in servers_of(manifest.servers).values():
        for variable, reference in server.secrets.items() if server.kind == "isolated" else ():
            place = manifest.places.get(f"servers.{server.name}.secrets.{variable}", manifest.origin)
            found = f"`{variable}: {reference}` of the server `{server.name}`, which hands the value over"
            hint = f"write `{variable}: {{secret: {reference}, hosts: [HOST]}}` and `inspect: [HOST]` there"
            yield Problem(place, found, "a stand-in, so that its process never has the key", hint, "note")


def word_notes(manifest: Manifest) -> Iterator[Problem]:
    """Notes where `authorization` alone is named, which in an older version took the key after any word."""
    entries = [(_place_of_entry(entry.name, manifest), entry) for entry in stated_inspection(manifest).stand_ins]
    for server in servers_of(manifest.servers).values():
        key = f"servers.{server.name}.secrets"
        entries += [(_place_of_entry(entry.name, manifest, key), entry) for entry in server.stand_ins]
    for place, entry in entries:
        if AUTHORIZATION in entry.headers:
            found = f"`{AUTHORIZATION}` under `headers` of `{entry.name}`, which takes the key alone"
            hint = "write `authorization: Bot {key}` for a word that is none of Bearer, token and Basic"
            yield Problem(place, found, "the word that the server wants before the key, if it wants one", hint, "note")


def commands_inspected(manifest: Manifest) -> Inspection:
    """What is looked into and placed for any command of `licet run`, under a manifest `with_commands`."""
    reach = reach_of(manifest, COMMANDS)
    return NOTHING_INSPECTED if reach is None else inspection_of(reach)
