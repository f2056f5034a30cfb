"""How long one decision takes: a host or a path among n rules, a raw URL, and the request of a complete tool call.

There are two floors: one gets the keys of the request, as a licet `Use` has them, and one computes them itself. Targets
apply to both, except for raw URLs, whose keys must be computed in any case.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import can_ada
from msgspec.structs import replace

from benchmarks import calls
from benchmarks.floors import (
    Keys,
    Sets,
    fold,
    host_key,
    host_keys,
    keyed_floor,
    path_keys,
    walking_host_floor,
    walking_path_floor,
)
from benchmarks.harness import (
    Contestant,
    Effort,
    Row,
    Target,
    Timing,
    at_least,
    at_most,
    race,
    versus_floor,
    versus_peer,
)
from benchmarks.peers import SCOPE_PEERS, admission
from benchmarks.worlds import REQUESTS, World, host_world, path_world, urls_for
from licet import CapabilitySet, Use, use_of_path, use_of_url

__all__ = ["measure"]

SIZES = (10, 1_000, 100_000)
LARGEST_FOR_PEERS = 1_000
FLOOR, WALKING, PARSING = "floor", "floor that cuts keys", "floor that parses"

FLOOR_TARGET = at_most(1.6)
FLAT_TARGET = at_most(1.5)
URL_TARGET = at_most(14)
CALL_TARGET = at_most(4)
PEER_TARGETS: dict[tuple[int, str], Target] = {
    (10, "tenuo"): at_least(1),
    (1_000, "vakt"): at_least(8),
    (1_000, "casbin"): at_least(45),
    (1_000, "cedarpy"): at_least(45),
}


class Kind(NamedTuple):
    """One kind of scope: how its rules, its uses and its floors are made."""

    name: str
    rule: str  # the text before a scope in a rule
    world: Callable[[int], World]
    use_of: Callable[[str], Use]
    key_of: Callable[[str], str]
    keys_of: Callable[[str], Keys]
    walking: Callable[[Sets], Callable[[str], bool]]

    def capabilities(self, world: World) -> CapabilitySet:
        return CapabilitySet(
            [self.rule + scope for scope in world.allow], deny=[self.rule + scope for scope in world.deny]
        )

    def sets(self, world: World) -> Sets:
        return fold(map(self.key_of, world.allow), map(self.key_of, world.deny), self.walking)


HOST = Kind(
    "host",
    "network:*:",
    host_world,
    lambda host: use_of_url("GET", f"https://{host}/"),
    host_key,
    host_keys,
    walking_host_floor,
)
PATH = Kind("path", "fs:read:", path_world, lambda path: use_of_path("read", path), str, path_keys, walking_path_floor)


def measure(effort: Effort) -> list[Row]:
    """Every row about decisions."""
    return [*_scopes(HOST, effort), *_scopes(PATH, effort), *_raw_urls(effort), *_whole_calls(effort)]


def _scopes(kind: Kind, effort: Effort) -> list[Row]:
    rows: list[Row] = []
    ratios = {}
    for size in SIZES:
        what = f"one {kind.name}, {size:,} rules"
        world = kind.world(size)
        sets = kind.sets(world)
        contestants = [
            Contestant("licet", kind.capabilities(world).has, list(map(kind.use_of, world.requests))),
            Contestant(FLOOR, keyed_floor(sets), list(map(kind.keys_of, world.requests))),
            Contestant(WALKING, kind.walking(sets), world.requests),
        ]
        peers, absent = admission(SCOPE_PEERS if size <= LARGEST_FOR_PEERS else {}, world)
        times = race([*contestants, *peers], world.expected, effort)
        ratios[size] = times["licet"].best / times[FLOOR].best
        rows += [versus_floor(what, floor, times["licet"], times[floor], FLOOR_TARGET) for floor in (FLOOR, WALKING)]
        rows += _peer_rows(what, times, absent, _targets(size))
    what = f"one {kind.name}, {SIZES[0]} to {SIZES[-1]:,} rules"
    growth = ratios[SIZES[-1]] / ratios[SIZES[0]]
    rows.append(Row(what, "growth of the ratio", ratio=growth, target=FLAT_TARGET))
    return rows


def _targets(size: int) -> dict[str, Target | None]:
    return {name: PEER_TARGETS.get((size, name)) for name in SCOPE_PEERS} if size <= LARGEST_FOR_PEERS else {}


def _peer_rows(
    what: str, times: Mapping[str, Timing], absent: Mapping[str, str], targets: Mapping[str, Target | None]
) -> list[Row]:
    return [
        Row(what, name, target=target, note=absent[name])
        if name in absent
        else versus_peer(what, name, times["licet"], times[name], target)
        for name, target in targets.items()
    ]


def _raw_urls(effort: Effort) -> list[Row]:
    rows = []
    # 5,000 hosts in turn do not fit a cache of 4,096; 96 do.
    for what, count in (("a raw URL, every host new", 5_000), ("a raw URL, host seen before", REQUESTS)):
        world = host_world(1_000, count)
        walking = walking_host_floor(HOST.sets(world))
        contestants = [
            Contestant("licet", _from_url(HOST.capabilities(world)), urls_for(world)),
            Contestant(WALKING, walking, world.requests),
            Contestant(PARSING, _parsing(walking), urls_for(world)),
        ]
        times = race(contestants, world.expected, effort)
        rows.append(versus_floor(what, WALKING, times["licet"], times[WALKING], URL_TARGET))
        rows.append(versus_floor(what, PARSING, times["licet"], times[PARSING]))
    return rows


def _from_url(capabilities: CapabilitySet) -> Callable[[str], bool]:
    has = capabilities.has

    def decide(url: str) -> bool:
        return has(use_of_url("GET", url))

    return decide


def _parsing(walking: Callable[[str], bool]) -> Callable[[str], bool]:
    """The floor after the same URL parser, without further checks."""
    parse = can_ada.parse

    def decide(url: str) -> bool:
        host = parse(url).hostname
        return walking(host[:-1] if host[-1] == "." else host)

    return decide


def _whole_calls(effort: Effort) -> list[Row]:
    asked, expected = calls.requests()
    licet = calls.licet_calls(asked)
    floor = calls.floor_calls(asked)
    peers, absent = admission(calls.CALL_PEERS, asked)
    times = race([licet, floor, *peers], expected, effort)
    what = f"a whole call, {calls.SIZE}"
    rows = [versus_floor(what, FLOOR, times["licet"], times[FLOOR], CALL_TARGET)]
    rows += _peer_rows(what, times, absent, {"tenuo": at_least(1.5), "cedarpy": at_least(40)})
    for name, verdict in (("allowed", True), ("denied", False)):
        halves = [_only(verdict, contestant, expected) for contestant in (licet, floor)]
        times = race(halves, [verdict] * len(halves[0].questions), effort)
        rows.append(versus_floor(f"{what}, {name}", FLOOR, times["licet"], times[FLOOR]))
    return rows


def _only(verdict: bool, contestant: Contestant, expected: Sequence[bool]) -> Contestant:
    """The same contestant, only on the questions with one answer."""
    asked = zip(contestant.questions, expected, strict=True)
    return replace(contestant, questions=[question for question, answer in asked if answer is verdict])
