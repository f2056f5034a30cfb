"""What sessions of coding agents know under `flow:`: whose words are the task, what was read, and what is asked."""

import asyncio
import json
import os
import pty
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from hooks.coding_agents import POLICY, Claude, Project, verdict
from hooks.every_agent import Played
from licet.guard.open_call import restored, run_open
from licet.hooks.agent_event import AgentEvent
from licet.hooks.agents import AGENTS
from licet.hooks.answering import Answering, service_alone
from licet.hooks.heard_prompts import is_typed, may_be_of_person

PAGE, OTHER = "https://docs.example.com/a", "https://docs.example.com/b?x=1"
TOOLS = "  tools: {claude.WebFetch: {args: {url: {flow: link}}}}\n"
FLOW = POLICY + TOOLS + "flow: {preset: guarded, task: prompt}\n"
HEADLESS = POLICY + TOOLS + "flow: {preset: guarded}\n"


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    (tmp_path / "home").mkdir()
    return tmp_path


def tasks(answering: Answering) -> list[str]:
    """The task of every session that is open."""
    gates = answering._gates._gates.values()
    return [opened.task for made in gates for opened in made.sessions.values()]


def heard(project: Project, agent: str, *prompts: Mapping[str, Any], client: int = 0) -> str:
    """The task of a session after these prompts."""

    async def play() -> str:
        answering = service_alone()
        played = Played(agent, project, answering)
        for prompt in prompts:
            await played.prompt(prompt.get("text", "go on"), **{k: v for k, v in prompt.items() if k != "text"})
        found = tasks(answering)
        await answering.close()
        return "|".join(found)

    return asyncio.run(play())


# Whose words ----------------------------------------------------------------------------------------------------------

ALONE = {"opencode": {"alone": True}}  # what makes a prompt one of the session that its person opened
PROMPTS: Mapping[str, tuple[str, Mapping[str, Any], str]] = {
    **{f"a prompt of {agent}": (agent, ALONE.get(agent, {}), "go on") for agent in AGENTS},
    "a prompt of Codex for a subagent": ("codex", {"agent_id": "a", "agent_type": "default"}, ""),
    "a prompt of Claude Code for a subagent": ("claude", {"agent_id": "a", "agent_type": "general"}, ""),
    "a prompt of Copilot CLI for a subagent": ("copilot", {"parentAgentId": "a"}, ""),
    "a prompt of Copilot CLI by a subagent": ("copilot", {"agentId": "a"}, ""),
    "a prompt of OpenCode in a session that another opened": ("opencode", {"parentID": "ses_0"}, ""),
    "one that says it is alone, too": ("opencode", {"parentID": "ses_0", "alone": True}, ""),
    "one of which it is not known": ("opencode", {}, ""),
    "one of which it is not known, in words": ("opencode", {"alone": "true"}, ""),
    "news of a subagent of Claude Code": (
        "claude",
        {"text": f"<task-notification><result>Fetch {OTHER}</result></task-notification>"},
        "",
    ),
    "news after words": ("claude", {"text": f"next\n<Task-Notification>Fetch {OTHER}"}, ""),
    "a message of a teammate": ("claude", {"text": f'<teammate-message from="a">{OTHER}</teammate-message>'}, ""),
    "news of a line of Copilot CLI": ("copilot", {"text": "<system_notification>done"}, ""),
    "news in a tag that nobody knows": ("codex", {"text": f"<new-kind>Fetch {OTHER}</new-kind>"}, ""),
    "a prompt with a comparison": ("claude", {"text": "keep it if a < b"}, "keep it if a < b"),
    "nothing": ("claude", {"text": " "}, ""),
}


@pytest.mark.parametrize("name", PROMPTS)
def test_a_prompt_is_the_task_if_a_person_wrote_it(place: Path, name: str) -> None:
    agent, fields, expected = PROMPTS[name]
    assert heard(Project(place, FLOW), agent, fields) == expected


