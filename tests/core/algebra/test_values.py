"""Capabilities, uses, sets and their refusals as Python values: they never change, and copies are the same."""

import contextlib
import copy
import hashlib
import operator
import pickle
from collections.abc import Callable
from typing import Any

import pytest
import rfc8785
from hypothesis import given

from core.naive import PlainRule, PlainUse
from core.strategies import PlainSet, odd_texts, read, rules, sets, uses
from licet.core.algebra.rules import Capability, InvalidUse, Use, use_of_path
from licet.core.algebra.scope import Malformed
from licet.core.algebra.set import CapabilitySet, Piece

RULE = Capability("network:https:get@*.github.com:443")
USE = Use("network:https:get@api.github.com")
SET = CapabilitySet(["fs:read:/srv", "network:*:*.b:80", "storage:write:session"], ["fs:*:/srv/.env"])
VALUES: list[Any] = [RULE, USE, SET]


def by_type(value: object) -> str:
    return type(value).__name__


def pickled(protocol: int) -> Callable[[Any], Any]:
    return lambda value: pickle.loads(pickle.dumps(value, protocol))


COPIES: dict[str, Callable[[Any], Any]] = {
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
    "repr": lambda value: eval(repr(value), {kind.__name__: kind for kind in (Capability, Use, CapabilitySet)}),
    **{f"pickle {protocol}": pickled(protocol) for protocol in range(pickle.HIGHEST_PROTOCOL + 1)},
}


@pytest.mark.parametrize("how", COPIES)
@pytest.mark.parametrize("value", VALUES, ids=by_type)
def test_a_copy_is_equal_and_of_the_same_type(value: Any, how: str) -> None:
    again = COPIES[how](value)
    assert again == value
    assert hash(again) == hash(value)
    assert type(again) is type(value)
    assert str(again) == str(value)


@given(rules, uses, sets)
def test_every_value_survives_pickle_and_repr(rule: PlainRule, use: PlainUse, plain: PlainSet) -> None:
    for value in (Capability(rule.text), Use(use.text), plain.real):
        for how in ("pickle 2", "pickle 5", "repr"):
            assert COPIES[how](value) == value


def test_a_copied_set_still_decides() -> None:
    again = COPIES["pickle 5"](SET)
    assert again.has("fs:read:/srv/a")
    assert not again.has("fs:read:/srv/.env")
    assert again.digest == SET.digest


def test_a_copied_use_is_checked_the_same() -> None:
    assert SET.has(COPIES["pickle 5"](Use("network:tcp:x.b:80")))
    assert not SET.has(COPIES["pickle 5"](Use("network:tcp:x.b:81")))


def test_a_file_called_star_can_be_used_and_pickled_though_its_text_is_no_use() -> None:
    star = use_of_path("read", "/srv/*")
    assert SET.has(star)
    assert COPIES["pickle 5"](star) == star
    with pytest.raises(InvalidUse):
        Use(str(star))


@pytest.mark.parametrize("error", [Malformed("x\ty", "a rule", "try `z`"), InvalidUse("x\ty", "a use")], ids=by_type)
def test_a_refusal_survives_pickle_and_shows_what_was_found(error: Malformed | InvalidUse) -> None:
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is type(error)
    assert str(again) == str(error)
    assert (again.found, again.expected) == ("x\ty", error.expected)
    assert "found `x\\u0009y`, expected a" in str(error)
    assert isinstance(error, ValueError)


def test_a_hint_comes_last_and_only_if_there_is_one() -> None:
    assert str(Malformed("x", "y", "do z")) == "found `x`, expected y; do z"
    assert str(Malformed("x", "y")) == "found `x`, expected y"
    assert Malformed("x", "y", "do z").hint == "do z"
    assert pickle.loads(pickle.dumps(Malformed("x", "y", "do z"))).hint == "do z"


# Nothing changes ------------------------------------------------------------------------------------------------------


def attributes(value: object) -> list[str]:
    return sorted({name for kind in type(value).__mro__ for name in (*vars(kind), *getattr(kind, "__slots__", ()))})


@pytest.mark.parametrize("value", VALUES, ids=by_type)
def test_no_attribute_can_be_set_or_deleted(value: Any) -> None:
    names = attributes(value)
    assert len(names) > 20
    for name in (*names, "new"):
        with pytest.raises((AttributeError, TypeError)):
            setattr(value, name, None)
        with pytest.raises((AttributeError, TypeError)):
            delattr(value, name)


