"""Two policies together believe no more than each, and ask at least what each asks, whatever is read and called."""

from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from effort import EXAMPLES
from licet.core.decision.flow_judgement import judge
from licet.core.flow.judgement import Judgement
from licet.core.flow.labels import is_private, labels_of_result, leaves, secrets_of_result
from licet.core.flow.session_knowledge import Known, Reading, from_task
from licet.core.policy.flow import LABELS, OF_ROLE, ORIGINS, PRESETS, Flow, Label
from licet.core.policy.flow_terms import expanded_flow, flow_of, met_flow, narrowed_flow, weaker
from licet.core.review.sensitive import holds_keys

from .cases import ACT, reach_for

FIELDS = ("id", "who", "who/mail", "body")
SOURCES = (
    *(
        "fs:read:/srv",
        "fs:read:/srv/a",
        "fs:*:/srv/a",
        "fs:write:/srv",
        "fs:read:~/a",
        "fs:read:${workdir}",
        "fs:read:*",
    ),
    *("network:read:*.x.test", "network:https:get@a.x.test", "network:write:*", "network:*:*"),
    *("env:read:TOKEN", "env:read:*", "storage:read:tool-private", "secret:read:*"),
)
USES = (
    *(
        *SOURCES[:4],
        "fs:read:/srv/a/f",
        "fs:read:/srv/f",
        "fs:read:/desk/f",
        "fs:read:/srv/home/a/f",
        "fs:write:/srv/f",
    ),
    *(
        "network:https:get@a.x.test:443",
        "network:https:get@b.x.test:443",
        "network:read:*",
        "fs:read:/home/me/.ssh/id_rsa",
    ),
    *("env:read:TOKEN", "env:read:PATH", "storage:read:tool-private", "secret:read:k", "connector:use:c", "?"),
)
PLACES = ("", "/srv", "/srv/a", "/srv/ab", "~", "~/a", "${workdir}")
labels = st.sampled_from(LABELS)
under = st.dictionaries(st.sampled_from("pq"), st.sampled_from(PLACES), max_size=2)
fields = st.dictionaries(st.sampled_from(FIELDS), labels, max_size=3)
entries = st.fixed_dictionaries(
    {}, optional={"label": labels, "fields": fields, "creates": st.booleans(), "under": under}
)
results = st.dictionaries(st.sampled_from("tu"), st.one_of(labels, fields, st.lists(entries, max_size=3)))
sources = st.lists(
    st.fixed_dictionaries({"use": st.sampled_from(SOURCES), "label": st.sampled_from(LABELS[:4])}), max_size=4
)
secrets = st.lists(
    st.fixed_dictionaries(
        {
            "from": st.one_of(
                st.sampled_from(SOURCES),
                st.fixed_dictionaries({"tool": st.just("t")}, optional={"fields": st.just(["body"])}),
            ),
            "readers": st.lists(st.sampled_from(("network:write:*", "fs:write:*", "network:read:*")), max_size=2),
        }
    ),
    max_size=2,
)
stated = {
    "otherwise": st.sampled_from(["ask", "deny"]),
    "own": st.lists(st.sampled_from(["a.test", "b.a.test", "z.test"]), max_size=2),
    "results": results,
    "sources": sources,
    "secrets": secrets,
    "roles": st.dictionaries(st.sampled_from(list(OF_ROLE)), st.lists(st.sampled_from(ORIGINS)), max_size=2),
}
presets = st.sampled_from(PRESETS[1:])
policies = st.fixed_dictionaries({"preset": presets}, optional=stated)
above = st.fixed_dictionaries({}, optional={"preset": presets, **stated})
paths = st.sampled_from(("/srv/a/f", "/srv/f", "/srv/ab", "/desk/f", "/srv/home/a", "/srv/../f", "srv/a", "x", "/"))
arguments = st.dictionaries(st.sampled_from("pq"), st.one_of(paths, st.lists(paths, max_size=2)), max_size=2)
uses = st.lists(st.sampled_from(USES), max_size=3).map(tuple)
texts = st.sampled_from(("ann@b.a.test", "eve@evil.test", "Dora", "13", "https://a.test/x", "/srv/f", "two\nlines"))
records = st.fixed_dictionaries(
    {}, optional={"id": texts, "who": st.one_of(texts, st.fixed_dictionaries({"mail": texts})), "body": texts}
)
values = st.one_of(texts, records, st.lists(records, max_size=2))
reads = st.lists(st.tuples(st.sampled_from("tuv"), arguments, uses, values), max_size=3)
calls = st.dictionaries(st.sampled_from((*ACT, "asked_for")), texts, min_size=1, max_size=2)
Read = list[tuple[str, Mapping[str, Any], tuple[str, ...], Any]]
REACHES = [
    reach_for({"args": {**ACT, "asked_for": {"from": ["asked"]}}, "needs": [need], "effect": effect})
    for need, effect in (
        ("fs:write:*", "write_limited"),
        ("fs:read:*", "read_only"),
        ("network:read:*", "read_only"),
    )
]
STRENGTH: Mapping[Label, int] = {"untrusted": 0, "identity": 1, "trusted": 2, "authored": 3}


def real(flow: Flow) -> Flow:
    return expanded_flow(flow, "/desk", "/srv/home")


def labels_under(flow: Flow, read: Any) -> dict[tuple[str, bool], Label]:
    """The label of each leaf, by its pointer and whether it is a key. A key that a policy names is no leaf."""
    tool, called, touched, value = read
    found = leaves(value, labels_of_result(flow, tool, called, touched), called)
    return {(one.pointer, one.field.endswith("#keys")): one.label for one in found}


