"""What a review says about `flow:`: what has grown, what a surface shows, and what is probably not meant so."""

from typing import Any

import pytest
from msgspec.structs import replace

from licet import Manifest
from licet.core.policy.manifest import document
from licet.core.review.diff import diff
from licet.core.review.flow_warnings import flow_warnings
from licet.core.review.surface import surface
from licet.map.cards import heading, how_it_runs, notes

from .test_diff import change_texts

TEXT = {"type": "string"}
WORKSPACE: dict[str, Any] = {
    "tools": {
        "read": {"needs": [], "effect": "read_only", "sandbox": "isolated"},
        "fetch": {"needs": ["network:read:x.test"], "effect": "read_only", "sandbox": "isolated"},
        "send": {"needs": ["network:write:x.test"], "effect": "write_limited", "sandbox": "isolated"},
        "drop": {"needs": ["network:delete:x.test"], "effect": "destructive", "sandbox": "isolated"},
    }
}


def _policy(flow: dict[str, Any] | None = None, **tools: Any) -> Manifest:
    """A policy with these tools; the preset is `guarded` if there is a `flow`."""
    stated = {"flow": {"preset": "guarded", **flow}} if flow is not None else {}
    given = {"destinations": {"allow": ["x.test"]}, "max_side_effect_class": "destructive"}
    named = {name: tools.get(name, {}) for name in WORKSPACE["tools"]}
    return Manifest.from_data({"agent": "a", **stated, "capabilities": {**given, "tools": named}}, WORKSPACE)


def _entry(**more: Any) -> dict[str, Any]:
    return {"results": {"read": [{"label": "ack", **more}]}}


GROWN: dict[str, tuple[dict[str, Any], dict[str, Any], list[str]]] = {
    # two versions of `flow:`, and what has grown
    "another order": ({"own": ["a.test", "b.test"]}, {"own": ["b.test", "x.a.test", "A.test"]}, []),
    "a domain of ours": ({"own": ["a.test"]}, {"own": ["a.test", "b.test"]}, ["addresses in b.test count as our own"]),
    "a wider domain": ({"own": ["b.a.test"]}, {"own": ["a.test"]}, ["addresses in a.test count as our own"]),
    "a label": ({}, {"results": {"read": "trusted"}}, ["`read` is labelled trusted"]),
    "a field": (
        {"results": {"read": {"who": "identity"}}},
        {"results": {"read": {"who": "trusted"}}},
        ["`read:who` is labelled trusted"],
    ),
    "all but one field": (
        {"results": {"read": {"who": "identity"}}},
        {"results": {"read": [{"label": "trusted", "fields": {"who": "identity"}}]}},
        ["`read` is labelled trusted"],
    ),
    "letters that are believed": (
        {"results": {"read": "trusted"}},
        {"results": {"read": "authored"}},
        ["`read` is labelled authored"],
    ),
    "a folder": (
        {"results": {"read": [{"under": {"path": "/a"}, "label": "authored"}]}},
        {
            "results": {
                "read": [{"under": {"path": "/a"}, "label": "authored"}, {"under": {"path": "/b"}, "label": "trusted"}]
            }
        },
        ["`read` where `path` is under /b is labelled trusted"],
    ),
    "a wider folder": (
        {"results": {"read": [{"under": {"path": "/a/b"}, "label": "authored"}]}},
        {"results": {"read": [{"under": {"path": "/a"}, "label": "authored"}]}},
        ["`read` where `path` is under /a is labelled authored"],
    ),
    "what is created": (_entry(), _entry(creates=True), ["what `read` creates may be named"]),
    "a source": (
        {"sources": [{"use": "fs:read:/a", "label": "trusted"}]},
        {"sources": [{"use": "fs:read:/a", "label": "authored"}, {"use": "fs:read:/b", "label": "identity"}]},
        [
            "what is read through fs:read:/a is labelled authored",
            "what is read through fs:read:/b is labelled identity",
        ],
    ),
    "a hole in a source": (
        {"sources": [{"use": "fs:read:/a", "label": "trusted"}, {"use": "fs:read:/a/in", "label": "untrusted"}]},
        {"sources": [{"use": "fs:read:/a", "label": "trusted"}]},
        ["what is read through fs:read:/a/in is labelled trusted"],
    ),
    "no secret": (
        {"secrets": [{"from": {"tool": "read", "fields": ["card", "pin"]}, "readers": []}]},
        {"secrets": [{"from": {"tool": "read", "fields": ["card"]}, "readers": []}]},
        ["`read:pin` is not secret"],
    ),
    "no secret rule": (
        {"secrets": [{"from": "fs:read:/hr", "readers": []}]},
        {"secrets": [{"from": "fs:read:/hr/pay", "readers": []}]},
        ["what is read through fs:read:/hr except fs:read:/hr/pay is not secret"],
    ),
    "a whole result that is secret": (
        {"secrets": [{"from": {"tool": "read", "fields": ["card"]}, "readers": []}]},
        {"secrets": [{"from": {"tool": "read"}, "readers": []}]},
        [],
    ),
    "a reader": (
        {"secrets": [{"from": {"tool": "read"}, "readers": []}]},
        {"secrets": [{"from": {"tool": "read"}, "readers": ["network:write:x.test"]}]},
        ["`read` may be read by network:write:x.test"],
    ),
    "a looser preset": ({"preset": "strict"}, {"preset": "guarded"}, ["preset: strict → guarded"]),
    "one preset for another": ({"preset": "rule_of_two"}, {"preset": "guarded"}, ["preset: rule_of_two → off"]),
    "watching": ({"preset": "guarded"}, {"preset": "watch"}, ["preset: guarded → watch"]),
    "off, with all it said": ({"own": ["a.test"]}, {"preset": "off", "own": ["b.test"]}, ["preset: guarded → off"]),
    "asking": ({"otherwise": "deny"}, {}, ["otherwise: deny → ask"]),
    "a client": ({}, {"task_through_client": True}, ["task_through_client: false → true"]),
    "a prompt": ({}, {"task": "prompt"}, ["the prompt is the task: false → true"]),
}


