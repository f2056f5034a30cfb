"""Python that a model wrote, in its component: results, errors, output, files, fetch and the other handles."""

import json
import re
from typing import Any

import pytest

from licet.declare import wasm
from licet.wasm.python.guest.absent import MODULES

from .python_component import FakeHost, Runner, shared_runner


@pytest.fixture(scope="session")
def run() -> Runner:
    return shared_runner()


RESULTS: dict[str, tuple[str, Any]] = {
    "the last expression": ("x = 2\nx * 21", 42),
    "a statement at the end": ("x = 2", None),
    "the variable result": ("result = [1]", [1]),
    "an expression wins over the variable": ("result = 1\n2", 2),
    "nothing": ("", None),
    "a comment": ("# only this", None),
    "the data": ("data['n'] + 1", 8),
    "tuples and keys": ("{1: (2, 3), None: True}", {"1": [2, 3], "null": True}),
    "a key that is not text": ("{(1, 2): 3}", {"(1, 2)": 3}),
    "a value that is not JSON": ("{1}", "{1}"),
    "inside another": ("[1, b'x', {'a': {2}}]", [1, "b'x'", {"a": "{2}"}]),
    "not a number": ("[float('nan'), float('inf'), -float('inf')]", ["nan", "inf", "-inf"]),
    "a cycle": ("a = [1]\na.append(a)\na", [1, "<the same value again: a cycle>"]),
    "a lone surrogate": ("'\\ud800'", "?"),
    "a class of the code": ("class A:\n    def __repr__(self): return 'an A'\nA()", "an A"),
    "a dataclass": ("from dataclasses import dataclass\n@dataclass\nclass P:\n    x: int\nP(1)", "P(x=1)"),
    "an await at the top": (
        "import asyncio\nawait asyncio.gather(asyncio.sleep(0, 1), asyncio.sleep(0.001, 2))",
        [1, 2],
    ),
    "a coroutine": ("async def main(): return 5\nmain()", 5),
    "asyncio.run": (
        "import asyncio\nasync def main(): return await asyncio.to_thread(len, 'ab')\nasyncio.run(main())",
        2,
    ),
    "an executor": (
        (
            "from concurrent.futures import ThreadPoolExecutor\nwith ThreadPoolExecutor() as pool:\n"
            "    found = list(pool.map(len, ['a', 'bc']))\nfound"
        ),
        [1, 2],
    ),
    "the end of a program": ("import sys\nprint(1)\nsys.exit()\n2", None),
    "exit without import": ("exit(0)", None),
    "the name of the module": ("__name__", "__main__"),
    "source of a function": ("import inspect\ndef f(): return 1\ninspect.getsource(f)", "def f(): return 1\n"),
    "a time zone": (
        (
            "from datetime import datetime\nfrom zoneinfo import ZoneInfo\n"
            "datetime(2024, 7, 1, tzinfo=ZoneInfo('Europe/Berlin')).isoformat()"
        ),
        "2024-07-01T00:00:00+02:00",
    ),
    "a database": ("import sqlite3\nsqlite3.connect(':memory:').execute('select 1 + 1').fetchall()", [[2]]),
    "deep calls": (
        "import sys\nsys.setrecursionlimit(10**6)\ndef f(n): return n and f(n - 1) + 1\nf(8000)",
        8000,
    ),
}


@pytest.mark.parametrize("name", RESULTS)
def test_the_result_is_the_value_of_the_code(run: Runner, name: str) -> None:
    code, expected = RESULTS[name]
    answer = run(code, {"n": 7})
    assert (answer["result"], answer["error"]) == (expected, None)
    assert set(answer) == {"result", "stdout", "stderr", "error"}


BOUNDED = {
    "a long repr": ("b'x' * 100_000", r"b'x+… \(100003 characters\)"),
    "a number with many digits": ("10 ** 5000", "<int without a repr: ValueError: Exceeds the limit .*>"),
    "a repr that fails": ("class A:\n    def __repr__(self): 1/0\nA()", "<A without a repr: ZeroDivisionError: .*>"),
}


@pytest.mark.parametrize("name", BOUNDED)
def test_a_value_that_has_no_short_repr_is_described(run: Runner, name: str) -> None:
    code, expected = BOUNDED[name]
    answer = run(code)
    assert re.fullmatch(expected, answer["result"])
    assert len(answer["result"]) < 20_000


