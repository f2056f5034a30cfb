"""The time and memory to build tables from rules, given as text and as YAML, and the cost of the algebra.

Tables are built on first use, so every build ends with a question.
"""

import tempfile
import tracemalloc
from collections.abc import Callable, Iterable, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import yaml
from msgspec.structs import replace

from benchmarks.floors import (
    Sets,
    fold,
    host_key,
    host_keys,
    keyed_floor,
    path_keys,
    walking_host_floor,
    walking_path_floor,
)
from benchmarks.harness import Contestant, Effort, Row, VerdictError, at_most, race, versus_floor
from benchmarks.worlds import World, host_world, path_world
from licet import Capability, CapabilitySet, Use, load_manifest, use_of_path, use_of_url

__all__ = ["measure"]

SIZE = 10_000
MEGABYTE = 1 << 20
PARSED_TARGET, TEXT_TARGET, YAML_TARGET = at_most(2.3), at_most(6), at_most(4.5)
MEMORY_LIMIT = 10 * MEGABYTE
DOUBLINGS = (250, 500, 1_000, 2_000)
# Twice the rules in 2.0 times the time is linear, in 4.0 times quadratic; sorting and cold caches add a little.
NEAR_LINEAR = at_most(2.6)

Parsed = list[tuple[str, str]]  # which sets a rule belongs to, and its key


