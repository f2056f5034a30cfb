"""The grammar of rules, `domain:action:scope`: what is accepted, how it is written, and what is refused."""

import string

import pytest
from hypothesis import given

from core.liars import BrokenText, FalseText, Liar
from core.naive import ACTIONS, KINDS
from core.strategies import odd_texts, outcome, read
from core.tables import grouped
from licet.core.algebra.domains import DOMAINS
from licet.core.algebra.rules import Capability, Use
from licet.core.algebra.scope import Malformed
from licet.core.algebra.set import CapabilitySet

# As written, and the canonical text if it differs.
ACCEPTED = grouped({
    "": ["fs:read:/srv/data", "fs:write:/srv/data", "fs:delete:/srv/data", "fs:*:/srv/data", "fs:read:*",
        "process:exec:/usr/bin/grep", "process:exec:git", "process:exec:g++", "process:exec:*",
        "process:exec:${workdir}/bin/x", "process:exec:~/bin/x", "process:exec:" + "x" * 255, "env:read:PATH",
        "env:read:HOME", "env:read:*", "env:read:path", "env:read:A:B", "env:read:BASH_FUNC_x%%",
        "env:read:" + "X" * 1024, "secret:read:WEATHER_API_KEY", "secret:read:github/token", "secret:read:github/*",
        "secret:read:github/org/*", "secret:read:*", "secret:read:arn:aws:x",
        "secret:read:" + "/".join(["x" * 255] * 3 + ["x" * 200, "x" * 55]), "storage:read:session",
        "storage:write:session", "storage:*:session", "storage:read:tool-private", "storage:write:personality",
        "storage:read:*", "storage:write:*", "storage:*:*", "tool:call:http_get", "tool:call:files/read.v2-x",
        "tool:call:*", "tool:call:" + "x" * 128, "connector:use:github", "connector:use:*",
        "socket:connect:/run/docker.sock", "socket:connect:~/x.sock", "socket:connect:${workdir}/x.sock",
        "socket:connect:*"],
    "socket:connect:/run/docker.sock": ["socket:*:/run//docker.sock/"],
    "fs:read:*": ["fs:read:/"],
    "fs:*:*": ["fs:*:/"],
    "process:exec:/usr/bin/grep": ["process:exec:/usr//bin/./grep/"],
    "process:exec:git": ["process:*:git"],
    "env:read:PATH": ["env:*:PATH"],
    "secret:read:a": ["secret:*:a"],
    "tool:call:*": ["tool:*:*"],
    "connector:use:github": ["connector:*:github"],
})  # fmt: skip

# As written, and a part of what the refusal says.
MALFORMED = grouped({
    "`domain:action:scope`": ["", "fs", "fs:read", "nope:read", "*"],
    "one of the domains fs, network, process, env, secret, storage, tool, connector, socket": ["*:*:*"],
    "did you mean `fs`?": ["FS:read:/x", " fs:read:/x"],
    "one of the domains": ["file:read:/x"],
    "did you mean `network`?": ["netwrok:http:x"],
    "expected one of the domains fs, network, process, env, secret, storage, tool, connector, socket": ["zzz:read:x"],
    "did you mean `read`?": ["fs:raed:/x", "fs:READ:/x"],
    "after `fs:`": ["fs:exec:/x", "fs::/x", "fs:read,write:/x"],
    "after `network:`": ["network:get:x", "network:ftp:x"],
    "a program is granted by `process:exec:NAME`": ["fs:exec:/x", "network:exec:x"],
    "no rule changes a variable of the host": ["env:write:PATH"],
    "after `process:`": ["process:run:x", "process:read:x"],
    "after `env:`": ["env:write:x"],
    "after `secret:`": ["secret:write:x"],
    "after `storage:`": ["storage:delete:session"],
    "after `tool:`": ["tool:use:x"],
    "after `connector:`": ["connector:call:x"],
    "after `socket:`": ["socket:write:/x"],
    "the path of one socket": ["socket:connect:/"],
    "a binary name": ["process:exec:", "process:exec:a b", "process:exec:a*", "process:exec:.", "process:exec:..",
        "process:exec:é", "process:exec:a\x00", "process:exec:" + "x" * 256],
    "an absolute path": ["process:exec:bin/x", "process:exec:./x"],
    "without `*`": ["process:exec:/usr/bin/*"],
    "without `..`": ["process:exec:/usr/../bin/x"],
    "the path of a binary": ["process:exec:/"],
    "another user's home": ["process:exec:~user/x", "process:exec:~root"],
    "`${workdir}` is the only variable": ["process:exec:${home}/x", "process:exec:${home}"],
    "environment variable": ["env:read:", "env:read:A=B", "env:read:A B", "env:read:AWS_*", "env:read:A\x00",
        "env:read:É", "env:read:" + "X" * 1025],
    "a secret reference": ["secret:read:", "secret:read:/a", "secret:read:a/", "secret:read:a//b", "secret:read:a/./b",
        "secret:read:a/../b", "secret:read:/*", "secret:read:a b", "secret:read:é", "secret:read:" + "x" * 256,
        "secret:read:" + "/".join(["x" * 255] * 3 + ["x" * 200, "x" * 56]), "secret:read:*/*"],
    "the last segment": ["secret:read:a*", "secret:read:*/a", "secret:read:a/*/b", "secret:read:**"],
    "`prefix/*` covers whole segments": ["secret:read:a/b*"],
    "one of tool-private, session, personality": ["storage:read:", "storage:read:disk"],
    "did you mean `session`?": ["storage:read:sesion", "storage:read:Session"],
    "a name of 1 to 128": ["tool:call:", "tool:call:a b", "tool:call:a*", "tool:call:é", "tool:call:" + "x" * 129,
        "tool:call:a:b", "connector:use:git hub", "connector:use:"],
    "found `a\\u202eb`": ["tool:call:a\u202eb"],
    "found `a\\u200bb`": ["tool:call:a\u200bb"],
    "found `a\\u000a`": ["tool:call:a\n"],
})  # fmt: skip


