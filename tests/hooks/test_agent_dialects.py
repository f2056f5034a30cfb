"""What each coding agent's hook reads and prints: cases as data, recorded events, and hostile payloads."""

import json
import os
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from licet.hooks.agent_event import Answer, AskPerson, Refuse, Rewrite, Silent, Tell, Unreadable
from licet.hooks.agents import AGENTS, agent_named
from licet.hooks.agents.dialect import DECIDING, FALLBACK_REASON
from licet.hooks.limits import PAYLOAD_BYTES

HERE = Path(__file__).parent / "payloads"
EVENTS: list[dict[str, Any]] = yaml.safe_load((HERE / "events.yaml").read_text("utf-8"))
ANSWERS: dict[str, dict[str, dict[str, Any]]] = yaml.safe_load((HERE / "answers.yaml").read_text("utf-8"))

NEW = {"command": "new"}
WORDS: dict[str, Answer] = {
    "silent": Silent(),
    "tell": Tell("look"),
    "refuse": Refuse("no"),
    "rewrite": Rewrite(NEW),
    "rewrite and allow": Rewrite(NEW, allow=True),
    "ask": AskPerson("sure?"),
    "ask about": AskPerson("sure?", NEW),
}

CORPORA = os.environ.get("LICET_CORPORA")
RECORDED = sorted(Path(CORPORA, "agents").glob("*/*.json")) if CORPORA else []


def payload(value: object) -> bytes:
    return json.dumps(value).encode()


@pytest.mark.parametrize("case", EVENTS, ids=[case["name"] for case in EVENTS])
def test_a_payload_is_read_into_its_event_or_is_unreadable(case: dict[str, Any]) -> None:
    dialect = agent_named(case["agent"])
    if reason := case.get("unreadable"):
        with pytest.raises(Unreadable) as wrong:
            dialect.read(case["event"], payload(case["payload"]))
        assert reason in str(wrong.value)
        return
    event = dialect.read(case["event"], payload(case["payload"]))
    assert (event.agent, event.event) == (dialect.name, case["event"])
    assert {name: getattr(event, name) for name in case["reads"]} == case["reads"]


@pytest.mark.skipif(not RECORDED, reason="LICET_CORPORA does not name the folder of third-party cases")
@pytest.mark.parametrize("path", RECORDED, ids=[f"{path.parent.name}/{path.stem}" for path in RECORDED])
def test_a_recorded_payload_is_read_into_its_event(path: Path) -> None:
    dialect = agent_named(path.parent.name.partition("-")[0])
    name = path.stem.partition("-")[0]
    recorded = path.read_bytes().replace(b"${project}", b"/project").replace(b"${home}", b"/home/person")
    fields = json.loads(recorded)
    event = dialect.read(name, recorded)
    assert event.moment == dialect.events[name].moment
    assert event.session == fields["session_id"]
    assert event.directory == fields["cwd"]
    assert event.tool == fields.get("tool_name", "")
    assert event.arguments == fields.get("tool_input", {})
    assert event.call == fields.get("tool_use_id", "")
    assert event.subagent == fields.get("agent_id", "")
    assert event.prompt == fields.get("prompt", "")
    assert not event.tool or event.tool in dialect.tools or dialect.may_be_mcp(event.tool)
    other = "codex" if dialect.name == "claude" else "claude"
    if event.moment == "before a call":
        with pytest.raises(Unreadable):
            agent_named(other).read(name, recorded)


@pytest.mark.parametrize(
    ("agent", "event", "word"),
    [(agent, event, word) for agent, events in ANSWERS.items() for event in events for word in WORDS],
)
def test_an_answer_is_printed_in_the_words_of_the_agent(agent: str, event: str, word: str) -> None:
    expected = ANSWERS[agent][event][word]
    dialect = agent_named(agent)
    if expected == "none":
        with pytest.raises(ValueError, match="cannot be answered"):
            dialect.printed(event, WORDS[word])
        return
    found = dialect.printed(event, WORDS[word])
    assert (found.output.decode(), found.errors, found.code) == (expected, b"", 0)


