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
from hypothesis import example, given, settings
from hypothesis import strategies as st

from effort import LONG
from licet import Manifest, Use, decide, use_of_path
from licet.assemble import review
from licet.core.decision.decision import Deny
from licet.core.decision.fixes import add_need
from licet.core.decision.foreseen import foreseen
from licet.core.decision.request import REASON_OF_DOMAIN, Request
from licet.core.policy.tool import needs_of, spec_of
from licet.core.review.allowing import allowing
from licet.core.review.diff import diff
from licet.core.values import Origin

Files = dict[str, Any]
WORKSPACE, MANIFEST, PERSONALITY, SOURCE = "licet.yaml", "manifest.yaml", "personality.yaml", "tools.py"

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
    "connector": (["connector:use:*", "connector:use:github"], ["connector:use:github", "connector:use:mail"]),
}
# The same for tools that are declared with `capabilities=`.
CAPABILITIES: dict[str, list[dict[str, Any]]] = {
    "network": [{"network": {"allowed_hosts": ["a.example"]}}, {"network": {"allowed_hosts": ["*"]}}],
    "fs": [
        {"fs_reach": {"read": ["/a"]}},
        {"fs_reach": {"write": ["/a/b"]}},
        {"fs_reach": {"read": "from-personality"}},
    ],
    "env": [{"env": ["A"]}],
    "secret": [{"secrets": ["a/*"]}],
    "process": [{"process": {"allowed_binaries": ["git"]}}],
    "storage": [{"storage": {"scope": "session"}}, {"storage": {"scope": "personality"}}],
}
# Names and addresses of one's own network, which need more than a rule.
LOCAL_RULES = ["network:*:localhost", "network:https:get@10.1.2.3", "network:*:*.internal", "network:*:[::1]"]
LOCAL_USES = ["network:http:get@localhost:8000", "network:https:get@10.1.2.3", "network:https:get@db.internal"]
HOSTS = ["a.example", "*.example", "b.a.example", "*"]
LOCAL_HOSTS = [*HOSTS, "localhost", "10.1.2.3"]
PRIVATE: list[list[str]] = [[], ["10.0.0.0/8"], ["127.0.0.0/8"], ["127.0.0.0/8", "::1/128"], ["10.1.2.3/32"]]
CLASSES = ["read_only", "write_limited", "full", "destructive"]
LEVELS = ["restricted", "isolated", "native"]