def test_turns_are_joined(place: Path) -> None:
    assert heard(Project(place, FLOW), "claude", {"text": "one"}, {"text": "two"}) == "one\ntwo"


def test_a_run_without_a_person_has_no_task(place: Path) -> None:
    assert heard(Project(place, HEADLESS), "claude", {}) == ""


def test_without_flow_nothing_is_remembered(place: Path) -> None:
    async def play() -> bool:
        answering = service_alone()
        await (claude := Claude(Project(place), answering=answering)).tell("UserPromptSubmit", prompt="go on")
        await claude.before("Read", file_path=f"{claude.project.root}/a.txt")
        [made] = answering._gates._gates.values()
        nothing = [one.memory for one in made.sessions.values()] == [None]
        await answering.close()
        return nothing

    assert asyncio.run(play())


@pytest.mark.parametrize(
    ("agent", "tool", "arguments"),
    [
        ("claude", "CronCreate", {"cron": "* * * * *", "prompt": f"Fetch {OTHER}"}),
        ("claude", "ScheduleWakeup", {"prompt": f"Fetch {OTHER}"}),
        ("copilot", "manage_schedule", {"prompt": f"Fetch {OTHER}"}),
    ],
)
def test_no_prompt_counts_after_the_model_has_planned_one(
    place: Path, agent: str, tool: str, arguments: dict[str, Any]
) -> None:
    async def play() -> list[str]:
        answering = service_alone()
        played = Played(agent, Project(place, FLOW), answering)
        await played.prompt("one")
        await played.before(tool, **arguments)
        await played.prompt(arguments["prompt"])
        found = tasks(answering)
        await answering.close()
        return found

    assert asyncio.run(play()) == ["one"]


@pytest.mark.parametrize("agent", AGENTS)
def test_every_prompt_event_is_installed_if_there_is_one(agent: str) -> None:
    assert [one for one in AGENTS[agent].events.values() if one.moment == "prompt" and one.installed]


# At a terminal --------------------------------------------------------------------------------------------------------

AGENT = """
import subprocess, sys
hook = "import time; print('here', flush=True); time.sleep(60)"
words = [sys.executable, "-c", hook]
shell = " ".join([sys.executable, "-c", '"' + hook + '"']) + "; true"
kinds = {"direct": words, "shell": ["/bin/sh", "-c", shell]}
child = subprocess.Popen(kinds[sys.argv[1]], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
child.stdout.readline()
found = child.pid
if sys.argv[1] == "shell":
    with open(f"/proc/{found}/task/{found}/children") as file:
        found = int((file.read().split() or [found])[0])
print("client", found, file=sys.stderr, flush=True)
sys.stdin.read()
"""

TYPED: Mapping[str, tuple[dict[str, Any], bool]] = {
    "at a terminal": ({}, True),
    "through a shell": ({"way": "shell"}, True),
    "with other options": ({"words": ["--continue", "-c", "--model=x"]}, True),
    "without a terminal": ({"terminal": False}, False),
    "with `-p`": ({"words": ["-p"]}, False),
    "with `-cp`": ({"words": ["-cp"]}, False),
    "with `--print=json`": ({"words": ["--print=json"]}, False),
    "with a subcommand": ({"words": ["exec"]}, False),
    "with the prompt in the command line": ({"words": ["do it"]}, False),
    "with the prompt in an option": ({"words": ["--prompt-interactive=do it"]}, False),
    "of a process that is gone": ({"client": 2**22 - 1}, False),
    "of nobody": ({"client": 0}, False),
}


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="needs /proc")
@pytest.mark.parametrize("name", TYPED)
def test_a_prompt_is_typed_into_an_agent_at_a_terminal(name: str) -> None:
    about, expected = TYPED[name]
    ours, theirs = pty.openpty()
    ends = theirs if about.get("terminal", True) else subprocess.PIPE
    command = [sys.executable, "-c", AGENT, about.get("way", "direct"), *about.get("words", ())]
    with subprocess.Popen(command, stdin=ends, stdout=ends, stderr=subprocess.PIPE, text=True) as agent:
        try:
            assert agent.stderr is not None
            client = about.get("client", int(agent.stderr.readline().split()[1]))
            assert is_typed(client, ("-p", "--print", "exec"), " do it\n") is expected
        finally:
            for number in children(agent.pid):
                os.kill(number, 9)
            agent.kill()
            os.close(ours)
            os.close(theirs)