@pytest.mark.parametrize("case", GROWN)
def test_what_is_believed_or_let_out_has_grown(case: str) -> None:
    was, now, grown = GROWN[case]
    one, two = _policy(was), _policy(now)
    assert list(change_texts(diff(one, two)).get("grown", [])) == grown
    assert "changed" not in change_texts(diff(one, two))
    if case in ("one preset for another", "a whole result that is secret"):
        return
    shrunk = change_texts(diff(two, one))
    assert "grown" not in shrunk
    assert len(shrunk.get("shrunk", [])) == len(grown)


def test_a_preset_of_another_kind_has_shrunk_and_grown() -> None:
    one, two = _policy({"preset": "rule_of_two"}), _policy({"preset": "guarded"})
    assert change_texts(diff(one, two)) == {"grown": ["preset: rule_of_two → off"], "shrunk": ["preset: off → guarded"]}


@pytest.mark.parametrize("label", ["untrusted", "identity", "trusted", "authored"])
def test_a_confirmation_is_another_label_and_neither_more_nor_less(label: str) -> None:
    one, two = _policy({"results": {"read": label}}), _policy({"results": {"read": "ack"}})
    assert change_texts(diff(one, two)) == {"changed": [f"label of `read`: {label} → ack"]}
    assert change_texts(diff(two, one)) == {"changed": [f"label of `read`: ack → {label}"]}


