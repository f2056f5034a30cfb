"""Guessed declarations of functions from the calls in their source, with bounded work."""

import pytest

from licet.policy_files.source.guess import Category, Guess, guess_tools
from licet.policy_files.source.text import SourceText, parse

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
    text = parse(source.encode(), "old.py")
    assert isinstance(text, SourceText)
    return {guess.function: guess for guess in guess_tools(text)}


def touched(body: str) -> dict[Category, list[str]]:
    """What one function with this body touches, by category."""
    guess = guesses(f"{HEAD}\ndef f(arg, other=1):\n    {body}\n")["f"]
    found = {touch.category: guess.scopes(touch.category) for touch in guess.touches}
    return dict(sorted(found.items()))


@pytest.mark.parametrize(
    ("body", "expected"),
    [
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
        ("arg.read_text()", {"fs_reach.read": ["*"]}),
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
        ("with httpx.Client(base_url='https://b.test') as c: c.get(arg)", {"network": ["b.test"]}),
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
    ],
    ids=str,
)
def test_what_a_call_touches(body: str, expected: dict[Category, list[str]]) -> None:
    assert touched(body) == expected


@pytest.mark.parametrize(
    ("body", "effect"),
    [
        ("open('/a')", "read_only"),
        ("requests.get('https://a.test/')", "read_only"),
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
