"""The examples of a policy are decided as a gate decides, and show which rules they depend on."""

from collections.abc import Mapping
from typing import Any

import pytest
from msgspec.structs import replace

from core.manifests import admission, layer, manifest, tool
from licet.core.policy.manifest import Manifest
from licet.core.policy.terms import Approvals, Budget, Bundle, Example
from licet.core.review.examples import (
    MATCH,
    NO_MATCH,
    Case,
    Outcome,
    Setting,
    WrittenRule,
    cases_of,
    exercised_rules,
    run_case,
    written_rules,
)
from licet.core.values import Origin, Problem

AT = Origin("tests.yaml", 3, 5)
SCHEMA = {"properties": {"to": {"default": "bob"}, "cc": {}}}


def make_check(rules: Mapping[str, Any]) -> Any:
    """Compile rules of which only `enum` counts."""

    def check(arguments: Mapping[str, Any]) -> str:
        wrong = [name for name, value in arguments.items() if value not in rules.get(name, {}).get("enum", [value])]
        return f"`{wrong[0]}` is wrong" if wrong else ""

    return check


OTHER = Bundle(
    name="other", origin=AT, tools={"idle": AT}, admission=admission(), budget=Budget(), approvals={}, places={}
)
SETTING = Setting("/srv", "/home/u", make_check)
POLICY = manifest(
    tool("read", "fs:read:/srv", "fs:read:/home/u", parameters=("path",)),
    tool("mail", "network:https:post@a.example", effect="write_limited", schema=SCHEMA),
    tool("pay", effect="read_only", parameters=("to", "amount")),
    tool("remove", "fs:delete:/srv", effect="destructive", parameters=("path",)),
    tool("loose", "fs:read:/etc"),
    tool("clock", parameters=()),
    tool("misfit", "fs:read:/etc", parameters=("to",)),
    tool("unwalled", sandbox="native", parameters=("to",)),
    allows=[
        *("fs:read:/srv", "fs:read:/home/u/notes", "network:*:a.example", "fs:delete:/srv", "fs:read:/home/u"),
        *("network:tcp:tunnel.example:443", "network:https:*@seen.example"),
    ],
    denies=["fs:*:/srv/private", "network:*:b.example"],
    admissions={
        "read": (admission(args={"path": {"scope": "fs:read"}}),),
        "mail": (admission(args={"to": {"enum": ["ann", "bob"]}}, approval="session"),),
        "pay": (replace(admission(args={"to": {"enum": ["ann"]}}), origin=Origin("agent.yaml", 6, 5)),),
        "remove": (admission(args={"path": {"scope": "fs:delete"}}),),
        "loose": (admission(),),
        "misfit": (admission(args={"to": {"enum": ["ann"]}}),),
        "unwalled": (admission(args={"to": {"enum": ["ann"]}}),),
        "clock": (admission(),),
        "served": (admission(),),
    },
    max_effect="destructive",
    approvals=Approvals(write="session"),
    budget=Budget(max_calls_per_session=9),
    bundles={"other": OTHER},
)


def outcome(case: Case, under: Manifest = POLICY) -> Outcome:
    found = run_case(case, under, SETTING)
    assert isinstance(found, Outcome), found
    return found


def problem(case: Case) -> str:
    found = run_case(case, POLICY, SETTING)
    assert isinstance(found, Problem), found
    return str(found)


def case(tool: str, *verdicts: str, **given: Any) -> Case:
    return Case(AT, tool, verdicts, **given)


