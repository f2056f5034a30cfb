"""Tools that raise or return hostile objects: the call ends with a result and a receipt."""

import asyncio
import itertools
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any, NoReturn

import pytest

from guard.gates import gate
from licet import Backends, Gate, Result, tool
from licet.backends.ledger.reader import LedgerReader
from licet.backends.ledger.writer import SqliteLedger
from licet.core.decision.decision import Deny
from licet.core.decision.request import Ground, Request
from licet.errors import Refused
from licet.guard.execution import Raised, SandboxUnavailable, Stopped
from licet.guard.ports import Unavailable

LONG = 10**1_000_000


class Lying(Exception):
    """An object whose `__class__` is another class."""

    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        return Raised


class LyingLoudly(Exception):
    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        raise ZeroDivisionError("no class")


class Cut(BaseException):
    """An object whose every attribute raises."""

    def __str__(self) -> str:
        raise KeyboardInterrupt("from __str__")

    __repr__ = __str__

    def __getattribute__(self, name: str) -> NoReturn:
        raise SystemExit(f"from {name}")


class TextOfItsOwn(str):
    __slots__ = ()

    def __format__(self, spec: str) -> NoReturn:
        raise ZeroDivisionError("from __format__")

    def strip(self, *_: Any) -> NoReturn:
        raise ZeroDivisionError("from strip")

    def __getitem__(self, _: Any) -> NoReturn:
        raise ZeroDivisionError("from __getitem__")


class Telling(Exception):
    def __str__(self) -> str:
        return TextOfItsOwn("told")


class Named(type):
    """A metaclass that hides the name of its classes."""

    @property
    def __name__(cls) -> NoReturn:  # type: ignore[override]
        raise ZeroDivisionError("no name")


class Nameless(Exception, metaclass=Named):
    pass


class NoTrace(Exception):
    __traceback__ = property(lambda self: 1 / 0)


class StrangeRefusal(Refused):
    def __init__(self) -> None:
        self.decision = self.code = None  # type: ignore[assignment]


def by_hand(**given: Any) -> Refused:
    """A `Refused` that a tool made itself, with wrong fields."""
    made = Refused.__new__(Refused)
    vars(made).update(given)
    return made


def compiled(name: str) -> Exception:
    """An error from code that names another file as its source."""
    try:
        exec(compile("1 / 0", name, "exec"))
    except ZeroDivisionError as error:
        return error
    raise AssertionError


ASK_AGAIN = Deny(Request("x"), (Ground("TOOL_FAILED", "said by hand"),))
RAISED: dict[str, tuple[Callable[[], BaseException], str]] = {
    "a bare refusal": (lambda: by_hand(), "TOOL_FAILED: Refused"),
    "a refusal of nothing": (lambda: by_hand(decision=None, code="FROZEN", use=None), "TOOL_FAILED: Refused"),
    "a refusal with a strange code": (
        lambda: by_hand(decision=ASK_AGAIN, code=["FROZEN"], use=None),
        "TOOL_FAILED: Refused",
    ),
    "a refusal with strange grounds": (
        lambda: by_hand(decision=Deny(Request("x"), (7,)), code="FROZEN", use=None),  # type: ignore[arg-type]
        "TOOL_FAILED: Refused",
    ),
    "a refusal without grounds": (
        lambda: by_hand(decision=Deny(Request("x"), ()), code="FROZEN", use=None),
        "TOOL_FAILED: Refused",
    ),
    "a refusal with a strange source": (
        lambda: by_hand(decision=Deny(Request("x"), object()), code="FROZEN", use=None),  # type: ignore[arg-type]
        "TOOL_FAILED: Refused",
    ),
    "another class of refusal": (StrangeRefusal, "TOOL_FAILED: StrangeRefusal"),
    "a class that lies": (lambda: Lying("no"), "TOOL_FAILED: Lying: no"),
    "a class that lies loudly": (lambda: LyingLoudly("no"), "TOOL_FAILED: LyingLoudly: no"),
    "attributes that raise": (Cut, "TOOL_FAILED: Cut"),
    "a text of its own": (Telling, "TOOL_FAILED: Telling: told"),
    "a class without a name": (lambda: Nameless("no"), "TOOL_FAILED: Nameless: no"),
    "no traceback": (lambda: NoTrace("no"), "TOOL_FAILED: NoTrace: no"),
    "a long number": (lambda: ValueError(LONG), "TOOL_FAILED: ValueError"),
    "a long text": (lambda: ValueError("x" * 10_000_000), "TOOL_FAILED: ValueError: xxxx"),
    "an interrupt": (lambda: KeyboardInterrupt("mine"), "TOOL_FAILED: KeyboardInterrupt: mine"),
    "an exit": (lambda: SystemExit(3), "TOOL_FAILED: SystemExit: 3"),
    "a cancel": (lambda: asyncio.CancelledError("mine"), "TOOL_FAILED: CancelledError: mine"),
    "a generator's end": (lambda: GeneratorExit("mine"), "TOOL_FAILED: GeneratorExit: mine"),
    "a group": (
        lambda: BaseExceptionGroup("many", [KeyboardInterrupt(), by_hand(), SystemExit()]),
        "TOOL_FAILED: BaseExceptionGroup: many (3 sub-exceptions)",
    ),
    "what an engine says": (lambda: Stopped("LIMIT_TIME", "said by hand"), "TOOL_FAILED: Stopped: said by hand"),
    "that nothing ran": (lambda: SandboxUnavailable("nothing"), "TOOL_FAILED: SandboxUnavailable: nothing"),
    "what a wall says": (lambda: Raised.__new__(Raised), "TOOL_FAILED: Raised"),
    "what a store says": (lambda: Unavailable("nothing"), "TOOL_FAILED: Unavailable: nothing"),
    "code of a device": (lambda: compiled("/dev/zero"), "TOOL_FAILED: ZeroDivisionError: division by zero"),
}