@pytest.mark.parametrize(("agent", "event"), [(agent, event) for agent, events in ANSWERS.items() for event in events])
def test_a_failure_is_printed_in_the_words_of_the_agent(agent: str, event: str) -> None:
    output, errors, code = ANSWERS[agent][event]["failure"]
    found = agent_named(agent).failure(event, "broken")
    assert (found.output.decode(), found.errors.decode(), found.code) == (output, errors, code)


@pytest.mark.parametrize("agent", AGENTS)
def test_every_agent_has_cases(agent: str) -> None:
    dialect = AGENTS[agent]
    before = [name for name, event in dialect.events.items() if event.moment == "before a call" and event.installed]
    assert {case["event"] for case in EVENTS if case["agent"] == agent} >= set(before)
    assert set(before) & set(ANSWERS[agent])


# Hostile payloads ----------------------------------------------------------------------------------------------------

AGENT_EVENTS = [(agent, event) for agent, dialect in AGENTS.items() for event in dialect.events]
json_data = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


@given(which=st.sampled_from(AGENT_EVENTS), text=st.binary(max_size=200))
def test_no_bytes_make_reading_raise_anything_else(which: tuple[str, str], text: bytes) -> None:
    with suppress(Unreadable):
        AGENTS[which[0]].read(which[1], text)


READABLE = [case for case in EVENTS if "reads" in case]


@given(case=st.sampled_from(READABLE), key=st.integers(0), value=json_data, event=st.integers(0))
def test_no_changed_field_makes_reading_raise_anything_else(
    case: dict[str, Any], key: int, value: object, event: int
) -> None:
    fields = dict(case["payload"])
    fields[sorted(fields)[key % len(fields)]] = value
    dialect = AGENTS[case["agent"]]
    name = sorted(dialect.events)[event % len(dialect.events)]
    for one in (name, case["event"]):
        with suppress(Unreadable):
            dialect.read(one, json.dumps(fields).encode())


def refuses(agent: str, event: str, output: bytes, errors: bytes, code: int) -> bool:
    """Whether an agent refuses the call for what a hook has printed, after what was seen of each."""
    if code >= 2 and errors.strip():
        return True
    found = json.loads(output) if output else {}
    found = found.get("hookSpecificOutput", found)
    decision = found.get("decision", {})
    inner = decision if isinstance(decision, dict) else {"decision": decision}
    words = {found.get("permissionDecision"), found.get("permission"), found.get("behavior"), *inner.values()}
    reason = (found.get(key) for key in ("permissionDecisionReason", "reason", "user_message", "message"))
    return "deny" in words and (any(reason) or bool(inner.get("message")))


@given(which=st.sampled_from(AGENT_EVENTS), reason=st.text())
def test_a_failure_never_lets_a_call_run(which: tuple[str, str], reason: str) -> None:
    agent, event = which
    found = AGENTS[agent].failure(event, reason)
    is_deciding = AGENTS[agent].events[event].moment in DECIDING
    assert refuses(agent, event, found.output, found.errors, found.code) == is_deciding
    assert is_deciding or found.code == 0


@pytest.mark.parametrize("agent", AGENTS)
@pytest.mark.parametrize("event", ["", "pretooluse", "PreToolUse ", "ＰreToolUse", "constructor"])
def test_an_unknown_event_is_unreadable_and_a_refusal(agent: str, event: str) -> None:
    with pytest.raises(Unreadable):
        AGENTS[agent].read(event, payload({"hook_event_name": event}))
    assert AGENTS[agent].failure(event, "broken").code == 2


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (b"", "not JSON"),
        (b"\xff{}", "not UTF-8"),
        (b"\xef\xbb\xbf{}", "not JSON"),
        (b"[]", "no JSON object"),
        (b'{"a": NaN}', "NaN is no number"),
        (b'{"a": -Infinity}', "-Infinity is no number"),
        (b'{"a": 1e999}', "too large"),
        (b'{"a": ' + b"9" * 5000 + b"}", "too large"),
        (b'{"a": 1, "a": 2}', "a key is there twice"),
        (b'{"a": {"b": 1, "b": 1}}', "a key is there twice"),
        (b'{"a": "\\ud800"}', "a lone surrogate"),
        (b'{"\\udc00": 1}', "a lone surrogate"),
        (b'{"a": ' + b"[" * 70 + b"]" * 70 + b"}", "nested deeper"),
        (b'{"a": ' * 100_000 + b"1" + b"}" * 100_000, "nested deeper"),
        (b'{"a": "' + b"x" * PAYLOAD_BYTES + b'"}', "at most"),
        (b'{"a": 1} {"a": 2}', "not JSON"),
    ],
)
@pytest.mark.parametrize("agent", AGENTS)
def test_a_payload_beyond_the_limits_is_unreadable(agent: str, text: bytes, reason: str) -> None:
    dialect = AGENTS[agent]
    with pytest.raises(Unreadable) as wrong:
        dialect.read(next(iter(dialect.events)), text)
    assert reason in str(wrong.value)
    assert len(str(wrong.value)) < 400