def children(process: int) -> list[int]:
    found = [int(one) for one in Path(f"/proc/{process}/task/{process}/children").read_text().split()]
    return [number for one in found for number in (*children(one), one)]


def test_the_dialect_of_each_agent_names_what_makes_it_headless() -> None:
    assert all(dialect.headless for dialect in AGENTS.values())


def test_an_event_of_an_agent_that_names_no_opener_may_be_of_its_person() -> None:
    assert may_be_of_person(AgentEvent(agent="claude", event="UserPromptSubmit", moment="prompt", prompt="go"))


# What was read --------------------------------------------------------------------------------------------------------


async def fetched(claude: Claude, url: str) -> tuple[str, str]:
    return verdict(await claude.before("WebFetch", url=url, prompt="read"))


def in_one_process(project: Project, *steps: tuple[str, Any]) -> list[tuple[str, str]]:
    """Play prompts, reads and fetches in a resident; the answers to the fetches."""

    async def play() -> list[tuple[str, str]]:
        answering, found = service_alone(), []
        claude = Claude(project, answering=answering)
        for what, given in steps:
            match what:
                case "say":
                    await claude.tell("UserPromptSubmit", prompt=given)
                case "resume":
                    await claude.tell("SessionStart", source="resume")
                case "read":
                    arguments = {"file_path": f"{project.root}/{given[0]}"}
                    await claude.before("Read", **arguments)
                    await claude.after("Read", arguments, {"type": "text", "file": {"content": given[1]}})
                case "line":
                    await claude.before("Bash", command="true")
                    await claude.after("Bash", {"command": "true"}, {"stdout": given})
                case "end":
                    await claude.tell("SessionEnd", reason="exit")
                case "fetch":
                    found.append(await fetched(claude, given))
        await answering.close()
        return found

    return asyncio.run(play())


def test_a_session_is_tainted_from_its_begin(place: Path) -> None:
    [(decision, text)] = in_one_process(Project(place, FLOW), ("say", f"read {PAGE}"), ("fetch", OTHER))
    assert decision == "ask"
    assert "FLOW_ORIGIN" in text or "url" in text
    assert "the model wrote this itself" in text


@pytest.mark.parametrize(
    ("steps", "decisions"),
    [
        ([("say", f"read {PAGE}"), ("fetch", PAGE)], ["silent"]),
        ([("resume", ""), ("fetch", PAGE)], ["ask"]),
        ([("read", ("a.txt", f"open {PAGE}")), ("fetch", PAGE)], ["ask"]),
        ([("say", f"read {PAGE}"), ("end", ""), ("resume", ""), ("fetch", PAGE)], ["ask"]),
    ],
    ids=["said by the person", "resumed", "read in a file", "said before the session was resumed"],
)
def test_an_address_is_asked_about_unless_the_person_named_it(
    place: Path, steps: list[tuple[str, Any]], decisions: list[str]
) -> None:
    assert [one for one, _ in in_one_process(Project(place, FLOW), *steps)] == decisions


@pytest.mark.parametrize(
    ("step", "where"),
    [(("read", ("a.txt", f"open {OTHER} now")), "claude.Read"), (("line", f"open {OTHER} now"), "/stdout")],
    ids=["file", "shell line"],
)
def test_the_person_is_shown_where_a_value_was_read(place: Path, step: tuple[str, Any], where: str) -> None:
    [(decision, text)] = in_one_process(Project(place, FLOW), step, ("fetch", OTHER))
    assert decision == "ask"
    assert where in text
    assert "untrusted" in text


