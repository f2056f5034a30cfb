"""What `licet init --mcp` would do: which entries of which files move, which stay, and what the policy gets.

Nothing is written here.

Values of variables and headers are never part of the policy, only references to secrets.
"""

import os
import platform
import re
import shlex
import shutil
import sysconfig
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from msgspec import Struct, field

from licet.assemble import draft
from licet.clients.entries import (
    APPROVALS,
    OF_THE_CLIENT,
    Entry,
    Stays,
    passed_by_name,
    passed_on,
    read_entry,
    secret_line,
    starts_gateway,
)
from licet.clients.jsonc import BadConfig, KeyPath, checked, looks_secret, swapped, table_of
from licet.clients.known import Client, Place, Seen, Surroundings, System, Unusable, places, read_own
from licet.clients.undo import EditedTable
from licet.core.policy.servers import Server
from licet.core.review.known_keys import entry_text, inspect_text, known_stand_in
from licet.packages.server_packages import LaunchError, launch_of
from licet.policy_files.draft import ServerNeeds, server_lines, servers_text
from licet.policy_files.policy_paths import PLACES, NoHome, home_directory


class DraftedServer(Struct, frozen=True):
    """A server to add to the policy, and the values of its secrets, which stay out of the policy."""

    name: str
    data: Mapping[str, Any]  # as it is written under `servers.NAME`
    values: Mapping[str, str]  # secret reference -> value

    @property
    def secrets(self) -> tuple[str, ...]:
        """The references to secrets that it needs."""
        return tuple({**self.data.get("secrets", {}), **self.data.get("headers", {})}.values())

    @property
    def host(self) -> str:
        """The host of its address, as a rule names it; empty for a command."""
        name = urlsplit(self.data.get("url", "")).hostname or ""
        return f"[{name}]" if ":" in name else name


def server_name(name: str) -> str:
    """The name of a client's entry, as the name of a server: `My GitHub_server` is `my-github-server`."""
    words = re.findall(r"[a-z0-9]+", name.lower())
    joined = "-".join(words) or "server"
    return (joined if joined[0].isalpha() else f"s-{joined}")[:28].rstrip("-")


def drafted(name: str, entry: Entry) -> DraftedServer:
    """The server of an entry: variables of the same name are passed on, all other values become secrets."""
    literal = {variable: f"mcp/{name}/{variable}" for variable in entry.values}
    values = {literal[variable]: value for variable, value in entry.values.items()}
    if entry.url:
        headers = {**literal, **entry.references}
        return DraftedServer(name, {"url": entry.url, **({"headers": headers} if headers else {})}, values)
    passed = [variable for variable, source in entry.references.items() if variable == source]
    renamed = {variable: source for variable, source in entry.references.items() if variable != source}
    secrets = {**literal, **renamed}
    data: dict[str, Any] = {"command": list(entry.command)}
    data |= {"env": passed} if passed else {}
    data |= {"secrets": secrets} if secrets else {}
    return DraftedServer(name, data, values)


def entries(servers: Iterable[DraftedServer]) -> dict[str, Mapping[str, Any]]:
    """The entries of some servers, as they stand below `servers:`."""
    return {server.name: server.data for server in servers}


def new_policy(agent: str, servers: Sequence[DraftedServer], schema: str) -> str:
    """A manifest and workspace in one, for servers whose tools are not known yet: it admits none."""
    needs = ServerNeeds(
        secrets=list(dict.fromkeys(one for server in servers for one in server.secrets)),
        variables=list(dict.fromkeys(one for server in servers for one in server.data.get("env", ()))),
        hosts=list(dict.fromkeys(server.host for server in servers if server.host)),
    )
    return servers_text(agent, entries(servers), needs, schema)


GATEWAY = "licet"
ACCEPTED = "--accepted"
_SYSTEMS: dict[str, System] = {"Darwin": "darwin", "Windows": "windows"}


class Policy(Struct, frozen=True):
    """The policy that the servers are added to: its manifest, the file for `servers:`, and what that has already."""

    manifest: Path  # absolute
    file: Path
    root: Path
    is_new: bool
    text: str
    servers: Mapping[str, Server]
    secrets_file: Path
    known_secrets: Mapping[str, str]
    accepted: bool = False  # whether this user has accepted it and its lock as they are
    others: Mapping[str, str] = {}  # the texts of its other files
    lock: str = ""  # the state of its lock


class Move(Struct, frozen=True):
    """An entry of a client that becomes a server of the policy."""

    name: str
    entry: Entry
    original: object
    server: DraftedServer