DECIDED = [
    # a use
    (case("read", use="fs:read:/srv/a"), "allow", ""),
    (case("read", use="fs:read:${workdir}/a"), "allow", ""),
    (case("read", use="fs:read:${workdir}"), "allow", ""),
    (case("read", use="fs:read:${workdir}/a:b"), "allow", ""),
    (case("read", use="fs:read:~/notes/a"), "allow", ""),
    (case("read", use="fs:read:${workdir}/private/a"), "deny", "PATH_NOT_REACHABLE"),
    (case("read", use="fs:read:/srv/private/../a"), "allow", ""),
    (case("mail", use="network:https:propfind@a.example"), "deny", "HOST_NOT_ALLOWED"),
    (case("read", use="fs:read:/srvs"), "deny", "PATH_NOT_REACHABLE"),
    (case("mail", use="network:https:post@a.example"), "ask", ""),
    (case("mail", use="network:https:get@a.example"), "deny", "HOST_NOT_ALLOWED"),
    # a use as `licet explain` takes it
    (case("read", use="/srv/a"), "allow", ""),
    (case("read", use="read a"), "allow", ""),
    (case("read", use="./a"), "allow", ""),
    (case("read", use="${workdir}/a b"), "allow", ""),
    (case("read", use="~/notes/a"), "allow", ""),
    (case("read", use="write ./a"), "deny", "PATH_NOT_REACHABLE"),
    (case("mail", use="POST https://a.example/x"), "ask", ""),
    (case("mail", use="https://a.example/x"), "deny", "HOST_NOT_ALLOWED"),
    # any command of `licet run`
    (case("run", use="read a"), "ask", ""),
    (case("run", use="read private"), "deny", "PATH_NOT_REACHABLE"),
    (case("run", use="process:exec:git"), "deny", "BINARY_NOT_ALLOWED"),
    (case("run", use="https://tunnel.example/a"), "ask", ""),
    (case("run", use="https://seen.example/a"), "deny", "HOST_NOT_ALLOWED"),
    # the tool alone
    (case("read"), "allow", ""),
    (case("mail"), "ask", ""),
    (case("idle"), "deny", "TOOL_NOT_IN_BUNDLE"),
    (case("loose"), "deny", "PATH_NOT_REACHABLE"),
    (case("loose", args={"any": 1}), "deny", "PATH_NOT_REACHABLE"),  # its parameters are not known
    (case("clock", args={}), "allow", ""),
    (case("misfit", args={"to": "eve"}), "deny", "PATH_NOT_REACHABLE"),  # no call of it comes as far as its arguments
    (case("unwalled", args={"to": "eve"}), "deny", "NATIVE_NOT_ALLOWED"),
    # arguments
    (case("pay", args={"to": "ann"}), "allow", ""),
    (case("pay", args={"to": "bob"}), "deny", "ARGUMENT_NOT_ALLOWED"),
    (case("mail", args={}), "ask", ""),  # the schema has a default
    (case("mail", args={"to": "ann", "cc": "eve"}), "ask", ""),
    (case("mail", args={"to": "eve"}), "deny", "ARGUMENT_NOT_ALLOWED"),
    # arguments that name a use
    (case("read", args={"path": "a/b"}), "allow", ""),
    (case("read", args={"path": "${workdir}/a"}), "allow", ""),
    (case("read", args={"path": ["${workdir}/a", "b"]}), "allow", ""),
    (case("read", args={"path": "${workdir}/private/a"}), "deny", "ARGUMENT_NOT_ALLOWED"),
    (case("read", args={"path": ["${workdir}/private/a"]}), "deny", "ARGUMENT_NOT_ALLOWED"),
    (case("read", args={"path": "${workdirs}/../../etc"}), "deny", "ARGUMENT_NOT_ALLOWED"),
    (case("read", args={"path": "/etc/passwd"}), "deny", "ARGUMENT_NOT_ALLOWED"),
    (case("read", args={"path": {"at": "${workdir}/a"}}), "deny", "ARGUMENT_NOT_ALLOWED"),
    (case("remove", args={"path": "a"}), "ask", ""),
    # both
    (case("pay", args={"to": "ann"}, use="fs:read:/srv/a"), "deny", "PATH_NOT_REACHABLE"),
    (case("pay", args={"to": "bob"}, use="fs:read:/srv/a"), "deny", "ARGUMENT_NOT_ALLOWED"),
    (case("read", args={"path": "a"}, use="fs:read:/srv/b"), "allow", ""),
]


@pytest.mark.parametrize(
    ("asked", "verdict", "reason"), DECIDED, ids=lambda one: one.title if isinstance(one, Case) else ""
)
def test_a_case_is_decided_as_a_gate_decides(asked: Case, verdict: str, reason: str) -> None:
    found = outcome(asked)
    assert (found.decision.verdict, found.reason) == (verdict, reason)


@pytest.mark.parametrize(
    ("verdicts", "reason", "passed"),
    [
        (("deny",), "", True),
        (("deny",), "PATH_NOT_REACHABLE", True),
        (("deny",), "HOST_NOT_ALLOWED", False),
        (("allow",), "", False),
        (MATCH, "", False),
        (NO_MATCH, "", True),
    ],
)
def test_a_case_passes_if_verdict_and_reason_are_as_it_says(
    verdicts: tuple[str, ...], reason: str, passed: bool
) -> None:
    assert outcome(case("read", *verdicts, use="fs:read:/etc", reason=reason)).passed == passed


def test_the_deletes_that_arguments_name_are_asked_about() -> None:
    decision = outcome(case("remove", args={"path": "a"})).decision
    assert [str(use) for use in decision.request.uses] == ["fs:delete:/srv/a"]
    assert [str(use) for use in outcome(case("read", args={"path": "a"})).decision.request.uses] == []


