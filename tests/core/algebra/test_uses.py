"""Uses are concrete: their text, the use of a URL, and everything that is refused as a use."""

import re
import string

import can_ada
import pytest
from hypothesis import example, given

from core.liars import BrokenText, FalseText, Liar
from core.naive import METHODS, PlainRule, PlainUse
from core.strategies import odd_methods, odd_texts, odd_urls, outcome, rules, uses
from core.tables import grouped
from licet.core.algebra.rules import InvalidUse, Use, use_of_url
from licet.core.algebra.set import CapabilitySet

HOST = re.compile(r"(?:[a-z0-9_-]+\.)*[a-z0-9_-]+|\[[0-9a-f:]+\]")

# As written, and the text of the use if it differs.
ACCEPTED = grouped({
    "": ["fs:read:/srv/a.txt", "fs:delete:/", "network:https:get@x:65535", "network:http:post@[::1]:8080",
        "network:tcp:db.internal:5432", "network:tcp:[::1]:22", "network:tcp:get:80", "process:exec:git",
        "process:exec:/usr/bin/git", "env:read:PATH", "env:read:A:B", "env:read:$x", "secret:read:github/token",
        "secret:read:~x", "storage:read:session", "storage:write:tool-private", "tool:call:http_get",
        "connector:use:github"],
    "fs:write:/a/b": ["fs:write:/srv/../a//b/"],
    "network:https:get@api.github.com:443": ["network:https:get@api.github.com"],
    "network:http:get@api.github.com:80": ["network:http:get@api.github.com"],
    "network:https:get@api.github.com:8443": ["network:https:GET@API.github.com.:8443"],
    "network:https:other@x:443": ["network:https:PROPFIND@x", "network:https:other@x",
        "network:https:!#$%&'+.^_`|~09@x"],
    "network:http:post@[::1]:80": ["network:http:post@[::1]"],
    "network:http:head@127.0.0.1:80": ["network:http:head@127.1"],
    "process:exec:/bin/git": ["process:exec:/usr/../bin//git/"],
})  # fmt: skip

INVALID = [
    # wildcards
    "*", "*:*:*", "fs:*:/srv", "fs:read:*", "fs:read:/srv/*", "fs:read:/*/x", "network:*:get@x", "network:https:*",
    "network:https:*@x", "network:https:get@*", "network:https:get@*.x.com", "network:https:get@x.*",
    "network:https:get@x:*", "network:https:get@%2a.x.com", "network:https:get@＊.x.com", "network:tcp:*:80",
    "network:tcp:x:*", "process:exec:*", "process:exec:/usr/bin/*", "env:read:*", "env:read:AWS_*", "secret:read:*",
    "secret:read:a/*", "storage:read:*", "storage:*:session", "tool:call:*", "tool:*:x", "connector:use:*",
    # not a request
    "network:read:x", "network:read:get@x", "network:write:post@x:80", "network:delete:delete@x", "network:https:x",
    "network:https:get", "network:https:x:443", "network:https:https://x", "network:https:get@https://x",
    "network:https:get@", "network:https:@x", "network:https:get@x/path", "network:https:get@user@x",
    "network:https:get@user:pass@x", "network:https:get@x:0", "network:https:get@x:65536", "network:https:get@x:",
    "network:https:get@x:80:80", "network:https:connect@x", "network:https:TRACE@x", "network:https:Connect@x",
    "network:https:ge t@x", "network:https:get\n@x", "network:https:gét@x", "network:https:g/t@x",
    "network:https:get@a..b", "network:https:get@.a", "network:https:get@a b", "network:https:get@[::ffff:1.2.3.4]",
    "network:https:get@1.2.3.4.5", "network:https:get@a\x00", "network:https:get@a\ud800", "network:tcp:x",
    "network:tcp:get@x:80", "network:tcp:tcp://x:80", "network:tcp:x:0", "network:tcp::80",
    # other domains
    "", "fs", "fs:read", "fs:read:", "fs:read:srv", "fs:read:./srv", "fs:read:~/x", "fs:read:${workdir}/x",
    "fs:read:/a\0", "fs:exec:/a", "FS:read:/a", "nope:read:/a", "process:exec:", "process:exec:/", "process:exec:./git",
    "process:exec:bin/git", "process:exec:~/git", "process:exec:~", "process:exec:${workdir}/git", "process:exec:$x",
    "process:exec:a b", "process:exec:..", "env:read:", "env:read:A=B", "env:write:A", "secret:read:", "secret:read:a/",
    "secret:read:../a", "storage:read:", "storage:read:disk", "storage:delete:session", "tool:call:", "tool:call:a b",
    "tool:call:a\u202e", "connector:call:x",
]  # fmt: skip


