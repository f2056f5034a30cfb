"""A key is placed where its host reads it and nowhere else, and its stand-in goes to no other host."""

import asyncio
import base64
import gzip
import json
import zlib
from collections.abc import Callable, Iterator
from urllib.parse import quote, unquote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from licet.core.policy.inspection import Inspection, StandIn
from licet.sandbox.inspection.key_forms import KeySearch, Match
from licet.sandbox.inspection.stand_ins import (
    CannotCheck,
    CannotPlace,
    KeySentAway,
    KeysOfRequest,
    StandIns,
    read_keys,
)
from licet.sandbox.limits import LARGEST_KEY_FILE, LARGEST_KEYED_BODY, SEARCHED_AT_ONCE

from .spelled import escaped, in_base64, percent, spellings

SECRETS = {
    "github/token": "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",
    "model/key": "sk-ant-api03-Qm9vU2Rk8sKd7fLq2-x_A1bZr4TnYw",
    "oauth/secret": "aB3/dEf+Gh1JkLmN0pQr",
}
GITHUB = StandIn(name="GITHUB_TOKEN", secret="github/token", hosts=("api.github.test",))
MODEL = StandIn(name="MODEL_KEY", secret="model/key", hosts=("*.model.test", "other.test:8443"), headers=("x-api-key",))
OAUTH = StandIn(name="CLIENT", secret="oauth/secret", hosts=("api.github.test",), body=("client_secret", "/a/1/b~1c"))
BOT = StandIn(name="BOT", secret="github/token", hosts=("api.github.test",), headers=("authorization: bot {key}",))
BARE = StandIn(name="BARE", secret="github/token", hosts=("api.github.test",), headers=("authorization",))
USER = StandIn(name="USER", secret="github/token", hosts=("api.github.test",), headers=("authorization: basic {key}:",))
INSPECTION = Inspection(("*",), (GITHUB, MODEL, OAUTH))


def keys(*entries: StandIn, files: dict[str, bytes] | None = None) -> StandIns:
    async def value(reference: str) -> str:
        return SECRETS[reference]

    def read_file(path: str) -> bytes:
        try:
            return (files or {})[path]
        except KeyError:
            raise FileNotFoundError(2, "No such file or directory", path) from None

    return asyncio.run(read_keys(Inspection(("*",), entries), value, read_file))


def all_keys() -> StandIns:
    return keys(GITHUB, MODEL, OAUTH)


def basic(pair: str) -> str:
    return "Basic " + base64.b64encode(pair.encode()).decode()


G, M, O = (SECRETS[one] for one in ("github/token", "model/key", "oauth/secret"))  # noqa: E741

# Header, what a program sends, and what is sent on: `{}` is the stand-in, then the key. None: as it came, and reported.
PLACED: list[tuple[StandIn, str, str, str | None]] = [
    (GITHUB, "Authorization", "Bearer {}", "Bearer {}"),
    (GITHUB, "authorization", "bearer  {}", "bearer  {}"),
    (GITHUB, "Authorization", "token {}", "token {}"),
    (GITHUB, "Authorization", "Basic {}", "Basic {}"),
    (GITHUB, "Authorization", "basic:x-access-token:{}", "basic:x-access-token:{}"),
    (GITHUB, "Authorization", "basic:{}:x-oauth-basic", None),  # servers show the names of users
    (GITHUB, "Authorization", "basic:{}:", None),
    (GITHUB, "Authorization", "{}", None),
    (GITHUB, "Authorization", "Bot {}", None),
    (GITHUB, "Authorization", "Bearer {}x", None),
    (GITHUB, "Authorization", "Bearer x {}", None),
    (GITHUB, "Authorization", 'Digest username="{}"', None),
    (GITHUB, "Authorization", "basic:me:{}x", None),
    (GITHUB, "Authorization", "basic:{}", None),
    (GITHUB, "Proxy-Authorization", "Bearer {}", None),
    (GITHUB, "X-Api-Key", "{}", None),
    (GITHUB, "User-Agent", "curl {}", None),
    (GITHUB, "Cookie", "session={}", None),
    (GITHUB, "X-{}", "1", None),
    (MODEL, "X-Api-Key", "{}", "{}"),
    (MODEL, "x-api-key", "Key {}", None),
    (MODEL, "X-Api-Key", "{}, {}", None),
    (MODEL, "Authorization", "Bearer {}", "Bearer {}"),
    (BOT, "Authorization", "Bot {}", "Bot {}"),
    (BOT, "Authorization", "bearer {}", "bearer {}"),
    (BOT, "Authorization", "{}", None),
    (BOT, "Authorization", "Rot {}", None),
    (BARE, "Authorization", "{}", "{}"),
    (BARE, "Authorization", "Bearer {}", "Bearer {}"),
    (BARE, "Authorization", "Bot {}", None),
    (USER, "Authorization", "basic:{}:", "basic:{}:"),
    (USER, "Authorization", "basic:{}:{}", "basic:{}:{}"),
    (USER, "Authorization", "basic:me:{}", "basic:me:{}"),
]
HOSTS = {
    "GITHUB_TOKEN": ("api.github.test", 443),
    "MODEL_KEY": ("eu.model.test", 443),
    "CLIENT": ("api.github.test", 443),
} | dict.fromkeys(("BOT", "BARE", "USER"), ("api.github.test", 443))


