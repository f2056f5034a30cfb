"""Attacks by Python that a model wrote: whatever it gets hold of inside the instance, nothing of the host is there.

Each attack on the world is first run by a plain interpreter, where it has to succeed.
"""

import os
import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import wasmtime

from .python_component import Answer, FakeHost, Runner, shared_runner


@pytest.fixture(scope="session")
def run() -> Runner:
    return shared_runner()


CANARY = "yellow-bird-4711"  # what must not be seen
VARIABLE = "LICET_TEST_CANARY"


class World:
    """A file and a variable with the canary, a port that listens, and a path that must not come to exist."""

    def __init__(self, directory: Path) -> None:
        self.file, self.made = directory / "canary", directory / "made"
        self.file.write_text(CANARY)
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.listener.setblocking(False)

    def names(self) -> str:
        port = self.listener.getsockname()[1]
        return f"FILE, MADE, PORT, VARIABLE = {str(self.file)!r}, {str(self.made)!r}, {port}, {VARIABLE!r}\n"

    def was_reached(self, said: str) -> bool:
        try:
            self.listener.accept()[0].close()
        except BlockingIOError:
            return CANARY in said or self.made.exists()
        return True


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    monkeypatch.setenv(VARIABLE, CANARY)
    made = World(tmp_path)
    yield made
    made.listener.close()


ON_THE_WORLD = {
    "a class with os among its globals": (
        "found = [c for c in ().__class__.__base__.__subclasses__() if c.__name__ == '_wrap_close']\n"
        "print(found[0].__init__.__globals__['popen']('cat ' + FILE).read())"
    ),
    "a class of raw files": (
        "import _io\nfound = [c for c in _io._RawIOBase.__subclasses__() if c.__name__ == 'FileIO']\n"
        "print(found[0](FILE).read())"
    ),
    "a shell": "print(__import__('os').system('cp ' + FILE + ' ' + MADE))",
    "a shell by another name": "import os\nprint(os.popen('cat ' + FILE).read())",
    "a child": "import subprocess\nprint(subprocess.check_output(['cat', FILE]))",
    "a child below subprocess": "import posix\nposix.posix_spawn('/bin/cp', ['cp', FILE, MADE], {})\nposix.wait()",
    "a fork": "import posix\nposix.fork() or posix.mkdir(MADE)\nposix.wait()",
    "another program in this process": "import posix\nposix.execv('/bin/cp', ['cp', FILE, MADE])",
    "a descriptor": "import posix\nprint(posix.read(posix.open(FILE, 0), 99))",
    "open of os": "import os\nprint(os.read(os.open(FILE, os.O_RDONLY), 99))",
    "a fresh copy of os": "import sys\ndel sys.modules['os']\nimport os\nprint(os.read(os.open(FILE, 0), 99))",
    "the open below open": "import _io\nprint(_io.open(FILE).read())",
    "open for code": "import _io\nprint(_io.open_code(FILE).read())",
    "open": "print(open(FILE).read())",
    "codecs": "import codecs\nprint(codecs.open(FILE).read())",
    "a loader": ("from importlib.machinery import SourceFileLoader\nprint(SourceFileLoader('x', FILE).get_data(FILE))"),
    "a URL of a file": "from urllib.request import urlopen\nprint(urlopen('file://' + FILE).read())",
    "a line of a file": "import linecache\nprint(linecache.getline(FILE, 1))",
    "a database": "import sqlite3\nsqlite3.connect(MADE).execute('create table t (a)')",
    "an attached database": (
        "import sqlite3\nc = sqlite3.connect(':memory:')\nc.execute('attach ? as o', [MADE])\n"
        "c.execute('create table o.t (a)')"
    ),
    "a write": "open(MADE, 'w').write('x')",
    "a directory": "import posix\nposix.mkdir(MADE)",
    "a link": "import posix\nposix.symlink(FILE, MADE)",
    "a log file": "import logging\nlogging.basicConfig(filename=MADE)\nlogging.error('x')",
    "the variables": "import os\nprint(os.environ.get(VARIABLE), dict(os.environ))",
    "the variables below os": "import posix\nprint(posix.environ)",
    "the variables of the process": "import _io\nprint(_io.FileIO('/proc/self/environ').read())",
    "everything that lives": (
        "import gc\nprint([o for o in gc.get_objects() if isinstance(o, dict) and VARIABLE.encode() in o])\n"
        "import os\nprint([o for o in gc.get_objects() if type(o).__name__ == '_Environ'], os.environ)"
    ),
    "the modules": "import sys\nprint(sys.modules['posix'].environ)",
    "the frames": (
        "import sys\nframe = sys._getframe()\nwhile frame.f_back: frame = frame.f_back\n"
        "print(frame.f_builtins['__import__']('posix').environ, frame.f_builtins['open'](FILE).read())"
    ),
    "the frames of an error": (
        "try: 1 / 0\nexcept Exception as e: print(e.__traceback__.tb_frame.f_builtins['open'](FILE).read())"
    ),
    "ctypes": "import ctypes\nctypes.CDLL(None).mkdir(MADE.encode(), 0o700)",
    "a socket": "import socket\nsocket.create_connection(('127.0.0.1', PORT))",
    "a socket below socket": "import _socket\n_socket.socket(2, 1).connect(('127.0.0.1', PORT))",
    "a client": "import http.client\nhttp.client.HTTPConnection('127.0.0.1', PORT, timeout=0.1).connect()",
    "a URL": "from urllib.request import urlopen\nurlopen(f'http://127.0.0.1:{PORT}', timeout=0.1)",
    "a signal": "import signal, posix\nsignal.signal(14, lambda *_: posix.mkdir(MADE))\nsignal.raise_signal(14)",
    "a pickle": "import pickle, posix\npickle.loads(b'cposix\\nmkdir\\n(V' + MADE.encode() + b'\\ntR.')",
    "a format of an object": "import os\nprint('{0.__init__.__globals__[environ]}'.format(os._wrap_close))",
    "code of one's own": (
        "f = lambda: 0\nf.__code__ = f.__code__.replace(co_consts=(None, 7))\n"
        "exec(compile(\"import posix; posix.mkdir(MADE)\", 'x', 'exec'))"
    ),
}