@pytest.mark.parametrize(("text", "canonical"), ACCEPTED)
def test_a_rule_is_read_and_written_canonically(text: str, canonical: str) -> None:
    assert str(Capability(text)) == (canonical or text)
    assert Capability.parse(text) == Capability(text)


@pytest.mark.parametrize(("text", "says"), MALFORMED)
def test_a_malformed_rule_is_refused_with_what_was_expected(text: str, says: str) -> None:
    with pytest.raises(Malformed) as refusal:
        Capability(text)
    message = str(refusal.value)
    assert says in message
    assert message.startswith("found `")
    assert ", expected " in message
    assert message.isprintable()
    assert not message.endswith(".")


def test_a_word_unlike_any_valid_one_gets_no_guess() -> None:
    for text in ("zzz:read:x", "fs:zzz:/x", "storage:read:zzz"):
        with pytest.raises(Malformed) as refusal:
            Capability(text)
        assert refusal.value.hint == ""


def test_a_refusal_names_the_part_that_is_wrong() -> None:
    for text, found in (("fss:read:/x", "fss"), ("fs:raed:/x", "raed"), ("fs:read", "fs:read"), ("tool:call:é", "é")):
        with pytest.raises(Malformed) as refusal:
            Capability(text)
        assert refusal.value.found == found


@pytest.mark.parametrize("domain", ACTIONS)
def test_every_action_of_a_domain_is_a_rule_and_star_is_all_of_them(domain: str) -> None:
    scope = {"storage": "session", "fs": "/x", "socket": "/x"}.get(domain, "x")
    whole = Capability(f"{domain}:*:{scope}")
    for action in ACTIONS[domain]:
        assert whole.covers(Capability(f"{domain}:{action}:{scope}"))
    with pytest.raises(Malformed):
        Capability(f"{domain}:never:{scope}")


def test_the_domains_are_those_of_the_design() -> None:
    assert tuple(DOMAINS) == tuple(ACTIONS)
    assert {name: {*domain.actions} - {"*"} for name, domain in DOMAINS.items()} == {
        name: {*actions} for name, actions in ACTIONS.items()
    }