def filled(form: str, value: str) -> str:
    text = form.replace("{}", value)
    return basic(text.removeprefix("basic:")) if form.startswith("basic:") else text


@pytest.mark.parametrize(("entry", "name", "sent", "wanted"), PLACED)
def test_a_key_is_placed_as_a_whole_credential(entry: StandIn, name: str, sent: str, wanted: str | None) -> None:
    run = all_keys() if entry in INSPECTION.stand_ins else keys(entry)
    stand_in, secret = run.environment[entry.name], SECRETS[entry.secret]
    host, port = HOSTS[entry.name]
    request = run.request(host, port, secure=True)
    pair = (filled(name, stand_in), filled(sent, stand_in))
    ((shown, value),) = request.headers((pair,))
    if wanted is None:
        assert (shown, value) == pair
        assert (request.placed, run.placed) == ((), set())
        assert {one for one, _ in request.left} == {entry.name}
    else:
        assert (shown, value) == (name, filled(wanted, secret))
        assert (request.placed, request.left, run.placed) == ((entry.name,), (), {entry.name})


def test_of_both_halves_of_basic_the_user_stays_a_stand_in() -> None:
    run = all_keys()
    stand_in, secret = run.environment["GITHUB_TOKEN"], SECRETS["github/token"]
    request = run.request("api.github.test", 443, secure=True)
    ((_, value),) = request.headers((("Authorization", basic(f"{stand_in}:{stand_in}")),))
    assert value == basic(f"{stand_in}:{secret}")
    assert (request.placed, request.left) == (("GITHUB_TOKEN",), (("GITHUB_TOKEN", "header authorization"),))


@pytest.mark.parametrize(
    ("host", "port", "secure"),
    [
        ("evil.test", 443, True),
        ("api.github.test", 80, False),
        ("api.github.test", 443, False),
        ("api.github.test", 8443, True),
    ]
    + [
        ("x.api.github.test", 443, True),
        ("github.test", 443, True),
        ("eu.model.test", 443, True),
        ("127.0.0.1", 443, True),
    ],
)
def test_a_credential_goes_to_no_other_place(host: str, port: int, secure: bool) -> None:
    run = all_keys()
    request = run.request(host, port, secure=secure)
    with pytest.raises(KeySentAway) as sent:
        request.headers((("Authorization", f"Bearer {run.environment['GITHUB_TOKEN']}"),))
    assert (sent.value.name, sent.value.where) == ("GITHUB_TOKEN", "header authorization")
    assert run.placed == set()


def test_of_two_credentials_none_is_placed() -> None:
    run = all_keys()
    request = run.request("api.github.test", 443, secure=True)
    pairs = (("Authorization", f"Bearer {run.environment['GITHUB_TOKEN']}"), ("authorization", "Bearer mine"))
    assert request.headers(pairs) == pairs
    assert request.left == (("GITHUB_TOKEN", "header authorization"),)


