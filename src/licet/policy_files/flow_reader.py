"""Checks `flow:` beyond the shape of each key, and finds where its parts are written.

Whether its tools and fields exist, and whether its labels are likely to be right, is known only with the tools:
`core/review/flow_warnings.py` warns about that.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from licet.core.values import Origin, Problem
from licet.policy_files.checks import is_shared_domain
from licet.policy_files.limits import MOST_LABELS_OF_TOOL, MOST_SOURCES
from licet.policy_files.shapes import Located

Fields = Mapping[str, Located[Any]]


def flow_problems(given: Fields) -> Iterator[Problem]:
    """Check `flow:` of a manifest, a personality or an organisation."""
    flow = given.get("flow")
    if flow is None:
        return
    for key in ("own", "sources", "secrets"):
        listed = flow.value.get(key)
        if listed is not None and len(listed.value) > MOST_SOURCES:
            yield Problem(_origin(listed), f"{len(listed.value)} entries under `flow.{key}`", f"at most {MOST_SOURCES}")
    for item in flow.value["own"].value if flow.value.get("own") is not None else ():
        if is_shared_domain(item.value):
            expected = "a domain that is the operator's own"
            yield Problem(item.origin, f"`{item.value}`", expected, "anyone can get a name or an address there")
    results = flow.value.get("results")
    for tool, labels in results.value.items() if results is not None else ():
        yield from _label_problems(tool, labels)


def _label_problems(tool: str, labels: Located[Any]) -> Iterator[Problem]:
    if isinstance(labels.value, tuple) and len(labels.value) > MOST_LABELS_OF_TOOL:
        found = f"{len(labels.value)} entries for `{tool}`"
        yield Problem(_origin(labels), found, f"at most {MOST_LABELS_OF_TOOL}")
    if isinstance(labels.value, Mapping) and [*labels.value] == ["label"] and labels.value["label"].key:
        # A key of the long form; a field of this name among others has no key of its own.
        label = labels.value["label"].value
        hint = f"write `{label}` for the whole result, or `{{fields: {{label: {label}}}}}` for a field of that name"
        yield Problem(_origin(labels), f"`label` alone for `{tool}`", "what it is about", hint)


def flow_places(given: Fields) -> dict[str, Origin]:
    """Where each part of `flow:` is written, by its key: `flow.own`, `flow.results.list_mail`."""
    flow = given.get("flow")
    if flow is None:
        return {}
    results = flow.value.get("results")
    of_tools = results.value.items() if results is not None else ()
    return (
        {"flow": _origin(flow)}
        | {f"flow.{key}": _origin(located) for key, located in flow.value.items()}
        | {f"flow.results.{tool}": _origin(labels) for tool, labels in of_tools}
    )


def _origin(located: Located[Any]) -> Origin:
    return located.key_origin or located.origin
