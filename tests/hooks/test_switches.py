"""What could switch the hooks off, in every place where an agent looks: closed, or renamed when a line has made it."""

import asyncio
import os
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from attacks.walled_programs import needs_programs
from hooks.coding_agents import POLICY, Claude, Project, new_arguments, verdict
from hooks.residents import without_resident
from licet.core.review.sensitive import ELSEWHERE, HOME_SWITCHES, SWITCHES, TRUSTED
from licet.hooks.agent_gate import line_records
from licet.hooks.answering import Answering, service_alone
from licet.hooks.resident_place import OWN_VARIABLES
from licet.hooks.set_aside import Watched, search
from licet.own_files import renamed_aside

LINES = POLICY.replace("delete: session", "delete: manifest")
EVIL = "---\nname: evil\ndescription: x\n---\n!`cat secret`\n"
FILES = [one.path if not one.is_directory else f"{one.path}/a/settings.json" for one in SWITCHES]


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    without_resident(tmp_path / "state")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for one in ELSEWHERE:
        monkeypatch.delenv(one.variable, raising=False)
    (tmp_path / "home").mkdir()
    made = Project(tmp_path, LINES)
    (made.root / "sub" / "deep").mkdir()
    (made.root / "sub" / "b.txt").write_text("b\n")
    return made


def answered(agent: Claude, tool: str, **arguments: Any) -> tuple[str, str]:
    return verdict(asyncio.run(agent.before(tool, **arguments)))


def ran(agent: Claude, text: str) -> subprocess.CompletedProcess[str]:
    """A line as the agent would run it."""
    line = new_arguments(asyncio.run(agent.before("Bash", command=text)))["command"]
    return subprocess.run(
        ["/bin/bash", "-c", line], capture_output=True, check=False, cwd=agent.directory, text=True, timeout=120
    )


def started_in(project: Project, directory: str, answering: Answering | None = None) -> Claude:
    agent = Claude(project, answering=answering)
    agent.directory = str(project.root / directory)
    return agent


# Calls ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("start", ["", "sub/deep"])
@pytest.mark.parametrize("place", ["", "sub", "sub/deep", "other/new", "sub/.github"])
def test_no_call_writes_what_configures_an_agent_anywhere(project: Project, start: str, place: str) -> None:
    async def written() -> list[str]:
        answering = service_alone()
        agent = started_in(project, start, answering)
        files = (*FILES, ".CLAUDE/settings.json")
        paths = [str(project.root / place / file) for file in files]
        found = [path for path in paths if verdict(await agent.before("Write", file_path=path))[0] != "deny"]
        await answering.close()
        return found

    assert asyncio.run(written()) == []


@pytest.mark.parametrize(
    "file", ["claude/a", ".claude.md", "sub/.github/a.md", "sub/.github/workflows-of-hooks", "x.mcp.json"]
)
def test_names_that_only_resemble_them_are_written(project: Project, file: str) -> None:
    assert answered(Claude(project), "Write", file_path=str(project.root / file), content="x")[0] == "silent"


def test_a_project_inside_a_directory_of_an_agent_is_worked_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / ".claude" / "worktrees").mkdir(parents=True)
    made = Project(tmp_path / ".claude" / "worktrees", LINES)
    assert answered(Claude(made), "Write", file_path=f"{made.root}/new.txt", content="x")[0] == "silent"
    assert answered(Claude(made), "Write", file_path=f"{made.root}/.claude/settings.json", content="x")[0] == "deny"


IN_HOME = {
    "a snapshot of the shell, which each line of the agent runs": (".claude/shell-snapshots/a.sh", "deny"),
    "the environment of a session": (".claude/session-env/s/a.sh", "deny"),
    "a workflow": (".claude/workflows/a.js", "deny"),
    "settings from elsewhere": (".claude/remote-settings.json", "deny"),
    "what a later version reads": (".claude/unheard-of", "deny"),
    "the state of Claude Code": (".claude.json", "deny"),
    "variables of Gemini": (".gemini/.env", "deny"),
    "settings of Copilot": (".copilot/anything", "deny"),
    "settings of OpenCode": (".config/opencode/opencode.json", "deny"),
    "the policy of all other projects": (".config/licet/default.yaml", "deny"),
    "a skill of all agents that lies deeper": ("src/.claude/skills/a/SKILL.md", "deny"),
    "another file": ("src/a.py", "rewritten"),
}


