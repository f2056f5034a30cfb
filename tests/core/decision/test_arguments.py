"""Which arguments break the rules of a manifest, and what the refusal says."""

from collections.abc import Mapping
from typing import Any

import pytest

from core.manifests import HERE, manifest, tool
from licet.core.decision.argument_rules import PathReading, argument_denial
from licet.core.decision.reach import reach_of
from licet.core.decision.request import Request
from licet.core.limits import MOST_OF_A_GROUND
from licet.core.values import Origin

RULES = {"to": {"enum": ["ann", "bob"]}, "path": {"scope": "fs:read"}}
PLACE = Origin("agent.yaml", 5, 5)


def check(arguments: Mapping[str, Any]) -> str:
    """The check of the rule on `to`, without a library."""
    return "`to` is wrong" if arguments.get("to", "ann") not in ("ann", "bob") else ""


def denied(arguments: Mapping[str, Any], rules: Any = RULES, with_check: Any = check, place: Any = PLACE) -> list[str]:
    under = manifest(tool("t", "fs:read:/srv"), allows=["fs:read:/srv"])
    reach = reach_of(under, "t")
    assert reach is not None
    found = argument_denial(Request("t"), reach, rules, with_check, arguments, PathReading("/srv"), place)
    if found is None:
        return []
    assert found.reason == "ARGUMENT_NOT_ALLOWED"
    return [f"{ground}{f' -> {ground.fix}' if ground.fix else ''}" for ground in found.rules]


@pytest.mark.parametrize(("arguments", "grounds"), [
    ({"to": "ann", "path": "/srv/a"}, []),
    ({"to": "ann", "path": "a"}, []),
    ({"to": "bob", "path": None}, []),
    ({"to": "ann"}, ["`path` must be given: the manifest has a rule on it"]),
    ({}, ["`to` must be given: the manifest has a rule on it"]),
    ({"to": "eve", "path": "/etc"},
        ["`to` is wrong",
        'a rule on `to`: {"enum":["ann","bob"]} (agent.yaml:5) -> change `args.to` of `t` in agent.yaml']),
    ({"to": "ann", "path": 7}, ["`path`: found `int`, expected text"]),
], ids=str)  # fmt: skip
def test_arguments_must_be_given_keep_their_rules_and_name_what_the_call_holds(
    arguments: Mapping[str, Any], grounds: list[str]
) -> None:
    assert denied(arguments) == grounds


def test_a_value_outside_the_grant_is_refused_with_the_rules_that_are_in_the_way() -> None:
    first, *rest = denied({"to": "ann", "path": "/etc/passwd"})
    assert first == "`path` names what this call does not hold"
    assert rest[0].startswith("`t` does not declare it (licet.yaml:7)")


def test_rules_that_nothing_can_check_refuse_every_call() -> None:
    assert denied({"to": "ann", "path": "a"}, with_check=None) == ["nothing here can check the rules on its arguments"]


def test_a_rule_without_a_place_names_no_file() -> None:
    assert denied({"to": "eve", "path": "a"}, place=None)[1].endswith("-> change `args.to` of `t`")


def test_a_ground_never_grows_with_the_rule_or_the_value() -> None:
    rules = {"to": {"enum": ["ann", "b" * 2000]}}
    for grounds in (denied({"to": "eve"}, rules, place=None), denied({}, {"n" * 2000: {}})):
        assert all(len(ground.partition(" -> ")[0]) <= MOST_OF_A_GROUND for ground in grounds)


def test_the_place_of_a_rule_is_that_of_its_admission() -> None:
    assert "(agent.yaml:1)" in denied({"to": "eve", "path": "a"}, place=HERE)[1]