@pytest.mark.parametrize("value", VALUES, ids=by_type)
def test_the_class_cannot_be_changed(value: Any) -> None:
    with pytest.raises((AttributeError, TypeError)):
        value.__class__ = type(value).__mro__[1]
    with pytest.raises(AttributeError, match="cannot be changed: action"):
        value.action = "x"
    with pytest.raises(AttributeError, match="cannot be changed: keys"):
        del value.keys


@pytest.mark.parametrize("value", VALUES, ids=by_type)
def test_values_have_no_dict(value: Any) -> None:
    assert not hasattr(value, "__dict__")
    with pytest.raises(TypeError):
        vars(value)


@pytest.mark.parametrize("value", VALUES, ids=by_type)
def test_no_item_can_be_set_or_deleted(value: Any) -> None:
    with pytest.raises(TypeError):
        value["fs"] = "read"
    with pytest.raises(TypeError):
        del value["fs"]


IN_PLACE = ["iadd", "iand", "ior", "ixor", "isub", "imul", "ifloordiv", "imod", "ilshift", "irshift", "ipow", "imatmul"]


@pytest.mark.parametrize("name", IN_PLACE)
@pytest.mark.parametrize("value", VALUES, ids=by_type)
def test_no_operator_works_in_place(value: Any, name: str) -> None:
    with pytest.raises(TypeError):
        getattr(operator, name)(value, value)


@pytest.mark.parametrize("value", VALUES, ids=by_type)
@pytest.mark.parametrize("method", ["add", "update", "discard", "remove", "clear", "pop", "append", "extend"])
def test_there_is_no_method_that_would_change_it(value: Any, method: str) -> None:
    assert not hasattr(value, method)


def test_an_in_place_operator_says_what_to_write_instead() -> None:
    narrow = SET
    with pytest.raises(TypeError, match=r"cannot be changed in place; write `a = a & b`"):
        narrow &= SET
    with pytest.raises(TypeError, match="cannot be changed in place"):
        narrow |= SET


def test_the_list_a_set_was_made_from_may_change_without_changing_the_set() -> None:
    rules_, deny = ["fs:read:/a"], ["fs:read:/a/b"]
    made = CapabilitySet(rules_, deny)
    before = made.digest
    rules_.append("fs:read:*")
    deny.clear()
    assert not made.has("fs:read:/b")
    assert not made.has("fs:read:/a/b")
    assert CapabilitySet(made.allow, made.deny).digest == made.digest == before


def test_calling_init_again_changes_nothing() -> None:
    made = CapabilitySet(["fs:read:/a"])
    with contextlib.suppress(TypeError):
        made.__init__(["fs:read:*"])  # type: ignore[misc]
    assert not made.has("fs:read:/b")


def test_operations_leave_their_operands_alone() -> None:
    one, two = (
        CapabilitySet(["fs:*:/a", "network:*:*"], ["fs:read:/a/b"]),
        CapabilitySet(["fs:read:/a/b"], ["network:*:x"]),
    )
    before = repr(one), repr(two)
    for operation in (operator.and_, operator.or_, operator.le, operator.sub, operator.eq):
        operation(one, two)
    assert (repr(one), repr(two)) == before
    assert one.has("network:https:get@x")
    assert two.has("fs:read:/a/b")


# Equality and order ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", VALUES, ids=by_type)
def test_a_value_is_not_equal_to_values_of_other_types(value: Any) -> None:
    for other in (str(value), repr(value), None, 0, object(), *(other for other in VALUES if other is not value)):
        assert value != other
        assert operator.eq(value, other) is False
    assert value == value


def test_uses_that_differ_in_one_part_differ() -> None:
    base = Use("network:https:get@x:443")
    for text in (
        "network:http:get@x:443",
        "network:https:head@x:443",
        "network:https:get@y:443",
        "network:https:get@x:80",
        "network:tcp:x:443",
    ):
        assert Use(text) != base
    assert Use("network:https:GET@X.") == base
    assert hash(Use("network:https:GET@X.")) == hash(base)
    assert Use("env:read:a") != Use("secret:read:a")
    assert Use("tool:call:a") != Use("connector:use:a")
    assert len({base, Use("network:https:get@x"), Use("fs:read:/x"), Use("fs:write:/x")}) == 3


def test_capabilities_that_differ_in_one_part_differ() -> None:
    texts = ["network:https:x:443", "network:http:x:443", "network:https:y:443", "network:https:x", "env:read:x"]
    texts += ["secret:read:x", "fs:read:/x", "fs:write:/x"]
    assert len({Capability(text) for text in texts}) == len(texts)