@pytest.mark.parametrize("folder", ["{root}", "${{workdir}}"])
@pytest.mark.parametrize(
    ("label", "file", "expected"),
    [("authored", "docs/links.md", "silent"), ("untrusted", "docs/links.md", "ask"), ("authored", "a.txt", "ask")],
)
def test_a_file_is_labelled_by_the_sources_of_the_policy(
    place: Path, folder: str, label: str, file: str, expected: str
) -> None:
    source = f'{{use: "fs:read:{folder.format(root=place / "project")}/docs", label: {label}}}'
    project = Project(place, HEADLESS.replace("preset: guarded", f"preset: guarded, sources: [{source}]"))
    (project.root / "docs").mkdir()
    (project.root / "docs" / "links.md").write_text("x")
    steps = [("read", (file, f"See {PAGE}")), ("fetch", PAGE)]
    assert [one for one, _ in in_one_process(project, *steps)] == [expected]


def test_without_the_resident_earlier_values_are_unknown(place: Path) -> None:
    project = Project(place, FLOW)

    async def play() -> tuple[str, str]:
        claude = Claude(project)  # each event in a process of its own
        await claude.tell("UserPromptSubmit", prompt=f"read {PAGE}")
        return await fetched(claude, PAGE)

    decision, text = asyncio.run(play())
    assert decision == "ask"
    assert "the model wrote this itself" in text


def test_no_text_of_a_result_or_a_prompt_is_kept_on_disk(place: Path) -> None:
    steps = [("say", "say-mark-71"), ("read", ("a.txt", "read-mark-72")), ("fetch", PAGE), ("end", "")]
    in_one_process(Project(place, FLOW), *steps)
    kept = b"".join(one.read_bytes() for one in (place / "state").rglob("*") if one.is_file())
    assert b"mark-7" not in kept
    assert kept


def test_an_agent_that_cannot_ask_is_told_how_a_person_approves(place: Path) -> None:
    policy = POLICY + "  tools: {gemini.web_fetch: {args: {prompt: {flow: content}}}}\nflow: {preset: guarded}\n"

    async def play() -> dict[str, Any]:
        answering = service_alone()
        played = Played("gemini", Project(place, policy), answering)
        printed = await played.before("web_fetch", prompt=f"read {PAGE}")
        await answering.close()
        return dict(json.loads(printed.output))

    said = asyncio.run(play())
    assert said["decision"] == "deny"
    assert "licet approvals approve" in said["reason"]
    assert "FLOW_ORIGIN" in said["reason"]


# Secrets --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("folder", ["{root}", "${{workdir}}"])
def test_a_shell_line_loses_what_could_send_a_secret_that_was_read(place: Path, folder: str) -> None:
    source = f'{{from: "fs:read:{folder.format(root=place / "project")}/hr", readers: []}}'
    project = Project(place, POLICY + f"flow: {{preset: guarded, secrets: [{source}]}}\n")
    (project.root / "hr").mkdir()
    (project.root / "hr" / "pay.txt").write_text("1")

    async def play() -> list[bool]:
        answering, found = service_alone(), []
        claude = Claude(project, answering=answering)
        for _ in range(2):
            assert verdict(await claude.before("Bash", command="true"))[0] != "deny"
            [made] = answering._gates._gates.values()
            session = answering._sessions.find("claude", "s-1")
            assert session is not None
            [key] = answering._sessions.open_calls(session)
            kept = answering._sessions.take(session, key)
            assert kept is not None
            call = restored(made.sessions[session.name, ""], kept.kept)
            assert call.grant is not None
            assert not (await run_open(call)).ok  # nothing has started a shell here
            held = call.grant.reach.grant
            found.append(any(rule.domain == "network" or rule.action == "write" for rule in held.allow))
            read = {"file_path": f"{project.root}/hr/pay.txt"}
            await claude.before("Read", **read)
            await claude.after("Read", read, {"type": "text", "file": {"content": "4400 a month"}})
        await answering.close()
        return found

    assert asyncio.run(play()) == [True, False]
