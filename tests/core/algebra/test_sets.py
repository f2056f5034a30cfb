"""Sets by example: deny wins, meets and unions, order, differences, and the normal form."""

from collections.abc import Iterator

import pytest

from licet.core.algebra.domains import EVERYTHING, HTTP, HTTPS, TCP
from licet.core.algebra.rules import Capability, InvalidUse, Use
from licet.core.algebra.scope import Malformed
from licet.core.algebra.set import CapabilitySet, Piece, TooManyPairs
from licet.core.limits import MOST_BOXES

Spec = tuple[list[str], list[str]]


def made(spec: Spec) -> CapabilitySet:
    return CapabilitySet(*spec)


# Allows, denies, a use, and what is decided.
DECIDED = [
    (["fs:read:*"], [], "fs:read:/tmp/file", True),
    (["fs:read:*"], [], "fs:write:/tmp/file", False),
    ([], [], "fs:read:/tmp/file", False),
    (["fs:read:*"], ["fs:read:/tmp"], "fs:read:/tmp/file", False),
    (["fs:read:/tmp/file"], ["fs:read:/tmp"], "fs:read:/tmp/file", False),
    (["fs:read:/tmp/file"], ["fs:*:*"], "fs:read:/tmp/file", False),
    (["fs:*:/tmp"], ["fs:write:/tmp"], "fs:read:/tmp/file", True),
    (["fs:*:/tmp"], ["fs:write:/tmp"], "fs:write:/tmp/file", False),
    (["fs:read:/a"], ["fs:read:/a/b"], "fs:read:/a", True),
    (["fs:read:/a", "fs:read:/a/b/c"], ["fs:read:/a/b"], "fs:read:/a/b/c", False),
    (["network:http:get"], [], "network:http:get@x.com", True),
    (["network:http:get"], [], "network:https:get@x.com", False),
    (["network:*:*"], ["network:*:*:80"], "network:http:get@x:80", False),
    (["network:*:*"], ["network:*:*:80"], "network:http:get@x:81", True),
    (["network:*:x:80"], ["network:*:x"], "network:http:get@x:80", False),
    (["network:*:x:80"], ["network:*:*"], "network:http:get@x:80", False),
    (["network:*:*.a"], ["network:*:*:80"], "network:http:get@b.a:80", False),
    (["network:*:*:80"], ["network:*:*.a"], "network:http:get@b.a:80", False),
    (["network:*:*:80"], ["network:*:*.a"], "network:http:get@a:80", True),
    (["network:*:*:80", "network:*:b.a"], ["network:*:*.a:81"], "network:http:get@b.a:80", True),
    (["network:*:*:80", "network:*:b.a"], ["network:*:*.a:81"], "network:http:get@b.a:81", False),
    (["network:*:*:80", "network:*:b.a"], ["network:*:*.a:81"], "network:http:get@b.a:82", True),
    (["network:*:x"], ["network:http:get@x:80"], "network:http:get@x:80", False),
    (["network:*:x"], ["network:http:get@x"], "network:http:get@x:80", False),
    (["network:*:x:80"], ["network:http:get@x:80"], "network:http:get@x:80", False),
    (["network:https:*"], ["network:*:delete"], "network:https:delete@x", False),
    (["network:https:*"], ["network:*:delete"], "network:https:get@x", True),
    (["network:tcp:*:22"], [], "network:tcp:x:22", True),
    (["network:tcp:*:22"], [], "network:https:get@x:22", False),
    (["storage:*:*"], ["storage:write:personality"], "storage:write:personality", False),
    (["storage:*:*"], ["storage:write:personality"], "storage:read:personality", True),
    (["storage:*:*"], ["storage:write:personality"], "storage:write:session", True),
    (["secret:read:a/*"], ["secret:read:a/b/*"], "secret:read:a/b", True),
    (["secret:read:a/*"], ["secret:read:a/b/*"], "secret:read:a/b/c", False),
    (["process:exec:*"], ["process:exec:git"], "process:exec:/usr/bin/git", True),
    (["process:exec:*"], ["process:exec:git"], "process:exec:git", False),
    (["tool:call:*"], ["connector:use:x"], "tool:call:x", True),
]


@pytest.mark.parametrize(("allow", "deny", "use", "expected"), DECIDED)
def test_what_a_set_has(allow: list[str], deny: list[str], use: str, expected: bool) -> None:
    found = CapabilitySet(allow, deny)
    assert found.has(use) is expected
    assert found.has(Use(use)) is expected


