"""The cost of a complete governed call: check the arguments, decide, store an event, run the tool.

The tool only records that it ran. The floor is the same four steps by hand. A slice is many calls inside one run of the
event loop, so that starting the loop is not measured. Stored events are deleted after each slice.
"""

import asyncio
import gc
import hashlib
import json
import tempfile
import time
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from msgspec.structs import replace
from pydantic import TypeAdapter
from pydantic_core import to_json

from benchmarks.governed_peers import ALLOWED, DENIED, PEERS, Way, noop, ran
from benchmarks.harness import (
    Contestant,
    Effort,
    Row,
    Target,
    Timing,
    VerdictError,
    at_least,
    at_most,
    race,
    versus_floor,
    versus_peer,
)
from benchmarks.peers import AbsentPeerError
from licet import Backends, Context, Gate, Refused, Session, load_manifest, tool
from licet.tools import read_file

__all__ = ["measure"]

FLOOR = "the four steps by hand"
FLOOR_TARGET, CHECKS_TARGET, CROWD_TARGET, REFUSED_TARGET = at_most(8), at_most(30), at_most(1.3), at_most(1.5)
PEER_TARGETS: dict[str, Target | None] = {
    "toolkit: MCP gateway": None,
    "toolkit: gateway, both ways": None,
    "toolkit: stateless kernel": None,
    "toolkit: stateless, no event": None,
    "toolkit: kernel, recording": None,
    "toolkit: kernel, no event": None,
    "tenuo guard": at_least(2),
    "FastMCP, one middleware": at_least(1.3),
}
CITIES = [f"city {number}" for number in range(50)]
CHECKS = 8
CROWD, FEW = 10_000, 10
REFUSALS, DENIES = 200, 20_000

MANIFEST = {
    "agent": "bench",
    "capabilities": {
        "tools": [ALLOWED, "checking", "waiting"],
        "native": [ALLOWED, "checking", "waiting"],
        "env": ["LANG"],
    },
}


def measure(effort: Effort) -> list[Row]:
    """Every row about whole calls."""
    loop = asyncio.new_event_loop()
    try:
        with tempfile.TemporaryDirectory() as place:
            rows = [*_calls(loop, Path(place), effort), *_refusals(loop, Path(place))]
            return [*rows, *_crowds(loop, Path(place), effort)]
    finally:
        loop.close()


# One call after another ----------------------------------------------------------------------------------------------


def _calls(loop: asyncio.AbstractEventLoop, place: Path, effort: Effort) -> list[Row]:
    ways: dict[str, Callable[[Path], Way]] = {"licet": _licet, "checks": _licet_checking, FLOOR: _floor}
    contestants, absent = [], {}
    for name, build in {**ways, **PEERS}.items():
        try:
            _must_refuse(loop, name, build(place))  # on a separate agent: a kernel may stop an agent after a refusal
            contestants.append(_contestant(loop, name, build(place)))
        except AbsentPeerError as why:
            absent[name] = str(why)
    longer = replace(effort, slice_ns=effort.slice_ns * 5)  # a slow peer leaves cold caches to the next contestant
    raced = race(contestants, [(CITIES, [None] * len(CITIES))], longer)
    times = {name: _per_call(timing, len(CITIES)) for name, timing in raced.items()}
    what = "a whole governed call"
    rows = [versus_floor(what, FLOOR, times["licet"], times[FLOOR], FLOOR_TARGET)]
    for name, target in PEER_TARGETS.items():
        if name in absent:
            rows.append(Row(what, name, target=target, note=f"absent: {absent[name]}"))
        else:
            rows.append(versus_peer(what, name, times["licet"], times[name], target))
    checks = f"… with {CHECKS} checks inside"
    return [*rows, versus_floor(checks, FLOOR, times["checks"], times[FLOOR], CHECKS_TARGET)]


def _contestant(loop: asyncio.AbstractEventLoop, name: str, way: Way) -> Contestant:
    """Make a contestant. One question is fifty calls; the verdict is what ran and what was returned."""
    call = way.call

    async def each(cities: Sequence[str]) -> list[Any]:
        return [await call(ALLOWED, {"city": city}) for city in cities]

    def read(outcomes: list[Any]) -> tuple[list[str], list[Any]]:
        rest = len(ran) % len(CITIES)
        last = [f"{rest} calls too many"] if rest else ran[-len(CITIES) :]
        ran.clear()
        way.forget()
        return last, list(map(way.value, outcomes))

    return Contestant(name, lambda cities: loop.run_until_complete(each(cities)), [CITIES], read)


