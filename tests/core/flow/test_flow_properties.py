"""What holds of every judgement, whatever was read and is called."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from licet.core.decision.decide import decide
from licet.core.decision.flow_judgement import judge
from licet.core.decision.request import Request, Usage
from licet.core.flow.judgement import Judgement
from licet.core.flow.session_knowledge import Known, Reading
from licet.core.policy.flow import Flow, Label, ResultLabels

from .cases import ACT, flow_of, reach_for

VALUES = ("ann@example.com", "bob@partner.test", "eve@evil.test", "Dora", "13", "https://a.test/x", "/srv/a.txt", "xy")
ROLES = ("to", "ref", "choice", "value", "link", "when", "code", "content")
TOOLS = ("one", "two", "three")
RAISED: dict[Label, tuple[Label, ...]] = {"untrusted": ("identity", "trusted"), "identity": ("trusted",)}
FLOW = flow_of({"own": ["example.com"]})
REACH = reach_for({"args": {**ACT, "asked_for": {"from": ["asked"]}}})

texts = st.one_of(st.sampled_from(VALUES), st.lists(st.sampled_from(VALUES), max_size=3).map(" and ".join))
records = st.dictionaries(st.sampled_from(("id", "name", "body", "mail")), texts, max_size=4)
values = st.one_of(texts, records, st.lists(records, max_size=3))
fields = st.dictionaries(
    st.sampled_from(("id", "name", "body", "mail")), st.sampled_from(("untrusted", "identity", "trusted")), max_size=4
)
readings = st.builds(
    lambda tool, value, arguments, labels, from_task, number: Reading(
        f"r-{number}",
        tool,
        value,
        arguments,
        ResultLabels(label="untrusted", fields=tuple(sorted(labels.items()))),
        from_task=from_task,
    ),
    st.sampled_from(TOOLS),
    values,
    st.dictionaries(st.just("query"), texts, max_size=1),
    fields,
    st.booleans(),
    st.integers(1, 9),
)
tasks = st.lists(st.sampled_from((*VALUES, "hello")), max_size=2).map(" ".join)
ARGUMENTS = (*ROLES, "to_too", "typed", "seen_too", "asked_for")
calls = st.dictionaries(st.sampled_from(ARGUMENTS), texts, min_size=1, max_size=2)


def known_of(task: str, read: list[Reading]) -> Known:
    known = Known()
    known.say(task)
    known.taint("from the start")
    for one in read:
        known.remember(one)
    return known


def judged(task: str, read: list[Reading], call: dict[str, Any], flow: Flow = FLOW) -> Judgement:
    return judge(REACH, flow, call, known_of(task, read))


def unmet(judgement: Judgement) -> set[tuple[str, str]]:
    return {(one.argument, one.pointer) for one in judgement.unmet}


ORDER = ("deny", "ask", "allow")
PRESETS = ("watch", "guarded", "strict", "rule_of_two", "trifecta")


@given(
    tasks, st.lists(readings, max_size=3), calls, st.sampled_from(PRESETS), st.sampled_from(("ask", "deny")),
    st.sampled_from(("manifest", "session", "call")), st.booleans(),
)  # fmt: skip
def test_no_verdict_is_looser_with_flow(
    task: str, read: list[Reading], call: dict[str, Any], preset: Any, otherwise: Any, write: Any, admitted: bool
) -> None:
    flow = Flow(preset=preset, otherwise=otherwise)
    found = judge(REACH, flow, call, known_of(task, read))
    name = "act" if admitted else "other"
    made = replace(REACH.manifest, values={"flow": flow}, approvals=replace(REACH.manifest.approvals, write=write))
    request = Request(name, session="s", arguments="sha256:1")
    with_flow, without = decide(request, made, Usage(flow=found)), decide(request, REACH.manifest)
    assert ORDER.index(with_flow.verdict) <= ORDER.index(without.verdict)
    if found.stops and without.verdict == "allow":
        assert with_flow.verdict == otherwise


@given(tasks, st.lists(readings, max_size=3), calls, st.integers(0, 2))
def test_dropping_a_result_never_makes_a_call_met(task: str, read: list[Reading], call: Any, place: int) -> None:
    assume(place < len(read))
    less = [*read[:place], *read[place + 1 :]]
    assert unmet(judged(task, read, call)) <= unmet(judged(task, less, call))


@given(tasks, st.lists(readings, max_size=2), calls, values)
def test_an_untrusted_result_that_nobody_asked_for_makes_no_call_met(
    task: str, read: list[Reading], call: Any, value: Any
) -> None:
    call = {
        name: one for name, one in call.items() if name not in ("code", "seen_too")
    }  # a code may have been read anywhere
    more = [*read, Reading("r-more", "more", value)]
    named = judged(task, [Reading("r-more", "more", value)], call)
    assume(not any(place.origin in ("asked", "named") for one in named.unmet for place in one.found))
    assume(not any(place.origin in ("asked", "named") for one in named.met for place in one.found))
    assert unmet(judged(task, more, call)) == unmet(judged(task, read, call))


@settings(max_examples=300)
@given(tasks, st.lists(readings, min_size=1, max_size=2), calls, st.data())
def test_raising_a_label_never_makes_a_call_unmet(task: str, read: list[Reading], call: Any, data: Any) -> None:
    stated = dict(read[0].labels.fields)
    name = data.draw(st.sampled_from(("id", "name", "body", "mail")))
    before: Label = stated.get(name, "untrusted")
    assume(before in RAISED)
    after = data.draw(st.sampled_from(RAISED[before]))
    labels = ResultLabels(fields=tuple(sorted({**stated, name: after}.items())))
    first = read[0]
    raised = Reading(first.receipt, first.tool, first.value, first.arguments, labels, from_task=first.from_task)
    assert unmet(judged(task, [raised, *read[1:]], call)) <= unmet(judged(task, read, call))


@pytest.mark.parametrize("preset", ["guarded", "strict"])
@pytest.mark.parametrize("argument", ARGUMENTS)
@pytest.mark.parametrize("own", [(), ("example.com",)])
def test_each_step_up_of_a_label_takes_nothing_away(preset: str, argument: str, own: tuple[str, ...]) -> None:
    flow = flow_of({"preset": preset, "own": own})
    order: tuple[Label, ...] = ("untrusted", "identity", "trusted", "authored")
    for value in VALUES:
        for title in order:  # of the leaf that names the record
            passed = False
            for label in order:
                labels = ResultLabels(fields=(("id", label), ("name", title)))
                read = [Reading("r-1", "list_files", [{"id": value, "name": "Party plans"}], {}, labels)]
                met = not judged("See Party plans", read, {argument: value}, flow).unmet
                assert met >= passed, (value, label)
                passed = met
        passed = False
        for title in order:
            labels = ResultLabels(fields=(("id", "untrusted"), ("name", title)))
            read = [Reading("r-1", "list_files", [{"id": value, "name": "Party plans"}], {}, labels)]
            met = not judged("See Party plans", read, {argument: value}, flow).unmet
            assert met >= passed, (value, title)
            passed = met


@given(tasks, st.lists(readings, max_size=2), st.sampled_from(VALUES), st.sampled_from(ROLES), fields, st.booleans())
def test_an_argument_that_a_tool_repeats_gains_no_origin(
    task: str, read: list[Reading], value: str, role: str, labels: dict[str, Label], creates: bool
) -> None:
    stated = ResultLabels(label="trusted", fields=tuple(sorted(labels.items())), creates=creates)
    repeated = [{"id": value, "name": f"found {value}", "body": [value]}, value, {value: value}]
    echo = Reading("r-echo", "one", repeated, {"query": value}, stated)
    call = {role: value}
    assert unmet(judged(task, [*read, echo], call)) == unmet(judged(task, read, call))


PROGRAM = """
from core.flow.test_flow_properties import known_of, judged, Reading, ResultLabels, VALUES, ROLES
labels = ResultLabels(fields=(("id", "trusted"), ("mail", "identity")))
rows = [{"id": one, "mail": two, "body": one + " and " + two} for one in VALUES for two in VALUES]
read = [Reading(f"r-{n}", "one", rows, {"query": VALUES[n]}, labels, from_task=n == 1) for n in range(3)]
for role in ROLES:
    for value in VALUES:
        print(judged("Write to Dora about 13", read, {role: [value, {value: value}]}))
"""


def test_the_same_results_give_the_same_judgement_in_any_hash_seed() -> None:
    tests = Path(__file__).resolve().parents[2]
    said = {
        subprocess.run(
            [sys.executable, "-c", PROGRAM],
            check=True,
            capture_output=True,
            text=True,
            cwd=tests,
            env={"PYTHONHASHSEED": str(seed), "PYTHONPATH": str(tests)},
        ).stdout
        for seed in (0, 1, 4711)
    }
    assert len(said) == 1
    assert "eve@evil.test" in said.pop()
