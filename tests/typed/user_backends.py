"""Backends as a user writes them: one for each port, with types alone from `licet` and `licet.ports`."""

import io
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from time import monotonic
from typing import BinaryIO

from licet import Backends, Context
from licet.ports import (
    Answered,
    Claim,
    Command,
    Entry,
    Exchange,
    Finished,
    Held,
    Json,
    Layers,
    LedgerUnavailable,
    Level,
    Question,
    Reply,
    Reservation,
    Running,
    SandboxUnavailable,
    Spent,
    Stat,
    Streams,
    TooLarge,
    ToolCall,
    Turn,
    Unavailable,
    Unresolved,
    Usage,
    Walls,
)

MOST = 100
ANY_TIME: Turn = nullcontext()


class VaultSecrets:
    """Secrets of a vault that can be locked."""

    def __init__(self, values: dict[str, str], locked: bool = False) -> None:
        self._values, self._locked = values, locked

    async def get(self, reference: str) -> str | None:
        if self._locked:
            raise Unavailable("the vault is locked: run `vault unlock`")
        return self._values.get(reference)


async def secret_function(reference: str) -> str | None:
    return {"api/token": "t"}.get(reference)


class DictKv:
    """Values in a dictionary."""

    def __init__(self) -> None:
        self._values: dict[tuple[str, str], Json] = {}

    async def get(self, scope: str, key: str) -> Json:
        return self._values.get((scope, key))

    async def set(self, scope: str, key: str, value: Json, ttl_seconds: int | None = None) -> None:
        if len(self._values) >= MOST:
            raise TooLarge("the dictionary is full")
        self._values[scope, key] = value

    async def delete(self, scope: str, key: str) -> bool:
        return self._values.pop((scope, key), None) is not None

    async def list(self, scope: str, prefix: str = "") -> Sequence[str]:
        return sorted(key for known, key in self._values if known == scope and key.startswith(prefix))

    async def clear(self, scope: str) -> None:
        self._values = {known: value for known, value in self._values.items() if known[0] != scope}


class DictFiles:
    """Files in a dictionary; it has no links, so nothing leads out of what is held."""

    in_memory = True

    def __init__(self, files: dict[str, bytes]) -> None:
        self._files = files

    def pin(self, roots: Iterable[str], writable: Callable[[str], bool]) -> None:
        """There are no links to remember."""

    def open(self, path: str, mode: str, held: Held) -> BinaryIO:
        return io.BytesIO(self._files.setdefault(path, b"") if mode != "rb" else self._found(path))

    def write(self, path: str, data: bytes, held: Held, turn: Turn = ANY_TIME) -> None:
        with turn:
            self._files[path] = data

    def stat(self, path: str, held: Held) -> Stat:
        return Stat("file", len(self._found(path)), 0.0, 0o600)

    def list(self, path: str, held: Held) -> list[str]:
        below = path.rstrip("/") + "/"
        return sorted({name[len(below) :].partition("/")[0] for name in self._files if name.startswith(below)})

    def mkdir(self, path: str, held: Held) -> None:
        """Directories come with their files."""

    def delete(self, path: str, held: Held) -> None:
        self._found(path)
        del self._files[path]

    def rename(self, source: str, target: str, held: Held) -> None:
        self._files[target] = self._found(source)
        del self._files[source]

    def _found(self, path: str) -> bytes:
        if path not in self._files:
            raise FileNotFoundError(2, "No such file or directory", path)
        return self._files[path]


class EchoHttp:
    """A network with one name, which answers what it is sent."""

    async def resolve(self, host: str, port: int) -> Sequence[str]:
        if host != "api.example.com":
            raise Unresolved(f"{host} is not known")
        return ["93.184.215.14"]

    @asynccontextmanager
    async def send(self, exchange: Exchange) -> AsyncIterator[Reply]:
        yield Reply(200, (("content-type", "application/json"),), _pieces(exchange.body or b'{"method":"GET"}'))

    async def close(self) -> None:
        """Nothing is open."""


async def _pieces(data: bytes) -> AsyncIterator[bytes]:
    yield data