def _must_refuse(loop: asyncio.AbstractEventLoop, name: str, way: Way) -> None:
    """Check that a contestant refuses a forbidden call; otherwise its time means nothing."""
    try:
        way.value(loop.run_until_complete(way.call(DENIED, {"city": "oslo"})))
    except way.refusal:
        if not ran:
            return
    raise VerdictError(f"{name} does not refuse `{DENIED}`")


def _per_call(timing: Timing, calls: int) -> Timing:
    return Timing(timing.best / calls, timing.median / calls)


def _floor(place: Path) -> Way:
    def arguments(*, city: str) -> dict[str, str]:
        return {"city": city}

    check, allowed, tools = TypeAdapter(arguments).validator.validate_json, frozenset({ALLOWED}), {ALLOWED: noop}
    events: list[bytes] = []
    previous = b""

    async def call(name: str, given: dict[str, Any]) -> Any:
        nonlocal previous
        checked = check(to_json(given), strict=True)
        if name not in allowed:
            raise PermissionError(name)
        event = {"tool": name, "verdict": "granted", "time": time.time(), "previous": previous.hex()}
        line = json.dumps(event).encode()
        previous = hashlib.sha256(line).digest()
        events.append(line)
        return await tools[name](**checked)

    return Way(call, events.clear, refusal=PermissionError)


# licet ---------------------------------------------------------------------------------------------------------------


@tool(name=ALLOWED, needs=["env:read:*"], effect="read_only", sandbox="native")
async def _noop(city: str) -> None:
    """Do nothing."""
    ran.append(city)


@tool(name="checking", needs=["env:read:*"], effect="read_only", sandbox="native")
async def _checking(ctx: Context, city: str) -> None:
    """Only read one variable, again and again; each read is checked."""
    for _ in range(CHECKS):
        if ctx.env.get("LANG") != "C":
            raise AssertionError("the variable is declared and set")
    ran.append(city)


@tool(name=DENIED, needs=["env:read:*"], effect="read_only", sandbox="native")
async def _forbidden(city: str) -> None:
    """Never run: the manifest does not name it."""
    ran.append(city)


@tool(name="waiting", needs=["env:read:*"], effect="read_only", sandbox="native")
async def _waiting(ctx: Context, number: int) -> int:
    """Let other tasks run, twice, with a check between."""
    await asyncio.sleep(0)
    ctx.env.get("LANG")
    await asyncio.sleep(0)
    return number


def _session(place: Path) -> tuple[Session, Callable[[], None]]:
    """A session on memory backends, and a function that empties its ledger."""
    path = place / "agent.yaml"
    path.write_text(json.dumps(MANIFEST))
    gate = Gate(
        load_manifest(path),
        [_noop, _checking, _waiting, _forbidden],
        Backends.memory(environ={"LANG": "C"}),
        workdir=place,
        on_misfit="narrow",
    )
    ledger: Any = gate.ports.ledger
    return gate.session("bench"), ledger.rows.clear


def _licet(place: Path) -> Way:
    session, forget = _session(place)
    return Way(session.call, forget, lambda result: result.unwrap(), Refused)


def _licet_checking(place: Path) -> Way:
    session, forget = _session(place)

    def call(name: str, given: dict[str, Any]) -> Coroutine[Any, Any, Any]:
        return session.call("checking" if name == ALLOWED else name, given)

    def value(result: Any) -> Any:
        checked = [event for event in result.events if str(event.capability).startswith("env:")]
        if result.ok and len(checked) != CHECKS:
            raise VerdictError(f"{len(checked)} checks of {CHECKS} left an event")
        return result.unwrap()

    return Way(call, forget, value, Refused)


# Refused -------------------------------------------------------------------------------------------------------------


# As `licet.tools` has it, but without walls: these would take most of the time.
_reading = tool(
    name="read_file",
    capabilities={"fs_reach": {"read": "from-personality"}},
    effect="read_only",
    sandbox="native",
)(read_file.fn)


