"""Attacks that are written once and tried three times: without walls, where each must work, and behind both levels.

An attack is a plain function marked with `@attack`, in a module of `attacks.walls`, one for each theme. It names what
it wants as parameters (see `Outside`), raises when something stops it, and returns what it got. Its module is loaded
behind the walls too, so nothing heavy is imported here before it is needed.
"""

import ctypes
import inspect
import json
import os
import re
import select
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from licet.sandbox.kernel import system_calls

if TYPE_CHECKING:
    from licet import Result, Tool

CANARY = "canary-outside-of-the-walls"
BEFORE = "before"
NO_WALLS = "no walls"
_PATIENCE = 300.0  # seconds for what comes at once on a machine that has time

# Somebody else's process of the same user: a secret in its environment, its memory and its open file 100. For each line
# it says what is in its memory now.
_VICTIM = f"""
import ctypes, os, sys
ctypes.CDLL(None).prctl(0x59616D61, ctypes.c_long(-1), 0, 0, 0)  # where Yama asks: anybody may attach
os.dup2(os.open(sys.argv[1], os.O_RDONLY), 100)
memory = ctypes.create_string_buffer({CANARY.encode()!r})
print(ctypes.addressof(memory), flush=True)
for _ in sys.stdin:
    print(memory.value.decode(), flush=True)
"""

_IN_THE_OPEN = """
import importlib.util, json, sys
sys.path[:0] = json.loads(sys.argv[1])
spec = importlib.util.spec_from_file_location("attack_in_the_open", sys.argv[2])
module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
try:
    said = {"value": getattr(module, sys.argv[3])(**json.loads(sys.argv[4]))}
except Exception as error:
    said = {"error": f"{type(error).__name__}: {error}"}
print("\\n" + json.dumps(said), flush=True)
"""

# The same for an attack on a context: a tool at `native`, called as it would be behind walls.
_AT_NATIVE = """
import json, pathlib, sys
sys.path[:0] = json.loads(sys.argv[1])
import importlib.util
spec = importlib.util.spec_from_file_location("attack_in_the_open", sys.argv[2])
sys.modules["attack_in_the_open"] = module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
from attacks.behind_walls import called, made
given = json.loads(sys.argv[4])
result = called(made(getattr(module, sys.argv[3]), **given["made"]), pathlib.Path(given["place"]), "native", given)
said = {"value": result.value} if result.ok else {"error": result.error}
print("\\n" + json.dumps(said), flush=True)
"""


def raw(name: str | int, *arguments: Any) -> int:
    """A system call by its name or number, as any code with ctypes can make it; its error is an OSError."""
    number = system_calls.NUMBERS[system_calls.machine()][name] if isinstance(name, str) else name
    return system_calls.syscall(str(name), number, *(os.fsencode(a) if isinstance(a, str) else a for a in arguments))


def scratch(name: str = "") -> str:
    """A path in the scratch directory of whoever asks."""
    return os.path.join(os.environ["TMPDIR"], name)


