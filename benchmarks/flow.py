"""The overhead of `flow:`: remembering results, making them ready to be searched, and asking where a value comes from.

The floors are what must be done with a result or its text anyway: its SHA-256, `json.loads`, one `str.find` of a text
that is not there. Results are mails, lists of small records, and one long text; in ASCII and in other scripts.
"""

import asyncio
import gc
import hashlib
import json
import random
import tempfile
import tracemalloc
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from benchmarks.harness import Contestant, Effort, Row, Target, Timing, VerdictError, at_most, race, versus_floor
from licet import Backends, Gate, Session, load_manifest, tool
from licet.core.flow.indexed import Indexed, Reading, sought
from licet.core.flow.session_knowledge import Known
from licet.core.policy.flow import ResultLabels

__all__ = ["measure"]

CALL, HAND_OVER, ASKED, MEMORY = at_most(1.1), at_most(0.2), at_most(1.5), at_most(3)
FIRST, FIRST_OTHER = at_most(6), at_most(15)
MB = 1 << 20
CITIES = [f"city {number}" for number in range(50)]
LABELS = ResultLabels(fields=(("id", "trusted"), ("date", "trusted"), ("sender", "identity")))
_OTHER = {"latin": str.maketrans("aeo", "äéö"), "CJK": {ord("a") + at: 0x4E00 + 7 * at for at in range(26)}}


def measure(effort: Effort) -> list[Row]:
    """The rows of this part."""
    quick = effort.processes < Effort.full().processes
    return [*_calls(effort), *_hand_over(effort), *_first(effort), *_asked(effort, (1 if quick else 7) * MB)]


# Whole calls ----------------------------------------------------------------------------------------------------------


@tool(needs=["env:read:*"], effect="read_only", sandbox="native")
async def answers(city: str) -> dict[str, str]:
    """Repeat what it was given."""
    return {"id": city}


def _calls(effort: Effort) -> list[Row]:
    """The same call, in sessions with and without `flow:` in their manifest. Nothing untrusted is read."""
    loop = asyncio.new_event_loop()
    try:
        with tempfile.TemporaryDirectory() as place:
            ways = {name: _session(Path(place), name) for name in ("without flow", "flow")}
            contestants = [_calling(loop, name, *way) for name, way in ways.items()]
            times = race(contestants, [CITIES], effort)
    finally:
        loop.close()
    each = {name: Timing(time.best / len(CITIES), time.median / len(CITIES)) for name, time in times.items()}
    return [versus_floor("a call in an untainted session", "without `flow:`", each["flow"], each["without flow"], CALL)]


def _session(place: Path, name: str) -> tuple[Session, Callable[[], None]]:
    rule = {"args": {"city": {"flow": "to"}}} if name == "flow" else {}
    manifest: dict[str, Any] = {
        "agent": "bench",
        "capabilities": {"tools": {"answers": rule}, "native": ["answers"], "env": ["LANG"]},
    }
    if rule:
        manifest["flow"] = {"preset": "guarded", "results": {"answers": "trusted"}}
    path = place / "agent.yaml"
    path.write_text(json.dumps(manifest))
    backends = Backends.memory(environ={"LANG": "C"})
    gate = Gate(load_manifest(path), [answers], backends, workdir=place, on_misfit="narrow")
    ledger: Any = gate.ports.ledger
    return gate.session("bench", task="go to oslo" if rule else ""), ledger.rows.clear


def _calling(loop: asyncio.AbstractEventLoop, name: str, session: Session, forget: Callable[[], None]) -> Contestant:
    async def each(cities: list[str]) -> list[Any]:
        return [await session.call("answers", {"city": city}) for city in cities]

    def read(results: list[Any]) -> list[str]:
        forget()
        return [result.unwrap()["id"] for result in results]

    return Contestant(name, lambda cities: loop.run_until_complete(each(cities)), [CITIES], read)


# One result -----------------------------------------------------------------------------------------------------------