@st.composite
def worlds(draw: st.DrawFn, local: bool = False) -> tuple[Files, str]:
    """Files in which something is mostly missing, and a use to ask about; `local` adds private names and addresses."""
    domain = draw(st.sampled_from(("network", "network", "fs", *POOLS)))
    rules, uses = POOLS[domain]
    hosts, private = HOSTS, PRIVATE[:2]
    if local:
        hosts, private = LOCAL_HOSTS, PRIVATE
        rules, uses = ([*rules, *LOCAL_RULES], [*uses, *LOCAL_USES]) if domain == "network" else (rules, uses)

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
            **(maybe("private", st.sampled_from(private)) if local else {}),
            **maybe("connectors", st.sampled_from((["github"], [{"connector": "github", "version": ">=2.0"}]))),
        }

    in_source = draw(st.booleans())
    said = {"capabilities": draw(st.sampled_from([{}, *CAPABILITIES.get(domain, [])]))} if in_source else {}
    tool = {
        **(said or {"needs": some(rules)}),
        "cost_usd": 0,
        **maybe("effect", st.sampled_from(CLASSES)),
        **maybe("sandbox", st.sampled_from(LEVELS)),
        **(maybe("connector", st.sampled_from(("github", "github@2.1", "github@1.0"))) if draw(st.booleans()) else {}),
    }
    workspace: dict[str, Any] = {"tools": {"t": {"from": "tools:t"} if in_source else tool}}
    admitted: list[Any] = [["t"], {"t": {}}, {"t": {"side_effect_class": "write_limited"}}, []]
    capabilities = {"tools": draw(st.sampled_from(admitted))}
    if draw(st.booleans()):
        workspace["bundles"] = {
            "b": {
                "tools": draw(st.sampled_from((["t"], ["t", "u"]))),
                **maybe("side_effect_class", st.sampled_from(CLASSES)),
                **maybe("sandbox", st.sampled_from(LEVELS)),
                **maybe("destinations", st.lists(st.sampled_from(hosts), max_size=2, unique=True)),
                **maybe("connectors", st.sampled_from(([], ["github"], [{"connector": "github", "version": ">=2.0"}]))),
                **maybe("private", st.sampled_from(private)),
                **maybe("approvals", st.just({"write": "call", "expires_seconds": 60})),
            }
        }
        # Assigned, named or both; and next to another bundle that holds one of its tools.
        workspace["bundles"] |= maybe("c", st.sampled_from(({"tools": ["u"]}, {"tools": ["t", "u", "v"]})))
        capabilities |= draw(st.sampled_from(({"bundles": ["b"]}, {"bundles": ["b"], "tools": []}, {})))
        if (
            "c" in workspace["bundles"]
            and "t" not in workspace["bundles"]["c"]["tools"]
            and "bundles" not in capabilities
        ):
            capabilities["bundles"] = ["c"]
    if draw(st.booleans()):
        workspace["destinations"] = {
            **maybe("allow", st.lists(st.sampled_from(hosts), max_size=2, unique=True)),
            **maybe("deny", st.lists(st.sampled_from(hosts), max_size=1)),
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
        files[PERSONALITY] = {"id": "p", "tools": draw(st.sampled_from((["t"], []))), **ceiling()}
        if "bundles" in workspace:
            files[PERSONALITY] |= maybe("bundles", st.sampled_from([[name] for name in workspace["bundles"]]))
        listed = {"allow": some(hosts), "deny": some(hosts, 1)}
        files[PERSONALITY] |= draw(st.sampled_from(({}, {"safety": {"network": listed}}, {"destinations": listed})))
    if in_source:
        files[SOURCE] = tool
    return files, draw(st.sampled_from(uses))


@st.composite
def fitting_worlds(draw: st.DrawFn) -> tuple[Files, str]:
    """The same, with a tool that is admitted and has a class and a level: only its uses are refused."""
    files, use = draw(worlds(local=True))
    files, tool = json.loads(json.dumps(files)), {"effect": draw(st.sampled_from(CLASSES[:2])), "sandbox": "restricted"}
    declared = files[SOURCE] if SOURCE in files else files[WORKSPACE]["tools"]["t"]
    declared |= tool
    declared.pop("connector", None)
    files[MANIFEST]["capabilities"] |= {"tools": ["t"], "max_side_effect_class": "write_limited"}
    if bundle := files[WORKSPACE].get("bundles", {}).get("b"):
        bundle |= {"sandbox": "restricted", "side_effect_class": "write_limited"}
        files[WORKSPACE]["bundles"] = {"b": bundle}
        files[MANIFEST]["capabilities"]["bundles"] = ["b"]
    if second := files.get(PERSONALITY):
        second |= {"tools": ["t"], "max_side_effect_class": "write_limited"}
        second.pop("bundles", None)
    return files, use


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


def _tool(files: Files) -> Any:
    """What the tool declares, wherever it does."""
    return files[SOURCE] if SOURCE in files else files[WORKSPACE]["tools"]["t"]


def _need(files: Files, rule: str, file: str) -> None:
    assert file == (SOURCE if SOURCE in files else WORKSPACE)
    _tool(files)["needs"].append(rule)


def _need_under(files: Files, item: str, key: str, file: str) -> None:
    assert file == SOURCE
    _list_at(files[SOURCE]["capabilities"], key).append(item)


def _need_storage(files: Files, scope: str, file: str) -> None:
    assert file == SOURCE
    files[SOURCE]["capabilities"]["storage"] = {"scope": scope}


def _connect(files: Files, name: str, file: str) -> None:
    assert file == SOURCE
    files[SOURCE]["connector"] = name


def _declare_with_needs(files: Files, rule: str, file: str) -> None:
    assert file == SOURCE
    declared = needs_of(files[SOURCE].pop("capabilities"))
    files[SOURCE]["needs"] = [*map(str, declared.allow), rule]


def _set_each(files: Files, places: str) -> None:
    for place in places.split(" and "):
        match = re.fullmatch(r"`(\w+)[:=] ?\"?(\w+)\"?`(?: on the tool| \((\S+?)(?::\d+)?\))", place)
        assert match, place
        key, word, file = match.groups()
        if key in ("effect", "sandbox") and file is None:
            _tool(files)[key] = word
        elif key == "max_side_effect_class":
            held = files[file]
            (held["capabilities"] if file == MANIFEST else held)[key] = word
        else:
            if file == WORKSPACE:
                admissions = [bundle for bundle in files[file]["bundles"].values() if key in bundle]
            else:
                admissions = [files[file]["capabilities"]["tools"]["t"]]
            for admission in admissions:
                admission[key] = word


def _on_tool(files: Files, key: str, word: str) -> None:
    _tool(files)[key] = word


def _budget(files: Files, file: str | None = None) -> None:
    held = files[file or MANIFEST]
    (held if file == PERSONALITY else held["capabilities"])["budget"] = {"max_calls_per_session": 100}


def _private(files: Files, key: str, ranges: str, file: str) -> None:
    *above, last = key.split(".")
    held = files[file]
    for part in above:
        held = held[part]
    held[last] = json.loads(ranges)


def _open_private(files: Files, ranges: str) -> None:
    files[MANIFEST]["capabilities"]["private"] = json.loads(ranges)


def _widen(files: Files, key: str, file: str | None = None) -> None:
    held = _list_at(files[file] if file else _file_of(key, files), key)
    held[:] = [line["connector"] if isinstance(line, dict) else line for line in held]


def _version(files: Files) -> None:
    _tool(files)["connector"] = "github@2.1"


FIXES: list[tuple[str, Callable[..., None]]] = [
    (r"add `([^`]+)` to the tool's `needs` in (\S+)", _need),
    (r"add `storage: \{scope: ([\w-]+)\}` to the tool's `capabilities` in (\S+)", _need_storage),
    (r"add `([^`]+)` to the tool's `([^`]+)` in (\S+)", _need_under),
    (r"add `connector=\"(\w+)\"` to the tool in (\S+)", _connect),
    (
        r"declare the tool with `needs=`, since `capabilities=` cannot say `([^`]+)`, and add that in (\S+)",
        _declare_with_needs,
    ),
    (r"add `budget: \{max_calls_per_session: 100\}` under `capabilities`(?: in (\S+))?", _budget),
    (r"add `budget: \{max_calls_per_session: 100\}` in (\S+)", _budget),
    (r"add `(\w+)=\"(\w+)\"` to the tool, or .*", _on_tool),
    (r"add `(\w+): (\w+)` to `t` under the top-level `tools` in licet.yaml, or .*", _on_tool),
    (r"set `(effect): (\w+)` on the tool, or .*", _on_tool),
    (r"add `([^`]+)` under `([^`]+)`(?: in (\S+))?", _add),
    (r"remove `([^`]+)` from `([^`]+)`(?: in (\S+))?", _remove),
    (r"set `(sandbox): \w+` there, or `(\w+)` on the tool", _on_tool),
    (r"add `private: (\[.*\])` \w+ `destinations`(?:, or the ranges that your network has)?", _open_private),
    (r"set `([\w.]*private): (\[.*\])` in (\S+)", _private),
    (r"set (.+?)(?:, or set .+)?", _set_each),
    (r"widen its version under `([^`]+)`(?: in (\S+))?", _widen),
    (r"state its version on the tool.*", _version),
]


NOTE = r"(?: \((?:this key can|no rule can|the tool needs)[^()]+\))?"  # why it is wider than what was asked for


def follow(fix: str, files: Files) -> None:
    """Do what one line of advice says."""
    for part in fix.split("; "):
        for pattern, change in FIXES:
            if match := re.fullmatch(pattern + NOTE, part):
                change(files, *(group for group in match.groups() if group is not None))
                break
        else:
            raise AssertionError(f"nobody knows how to follow: {part}")


EVERYTHING = re.compile(r"add `(?:[^`]+:)?[*/]`")  # never to be advised
DOMAIN_REASONS = set(REASON_OF_DOMAIN.values()) - {"TOOL_NOT_IN_BUNDLE", "CONNECTOR_NOT_ALLOWED"}
SIBLINGS = (
    *("network:https:head@a.example", "network:https:get@a.example:444", "network:http:get@a.example:443"),
    *("network:https:get@x.a.example", "network:tcp:a.example:443", "network:tcp:a.example:23"),
    *("fs:read:/a/b", "fs:write:/a/b/c", "fs:delete:/a/b/c", "fs:read:/a", "fs:read:/etcetera", "fs:write:/a"),
    *("env:read:C", "secret:read:a/c", "process:exec:/bin", "storage:read:personality", "tool:call:v"),
)


def read(place: Path, files: Files) -> Manifest:
    """The manifest that these files give, on disk."""
    for name, data in files.items():
        text = json.dumps(data)
        if name == SOURCE:
            given = ", ".join(f"{key}={value!r}" for key, value in data.items())
            text = f"from licet import tool\n\n\n@tool({given})\ndef t() -> None:\n    pass\n"
        (place / name).write_text(text)
    policy = review(MANIFEST, personality=PERSONALITY if PERSONALITY in files else None)
    assert policy.manifest is not None, policy.problems
    return policy.manifest


def ask(manifest: Manifest, use: str) -> Any:
    """What a call comes to."""
    return foreseen(decide(Request("t", (Use(use),)), manifest), manifest)


SMALLEST: Files = {
    WORKSPACE: {"tools": {"t": {"from": "tools:t"}}},
    MANIFEST: {"agent": "a", "app": "x", "capabilities": {"tools": ["t"], "grants": []}},
    SOURCE: {"capabilities": {}, "cost_usd": 0},
}
WITH_APP: Files = {
    **SMALLEST,
    WORKSPACE: {**SMALLEST[WORKSPACE], "connectors": {"tenant_allowlist": [], "app_overrides": {"x": {}}}},
    PERSONALITY: {"id": "p", "tools": ["t"], "grants": []},
}


LOCAL: Files = {
    WORKSPACE: {"tools": {"t": {"from": "tools:t"}}, "bundles": {"b": {"tools": ["t"], "private": []}}},
    MANIFEST: {"agent": "a", "capabilities": {"bundles": ["b"], "grants": ["network:*:*"]}},
    SOURCE: {"capabilities": {}, "cost_usd": 0, "effect": "read_only", "sandbox": "restricted"},
}
USE_REASONS = {*REASON_OF_DOMAIN.values(), "SIDE_EFFECT_EXCEEDED", "ADDRESS_NOT_ALLOWED"} - {
    *("TOOL_NOT_IN_BUNDLE", "CONNECTOR_NOT_ALLOWED")
}


def grown(old: Manifest, new: Manifest) -> set[tuple[str | None, str]]:
    """What the new manifest allows more."""
    return {(change.tool, change.text) for change in diff(old, new).grown}


@given(world=worlds())
@example(world=(SMALLEST, "network:https:get@get"))
@example(world=(WITH_APP, "connector:use:github"))
@settings(max_examples=settings().max_examples * (2 if LONG else 1))
def test_following_the_advice_leads_to_a_call_that_is_not_denied_and_to_nothing_else(
    tmp_path_factory: pytest.TempPathFactory, world: tuple[Files, str]
) -> None:
    files, use = json.loads(json.dumps(world[0])), world[1]
    place = tmp_path_factory.mktemp("advice")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(place)
        manifest = read(place, files)
        decision = ask(manifest, use)
        others = [other for other in SIBLINGS if other != use and isinstance(ask(manifest, other), Deny)]
        only_added = True
        for _ in range(8):
            if not isinstance(decision, Deny):
                break
            before = [(rule.text, _file(rule.origin)) for rule in decision.rules]
            for rule in decision.rules:
                assert rule.fix, rule
                assert not EVERYTHING.search(rule.fix)
                only_added &= rule.reason in DOMAIN_REASONS and not re.search(f"{NOTE[:-1]}|remove|declare", rule.fix)
            # Two lines may share a step, such as the removal of one deny: it is done once.
            for step in dict.fromkeys(step for rule in decision.rules for step in rule.fix.split("; ")):
                follow(step, files)
            manifest = read(place, files)
            decision = ask(manifest, use)
            if isinstance(decision, Deny):
                remaining = [(rule.text, _file(rule.origin)) for rule in decision.rules]
                assert not set(before) & set(remaining), decision
        assert decision.verdict in ("allow", "ask")
        # What stands in the way of the tool itself, a class or a deny stands in the way of more than this use.
        if only_added:
            assert [other for other in others if not isinstance(ask(manifest, other), Deny)] == []
    shutil.rmtree(place)


@given(world=fitting_worlds())
@example(world=(LOCAL, "network:http:get@localhost:8000"))
@example(world=(LOCAL, "network:https:get@10.1.2.3"))
@settings(max_examples=settings().max_examples if LONG else settings().max_examples // 4)
def test_one_round_of_advice_is_enough_and_what_else_it_allows_is_foretold(
    tmp_path_factory: pytest.TempPathFactory, world: tuple[Files, str]
) -> None:
    files, use = json.loads(json.dumps(world[0])), world[1]
    place = tmp_path_factory.mktemp("advice")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(place)
        before = read(place, files)
        decision = ask(before, use)
        if not isinstance(decision, Deny) or not {rule.reason for rule in decision.rules} <= USE_REASONS:
            return
        for step in dict.fromkeys(step for rule in decision.rules for step in rule.fix.split("; ")):
            follow(step, files)
        after = read(place, files)
        assert ask(after, use).verdict in ("allow", "ask")
        foretold = allowing(before, "t", Use(use))
        if foretold is not None:
            assert grown(before, foretold) == grown(before, after)
    shutil.rmtree(place)


def _file(origin: Origin | None) -> str:
    return origin.file if origin else ""


# One line at a time ---------------------------------------------------------------------------------------------------

EVERY_PATH = "ask for something below `/`: a rule for `/` itself would allow every path"
ALL_BELOW = " (no rule can name the path itself, so this is everything in the directory above it)"
ANY_REQUEST = " (this key cannot say less than any connection to that port)"


@pytest.mark.parametrize(
    ("declared", "use", "fix"),
    [
        (
            {},
            Use("network:https:get@a.example"),
            f"add `a.example:443` to the tool's `network.allowed_hosts`{ANY_REQUEST}",
        ),
        ({}, Use("network:tcp:[::1]:22"), f"add `[::1]:22` to the tool's `network.allowed_hosts`{ANY_REQUEST}"),
        ({}, Use("fs:read:/a/b"), "add `/a/b` to the tool's `fs_reach.read`"),
        ({}, Use("fs:write:/a/b"), "add `/a/b` to the tool's `fs_reach.write` (this key cannot say it without delete)"),
        ({}, Use("fs:delete:/a/b"), "add `/a/b` to the tool's `fs_reach.write` (this key cannot say it without write)"),
        ({}, Use("secret:read:a/b"), "add `a/b` to the tool's `secrets`"),
        ({}, Use("env:read:LANG"), "add `LANG` to the tool's `env`"),
        ({}, Use("process:exec:git"), "add `git` to the tool's `process.allowed_binaries`"),
        (
            {},
            Use("storage:read:personality"),
            "add `storage: {scope: personality}` to the tool's `capabilities` (this key cannot say it without write)",
        ),
        (
            {"storage": {"scope": "session"}},
            Use("storage:read:personality"),
            "declare the tool with `needs=`, since `capabilities=` cannot say `storage:read:personality`, and add that",
        ),
        ({}, Use("connector:use:github"), 'add `connector="github"` to the tool'),
        (
            {},
            Use("tool:call:u"),
            "declare the tool with `needs=`, since `capabilities=` cannot say `tool:call:u`, and add that",
        ),
        ({}, use_of_path("read", "/"), EVERY_PATH),
        (None, Use("network:https:get@a.example"), "add `network:https:get@a.example:443` to the tool's `needs`"),
        (None, Use("network:tcp:get:22"), "add `network:tcp:*@get:22` to the tool's `needs`"),
        (None, Use("storage:write:session"), "add `storage:write:session` to the tool's `needs`"),
        (None, use_of_path("delete", "/"), EVERY_PATH),
        (None, use_of_path("read", "/*"), EVERY_PATH),
        (
            None,
            use_of_path("write", "/a/b*/c"),
            f"add `fs:write:/a` to the tool's `needs`{ALL_BELOW}",
        ),
        (None, use_of_path("read", "/srv/work/a"), "add `fs:read:${workdir}/a` to the tool's `needs`"),
        (None, use_of_path("read", "/srv/work"), "add `fs:read:${workdir}` to the tool's `needs`"),
        (None, use_of_path("read", "/srv/workshop"), "add `fs:read:~/workshop` to the tool's `needs`"),
        ({}, Use("process:exec:/srv/bin/x"), "add `~/bin/x` to the tool's `process.allowed_binaries`"),
    ],
)
def test_a_missing_need_is_advised_in_the_spelling_of_the_tool(
    declared: dict[str, Any] | None, use: Use, fix: str
) -> None:
    said = {"needs": ()} if declared is None else {"capabilities": declared}
    assert add_need(use, spec_of(name="t", **said), {"${workdir}": "/srv/work", "~": "/srv"}) == fix