TOOLS: dict[str, tuple[dict[str, Any], dict[str, Any], list[str]]] = {
    # two versions of what is said about `send`, and what has grown
    "a role": ({"args": {"to": {"flow": "to"}}}, {}, ["where `to` comes from: to → none"]),
    "an origin": (
        {"args": {"to": {"from": ["task"]}}},
        {"args": {"to": {"from": ["trusted", "task"]}}},
        ["where `to` comes from: from task → from task or trusted"],
    ),
    "another order": (
        {"args": {"to": {"from": ["task", "trusted"]}}},
        {"args": {"to": {"from": ["trusted", "task"]}}},
        [],
    ),
    "words": ({"asked_by": ["send", "mail"]}, {}, ["asked for by: mail or send → none"]),
    "a word": (
        {"asked_by": ["send"]},
        {"asked_by": {"en": ["send"], "de": ["schick"]}},
        ["asked for by: send → schick or send"],
    ),
    "only after the first text": (
        {"args": {"to": {"flow": "to", "always": True}}},
        {"args": {"to": {"flow": "to", "always": False}}},
        ["where `to` comes from: to, always → to"],
    ),
    "a limit beside a role": (
        {"args": {"to": {"flow": "to", "maxLength": 9}}},
        {"args": {"to": {"flow": "to"}}},
        ['rules on `to`: {"maxLength":9} → none'],
    ),
}


@pytest.mark.parametrize("case", TOOLS)
def test_an_argument_or_a_task_that_is_asked_about_less_has_grown(case: str) -> None:
    was, now, grown = TOOLS[case]
    one, two = _policy({}, send=was), _policy({}, send=now)
    assert change_texts(diff(one, two)) == ({"grown": [f"send: {text}" for text in grown]} if grown else {})
    assert list(change_texts(diff(two, one))) == (["shrunk"] if grown else [])
    assert (one.digest == two.digest) is not bool(grown)


def test_words_about_flow_are_no_schema() -> None:
    (admission,) = _policy({}, send={"args": {"to": {"flow": "to"}, "n": {"from": ["task"], "maximum": 5}}}).admissions[
        "send"
    ]
    assert admission.argument_rules == {"n": {"maximum": 5}}
    assert admission.asking == {}


# Without flow ---------------------------------------------------------------------------------------------------------


def test_a_policy_without_flow_says_nothing_about_it() -> None:
    policy = _policy()
    shown = surface(policy)
    assert "flow" not in document(policy)
    assert "flow" not in shown.document()
    assert all("flow" not in tool.document() and "asked_by" not in tool.document() for tool in shown.tools)
    assert all("asked_by" not in one for admissions in document(policy)["tools"].values() for one in admissions)
    assert not {"flow", "what we believe"} & {title for title, _ in (*heading(shown), *notes(shown, str))}
    assert not list(flow_warnings(policy))


@pytest.mark.parametrize(
    ("preset", "said"), [("guarded", "with `own` too: only `strict`"), ("strict", "nobody who has written is a `to`")]
)
def test_a_warning_about_own_says_what_it_does_and_what_it_does_not(preset: str, said: str) -> None:
    """`own` alone keeps no stranger out: under `guarded`, `to` takes every identity."""
    policy = _policy(
        {"preset": preset, "results": {"read": {"who": "identity"}}}, send={"args": {"to": {"flow": "to"}}}
    )
    (hint,) = (one.hint for one in flow_warnings(policy) if "no `own`" in one.found)
    assert said in hint


# The surface ----------------------------------------------------------------------------------------------------------


def test_a_surface_says_what_is_believed_and_where_arguments_come_from() -> None:
    policy = _policy(
        {
            "own": ["a.test"],
            "results": {"read": {"id": "trusted", "who": "identity"}, "fetch": "authored"},
            "sources": [{"use": "fs:read:/a", "label": "identity"}],
        },
        send={
            "args": {"to": {"flow": "to"}, "body": {"flow": "content", "maxLength": 99}},
            "asked_by": ["send", "mail"],
        },
    )
    shown = surface(policy)
    (send,) = (tool for tool in shown.tools if tool.name == "send")
    assert send.document()["flow"] == {"body": "content", "to": "to"}
    assert send.document()["asked_by"] == [["mail", "send"]]
    assert send.document()["args"] == {"body": [{"maxLength": 99}]}
    assert {"`to`: to", "`body`: content", "asked for by mail or send"} <= {*how_it_runs(send)}
    assert ("flow", "guarded; own: a.test") in [*heading(shown)]
    believed = (
        "authored: all of `fetch`\ntrusted: `read:id`\nidentity: `read:who`\nidentity: what is read through fs:read:/a"
    )
    assert ("what we believe", believed) in [*notes(shown, str)]
    assert shown.document()["flow"]["results"]["fetch"] == [{"label": "authored"}]


