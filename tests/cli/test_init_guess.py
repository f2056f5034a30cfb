"""Guessed declarations of functions from the calls in their source, with bounded work."""

from pathlib import Path

import pytest

from licet.lint.linter import Category, Guess, Lint, guess_tools, propose
from licet.source.source_files import Project, SourceFile

HEAD = """
import asyncio, glob, httpx, io, os, pathlib, requests, shutil, sqlite3, subprocess, urllib.request
import subprocess as sp
from os import environ, getenv
from pathlib import Path
from subprocess import run
BASE = "https://api.weather.gov"
FOLDER = Path("/srv/reports")
NAMES = ["git", "status"]
"""


def guesses(source: str) -> dict[str, Guess]:
    file = Project(str, texts={"old.py": source.encode()}).read("old.py")
    assert isinstance(file, SourceFile)
    return {guess.function: guess for guess in guess_tools(file)}


def touched(body: str) -> dict[Category, list[str]]:
    """What one function with this body touches, by category."""
    guess = guesses(f"{HEAD}\ndef f(arg, other=1):\n    {body}\n")["f"]
    found = {touch.category: guess.scopes(touch.category) for touch in guess.touches}
    return dict(sorted(found.items()))


TOUCHED: list[tuple[str, dict[Category, list[str]]]] = [
    ("return arg + 1", {}),
    ("open('/etc/hosts')", {"fs_reach.read": ["/etc/hosts"]}),
    ("open('data/a.csv').read()", {"fs_reach.read": ["${workdir}/data/a.csv"]}),
    ("io.open('~/x', mode='rb')", {"fs_reach.read": ["~/x"]}),
    ("open(file='/a/b', mode='w')", {"fs_reach.write": ["/a/b"]}),
    ("open('/a/b', 'r+')", {"fs_reach.read": ["/a/b"], "fs_reach.write": ["/a/b"]}),
    ("open('/a/b', arg)", {"fs_reach.read": ["/a/b"], "fs_reach.write": ["/a/b"]}),
    ("open(f'/srv/in/{arg}.csv')", {"fs_reach.read": ["/srv/in"]}),
    ("open(f'{arg}.csv')", {"fs_reach.read": ["*"]}),
    ("open('/' + arg)", {"fs_reach.read": ["*"]}),
    ("open('out-%s' % arg)", {"fs_reach.read": ["*"]}),
    ("open('logs/{}'.format(arg))", {"fs_reach.read": ["${workdir}/logs"]}),
    ("open('x' + arg)", {"fs_reach.read": ["${workdir}"]}),
    ("open('../secrets')", {"fs_reach.read": ["*"]}),
    ("open(arg)", {"fs_reach.read": ["*"]}),
    ("Path('/srv/a').read_text()", {"fs_reach.read": ["/srv/a"]}),
    ("(Path('/srv') / 'b' / arg).write_bytes(b'')", {"fs_reach.write": ["/srv/b"]}),
    ("(FOLDER / arg).unlink()", {"fs_reach.write": ["/srv/reports"]}),
    ("Path.home().joinpath('x')", {}),
    ("(Path.home() / 'x').exists()", {"fs_reach.read": ["~/x"]}),
    ("arg.read_text()", {}),
    ("arg.replace('a', 'b')", {}),
    ("'text'.replace('a', 'b')", {}),
    ("word = 'a'; return word.replace('a', 'b')", {}),
    ("os.listdir('/srv')", {"fs_reach.read": ["/srv"]}),
    ("os.remove(os.path.join('/srv', 'a', arg))", {"fs_reach.write": ["/srv/a"]}),
    ("shutil.copy('/a', '/b')", {"fs_reach.read": ["/a"], "fs_reach.write": ["/b"]}),
    ("sqlite3.connect('db.sqlite')", {"fs_reach.write": ["${workdir}/db.sqlite"]}),
    ("requests.get('https://api.example.com/v1')", {"network": ["api.example.com"]}),
    ("requests.get(f'{BASE}/points/{arg}')", {"network": ["api.weather.gov"]}),
    ("requests.get('https://' + arg)", {"network": ["*"]}),
    ("requests.get(f'https://{arg}.example.com/')", {"network": ["*"]}),
    ("requests.get(f'https://api.example.{arg}')", {"network": ["*"]}),
    ("requests.get('https://user:pw@example.com/')", {"network": ["*"]}),
    ("requests.get(arg)", {"network": ["*"]}),
    ("requests.request('DELETE', 'http://a.test:8080/x')", {"network": ["a.test:8080"]}),
    ("url = BASE + '/x'; return httpx.get(url)", {"network": ["api.weather.gov"]}),
    ("with httpx.Client() as c: c.get('https://a.test/')", {"network": ["a.test"]}),
    ("with httpx.Client(base_url='https://b.test') as c: c.get(arg)", {"network": ["*"]}),
    ("with httpx.Client() as c: c.get(arg)", {"network": ["*"]}),
    ("urllib.request.urlopen('https://a.test/x')", {"network": ["a.test"]}),
    (
        "r = urllib.request.Request('https://a.test/x', data=b''); return urllib.request.urlopen(r)",
        {"network": ["a.test"]},
    ),
    ("arg.get('key')", {}),
    ("subprocess.run(['git', 'log'])", {"process": ["git"]}),
    ("sp.check_output(('/usr/bin/grep', arg))", {"process": ["/usr/bin/grep"]}),
    ("run(['git'] + arg)", {"process": ["git"]}),
    ("run(NAMES)", {"process": ["git"]}),
    ("run(arg)", {"process": ["*"]}),
    ("run('git log', shell=True)", {"process": ["/bin/sh"]}),
    ("os.system('ls')", {"process": ["/bin/sh"]}),
    ("asyncio.create_subprocess_exec('npm', 'ci')", {"process": ["npm"]}),
    ("os.environ['LANG']", {"env": ["LANG"]}),
    ("environ.get('LANG', '')", {"env": ["LANG"]}),
    ("getenv('LANG')", {"env": ["LANG"]}),
    ("os.getenv('WEATHER_API_KEY')", {"secrets": ["WEATHER_API_KEY"]}),
    ("os.environ[arg]", {"env": ["*"]}),
    ("dict(os.environ)", {"env": ["*"]}),
    ("import requests as r; return r.get('https://a.test/')", {"network": ["a.test"]}),
]