def measure(effort: Effort) -> list[Row]:
    """Every row about building and combining sets."""
    few = replace(effort, rounds=max(12, effort.rounds // 3))  # each of these takes milliseconds
    return [*_tables(few), *_memory(), *_yaml(few), *_algebra(few)]


def worlds() -> tuple[World, World]:
    """Hosts and paths, half the rules each."""
    return host_world(SIZE // 2), path_world(SIZE // 2)


def _texts() -> tuple[list[str], list[str]]:
    hosts, paths = worlds()
    allow = [f"network:*:{scope}" for scope in hosts.allow] + [f"fs:read:{scope}" for scope in paths.allow]
    deny = [f"network:*:{scope}" for scope in hosts.deny] + [f"fs:read:{scope}" for scope in paths.deny]
    return allow, deny


def _questions() -> tuple[list[Use], list[bool]]:
    hosts, paths = worlds()
    uses = [use_of_url("GET", f"https://{host}/") for host in hosts.requests]
    uses += [use_of_path("read", path) for path in paths.requests]
    return uses, [*hosts.expected, *paths.expected]


def _tables(effort: Effort) -> list[Row]:
    allow, deny = _texts()
    parsed = [Capability.parse(text) for text in allow], [Capability.parse(text) for text in deny]
    hosts, paths = worlds()
    bare: tuple[Parsed, Parsed] = (
        [("host", host_key(scope)) for scope in hosts.allow] + [("path", scope) for scope in paths.allow],
        [("host", host_key(scope)) for scope in hosts.deny] + [("path", scope) for scope in paths.deny],
    )
    uses, expected = _questions()
    first, last = uses[0], uses[-1]

    def licet(rules: tuple[Iterable[Capability | str], Iterable[Capability | str]]) -> CapabilitySet:
        built = CapabilitySet(rules[0], deny=rules[1])
        built.has(first)
        built.has(last)
        return built

    def verdicts(built: CapabilitySet) -> list[bool]:
        return [built.has(use) for use in uses]

    def floor_verdicts(sets: dict[str, Sets]) -> list[bool]:
        host, path = keyed_floor(sets["host"]), keyed_floor(sets["path"])
        return [host(host_keys(each)) for each in hosts.requests] + [path(path_keys(each)) for each in paths.requests]

    times = race(
        [
            Contestant("parsed", licet, [parsed], verdicts),
            Contestant("text", licet, [(allow, deny)], verdicts),
            Contestant("floor", _floor_tables, [bare], floor_verdicts),
            Contestant("bare sets", _bare_sets, [bare], lambda _: expected),
        ],
        [expected],
        effort,
    )
    what = f"{SIZE:,} rules to tables"
    return [
        versus_floor(f"{what}, parsed", "the floor's sets", times["parsed"], times["floor"], PARSED_TARGET),
        versus_floor(f"{what}, parsed", "sets, denies not folded", times["parsed"], times["bare sets"]),
        versus_floor(f"{what}, from text", "the floor's sets", times["text"], times["floor"], TEXT_TARGET),
        versus_floor(f"{what}, from text", "sets, denies not folded", times["text"], times["bare sets"]),
    ]


def _floor_tables(rules: tuple[Parsed, Parsed]) -> dict[str, Sets]:
    """The floor's sets, as its decisions need them."""
    allow, deny = _bare_sets(rules)
    return {
        "host": fold(allow["host"], deny["host"], walking_host_floor),
        "path": fold(allow["path"], deny["path"], walking_path_floor),
    }


def _bare_sets(rules: tuple[Parsed, Parsed]) -> tuple[dict[str, set[str]], dict[str, set[str]]]:
    """Rules sorted into sets and nothing else; a question takes twice as many look-ups as with the floor."""
    sides = []
    for side in rules:
        sets: dict[str, set[str]] = {"host": set(), "path": set()}
        for kind, key in side:
            sets[kind].add(key)
        sides.append(sets)
    return sides[0], sides[1]


def _memory() -> list[Row]:
    allow, deny = _texts()
    uses, expected = _questions()
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        built = CapabilitySet(allow, deny=deny)
        if [built.has(use) for use in uses] != expected:
            raise VerdictError("the set that was weighed gives wrong verdicts")
        held, peak = (size - before for size in tracemalloc.get_traced_memory())
    finally:
        tracemalloc.stop()
    limit = f"{MEMORY_LIMIT / MEGABYTE:.0f} MB"
    return [
        Row(
            f"{SIZE:,} rules in memory",
            f"{limit}, {name}",
            f"{size / MEGABYTE:.2g} MB",
            limit,
            size / MEMORY_LIMIT,
            target,
        )
        for name, size, target in (("held", held, at_most(1)), ("peak while building", peak, None))
    ]


def _yaml(effort: Effort) -> list[Row]:
    hosts, paths = worlds()
    # Block lists, as people write them. A pattern is quoted, because `*` would start an alias.
    lines = ["agent: bench", 'version: "1.0"', "capabilities:", "  destinations:", "    allow:"]
    lines += [f'      - "{scope}"' for scope in hosts.allow]
    lines += ["    deny:", *(f'      - "{scope}"' for scope in hosts.deny)]
    lines += ["  fs_reach:", "    read:", *(f"      - {scope}" for scope in paths.allow)]
    lines += ["  deny:", *(f"    - fs:read:{scope}" for scope in paths.deny)]
    uses, expected = _questions()

    def compose(path: Path) -> Any:
        with path.open("rb") as file:
            return yaml.compose(file, Loader=yaml.CSafeLoader)

    def verdicts(manifest: Any) -> list[bool]:
        ceiling = manifest.ceiling
        return [ceiling.has(use) for use in uses]

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "manifest.yaml")
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")
        times = race(
            [
                Contestant("licet", load_manifest, [path], verdicts),
                Contestant("floor", compose, [path], lambda _: expected),
            ],
            [expected],
            effort,
        )
    return [
        versus_floor(
            f"{SIZE:,} rules from YAML, with positions",
            "yaml.compose in C",
            times["licet"],
            times["floor"],
            YAML_TARGET,
        )
    ]


# The algebra ---------------------------------------------------------------------------------------------------------


Rules = tuple[list[Capability], list[Capability]]


def _pair(size: int) -> tuple[Rules, Rules]:
    """Needs and a ceiling around them, `size` rules each: several actions, methods and ports, denies on both sides."""
    ceiling, needs, deny = [], [], []
    for i in range(size // 10):
        team = f"team{i}.acme{i % 23}.test"
        ceiling += [f"network:*:*.{team}", f"network:https:{team}", f"network:read:api{i}.example"]
        ceiling += [f"network:*:db{i}.test:5432", f"fs:*:/srv/team{i}", f"fs:read:/opt/team{i}"]
        ceiling += [f"secret:read:team{i}/*", f"env:read:TEAM{i}"]
        needs += [f"network:https:get@api.{team}", f"network:read:*.eu.{team}", f"network:*:post@in.{team}:8443"]
        needs += [f"network:https:get@{team}", f"fs:read:/srv/team{i}/data", f"fs:write:/srv/team{i}/out/new"]
        needs += [f"fs:read:/opt/team{i}", f"secret:read:team{i}/token"]
        deny += [f"network:*:vault.eu.{team}", f"fs:*:/srv/team{i}/data/.env"]
    parsed = [[Capability.parse(text) for text in texts] for texts in (needs, ceiling, deny)]
    return (parsed[0], parsed[2]), (parsed[1], parsed[2])


def _asked() -> list[Use]:
    """Uses with the same answer for every pair, whatever its size."""
    texts = []
    for i in range(5):
        team = f"team{i}.acme{i}.test"
        texts += [f"network:https:get@{host}.{team}" for host in ("api", "a.eu", "vault.eu", "other")]
        texts += [f"fs:read:/srv/team{i}/data/{name}" for name in ("a", ".env")]
        texts += [f"fs:write:/srv/team{i}/data/a", f"secret:read:team{i}/token", f"env:read:TEAM{i}"]
    return [Use.parse(text) for text in texts]


def _algebra(effort: Effort) -> list[Row]:
    uses = _asked()
    rules = {size: _pair(size) for size in DOUBLINGS}
    sets = {size: (CapabilitySet(*needs), CapabilitySet(*ceiling)) for size, (needs, ceiling) in rules.items()}
    needs, ceiling = sets[DOUBLINGS[0]]
    both = [needs.has(use) and ceiling.has(use) for use in uses]
    if not 0 < sum(both) < len(both):
        raise VerdictError("the questions to a meet should be answered both ways")

    def meet(pair: tuple[CapabilitySet, CapabilitySet]) -> CapabilitySet:
        met = pair[0] & pair[1]
        met.has(uses[0])
        return met

    def build_and_meet(pair: tuple[Rules, Rules]) -> CapabilitySet:
        return meet((CapabilitySet(*pair[0]), CapabilitySet(*pair[1])))

    def fits(pair: tuple[CapabilitySet, CapabilitySet]) -> bool:
        return pair[0] <= pair[1]

    def verdicts(met: CapabilitySet) -> list[bool]:
        return [met.has(use) for use in uses]

    races: list[tuple[str, Callable[[Any], Any], Mapping[int, Any], Callable[[Any], Any], Any]] = [
        ("a & b", meet, sets, verdicts, both),
        ("a <= b", fits, sets, bool, True),
        ("a & b, new sets", build_and_meet, rules, verdicts, both),
    ]
    rows = []
    for what, answer, questions, read, expected in races:
        contestants = [Contestant(str(size), answer, [questions[size]], read) for size in DOUBLINGS]
        times = race(contestants, [expected], effort)
        for half, size in pairwise(DOUBLINGS):
            one, two = times[str(size)], times[str(half)]
            rows.append(versus_floor(f"{what}, {size:,} rules each", f"{half:,} rules each", one, two, NEAR_LINEAR))
    return rows
