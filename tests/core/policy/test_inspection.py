"""What is looked into and placed under two policies together, and names of keys that cannot be placed."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from licet.core.algebra.scope import Malformed
from licet.core.policy.inspection import (
    StandIn,
    expanded,
    hosts_of,
    inspect_only,
    inspected_place,
    met_inspect,
    met_stand_ins,
    placed_at,
    places_of,
    stand_in_text,
    stand_ins,
    stand_ins_document,
    stand_ins_only,
    uninspected,
)
from licet.core.policy.servers import placeable_header, server_of
from licet.core.policy.unplaceable import UNPLACEABLE, unplaceable

HOSTS = ("a.test", "*.a.test", "b.a.test", "c.b.a.test", "a.test:8443", "*.b.a.test", "*", "[::1]:9", "z.test")
_hosts = st.lists(st.sampled_from(HOSTS), max_size=4)
_inspect = st.builds(lambda hosts: hosts_of(places_of(hosts)), _hosts)


def _entry(source: str, hosts: list[str], headers: list[str], body: list[str]) -> dict[str, Any]:
    of = {"secret": source} if source[0] != "/" else {"file": source, "field": "f"}
    return {**of, "hosts": hosts, "headers": headers, "body": body}


_stand_ins = st.builds(
    stand_ins,
    st.dictionaries(
        st.sampled_from("AB"),
        st.builds(
            _entry,
            st.sampled_from(["k", "other", "/f"]),
            st.lists(st.sampled_from(HOSTS), min_size=1, max_size=4),
            st.lists(st.sampled_from(["x-a", "X-B"]), max_size=2),
            st.lists(st.sampled_from(["c", "d"]), max_size=2),
        ),
    ),
)


@given(_inspect, _inspect, _inspect)
def test_inspect_of_two_policies_is_a_union(one: tuple[str, ...], two: tuple[str, ...], three: tuple[str, ...]) -> None:
    assert met_inspect(one, two) == met_inspect(two, one)
    assert met_inspect(met_inspect(one, two), three) == met_inspect(one, met_inspect(two, three))
    assert met_inspect(one, one) == one == met_inspect(one, ())
    assert places_of(one) <= places_of(met_inspect(one, two))


@given(_stand_ins, _stand_ins, _stand_ins)
def test_stand_ins_of_two_policies_are_an_intersection(
    one: tuple[StandIn, ...], two: tuple[StandIn, ...], three: tuple[StandIn, ...]
) -> None:
    assert met_stand_ins(one, two) == met_stand_ins(two, one)
    assert met_stand_ins(met_stand_ins(one, two), three) == met_stand_ins(one, met_stand_ins(two, three))
    assert met_stand_ins(one, one) == one
    assert met_stand_ins(one, ()) == ()
    met = met_stand_ins(one, two)
    assert all(entry.hosts for entry in met)
    for each in (one, two):
        assert not list(stand_ins_only(met, each))  # nothing is placed where one of the two does not place it


@given(_stand_ins)
def test_stand_ins_as_data_are_the_same_again(one: tuple[StandIn, ...]) -> None:
    assert stand_ins(stand_ins_document(one)) == one


@given(_inspect, _inspect)
def test_what_is_looked_into_less_is_named(one: tuple[str, ...], two: tuple[str, ...]) -> None:
    assert bool(list(inspect_only(one, two))) is not (places_of(two) <= places_of(one))
    assert bool(uninspected(two, one)) is not (places_of(two) <= places_of(one))


def test_only_the_common_part_of_an_entry_remains() -> None:
    one = stand_ins({"A": _entry("k", ["*.a.test", "z.test"], ["X-A", "x-b"], ["c", "d"])})
    two = stand_ins({"A": _entry("k", ["b.a.test"], ["x-b"], ["d"]), "B": _entry("k", ["z.test"], [], [])})
    (met,) = met_stand_ins(one, two)
    assert (met.hosts, met.headers, met.body) == (("b.a.test",), ("x-b",), ("d",))
    assert stand_in_text(met) == "`A` (k) at b.a.test in x-b, body d"
    other = stand_ins({"A": _entry("other", ["b.a.test"], ["x-b"], ["d"])})
    assert met_stand_ins(one, other) == ()


def test_what_only_one_policy_places_is_named_place_by_place() -> None:
    one = stand_ins({"A": _entry("k", ["*.a.test"], ["x-a"], ["c"])})
    two = stand_ins({"A": _entry("k", ["b.a.test"], [], [])})
    assert [text for text, _ in stand_ins_only(one, two)] == [
        "`A` (k) is placed at *.a.test except b.a.test",
        "`A` (k) is placed in the header x-a",
        "`A` (k) is placed in the field `c` of a body",
    ]
    assert list(stand_ins_only(two, one)) == []


def test_authorization_is_listed_for_a_key_without_a_scheme() -> None:
    (entry,) = stand_ins({"A": _entry("k", ["a.test"], ["Authorization", "X-A"], [])})
    assert entry.headers == ("authorization", "x-a")


def test_files_are_below_real_directories_once_these_are_known() -> None:
    files = ("~/.npmrc", "${workdir}/.netrc", "/etc/token")
    entries = tuple(StandIn(name=f"F{number}", file=file, field="f") for number, file in enumerate(files))
    found = [entry.file for entry in expanded((*entries, StandIn(name="S", secret="k")), "/desk", "/home/me")]
    assert found == ["/home/me/.npmrc", "/desk/.netrc", "/etc/token", ""]
    with pytest.raises(Malformed, match="home"):
        expanded(entries, "/desk", "")


@pytest.mark.parametrize("text", ["*", "*:443", "*:8443"])
def test_no_key_is_for_every_host(text: str) -> None:
    assert inspected_place(text) == text.removesuffix(":443")
    with pytest.raises(Malformed, match="never every host"):
        placed_at(text)


@pytest.mark.parametrize("name", ["x-api-key", "X-Goog-Api-Key", "cookie", "private-token", "authorization"])
def test_a_header_that_carries_a_key(name: str) -> None:
    assert placeable_header(name) == name.lower()


@pytest.mark.parametrize(
    "name",
    ["host", "Content-Length", "te", "trailer", "accept-encoding", "proxy-x", "user-agent", "a:b", "a b", "ä", ""],
)
def test_a_header_that_carries_no_key(name: str) -> None:
    with pytest.raises(Malformed):
        placeable_header(name)


NAMED = {
    "AWS_SECRET_ACCESS_KEY": "a key of AWS",
    "prod/aws/secret-access-key": "a key of AWS",
    "~/.aws/credentials": "a key of AWS",
    "WEBHOOK_HMAC": "it signs requests",
    "~/.ssh/id_ed25519": "a key of SSH",
    "TLS_CLIENT_KEY": "a client certificate",
    "GOOGLE_APPLICATION_CREDENTIALS": "a document with a key in it",
    "firebase/service-account.json": "a document with a key in it",
    "GITHUB_APP_PRIVATE_KEY": "the client parses it",
    "/etc/tls/server.pem": "the client parses it",
    "DATABASE_URL": "it is sent in the protocol of a database",
    **dict.fromkeys(("GITHUB_TOKEN", "github/token", "~/.npmrc", "ANTHROPIC_API_KEY", "OPEMAIL", "SSH", ""), ""),
}


@pytest.mark.parametrize("name", NAMED)
def test_keys_that_cannot_be_placed_are_known_by_name(name: str) -> None:
    assert unplaceable(name).startswith(NAMED[name]) if NAMED[name] else unplaceable(name) == ""


def test_each_kind_of_unplaceable_key_has_a_name() -> None:
    assert all(unplaceable(name) == kind.reason for kind in UNPLACEABLE for name in kind.names)


def test_a_server_hands_over_only_plain_references() -> None:
    placed = {"secret": "k", "hosts": ("a.test",)}
    server = server_of("s", {"command": ["x"], "secrets": {"PLAIN": "p", "PLACED": placed}, "inspect": ["a.test:443"]})
    assert dict(server.secrets) == {"PLAIN": "p"}
    assert server.stand_ins == (StandIn(name="PLACED", secret="k", hosts=("a.test",)),)
    assert server.inspect == ("a.test",)
    assert {str(rule) for rule in server.holds.allow} == {"secret:read:k", "secret:read:p"}