# Allows, denies, a capability, and whether it is covered whole.
COVERED = [
    (["fs:read:*"], [], "fs:read:/tmp", True),
    (["fs:read:/tmp"], [], "fs:read:*", False),
    (["fs:read:/tmp", "fs:write:/tmp", "fs:delete:/tmp"], [], "fs:*:/tmp", True),
    (["fs:read:*"], ["fs:read:/tmp/x"], "fs:read:/tmp", False),
    (["fs:read:*"], ["fs:read:/tmp/x"], "fs:read:/srv", True),
    (["fs:read:*"], ["fs:write:*"], "fs:read:/tmp", True),
    (["network:http:x", "network:https:x", "network:tcp:x"], [], "network:*:x", True),
    (["network:http:x", "network:https:x"], [], "network:*:x", False),
    (["network:http:x", "network:https:x"], [], "network:read:x", True),
    (["network:*:x:80", "network:*:x:443"], [], "network:*:x", False),
    (["network:*:*"], ["network:*:x:80"], "network:*:x:443", True),
    (["network:*:*"], ["network:*:x:80"], "network:*:x", False),
    (["storage:read:tool-private", "storage:read:session", "storage:read:personality"], [], "storage:read:*", True),
    (["tool:call:a", "tool:call:b"], [], "tool:call:*", False),
]


@pytest.mark.parametrize(("allow", "deny", "rule", "expected"), COVERED)
def test_a_capability_must_be_covered_completely(allow: list[str], deny: list[str], rule: str, expected: bool) -> None:
    assert CapabilitySet(allow, deny).has(Capability(rule)) is expected


# Two sets, what they have in common, and what they say together.
COMBINED = [
    ((["network:*:api.github.com", "network:*:api.stripe.com"], []), (["network:*:*.github.com"], []),
        (["network:*:api.github.com"], []), (["network:*:*.github.com", "network:*:api.stripe.com"], [])),
    ((["network:*:github.com"], []), (["network:*:*.github.com"], []), ([], []),
        (["network:*:*.github.com", "network:*:github.com"], [])),
    ((["fs:read:*"], ["fs:read:/etc"]), (["fs:read:/srv", "fs:read:/etc/x"], ["fs:read:/srv/.env"]),
        (["fs:read:/srv"], ["fs:read:/etc", "fs:read:/srv/.env"]),
        (["fs:read:*"], ["fs:read:/etc", "fs:read:/srv/.env"])),
    ((["fs:*:/a"], []), (["fs:read:/a/b", "fs:write:*"], []), (["fs:read:/a/b", "fs:write:/a"], []),
        (["fs:delete:/a", "fs:read:/a", "fs:write:*"], [])),
    ((["network:https:*"], []), (["network:read:*:80", "network:*:x"], []),
        (["network:https:x", "network:read:https://*:80"], []),
        (["network:http:x", "network:https:*", "network:read:http://*:80", "network:tcp:x"], [])),
    ((["network:*:*:80"], []), (["network:*:*:443"], []), ([], []), (["network:*:*:443", "network:*:*:80"], [])),
    ((["network:*:*:80", "network:*:x"], []), (["network:*:*.y", "network:*:x:80", "network:*:x:81"], []),
        (["network:*:*.y:80", "network:*:x:80", "network:*:x:81"], []),
        (["network:*:*.y", "network:*:*:80", "network:*:x"], [])),
    ((["storage:*:session", "storage:read:*"], []), (["storage:write:*"], ["storage:read:personality"]),
        (["storage:write:session"], ["storage:read:personality"]),
        (["storage:*:session", "storage:*:tool-private", "storage:write:*"], ["storage:read:personality"])),
    ((["env:read:A", "tool:call:*"], []), (["env:read:*", "connector:use:x"], []), (["env:read:A"], []),
        (["connector:use:x", "env:read:*", "tool:call:*"], [])),
    (([], ["fs:read:*"]), (["fs:read:/a"], []), ([], ["fs:read:*"]), ([], ["fs:read:*"])),
]  # fmt: skip


@pytest.mark.parametrize(("one", "two", "both", "either"), COMBINED)
def test_meets_and_unions(one: Spec, two: Spec, both: Spec, either: Spec) -> None:
    met, joined = made(one) & made(two), made(one) | made(two)
    assert ([str(rule) for rule in met.allow], [str(rule) for rule in met.deny]) == both
    assert ([str(rule) for rule in joined.allow], [str(rule) for rule in joined.deny]) == either