@pytest.mark.parametrize("name", ["Proxy-Authorization", "Host", "Connection"])
def test_no_key_is_placed_in_a_header_of_the_connection(name: str) -> None:
    """Even where an entry names it: a proxy on the way would read it."""
    run = keys(StandIn(name="T", secret="github/token", hosts=("api.github.test",), headers=(name.lower(),)))
    request = run.request("api.github.test", 443, secure=True)
    pairs = ((name, run.environment["T"]),)
    assert request.headers(pairs) == pairs
    assert request.left == (("T", f"header {name.lower()}"),)


def test_the_other_half_of_a_credential_is_checked_too() -> None:
    run = all_keys()
    request = run.request("api.github.test", 443, secure=True)
    pair = f"{run.environment['MODEL_KEY']}:{run.environment['GITHUB_TOKEN']}"
    with pytest.raises(KeySentAway, match="MODEL_KEY"):
        request.headers((("Authorization", basic(pair)),))


WAYS: dict[str, Callable[[KeysOfRequest, str], object]] = {
    "path": lambda request, text: request.target(f"/repos/{text}/x"),
    "query": lambda request, text: request.target(f"/repos?q={text}"),
    "name of a header": lambda request, text: request.headers(((f"X-{text}", "1"),)),
    "header user-agent": lambda request, text: request.headers((("User-Agent", f"curl {text}"),)),
    "body": lambda request, text: b"".join(request.feed(f"so {text} it is".encode())) + request.finish(),
}
FORMS = list(spellings(G))


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("where", WAYS)
def test_a_stand_in_is_seen_everywhere_in_every_form(where: str, form: str) -> None:
    run = all_keys()
    text = spellings(run.environment["GITHUB_TOKEN"])[form]
    with pytest.raises(KeySentAway) as sent:
        WAYS[where](run.request("evil.test", 443, secure=True), text)
    assert (sent.value.name, sent.value.where) == ("GITHUB_TOKEN", where)
    own = run.request("api.github.test", 443, secure=True)
    WAYS[where](own, text)
    assert own.left == (("GITHUB_TOKEN", where),)
    assert run.placed == set()


def test_a_header_name_in_another_case_is_seen() -> None:
    run = all_keys()
    name = f"x-{run.environment['GITHUB_TOKEN']}".lower()
    with pytest.raises(KeySentAway):
        run.request("evil.test", 443, secure=True).headers(((name, "1"),))


RUN = all_keys()


@given(st.sampled_from(FORMS), st.integers(0, 90), st.integers(1, 60))
def test_a_stand_in_in_a_body_does_not_leave(form: str, before: int, size: int) -> None:
    body = f"{'.' * before} {spellings(RUN.environment['GITHUB_TOKEN'])[form]} rest".encode()
    request = RUN.request("evil.test", 443, secure=True)
    passed: list[bytes] = []
    with pytest.raises(KeySentAway):
        passed += (part for at in range(0, len(body), size) for part in request.feed(body[at : at + size]))
    ahead = 90 if "in lines" in form else len("%62WU6%5A")  # what is before it, also in its base64
    assert len(b"".join(passed)) <= before + 1 + ahead


COMPRESSED: dict[str, Callable[[bytes], bytes]] = {
    "gzip": gzip.compress,
    "x-gzip": lambda raw: gzip.compress(raw[:9]) + gzip.compress(raw[9:]),
    "deflate": zlib.compress,
    "Identity, GZIP": gzip.compress,
}


@pytest.mark.parametrize("coding", COMPRESSED)
def test_a_compressed_body_is_looked_into(coding: str) -> None:
    run = all_keys()
    packed = COMPRESSED[coding](f"so {run.environment['GITHUB_TOKEN']} it is".encode())
    request = run.request("evil.test", 443, secure=True)
    request.headers((("Content-Encoding", coding),))
    with pytest.raises(KeySentAway):
        [list(request.feed(packed[at : at + 1])) for at in range(len(packed))]
    harmless = COMPRESSED[coding](b"nothing of the kind")
    other = run.request("evil.test", 443, secure=True)
    other.headers((("Content-Encoding", coding),))
    assert b"".join(other.feed(harmless)) + other.finish() == harmless


