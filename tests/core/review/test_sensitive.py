"""Which uses a draft leaves to a person, and which are ordinary."""

import pytest

from licet.core.algebra.use import Use
from licet.core.review.sensitive import Whereabouts, is_wide_directory, why_sensitive

WHERE = Whereabouts("/home/me/w", "/home/me")
MANY, KEYS, FILE, DOT = "many things", "keys or credentials", "hold secrets", "dot-file"
NETWORK = "a name of a private network"


@pytest.mark.parametrize(
    ("use", "why"),
    [
        ("fs:read:/", MANY),
        ("fs:read:/etc", MANY),
        ("fs:read:/home", MANY),
        ("fs:write:/home/me", MANY),
        ("fs:read:/etc/passwd", ""),
        ("fs:read:/etc/shadow", FILE),
        ("fs:read:/proc/self/environ", FILE),
        ("fs:read:/proc/self/status", ""),
        ("fs:read:/home/me/.ssh/config", KEYS),
        ("fs:read:/home/me/w/.aws/x", KEYS),
        ("fs:read:/home/me/.config/app", DOT),
        ("fs:read:/home/me/.gitconfig", DOT),
        ("fs:read:/home/me/notes", ""),
        ("fs:read:/home/me/w", ""),
        ("fs:read:/home/me/w/.git/config", ""),
        ("fs:read:/home/me/w/.env", FILE),
        ("fs:read:/home/me/w/.env.local", FILE),
        ("fs:read:/home/me/w/.env.example", ""),
        ("fs:read:/home/me/w/site-packages/certifi/cacert.pem", ""),
        ("fs:read:/home/me/w/.envrc", ""),
        ("fs:read:/home/me/w/server.KEY", FILE),
        ("fs:read:/home/me/w/keys.txt", ""),
        ("fs:read:/home/me2/.config/app", ""),
        ("fs:write:/home/me/w/a", ""),
        ("fs:delete:/home/me/w/a", "a delete"),
        ("network:https:get@example.com:443", ""),
        ("network:https:delete@example.com:443", "a delete"),
        ("network:https:other@example.com:443", "class must be full"),
        ("network:tcp:example.com:5432", ""),
        ("network:http:get@169.254.169.254:80", "a metadata service"),
        ("network:http:get@10.0.0.8:80", "private"),
        ("network:http:get@[::1]:80", "loopback"),
        ("network:http:get@8.8.8.8:80", ""),
        ("network:http:get@localhost:80", NETWORK),
        ("network:http:get@db.internal:80", NETWORK),
        ("secret:read:github/token", "a secret"),
        ("env:read:PATH", ""),
        ("env:read:GITHUB_TOKEN", "a variable"),
        ("env:read:KEYBOARD", ""),
        ("process:exec:/usr/bin/git", ""),
        ("tool:call:read_file", ""),
    ],
)
def test_sensitive_uses(use: str, why: str) -> None:
    found = why_sensitive(Use(use), WHERE)
    assert why in found
    assert bool(found) == bool(why)


def test_a_directory_is_no_file_of_secrets() -> None:
    assert not why_sensitive(Use("fs:read:/home/me/w/.env"), WHERE, {"/home/me/w/.env"})


@pytest.mark.parametrize(
    ("workdir", "home", "path", "wide"),
    [
        ("/app", "/home/me", "/app", False),
        ("/srv", "", "/srv", False),
        ("/srv", "", "/opt", True),
        ("/etc", "/root", "/etc", True),
        ("/", "/root", "/", True),
        ("/home/me", "/home/me", "/home/me", True),
        ("/a/b/c/d", "/home/me", "/a/b/c", True),
        ("/a/b/c/d", "/home/me", "/a/b/e", False),
        ("/w", "/var/home/me", "/var/home", True),
    ],
)
def test_wide_directories(workdir: str, home: str, path: str, wide: bool) -> None:
    assert is_wide_directory(path, Whereabouts(workdir, home)) is wide


def test_in_a_working_directory_that_is_the_home_dot_files_are_sensitive() -> None:
    assert DOT in why_sensitive(Use("fs:read:/home/me/.cache/x"), Whereabouts("/home/me", "/home/me"))


@pytest.mark.parametrize(
    ("path", "short"),
    [
        ("/home/me/w", "${workdir}"),
        ("/home/me/w/a", "${workdir}/a"),
        ("/home/me/wa", "~/wa"),
        ("/home/me", "~"),
        ("/home/mean", "/home/mean"),
    ],
)
def test_short_paths(path: str, short: str) -> None:
    assert WHERE.short(path) == short