# Two sets, whether the first is within the second, and what of it is not.
DIFFERENCES: list[tuple[Spec, Spec, list[str]]] = [
    ((["fs:read:/a"], []), (["fs:read:*"], []), []),
    ((["fs:read:*"], []), (["fs:read:/a"], []), ["fs:read:* except fs:read:/a"]),
    ((["fs:read:/a"], []), (["fs:read:*"], ["fs:read:/a"]), ["fs:read:/a"]),
    ((["fs:read:/a"], []), (["fs:read:*"], ["fs:read:/a/b"]), ["fs:read:/a/b"]),
    ((["fs:read:/a"], []), (["fs:read:*"], ["fs:read:*"]), ["fs:read:/a"]),
    ((["fs:read:/a"], ["fs:read:/a/b"]), (["fs:read:*"], ["fs:read:/a/b"]), []),
    ((["fs:read:/a"], ["fs:read:/a/b/c"]), (["fs:read:*"], ["fs:read:/a/b"]), ["fs:read:/a/b except fs:read:/a/b/c"]),
    ((["fs:read:/a"], ["fs:read:/a"]), ([], []), []),
    ((["fs:*:/a"], []), (["fs:read:/a"], []), ["fs:delete:/a", "fs:write:/a"]),
    ((["fs:*:/a"], []), (["fs:read:/a/b"], []), ["fs:delete:/a", "fs:read:/a except fs:read:/a/b", "fs:write:/a"]),
    ((["fs:read:/a"], []), ([], []), ["fs:read:/a"]),
    (([], []), (["fs:read:/a"], []), []),
    (([], ["fs:read:/a"]), ([], []), []),
    ((["network:*:*"], []), (["network:*:*"], ["network:*:x"]), ["network:*:x"]),
    ((["network:*:*"], []), (["network:*:*"], ["network:*:*:80"]), ["network:*:*:80"]),
    ((["network:*:*:80"], []), (["network:*:*"], ["network:*:*:80"]), ["network:*:*:80"]),
    ((["network:*:*.x:80"], []), (["network:*:*"], ["network:*:*:80"]), ["network:*:*.x:80"]),
    ((["network:*:*.x"], []), (["network:*:*"], ["network:*:*:80"]), ["network:*:*.x:80"]),
    ((["network:*:x"], []), (["network:*:x:80"], []), ["network:*:x except network:*:x:80"]),
    ((["network:*:x"], []), (["network:https:x"], []), ["network:http:x", "network:tcp:x"]),
    ((["network:*:x"], ["network:tcp:x"]), (["network:http:*", "network:https:*"], []), []),
    ((["network:read:x"], []), (["network:https:*"], []), ["network:read:http://x"]),
    ((["network:https:*"], []), (["network:https:*.a", "network:https:b"], []),
        ["network:https:* except network:https:*.a, network:https:b"]),
    ((["storage:*:*"], []), (["storage:*:session", "storage:read:*"], []),
        ["storage:write:personality", "storage:write:tool-private"]),
    ((["tool:call:*"], []), (["tool:call:a"], []), ["tool:call:* except tool:call:a"]),
    ((["secret:read:a/*"], []), (["secret:read:a/b/*"], []), ["secret:read:a/* except secret:read:a/b/*"]),
    ((["env:read:A", "env:read:B"], []), (["env:read:B"], []), ["env:read:A"]),
]  # fmt: skip


@pytest.mark.parametrize(("one", "two", "pieces"), DIFFERENCES)
def test_what_one_set_reaches_and_another_does_not(one: Spec, two: Spec, pieces: list[str]) -> None:
    difference = made(one) - made(two)
    assert [str(piece) for piece in difference] == pieces
    assert (made(one) <= made(two)) is (not pieces)
    assert (made(two) >= made(one)) is (not pieces)
    assert type(difference) is tuple
    for piece in difference:
        assert type(piece) is Piece
        assert type(piece.rule) is Capability
        assert type(piece.excepts) is tuple


def test_several_rules_may_cover_one_together() -> None:
    whole = CapabilitySet(["fs:*:/a", "network:*:x", "storage:*:*"])
    parts = CapabilitySet(
        [
            *("fs:read:/a", "fs:write:*", "fs:delete:/a"),
            *("network:http:*", "network:https:x", "network:tcp:*"),
            *("storage:read:*", "storage:write:session", "storage:write:tool-private", "storage:write:personality"),
        ]
    )
    assert whole <= parts