@pytest.mark.parametrize("coding", ["br", "zstd", "gzip, gzip", "compress"])
def test_a_body_that_cannot_be_looked_into_is_refused(coding: str) -> None:
    pairs = (("Content-Encoding", coding),)
    with pytest.raises(CannotCheck):
        all_keys().request("evil.test", 443, secure=True).headers(pairs)
    # Where every key belongs to the host, and where there are no keys, nothing has to be found.
    assert keys(GITHUB).request("api.github.test", 443, secure=True).headers(pairs) == pairs
    assert keys().request("evil.test", 443, secure=True).headers(pairs) == pairs


def test_a_bomb_and_a_false_coding_are_refused() -> None:
    for body, reason in ((gzip.compress(b"\0" * (64 << 20)), "128 times"), (b"not gzip", "as its headers say")):
        request = all_keys().request("evil.test", 443, secure=True)
        request.headers((("content-encoding", "gzip"),))
        with pytest.raises(CannotCheck, match=reason):
            list(request.feed(body))


@pytest.mark.parametrize("spell", [str, percent, escaped])
@pytest.mark.parametrize("way", ["packed", "streamed", "json", "form", "answer"])
def test_no_step_searches_much(way: str, spell: Callable[[str], str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever sends a body can make it slow to search, and to unpack to much: other tasks run meanwhile."""
    run = all_keys()
    near = (spell(run.environment["CLIENT"][:-1]) * 50_000).encode()[:500_000]
    searched = [0]
    found = KeySearch.found

    def counted(search: KeySearch, text: bytes) -> list[Match]:
        searched[-1] += len(text)
        return found(search, text)

    request = run.request("api.github.test", 443, secure=True)
    kind = {"json": JSON, "form": FORM}.get(way, "text/plain")
    request.headers((("Content-Type", kind), *((("Content-Encoding", "gzip"),) if way == "packed" else ())))
    monkeypatch.setattr(KeySearch, "found", counted)
    steps: Iterator[object]
    if way == "packed":
        steps = iter(request.feed(gzip.compress(near)))
    elif way == "streamed":
        steps = iter(request.feed(near))
    elif way == "answer":
        answer = run.answer(always=True)
        assert answer is not None
        steps = iter(answer.steps(near))
    else:
        body = near if way == "form" else b'{"a": "%b"}' % near.replace(b"\\", b"/")
        steps = iter(request.whole_body(body, kind))
    searched.extend(0 for _ in steps)
    reach = 6 * 4 * 46 // 3 + 24
    assert max(searched) <= SEARCHED_AT_ONCE // 3 + reach
    assert sum(searched) >= 500_000


JSON, FORM = "application/json; charset=utf-8", "application/x-www-form-urlencoded"
# Type, body, the body that is sent on: `{}` is the stand-in, then the key, in that body's spelling.
BODIES: list[tuple[str, str, str | None]] = [
    (JSON, '{ "client_secret" :\n"{}", "a": 1}', '{ "client_secret" :\n"{}", "a": 1}'),
    (JSON, '{"client_secret": "{}", "client_secret": "{}"}', '{"client_secret": "{}", "client_secret": "{}"}'),
    (JSON, '{"b": {"x": [1, "y"]}, "client_secret": "{}"}', '{"b": {"x": [1, "y"]}, "client_secret": "{}"}'),
    (JSON, '{"a": [{"z": 1}, {"b/c": "{}"}]}', '{"a": [{"z": 1}, {"b/c": "{}"}]}'),
    (JSON, '{"a": {"0": [], "1": {"x": 1, "b/c": "{}"}}}', '{"a": {"0": [], "1": {"x": 1, "b/c": "{}"}}}'),
    (JSON, '{"a": [{"client_secret": "{}"}, {"client_secret": "{}"}]}', None),
    (JSON, '{"a": {"client_secret": "{}"}}', None),
    (JSON, '[{"client_secret": "{}"}]', None),
    (JSON, '{"a": [{"b/c": "{}"}, {"z": 1}]}', None),
    (JSON, '{"a": [{"1": {"b/c": "{}"}}]}', None),
    (JSON, '["client_secret", "{}"]', None),
    ("application/vnd.x+json", '{"client_secret":"{}"}', '{"client_secret":"{}"}'),
    (JSON, '{"client\\u005fsecret":"{}"}', '{"client\\u005fsecret":"{}"}'),
    (JSON, '{"client_secret":"x{}"}', None),
    (JSON, '{"other":"{}"}', None),
    (JSON, '{"client_secret":["{}"]}', None),
    (JSON, '{"x\\"client_secret":"{}"}', None),
    (JSON, '{"t":"\\"client_secret\\": {}"}', None),
    (JSON, '{"client_secret":"{}"', None),  # no JSON
    (FORM, "a=b&client_secret={}&c=", "a=b&client_secret={}&c="),
    (FORM, "client%5Fsecret={}", "client%5Fsecret={}"),
    (FORM, "other={}&client_secret=", None),
    (FORM, "/a/1/b~1c={}", None),  # a pointer is for JSON
    (FORM, "%2Fa%2F1%2Fb~1c={}", None),
    (FORM, "/a/1/b/c={}", None),
    (FORM, "client_secret={}x", None),
    ("text/plain", '{"client_secret":"{}"}', None),
    ("multipart/form-data; boundary=x", "client_secret={}", None),
    ("", "client_secret={}", None),
]


@pytest.mark.parametrize(("kind", "sent", "wanted"), BODIES)
def test_a_key_is_placed_in_the_fields_of_its_entry(kind: str, sent: str, wanted: str | None) -> None:
    run = all_keys()
    spell = (lambda text: quote(text, safe="")) if kind == FORM else str
    request = run.request("api.github.test", 443, secure=True)
    request.headers((("Content-Type", kind),))
    assert request.wants_body == (LARGEST_KEYED_BODY if kind.startswith("application/") else 0)
    body = sent.replace("{}", spell(run.environment["CLIENT"])).encode()
    made = b"".join(request.whole_body(body, kind))
    if wanted is None:
        assert made == body
        assert (request.placed, request.left) == ((), (("CLIENT", "body"),))
    else:
        assert made == wanted.replace("{}", spell(O)).encode()
        assert (request.placed, request.left) == (("CLIENT",), ())


def test_a_field_to_another_host_or_beside_another_stand_in_is_refused() -> None:
    run = all_keys()
    body = json.dumps({"client_secret": run.environment["CLIENT"], "note": run.environment["MODEL_KEY"]}).encode()
    for host in ("evil.test", "api.github.test"):
        request = run.request(host, 443, secure=True)
        request.headers((("Content-Type", JSON),))
        with pytest.raises(KeySentAway):
            list(request.whole_body(body, JSON))
    assert run.request("evil.test", 443, secure=True).wants_body == 0


# Reading --------------------------------------------------------------------------------------------------------------


def test_a_program_gets_stand_ins_and_copies() -> None:
    files = {
        "/h/.netrc": f"machine api.github.test login me password {G}\n".encode(),
        "/h/c.json": json.dumps({"k": G, "again": in_base64(f"me:{G}"), "other": "kept"}).encode(),
    }
    netrc = StandIn(name="netrc", file="/h/.netrc", field="api.github.test", hosts=("api.github.test",))
    config = StandIn(name="config", file="/h/c.json", field="k", hosts=("api.github.test",))
    run = keys(GITHUB, netrc, config, files=files)
    made = run.environment["GITHUB_TOKEN"]
    assert set(run.environment) == {"GITHUB_TOKEN"}
    assert run.files == {
        "/h/.netrc": f"machine api.github.test login me password {made}\n".encode(),
        "/h/c.json": json.dumps({"k": made, "again": in_base64(f"me:{made}"), "other": "kept"}).encode(),
    }
    assert G.encode() not in b"".join(run.files.values())
    request = run.request("api.github.test", 443, secure=True)
    request.headers((("Authorization", f"Bearer {made}"),))
    assert request.placed == ("GITHUB_TOKEN", "netrc", "config")


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("/h/none.json", None, "No such file"),
        ("/h/c.json", b" " * (LARGEST_KEY_FILE + 1), "more than"),
        ("/h/c.json", json.dumps({"k": "short"}).encode(), "5 characters"),
        ("/h/c.toml", b'k = "' + "".join(f"\\U{ord(sign):08x}" for sign in G).encode() + b'"', "in escapes"),
    ],
)
def test_what_cannot_be_placed_is_refused_by_name(name: str, content: bytes | None, reason: str) -> None:
    entry = StandIn(name="mine", file=name, field="k", hosts=("api.github.test",))
    with pytest.raises(CannotPlace, match=reason) as refusal:
        keys(entry, files={name: content} if content is not None else {})
    assert "`mine`" in str(refusal.value)
    assert G not in str(refusal.value)


def test_without_entries_everything_passes() -> None:
    run = keys()
    request = run.request("evil.test", 443, secure=True)
    pairs = (("Authorization", "Bearer mine"),)
    assert (request.target("/"), request.headers(pairs), b"".join(request.feed(b"x")), request.finish()) == (
        "/",
        pairs,
        b"x",
        b"",
    )
    assert (request.wants_body, b"".join(request.whole_body(b"{}", JSON)), run.answer(always=True)) == (0, b"{}", None)


def test_no_key_and_no_stand_in_is_in_a_representation() -> None:
    run = all_keys()
    request = run.request("api.github.test", 443, secure=True)
    request.headers((("Authorization", f"Bearer {run.environment['GITHUB_TOKEN']}"),))
    shown = f"{run!r} {request!r} {run.answer()!r} {run._keys!r} {run._real!r}"
    for text in (*SECRETS.values(), *run.environment.values()):
        assert text[6:14] not in shown


# Answers --------------------------------------------------------------------------------------------------------------


def test_an_answer_is_passed_as_it_is_until_a_key_was_placed() -> None:
    run = all_keys()
    assert run.answer() is None
    run.request("eu.model.test", 443, secure=True).headers((("X-Api-Key", run.environment["MODEL_KEY"]),))
    assert run.answer() is not None


@pytest.mark.parametrize("form", FORMS)
def test_a_server_that_echoes_a_key_shows_the_stand_in(form: str) -> None:
    run = all_keys()
    run.request("api.github.test", 443, secure=True).headers(
        (("Authorization", f"Bearer {run.environment['GITHUB_TOKEN']}"),)
    )
    answer = run.answer()
    assert answer is not None
    told = spellings(G)[form]
    clean = answer.text(f"you sent {told}")
    body = f"{told}\n{told}".encode()
    out = b"".join(answer.feed(body[at : at + 3]) for at in range(0, len(body), 3)) + answer.finish()
    assert len(out) == len(body)
    for shown in (clean.encode(), out):
        assert not run._real.has(shown)
        assert told.encode() not in shown


@pytest.mark.parametrize("form", ["raw", "percent", "base64 | "])
def test_the_name_of_a_header_shows_no_key(form: str) -> None:
    run = all_keys()
    answer = run.answer(always=True)
    assert answer is not None
    name = f"X-{spellings(G)[form]}"
    shown = answer.name(name)
    assert (len(shown), run._real.has(shown.encode()), run._sent.has(shown.encode())) == (len(name), False, True)
    for other in (name.lower(), name.upper()):  # without its capitals, a key still tells most of itself
        assert G.lower() not in unquote(answer.name(other)).lower()
        assert not answer.name(other) or form == "percent"
    assert answer.name("X-Ratelimit-Used") == "X-Ratelimit-Used"


@pytest.mark.parametrize("value", ["", "plain", "grün", "\udc80", "a\tb"])
def test_a_header_of_an_answer_stays_as_it_is(value: str) -> None:
    run = all_keys()
    run.placed.add("GITHUB_TOKEN")
    answer = run.answer()
    assert answer is not None
    assert answer.text(value) == value