class NoProcesses:
    """A machine that has one program, and cannot talk to it while it runs."""

    in_memory = True

    def find(self, name: str) -> str | None:
        return f"/usr/bin/{name}" if name == "git" else None

    async def run(self, command: Command, walls: Walls) -> Finished:
        inside = walls.around(command)
        return Finished(0, " ".join(inside.argv).encode(), b"")

    def start(self, command: Command, walls: Walls, streams: Streams) -> AbstractAsyncContextManager[Running]:
        raise Unavailable("programs are run to their end here")


class ListLedger:
    """A ledger that keeps entries until it is full."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []

    async def record(self, entry: Entry) -> None:
        if len(self.entries) >= MOST:
            raise LedgerUnavailable("the list is full")
        self.entries.append(entry)


class CountingBudgets:
    """Budgets that only count calls of this process."""

    def __init__(self) -> None:
        self._calls = 0

    async def usage(self, agent: str, session: str, day: str) -> Usage:
        return Usage(calls=self._calls)

    async def reserve(self, claim: Claim) -> Reservation | None:
        most = claim.budget.max_calls_per_session
        if most is not None and self._calls >= most:
            return None
        self._calls += 1
        return Reservation(f"call-{self._calls}", claim, Spent(calls=self._calls - 1))

    async def settle(self, reservation: Reservation, cost_usd: Decimal) -> None:
        if cost_usd > reservation.claim.cost_usd:
            raise ValueError("more than was set aside")

    async def refund(self, reservation: Reservation) -> None:
        self._calls -= 1


class YesToSmallThings:
    """A person who agrees to calls of one tool."""

    async def ask(self, question: Question) -> Answered:
        small = question.spec.name == "note"
        return Answered("approved" if small else "denied", by=("desk",))


class WallClock:
    """The time of this machine."""

    def now(self) -> datetime:
        return datetime.now(UTC)

    def monotonic(self) -> float:
        return monotonic()


class OpenWalls:
    """Walls that stop nothing: for a machine that is one itself."""

    layers = Layers(("virtual machine",))

    def around(self, command: Command) -> Command:
        return command


class HereSandbox:
    """Runs async tools in this process, for a machine that is thrown away afterwards."""

    def layers(self, level: Level) -> tuple[str, ...]:
        if level == "restricted":
            raise SandboxUnavailable("this machine keeps only `isolated` and `native`")
        return ("virtual machine",)

    def run(self, level: Level, call: ToolCall, context: Context) -> Awaitable[Json]:
        return self._run(call, context)

    async def _run(self, call: ToolCall, context: Context) -> Json:
        arguments = dict(call.arguments)
        if call.tool.context_parameter is not None:
            arguments[call.tool.context_parameter] = context
        answer: Json = await call.tool.fn(**arguments)
        return answer

    def walls(self, held: object) -> Walls:
        return OpenWalls()


def user_backends(files: dict[str, bytes], ledger: ListLedger) -> Backends:
    """All of them together: each fits the port that it is given for."""
    return Backends(
        files=DictFiles(files),
        http=EchoHttp(),
        secrets=VaultSecrets({"api/token": "correct horse"}),
        kv=DictKv(),
        processes=NoProcesses(),
        environ={"LANG": "C"},
        ledger=ledger,
        budgets=CountingBudgets(),
        approver=YesToSmallThings(),
        sandbox=HereSandbox(),
        clock=WallClock(),
    )


def with_functions() -> Backends:
    """Functions do where a port has one method."""

    async def approve(question: Question) -> Answered:
        return Answered("absent")

    return Backends(secrets=secret_function, approver=approve)


def by_name(folder: Path) -> tuple[Backends, Backends]:
    """Parts of a user in place of single ones."""
    in_memory = Backends.memory(
        files={"/srv/a": "text", "/srv/b": b"bytes"},
        secrets={"api/token": "t"},
        kv=DictKv(),
        approver=YesToSmallThings(),
        clock=None,
    )
    here = Backends.local(
        folder,
        secrets=[folder / "secrets", {"A": "1"}, VaultSecrets({}), secret_function],
        http=EchoHttp(),
        ledger=ListLedger(),
        environ={"LANG": "C"},
    )
    return in_memory, here