# Where a character stands, and which of ASCII may stand there.
VISIBLE = set(string.ascii_letters + string.digits + string.punctuation)
CHARACTERS = [
    ("tool:call:a{}b", set(string.ascii_letters + string.digits + "_./-")),
    ("connector:use:a{}b", set(string.ascii_letters + string.digits + "_./-")),
    ("env:read:a{}b", VISIBLE - set("*=")),
    ("process:exec:a{}b", VISIBLE - set("*/")),
    ("secret:read:a{}b", VISIBLE - set("*")),
    ("secret:read:x/a{}b/*", VISIBLE - set("*")),
    ("network:*:a{}b.com", set(string.ascii_letters + string.digits + "_.-")),
    ("network:*:*.a{}b.com", set(string.ascii_letters + string.digits + "_.-")),
    ("network:*:x.a{}b", set(string.ascii_letters + string.digits + "_.-")),
    ("network:*:a{}b.COM", set(string.ascii_letters + string.digits + "_.-")),
    ("network:*:[::{}]", set(string.hexdigits + ":") - {":"}),
    ("fs:read:/a{}b", VISIBLE - set("*") | {" "}),
]


@pytest.mark.parametrize(("form", "expected"), CHARACTERS, ids=[form for form, _ in CHARACTERS])
def test_which_characters_a_scope_may_hold(form: str, expected: set[str]) -> None:
    texts = {chr(code): form.format(chr(code)) for code in range(128)}
    assert {char for char, text in texts.items() if read(text) is not None} == expected


@given(odd_texts)
def test_any_text_is_a_rule_or_is_refused_as_malformed(text: str) -> None:
    rule = outcome(Capability, text)
    assert type(rule) in (Capability, Malformed)
    if isinstance(rule, Malformed):
        assert str(rule).isprintable()


@pytest.mark.parametrize("value", [None, 5, b"fs:read:/x", ["fs:read:/x"], object()])
def test_a_rule_that_is_not_text_is_refused(value: object) -> None:
    with pytest.raises((TypeError, Malformed)):
        Capability(value)  # type: ignore[arg-type]


def test_a_str_subclass_is_parsed_by_its_real_characters() -> None:
    assert str(Capability(Liar("fs:read:/srv", "fs:read:/etc"))) == "fs:read:/srv"
    assert str(Capability(Liar("tool:call:a", "tool:call:b"))) == "tool:call:a"
    assert str(Capability(Liar("network:https:get@a.b:80", "network:*:*"))) == "network:https:get@a.b:80"
    assert type(Capability(Liar("fs:read:/srv", "fs:read:/etc")).key) is str
    assert str(Capability(BrokenText("fs:read:/srv"))) == "fs:read:/srv"
    with pytest.raises((TypeError, Malformed)):
        Capability(FalseText())  # type: ignore[arg-type]
    with pytest.raises(Malformed):
        Capability(Liar("nope", "fs:read:/etc"))


# What rules cover -----------------------------------------------------------------------------------------------------

COVERS = [
    ("fs:read:*", "fs:read:/tmp/file", True),
    ("fs:read:/tmp", "fs:read:/tmp", True),
    ("fs:read:/tmp", "fs:read:/tmp/a/b", True),
    ("fs:read:/tmp/sandbox", "fs:read:/tmp/sandbox-evil", False),
    ("fs:read:/tmp/a", "fs:read:/tmp", False),
    ("fs:read:/tmp", "fs:write:/tmp", False),
    ("fs:*:/tmp", "fs:delete:/tmp/x", True),
    ("fs:read:/tmp", "fs:*:/tmp", False),
    ("fs:read:~", "fs:read:~/x", True),
    ("fs:read:~/x", "fs:read:~", False),
    ("fs:read:${workdir}", "fs:read:${workdir}/x", True),
    ("fs:read:~", "fs:read:/x", False),
    ("fs:read:*", "fs:read:~/x", True),
    ("process:exec:/usr/bin", "process:exec:/usr/bin/grep", False),
    ("process:exec:/usr/bin/grep", "process:exec:/usr/bin/grep", True),
    ("process:exec:grep", "process:exec:/usr/bin/grep", False),
    ("process:exec:*", "process:exec:/usr/bin/grep", True),
    ("env:read:PATH", "env:read:PATHX", False),
    ("env:read:PATH", "env:read:Path", False),
    ("env:read:*", "env:read:PATH", True),
    ("secret:read:a/*", "secret:read:a/b", True),
    ("secret:read:a/*", "secret:read:a/b/c", True),
    ("secret:read:a/*", "secret:read:a/b/*", True),
    ("secret:read:a/*", "secret:read:a", False),
    ("secret:read:a/*", "secret:read:ab", False),
    ("secret:read:a/*", "secret:read:a/*", True),
    ("secret:read:a/b/*", "secret:read:a/*", False),
    ("secret:read:a", "secret:read:a/b", False),
    ("secret:read:*", "secret:read:a/*", True),
    ("storage:*:session", "storage:write:session", True),
    ("storage:read:*", "storage:read:personality", True),
    ("storage:read:*", "storage:*:personality", False),
    ("storage:write:session", "storage:write:personality", False),
    ("tool:call:http", "tool:call:http_get", False),
    ("tool:call:a", "tool:call:a/b", False),
    ("tool:call:*", "tool:call:a/b", True),
    ("connector:use:github", "connector:use:github", True),
    ("connector:use:github", "connector:use:gitlab", False),
    ("env:read:a", "secret:read:a", False),
    ("tool:call:*", "connector:use:*", False),
]


