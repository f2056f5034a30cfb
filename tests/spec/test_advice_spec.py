"""The advice works: whoever follows what a denial prints, line by line, ends with a call that is not denied.

Worlds are made at random as data, written to files, asked, changed as the advice says, and asked again.
"""

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from licet import Use, decide, load_manifest
from licet.core.decision import Deny, Request
from licet.core.needs import needs_of
from licet.core.origin import Origin
from licet.core.set import CapabilitySet

Files = dict[str, Any]
WORKSPACE, MANIFEST, PERSONALITY = "licet.yaml", "manifest.yaml", "personality.yaml"

# By domain: rules for needs, grants and denies; and uses to ask about.
POOLS: dict[str, tuple[list[str], list[str]]] = {
    "network": (
        [
            "network:*:*",
            "network:*:a.example",
            "network:https:get@*.example",
            "network:tcp:a.example:22",
            "network:*:get",
        ],
        [
            "network:https:get@a.example",
            "network:https:post@a.example:8443",
            "network:http:delete@b.a.example",
            "network:https:propfind@a.example",
            "network:tcp:a.example:22",
            "network:https:get@[::1]",
            "network:https:get@get",
        ],
    ),
    "fs": (
        ["fs:*:*", "fs:read:/a", "fs:*:/a/b", "fs:write:/a"],
        ["fs:read:/a/b/c", "fs:write:/a/b", "fs:delete:/a/b", "fs:read:/etc"],
    ),
    "env": (["env:read:*", "env:read:A"], ["env:read:A", "env:read:B"]),
    "secret": (["secret:read:*", "secret:read:a/*"], ["secret:read:a/b", "secret:read:K"]),
    "process": (["process:exec:*", "process:exec:git"], ["process:exec:git", "process:exec:/bin/ls"]),
    "storage": (
        ["storage:*:*", "storage:read:personality", "storage:*:session"],
        ["storage:write:personality", "storage:read:session", "storage:write:tool-private"],
    ),
    "tool": (["tool:call:*", "tool:call:t"], ["tool:call:t", "tool:call:u"]),
}
HOSTS = ["a.example", "*.example", "b.a.example", "*"]
CLASSES = ["read_only", "write_limited", "full", "destructive"]
LEVELS = ["restricted", "isolated", "native"]


@st.composite
def worlds(draw: st.DrawFn) -> tuple[Files, str]:
    """Files in which something is mostly missing, and a use to ask about."""
    domain = draw(st.sampled_from(("network", "network", "fs", *POOLS)))
    rules, uses = POOLS[domain]

    def some(pool: list[Any], most: int = 2) -> list[Any]:
        return draw(st.lists(st.sampled_from(pool), max_size=most, unique=True))

    def maybe(key: str, values: st.SearchStrategy[Any]) -> dict[str, Any]:
        return {key: draw(values)} if draw(st.booleans()) else {}

    def ceiling() -> dict[str, Any]:
        return {
            "grants": some(rules),
            **maybe("deny", st.lists(st.sampled_from(rules), max_size=2, unique=True)),
            **maybe("max_side_effect_class", st.sampled_from(CLASSES)),
            **maybe("approvals", st.just({"write": "manifest"})),
            **maybe("budget", st.sampled_from(({"max_calls_per_session": 5}, {"max_cost_usd": 1}))),
            **maybe("native", st.just(["t"])),
            **maybe("connectors", st.sampled_from((["github"], [{"connector": "github", "version": ">=2.0"}]))),
        }

    tool = {
        "needs": some(rules),
        "cost_usd": 0,
        **maybe("effect", st.sampled_from(CLASSES)),
        **maybe("sandbox", st.sampled_from(LEVELS)),
        **(maybe("connector", st.sampled_from(("github", "github@2.1", "github@1.0"))) if draw(st.booleans()) else {}),
    }
    workspace: dict[str, Any] = {"tools": {"t": tool}}
    capabilities = {"tools": draw(st.sampled_from((["t"], {"t": {}}, {"t": {"side_effect_class": "write_limited"}})))}
    if draw(st.booleans()):
        workspace["bundles"] = {
            "b": {
                "tools": ["t"],
                **maybe("side_effect_class", st.sampled_from(CLASSES)),
                **maybe("sandbox", st.sampled_from(LEVELS)),
                **maybe("destinations", st.lists(st.sampled_from(HOSTS), max_size=2, unique=True)),
            }
        }
        capabilities = {"bundles": ["b"]}
    if draw(st.booleans()):
        workspace["destinations"] = {
            **maybe("allow", st.lists(st.sampled_from(HOSTS), max_size=2, unique=True)),
            **maybe("deny", st.lists(st.sampled_from(HOSTS), max_size=1)),
        }
    if draw(st.booleans()):
        workspace["connectors"] = {
            "tenant_allowlist": draw(st.sampled_from(([], ["github"], [{"connector": "github", "version": ">=2.0"}]))),
            "app_overrides": {"x": draw(st.sampled_from(({}, {"allow": []}, {"deny": ["github"]})))},
        }
    files: Files = {
        WORKSPACE: workspace,
        MANIFEST: {"agent": "a", "app": "x", "capabilities": capabilities | ceiling()},
    }
    if draw(st.booleans()):
        files[PERSONALITY] = {"id": "p", "tools": ["t"], **ceiling()}
        if draw(st.booleans()):
            files[PERSONALITY] |= {"safety": {"network": {"allow": some(HOSTS)}}}
    return files, draw(st.sampled_from(uses))


# Following the advice -------------------------------------------------------------------------------------------------