@pytest.mark.parametrize("agent", AGENTS)
@pytest.mark.parametrize("reason", ["", " \n", "\ud800"])
def test_a_refusal_always_has_a_reason(agent: str, reason: str) -> None:
    dialect = AGENTS[agent]
    event = next(name for name, event in dialect.events.items() if event.moment == "before a call")
    text = dialect.printed(event, Refuse(reason)).output.decode()
    assert (FALLBACK_REASON in text) != (reason == "\ud800")


@pytest.mark.parametrize("agent", AGENTS)
@pytest.mark.parametrize("arguments", [{"a": "\ud800"}, {"a": object()}])
def test_arguments_that_json_cannot_carry_are_an_error(agent: str, arguments: dict[str, Any]) -> None:
    dialect = AGENTS[agent]
    event = next(name for name, event in dialect.events.items() if event.moment == "before a call")
    with pytest.raises(ValueError, match="cannot be written"):
        dialect.printed(event, Rewrite(arguments))


@pytest.mark.parametrize("agent", AGENTS)
@pytest.mark.parametrize(
    "path",
    [
        " /etc/shadow",
        "/etc/shadow ",
        "\t~/.ssh/id",
        "\ufeff/etc/shadow",
        "/a\u00a0",
        "/a\nb",
        "/a\0",
        "/cafe\u0301",
        "/a\u2028b",
    ],
)
def test_a_path_that_an_agent_may_take_for_another_is_unreadable(agent: str, path: str) -> None:
    dialect = AGENTS[agent]
    case = next(case for case in READABLE if case["agent"] == agent and case["reads"].get("moment") == "before a call")
    tool = next(tool for tool in dialect.tools.values() if tool.kind in {"read", "write"} and tool.paths)
    names = {"tool_name": tool.name, "toolName": tool.name, "tool": tool.name}
    for name, is_read in ((path, False), ("/caf\u00e9 1/a", True), ("~/a", agent == "claude")):
        values = {
            "tool_input": {tool.paths[0]: name},
            "toolArgs": {tool.paths[0]: name},
            "args": {tool.paths[0]: name},
        }
        fields = {key: {**names, **values}.get(key, value) for key, value in case["payload"].items()}
        if is_read:
            assert dialect.read(case["event"], payload(fields)).arguments == {tool.paths[0]: name}
        else:
            with pytest.raises(Unreadable, match="no plain path"):
                dialect.read(case["event"], payload(fields))


@pytest.mark.parametrize(
    ("pattern", "is_read"),
    [
        ("**/*.py", True),
        ("../other/*.{py,toml}", True),
        ("/srv/a-(b)/**", True),
        ("*/../../etc/*", False),
        ("{/etc,a}/*", False),
        ("{a,../b}", False),
        ("{.,a}./x", False),
        ("@(..)/x", False),
        ("@(/etc|a)", False),
        (".\\./x", False),
        (["/etc/*"], False),
    ],
)
def test_a_pattern_that_may_leave_its_directory_is_unreadable(pattern: object, is_read: bool) -> None:
    case = next(case for case in READABLE if case["agent"] == "claude")
    fields = {**case["payload"], "tool_name": "Glob", "tool_input": {"pattern": pattern}}
    if is_read:
        assert AGENTS["claude"].read("PreToolUse", payload(fields)).arguments == {"pattern": pattern}
    else:
        with pytest.raises(Unreadable):
            AGENTS["claude"].read("PreToolUse", payload(fields))