def test_a_value_of_many_levels_is_cut(run: Runner) -> None:
    answer = run("x = 1\nfor _ in range(100_000): x = [x]\nx")
    assert answer["error"] is None
    assert json.dumps(answer["result"]).endswith('"<more than 100 levels deep>"' + "]" * 100)


ERRORS = {
    "an error in a function": (
        "def f(x):\n    return 1 / x\n\nf(0)",
        (
            'Traceback (most recent call last):\n  File "<code>", line 4, in <module>\n    f(0)\n    ~^^^\n'
            '  File "<code>", line 2, in f\n    return 1 / x\n           ~~^~~\nZeroDivisionError: division by zero'
        ),
    ),
    "wrong syntax": (
        "x = 1\ny = = 2",
        '  File "<code>", line 2\n    y = = 2\n        ^\nSyntaxError: invalid syntax',
    ),
    "an error of the host": (
        "def f():\n    open('missing')\nf()",
        (
            'Traceback (most recent call last):\n  File "<code>", line 3, in <module>\n    f()\n    ~^^\n'
            "  File \"<code>\", line 2, in f\n    open('missing')\n    ~~~~^^^^^^^^^^^\n"
            "FileNotFoundError: [Errno 44] No such file or directory: 'missing'"
        ),
    ),
    "an error while another is handled": (
        "try:\n    open('missing')\nexcept OSError:\n    {}['a']",
        (
            "Traceback (most recent call last):\n  File \"<code>\", line 2, in <module>\n    open('missing')\n"
            "    ~~~~^^^^^^^^^^^\nFileNotFoundError: [Errno 44] No such file or directory: 'missing'\n\n"
            "During handling of the above exception, another exception occurred:\n\n"
            "Traceback (most recent call last):\n  File \"<code>\", line 4, in <module>\n    {}['a']\n    ~~^^^^^\n"
            "KeyError: 'a'"
        ),
    ),
    "an exit with a status": (
        "import sys\nsys.exit(3)",
        (
            'Traceback (most recent call last):\n  File "<code>", line 2, in <module>\n    sys.exit(3)\n'
            "    ~~~~~~~~^^^\nSystemExit: 3"
        ),
    ),
    "an interruption": (
        "raise KeyboardInterrupt",
        (
            'Traceback (most recent call last):\n  File "<code>", line 1, in <module>\n    raise KeyboardInterrupt\n'
            "KeyboardInterrupt"
        ),
    ),
    "an error under await": (
        "import asyncio\nasync def f():\n    await asyncio.sleep(0)\n    1 / 0\nawait f()",
        (
            'Traceback (most recent call last):\n  File "<code>", line 5, in <module>\n    await f()\n'
            '  File "<code>", line 4, in f\n    1 / 0\n    ~~^~~\nZeroDivisionError: division by zero'
        ),
    ),
}


@pytest.mark.parametrize("name", ERRORS)
def test_an_error_is_the_traceback_of_the_code_alone(run: Runner, name: str) -> None:
    code, expected = ERRORS[name]
    answer = run(code)
    assert answer["error"] == expected
    assert answer["result"] is None