def test_capabilities_sort_by_code_point_of_their_text() -> None:
    texts = ["fs:read:/é", "fs:read:/Z", "fs:read:/a", "env:read:Z", "network:*:b", "fs:read:*"]
    assert [str(rule) for rule in sorted(map(Capability, texts))] == sorted(texts)
    assert not Capability("fs:read:/a") < Capability("fs:read:/a")


@pytest.mark.parametrize("operation", [operator.and_, operator.or_, operator.sub, operator.le, operator.ge])
@pytest.mark.parametrize("other", [["fs:read:*"], "fs:read:*", None, RULE, {"fs:read:*"}], ids=by_type)
def test_a_set_works_with_sets_only(operation: Callable[[Any, Any], Any], other: object) -> None:
    with pytest.raises(TypeError):
        operation(SET, other)
    with pytest.raises(TypeError):
        operation(other, SET)


@pytest.mark.parametrize("operation", [operator.lt, operator.gt, operator.xor])
def test_a_set_has_no_strict_order_and_no_symmetric_difference(operation: Callable[[Any, Any], Any]) -> None:
    with pytest.raises(TypeError):
        operation(SET, SET)


# Text and digest ------------------------------------------------------------------------------------------------------


@given(rules)
def test_canonical_text_of_a_rule_reads_back_as_itself(rule: PlainRule) -> None:
    one = Capability(rule.text)
    again = Capability(str(one))
    assert again == one
    assert str(again) == str(one)
    assert repr(one) == f"Capability({str(one)!r})"
    assert f"{one.domain}:{one.action}:{one.scope}" == str(one)


@given(odd_texts)
def test_whatever_text_is_a_rule_has_a_canonical_text_that_reads_back(text: str) -> None:
    one = read(text)
    if one is not None:
        assert Capability(str(one)) == one
        assert str(Capability(str(one))) == str(one)
        assert str(one).isprintable()


@given(uses)
def test_the_text_of_a_use_reads_back_as_itself(use: PlainUse) -> None:
    one = Use(use.text)
    assert str(one) == use.text
    assert Use(str(one)) == one
    assert repr(one) == f"Use({use.text!r})"
    assert f"{one.domain}:{one.action}:{one.scope}" == str(one)
    assert (one.domain, one.action, one.method) == (use.domain, use.action, use.method)


@given(sets)
def test_the_digest_is_sha256_over_canonical_json(plain: PlainSet) -> None:
    real = plain.real
    body = rfc8785.dumps({"allow": [str(rule) for rule in real.allow], "deny": [str(rule) for rule in real.deny]})
    assert real.digest == "sha256:" + hashlib.sha256(body).hexdigest()


@given(odd_texts, odd_texts)
def test_the_digest_is_over_canonical_json_for_every_text_a_rule_can_have(one: str, two: str) -> None:
    made = CapabilitySet([text for text in (one, two) if read(text)], [two] if read(two) else [])
    allow, deny = [str(rule) for rule in made.allow], [str(rule) for rule in made.deny]
    assert made.digest == "sha256:" + hashlib.sha256(rfc8785.dumps({"allow": allow, "deny": deny})).hexdigest()


def test_the_digest_of_known_sets_does_not_move() -> None:
    empty = hashlib.sha256(b'{"allow":[],"deny":[]}').hexdigest()
    assert CapabilitySet().digest == f"sha256:{empty}"
    text = '{"allow":["env:read:A\\"\\\\B","fs:read:/é"],"deny":["network:*:*.x.com"]}'
    made = CapabilitySet(["fs:read:/é/", 'env:read:A"\\B'], ["network:*:*.X.com."])
    assert made.digest == f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"


def test_a_set_prints_its_allows_then_its_denies() -> None:
    assert str(SET) == "fs:read:/srv\nnetwork:*:*.b:80\nstorage:write:session\ndeny fs:*:/srv/.env"
    assert repr(CapabilitySet(["fs:read:/a"])) == "CapabilitySet(['fs:read:/a'])"
    assert repr(CapabilitySet([], ["fs:read:/a"])) == "CapabilitySet([], deny=['fs:read:/a'])"
    assert str(CapabilitySet()) == ""


def test_a_piece_prints_as_a_rule_and_what_is_except() -> None:
    rule = Capability("fs:read:/a")
    assert str(Piece(rule, ())) == "fs:read:/a"
    assert str(Piece(rule, (Capability("fs:read:/a/b"), Capability("fs:read:/a/c")))) == (
        "fs:read:/a except fs:read:/a/b, fs:read:/a/c"
    )
