"""What two policies say about flow together: the laws of their overlap, and how the value is read and written."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from licet import Manifest
from licet.core.policy.flow import LABELS, NO_FLOW, OF_ROLE, ORIGINS, PRESETS, ArgumentFlow, Flow, Label, ResultLabels
from licet.core.policy.flow_terms import (
    argument_flow,
    asked_no_less,
    asked_words,
    asks_no_less,
    expanded_flow,
    flow_document,
    flow_of,
    flow_only,
    flow_paths,
    flow_shifts,
    flow_steps,
    in_flow_order,
    is_raised,
    label_at,
    met_flow,
    narrowed_flow,
    weaker,
)
from licet.core.policy.keys import FLOW
from licet.core.review.diff import diff
from licet.map.cards import beliefs, flow_text

PATHS = ("/", "/srv", "/srv/a", "/srv/a/b", "/srv/ab", "~", "~/x", "${workdir}")
FIELDS = ("id", "sender", "sender/email", "sender/name", "body")
RULES = (
    "fs:read:/srv",
    "fs:read:/srv/a",
    "fs:*:/srv/a/b",
    "network:read:*.x.test",
    "network:https:get@a.x.test",
    "fs:read:~/x",
)
_labels = st.sampled_from(LABELS)
_fields = st.dictionaries(st.sampled_from(FIELDS), _labels, max_size=3)
_path = st.sampled_from([path.rstrip("/") for path in PATHS])
_entry = st.fixed_dictionaries(
    {},
    optional={
        "label": _labels,
        "fields": _fields,
        "creates": st.booleans(),
        "under": st.dictionaries(st.sampled_from("pq"), _path, max_size=2),
    },
)
_results = st.one_of(_labels, _fields, st.lists(_entry, max_size=3))
_rules = st.lists(st.sampled_from(RULES), max_size=3)
_from = st.one_of(
    st.sampled_from(RULES),
    st.fixed_dictionaries(
        {"tool": st.sampled_from("tu")}, optional={"fields": st.lists(st.sampled_from(FIELDS), min_size=1)}
    ),
)
_data = st.fixed_dictionaries(
    {},
    optional={
        "preset": st.sampled_from(PRESETS),
        "otherwise": st.sampled_from(["ask", "deny"]),
        "own": st.lists(st.sampled_from(["a.test", "b.a.test", "c.b.a.test", "z.test", "xa.test"]), max_size=3),
        "results": st.dictionaries(st.sampled_from("tu"), _results),
        "sources": st.lists(
            st.fixed_dictionaries({"use": st.sampled_from(RULES), "label": st.sampled_from(LABELS[:4])}), max_size=4
        ),
        "secrets": st.lists(st.fixed_dictionaries({"from": _from, "readers": _rules}), max_size=3),
        "roles": st.dictionaries(st.sampled_from(list(OF_ROLE)), st.lists(st.sampled_from(ORIGINS)), max_size=2),
        "task": st.sampled_from(["host", "prompt"]),
        "task_through_client": st.booleans(),
    },
)
_flows = st.builds(flow_of, _data)


def grown(was: Flow, now: Flow) -> list[str]:
    """What a comparison says that the second flow allows more."""
    steps = [
        step.what
        for step in flow_steps(was, now)
        if step.before != step.after and step.rank(step.after) > step.rank(step.before)
    ]
    return steps + [text for text, _ in flow_only(now, was)]


def same(one: Flow, two: Flow) -> bool:
    return not grown(one, two) and not grown(two, one) and not list(flow_shifts(one, two))


# Laws -----------------------------------------------------------------------------------------------------------------


@given(_flows)
def test_with_itself_a_policy_says_the_same(one: Flow) -> None:
    assert met_flow(one, one) == one
    assert not grown(one, one)
    assert not list(flow_shifts(one, one))


@given(_flows, _flows)
def test_the_order_of_two_policies_means_nothing(one: Flow, two: Flow) -> None:
    assert same(met_flow(one, two), met_flow(two, one))


@given(_flows, _flows, _flows)
def test_three_policies_say_the_same_in_any_grouping(one: Flow, two: Flow, three: Flow) -> None:
    assert same(met_flow(met_flow(one, two), three), met_flow(one, met_flow(two, three)))


@given(_flows, _flows)
def test_two_policies_together_allow_no_more_than_each(one: Flow, two: Flow) -> None:
    met = met_flow(one, two)
    assert not grown(one, met)
    assert not grown(two, met)


@given(_flows)
def test_a_policy_without_flow_changes_nothing(one: Flow) -> None:
    if one:
        assert met_flow(one, NO_FLOW) == met_flow(NO_FLOW, one) == one


@given(_flows)
def test_a_value_as_data_is_the_same_again(one: Flow) -> None:
    assert flow_of(flow_document(one)) == one


@given(_flows, _data)
def test_an_organisation_only_narrows(one: Flow, above: dict[str, Any]) -> None:
    assert not grown(one, narrowed_flow(one, above))


def _policy(flow: dict[str, Any], tool: dict[str, Any]) -> Manifest:
    return Manifest.from_data({"agent": "a", "flow": flow, "capabilities": {"tools": {"t": tool}}}, _WORKSPACE)


_WORKSPACE: dict[str, Any] = {"tools": {"t": {"needs": []}}}
_argument = st.one_of(
    st.fixed_dictionaries(
        {},
        optional={
            "flow": st.sampled_from(list(OF_ROLE)),
            "from": st.lists(st.sampled_from(ORIGINS[:-1]), min_size=1),
            "maxLength": st.just(9),
        },
    ),
    st.fixed_dictionaries(
        {"flow": st.just("ref")},
        optional={"of": st.lists(st.sampled_from(["t:id", "u:id"]), min_size=1), "always": st.booleans()},
    ),
)
_tool = st.fixed_dictionaries(
    {},
    optional={
        "args": st.dictionaries(st.sampled_from("xy"), _argument),
        "asked_by": st.lists(st.sampled_from(["de", "delet", "remov"]), min_size=1),
    },
)
_stated = _data.map(lambda data: {key: value for key, value in data.items() if key in ("preset", "otherwise", "own")})


@given(_stated, _tool, _stated, _tool)
def test_a_manifest_and_another_one_together_are_narrower_than_both(
    flow: dict[str, Any], tool: dict[str, Any], other_flow: dict[str, Any], other_tool: dict[str, Any]
) -> None:
    one, two = _policy(flow, tool), _policy(other_flow, other_tool)
    met, turned = one.meet(two), two.meet(one)
    assert not diff(one, met).grown
    assert not diff(two, met).grown
    assert not diff(met, turned)
    assert not diff(one, one.meet(one))


# Values ---------------------------------------------------------------------------------------------------------------

TOGETHER: dict[str, tuple[dict[str, Any], dict[str, Any], dict[str, Any]]] = {
    "the weaker label": (
        {"results": {"t": "trusted"}},
        {"results": {"t": "identity"}},
        {"results": {"t": [{"label": "identity"}]}},
    ),
    "a tool that one of them labels": ({"results": {"t": "trusted"}}, {"results": {"u": "trusted"}}, {}),
    "authored and trusted": (
        {"results": {"t": "authored"}},
        {"results": {"t": "trusted"}},
        {"results": {"t": [{"label": "trusted"}]}},
    ),
    "two confirmations": ({"results": {"t": "ack"}}, {"results": {"t": "ack"}}, {"results": {"t": [{"label": "ack"}]}}),
    "a confirmation and a label": ({"results": {"t": "ack"}}, {"results": {"t": "authored"}}, {}),
    "what only one of them creates": (
        {"results": {"t": {"label": "ack", "creates": True}}},
        {"results": {"t": "ack"}},
        {"results": {"t": [{"label": "ack"}]}},
    ),
    "fields inside fields": (
        {"results": {"t": {"fields": {"sender": "untrusted"}, "label": "trusted"}}},
        {"results": {"t": {"sender/email": "trusted"}}},
        {},
    ),
    "a field and a whole result": (
        {"results": {"t": {"id": "trusted"}}},
        {"results": {"t": "identity"}},
        {"results": {"t": [{"label": "untrusted", "fields": {"id": "identity"}}]}},
    ),
    "folders that lie in each other": (
        {"results": {"t": [{"under": {"p": "/srv"}, "label": "authored"}]}},
        {"results": {"t": [{"under": {"p": "/srv/a"}, "label": "trusted"}]}},
        {"results": {"t": [{"under": {"p": "/srv/a"}, "label": "trusted"}]}},
    ),
    "folders next to each other": (
        {"results": {"t": [{"under": {"p": "/srv/a"}, "label": "authored"}]}},
        {"results": {"t": [{"under": {"p": "/srv/ab"}, "label": "authored"}]}},
        {},
    ),
    "a source inside another": (
        {"sources": [{"use": "fs:read:/srv", "label": "authored"}]},
        {"sources": [{"use": "fs:*:/srv/a", "label": "identity"}]},
        {"sources": [{"use": "fs:read:/srv/a", "label": "identity"}]},
    ),
    "a source that one of them has": ({"sources": [{"use": "fs:read:/srv", "label": "authored"}]}, {}, {}),
    "the domains of both": ({"own": ["a.test", "z.test"]}, {"own": ["b.a.test", "xa.test"]}, {"own": ["b.a.test"]}),
    "the secrets of both": (
        {"secrets": [{"from": {"tool": "t", "fields": ["a", "b"]}, "readers": ["network:write:x.test"]}]},
        {"secrets": [{"from": {"tool": "t", "fields": ["a"]}, "readers": []}, {"from": "fs:read:/hr", "readers": []}]},
        {
            "secrets": [
                {"from": "fs:read:/hr", "readers": []},
                {"from": {"tool": "t", "fields": ["a"]}, "readers": []},
                {"from": {"tool": "t", "fields": ["b"]}, "readers": ["network:write:x.test"]},
            ]
        },
    ),
    "deny before ask": ({"otherwise": "deny"}, {}, {"otherwise": "deny"}),
    "a client that one of them lets say the task": ({"task_through_client": True}, {"task": "prompt"}, {}),
}


@pytest.mark.parametrize("case", TOGETHER)
def test_what_two_policies_say_together(case: str) -> None:
    one, two, met = (flow_of({"preset": "guarded", **stated}) for stated in TOGETHER[case])
    assert flow_document(met_flow(one, two)) == flow_document(met)
    assert flow_document(met_flow(two, one)) == flow_document(met)


def test_a_source_that_may_lie_inside_others_is_untrusted() -> None:
    """Where `~` is gets known later: a weaker label below it must not be lost before that."""
    one = flow_of({"preset": "guarded", "sources": [{"use": "fs:read:/srv", "label": "authored"}]})
    hole = {"use": "fs:read:~/x", "label": "identity"}
    two = flow_of({"preset": "guarded", "sources": [{"use": "fs:read:/srv", "label": "authored"}, hole]})
    for met in (met_flow(one, two), met_flow(two, one)):
        real = expanded_flow(met, "/desk", "/srv/home")
        labels = [(source.use, source.label) for source in real.sources]
        assert labels == [("fs:read:/srv", "authored"), ("fs:read:/srv/home/x", "untrusted")]


PRESETS_TOGETHER = [
    ("off", "trifecta", ("trifecta",)),
    ("watch", "guarded", ("guarded",)),
    ("watch", "trifecta", ("trifecta",)),
    ("guarded", "strict", ("strict",)),
    ("trifecta", "rule_of_two", ("rule_of_two",)),
    ("guarded", "rule_of_two", ("guarded", "rule_of_two")),
    ("strict", "trifecta", ("strict", "trifecta")),
]


@pytest.mark.parametrize(("one", "two", "both"), PRESETS_TOGETHER)
def test_the_stricter_preset_counts_and_two_that_cannot_be_compared_both_do(
    one: str, two: str, both: tuple[str, ...]
) -> None:
    flows = flow_of({"preset": one}), flow_of({"preset": two})
    assert met_flow(*flows).presets == met_flow(*reversed(flows)).presets == both


@pytest.mark.parametrize(
    ("one", "two", "least"),
    [
        ("untrusted", "authored", "untrusted"),
        ("identity", "trusted", "identity"),
        ("authored", "trusted", "trusted"),
        ("ack", "ack", "ack"),
        ("ack", "identity", "untrusted"),
        ("ack", "untrusted", "untrusted"),
    ],
)
def test_the_weaker_of_two_labels(one: Label, two: Label, least: Label) -> None:
    assert weaker(one, two) == weaker(two, one) == least


def test_a_label_is_raised_along_its_order_alone() -> None:
    raised = {(one, two) for one in LABELS for two in LABELS if is_raised(one, two)}
    assert raised == {(one, two) for at, one in enumerate(LABELS[:4]) for two in LABELS[at + 1 : 4]}


def test_a_field_has_the_label_of_the_nearest_one_around_it() -> None:
    labels = ResultLabels(label="trusted", fields=(("sender", "untrusted"), ("sender/email", "identity")))
    found = [
        label_at(labels, field)
        for field in ("id", "sender", "sender/name", "sender/email", "sender/email/x", "senders")
    ]
    assert found == ["trusted", "untrusted", "untrusted", "identity", "identity", "trusted"]


def test_labels_that_never_count_are_left_out() -> None:
    entries = [
        {"under": {"p": "/srv"}, "label": "trusted"},
        {"under": {"p": "/srv/a"}, "label": "untrusted"},  # the entry above fits first
        {"under": {"p": "/other"}},  # untrusted, as without it
    ]
    assert flow_document(flow_of({"preset": "guarded", "results": {"t": entries}}))["results"] == {"t": entries[:1]}
    assert not flow_of({"results": {"t": "untrusted", "u": {}, "v": []}}).results


def test_a_tool_that_is_called_untrusted_stays_so_where_sources_are_believed() -> None:
    """A source is about tools that nobody labelled. The digest of a policy without sources is as before."""
    stated = {"preset": "guarded", "results": {"t": "untrusted", "u": {}, "v": []}}
    believed = flow_of({**stated, "sources": [{"use": "fs:read:/srv", "label": "trusted"}]})
    assert believed.results == {"t": (), "u": (), "v": ()}
    assert flow_document(believed)["results"] == {"t": [], "u": [], "v": []}
    assert not flow_of({**stated, "sources": [{"use": "fs:read:/srv", "label": "untrusted"}]}).results
    silent = flow_of({"preset": "guarded", "sources": [{"use": "fs:read:/srv", "label": "trusted"}]})
    assert [item for _, item in flow_only(silent, believed)] == ["t trusted", "u trusted", "v trusted"]
    assert not grown(silent, believed)


def test_a_weaker_folder_inside_a_believed_one_counts() -> None:
    entries = [{"under": {"p": "/srv/a"}}, {"under": {"p": "/srv"}, "label": "trusted"}]
    (kept, _) = flow_of({"results": {"t": entries}}).results["t"]
    assert (kept.label, kept.under) == ("untrusted", (("p", "/srv/a"),))


def test_directories_are_real_ones_once_they_are_known() -> None:
    flow = flow_of(
        {
            "preset": "guarded",
            "results": {"t": [{"under": {"p": "~/x"}, "label": "trusted"}]},
            "sources": [{"use": "fs:read:${workdir}/docs", "label": "authored"}],
            "secrets": [{"from": "fs:read:~/.hr", "readers": ["fs:write:${workdir}"]}],
        }
    )
    assert {*flow_paths(flow)} == {"~/x", "${workdir}/docs", "~/.hr", "${workdir}"}
    real = expanded_flow(flow, "/desk", "/home/me")
    assert {*flow_paths(real)} == {"/home/me/x", "/desk/docs", "/home/me/.hr", "/desk"}


def test_a_manifest_knows_the_roots_that_its_flow_names() -> None:
    data = {
        "agent": "a",
        "flow": {"preset": "guarded", "results": {"t": [{"under": {"p": "~/x"}, "label": "trusted"}]}},
    }
    policy = Manifest.from_data(data)
    real = policy.expand("/desk", "/home/me")
    assert real.roots == {"~": "/home/me"}
    assert FLOW.of(real).results["t"][0].under == (("p", "/home/me/x"),)
    assert real.digest == policy.digest


# Arguments and words --------------------------------------------------------------------------------------------------


def test_words_about_flow_have_one_order() -> None:
    rule = {"from": ["trusted", "task", "trusted"], "of": ["b:id", "a:id"], "always": False, "maxLength": 9}
    assert in_flow_order(rule) == {"from": ["task", "trusted"], "of": ["a:id", "b:id"], "maxLength": 9}
    assert in_flow_order("free") == "free"
    assert in_flow_order({"maxLength": 9}) == {"maxLength": 9}


def test_what_a_rule_says_about_an_argument() -> None:
    assert argument_flow({"flow": "to", "always": True, "maxLength": 3}) == ArgumentFlow(role="to", always=True)
    assert argument_flow({"from": ["trusted", "task"]}) == ArgumentFlow(origins=("task", "trusted"))
    assert argument_flow({"flow": "ref", "of": ["a:id"]}) == ArgumentFlow(role="ref", of=("a:id",))
    assert argument_flow({"maxLength": 3}) is argument_flow("free") is None


@pytest.mark.parametrize(
    ("stated", "words"),
    [
        (["Remov", "delet"], ("delet", "remov")),
        ({"en": ["delet"], "de": ["LÖSCH", "delet"]}, ("delet", "lösch")),
        (["ﬁle"], ("file",)),
        (None, ()),
    ],
)
def test_the_words_of_all_languages_are_one_list(stated: object, words: tuple[str, ...]) -> None:
    assert asked_words(stated) == words


A = ArgumentFlow
NARROWER: dict[str, tuple[list[ArgumentFlow], list[ArgumentFlow], bool]] = {
    "the same": ([A(role="to")], [A(role="to")], True),
    "a further rule": ([A(role="to"), A(role="content")], [A(role="to")], True),
    "no rule": ([], [A(role="to")], False),
    "another role": ([A(role="value")], [A(role="to")], False),
    "fewer origins": ([A(origins=("task",))], [A(origins=("task", "trusted"))], True),
    "another origin": ([A(origins=("task", "seen"))], [A(origins=("task", "trusted"))], False),
    "origins in place of those of the role": ([A(role="to", origins=("task",))], [A(role="to")], True),
    "origins that the role does not take": ([A(role="to", origins=("task", "seen"))], [A(role="to")], False),
    "the role in place of fewer origins": ([A(role="ref")], [A(role="ref", origins=("task",))], False),
    "the role in place of all its origins": ([A(role="value")], [A(role="value", origins=("task", "trusted"))], True),
    "an anchor adds origins": ([A(role="to")], [A(role="to", origins=("task", "trusted", "identity"))], False),
    "text without a look at its addresses": ([A(role="content", origins=("task",))], [A(role="content")], False),
    "fields for an id": ([A(role="ref", of=("a:id",))], [A(role="ref")], True),
    "a further field": ([A(role="ref", of=("a:id", "b:id"))], [A(role="ref", of=("a:id",))], False),
    "no fields": ([A(role="ref")], [A(role="ref", of=("a:id",))], False),
    "from the start": ([A(role="to", always=True)], [A(role="to")], True),
    "no longer from the start": ([A(role="to")], [A(role="to", always=True)], False),
}


@pytest.mark.parametrize("case", NARROWER)
def test_whether_rules_on_an_argument_ask_no_less(case: str) -> None:
    kept, rules, narrower = NARROWER[case]
    assert asks_no_less(kept, rules) is narrower


@pytest.mark.parametrize(
    ("kept", "lists", "narrower"),
    [
        ([("delet",)], [("delet", "remov")], True),
        ([("delete",)], [("delet",)], True),
        ([("delet",)], [("delete",)], False),
        ([("delet",), ("mail",)], [("delet",)], True),
        ([], [("delet",)], False),
        ([("delet", "mail")], [("delet",)], False),
    ],
)
def test_whether_words_are_asked_for_no_less(
    kept: list[tuple[str, ...]], lists: list[tuple[str, ...]], narrower: bool
) -> None:
    assert asked_no_less(kept, lists) is narrower


def test_people_read_what_is_believed() -> None:
    flow = flow_of(
        {
            "preset": "guarded",
            "own": ["a.test"],
            "results": {
                "t": {"label": "trusted", "fields": {"body": "untrusted"}},
                "u": {"id": "trusted", "who": "identity"},
                "v": [{"under": {"p": "/srv"}, "label": "authored"}],
            },
            "sources": [{"use": "fs:read:/a", "label": "identity"}, {"use": "fs:read:/b", "label": "authored"}],
            "secrets": [{"from": {"tool": "t", "fields": ["body"]}, "readers": []}],
            "task": "prompt",
        }
    )
    assert [*beliefs(flow)] == [
        "authored: all of `v` where `p` is under /srv",
        "trusted: all of `t`, but `body` (untrusted)",
        "trusted: `u:id`",
        "identity: `u:who`",
        "authored: what is read through fs:read:/b",
        "identity: what is read through fs:read:/a",
    ]
    assert flow_text(flow) == "guarded; own: a.test; the prompt is the task; secret: t:body, for nobody"