def natively(code: str) -> str:
    command = [sys.executable, "-I", "-W", "ignore", "-c", code]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    return ended.stdout + ended.stderr


@pytest.mark.sampled(12)
@pytest.mark.parametrize("name", ON_THE_WORLD)
def test_a_plain_interpreter_lets_the_attack_reach_the_world(name: str, world: World) -> None:
    assert world.was_reached(natively(world.names() + ON_THE_WORLD[name]))


@pytest.mark.parametrize("name", ON_THE_WORLD)
def test_an_attack_reaches_nothing_of_the_host(run: Runner, name: str, world: World) -> None:
    host = FakeHost()
    answer = run(world.names() + ON_THE_WORLD[name], host=host)
    assert not world.was_reached(str(answer))
    assert host.files == {}
    assert run("1 + 1")["result"] == 2


def test_code_that_calls_the_host_itself_asks_the_same_host(run: Runner) -> None:
    host = FakeHost()
    code = "import sys\nsys.modules['wit_world'].call('fs.read', '{\"path\": \"/etc/passwd\"}')"
    assert "PATH_NOT_REACHABLE" in run(code, host=host)["error"]
    assert host.asked == [("fs.read", {"path": "/etc/passwd"})]


BROKEN = {
    "the writer of JSON": "import json\njson.dumps = None",
    "the parts of the runner": "import sys\nvars(sys.modules['guest.outcome']).clear()",
    "the modules": "import sys\nsys.modules.clear()\n1 / 0",
    "the builtins": "import builtins\nvars(builtins).clear()",
    "the streams": "import sys\nsys.stdout = sys.stderr = None\n1 / 0",
    "a status that cannot be compared": "class A:\n    def __eq__(self, other): 1 / 0\nraise SystemExit(A())",
    "an error that cannot be changed": "import sys\nraise sys.modules['componentize_py_types'].Err('x')",
}


@pytest.mark.parametrize("name", BROKEN)
def test_code_that_breaks_the_runner_costs_its_own_call_alone(run: Runner, name: str) -> None:
    assert ended(run, BROKEN[name])["error"]
    assert run("1 + 1")["result"] == 2


def ended(run: Runner, code: str) -> Answer:
    """The answer to code, where a trap is an error."""
    try:
        return run(code)
    except (wasmtime.WasmtimeError, wasmtime.Trap) as trap:
        return {"error": str(trap)}


def test_the_instance_has_no_directories_and_no_open_files(run: Runner) -> None:
    code = (
        "import posix\nfound = []\nfor number in range(3, 64):\n    try: found.append(posix.fstat(number))\n"
        "    except OSError: pass\nfor path in ('/', '.', '..', '/proc', '/tmp', '/dev/null'):\n"
        "    try: found.append(posix.stat(path))\n    except OSError: pass\nfound"
    )
    assert run(code)["result"] == []