class Endless:
    """An iterable without an end, which is not an iterator."""

    def __iter__(self) -> Any:
        return itertools.count()

    def __getattr__(self, name: str) -> NoReturn:
        raise SystemExit(name)


class EndlessList(list[int]):
    def __iter__(self) -> Any:
        return itertools.count()


def circle() -> list[Any]:
    made: list[Any] = []
    made += [made, made]
    return made


def laughs() -> list[Any]:
    made: list[Any] = ["ha"]
    for _ in range(60):
        made = [made, made]
    return made


def deep() -> list[Any]:
    made: list[Any] = []
    for _ in range(100_000):
        made = [made]
    return made


RETURNED: dict[str, tuple[Callable[[], Any], str]] = {
    "a long number": (lambda: LONG, "an integer of more than 4300 digits"),
    "a long number inside": (lambda: {"a": [1, (LONG,)]}, "an integer of more than 4300 digits"),
    "a long negative number": (lambda: [-LONG], "an integer of more than 4300 digits"),
    "a long number as a key": (lambda: {LONG: 1}, "an integer of more than 4300 digits"),
    "a generator": (lambda: (number for number in range(3)), "it returned a generator: return a list"),
    "an endless iterator inside": (lambda: {"a": itertools.count()}, "an iterator or a generator: make a list of it"),
    "what has no end": (Endless, "what JSON cannot carry: Endless"),
    "a circle": (circle, "it returned what JSON cannot carry"),
    "what grows when written": (laughs, "more than 250000 lists and objects"),
    "one text many times": (lambda: ["x" * 1_000_000] * 1_000, "more than 33554432 bytes"),
    "many levels": (deep, "data in more than 250 levels"),
    "a list that lies": (lambda: EndlessList([1, 2]), ""),
    "a long decimal": (lambda: Decimal("1E+1000000000"), ""),
}


@tool(needs=[], effect="read_only", sandbox="native", cost_usd="0.5")
async def raising(how: str) -> None:
    """Raise something."""
    error = RAISED[how][0]()
    raise error


@tool(needs=[], effect="read_only", sandbox="native", cost_usd="0.5")
def raising_in_a_thread(how: str) -> None:
    """Raise something in a thread."""
    error = RAISED[how][0]()
    raise error


@tool(needs=[], effect="read_only", sandbox="native")
async def returning(how: str) -> Any:
    """Return something."""
    return RETURNED[how][0]()


@tool(needs=[], effect="read_only", sandbox="native")
def returning_in_a_thread(how: str) -> Any:
    """Return something from a thread."""
    return RETURNED[how][0]()


TOOLS = (raising, raising_in_a_thread, returning, returning_in_a_thread)


async def one(at: Gate, name: str, arguments: dict[str, Any]) -> Result:
    async with at.session("s") as session:
        return await session.call(name, arguments)


@pytest.fixture(scope="module")
def opened(store_root: Path) -> Iterator[Gate]:
    """A gate that keeps its receipts in a file."""
    folder = Path(tempfile.mkdtemp(dir=store_root))
    ledger = SqliteLedger(folder / "ledger.sqlite")
    yield gate(folder, *TOOLS, backends=Backends.memory(ledger=ledger), budget={"max_cost_usd": 500})
    ledger.close()