class TablePlan(Struct, frozen=True):
    """One table of servers in a file."""

    table: KeyPath
    moves: tuple[Move, ...]
    stays: tuple[Stays, ...]
    gateway: str
    entry: Mapping[str, Any]
    older: Mapping[str, Any] = {}  # entries of this gateway that are written anew, or are there once too often


class FilePlan(Struct, frozen=True):
    """One configuration, and what is to become of it."""

    place: Place
    seen: Seen
    tables: tuple[TablePlan, ...]
    after: bytes
    edited: tuple[EditedTable, ...]

    @property
    def moves(self) -> tuple[Move, ...]:
        """All entries that move."""
        return tuple(move for table in self.tables for move in table.moves)

    @property
    def stays(self) -> tuple[Stays, ...]:
        """All entries that stay."""
        return tuple(one for table in self.tables for one in table.stays)

    @property
    def changes(self) -> bool:
        """Whether anything of it is to be written."""
        return bool(self.edited)


class Plan(Struct):
    """Everything that was found."""

    files: list[FilePlan] = field(default_factory=list)
    refused: list[tuple[Place, str]] = field(default_factory=list)


def surroundings(project: Path) -> Surroundings:
    """Where to look on this machine, for this user."""
    home = home_directory()
    if not home:
        raise NoHome
    return Surroundings(_SYSTEMS.get(platform.system(), "linux"), os.environ, home, str(project))


def servers_without_gateway(here: Surroundings) -> Iterator[tuple[Place, int]]:
    """The configurations that can be read, each with the number of its servers that are not behind a gateway."""
    program = this_licet()
    for place in places(here):
        try:
            seen = read_own(Path(place.path), Path(place.base))
            data = None if seen is None else place.client.form.read(seen.text)
            tables = [] if data is None else [table_of(data, table) for table in place.tables]
        except (Unusable, BadConfig):
            continue
        yield place, sum(not starts_gateway(entry, program) for table in tables for entry in table.values())


def plan_setup(here: Surroundings, policy: Policy) -> Plan:
    """Read every configuration that exists, and decide about each of its entries."""
    plan, names = Plan(), _Names(policy)
    for place in places(here):
        try:
            seen = read_own(Path(place.path), Path(place.base))
            if seen is not None and (made := _file_plan(place, seen, policy, names)) is not None:
                plan.files.append(made)
        except Unusable as wrong:
            plan.refused.append((place, str(wrong)))
        except BadConfig as wrong:
            plan.refused.append((place, f"{place.path} cannot be edited: {wrong}"))
    return plan


def _file_plan(place: Place, seen: Seen, policy: Policy, names: "_Names") -> FilePlan | None:
    form, text = place.client.form, seen.text
    data = form.read(text)
    tables, edited = [], []
    for table in place.tables:
        entries = table_of(data, table)
        own = [name for name, one in entries.items() if _is_own(one, policy, place.client)]
        found = [names.decide(name, one, place) for name, one in entries.items() if name not in own]
        moves = tuple(one for one in found if isinstance(one, Move))
        stays = tuple(one for one in found if isinstance(one, Stays))
        if not entries:
            continue
        gateway = own[0] if own else _free_name(entries)
        entry = _rewritten(entries.get(gateway, {}), gateway_entry(policy, place, moves))
        may_differ = bool(moves) or not policy.is_new  # without a policy there is nothing to accept
        older = {name: entries[name] for name in own if may_differ and (name != gateway or entries[name] != entry)}
        stays = (*stays, *(Stays(name, "it is a gateway already") for name in own if name not in older))
        tables.append(TablePlan(table, moves, stays, gateway, entry, older))
        if not moves and not older:
            continue
        gone = [name for name in entries if name in older or any(move.name == name for move in moves)]
        originals = form.originals(text, table, gone)
        spans = form.swap(text, table, gone, gateway, entry)
        text = checked(form, text, spans, table, swapped(entries, gone, gateway, entry))
        stays_there = gateway in entries and gateway not in older
        edited.append(EditedTable(table, "" if stays_there else gateway, entry, originals))
    return FilePlan(place, seen, tuple(tables), text.encode("utf-8"), tuple(edited)) if tables else None