def test_a_union_with_denies_may_be_narrower_than_its_parts() -> None:
    one, two = CapabilitySet(["fs:read:/a"]), CapabilitySet([], ["fs:read:/a/b"])
    assert not one <= one | two
    assert one | two <= one


# As written, and the normal form.
NORMAL = [
    ((["fs:read:/a", "fs:read:/a/b"], []), (["fs:read:/a"], [])),
    ((["fs:read:/a", "fs:write:/a", "fs:delete:/a"], []), (["fs:*:/a"], [])),
    ((["fs:read:/a", "fs:write:/a"], []), (["fs:read:/a", "fs:write:/a"], [])),
    ((["fs:*:/a/b", "fs:read:/a"], []), (["fs:delete:/a/b", "fs:read:/a", "fs:write:/a/b"], [])),
    ((["fs:*:/a/b", "fs:read:*"], []), (["fs:delete:/a/b", "fs:read:*", "fs:write:/a/b"], [])),
    ((["fs:read:/a/b"], ["fs:read:/a"]), ([], ["fs:read:/a"])),
    ((["fs:*:/a/b"], ["fs:read:/a"]), (["fs:delete:/a/b", "fs:write:/a/b"], ["fs:read:/a"])),
    ((["fs:read:/a"], ["fs:read:/a/b", "fs:read:/a/b/c"]), (["fs:read:/a"], ["fs:read:/a/b"])),
    ((["fs:read:/a"], ["fs:read:/z"]), (["fs:read:/a"], ["fs:read:/z"])),
    (([], ["fs:read:/a", "fs:write:/a", "fs:delete:*"]), ([], ["fs:delete:*", "fs:read:/a", "fs:write:/a"])),
    ((["fs:*:/a", "fs:*:*"], ["fs:read:*"]), (["fs:delete:*", "fs:write:*"], ["fs:read:*"])),
    ((["storage:read:session", "storage:read:personality"], []),
        (["storage:read:personality", "storage:read:session"], [])),
    ((["storage:read:*", "storage:write:*"], []), (["storage:*:*"], [])),
    ((["storage:*:session", "storage:*:personality", "storage:*:tool-private"], []), (["storage:*:*"], [])),
    ((["network:*:x:80"], ["network:*:x"]), ([], ["network:*:x"])),
    ((["network:*:x"], ["network:*:x:80"]), (["network:*:x"], ["network:*:x:80"])),
    ((["network:*:x", "network:*:x:80"], ["network:*:*:80"]), (["network:*:x"], ["network:*:*:80"])),
    ((["network:*:x:80"], ["network:*:*:80", "network:*:*.y:80"]), ([], ["network:*:*:80"])),
    (([], ["network:*:x:80", "network:*:x"]), ([], ["network:*:x"])),
    ((["network:*:x"], ["network:read:x"]),
        (["network:*:delete@x", "network:*:other@x", "network:tcp:x", "network:write:x"], ["network:read:x"])),
]  # fmt: skip


@pytest.mark.parametrize(("written", "normal"), NORMAL)
def test_the_normal_form(written: Spec, normal: Spec) -> None:
    found = made(written)
    assert ([str(rule) for rule in found.allow], [str(rule) for rule in found.deny]) == normal
    assert found == made(normal)
    assert len(found) == len(normal[0])
    assert bool(found) is bool(normal[0])


def test_same_reach_is_not_equality_where_denies_differ() -> None:
    one, two = CapabilitySet(["fs:read:/a"]), CapabilitySet(["fs:read:/a"], ["fs:read:/z"])
    assert one <= two
    assert two <= one
    assert one != two
    wide = CapabilitySet(["fs:read:/z"])
    assert (one | wide).has("fs:read:/z")
    assert not (two | wide).has("fs:read:/z")


def test_an_empty_set_reaches_nothing() -> None:
    for empty in (CapabilitySet(), CapabilitySet([]), CapabilitySet((), ())):
        assert not empty
        assert len(empty) == 0
        assert list(empty) == []
        assert not empty.has("fs:read:/a")
        assert not empty.has(Capability("tool:call:x"))