HINTS = {
    "a package": ("import numpy", "ModuleNotFoundError: No module named 'numpy'; use math"),
    "what can be imported": ("import nowhere", f"What can be imported, with submodules: {', '.join(MODULES)}"),
    "ctypes": ("import ctypes", "there is no native code here"),
    "requests": ("import requests", "use fetch(url)"),
    "a socket": ("import socket\nsocket.create_connection(('a', 1))", "there are no sockets here: use fetch(url)"),
    "a process": ("import subprocess\nsubprocess.run(['ls'])", "use ctx.process.spawn(name, [arguments])"),
    "a shell": ("import os\nos.system('ls')", "use ctx.process.spawn(name, [arguments])"),
    "a thread": ("import threading\nthreading.Thread(target=print).start()", "there are no threads here"),
    "input": ("input('?')", "there is no input here: the data of the call is in `data`"),
    "a temporary file": ("import tempfile\ntempfile.NamedTemporaryFile()", "there are no temporary files here"),
    "a task that never ends": (
        "import asyncio\nawait asyncio.Event().wait()",
        "waits for something that cannot happen",
    ),
    "a mode that is none": ("open('a', 'rw')", "ValueError: invalid mode: 'rw'"),
    "writing what was opened for reading": ("open('a.txt').write('b')", "UnsupportedOperation: not writable"),
    "reading what was opened for writing": ("open('a.txt', 'wb').read()", "UnsupportedOperation: not readable"),
    "making what is there": ("open('a.txt', 'x')", "FileExistsError"),
    "a directory": ("open('.')", "IsADirectoryError: [Errno 31] Is a directory: '.'"),
    "a file beyond the grant": (
        "open('/etc/passwd')",
        "PermissionError: PATH_NOT_REACHABLE: not permitted for /etc/passwd",
    ),
    "a write that is refused": ("with open('/a', 'w') as f: f.write('b')", "PermissionError: PATH_NOT_REACHABLE"),
    "a write that is refused after the code": (
        "f = open('/a', 'w')\nf.write('b')",
        "PermissionError: PATH_NOT_REACHABLE",
    ),
    "a write that nobody closes": ("open('/a', 'w').write('b')", "PermissionError: PATH_NOT_REACHABLE"),
    "a host beyond the grant": (
        "fetch('https://other.test/')",
        "PermissionError: HOST_NOT_ALLOWED: https://other.test/ is",
    ),
    "a status": (
        "fetch('https://allowed.test/missing').raise_for_status()",
        "OSError: https://allowed.test/missing answered 404",
    ),
    "urlopen": (
        "import urllib.request as r\nr.urlopen('https://allowed.test/missing')",
        "HTTPError: HTTP Error 404: Not Found",
    ),
    "an environment variable": ("import os\nos.environ['SECRET']", 'KeyError: "SECRET: ENV_NOT_ALLOWED: SECRET is not'),
}


@pytest.mark.parametrize("name", HINTS)
def test_what_does_not_work_says_why_and_what_to_use(run: Runner, name: str) -> None:
    code, expected = HINTS[name]
    answer = run(code, host=FakeHost({"a.txt": b"a"}))
    assert expected in answer["error"]
    assert "guest" not in answer["error"]


def test_a_refusal_has_the_code_of_the_host(run: Runner) -> None:
    code = "try:\n    ctx.fs.read('/a')\nexcept PermissionError as refusal:\n    result = refusal.code"
    assert run(code)["result"] == "PATH_NOT_REACHABLE"


def test_output_is_returned_and_cut(run: Runner) -> None:
    answer = run("import sys\nprint('é', 1)\nsys.stdout.buffer.write(b'\\xff')\nprint('e', file=sys.stderr)\n1 / 0")
    assert (answer["stdout"], answer["stderr"]) == ("é 1\n\ufffd", "e\n")
    long = run("import sys\nprint('ü' * 200_000)\nfor _ in range(600): sys.stderr.write('x' * 1000)")
    assert long["stdout"].startswith("ü" * 131_072)
    assert long["stdout"].endswith("\n[stdout was cut: this is the beginning, 262144 of 400001 bytes]\n")
    assert long["stderr"].endswith("\n[stderr was cut: this is the beginning, 262144 of 600000 bytes]\n")