def machine_code(code: bytes) -> Callable[..., int]:
    """Code of the processor as a function: what no table of names and no library stands in front of."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    size, read_write_execute, private_anonymous_low = 4096, 7, 0x62
    place = libc.mmap(None, ctypes.c_size_t(size), read_write_execute, private_anonymous_low, -1, ctypes.c_long(0))
    if place in (None, ctypes.c_void_p(-1).value):
        raise OSError(ctypes.get_errno(), "mmap")
    ctypes.memmove(place, code, len(code))
    function: Callable[..., int] = ctypes.CFUNCTYPE(ctypes.c_long)(place)
    return function


# What is said of an attack: whether it worked, told from the value that it returned and from the world around it.
Seen = Callable[[Any, "Outside"], object]


class Attack(NamedTuple):
    """An attack, and what its test has to know."""

    act: Callable[..., Any]
    seen: Seen
    before: "Callable[[Outside], Mapping[str, Any] | None] | None"
    harmful: bool
    needs: Sequence[str]
    how: Mapping[str, Any]


ATTACKS: dict[str, Attack] = {}


def something(value: Any, outside: "Outside") -> object:
    """The attack brought something that is not empty."""
    return value


def holds(text: str) -> Seen:
    """The attack brought something in which there is this text."""
    return lambda value, _: value and text in value


def exactly(wanted: object) -> Seen:
    """The attack brought this."""
    return lambda value, _: value == wanted


def not_negative(value: int | None, outside: "Outside") -> bool:
    """A call of the kernel gave a number that is no error."""
    return value is not None and value >= 0


def changed(value: Any, outside: "Outside") -> bool:
    """The target is no longer what it was."""
    return outside.changed


def ended(value: Any, outside: "Outside") -> bool:
    """The other process was ended."""
    return outside.ended


def arrived(at: str) -> Seen:
    """Something came to a socket that the world around the attack has under this name."""
    return lambda _, outside: outside.arrived(getattr(outside, at))


def has_the_canary(value: Any, outside: "Outside") -> bool:
    """The secret is in what the attack brought."""
    return CANARY in str(value)


def attack(
    seen: Seen = has_the_canary,
    *,
    before: "Callable[[Outside], Mapping[str, Any] | None] | None" = None,
    harmful: bool = False,
    needs: Sequence[str] = (),
    **how: Any,
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Note an attack for the tests; what else can be said of it, `Outside.shows` explains.

    `before` prepares the world around it, and gives arguments. `needs` may name parts of that world in braces. A
    `harmful` one is tried behind walls only: without them it would end the test.
    """

    def note(act: Callable[..., Any]) -> Callable[..., Any]:
        name = f"{act.__module__.rpartition('.')[2]}.{act.__name__}"
        ATTACKS[name] = Attack(act, seen, before, harmful, needs, how)
        return act

    return note


def secret_in_the_environment(outside: "Outside") -> None:
    """Put the canary into the environment of the host, and let workers start anew."""
    from licet.sandbox.workers.pool import close_workers

    outside.set_variable("LICET_TEST_SECRET", CANARY)
    close_workers()


