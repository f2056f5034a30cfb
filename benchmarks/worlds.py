"""The rules and requests of the benchmarks, and the expected verdict of each request.

Verdicts come from a plain reading of the rules as text, one by one, without tables; it is slow and shares no code with
licet, the floors or the peers. Everything is generated from a fixed seed.
"""

import random
from collections.abc import Callable, Sequence
from itertools import cycle

from msgspec import Struct

__all__ = ["REQUESTS", "World", "host_in", "host_world", "path_in", "path_world", "urls_for"]

REQUESTS = 96  # requests per world, half of them allowed


class World(Struct, frozen=True):
    """Rules about one kind of scope, requests for it, and the expected answers."""

    kind: str  # "host" or "path"
    allow: tuple[str, ...]
    deny: tuple[str, ...]
    requests: tuple[str, ...]
    expected: tuple[bool, ...]

    @property
    def size(self) -> int:
        return len(self.allow) + len(self.deny)


def host_world(size: int, count: int = REQUESTS) -> World:
    """Hosts in tens: four exact, three `*.` patterns, an exact and a `*.` deny inside them, an allow inside a deny."""
    allow, deny = [], []
    for ten in range(size // 10):
        team = f"team{ten}.acme{ten % 23}.test"
        allow += [f"api{i}.svc{ten}.acme{ten % 23}.test" for i in range(4)]
        allow += [f"*.{team}", f"*.eu.cdn{ten}.example", f"*.mirror{ten}.example"]
        deny += [f"vault.{team}", f"*.admin.{team}"]
        allow += [f"root.admin.{team}"]

    def requests(ten: int) -> tuple[list[str], list[str]]:
        team, n = f"team{ten}.acme{ten % 23}.test", ten % 23
        allowed = [
            f"api0.svc{ten}.acme{n}.test",
            f"api3.svc{ten}.acme{n}.test",
            f"www.{team}",
            f"a.b.{team}",
            f"img.eu.cdn{ten}.example",
            f"files.mirror{ten}.example",
        ]
        denied = [
            f"vault.{team}",  # denied by name inside an allowed domain
            f"panel.admin.{team}",  # below a denied domain
            f"root.admin.{team}",  # allowed by name, but inside a denied domain: deny wins
            team,  # the apex, which `*.` does not cover
            f"api9.svc{ten}.acme{n}.test",  # unknown
            f"evil{team}",  # ends with an allowed name, but not at a dot
        ]
        return allowed, denied

    return _world("host", allow, deny, requests, size // 10, count, host_in)


def path_world(size: int, count: int = REQUESTS) -> World:
    """Paths in tens: seven allowed subtrees, a denied file and a denied subtree inside them, an allow inside a deny."""
    allow, deny = [], []
    for ten in range(size // 10):
        home = f"/srv/team{ten}"
        allow += [f"{home}/data{i}" for i in range(7)]
        deny += [f"{home}/data0/.env", f"{home}/data1/private"]
        allow += [f"{home}/data1/private/keys"]

    def requests(ten: int) -> tuple[list[str], list[str]]:
        home = f"/srv/team{ten}"
        allowed = [
            f"{home}/data0/report.csv",
            f"{home}/data2/2024/q1/report.csv",
            f"{home}/data1/public/index.html",
            f"{home}/data6/log",
            f"{home}/data3",
            f"{home}/data5/a/b/c.txt",
        ]
        denied = [
            f"{home}/data0/.env",
            f"{home}/data1/private/notes.txt",
            f"{home}/data1/private/keys/id",  # allowed by name, but inside a denied subtree: deny wins
            f"{home}/data33/report.csv",  # starts with an allowed path, but not at a slash
            home,  # above the allowed subtrees
            "/etc/ssl/private/key.pem",
        ]
        return allowed, denied

    return _world("path", allow, deny, requests, size // 10, count, path_in)


def urls_for(world: World) -> list[str]:
    """A raw URL for each request of a host world; some need canonicalising."""
    urls = []
    for i, host in enumerate(world.requests):
        spelled = host.title() if i % 8 == 0 else f"{host}." if i % 8 == 1 else host
        port = ":443" if i % 8 == 2 else ""
        urls.append(f"https://{spelled}{port}/v1/items/{i}?limit=20&after=x")
    return urls


def _world(
    kind: str,
    allow: list[str],
    deny: list[str],
    requests: Callable[[int], tuple[list[str], list[str]]],
    tens: int,
    count: int,
    reading: Callable[[str, Sequence[str]], bool],
) -> World:
    chosen = random.Random(7)
    allowed: list[str] = []
    denied: list[str] = []
    for ten in cycle(chosen.sample(range(tens), tens)):  # no request is repeated before all were made once
        yes, no = requests(ten)
        allowed += yes
        denied += no
        if len(allowed) + len(denied) >= count:
            break
    asked = [(request, True) for request in allowed] + [(request, False) for request in denied]
    chosen.shuffle(asked)  # in random order, so that no branch is predictable
    for request, verdict in asked:
        if (reading(request, allow) and not reading(request, deny)) is not verdict:
            raise AssertionError(f"the rules as written do not give {verdict} for {request}")
    return World(
        kind,
        tuple(allow),
        tuple(deny),
        tuple(request for request, _ in asked),
        tuple(verdict for _, verdict in asked),
    )


def host_in(host: str, rules: Sequence[str]) -> bool:
    """Whether some pattern covers a host, compared one by one."""
    return any(host.endswith(rule[1:]) if rule[0] == "*" else host == rule for rule in rules)


def path_in(path: str, rules: Sequence[str]) -> bool:
    """Whether a path is, or is below, one of some paths, compared one by one."""
    return any(path == rule or path.startswith(rule + "/") for rule in rules)