def _is_own(entry: object, policy: Policy, client: Client) -> bool:
    """Whether an entry starts a gateway with this policy.

    Only the meaning of its words counts, since the entry is written anew if anything of it differs: an older one has
    paths of this machine, or does not demand acceptance.
    """
    args = entry.get("args") if isinstance(entry, dict) else None
    if not isinstance(args, list) or args[:1] != ["gateway"] or not all(isinstance(word, str) for word in args):
        return False
    words, places = iter(args[1:]), {"": policy.manifest, "--workdir": policy.root, "--secrets": policy.secrets_file}
    for word in words:
        if word == ACCEPTED:
            continue
        option, value = (word, next(words, "")) if word in places else ("", word)
        value = value.replace(client.project_directory, str(policy.root)) if client.project_directory else value
        place = os.path.normpath(os.path.join(policy.root, value))
        if not value or option not in places or place != str(places.pop(option)):
            return False
    return "" not in places  # the policy was named


def _rewritten(found: Mapping[str, Any], entry: Mapping[str, Any]) -> dict[str, Any]:
    """The entry of the gateway with what one that is there already passes on, and with keys for the client alone.

    What the client may call without asking is kept only of an entry that starts this licet, and nothing else: of any
    other, it may be the choice of whoever wrote the entry into the project.
    """
    env = passed_on(found) | entry.get("env", {})
    names = list(dict.fromkeys((*passed_by_name(found), *entry.get("env_vars", ()))))
    lost = frozenset[str]() if starts_gateway(found, this_licet()) else APPROVALS
    kept = (OF_THE_CLIENT | {"enabled", "disabled"}) - lost
    of_the_client = {key: value for key, value in found.items() if key in kept}
    return {**entry, **of_the_client} | ({"env": env} if env else {}) | ({"env_vars": names} if names else {})


def _free_name(entries: Mapping[str, Any]) -> str:
    free = (f"{GATEWAY}-{number}" if number > 1 else GATEWAY for number in range(1, len(entries) + 2))
    return next(name for name in free if name not in entries)


def gateway_entry(policy: Policy, place: Place, moves: Iterable[Move]) -> dict[str, Any]:
    """The entry that starts the gateway.

    A file of the project is shared, so it has no path of this machine. Its client starts it in the project, or has a
    variable for that; anywhere else there is no such policy, and the gateway ends. In `/` there is none either.
    It demands that policy and lock are accepted: it names them, so a pull that changes both would be used otherwise.
    With that, the gateway finds the secrets of this policy itself.
    """
    moves, client = list(moves), place.client
    file, program = str(policy.manifest), this_licet()
    if place.scope == "project":
        file, program = os.path.join(client.project_directory, os.path.relpath(file, policy.root)), GATEWAY
    entry: dict[str, Any] = {**client.gateway_keys, "command": program, "args": ["gateway", file, ACCEPTED]}
    carried = {name: text for move in moves for name, text in move.entry.carried.items()}
    listed = list(dict.fromkeys(name for move in moves for name in move.entry.listed))
    return entry | ({"env": carried} if carried else {}) | ({"env_vars": listed} if listed else {})


def this_licet() -> str:
    """The path of this licet: a client that was not started from a shell often has a shorter PATH."""
    installed = Path(sysconfig.get_path("scripts"), "licet")
    return str(installed) if installed.is_file() else shutil.which("licet") or "licet"


