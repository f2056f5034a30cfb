"""The rules of flow, case by case: each with a neighbour that must differ."""

import pytest

from licet.core.flow.judgement import Met, Unmet

from .cases import HERE, Case, cases_of, judged, policy_of

FILES = sorted(path.name for path in HERE.glob("*.yaml"))
CASES = [
    pytest.param(name, case, id=f"{name.removesuffix('.yaml')}: {case.name}")
    for name in FILES
    for case in cases_of(name)
]


@pytest.mark.parametrize(("file", "case"), CASES)
def test_a_call_is_judged_as_its_case_says(file: str, case: Case) -> None:
    judgement = judged(case, policy_of(file))
    unmet = list(dict.fromkeys(f"{one.argument}{one.pointer}" or "call" for one in judgement.unmet))
    if case.verdict == "met":
        assert unmet == []
    elif case.verdict == "unmet":
        assert unmet
    else:
        assert unmet == case.verdict.split(", ")
    if case.reason:
        assert {one.reason for one in judgement.unmet} == {case.reason}
    judged_values: tuple[Unmet | Met, ...] = (*judgement.unmet, *judgement.met)
    found = [place for one in judged_values for place in one.found]
    if case.origins:
        assert sorted({place.origin for place in found}) == sorted(case.origins)
    if case.at:
        assert case.at in {f"{place.receipt} {place.pointer}" for place in found}


def test_there_are_as_many_cases_as_were_promised_and_none_twice() -> None:
    names = [case.name for name in FILES for case in cases_of(name)]
    assert len(names) >= 120
    assert len(names) == len(set(names))