def _words(count: int, script: str = "") -> list[str]:
    chosen = random.Random(7)
    words = ["".join(chosen.choices("abcdefghijklmnopqrstuvwxyz", k=chosen.randint(2, 9))) for _ in range(2000)]
    return [word.translate(_OTHER.get(script, {})) for word in chosen.choices(words, k=count)]


def _mails(count: int, script: str = "") -> list[dict[str, Any]]:
    words = _words(90 * count, script)
    return [
        {
            "id": number,
            "sender": {"name": " ".join(words[at : at + 2]), "email": f"sender{number}@example.com"},
            "date": f"2026-05-{number % 28 + 1:02}",
            "subject": " ".join(words[at + 2 : at + 10]),
            "body": " ".join(words[at + 10 : at + 90]) + "\nRegards",
        }
        for number, at in enumerate(range(0, 90 * count, 90))
    ]


def _results() -> Mapping[str, tuple[Any, Target]]:
    rows = [{"id": number, "name": word, "open": True} for number, word in enumerate(_words(3000))]
    return {
        "mails": (_mails(200), FIRST),
        "one long text": (" ".join(_words(20_000)), FIRST),
        "small records": (rows, FIRST_OTHER),
        "tiny leaves": ([f"a{number}" for number in range(10_000)], FIRST_OTHER),
        **{f"mails, {script}": (_mails(200, script), FIRST_OTHER) for script in _OTHER},
    }


def _hand_over(effort: Effort) -> list[Row]:
    value = _mails(200)
    text, reading = json.dumps(value).encode(), Reading("r-1", "list_mail", value, labels=LABELS)

    def keep(given: Reading) -> bool:
        Known().remember(given)
        return True

    contestants = [
        Contestant("licet", keep, [reading]),
        Contestant("floor", lambda given: hashlib.sha256(given).digest(), [text]),
    ]
    times = race(contestants, [True], effort)
    return [versus_floor("remembering 100 KB of mails", "their SHA-256", times["licet"], times["floor"], HAND_OVER)]


def _first(effort: Effort) -> list[Row]:
    """The first question about a result, and the memory that it keeps besides the result itself."""
    rows = []
    nowhere = sought("nobody@nowhere.example", "to")
    for name, (value, target) in _results().items():
        text = json.dumps(value, ensure_ascii=False)

        def ask(value: Any) -> bool:
            known = Known()
            known.remember(Reading("r-1", "list_mail", value, {"folder": "inbox"}, LABELS))
            return known.origins_of(nowhere)[0].origin == "unknown"

        contestants = [Contestant("licet", ask, [value]), Contestant("floor", lambda text: json.loads(text), [text])]
        times = race(contestants, [True], effort)
        what = f"the first question about a result, {name}"
        rows.append(versus_floor(what, "json.loads", times["licet"], times["floor"], target))
    return [*rows, _kept()]


def _kept() -> Row:
    value = _mails(1000)
    size = len(json.dumps(value))
    gc.collect()
    tracemalloc.start()
    result = Indexed(Reading("r-1", "list_mail", value, {}, LABELS))
    result.prepare()
    kept = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    return Row("memory of an index of mails", "their text", f"{kept >> 10} KB", f"{size >> 10} KB", kept / size, MEMORY)


# All results ----------------------------------------------------------------------------------------------------------


def _asked(effort: Effort, size: int) -> list[Row]:
    known, texts, left = Known(), list[str](), size
    words = " ".join(_words(20_000))
    while left > 0:
        known.remember(Reading(f"r-{left}", "read_file", words))
        texts.append(words)
        left -= len(words)
    text = "\n".join(texts)
    absent = sought("nobody@nowhere.example", "to")
    if absent is None or len(known.results) != len(texts):
        raise VerdictError("all of it is remembered")
    contestants = [
        Contestant("licet", lambda one: known.origins_of(one)[0].origin == "unknown", [absent]),
        Contestant("floor", lambda one: text.find(one.compared) < 0, [absent]),
    ]
    times = race(contestants, [True], effort)
    what = f"one value asked over {size // MB} MB"
    return [versus_floor(what, "one str.find", times["licet"], times["floor"], ASKED)]