@pytest.mark.parametrize(("one", "other", "expected"), COVERS)
def test_what_a_rule_covers(one: str, other: str, expected: bool) -> None:
    assert Capability(one).covers(Capability(other)) is expected


@pytest.mark.parametrize(
    ("rule", "use", "expected"),
    [
        ("fs:read:/a", "fs:read:/a/b", True),
        ("fs:read:/a", "fs:write:/a/b", False),
        ("fs:read:/a/b", "fs:read:/a", False),
        ("env:read:a", "secret:read:a", False),
        ("network:https:get@*.a.test:443", "network:https:get@b.a.test:443", True),
        ("network:https:get@*.a.test:443", "network:https:get@b.a.test:444", False),
        ("network:https:get@*.a.test", "network:https:post@b.a.test:443", False),
        ("network:tcp:a.test", "network:https:get@a.test:443", False),
    ],
)
def test_a_rule_covers_a_use_exactly_if_a_set_of_it_has_the_use(rule: str, use: str, expected: bool) -> None:
    assert Capability(rule).covers_use(Use(use)) is expected
    assert CapabilitySet([rule]).has(use) is expected


MEETS = [
    ("fs:read:/a", "fs:read:/a/b", "fs:read:/a/b"),
    ("fs:*:/a", "fs:read:*", "fs:read:/a"),
    ("fs:read:/a", "fs:write:/a", None),
    ("fs:read:/a", "fs:read:/b", None),
    ("secret:read:a/*", "secret:read:a/b/*", "secret:read:a/b/*"),
    ("secret:read:a/*", "secret:read:a", None),
    ("process:exec:*", "process:exec:git", "process:exec:git"),
    ("process:exec:/a", "process:exec:/a/b", None),
    ("storage:read:*", "storage:*:session", "storage:read:session"),
    ("storage:read:session", "storage:write:session", None),
    ("storage:read:session", "storage:read:personality", None),
    ("env:read:A", "secret:read:A", None),
    ("tool:call:*", "tool:call:x", "tool:call:x"),
]


@pytest.mark.parametrize(("one", "other", "expected"), MEETS)
def test_what_two_rules_have_in_common(one: str, other: str, expected: str | None) -> None:
    met = Capability(one).meet(Capability(other))
    assert (met if met is None else str(met)) == expected


DEFERS = grouped({
    True: ["fs:read:*", "fs:*:/", "network:*:*", "network:https:*", "network:https:get", "network:read:https://*",
        "process:exec:*", "secret:read:*", "storage:read:*", "storage:*:*", "storage:write:*", "tool:call:*",
        "connector:use:*", "env:read:*", "socket:connect:*"],
    False: ["fs:read:/a", "fs:read:~", "network:*:*:80", "network:*:*.x.com", "process:exec:git", "secret:read:a/*",
        "storage:*:session", "storage:read:session", "tool:call:x"],
})  # fmt: skip


@pytest.mark.parametrize(("text", "expected"), DEFERS)
def test_a_scope_of_exactly_star_defers_to_the_ceiling(text: str, expected: bool) -> None:
    assert Capability(text).defers is expected


def test_a_domain_cannot_be_changed() -> None:
    domain = DOMAINS["fs"]
    with pytest.raises(AttributeError):
        domain.name = "network"  # type: ignore[misc]
    assert not hasattr(domain, "__dict__")


def test_storage_has_the_kinds_of_the_design() -> None:
    whole = Capability("storage:*:*")
    assert all(whole.covers(Capability(f"storage:{action}:{kind}")) for action in ("read", "write") for kind in KINDS)