def ended(at: Gate, name: str, how: str) -> tuple[Result, list[str]]:
    """The result of a call, and the kinds of the receipts that are kept of it."""
    result = asyncio.run(one(at, name, {"how": how}))
    assert isinstance(at.ports.ledger, SqliteLedger)
    with LedgerReader(at.ports.ledger.path) as reader:
        kept = [row.kind for row in reader.show(result.receipt)]
    return result, kept


@pytest.mark.parametrize("name", ["raising", "raising_in_a_thread"])
@pytest.mark.parametrize("how", RAISED)
@pytest.mark.sampled(25)
def test_any_error_of_a_tool_becomes_a_result_with_a_receipt(opened: Gate, name: str, how: str) -> None:
    result, kept = ended(opened, name, how)
    assert result.error.startswith(RAISED[how][1])
    assert (result.ok, result.code, kept) == (False, "execution_failed", ["decision", "receipt"])
    assert result.cost_usd == Decimal("0.5")  # it has run, and nothing is given back
    assert result.explain().endswith(result.receipt)


@pytest.mark.parametrize("name", ["returning", "returning_in_a_thread"])
@pytest.mark.parametrize("how", RETURNED)
@pytest.mark.sampled(13)
def test_any_value_of_a_tool_becomes_a_result_with_a_receipt(opened: Gate, name: str, how: str) -> None:
    result, kept = ended(opened, name, how)
    assert RETURNED[how][1] in result.error
    assert result.ok is not bool(RETURNED[how][1])
    assert kept == ["decision", "receipt"]


ARGUMENTS = {
    "a long number": {"how": LONG},
    "a long number inside": {"how": [{"a": LONG}]},
    "an endless iterator": {"how": itertools.count()},
    "what grows when written": {"how": laughs()},
    "many levels": {"how": deep()},
    "a circle": {"how": circle()},
}


@pytest.mark.parametrize("arguments", ARGUMENTS.values(), ids=ARGUMENTS)
def test_arguments_that_take_too_long_to_write_are_refused(tmp_path: Path, arguments: dict[str, Any]) -> None:
    result = asyncio.run(one(gate(tmp_path, returning), "returning", arguments))
    assert (result.code, result.reason) == ("input_invalid", "INPUT_INVALID")


# Ctrl-C of an operator -----------------------------------------------------------------------------------------------

INTERRUPTED = """
import asyncio, json, signal, sys
from pathlib import Path
from licet import Backends, Gate, load_manifest, tool
from licet.backends.ledger.reader import LedgerReader
from licet.backends.ledger.writer import SqliteLedger
from licet.backends.ledger.reader import LedgerReader

def handler(number, frame):
    raise KeyboardInterrupt

@tool(needs=[], effect="read_only", sandbox="native")
async def wait() -> None:
    signal.raise_signal(signal.SIGINT)
    while True:
        await asyncio.sleep(0)

@tool(needs=[], effect="read_only", sandbox="native")
async def compute() -> None:
    signal.raise_signal(signal.SIGINT)
    for _ in range(10**9):
        pass

folder, how, name = Path(sys.argv[1]), sys.argv[2], sys.argv[3]
(folder / "a.json").write_text(json.dumps({"agent": "a", "capabilities": {"tools": ["wait", "compute"],
    "native": ["wait", "compute"]}}))
ledger = SqliteLedger(folder / "ledger.sqlite")
gate = Gate(load_manifest(folder / "a.json"), [wait, compute], Backends.memory(ledger=ledger))

async def main():
    async with gate.session("s") as session:
        print(await session.call(name))

try:
    if how == "asyncio.run":
        asyncio.run(main())
    else:
        if how == "handler":
            signal.signal(signal.SIGINT, handler)
        asyncio.new_event_loop().run_until_complete(main())
except KeyboardInterrupt:
    print("interrupted")
ledger.close()
with LedgerReader(ledger.path) as reader:
    print(*(row.kind for row in reader.list(kind=None)))
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="signals work otherwise there")
@pytest.mark.parametrize(
    ("how", "name"),
    [("asyncio.run", "wait"), ("loop", "wait"), ("loop", "compute"), ("handler", "wait"), ("handler", "compute")],
)
@pytest.mark.sampled(1)
def test_a_ctrl_c_is_raised_to_the_caller_and_leaves_a_receipt(tmp_path: Path, how: str, name: str) -> None:
    command = [sys.executable, "-c", INTERRUPTED, str(tmp_path), how, name]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.stdout, done.stderr) == ("interrupted\nreceipt decision\n", "")