def test_several_policies_may_each_have_a_rule_on_one_argument() -> None:
    one, two = (_policy({}, send={"args": {"to": {"flow": "to", "from": [origin]}}}) for origin in ("task", "trusted"))
    (send,) = (tool for tool in surface(one.meet(two)).tools if tool.name == "send")
    assert send.flow_texts == {"to": "to from task and to from trusted"}


# Warnings -------------------------------------------------------------------------------------------------------------

QUIET = {"send": {"args": {"to": {"flow": "to"}}}, "drop": {"args": {"path": {"flow": "ref"}}, "asked_by": ["drop"]}}
WARNINGS: dict[str, tuple[dict[str, Any], dict[str, Any], list[str]]] = {
    # `flow:`, tools, and what is found
    "all is well": ({"own": ["a.test"], "results": {"read": {"id": "trusted"}}}, {}, []),
    "a tool that writes": ({}, {"send": {}}, ["`send`, which writes, without `flow` on any argument"]),
    "a tool that writes, and a preset without roles": ({"preset": "rule_of_two"}, {"send": {}}, []),
    "a destructive tool": (
        {},
        {"drop": {"args": {"path": {"flow": "ref"}}}},
        ["`drop`, which is destructive, without `asked_by`"],
    ),
    "a credential": (
        {},
        {"send": {"args": {"new_password": {"flow": "value"}}}},
        ["`send`, which sets `new_password`, without `asked_by`"],
    ),
    "authored text of the network": (
        {"results": {"fetch": {"text": "authored"}}},
        {},
        ["`authored` for `fetch`, which reaches the network"],
    ),
    "authored text": ({"results": {"read": "authored"}}, {}, []),
    "anybody may receive": (
        {"results": {"read": {"who": "identity"}}},
        {},
        ["`identity` labels and `flow: to`, but no `own`"],
    ),
    "a short id": ({}, {"read": {"args": {"id": {"flow": "ref"}}}}, ["`flow: ref` on `id` of `read` without `of`"]),
    "a long id": ({}, {"read": {"args": {"id": {"flow": "ref", "minLength": 12}}}}, []),
    "a shorter id": (
        {},
        {"read": {"args": {"id": {"flow": "ref", "minLength": 11}}}},
        ["`flow: ref` on `id` of `read` without `of`"],
    ),
    "an address": ({}, {"read": {"args": {"who": {"flow": "ref", "format": "email"}}}}, []),
    "an id with its field": (
        {"results": {"fetch": {"id": "trusted"}}},
        {"read": {"args": {"id": {"flow": "ref", "of": ["fetch:id"]}}}},
        [],
    ),
    "a field that gives nothing": (
        {"results": {"fetch": {"id": "trusted"}}},
        {"read": {"args": {"id": {"flow": "ref", "of": ["fetch:di"]}}}},
        ["`fetch:di` under `of` of `id`"],
    ),
    "a tool that gives nothing": (
        {},
        {"read": {"args": {"id": {"flow": "ref", "of": ["fetsh:id"]}}}},
        ["`fetsh` under `args.id.of` of `read`"],
    ),
    "results of no tool": ({"results": {"raed": "trusted"}}, {}, ["`raed` under `flow.results`"]),
    "secrets of no tool": (
        {"secrets": [{"from": {"tool": "raed"}, "readers": []}]},
        {},
        ["`raed` under `flow.secrets`"],
    ),
    "a flow that is off": ({"preset": "off"}, {}, ["`flow` that is off"]),
}