def _refusals(loop: asyncio.AbstractEventLoop, place: Path) -> list[Row]:
    """Medians of calls in one session, of a file that may be read and of one that may not, in turn."""
    rows = []
    for what, denies in (("few rules", 1), (f"{DENIES:,} denies", DENIES)):
        session = _reading_session(place, denies)
        allowed, refused = loop.run_until_complete(_in_turn(session))
        rows.append(versus_floor(f"a refused call, {what}", "an allowed one", refused, allowed, REFUSED_TARGET))
    return rows


def _reading_session(place: Path, denies: int) -> Session:
    path, file = place / "reader.yaml", place / "a.txt"
    rules = {
        "fs_reach": {"read": [str(place)]},
        "deny": [f"fs:read:{place}/denied/{number}" for number in range(denies)],
    }
    native = {"tools": ["read_file"], "native": ["read_file"]}
    path.write_text(json.dumps({"agent": "bench", "capabilities": {**native, **rules}}))
    backends = Backends.memory(files={str(file): "hello"})
    return Gate(load_manifest(path), [_reading], backends, workdir=place).session("bench")


async def _in_turn(session: Session) -> tuple[Timing, Timing]:
    took: dict[str, list[float]] = {"a.txt": [], "denied/0": []}
    for _ in range(REFUSALS):
        for path, times in took.items():
            began = time.perf_counter_ns()
            result = await session.call("read_file", {"path": path})
            times.append(time.perf_counter_ns() - began)
            if result.ok is not (path == "a.txt"):
                raise VerdictError(f"{path}: {result.explain()}")
    allowed, refused = (Timing(median(times), median(times)) for times in took.values())
    return allowed, refused


# Thousands at once ---------------------------------------------------------------------------------------------------


def _crowds(loop: asyncio.AbstractEventLoop, place: Path, effort: Effort) -> list[Row]:
    """The same ten thousand calls, all at once and in tens: the extra cost of a call among many.

    The garbage collector is on here, because it walks the objects of all these calls. Objects from before do not count.
    """
    session, forget = _session(place)

    async def many(count: int) -> list[Any]:
        return await session.call_many(("waiting", {"number": number}) for number in range(count))

    async def gathered(count: int) -> list[Any]:
        return await asyncio.gather(*(session.call("waiting", {"number": number}) for number in range(count)))

    async def bare(count: int) -> list[Any]:
        return await asyncio.gather(*map(_bare, range(count)))

    kinds: list[tuple[str, Callable[[int], Coroutine[Any, Any, list[Any]]], Target | None]] = [
        ("call_many", many, CROWD_TARGET),
        ("gather", gathered, CROWD_TARGET),
        ("gather of bare coroutines", bare, None),
    ]
    few = replace(effort, rounds=max(4, effort.rounds // 6), slice_ns=1)  # one pass takes a third of a second
    rows = []
    for name, start, target in kinds:
        contestants = [_crowd(loop, start, count, forget) for count in (FEW, CROWD)]
        with _nothing_to_collect():
            times = race(contestants, [True], few, collecting=True)
        each = {count: _per_call(times[str(count)], CROWD) for count in (FEW, CROWD)}
        rows.append(versus_floor(f"{CROWD:,} calls at once, {name}", f"{FEW} at once", each[CROWD], each[FEW], target))
    return rows


def _crowd(
    loop: asyncio.AbstractEventLoop,
    start: Callable[[int], Coroutine[Any, Any, list[Any]]],
    count: int,
    forget: Callable[[], None],
) -> Contestant:
    """Make this many calls at once, repeated up to ten thousand; checks that results come in the order of the calls."""

    async def all_of_them(count: int) -> list[int]:
        values: list[int] = []
        for _ in range(CROWD // count):
            values += [result.value for result in await start(count)]
            forget()  # ten calls must not pay for the garbage of the tens before them
        return values

    def read(values: list[int]) -> bool:
        return values == list(range(count)) * (CROWD // count)

    return Contestant(str(count), lambda count: loop.run_until_complete(all_of_them(count)), [count], read)


class _Bare(NamedTuple):
    value: int


async def _bare(number: int) -> _Bare:
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    return _Bare(number)


@contextmanager
def _nothing_to_collect() -> Iterator[None]:
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()