class _Names:
    """Decides about entries, and gives each different server one name."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self._drafts: dict[str, DraftedServer] = {}

    def decide(self, name: str, data: object, place: Place) -> Move | Stays:
        """An entry as a server of the policy, or why it stays."""
        policy = self._policy
        is_here = place.scope == "project" and Path(place.base) == policy.root
        entry = read_entry(name, data, place.client, str(policy.root) if is_here else "", this_licet())
        if isinstance(entry, Stays):
            return entry
        server = self._named(entry)
        for reference, value in server.values.items():
            if secret_line(reference, value) is None:
                return Stays(name, f"the secrets file has no spelling for the value of `{_last(reference)}`")
            if policy.known_secrets.get(reference, value) != value:
                return Stays(name, f"{policy.secrets_file} has another value for `{reference}`: remove that line first")
        if why := _problem(server):
            return Stays(name, why)
        self._drafts[server.name] = server
        return Move(name, entry, data, server)

    def _named(self, entry: Entry) -> DraftedServer:
        start, number = server_name(entry.name), 1
        while True:
            server = drafted(start if number == 1 else f"{start}-{number}", entry)
            known, there = self._drafts.get(server.name), self._policy.servers.get(server.name)
            if known == server or (known is None and (there is None or _is_same(there, server))):
                return server
            number += 1


def _last(reference: str) -> str:
    return reference.rpartition("/")[2]


def _is_same(there: Server, server: DraftedServer) -> bool:
    """Whether the policy has this server already; its grants and tools are its own matter."""
    said: dict[str, Any] = {"command": list(there.command), "url": there.url, "env": list(there.env)}
    secrets = {**there.secrets, **{one.name: one.secret for one in there.stand_ins}}
    said |= {"secrets": secrets, "headers": dict(there.headers)}
    return {key: value for key, value in said.items() if value} == server.data


def _problem(server: DraftedServer) -> str:
    """Why policy cannot have this server; empty if it can."""
    lines = "".join(f"  {line}\n" for line in server_lines(entries([server])))
    found = draft(f"agent: any\ncapabilities: {{}}\nservers:\n{lines}", "", ())
    wrong = next((one for one in found.problems if one.severity == "error"), None)
    # What was found may be a token in an address, so it is not repeated.
    return f"policy cannot say it: expected {wrong.expected}" if wrong else ""


def notes(move: Move) -> Iterator[str]:
    """What a person should know about an entry that moves."""
    entry, server = move.entry, move.server
    plain = [name for name, value in entry.values.items() if not looks_secret(name, value)]
    if plain:
        listed = ", ".join(f"`{name}`" for name in plain)
        yield f"{listed} may be no secret, but policy has no values of variables: kept in the secrets file too"
    if entry.empty:
        yield f"left out, since the value is empty: {', '.join(f'`{name}`' for name in entry.empty)}"
    if entry.dropped:
        yield f"not taken over, since the manifest decides: {', '.join(f'`{key}`' for key in entry.dropped)}"
    if entry.url and not server.data.get("headers"):
        yield "it is on another machine; if it asks you to log in (OAuth), the gateway cannot use it yet"
    if entry.command:
        try:
            if launch_of(entry.command).kind == "docker":
                yield "`docker run` needs `sandbox: native` on it, and its name under `native`: it has no walls then"
        except LaunchError as wrong:
            yield f"`licet lock` will refuse it: {wrong}"


def next_steps(policy: Policy, servers: Sequence[DraftedServer], *, accepted: bool = True) -> list[str]:
    """What is left to do, in order."""
    named = os.path.relpath(policy.manifest) if policy.manifest.is_relative_to(Path.cwd()) else str(policy.manifest)
    file = "" if Path(named) in PLACES else f" {shlex.quote(named)}"
    # A server that is given secrets does not start without them, not even to be locked.
    which = f"{file} --secrets {shlex.quote(str(policy.secrets_file))}" if any(one.secrets for one in servers) else file
    first = (
        [] if accepted else [f"licet trust{file}: shows the policy; the clients start nothing before it is accepted"]
    )
    if not servers:
        return [*first, "restart the clients"]
    return [
        *first,
        *([] if policy.is_new else _lacking(policy, servers)),
        f"licet lock --init{which}: starts the servers behind walls, and drafts their `grants` and `tools`",
        "list the tools that the agent may call under `capabilities.tools`, and what they need",
        *_offered_keys(servers),
        f"licet trust{file}: accepts what the policy says then",
        f"licet lock{which}: pins what the servers offer, and accepts that",
        f"licet gateway{file} {ACCEPTED}: what the clients now start; restart them",
    ]


def _offered_keys(servers: Iterable[DraftedServer]) -> Iterator[str]:
    """How a server uses a known key without having it."""
    for server in servers:
        offered = (known_stand_in(name, secret) for name, secret in server.data.get("secrets", {}).items())
        if known := [entry for entry in offered if entry is not None]:
            entries = ", ".join(f"`{entry_text(entry)}`" for entry in known)
            yield f"to keep keys out of `{server.name}`, write there `{inspect_text(known)}`, and as secrets {entries}"


def _lacking(policy: Policy, servers: Sequence[DraftedServer]) -> list[str]:
    """What an existing manifest has to allow for the new servers."""
    wanted: dict[str, list[str]] = {"secrets": [], "env": [], "destinations.allow": []}
    for server in servers:
        if server.name not in policy.servers:
            wanted["secrets"] += server.secrets
            wanted["env"] += server.data.get("env", ())
            wanted["destinations.allow"] += [server.host] if server.host else []
    return [
        f"allow in {policy.manifest}, under `capabilities.{key}`: {', '.join(dict.fromkeys(items))}"
        for key, items in wanted.items()
        if items
    ]