PROBLEMS = [
    (case("reed"), "found the tool `reed`, expected a tool that the policy knows; did you mean `read`?"),
    (case("zzz"), "found the tool `zzz`, expected a tool that the policy knows; no case about it can fail"),
    (case("served"),
        "found `served`, which nothing declares, expected a tool with a declaration; declare it under `tools:` in"),
    (case("read", use="fs:read:*"), "found `fs:read:*`, expected one concrete use"),
    (case("read", use="nonsense"), "found `nonsense`, expected"),
    (case("run", use="secret:read:KEY"), "found `secret:read:KEY`, expected what a command of `licet run` uses"),
    (case("read", use="fs:read:${workdir}/a*"), "found `${workdir}/a*`, expected one concrete path"),
    (case("pay", args={"two": 1}), "found the argument `two`, expected one of to, amount; did you mean `to`?"),
    (case("clock", args={"zone": 1}), "found the argument `zone`, expected none, since the tool takes no arguments"),
    (case("pay", args={"two": 1, "zzz": 1}),
        "found the argument `two`, expected one of to, amount; did you mean `to`?"),
    (case("pay", args={"to": 1, "zzz": 1}), "found the argument `zzz`, expected one of to, amount"),
    (case("mail", args={"bcc": 1}), "found the argument `bcc`, expected one of to, cc; did you mean `cc`?"),
    (case("pay", args={"amount": 1}),
        "found no argument `to`, expected every argument that the policy has a rule on; its default is in the code"),
]  # fmt: skip


@pytest.mark.parametrize(("asked", "text"), PROBLEMS, ids=lambda one: one.title if isinstance(one, Case) else "")
def test_a_case_that_cannot_be_decided_is_a_problem(asked: Case, text: str) -> None:
    assert problem(asked).startswith(f"tests.yaml:3:5: error: {text}")


def test_a_use_with_a_wildcard_is_a_problem() -> None:
    text = "found `fs:read:*`, expected one concrete use, without a wildcard"
    assert problem(case("read", use="fs:read:*")) == f"tests.yaml:3:5: error: {text}"


@pytest.mark.parametrize("asked", [case("read", use="fs:read:/srv/private"), case("pay", args={"to": "bob"})], ids=str)
def test_nothing_allows_what_is_refused(asked: Case) -> None:
    assert outcome(asked).allowed_by == ()


ALLOWED = "`read` needs fs:read:/srv (licet.yaml:7); fs:read:/srv (agent.yaml:10)"
DENIED = "because denied by fs:*:/srv/private (agent.yaml:50)"


def test_without_a_home_directory_a_path_in_it_is_a_problem() -> None:
    found = run_case(case("read", use="fs:read:~/a"), POLICY, Setting("/srv", "", make_check))
    assert str(found).endswith("found `~/a`, expected a user with a home directory; set HOME, or write the whole path")


@pytest.mark.parametrize(("asked", "line"), [
    (case("read", "deny", use="fs:read:${workdir}/a"),
        "failed: `read` may fs:read:${workdir}/a: expected deny, found allow, because " + ALLOWED),
    (case("pay", "deny", args={"to": "ann"}, reason="ARGUMENT_NOT_ALLOWED", name="ann is paid"),
        'failed: `pay` with {"to": "ann"} (ann is paid): expected deny (ARGUMENT_NOT_ALLOWED), found allow'),
    (case("read", *MATCH, use="fs:read:/srv/private"),
        "failed: `read` may fs:read:/srv/private: expected allow or ask, found deny (PATH_NOT_REACHABLE), " + DENIED),
    (case("read", "allow"), "passed: `read` may be called"),
    (case("read", "allow", args={"path": "a"}, use="fs:read:/srv"),
        'passed: `read` with {"path": "a"} may fs:read:/srv'),
], ids=lambda one: one.title if isinstance(one, Case) else "")  # fmt: skip
def test_an_outcome_is_one_line_with_its_place_and_the_rules_that_decided(asked: Case, line: str) -> None:
    assert str(outcome(asked)) == f"tests.yaml:3:5: {line}"


def test_a_title_is_the_name_or_what_is_asked() -> None:
    assert [one.title for one in (case("read"), case("read", name="n"))] == ["`read` may be called", "n"]