class Outside:
    """What there is on the other side of the walls, made when an attack asks for it, and whether it was reached."""

    server: socket.socket  # one that was prepared for a single attack

    def __init__(self, walls: str, place: Path, landlock: int | None = None) -> None:
        self.walls, self._place, self._landlock = walls, place, landlock
        self.kept = ExitStack()
        self.given: Mapping[str, Any] = {}
        for name in ("out", "granted", "state", "scratch"):
            (place / name).mkdir()
        self._file("granted/file", "granted")
        self._file("agent.yaml", "agent: tester")  # walls have one by which they are built

    def close(self) -> None:
        """End what was started."""
        self.kept.close()

    # What an attack can ask for ---------------------------------------------------------------------------------------

    @property
    def place(self) -> str:
        """The directory of it all, in which the manifest lies too."""
        return str(self._place)

    @property
    def granted(self) -> str:
        """A directory that the tool may read and write: by itself at `isolated`, with handles at `restricted`."""
        return str(self._place / "granted")

    @cached_property
    def secret(self) -> str:
        """A file of which nobody granted anything."""
        return self._file("out/secret", CANARY)

    @cached_property
    def target(self) -> str:
        """A file that somebody could want to change."""
        return self._file("out/target", BEFORE)

    @cached_property
    def readable(self) -> str:
        """A file that may be read."""
        return self._file("readable", BEFORE)

    @cached_property
    def state(self) -> str:
        """A file in the directory in which the host keeps its state."""
        return self._file("state/key", CANARY)

    @property
    def manifest(self) -> str:
        """The policy that the tool is called under."""
        return str(self._place / "agent.yaml")

    @property
    def host(self) -> int:
        """The process that tools are called from."""
        return os.getpid()

    @property
    def pid(self) -> int:
        """A process of somebody else."""
        return self.victim.pid

    @property
    def address(self) -> int:
        """Where that process has a secret in its memory."""
        return self._victim[1]

    @property
    def port(self) -> int:
        """Where somebody listens for TCP."""
        return int(self.listener.getsockname()[1])

    @property
    def udp_port(self) -> int:
        """Where somebody listens for datagrams."""
        return int(self.datagrams.getsockname()[1])

    @property
    def door(self) -> str:
        """A unix socket with a name."""
        return str(self.unix.getsockname())

    # What shows that it was reached -----------------------------------------------------------------------------------

    @property
    def victim(self) -> "subprocess.Popen[str]":
        """The other process."""
        return self._victim[0]

    @cached_property
    def _victim(self) -> "tuple[subprocess.Popen[str], int]":
        command = [sys.executable, "-I", "-S", "-c", _VICTIM, self.secret]
        environment = {**os.environ, "LICET_TEST_SECRET": CANARY}
        pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        process = self.kept.enter_context(subprocess.Popen(command, env=environment, start_new_session=True, **pipes))
        self.kept.callback(process.kill)
        assert process.stdout is not None
        return process, int(process.stdout.readline())

    @cached_property
    def listener(self) -> socket.socket:
        """A server on a loopback address."""
        return self.kept.enter_context(socket.create_server(("127.0.0.1", 0)))

    @cached_property
    def datagrams(self) -> socket.socket:
        """A server for datagrams on a loopback address."""
        server = self.kept.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
        server.bind(("127.0.0.1", 0))
        return server

    @cached_property
    def unix(self) -> socket.socket:
        """A server that has a name in the file system; a short one, for names of sockets are."""
        server = self.kept.enter_context(socket.socket(socket.AF_UNIX))
        name = f"/tmp/licet-{os.getpid()}-{id(self):x}"
        server.bind(name)
        self.kept.callback(os.unlink, name)
        server.listen()
        return server

    @property
    def changed(self) -> bool:
        """Whether the target is no longer what it was."""
        try:
            return Path(self.target).read_text() != BEFORE
        except FileNotFoundError:
            return True

    @property
    def ended(self) -> bool:
        """Whether the other process was ended; where nothing protects it, that is waited for."""
        if self.walls == NO_WALLS:
            self.victim.wait(_PATIENCE)
        return self.victim.poll() is not None

    @property
    def remembered(self) -> str:
        """What the other process has in its memory now, by its own word."""
        assert self.victim.stdin is not None
        assert self.victim.stdout is not None
        self.victim.stdin.write("\n")
        self.victim.stdin.flush()
        return self.victim.stdout.readline().strip()

    def arrived(self, at: socket.socket) -> bool:
        """Whether something came to a socket."""
        return bool(select.select([at], [], [], _PATIENCE if self.walls == NO_WALLS else 0)[0])

    def set_variable(self, name: str, value: str) -> None:
        """Set a variable of the host, as long as the attack takes."""
        import pytest

        patch = pytest.MonkeyPatch()
        self.kept.callback(patch.undo)
        patch.setenv(name, value)

    # The attack itself ------------------------------------------------------------------------------------------------

    def stops(self, name: str) -> None:
        """Check one of the attacks that were noted."""
        one = ATTACKS[name]
        self.given = (one.before(self) if one.before else None) or {}
        needs = [need.format(outside=self) for need in one.needs]
        self.shows(one.act, lambda value: one.seen(value, self), needs=needs, **one.how, **self.given)

    def shows(
        self,
        attack: Callable[..., Any],
        seen: Callable[[Any], object] | None = None,
        *,
        refused: str | None = "PermissionError",
        needs: Sequence[str] = (),
        reuse: bool = False,
        root: bool = False,
        rare: bool = False,
        only_on: str = "",
        at_start: bool = False,
        **given: Any,
    ) -> None:
        """Check that an attack works without walls and not behind them.

        `seen` decides from the value that the attack returned whether it worked; by default, that the canary is in it.
        `refused` is what its error matches behind walls; None if the attack ends normally and gains nothing. `root`
        marks what the system lets only root do, `rare` what some machines let no user do: there only the walls are
        tested. `at_start` marks an attack on what a process gets when it starts: without walls it needs a fresh one.
        """
        import pytest

        if only_on and system_calls.machine() != only_on:
            pytest.skip(f"made of numbers that {only_on} has")
        worked = seen or (lambda value: has_the_canary(value, self))
        made_of: dict[str, Any] = {"needs": [f"fs:*:{self.granted}", *needs], "reuse": reuse}
        arguments = self._arguments(attack, given)
        if self.walls == NO_WALLS:
            if root and os.getuid():
                pytest.skip("the half of root: started by an ordinary user, whom the system does not let do it anyway")
            said = self._without_walls(attack, arguments, made_of, at_start)
            if rare and "error" in said:
                pytest.skip(f"this machine lets nobody do it: {said['error']}")
            assert "error" not in said, said["error"]
            assert worked(said["value"]), said["value"]
            return
        result = called(made(attack, **made_of), self._place, self.walls, {"arguments": arguments}, self._landlock)
        assert not worked(result.value), result.value
        if refused is None:
            assert result.ok, result.error
        else:
            assert not result.ok
            assert re.search(refused, result.error), result.error

    def _arguments(self, attack: Callable[..., Any], given: Mapping[str, Any]) -> dict[str, Any]:
        wanted = [name for name in inspect.signature(attack).parameters if name != "ctx"]
        return {name: given[name] if name in given else getattr(self, name) for name in wanted}

    def _without_walls(
        self, attack: Any, arguments: dict[str, Any], made_of: dict[str, Any], at_start: bool
    ) -> dict[str, Any]:
        """In a process of its own, without anything that stops the attack."""
        import warm

        code, given = _IN_THE_OPEN, arguments
        if "ctx" in inspect.signature(attack).parameters:
            code, given = _AT_NATIVE, {"made": made_of, "place": self.place, "arguments": arguments}
        place = [str(Path(__file__).resolve().parents[1])]
        words = [json.dumps(place), inspect.getfile(attack), attack.__qualname__, json.dumps(given)]
        environment = {**os.environ, "TMPDIR": f"{self.place}/scratch", "LICET_TEST_SECRET": CANARY}
        if at_start:
            pipes: dict[str, Any] = {"stdin": subprocess.DEVNULL, "capture_output": True, "text": True}
            command = [sys.executable, "-c", code, *words]
            ended = subprocess.run(command, env=environment, timeout=_PATIENCE, check=False, close_fds=False, **pipes)
        else:
            ended = warm.run(code, words, env=environment)
        shutil.rmtree(f"{self.place}/scratch", ignore_errors=True)
        if not ended.stdout.strip():
            return {"error": f"ended with {ended.returncode}: {ended.stderr[-2000:]}"}
        said: dict[str, Any] = json.loads(ended.stdout.splitlines()[-1])
        return said

    def _file(self, name: str, content: str) -> str:
        path = self._place / name
        path.write_text(content)
        return str(path)


def made(attack: Callable[..., Any], needs: Sequence[str] = (), reuse: bool = False) -> "Tool":
    """An attack as a tool."""
    from licet import tool

    return tool(needs=list(needs), effect="write_limited", reuse=reuse)(attack)


def called(attack: "Tool", place: Path, level: str, given: Mapping[str, Any], landlock: int | None = None) -> "Result":
    """One call of an attack at a level, by a gate with backends of this machine, or of one with an older Landlock."""
    from sandbox.levels import call, gate, local_backends

    parts = {} if landlock is None else {"sandbox": older_workers(landlock)}
    backends = local_backends(place / "state", **parts)
    at = gate(place, level, attack, backends=backends, private=["127.0.0.0/8"])
    return call(at, attack.name, given["arguments"])


def older_workers(landlock: int) -> Any:
    """Workers as a machine with an older version of Landlock makes them."""
    from msgspec.structs import replace

    from licet.sandbox import probe
    from licet.sandbox.native import InProcess
    from licet.sandbox.workers.engine import Workers

    return Workers(InProcess(), None, lambda: replace(probe.support(), landlock=landlock))
