"""Cases of flow as values: a policy, a task, results that were read, a call, and what the judgement must be.

The tool `act` has one argument of each role, named for it, and `to_too` and `when_too` beside them.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from licet.core.decision.flow_judgement import judge
from licet.core.decision.reach import Reach, reach_of
from licet.core.flow.judgement import Judgement
from licet.core.flow.known import Known, Reading, from_task
from licet.core.flow.labels import labels_of_result, secrets_of_result
from licet.core.policy.flow import Flow, ResultLabels, SecretSource, Source

from ..manifests import admission, manifest, tool

HERE = Path(__file__).parent
ACT: Mapping[str, Any] = {
    **{role: {"flow": role} for role in ("to", "ref", "choice", "value", "link", "when", "code", "content")},
    "to_too": {"flow": "to"},
    "when_too": {"flow": "when"},
    "typed": {"flow": "ref", "of": ["list_files:id", "search_files:id"]},
    "made_by": {"flow": "ref", "of": ["create_file:id"]},
    "whole_tool": {"flow": "ref", "of": ["search_people"]},
    "own_list": {"from": ["task"]},
    "seen_too": {"flow": "link", "from": ["task", "seen"]},
    "early": {"flow": "to", "always": True},
    "text_to": {"flow": "content", "from": ["task"]},
    "free": {"maxLength": 500},
}


@dataclass(frozen=True)
class Case:
    """One call, and what must be said about it."""

    name: str
    call: Mapping[str, Any]
    verdict: str  # `met`, `unmet`, or the places that are unmet: `to/0, content`
    task: str = ""
    read: list[Any] = field(default_factory=list)  # tool, value, arguments, uses
    origins: list[str] = field(default_factory=list)
    at: str = ""  # `receipt pointer` of one of the places
    reason: str = ""
    flow: Mapping[str, Any] = field(default_factory=dict)  # what differs from the policy of the file
    act: Mapping[str, Any] = field(default_factory=dict)  # the same for the tool: args, needs, asked_by, schema
    tainted: bool = True  # by something that says nothing, before the results
    most: int = 0  # how much is remembered


def flow_of(data: Mapping[str, Any]) -> Flow:
    """A policy from the words in which a manifest writes it."""
    given = dict(data)
    given.setdefault("preset", "guarded")
    given["own"] = tuple(given.get("own", ()))
    given["results"] = {name: _labels(one) for name, one in given.get("results", {}).items()}
    given["sources"] = tuple(Source(**one) for one in given.get("sources", ()))
    given["secrets"] = tuple(_secret(one) for one in given.get("secrets", ()))
    given["roles"] = {role: tuple(origins) for role, origins in given.get("roles", {}).items()}
    return Flow(**given)


def _labels(written: Any) -> tuple[ResultLabels, ...]:
    if isinstance(written, str):
        return (ResultLabels(label=written),)  # type: ignore[arg-type]
    if isinstance(written, list):
        return tuple(
            ResultLabels(under=tuple(one.get("under", {}).items()), label=one.get("label", "untrusted"))
            for one in written
        )
    rest = dict(written)
    label, creates = rest.pop("label", "untrusted"), rest.pop("creates", False)
    return (ResultLabels(label=label, creates=creates, fields=tuple(rest.items())),)


def _secret(written: Mapping[str, Any]) -> SecretSource:
    source, readers = written["from"], tuple(written.get("readers", ()))
    if isinstance(source, str):
        return SecretSource(use=source, readers=readers)
    return SecretSource(tool=source["tool"], fields=tuple(source.get("fields", ())), readers=readers)


def reach_for(act: Mapping[str, Any]) -> Reach:
    """The tool `act`, with an argument of each role, or those that are given."""

    class Admitted(type(admission())):  # type: ignore[misc]
        asked_by: tuple[str, ...] = ()

    needs = act.get("needs", ["fs:read:/srv"])
    spec = tool("act", *needs, effect=act.get("effect", "read_only"), schema=act.get("schema"))
    place = admission(args=act.get("args", ACT))
    fields = {name: getattr(place, name) for name in place.__struct_fields__}
    places = [Admitted(**{**fields, "asked_by": tuple(one)}) for one in act.get("asked_by", [()])]
    made = manifest(spec, allows=needs, admissions={"act": tuple(places)}, max_effect="full")
    reach = reach_of(made, "act")
    assert reach is not None
    return reach


def known_of(flow: Flow, task: str, read: list[Any], *, tainted: bool = True, most: int = 0) -> Known:
    """What a session knows after results were read; each is `[tool, value, arguments, uses]`."""
    known = Known(most) if most else Known()
    if task:
        known.say(task)
    if tainted:
        known.taint("from the start")
    for number, one in enumerate(read, 1):
        name, value, *rest = one
        arguments: Mapping[str, Any] = rest[0] if rest else {}
        remember(known, flow, f"r-{number}", name, value, arguments, tuple(rest[1]) if rest[1:] else ())
    return known


def remember(
    known: Known,
    flow: Flow,
    receipt: str,
    name: str,
    value: Any,
    arguments: Mapping[str, Any],
    uses: tuple[str, ...] = (),
) -> None:
    """Hand a result over, as a gate does."""
    known.remember(
        Reading(
            receipt,
            name,
            value,
            arguments,
            labels_of_result(flow, name, arguments, uses),
            secrets_of_result(flow, name, uses),
            from_task(arguments, known),
        )
    )


def judged(case: Case, policy: Mapping[str, Any]) -> Judgement:
    """Judge the call of a case."""
    flow = flow_of({**policy, **case.flow})
    known = known_of(flow, case.task, case.read, tainted=case.tainted, most=case.most)
    return judge(reach_for(case.act), flow, case.call, known)


@cache
def _file(name: str) -> Any:
    return yaml.safe_load((HERE / name).read_text(encoding="utf-8"))


def policy_of(name: str) -> Mapping[str, Any]:
    """The policy that the cases of a file share."""
    found: Mapping[str, Any] = _file(name)["policy"]
    return found


def cases_of(name: str) -> Iterator[Case]:
    """The cases of one file."""
    document = _file(name)
    shared = document.get("shared", {})
    for written in document["cases"]:
        given = dict(written)
        read = given.get("read", [])
        if isinstance(read, str):
            given["read"] = shared[read]
        else:
            given["read"] = [each for one in read for each in (shared[one] if isinstance(one, str) else [one])]
        yield Case(**given)