@pytest.mark.parametrize(("body", "expected"), TOUCHED, ids=str)
def test_what_a_call_touches(body: str, expected: dict[Category, list[str]]) -> None:
    assert touched(body) == expected


@pytest.mark.parametrize(
    ("body", "effect"),
    [
        ("open('/a')", "read_only"),
        ("requests.get('https://a.test/')", "write_limited"),  # behind walls it is a connection of any method
        ("open('/a', 'a')", "write_limited"),
        ("requests.post('https://a.test/')", "write_limited"),
        ("requests.request(arg, 'https://a.test/')", "write_limited"),
        ("os.unlink('/a')", "full"),
        ("requests.delete('https://a.test/')", "full"),
        ("os.rename('/a', '/b')", "full"),
    ],
)
def test_the_guessed_class_is_the_weakest_that_permits_the_calls(body: str, effect: str) -> None:
    assert guesses(f"{HEAD}\ndef f(arg):\n    {body}\n")["f"].effect == effect


def test_functions_of_the_file_that_are_called_are_included() -> None:
    found = guesses("def a(): _b()\ndef _b(): c()\ndef c(): open('/c')\ndef d(): return a and 1\ndef e(): ...\n")
    assert {name: guess.scopes("fs_reach.read") for name, guess in found.items()} == {
        "a": ["/c"],
        "c": ["/c"],
        "d": ["/c"],
        "e": [],
    }
    assert (found["c"].sandbox, found["e"].sandbox) == ("isolated", "restricted")