def test_rules_may_be_text_or_capabilities_from_any_iterable() -> None:
    def some() -> Iterator[str | Capability]:
        yield "fs:read:/a"
        yield Capability("fs:read:/b")

    expected = CapabilitySet(["fs:read:/a", "fs:read:/b"], ["fs:read:/a", "fs:read:/b"])
    assert CapabilitySet(some(), some()) == expected
    assert CapabilitySet({"fs:read:/a", "fs:read:/b"}, deny=expected.deny) == expected
    assert CapabilitySet(rules=expected.allow, deny=expected.deny) == expected


@pytest.mark.parametrize(
    "rules", ["fs:read:/a", None, 5, [None], [5], [b"fs:read:/a"], [Use("fs:read:/a")], [["fs:read:/a"]]]
)
def test_a_value_that_is_not_a_list_of_rules_is_refused(rules: object) -> None:
    with pytest.raises((TypeError, Malformed)):
        CapabilitySet(rules)  # type: ignore[arg-type]
    with pytest.raises((TypeError, Malformed)):
        CapabilitySet((), rules)  # type: ignore[arg-type]


def test_one_text_instead_of_a_list_is_explained() -> None:
    with pytest.raises(TypeError, match="expected a list of rules, found one text"):
        CapabilitySet("fs:read:/a")
    with pytest.raises(TypeError, match="expected a list of rules, found one text"):
        CapabilitySet([], deny="fs:read:/a")


def test_one_malformed_rule_makes_no_set() -> None:
    with pytest.raises(Malformed):
        CapabilitySet(["fs:read:/a", "fs:raed:/b"])
    with pytest.raises(Malformed):
        CapabilitySet(["fs:read:/a"], ["fs:read:b"])


# Allows, denies, a use or capability, and: allowed, denied, or not covered at all.
VERDICTS = [
    (["fs:read:/a"], [], "fs:read:/a/b", True),
    (["fs:read:/a"], ["fs:read:/a/b"], "fs:read:/a/b", False),
    ([], ["fs:read:/a/b"], "fs:read:/a/b", False),
    (["fs:read:/a"], [], "fs:read:/b", None),
    (["network:*:x"], ["network:*:x:80"], "network:http:get@x:80", False),
    (["network:*:x:80"], ["network:*:x"], "network:http:get@x:80", False),
    (["network:*:x:80"], [], "network:http:get@x:80", True),
    (["network:*:x:80"], ["network:*:y"], "network:http:get@x:81", None),
]


@pytest.mark.parametrize(("allow", "deny", "use", "expected"), VERDICTS)
def test_a_verdict_distinguishes_a_deny_from_a_missing_rule(
    allow: list[str], deny: list[str], use: str, expected: bool | None
) -> None:
    found = CapabilitySet(allow, deny)
    assert found.verdict(use) is expected
    assert found.verdict(Use(use)) is expected


# Allows, denies, uses, and the first of them that is not allowed.
LACKING = [
    (["fs:read:/a"], [], [], None),
    (["fs:read:/a"], [], ["fs:read:/a", "fs:read:/a/b"], None),
    (["fs:read:/a"], [], ["fs:read:/a", "fs:read:/b", "fs:read:/c"], "fs:read:/b"),
    (["fs:read:/a"], ["fs:read:/a/b"], ["fs:read:/a", "fs:read:/a/b"], "fs:read:/a/b"),
    (["fs:read:/a"], [], ["env:read:A"], "env:read:A"),
    (["fs:read:/a", "network:*:x:80"], [], ["fs:read:/a", "network:http:get@x:80"], None),
    (["fs:read:/a", "network:*:x:80"], [], ["network:http:get@x:80", "network:http:get@x:81"], "network:http:get@x:81"),
    (["network:*:x"], ["network:*:x:80"], ["network:http:get@x:81", "network:http:get@x:80"], "network:http:get@x:80"),
]


@pytest.mark.parametrize(("allow", "deny", "uses", "expected"), LACKING)
def test_the_first_use_that_is_lacking(
    allow: list[str], deny: list[str], uses: list[str], expected: str | None
) -> None:
    found = CapabilitySet(allow, deny)
    for _ in range(2):
        lacking = found.lacks(tuple(map(Use, uses)))
        assert (lacking if lacking is None else str(lacking)) == expected


def test_a_verdict_on_a_capability_is_whether_it_is_covered_completely() -> None:
    found = CapabilitySet(["fs:read:/a"], ["fs:read:/a/b"])
    assert found.verdict(Capability("fs:read:/a/c")) is True
    assert found.verdict(Capability("fs:read:/a")) is None