@pytest.mark.parametrize(("text", "canonical"), ACCEPTED)
def test_a_use_is_read_and_written_canonically(text: str, canonical: str) -> None:
    assert str(Use(text)) == (canonical or text)
    assert Use.parse(text) == Use(text) == Use(canonical or text)


@pytest.mark.parametrize("text", INVALID)
def test_a_text_that_is_not_concrete_is_an_invalid_use(text: str) -> None:
    everything = CapabilitySet(
        ["fs:*:*", "network:*:*", "process:exec:*", "env:read:*", "secret:read:*", "storage:*:*"]
    )
    for ask in (Use, Use.parse, everything.has, CapabilitySet().has):
        with pytest.raises(InvalidUse) as refusal:
            ask(text)
        assert str(refusal.value).startswith("found `")
        assert str(refusal.value).isprintable()


# A use that is invalid, and a part of what the refusal says.
SAID = [
    ("fs:read:*", "without a wildcard"),
    ("network:https:x", "a method and a host such as `get@api.example.com`"),
    ("network:tcp:x", "a host and a port such as `db.internal:5432`"),
    ("network:read:x", "the protocol of one request: `http`, `https` or `tcp`"),
    ("network:https:trace@x", "never allowed"),
    ("network:https:g t@x", "a request method such as `GET`"),
    ("process:exec:~", "a binary name or an absolute path"),
    ("storage:read:disk", "one of tool-private, session, personality"),
    ("nope:read:x", "one of the domains"),
]


@pytest.mark.parametrize(("text", "says"), SAID)
def test_an_invalid_use_says_why(text: str, says: str) -> None:
    with pytest.raises(InvalidUse) as refusal:
        Use(text)
    assert says in str(refusal.value)


@given(rules)
def test_a_rule_with_a_wildcard_is_never_a_use(rule: PlainRule) -> None:
    if "*" in rule.text:
        with pytest.raises(InvalidUse):
            CapabilitySet([rule.text]).has(rule.text)


@given(odd_texts)
def test_any_text_is_a_use_or_is_refused_as_invalid(text: str) -> None:
    use = outcome(Use, text)
    if isinstance(use, InvalidUse):
        assert str(use).isprintable()
        return
    assert Use(str(use)) == use
    assert str(Use(str(use))) == str(use)
    assert "*" not in text
    if use.domain == "network":
        assert HOST.fullmatch(use.target)
        assert use.port in range(1, 65536)


@pytest.mark.parametrize("value", [None, 5, b"fs:read:/a", ["fs:read:/a"], object(), ("fs", "read", "/a")])
def test_a_value_that_is_not_text_is_an_invalid_use(value: object) -> None:
    for ask in (Use, CapabilitySet(["fs:*:*"]).has):
        with pytest.raises(InvalidUse):
            ask(value)  # type: ignore[arg-type]


# What each kind of use does to the world.
EFFECTS = grouped({
    "read": ["fs:read:/a", "network:https:get@x", "network:https:head@x", "network:http:options@x",
        "storage:read:personality", "storage:write:session", "storage:write:tool-private", "storage:read:session",
        "env:read:A", "secret:read:A", "process:exec:git", "tool:call:x", "connector:use:x"],
    "write": ["fs:write:/a", "network:https:post@x", "network:https:put@x", "network:https:patch@x",
        "storage:write:personality"],
    "delete": ["fs:delete:/a", "network:http:delete@x"],
    "other": ["network:https:mkcol@x", "network:tcp:x:1"],
})  # fmt: skip


@pytest.mark.parametrize(("text", "effect"), EFFECTS)
def test_a_use_has_the_effect_of_its_kind(text: str, effect: str) -> None:
    assert Use(text).effect == effect


def test_a_use_has_parts() -> None:
    use = Use("network:https:GET@X.com")
    assert (use.domain, use.action, use.method, use.target, use.port) == ("network", "https", "get", "x.com", 443)
    assert use.scope == "get@x.com:443"
    tcp = Use("network:tcp:x.com:22")
    assert (tcp.action, tcp.method, tcp.target, tcp.port, tcp.scope) == ("tcp", "", "x.com", 22, "x.com:22")
    file = Use("fs:write:/a/../b")
    assert (file.action, file.method, file.target, file.port, file.scope) == ("write", "", "/b", None, "/b")