def test_an_argument_is_not_the_constant_of_the_same_name() -> None:
    found = guesses("URL = 'https://a.test/'\nimport requests\ndef f(URL): return requests.get(URL)\n")
    assert found["f"].scopes("network") == ["*"]


def test_private_and_decorated_functions_and_methods_are_not_proposed() -> None:
    source = "def _a(): ...\n@cache\ndef b(): ...\nclass C:\n    def d(self): ...\ndef e(): ...\n"
    assert list(guesses(source)) == ["e"]


def test_work_is_linear_in_the_length_of_a_hostile_file() -> None:
    # Each constant repeats the next one 500 times, eight deep: written out, that is longer than any disk.
    wide = "".join("n{} = f'{}'\n".format(i, f"{{n{i + 1}}}" * 500) for i in range(8))
    long_sum = " + ".join(["x"] * 900)
    source = f"import requests\n{wide}a = b\nb = a\ndef f(x):\n    requests.get(n0); open(a); open({long_sum})\n"
    found = guesses(source)["f"]
    assert found.scopes("network") == found.scopes("fs_reach.read") == ["*"]


MORE = [
    "eval(arg)",
    "os.fork()",
    "os.environ.copy()",
    "os.environ['HOME'] + open('/etc/hosts').read()",
    "sorted(arg, key=os.remove)",
    "getattr(os, arg)(other)",
    "import ctypes; ctypes.CDLL(arg)",
    "import tempfile; tempfile.mkdtemp()",
    "import smtplib; smtplib.SMTP('mail.test').sendmail(arg, arg, arg)",
    "import multiprocessing; multiprocessing.Pool()",
    "glob.glob(arg); shutil.rmtree(arg); os.symlink('/a', '/b'); zip_it = shutil.make_archive('/a/b', 'zip')",
    "os.open(arg, os.O_RDWR)",
    "asyncio.open_connection('a.test', 1)",
    "requests.delete(arg); requests.post(arg)",
]


@pytest.mark.parametrize("body", [*(body for body, _ in TOUCHED), *MORE])
def test_lint_accepts_what_init_writes(body: str, tmp_path: Path) -> None:
    file = tmp_path / "old.py"
    file.write_text(f"{HEAD}\ndef f(arg: str, other: int = 1) -> None:\n    {body}\n")
    proposal = propose(file)
    assert proposal is not None
    file.write_text(proposal.after)
    lint = Lint(Project(str))
    lint.add_file(str(file))
    report = lint.report()
    assert len(report.tools) == 1
    assert [str(one) for one in report.findings if one.severity == "error"] == []


def test_lint_accepts_what_init_writes_where_the_module_itself_does_something(tmp_path: Path) -> None:
    (tmp_path / "helper.py").write_text("def save(path):\n    open(path, 'w')\n")
    file = tmp_path / "old.py"
    file.write_text(
        "import helper\nLIMITS = open('/etc/limits').read()\ndef f(arg: str) -> None:\n    helper.save(arg)\n"
    )
    proposal = propose(file)
    assert proposal is not None
    [guess] = proposal.guesses
    assert guess.capabilities == {"fs_reach": {"read": ["/etc/limits"], "write": "from-personality"}}
    file.write_text(proposal.after)
    lint = Lint(Project(str))
    lint.add_file(str(file))
    assert [str(one) for one in lint.report().findings if one.severity == "error"] == []


@pytest.mark.parametrize("name", ["größe", "f" * 129, "名前"])
def test_a_function_whose_name_no_tool_can_have_is_left_out(name: str) -> None:
    source = f"def {name}():\n    pass\n\n\ndef plain():\n    pass\n"
    assert list(guesses(source)) == ["plain"]


def test_a_variable_that_no_secret_reference_can_name_is_no_secret() -> None:
    assert touched("os.environ['A/../TOKEN']") == {"env": ["A/../TOKEN"]}