def test_a_wildcard_in_the_text_of_a_use_raises_whatever_is_allowed() -> None:
    for text in ("fs:read:*", "fs:read:/a/*", "network:https:get@*.x.com", "tool:call:*", "secret:read:a/*"):
        for found in (CapabilitySet(), CapabilitySet([] if "a/*" in text and text[:2] == "fs" else [text])):
            with pytest.raises(InvalidUse):
                found.has(text)


def test_large_sets_decide_and_compare_like_small_ones() -> None:
    rules = [f"network:https:get@h{number}.example.com" for number in range(300)]
    rules += [f"fs:read:/srv/{number}/data" for number in range(300)]
    large = CapabilitySet(rules, ["fs:*:/srv/7/data/.env"])
    assert len(large) == 600
    assert large.has("network:https:get@h299.example.com")
    assert not large.has("network:https:get@h300.example.com")
    assert large <= CapabilitySet(["network:*:*.example.com", "fs:*:/srv"])
    assert large & large == large
    assert [str(piece) for piece in large - CapabilitySet(rules[1:])] == ["network:https:get@h0.example.com"]


def test_in_and_comparisons_return_plain_booleans() -> None:
    small, large = CapabilitySet(["fs:read:/a/b"]), CapabilitySet(["fs:read:/a"])
    assert Use("fs:read:/a/b/c") in large
    assert Use("fs:read:/c") not in large
    # Asked directly: with an operator, Python would turn the question round and hide a missing answer.
    assert large.__ge__(small) is True
    assert small.__ge__(large) is False
    assert small.__le__(large) is True
    assert large.__le__(small) is False


ATOMS: list[tuple[list[str], list[str], str, tuple[int, int]]] = [
    # the allows, the denies, the use, and the atoms at its port and at any
    ([], [], "network:https:get@a.example", (0, 0)),
    (["network:*:*.example"], [], "network:https:get@a.example", (EVERYTHING, EVERYTHING)),
    (["network:*:b.example"], [], "network:https:get@a.example", (0, 0)),
    (["network:https:a.example:443"], [], "network:https:get@a.example", (HTTPS, HTTPS)),
    (["network:https:a.example:8443"], [], "network:https:get@a.example", (0, HTTPS)),
    (["network:tcp:a.example", "network:https:a.example:443"], [], "network:https:get@a.example", (TCP | HTTPS,) * 2),
    (["network:*:a.example"], ["network:tcp:*.example"], "network:https:get@a.example", (HTTP | HTTPS,) * 2),
    (["network:*:a.example:80"], ["network:*:a.example"], "network:http:get@a.example", (0, 0)),
    (["network:*:a.example"], ["network:*:*:443"], "network:https:get@a.example", (0, EVERYTHING)),
    (["network:*:a.example:443"], ["network:tcp:a.example:443"], "network:https:get@a.example", (HTTP | HTTPS,) * 2),
    (["network:*:a.example:80"], ["network:*:*:80"], "network:https:get@a.example", (0, 0)),
    (["fs:read:/"], ["fs:read:~/x"], "fs:read:/srv/a", (0, 0)),
    (["process:exec:*"], ["process:exec:${workdir}/x"], "process:exec:/bin/sh", (0, 0)),
]


@pytest.mark.parametrize(("allows", "denies", "use", "atoms"), ATOMS)
def test_atoms_at_are_those_allowed_at_the_target_of_a_use(
    allows: list[str], denies: list[str], use: str, atoms: tuple[int, int]
) -> None:
    assert CapabilitySet(allows, denies).atoms_at(Use(use)) == atoms


def test_a_deny_elsewhere_does_not_change_atoms_at() -> None:
    use, allowed = Use("fs:read:/srv/a"), CapabilitySet(["fs:read:/"])
    assert CapabilitySet(["fs:read:/"], ["fs:read:/x"]).atoms_at(use) == allowed.atoms_at(use) != (0, 0)


def test_a_meet_of_more_pairs_than_the_limit_is_refused() -> None:
    ports = range(1, int(MOST_BOXES**0.5) + 20)
    many = CapabilitySet([f"network:*:a.example:{port}" for port in ports])
    with pytest.raises(TooManyPairs):
        many & (many | CapabilitySet(["network:*:b.example"]))