@pytest.mark.parametrize("case", WARNINGS)
def test_what_is_probably_not_meant_so(case: str) -> None:
    flow, tools, found = WARNINGS[case]
    problems = list(flow_warnings(_policy(flow, **{**QUIET, **tools})))
    assert [problem.found for problem in problems] == found
    assert all(problem.severity == "warning" and problem.hint for problem in problems)


def test_roles_without_flow_are_named_once() -> None:
    (problem,) = flow_warnings(_policy(None, **QUIET))
    assert problem.found == "what arguments must come from or tasks must say, but no `flow`"
    assert problem.origin.pointer == "/capabilities/tools/send"


def _known(policy: Manifest, tool: str, properties: dict[str, Any]) -> Manifest:
    """The policy, where the schema of a tool is known."""
    schema = {"type": "object", "properties": properties}
    spec = replace(policy.tools[tool], schema=schema, parameters=tuple(properties))
    return replace(policy, tools={**policy.tools, tool: spec})


TAKES: dict[str, tuple[dict[str, Any], dict[str, Any], bool]] = {
    # the arguments of `send`, the rules on them, and whether it is warned of
    "text": ({"to": TEXT}, {}, True),
    "text with a role": ({"to": TEXT, "body": TEXT}, {"to": {"flow": "to"}}, False),
    "a number with a role": ({"to": TEXT, "n": {"type": "integer"}}, {"n": {"from": ["task"]}}, True),
    "no text": ({"n": {"type": "integer"}, "mode": {"enum": ["a", "b"]}}, {}, False),
    "a list of text": ({"to": {"type": "array", "items": TEXT}}, {}, True),
    "a list of numbers": ({"to": {"type": "array", "items": {"type": "number"}}}, {}, False),
    "text or nothing": ({"to": {"anyOf": [TEXT, {"type": "null"}]}}, {}, True),
    "anything": ({"to": {}}, {}, True),
}


@pytest.mark.parametrize("case", TAKES)
def test_a_tool_that_writes_is_warned_of_if_it_takes_text_from_anybody(case: str) -> None:
    properties, rules, warned = TAKES[case]
    policy = _known(_policy({}, **{**QUIET, "send": {"args": rules}}), "send", properties)
    assert bool([one for one in flow_warnings(policy) if "`send`, which writes" in one.found]) is warned


def test_an_argument_under_a_label_must_exist() -> None:
    policy = _policy({"results": {"read": [{"under": {"paht": "/a"}, "label": "trusted"}]}}, **QUIET)
    assert not list(flow_warnings(policy))  # its arguments are not known
    (problem,) = flow_warnings(_known(policy, "read", {"path": TEXT}))
    assert (problem.found, problem.hint) == ("`paht` under `flow.results.read`", "did you mean `path`?")
    assert problem.origin.pointer == "/flow/results/read"


# Servers and personalities --------------------------------------------------------------------------------------------


def test_a_personality_narrows_what_a_manifest_believes() -> None:
    manifest = {
        "agent": "a",
        "flow": {"preset": "guarded", "own": ["a.test"], "results": {"read": "authored"}},
        "capabilities": {"tools": ["read"]},
    }
    alone = Manifest.from_data(manifest, WORKSPACE)
    both = Manifest.from_data(
        manifest,
        WORKSPACE,
        {"id": "p", "tools": ["read"], "flow": {"preset": "strict", "results": {"read": "trusted"}}},
    )
    quiet = Manifest.from_data(manifest, WORKSPACE, {"id": "p", "tools": ["read"]})
    assert not [change.text for change in diff(alone, both).grown if change.kind == "flow"]
    assert surface(both).document()["flow"] == {"preset": "strict", "results": {"read": [{"label": "trusted"}]}}
    assert surface(quiet).document()["flow"] == surface(alone).document()["flow"]