FILES: dict[str, tuple[str, Any]] = {
    "text": ("with open('n', 'w') as f: f.write('é\\n')\nopen('n').read()", "é\n"),
    "bytes": ("with open('n', 'wb') as f: f.write(bytes([0, 255]))\nopen('n', 'rb').read().hex()", "00ff"),
    "lines": ("[line for line in open('a.txt')]", ["one\n", "two\n"]),
    "appending": ("open('a.txt', 'a').write('three')\nopen('a.txt').read()", "one\ntwo\nthree"),
    "appending to nothing": ("open('n', 'a').write('x')\nopen('n').read()", "x"),
    "updating": ("with open('a.txt', 'r+') as f:\n    f.write('ONE')\nopen('a.txt').read()", "ONE\ntwo\n"),
    "a flush": ("f = open('n', 'w')\nf.write('x')\nf.flush()\nopen('n').read()", "x"),
    "a file in a cycle": (
        (
            "import gc\ndef f():\n    file = open('n', 'w')\n    file.write('x')\n    f.me = [file]\n"
            "    f.me.append(f.me)\nf()\ndel f.me\ngc.collect()\nopen('n').read()"
        ),
        "x",
    ),
    "an empty file": ("open('n', 'w').close()\nctx.fs.exists('n')", True),
    "line ends": ("open('n', 'w', newline='').write('a\\r\\n')\nopen('n', newline='').read()", "a\r\n"),
    "an encoding": ("open('n', 'w', encoding='utf-16').write('a')\nopen('n', encoding='utf-16').read()", "a"),
    "pathlib": (
        (
            "from pathlib import Path\np = Path('d') / 'x.txt'\np.write_text('y')\n"
            "[p.read_text(), p.exists(), Path('no').exists(), p.stat().st_size, sorted(map(str, Path('.').iterdir()))]"
        ),
        ["y", True, False, 1, ["a.txt", "d"]],
    ),
    "globs": (
        "import glob\nfrom pathlib import Path\n[glob.glob('*.txt'), [*map(str, Path('.').rglob('b*'))]]",
        [["a.txt"], ["d/b"]],
    ),
    "os": (
        (
            "import os\nos.rename('a.txt', 'b.txt')\nos.makedirs('e/f', exist_ok=True)\nos.remove('d/b')\n"
            "[os.listdir(), os.path.isfile('b.txt'), os.path.isdir('e'), os.path.getsize('b.txt'), os.getcwd()]"
        ),
        [["b.txt", "e"], True, True, 8, "."],
    ),
    "walking": ("import os\n[*os.walk('.')]", [[".", ["d"], ["a.txt"]], ["./d", [], ["b"]]]),
    "copying": ("import shutil\nshutil.copy('a.txt', 'c')\nopen('c').read()", "one\ntwo\n"),
    "an archive": (
        (
            "import io, tarfile, zipfile\nwith zipfile.ZipFile('z', 'w') as z: z.write('a.txt')\n"
            "with tarfile.open('t', 'w:gz') as t: t.add('a.txt')\n"
            "[zipfile.ZipFile('z').read('a.txt').decode(), tarfile.open('t').getnames()]"
        ),
        ["one\ntwo\n", ["a.txt"]],
    ),
    "rows": (
        "import csv\nwith open('n', 'w') as f: csv.writer(f).writerow([1, 'a,b'])\n[*csv.reader(open('n'))]",
        [["1", "a,b"]],
    ),
    "the handle": (
        (
            "ctx.fs.write('n', 'x')\nctx.fs.write('m', b'\\xff')\nctx.fs.rename('m', 'o')\nctx.fs.delete('a.txt')\n"
            "ctx.fs.mkdir('k')\n"
            "[ctx.fs.read('n'), ctx.fs.read_bytes('o').hex(), ctx.fs.list(), ctx.fs.stat('k').is_dir]"
        ),
        ["x", "ff", ["d", "k", "n", "o"], True],
    ),
}


@pytest.mark.parametrize("name", FILES)
def test_files_go_through_the_host(run: Runner, name: str) -> None:
    code, expected = FILES[name]
    host = FakeHost({"a.txt": b"one\ntwo\n", "d/b": b""})
    answer = run(code, host=host)
    assert (answer["result"], answer["error"]) == (expected, None)
    assert {op.partition(".")[0] for op, _ in host.asked} == {"fs"}