# URLs -----------------------------------------------------------------------------------------------------------------

URLS = [
    ("GET", "https://api.github.com/repos", "network:https:get@api.github.com:443"),
    ("get", "http://api.github.com", "network:http:get@api.github.com:80"),
    ("Post", "HTTPS://API.GitHub.com:443/", "network:https:post@api.github.com:443"),
    ("DELETE", "https://x.com:80/", "network:https:delete@x.com:80"),
    ("PROPFIND", "https://x.com", "network:https:other@x.com:443"),
    ("other", "https://x.com", "network:https:other@x.com:443"),
    ("M-SEARCH", "https://x.com", "network:https:other@x.com:443"),
    ("GET", "https:x.com", "network:https:get@x.com:443"),
    ("GET", "https:\\\\x.com\\a", "network:https:get@x.com:443"),
    ("GET", "http://good.com\\@evil.com/", "network:http:get@good.com:80"),
    ("GET", "http://good.com#@evil.com/", "network:http:get@good.com:80"),
    ("GET", "http://good.com?@evil.com/", "network:http:get@good.com:80"),
    ("GET", "http:////good.com", "network:http:get@good.com:80"),
    ("GET", "http://x.com./", "network:http:get@x.com:80"),
    ("GET", "http://a.b-c.x.com./", "network:http:get@a.b-c.x.com:80"),
    ("GET", "http://a-b.c_d.x.com/", "network:http:get@a-b.c_d.x.com:80"),
    ("GET", "http://x.com:0443/", "network:http:get@x.com:443"),
    ("GET", "http://x.com:/", "network:http:get@x.com:80"),
    ("GET", "http://0x7f.1/", "network:http:get@127.0.0.1:80"),
    ("GET", "http://2130706433/", "network:http:get@127.0.0.1:80"),
    ("GET", "http://[::1]:8080/", "network:http:get@[::1]:8080"),
    ("GET", "http://ＢÜcher。example/", "network:http:get@xn--bcher-kva.example:80"),
    ("GET", "https://get/", "network:https:get@get:443"),
    ("GET", " https://x.com ", "network:https:get@x.com:443"),
    ("GET", "https://x.com/*", "network:https:get@x.com:443"),
    ("GET", "https://x.com/a b?c=*#d", "network:https:get@x.com:443"),
    ("GET", "https://x.com/é/\u200b", "network:https:get@x.com:443"),
    ("GET", "https://x.com/ẞ?%E1%BA%9E#ẞ", "network:https:get@x.com:443"),
    *((method.upper(), "http://x.com", f"network:http:{method}@x.com:80") for method in METHODS),
    *((method, "https://x.com", f"network:https:{method}@x.com:443") for method in METHODS),
]

