"""What `licet lock` and `licet lock --init` share: their options, and starting servers to take their definitions."""

import asyncio
import shlex
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NoReturn

import click
from msgspec import Struct

from licet.assemble import Places
from licet.assemble.expected_lock import lock_backends, machine_places
from licet.assemble.review import state_directory
from licet.cli.output import print_report, show
from licet.clients.entries import SECRETS_FILE, known_secrets
from licet.clients.known import Unusable
from licet.core.policy.lock import LockedServer
from licet.core.policy.servers import Server
from licet.core.values import Origin, Problem
from licet.mcp.server_definitions import NotTaken, Setup, take
from licet.policy_files.policy_paths import policy_root

_ENDINGS = (".yaml", ".yml", ".json")


class Options(Struct, frozen=True):
    """The options of one run."""

    workdir: Path | None
    secrets: Path | None
    accepted: frozenset[str]
    update: bool = False
    upgrade: bool = False
    yes: bool = False
    grants: tuple[str, ...] = ()


def is_file(word: str) -> bool:
    """Whether a word names a policy file, and not a server."""
    return word.lower().endswith(_ENDINGS) or "/" in word


def lock_setup(policy: Path, options: Options, *, degraded: bool = False, private: tuple[str, ...] = ()) -> Setup:
    """What is the same for all servers of this run. They are started where `licet gateway` starts them."""
    places = Places.here(options.workdir or policy_root(policy))
    return Setup(
        lock_backends(options.secrets),
        places.workdir,
        places.home,
        machine_places(places.workdir, places.home),
        lambda text: show(text, err=True),
        degraded,
        private,
    )


def own_secrets_hint(policy: Path, servers: Iterable[Server], options: Options) -> str:
    """The option that is missing, if `licet init --mcp` keeps secrets that these servers are given; else empty."""
    file = state_directory(policy_root(policy)) / SECRETS_FILE
    wanted = {name for one in servers for name in one.references}
    if options.secrets is not None or not wanted:
        return ""
    try:
        kept = known_secrets(file)
    except Unusable as wrong:
        return str(wrong)
    found = f"`licet init --mcp` keeps these secrets: add `--secrets {shlex.quote(str(file))}`"
    return found if wanted & kept.keys() else ""


def take_each(
    servers: Mapping[str, Server],
    origins: Mapping[str, Origin],
    setup: Setup,
    options: Options,
    before: Mapping[str, LockedServer],
) -> tuple[dict[str, LockedServer], dict[str, NotTaken]]:
    """The entries of servers for the lock, and why there is none for the others."""

    async def one_by_one() -> tuple[dict[str, LockedServer], dict[str, NotTaken]]:
        found: dict[str, LockedServer] = {}
        wrong: dict[str, NotTaken] = {}
        for name, server in servers.items():
            try:
                found[name] = await take(
                    server,
                    origins[name],
                    setup,
                    before=before.get(name),
                    newest=options.upgrade,
                    accepted=options.accepted,
                )
            except NotTaken as not_taken:
                wrong[name] = not_taken
        return found, wrong

    return asyncio.run(one_by_one())


def refuse_servers(origins: Mapping[str, Origin], wrong: Mapping[str, NotTaken], hint: str = "") -> NoReturn:
    """Print why servers cannot be locked, and exit with 1."""
    print_report({"problems": server_problems(origins, wrong)}, lambda _: show_servers(origins, wrong))
    if hint:
        show(hint, err=True)
    click.get_current_context().exit(1)


def server_problems(origins: Mapping[str, Origin], wrong: Mapping[str, NotTaken]) -> list[Problem]:
    """Why servers cannot be locked, as data."""
    return [
        Problem(origins[name], f"the server `{name}`: {one}", "a server that can be locked", "; ".join(one.lines))
        for name, one in wrong.items()
    ]


def show_servers(origins: Mapping[str, Origin], wrong: Mapping[str, NotTaken]) -> None:
    """Print why servers cannot be locked."""
    for name, one in wrong.items():
        show(f"{origins[name].full}: error: the server `{name}` cannot be locked: {one}", err=True, colour="red")
        for line in one.lines:
            show(f"  {line}", err=True)