HANDLES: dict[str, tuple[str, Any, tuple[str, dict[str, Any]]]] = {
    "fetch": (
        (
            "r = fetch('https://allowed.test/a', params={'q': 1}, headers={'X-A': 'b'})\n"
            "[r.status, r.ok, r.url, r.headers['CONTENT-TYPE'], r.json()['method']]"
        ),
        [200, True, "https://allowed.test/a?q=1", "application/json", "GET"],
        ("fetch", {"url": "https://allowed.test/a?q=1", "method": "GET", "headers": [["X-A", "b"]], "redirects": True}),
    ),
    "posting JSON": (
        "ctx.fetch('https://allowed.test/', 'POST', json={'a': None}).status",
        200,
        ("fetch", {"url": "https://allowed.test/", "method": "POST", "json": {"a": None}, "redirects": True}),
    ),
    "posting bytes": (
        "ctx.fetch('https://allowed.test/bytes', 'PUT', body=b'\\xff', timeout=2).content.hex()",
        "ff00",
        (
            "fetch",
            {"url": "https://allowed.test/bytes", "method": "PUT", "base64": "/w==", "timeout": 2, "redirects": True},
        ),
    ),
    "urlopen": (
        "import json, urllib.request\nr = urllib.request.urlopen('https://allowed.test/')\n[r.status, json.load(r)]",
        [200, {"method": "GET", "redirects": True}],
        ("fetch", {"url": "https://allowed.test/", "method": "GET", "redirects": True}),
    ),
    "a value that stays": (
        "ctx.kv.set('a', [1], ttl_seconds=9)\n[ctx.kv.get('a'), ctx.kv.get('b', 2), ctx.kv.list()]",
        [[1], 2, ["a"]],
        ("kv.set", {"key": "a", "value": [1], "ttl_seconds": 9}),
    ),
    "a value of another kind": (
        "notes = ctx.kv.of('notes')\nnotes.set('a', None)\nnotes.delete('a')",
        False,
        ("kv.set", {"key": "a", "value": None, "kind": "notes"}),
    ),
    "a secret": (
        "[ctx.secrets.get('A'), ctx.secrets.ref('A')]",
        ["value of A", "«A»"],
        ("secrets.get", {"reference": "A"}),
    ),
    "the environment": (
        "import os\n[ctx.env.get('CITY'), ctx.env.get('NO', 'x'), os.environ['CITY'], os.environ.get('SECRET')]",
        ["Oslo", "x", "Oslo", None],
        ("env.get", {"name": "CITY"}),
    ),
    "a program": (
        "ended = ctx.process.spawn('git', ['log'], stdin='x')\n[ended.exit_code, ended.stdout]",
        [3, "git log x"],
        ("process.spawn", {"name": "git", "args": ["log"], "stdin": "x"}),
    ),
    "a charge": (
        "from decimal import Decimal\nctx.charge(Decimal('0.10'))",
        None,
        ("charge", {"amount": "0.10"}),
    ),
}


@pytest.mark.parametrize("name", HANDLES)
def test_each_handle_asks_the_host(run: Runner, name: str) -> None:
    code, expected, asked = HANDLES[name]
    host = FakeHost()
    answer = run(code, host=host)
    assert (answer["result"], answer["error"]) == (expected, None)
    assert host.asked[0] == asked


QUIET = (
    "import argparse, datetime, email.message, gettext, inspect, linecache, locale, logging, mimetypes, platform, sys\n"
    "import time, traceback, unittest, uuid, warnings, zoneinfo\n"
    "argparse.ArgumentParser().format_help(); mimetypes.guess_type('a.html'); platform.platform(); uuid.uuid1()\n"
    "locale.getpreferredencoding(); warnings.warn('w'); logging.error('e'); time.localtime()\n"
    "zoneinfo.ZoneInfo('UTC')\n"
    "inspect.getsource(inspect.currentframe()); linecache.getline('/python/os.py', 1); help(len)\n"
    "unittest.TextTestRunner().run(unittest.TestSuite())\n"
    "try: datetime.datetime.strptime('a', 'b')\n"
    "except ValueError: traceback.print_exc()"
)


def test_the_library_asks_the_host_for_nothing_by_itself(run: Runner) -> None:
    host = FakeHost()
    answer = run(QUIET, host=host)
    assert (answer["error"], host.asked) == (None, [])


def test_every_module_of_the_list_can_be_imported_and_is_named_to_the_model(run: Runner) -> None:
    answer = run("import importlib\n[importlib.import_module(name).__name__ for name in data]", MODULES)
    assert answer["result"] == [*MODULES]
    assert tuple(wasm.MODULES.split()) == MODULES
    assert wasm.MODULES in wasm.DESCRIPTION
    assert len(wasm.DESCRIPTION.splitlines()) <= 25


def test_random_values_differ_between_calls(run: Runner) -> None:
    code = (
        "import os, random, secrets, uuid\n"
        "[random.random(), random.Random().random(), secrets.token_hex(), os.urandom(9).hex(), "
        "str(uuid.uuid4()), str(uuid.uuid1()), random.SystemRandom().random()]"
    )
    first, second = run(code)["result"], run(code)["result"]
    assert [one for one, other in zip(first, second, strict=True) if one == other] == []


def test_nothing_of_one_call_is_visible_to_the_next(run: Runner) -> None:
    left = "import builtins, json, sys\njson.left = builtins.left = sys.left = left = 1\nopen = None"
    assert run(left)["error"] is None
    seen = "import builtins, json, sys\n[hasattr(one, 'left') for one in (json, builtins, sys)]"
    assert run(f"{seen} + ['left' in globals(), open is None]")["result"] == [False] * 5