INVALID_URLS = [
    # schemes
    ("GET", ""),
    ("GET", "x.com"),
    ("GET", "//x.com"),
    ("GET", "/path"),
    ("GET", "ftp://x.com"),
    ("GET", "ws://x.com"),
    ("GET", "wss://x.com"),
    ("GET", "file:///etc/passwd"),
    ("GET", "gopher://x.com"),
    ("GET", "data:text/plain,x"),
    ("GET", "javascript:alert(1)"),
    ("GET", "blob:https://x.com/a"),
    ("GET", "tcp://db:5432"),
    ("", "tcp://db:5432"),
    ("", "tcp://db"),
    ("", "tcp://0x7f.1:80"),
    ("GET", "httpss://x.com"),
    ("GET", "http"),
    # hosts
    ("GET", "https://"),
    ("GET", "https:///"),
    ("GET", "https://*.x.com"),
    ("GET", "https://*"),
    ("GET", "https://%2a.x.com"),
    ("GET", "https://＊.x.com"),
    ("GET", "https://a..b/"),
    ("GET", "https://.a/"),
    ("GET", "https://a b/"),
    ("GET", "https://a!b/"),
    ("GET", "https://a'b/"),
    ("GET", "https://[::ffff:127.0.0.1]/"),
    ("GET", "https://[::1/"),
    ("GET", "https://[fe80::1%25eth0]/"),
    ("GET", "https://1.2.3.4.5/"),
    ("GET", "https://256.1.1.1/"),
    ("GET", "https://xn--a/"),
    ("GET", "https://ẞ.com/"),
    ("GET", "https://a.%E1%BA%9E.com/"),
    ("GET", f"https://{'a.' * 127}a/"),
    ("GET", f"https://{'a' * 64}.com/"),
    # ports
    ("GET", "https://x.com:0/"),
    ("GET", "https://x.com:00/"),
    ("GET", "https://x.com:65536/"),
    ("GET", "https://x.com:x/"),
    ("GET", "https://x.com:-1/"),
    # user names and passwords
    ("GET", "https://user@x.com/"),
    ("GET", "https://user:pass@x.com/"),
    ("GET", "https://:pass@x.com/"),
    ("GET", "https://good.com@evil.com/"),
    ("GET", "https://good.com%40evil.com@evil.com/"),
    # control characters and lone surrogates, even where WHATWG would drop them
    ("GET", "https://x.com/\n"),
    ("GET", "\thttps://x.com/"),
    ("GET", "https://x\t.com/"),
    ("GET", "https://x.com/\x00"),
    ("GET", "https://x.com/\x1f"),
    ("GET", "https://x.com/\x7f"),
    ("GET", "https://x.com/\x80"),
    ("GET", "https://x.com/\x9f"),
    ("GET", "https://x.com/\ud800"),
    ("GET", "https://x.com/\udfff"),
    ("GET", "https://\udc80.com/"),
    # methods
    ("", "https://x.com"),
    ("*", "https://x.com"),
    (" GET", "https://x.com"),
    ("GET ", "https://x.com"),
    ("GE T", "https://x.com"),
    ("GET\r\nX: y", "https://x.com"),
    ("GET\n", "https://x.com"),
    ("GÉT", "https://x.com"),
    ("GET/1", "https://x.com"),
    ("GET:", "https://x.com"),
    ("G@T", "https://x.com"),
    ("CONNECT", "https://x.com"),
    ("connect", "https://x.com"),
    ("TRACE", "https://x.com"),
    ("Trace", "https://x.com"),
    ("\u212aGET", "https://x.com"),
    # not text
    ("GET", None),
    ("GET", 5),
    ("GET", b"https://x.com"),
    ("GET", ["https://x.com"]),
    (None, "https://x.com"),
    (b"GET", "https://x.com"),
    (5, "https://x.com"),
    (["GET"], "https://x.com"),
]


@pytest.mark.parametrize(("method", "url", "expected"), URLS)
def test_a_url_is_parsed_into_its_use(method: str, url: str, expected: str) -> None:
    use = use_of_url(method, url)
    assert str(use) == expected
    assert use == Use(expected)
    assert hash(use) == hash(Use(expected))
    assert use.keys == Use(expected).keys  # what covers a use does not depend on how it was written


@pytest.mark.parametrize(("method", "url"), INVALID_URLS)
def test_a_url_that_is_no_concrete_request_is_an_invalid_use(method: str, url: str) -> None:
    with pytest.raises(InvalidUse) as refusal:
        use_of_url(method, url)
    assert str(refusal.value).isprintable()


def test_which_characters_a_method_may_hold() -> None:
    letters = {chr(code) for code in range(128)}
    accepted = {
        char for char in letters if not isinstance(outcome(use_of_url, f"a{char}b", "https://x.com"), InvalidUse)
    }
    assert accepted == set(string.ascii_letters + string.digits + "!#$%&'*+-.^_`|~")


def test_a_refused_url_does_not_repeat_its_password() -> None:
    with pytest.raises(InvalidUse) as refusal:
        use_of_url("GET", "https://user:hunter2@x.com/")
    assert "hunter2" not in str(refusal.value)
    assert "user" not in str(refusal.value).replace("user name", "")
    assert "x.com" in str(refusal.value)


# What is wrong, and a part of what the refusal says.
REASONS = [
    ("GET", "ftp://x.com", "the scheme http or https"),
    ("GET", "x.com", "an absolute http or https URL"),
    ("GET", "https://x.com/\n", "a URL without control characters"),
    ("GET", "https://x.com:0", "a port from 1 to 65535"),
    ("GET", "https://u@x.com", "a URL without user name or password"),
    ("TRACE", "https://x.com", "`CONNECT` and `TRACE` are never allowed"),
    ("G T", "https://x.com", "a request method such as `GET`"),
    ("GET", 5, "expected text"),
    ("GET", "https://a..b", "a host name"),
]