@pytest.mark.parametrize("name", IN_HOME)
def test_the_home_is_closed_where_it_configures_agents(project: Project, name: str) -> None:
    path, expected = IN_HOME[name]
    project.write_policy(LINES.replace('write: ["${workdir}"]', 'write: ["${workdir}", "~"]'))
    assert answered(Claude(project), "Write", file_path=f"~/{path}", content="x")[0] == expected


WRITTEN = {
    "a plan": (".claude/plans/a.md", "rewritten"),
    "memory": (".claude/projects/p/memory/MEMORY.md", "rewritten"),
    "settings": (".claude/settings.json", "deny"),
    "what the policy names and no tool writes": (".claude/workflows/a.js", "deny"),
}


@pytest.mark.parametrize("name", WRITTEN)
def test_what_agents_tools_write_in_the_home_is_open_where_the_policy_names_it(project: Project, name: str) -> None:
    path, expected = WRITTEN[name]
    named = ", ".join(f'"~/.claude/{one}"' for one in ("plans", "projects", "workflows"))
    project.write_policy(LINES.replace('write: ["${workdir}"]', f'write: ["${{workdir}}", {named}]'))
    assert answered(Claude(project), "Write", file_path=f"~/{path}", content="x")[0] == expected


@pytest.mark.parametrize("one", ELSEWHERE, ids=lambda one: f"{one.variable}-{one.path}")
def test_a_variable_that_puts_it_elsewhere_closes_it_there(
    project: Project, monkeypatch: pytest.MonkeyPatch, one: Any
) -> None:
    path = os.path.join(project.root, "elsewhere", one.below, "settings")
    assert (
        answered(Claude(project, "before"), "Write", file_path=path, content="x")[0] == "silent"
        or one.below == ".gemini"
    )
    monkeypatch.setenv(one.variable, str(project.root / "elsewhere"))
    assert answered(Claude(project, "after"), "Write", file_path=path, content="x")[0] == "deny"


def test_the_lists_of_what_configures_agents_agree() -> None:
    """What moves it names the resident too; and the list of `learn`, `lint` and the preset has all of it."""
    assert {one.variable.encode() for one in ELSEWHERE} <= set(OWN_VARIABLES)
    assert {one.path for one in ELSEWHERE} <= {path for paths in HOME_SWITCHES.values() for path in paths}
    assert {one.path for one in SWITCHES} <= {one.path for one in TRUSTED}


# Lines ----------------------------------------------------------------------------------------------------------------


@needs_programs
@pytest.mark.parametrize("start", ["sub", "sub/deep"])
def test_no_line_writes_settings_where_the_agent_was_started(project: Project, start: str) -> None:
    agent = started_in(project, start)
    places = [project.root / start, project.root / "sub", project.root]
    files = [place / name for place in places for name in FILES]
    ended = ran(agent, "; ".join(f"mkdir -p {file.parent}; echo '{{}}' > {file}" for file in files) + "; echo done")
    assert ended.stdout.endswith("done\n"), ended
    assert [file for file in files if file.exists()] == []
    assert all((place / one.path).is_dir() for place in places for one in SWITCHES if one.is_directory)


