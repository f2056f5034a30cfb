"""A field of a file that people log in with is found in its format, and a message about it never has a value."""

import json
import subprocess
import sys

import pytest

from licet.sandbox.inspection.key_files import format_of, value_in
from licet.sandbox.inspection.key_shapes import CannotPlace
from licet.sandbox.limits import DEEPEST_KEY_FILE

KEY = "aB3dEfGh1JkLmN0pQr"
NETRC = f"""# mine
machine api.test login me password {KEY}
machine other.test
  login you
  password "q \\"uoted"
macdef init
cd /password {KEY}x

default login anonymous password guest
"""

FOUND = [
    ("/h/credentials.json", json.dumps({"a": {"b.c": [{"t": KEY}]}}), "a.b.c.0.t"),
    ("/h/.credentials", json.dumps({"oauth": {"accessToken": KEY}}), "oauth.accessToken"),
    ("/h/c.json", "\ufeff" + json.dumps({"k": KEY}), "k"),
    ("/h/.cargo/credentials.toml", f'[registry]\ntoken = "{KEY}"\n', "registry.token"),
    ("/h/.config/gh/hosts.yml", f"github.com:\n  user: me\n  oauth_token: {KEY}\n", "github.com.oauth_token"),
    ("/h/.npmrc", f"save=false\n//registry.npmjs.org/:_authToken={KEY}\n", "//registry.npmjs.org/:_authToken"),
    ("/h/.netrc", NETRC, "api.test"),
    ("/h/.netrc", NETRC, "api.test.password"),
    ("/w/.env", f"# k\nexport A='{KEY}' # mine\nB=2\n", "A"),
    ("/w/.env.local", f"A={KEY} # mine\n", "A"),
    ("/h/.pypirc", f"[pypi]\nusername = __token__\npassword = {KEY}\n[x]\npassword = no\n", "pypi.password"),
    ("/h/.git-credentials", f"https://me:{KEY}@git.test\nhttps://you:x@other.test\n", "git.test"),
    ("/h/.git-credentials", f"https://{KEY}@git.test:8443\n", "git.test:8443.username"),
]
REFUSED = [
    ("/h/c.json", json.dumps({"k": {"v": KEY}}), "k", "a mapping"),
    ("/h/c.json", json.dumps({"k": 123456789012345678}), "k", "a number"),
    ("/h/c.json", json.dumps({"k": KEY}), "j", "has no `j`"),
    ("/h/c.json", '{"k": "' + KEY, "k", "not JSON"),
    ("/h/c.json", "[" * 100_000, "0", "not JSON"),
    ("/h/c.json", json.dumps({"a.b": KEY, "a": {"b": KEY + "x"}}), "a.b", "2 times"),
    ("/h/c.toml", f"k = {KEY}", "k", "not TOML"),
    ("/h/c.yml", f"k: [{KEY}", "k", "not YAML"),
    ("/h/.npmrc", "//r.test/:_authToken=${NPM_TOKEN}\n", "//r.test/:_authToken", "variable"),
    ("/h/.npmrc", f"//r.test/:_password={KEY}\n", "//r.test/:_password", "base64"),
    ("/h/.netrc", f"machine api.test passwort {KEY}\n", "api.test", "not netrc"),
    ("/h/.pypirc", f"[a]\npassword = {KEY}\n[b]\npassword = no\n", "password", "2 times"),
    ("/w/.env", f"A={KEY}\nA={KEY}y\n", "A", "2 times"),
    ("/w/.env", f"A='{KEY}\n", "A", "not env"),
]


@pytest.mark.parametrize(("path", "text", "field"), FOUND)
def test_a_field_is_found(path: str, text: str, field: str) -> None:
    assert value_in(path, text.encode(), field) == KEY


def test_quotes_of_netrc_are_read() -> None:
    assert value_in("/h/_netrc", NETRC.encode(), "other.test") == 'q "uoted'
    assert value_in("/h/.netrc", NETRC.encode(), "default") == "guest"


@pytest.mark.parametrize(("path", "text", "field", "reason"), REFUSED)
def test_a_field_that_is_no_one_text_is_refused(path: str, text: str, field: str, reason: str) -> None:
    with pytest.raises(CannotPlace, match=reason) as refusal:
        value_in(path, text.encode(), field)
    assert path in str(refusal.value)
    assert KEY not in str(refusal.value)
    assert refusal.value.__cause__ is None


def test_bytes_that_are_no_text_are_refused() -> None:
    with pytest.raises(CannotPlace, match="UTF-8"):
        value_in("/h/c.json", b'{"k": "\xff"}', "k")


def test_a_format_follows_from_the_name_before_the_content() -> None:
    assert [format_of(path, "{}") for path in ("/a/x.TOML", "/a/.netrc", "/a/x", "/a/my.env")] == [
        "TOML", "netrc", "JSON", "env",
    ]  # fmt: skip


DEEP = {
    "/h/a.yml": ("[" * 900_000, "{a: " * 200_000, "- " * 400_000),
    "/h/a.json": ("[" * 900_000, '{"a":' * 200_000),
    "/h/a.toml": ("a = " + "[" * 900_000, "a = " + "{a = " * 200_000),
}
READ = """
from sys import stdin
from licet.sandbox.inspection.key_files import value_in
value_in({!r}, stdin.buffer.read(), "a")
"""


@pytest.mark.parametrize(("path", "text"), [(path, text) for path, texts in DEEP.items() for text in texts])
def test_a_file_that_is_nested_deeply_is_refused(path: str, text: str) -> None:
    """In a process of its own: a parser that calls itself too often ends its process."""
    done = subprocess.run([sys.executable, "-c", READ.format(path)], input=text.encode(), capture_output=True)
    assert done.returncode == 1
    assert b"CannotPlace: " in done.stderr


def test_nesting_within_bounds_is_read() -> None:
    nested = "{a: " * DEEPEST_KEY_FILE + KEY + "}" * DEEPEST_KEY_FILE
    assert value_in("/h/a.yml", nested.encode(), ".".join("a" * DEEPEST_KEY_FILE)) == KEY
    with pytest.raises(CannotPlace):
        value_in("/h/a.yml", f"a: {nested}".encode(), "a")


@pytest.mark.parametrize(
    ("line", "name"),
    [
        ("a b = ", "a b"),
        ("export  A=", "A"),
        ("export = ", "export"),
        ("exported=", "exported"),
        ("x" + " " * 500_000 + "y =", "x" + " " * 500_000 + "y"),
    ],
)
def test_names_of_settings(line: str, name: str) -> None:
    other = "x" + " " * 500_000 + "y"  # not one: there is no value
    assert value_in("/w/.env", f"# no={KEY}x\n;no=\n=no\n{other}\n{line}{KEY}".encode(), name) == KEY
    with pytest.raises(CannotPlace, match="no `"):
        value_in("/w/.env", f"#{line}{KEY}".encode(), name)