@pytest.mark.parametrize(("method", "url", "says"), REASONS)
def test_a_refused_url_says_why(method: str, url: str, says: str) -> None:
    with pytest.raises(InvalidUse) as refusal:
        use_of_url(method, url)
    assert says in str(refusal.value)


@given(odd_methods, odd_urls)
@example("", "tcp://x:1")
@example("GET", "https://a\u00adb/")
def test_any_url_is_a_use_of_the_host_the_parser_names_or_invalid(method: str, url: str) -> None:
    use = outcome(use_of_url, method, url)
    if isinstance(use, InvalidUse):
        assert str(use).isprintable()
        return
    parsed = can_ada.parse(url)
    assert HOST.fullmatch(use.target)
    assert parsed.hostname.removesuffix(".") == use.target
    assert parsed.protocol == f"{use.action}:"
    assert use.action in ("http", "https")
    assert not parsed.username
    assert not parsed.password
    assert use.port == int(parsed.port or {"http": 80, "https": 443}[use.action])
    assert use.method == (method.lower() if method.lower() in METHODS else "other")
    assert Use(str(use)) == use


def test_a_url_or_method_of_a_lying_class_is_read_by_its_real_characters() -> None:
    assert str(use_of_url("GET", Liar("https://evil.com", "https://good.com"))) == "network:https:get@evil.com:443"
    assert str(use_of_url(Liar("POST", "GET"), "https://x.com")) == "network:https:post@x.com:443"
    assert (
        str(use_of_url(Liar("put", "GET"), Liar("https://evil.com", "https://good.com")))
        == "network:https:put@evil.com:443"
    )
    assert (
        str(Use(Liar("network:https:post@evil.com", "network:https:get@good.com"))) == "network:https:post@evil.com:443"
    )
    for method, url in (
        ("GET", Liar("https://x\n.com", "https://good.com")),
        (Liar("TRACE", "GET"), "https://x.com"),
        (Liar("G T", "GET"), "https://x.com"),
    ):
        with pytest.raises(InvalidUse):
            use_of_url(method, url)
    assert not CapabilitySet(["network:https:get@good.com"]).has(
        Liar("network:https:get@evil.com", "network:https:get@good.com")
    )


def test_text_whose_methods_raise_is_parsed_or_refused() -> None:
    assert str(use_of_url(BrokenText("GET"), BrokenText("https://x.com"))) == "network:https:get@x.com:443"
    assert str(Use(BrokenText("fs:read:/a"))) == "fs:read:/a"
    with pytest.raises(InvalidUse):
        use_of_url(BrokenText("G T"), BrokenText("https://x.com"))
    with pytest.raises(InvalidUse):
        use_of_url("GET", BrokenText("nope"))
    with pytest.raises(InvalidUse):
        Use(BrokenText("nope"))
    for url in (FalseText(), object()):
        with pytest.raises(InvalidUse):
            use_of_url("GET", url)  # type: ignore[arg-type]
        with pytest.raises(InvalidUse):
            use_of_url(url, "https://x.com")  # type: ignore[arg-type]


def test_a_str_with_the_attributes_of_a_use_is_parsed_as_text() -> None:
    class Likeness(str):
        kind = Use("fs:read:/a").kind
        keys = ("",)
        port = None

    everything = CapabilitySet(["fs:read:*"])
    assert not everything.has(Likeness("fs:write:/etc"))
    assert everything.has(Likeness("fs:read:/etc"))


@given(uses)
def test_a_use_is_reached_by_the_rule_that_is_spelled_like_it(use: PlainUse) -> None:
    text = use.text
    if use.domain == "network" and use.method == "" and use.scope in METHODS:
        text = f"network:tcp:*@{use.scope}:{use.port}"
    assert CapabilitySet([text]).has(use.text)
    assert CapabilitySet([text]) == CapabilitySet([str(rule) for rule in CapabilitySet([text])])


def test_a_kind_is_as_immutable_as_the_uses_that_share_it() -> None:
    kind = Use("fs:read:/a").kind
    with pytest.raises(AttributeError):
        kind.atom = 0  # type: ignore[misc]
    with pytest.raises(AttributeError):
        del kind.atom