def test_the_examples_of_a_manifest_are_cases() -> None:
    examples = (Example("read", "fs:read:/srv", True, AT), Example("read", "fs:read:/etc", False, AT))
    assert cases_of(replace(POLICY, examples=examples)) == (
        case("read", "allow", "ask", use="fs:read:/srv"),
        case("read", "deny", use="fs:read:/etc"),
    )


# Coverage -------------------------------------------------------------------------------------------------------------


def allow(line: int, text: str) -> WrittenRule:
    return WrittenRule(Origin("agent.yaml", line, 3), "allow", text)


def deny(line: int, text: str) -> WrittenRule:
    return WrittenRule(Origin("agent.yaml", line, 3), "deny", text)


NAMED_ARGUMENTS = (
    *(("read", 5, "path"), ("mail", 5, "to"), ("pay", 6, "to"), ("remove", 5, "path")),
    *(("misfit", 5, "to"), ("unwalled", 5, "to")),
)
ARGS = {
    name: WrittenRule(Origin("agent.yaml", line, 5), "args", f"`{argument}` of `{name}`")
    for name, line, argument in NAMED_ARGUMENTS
}
RULES = {
    allow(10, "fs:read:/srv"),
    allow(11, "fs:read:/home/u/notes"),
    allow(12, "network:*:a.example"),
    allow(13, "fs:delete:/srv"),
    allow(14, "fs:read:/home/u"),
    allow(15, "network:tcp:tunnel.example:443"),
    allow(16, "network:https:seen.example"),
    deny(50, "fs:*:/srv/private"),
    deny(51, "network:*:b.example"),
}


def test_the_written_rules_are_allows_denies_and_rules_on_arguments() -> None:
    assert written_rules(POLICY) == RULES | {*ARGS.values()}


def test_rules_that_no_file_states_are_not_counted() -> None:
    unstated = layer(["env:read:A"], kind="manifest")
    unstated = replace(unstated, allows=tuple(replace(rule, origin=unstated.origin) for rule in unstated.allows))
    closed = layer((), ["fs:write:/etc"], kind="protected paths")
    assert written_rules(replace(POLICY, layers=(*POLICY.layers, unstated, closed))) == written_rules(POLICY)


def test_an_entry_that_stands_for_several_capabilities_is_one_rule_as_it_is_written() -> None:
    several = layer(["fs:write:${workdir}/a", "fs:delete:${workdir}/a"])
    one = replace(several, allows=tuple(replace(rule, origin=AT) for rule in several.allows)).expand("/srv", "")
    assert written_rules(manifest(layers=(one,))) == {WrittenRule(AT, "allow", "fs:write:${workdir}/a")}


@pytest.mark.parametrize(
    ("asked", "rules"),
    [
        (case("read", use="fs:read:/srv/a"), {allow(10, "fs:read:/srv")}),
        (case("read", use="fs:read:/home/u/notes/a"), {allow(11, "fs:read:/home/u/notes")}),  # the nearest
        (case("read", use="fs:read:/srv/private/a"), {deny(50, "fs:*:/srv/private")}),
        (case("read", use="fs:read:/etc"), set()),
        (case("mail", use="network:https:post@a.example"), {allow(12, "network:*:a.example")}),  # it asks
        (case("read"), set()),
        (case("pay", args={"to": "ann"}), {ARGS["pay"]}),
        (case("pay", args={"to": "bob"}), {ARGS["pay"]}),
        (case("pay"), set()),
        (case("remove", args={"path": "a"}), {allow(13, "fs:delete:/srv"), ARGS["remove"]}),
    ],
    ids=lambda one: one.title if isinstance(one, Case) else "",
)
def test_a_rule_is_exercised_by_the_case_that_it_allows_or_denies(asked: Case, rules: set[WrittenRule]) -> None:
    assert exercised_rules([outcome(asked)], POLICY) == rules


def test_admitting_a_tool_is_a_rule_that_a_call_of_it_exercises() -> None:
    under = manifest(tool("t"), allows=["tool:call:t"])
    rule = allow(10, "tool:call:t")
    assert written_rules(under) == {rule}
    assert exercised_rules([outcome(case("t"), under)], under) == {rule}
    assert exercised_rules([], under) == set()


def test_a_call_that_should_be_refused_names_the_rule_that_admits_the_tool() -> None:
    found = str(outcome(case("t", "deny"), manifest(tool("t"), allows=["tool:call:t"])))
    assert found.endswith("expected deny, found allow, because tool:call:t (agent.yaml:10)")


def test_a_rule_that_is_not_covered_is_shown_with_its_place() -> None:
    assert str(deny(50, "fs:*:/srv/private")) == "agent.yaml:50:3: not covered: deny fs:*:/srv/private"