OUT_OF_FUEL = {
    "a loop": "while True: pass",
    "a loop that catches all": "while True:\n    try:\n        while True: 1 / 0\n    except BaseException: pass",
    "a regular expression": "import re\nre.match('(a+)+$', 'a' * 60 + 'b')",
    "a number to text": "import sys\nsys.set_int_max_str_digits(0)\nstr(7 ** 10_000_000)",
    "text to a number": "import sys\nsys.set_int_max_str_digits(0)\nint('7' * 10_000_000)",
    "a power": "9 ** 9 ** 8",
    "a flood of output": "while True: print('x' * 100_000)",
    "a repr": "class A:\n    def __repr__(self):\n        while True: pass\nA()",
    "a finalizer": "class A:\n    def __del__(self):\n        while True: pass\nA(); 0",
    "the text of an error": "class E(Exception):\n    def __str__(self):\n        while True: pass\nraise E",
    "a hash": "class A:\n    __hash__ = lambda _: 1\n    __eq__ = lambda *_: False\n{A() for _ in range(10**6)}",
}


@pytest.mark.parametrize("name", OUT_OF_FUEL)
def test_work_without_end_ends_with_the_fuel(run: Runner, name: str) -> None:
    with pytest.raises((wasmtime.WasmtimeError, wasmtime.Trap), match="all fuel consumed"):
        run(OUT_OF_FUEL[name], fuel=300_000_000)
    assert run("1 + 1")["result"] == 2


OUT_OF_MEMORY = {
    "a long text": "'a' * 10**9",
    "a list that grows": "x = []\nwhile True: x.append(bytearray(1 << 20))",
    "small objects": "x = None\nwhile True: x = (x, object())",
    "a long range": "list(range(10**8))",
    "an archive bomb": "import zlib\nzlib.decompress(zlib.compress(bytes(1 << 26)) , bufsize=1 << 30)",
    "a number": "1 << 10**10",
}


@pytest.mark.parametrize("name", OUT_OF_MEMORY)
def test_memory_without_end_is_an_error_of_its_own(run: Runner, name: str) -> None:
    answer = run(OUT_OF_MEMORY[name], memory=64 * 1024 * 1024)
    assert answer["error"].endswith("MemoryError") or "OverflowError" in answer["error"]
    assert answer.get("limit") == ("memory" if answer["error"].endswith("MemoryError") else None)
    assert run("1 + 1")["result"] == 2


def test_code_may_catch_a_lack_of_memory_and_go_on(run: Runner) -> None:
    answer = run("try: bytearray(10**9)\nexcept MemoryError: print('much')\n7")
    assert (answer["result"], answer["stdout"]) == (7, "much\n")
    assert "limit" not in answer


RECURSION = {
    "a function": "def f(): return f()\nf()",
    "a function without a limit": "import sys\nsys.setrecursionlimit(10**9)\ndef f(): return f()\nf()",
    "through C": "def f(n): return sorted([1], key=f)\nf(0)",
    "attributes": "class A:\n    def __getattr__(self, name): return getattr(self, name)\nA().x",
    "a repr": "x = []\nfor _ in range(10**5): x = [x]\nrepr(x)",
    "reading JSON": "import json\njson.loads('[' * 10**5)",
    "writing JSON": "import json\nx = []\nfor _ in range(10**5): x = [x]\njson.dumps(x)",
    "source": "eval('(' * 10**5 + ')' * 10**5)",
    "a sum in source": "eval('+'.join('1' * 10**5))",
    "a comparison": "a, b = [], []\na.append(b)\nb.append(a)\na == b",
    "a regular expression": "import re\nre.compile('(' * 10**4 + ')' * 10**4)",
    "a pickle": "import pickle\nx = []\nfor _ in range(10**5): x = [x]\npickle.dumps(x)",
    "errors in errors": "def f():\n    try: 1 / 0\n    finally: f()\nf()",
}


@pytest.mark.parametrize("name", RECURSION)
def test_recursion_without_end_is_an_error_or_a_trap(run: Runner, name: str) -> None:
    answer = ended(run, RECURSION[name])
    assert re.search("RecursionError|too complex to parse|call stack exhausted", answer["error"])
    assert "limit" not in answer
    assert run("1 + 1")["result"] == 2


def test_the_test_itself_has_the_variable(world: World) -> None:
    assert os.environ[VARIABLE] == CANARY