def is_weaker(one: Label, two: Label) -> bool:
    return one == "untrusted" or one == two or ("ack" not in (one, two) and STRENGTH[one] < STRENGTH[two])


def judged(flow: Flow, task: str, read: Read, call: Any, reach: Any) -> Judgement:
    """What is said of a call, with everything that was read labelled by this policy, as `guard/flow_steps.py` does."""
    known = Known()
    known.say(task)
    for number, (tool, called, touched, value) in enumerate(read):
        secret = secrets_of_result(flow, tool, touched)
        private = flow.guesses_secrets and is_private(touched, holds_keys)
        found = labels_of_result(flow, tool, called, touched)
        asked = from_task(called, known)
        known.remember(Reading(f"r-{number}", tool, value, called, found, secret, from_task=asked, private=private))
    return judge(reach, flow, call, known)


def stops(judgement: Judgement) -> bool:
    return bool(judgement.unmet) and judgement.stops


def has_confirmation(*flows: Flow) -> bool:
    every = [one for flow in flows for several in flow.results.values() for one in several]
    return any("ack" in (one.label, *dict(one.fields).values()) for one in every)


def check_labels(read: Any, met: Flow, *each: Flow) -> None:
    together = labels_under(met, read)
    for flow in each:
        for place, alone in labels_under(flow, read).items():
            assert place[1] or place in together
            assert is_weaker(together.get(place, "untrusted"), alone), (place, alone)


SRC = [{"use": "fs:read:/srv", "label": "trusted"}]
READ = ("t", {"p": "/srv/f"}, ("fs:read:/srv/f",), [{"id": "13", "body": "Dora"}])


@settings(max_examples=max(EXAMPLES, 100))
@given(policies, policies, st.tuples(st.sampled_from("tuv"), arguments, uses, values))
@example(
    {"preset": "guarded", "sources": SRC, "results": {"t": {"id": "trusted"}}},
    {"preset": "guarded", "sources": SRC},
    READ,
)
@example(
    {"preset": "guarded", "sources": SRC, "results": {"t": [{"under": {"p": "/srv/a"}, "label": "authored"}]}},
    {"preset": "guarded", "sources": SRC, "results": {"t": [{"under": {"p": "/srv/b"}, "label": "authored"}]}},
    READ,
)
@example(
    {"preset": "guarded", "results": {"t": [{"under": {"p": ""}, "label": "trusted"}]}},
    {"preset": "guarded", "results": {"t": [{"under": {"p": "/srv"}, "label": "trusted"}]}},
    READ,
)
def test_two_policies_together_believe_no_more_of_any_leaf_than_each(one: Any, two: Any, read: Any) -> None:
    first, second = flow_of(one), flow_of(two)
    for met in (met_flow(first, second), met_flow(second, first)):
        check_labels(read, real(met), real(first), real(second))
        check_labels(read, met_flow(real(first), real(second)), real(first), real(second))


@settings(max_examples=max(EXAMPLES, 100))
@given(policies, above, st.tuples(st.sampled_from("tuv"), arguments, uses, values))
@example(
    {"preset": "guarded", "sources": SRC, "results": {"t": {"id": "trusted"}}},
    {"results": {"t": {"body": "trusted"}}},
    READ,
)
@example({"preset": "guarded", "sources": SRC}, {"results": {"t": "untrusted"}}, READ)
@example(
    {"preset": "guarded", "sources": SRC, "results": {"t": {"id": "trusted"}}}, {"results": {"t": "untrusted"}}, READ
)
def test_under_an_organisation_no_leaf_is_believed_more(own: Any, org: Any, read: Any) -> None:
    flow = flow_of(own)
    narrowed = narrowed_flow(flow, org)
    check_labels(read, real(narrowed), real(flow))
    if read[0] in org.get("results", {}):
        said = real(flow_of({"preset": "guarded", "results": org["results"]}))
        check_labels(read, real(narrowed), said)


@settings(max_examples=max(EXAMPLES, 150))
@given(
    policies, policies, st.sampled_from(("", "Dora", "See 13 for ann@b.a.test")), reads, calls, st.sampled_from(REACHES)
)
@example(
    {"preset": "trifecta"},
    {"preset": "guarded", "secrets": [{"from": "fs:read:/srv", "readers": []}]},
    "",
    [("v", {}, ("secret:read:k",), "Dora")],
    {"free": "x"},
    REACHES[0],
)
def test_what_one_of_two_policies_asks_about_both_together_ask_about(
    one: Any, two: Any, task: str, read: Read, call: Any, reach: Any
) -> None:
    first, second = real(flow_of(one)), real(flow_of(two))
    met = met_flow(first, second)
    if has_confirmation(first, second):
        # A leaf that one policy calls a confirmation, and the other does not, is `seen` under both, and nowhere under
        # the first: that is where `seen` is taken.
        call = {name: value for name, value in call.items() if name not in ("code", "seen_too")}
    for flow in (first, second):
        if stops(judged(flow, task, read, call, reach)):
            assert stops(judged(met, task, read, call, reach))
    narrowed = narrowed_flow(first, two)
    if stops(judged(first, task, read, call, reach)):
        assert stops(judged(narrowed, task, read, call, reach))


@pytest.mark.parametrize("label", LABELS)
def test_a_confirmation_next_to_another_label_is_untrusted(label: Label) -> None:
    first, second = (flow_of({"preset": "guarded", "results": {"t": one}}) for one in ("ack", label))
    assert {*labels_under(met_flow(first, second), READ).values()} == {weaker("ack", label)}