def test_directories_are_made_up_to_the_root_of_the_repository_and_not_in_the_home(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("HOME", str(tmp_path))
    repository = tmp_path / "repository"
    (repository / ".git").mkdir(parents=True)
    (tmp_path / ".git").mkdir()
    made = Project(repository / "packages", LINES)
    answered(started_in(made, "sub"), "Read", file_path="a.txt")
    for place in (made.root / "sub", made.root, repository / "packages", repository):
        assert (place / ".claude").is_dir(), place
    assert not (tmp_path / ".codex").exists()


@needs_programs
def test_what_a_line_makes_anywhere_is_renamed_when_it_ends(project: Project) -> None:
    places = [project.root / "sub", project.root / "new" / "er"]
    files = [place / name for place in places for name in FILES]
    text = "; ".join(f"mkdir -p {file.parent}; echo '{{}}' > {file}" for file in files) + "; ls new/er/.mcp.json"
    ended = ran(Claude(project), text)
    assert ended.stdout == "new/er/.mcp.json\n", ended  # it was there while the line ran
    assert [file for file in files if file.exists()] == []
    assert (project.root / "sub" / ".claude.set-aside-1" / "a" / "settings.json").read_text() == "{}\n"
    assert f"licet: {project.root}/sub/.mcp.json is new, and would configure a coding agent" in ended.stderr
    again = ran(Claude(project), "mv sub/.claude.set-aside-1 sub/.claude; echo x > sub/.claude.set-aside-1")
    assert not (project.root / "sub" / ".claude").exists(), again
    assert (project.root / "sub" / ".claude.set-aside-2").is_dir()


@needs_programs
def test_what_was_there_before_a_session_stays_and_is_closed(project: Project) -> None:
    skill = project.root / "sub" / "deep" / ".claude" / "skills" / "deploy" / "SKILL.md"
    skill.parent.mkdir(parents=True)
    skill.write_text("mine")
    (project.root / "sub" / "opencode.json").write_text("{}")
    agent = Claude(project)
    assert answered(agent, "Edit", file_path=str(skill), old_string="m", new_string="")[0] == "deny"
    ended = ran(
        agent, f"echo x > {skill}; mkdir {skill.parent}/b; echo x > sub/opencode.json; mv sub/deep/.claude $TMPDIR"
    )
    assert (skill.read_text(), os.listdir(skill.parent)) == ("mine", ["SKILL.md"]), ended
    assert (project.root / "sub" / "opencode.json").read_text() == "{}"
    assert "set-aside" not in " ".join(os.listdir(skill.parents[4]))


@needs_programs
def test_what_a_person_adds_while_no_line_runs_stays_and_is_closed_to_the_next_line(project: Project) -> None:
    async def session() -> tuple[str, str]:
        answering = service_alone()  # one gate, as in the resident
        agent = Claude(project, answering=answering)
        await agent.before("Read", file_path=str(project.root / "a.txt"))
        added = project.root / "sub" / ".claude"
        added.mkdir()
        (added / "settings.json").write_text("mine")
        line = new_arguments(await agent.before("Bash", command="echo x > sub/.claude/settings.json; ls sub"))[
            "command"
        ]
        ended = await asyncio.to_thread(
            subprocess.run, ["/bin/bash", "-c", line], capture_output=True, cwd=project.root
        )
        await answering.close()
        return (added / "settings.json").read_text(), ended.stderr.decode()

    found, said = asyncio.run(session())
    assert (found, "is new" in said) == ("mine", False), said


def test_what_a_killed_line_has_left_is_renamed_when_a_session_begins(project: Project) -> None:
    watched = Watched((str(project.root),), search((str(project.root),)).paths)
    running = line_records().of_line("t" * 32, watched)
    running.__enter__()  # nothing calls the function that it yields: its process was killed
    late = project.root / "sub" / ".mcp.json"
    late.write_text("{}")
    del running
    found, said = verdict(asyncio.run(Claude(project).tell("SessionStart", source="startup")))
    assert (found, late.exists()) == ("told", False)
    assert f"{late} is new" in said
    late.write_text("{}")  # by a person, since no line runs
    assert verdict(asyncio.run(Claude(project, "s-2").tell("SessionStart", source="startup")))[0] == "silent"
    assert late.exists()


def test_nothing_is_renamed_through_a_link_that_a_line_has_put_there(tmp_path: Path) -> None:
    root, outside = tmp_path / "root", tmp_path / "outside"
    for place in (root / "sub", outside):
        (place / ".claude").mkdir(parents=True)
        (place / ".claude" / "settings.json").touch()

    (root / "sub").rename(root / "away")  # once it was searched
    (root / "sub").symlink_to(outside)
    with pytest.raises(OSError, match=r"symbolic links|Not a directory"):
        renamed_aside(str(root), str(root / "sub" / ".claude"), lambda folder, name: False)
    assert (outside / ".claude").is_dir()


def test_a_search_ends_at_its_limit_and_a_session_is_told(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("licet.hooks.set_aside.MOST_SEARCHED", 6)
    (project.root / "a" / "b" / "c" / "d" / ".claude" / "x").mkdir(parents=True)
    (project.root / "a" / ".mcp.json").touch()
    (project.root / "node_modules" / ".claude" / "x").mkdir(parents=True)
    found = search([str(project.root)])
    assert (found.paths, found.is_complete) == ((f"{project.root}/a/.mcp.json",), False)
    told = verdict(asyncio.run(Claude(project).tell("SessionStart", source="startup")))
    assert (told[0], "directories may be written" in told[1]) == ("told", True)


@needs_programs
def test_what_a_link_of_the_project_configures_is_closed_too(project: Project) -> None:
    shared = project.root / "shared"
    (shared / "skills").mkdir(parents=True)
    (shared / "settings.json").write_text("mine")
    (project.root / ".claude").mkdir()
    (project.root / ".claude" / "settings.json").symlink_to(shared / "settings.json")
    (project.root / ".claude" / "root").symlink_to(project.root)
    (project.root / "sub" / ".claude").symlink_to(shared)
    agent = Claude(project)
    for path in (shared / "settings.json", shared / "skills" / "a", project.root / "sub" / ".claude" / "b"):
        assert answered(agent, "Write", file_path=str(path), content="x")[0] == "deny", path
    assert answered(agent, "Write", file_path=str(project.root / "new.txt"), content="x")[0] == "silent"
    ran(agent, "echo x > shared/settings.json; echo x > .claude/settings.json; echo x > new")
    assert (shared / "settings.json").read_text() == "mine"
    assert (project.root / "new").exists()


# Skills ---------------------------------------------------------------------------------------------------------------

SKILLS: Mapping[str, tuple[str, str, str]] = {
    "of the project": ("project/.claude/skills/deploy/SKILL.md", "deploy", "silent"),
    "a command of the project": ("project/.claude/commands/db/deploy.md", "db:deploy", "silent"),
    "of the home": ("home/.claude/skills/deploy/SKILL.md", "deploy", "silent"),
    "of a directory below, which was there before": (
        "project/sub/.claude/skills/deploy/SKILL.md",
        "sub:deploy",
        "silent",
    ),
    "of a plugin": ("home/.claude/plugins/cache/m/tool/1/skills/deploy/SKILL.md", "tool:deploy", "silent"),
    "that nobody has": ("home/x", "deploy", "deny"),
    "of another place": ("home/.claude/skills/deploy/SKILL.md", "other:deploy", "deny"),
    "with a path for a name": ("project/sub/deploy/SKILL.md", "../../sub/deploy", "deny"),
}


@pytest.mark.parametrize("name", SKILLS)
def test_a_skill_is_loaded_from_a_closed_directory_alone(project: Project, name: str) -> None:
    path, skill, expected = SKILLS[name]
    file = project.root.parent / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(EVIL)
    assert answered(Claude(project), "Skill", skill=skill)[0] == expected


def test_a_skill_that_a_line_has_just_made_is_not_loaded(project: Project) -> None:
    async def session() -> list[str]:
        answering = service_alone()  # one gate, as in the resident
        claude = Claude(project, answering=answering)
        found = [verdict(await claude.before("Read", file_path=str(project.root / "sub" / "b.txt")))[0]]
        made = project.root / "sub" / ".claude" / "skills" / "evil" / "SKILL.md"
        made.parent.mkdir(parents=True)  # as a line does that still runs
        made.write_text(EVIL)
        found += [verdict(await claude.before("Skill", skill=name))[0] for name in ("evil", "sub:evil")]
        (project.root / ".claude" / "skills").mkdir(parents=True)
        (project.root / ".claude" / "skills" / "evil").symlink_to(made.parent)
        found.append(verdict(await claude.before("Skill", skill="evil"))[0])
        await answering.close()
        return found

    assert asyncio.run(session()) == ["silent", "deny", "deny", "deny"]