def _file_of(key: str, files: Files) -> Any:
    """The file that a key without a file name belongs to; it must be clear which."""
    assert key.startswith(("capabilities.", "connectors.")), key
    return files[MANIFEST if key.startswith("capabilities.") else WORKSPACE]


def _list_at(held: Any, key: str) -> Any:
    """The list or mapping under a dotted key, made if it is not there."""
    *above, last = key.split(".")
    for part in above:
        held = held.setdefault(part, {})
    return held.setdefault(last, [])


def _add(files: Files, item: str, key: str, file: str | None = None) -> None:
    held = _list_at(files[file] if file else _file_of(key, files), key)
    if isinstance(held, dict):
        held[item] = {}
    else:
        held.append(item)


def _remove(files: Files, item: str, key: str, file: str | None = None) -> None:
    held = _list_at(files[file] if file else _file_of(key, files), key)
    assert item in held
    held.remove(item)


def _need(files: Files, rule: str, file: str) -> None:
    files[file]["tools"]["t"]["needs"].append(rule)


def _need_either(files: Files, item: str, key: str, rule: str, file: str) -> None:
    outer, _, inner = key.partition(".")
    declared = needs_of({outer: {inner: [item]} if inner else [item]})
    assert CapabilitySet([rule]) <= declared  # the other way to say it does as well
    _need(files, rule, file)


def _set_each(files: Files, places: str) -> None:
    for place in places.split(" and "):
        match = re.fullmatch(r"`(\w+)[:=] ?\"?(\w+)\"?`(?: on the tool| \((\S+?)(?::\d+)?\))", place)
        assert match, place
        key, word, file = match.groups()
        if key in ("effect", "sandbox") and file is None:
            files[WORKSPACE]["tools"]["t"][key] = word
        elif key == "max_side_effect_class":
            held = files[file]
            (held["capabilities"] if file == MANIFEST else held)[key] = word
        else:
            seat = files[file]["bundles"]["b"] if file == WORKSPACE else files[file]["capabilities"]["tools"]["t"]
            seat[key] = word


def _on_tool(files: Files, key: str, word: str) -> None:
    files[WORKSPACE]["tools"]["t"][key] = word


def _budget(files: Files, file: str | None = None) -> None:
    held = files[file or MANIFEST]
    (held if file == PERSONALITY else held["capabilities"])["budget"] = {"max_calls_per_session": 100}


def _widen(files: Files, key: str, file: str | None = None) -> None:
    held = _list_at(files[file] if file else _file_of(key, files), key)
    held[:] = [line["connector"] if isinstance(line, dict) else line for line in held]


def _version(files: Files) -> None:
    files[WORKSPACE]["tools"]["t"]["connector"] = "github@2.1"


FIXES: list[tuple[str, Callable[..., None]]] = [
    (r"add `([^`]+)` to the tool's `needs` in (\S+)", _need),
    (r"add `([^`]+)` to the tool's `([^`]+)`, or `([^`]+)` to its `needs` in (\S+)", _need_either),
    (r"add `budget: \{max_calls_per_session: 100\}` under `capabilities`(?: in (\S+))?", _budget),
    (r"add `budget: \{max_calls_per_session: 100\}` in (\S+)", _budget),
    (r"add `(\w+)=\"(\w+)\"` to the tool, or .*", _on_tool),
    (r"add `([^`]+)` under `([^`]+)`(?: in (\S+))?", _add),
    (r"remove `([^`]+)` from `([^`]+)`(?: in (\S+))?", _remove),
    (r"set `(sandbox): \w+` there, or `(\w+)` on the tool", _on_tool),
    (r"set (.+)", _set_each),
    (r"widen its version under `([^`]+)`(?: in (\S+))?", _widen),
    (r"state its version on the tool.*", _version),
]


def follow(fix: str, files: Files) -> None:
    """Do what one line of advice says."""
    for part in fix.split("; "):
        for pattern, change in FIXES:
            if match := re.fullmatch(pattern, part):
                change(files, *(group for group in match.groups() if group is not None))
                break
        else:
            raise AssertionError(f"nobody knows how to follow: {part}")


def ask(place: Path, files: Files, use: str) -> Any:
    """What a call comes to, with these files on disk."""
    for name, data in files.items():
        (place / name).write_text(json.dumps(data))
    personality = PERSONALITY if PERSONALITY in files else None
    return decide(Request("t", (Use(use),)), load_manifest(MANIFEST, personality=personality))


@given(world=worlds())
@settings(max_examples=settings().max_examples * 2)
def test_following_the_advice_leads_to_a_call_that_is_not_denied(
    tmp_path_factory: pytest.TempPathFactory, world: tuple[Files, str]
) -> None:
    files, use = json.loads(json.dumps(world[0])), world[1]
    place = tmp_path_factory.mktemp("advice")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(place)
        decision = ask(place, files, use)
        for _ in range(8):
            if not isinstance(decision, Deny):
                break
            before = [(rule.text, _file(rule.origin)) for rule in decision.rules]
            for rule in decision.rules:
                assert rule.fix, rule
            for fix in dict.fromkeys(rule.fix for rule in decision.rules):
                follow(fix, files)
            decision = ask(place, files, use)
            if isinstance(decision, Deny):
                remaining = [(rule.text, _file(rule.origin)) for rule in decision.rules]
                assert not set(before) & set(remaining), decision
        assert decision.verdict in ("allow", "ask")
    shutil.rmtree(place)


def _file(origin: Origin | None) -> str:
    return origin.file if origin else ""
