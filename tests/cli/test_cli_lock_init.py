"""`licet lock --init`: the guesses it drafts, the file it writes them into, and what it never changes."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from attacks.walled_programs import needs_walls
from command_line import enter_project_of_server, run
from gateway.clients import text_of
from gateway.workspaces import connected
from licet import Manifest, load_manifest
from licet.core.algebra.set import CapabilitySet
from licet.core.decision.validate import validate_registration
from licet.core.policy.lock import LockedServer
from licet.core.policy.servers import Server
from licet.core.policy.tool import ToolSpec
from licet.gateway.gateway import gateway_servers
from licet.lock.drafts import Draft, Guess, argument_grants, guesses, needed_capabilities, with_drafts
from licet.mcp.server_definitions import NotTaken
from licet.mcp.shown_names import naming
from licet.policy_files.additions import keeps_lines
from licet.policy_files.load import read_policy
from pins import trust


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return enter_project_of_server(tmp_path, monkeypatch)


# Guesses --------------------------------------------------------------------------------------------------------------

GRANTS = ("fs:read:/srv", "fs:write:/srv/out", "network:https:get@a.example", "env:read:LANG")
SERVER = Server(name="s", command=("x",), grants=GRANTS)


def guess(name: str, *arguments: str, **annotations: Any) -> Guess:
    schema = {"properties": {name: {"type": "string"} for name in arguments}, "required": list(arguments)}
    definition = {"name": name, "inputSchema": schema, "annotations": annotations}
    return guesses(SERVER, LockedServer(tools=(definition,)))[name]


EFFECTS: dict[tuple[str, str], tuple[str, dict[str, Any]]] = {
    ("read_only", "the server says `readOnlyHint`"): ("anything", {"readOnlyHint": True}),
    ("full", "the server says `destructiveHint`"): ("read_file", {"destructiveHint": True, "readOnlyHint": True}),
    ("write_limited", "the server says that it writes"): ("get", {"readOnlyHint": False}),
    ("read_only", "by its name"): ("listFiles", {}),
    ("full", "by its name"): ("delete_file", {}),
    ("write_limited", "nothing says that it only reads"): ("git_commit", {"readOnlyHint": "yes"}),
}


@pytest.mark.parametrize(("expected", "given"), EFFECTS.items(), ids=map(str, EFFECTS))
def test_a_class_is_guessed_from_annotations_and_the_name(
    expected: tuple[str, str], given: tuple[str, dict[str, Any]]
) -> None:
    found = guess(given[0], **given[1])
    assert (found.effect, found.effect_why) == expected


def test_needs_are_guessed_from_arguments_and_are_never_more_than_the_grants() -> None:
    assert guess("read", "path").needs == ("fs:read:/srv", "env:read:LANG")
    assert guess("write", "file_path").needs == ("fs:read:/srv", "fs:write:/srv/out", "env:read:LANG")
    assert guess("read", "url").needs == ("network:https:get@a.example", "env:read:LANG")
    assert guess("read", "source_path", "url").needs == tuple(rule for rule in GRANTS if "write" not in rule)
    assert guess("write", "text").needs == GRANTS
    assert "it takes `path`" in guess("read", "path").needs_why


TEXT, NULL = {"type": "string"}, {"type": "null"}
LIST = {"type": "array", "items": TEXT}
PATHS: dict[str, tuple[dict[str, Any], dict[str, str]]] = {
    "a text": ({"path": TEXT}, {"path": "fs:read"}),
    "a list": ({"paths": LIST}, {"paths": "fs:read"}),
    "one that may be null": (
        {"dir": {"type": ["string", "null"]}, "file": {"anyOf": [LIST, NULL]}},
        {"dir": "fs:read", "file": "fs:read"},
    ),
    "no path by its name": ({"text": TEXT, "pathology": TEXT}, {}),
    "no text": ({"file": {"type": "object"}, "root": {"type": "integer"}, "path": {"anyOf": [NULL]}}, {}),
    "nothing known": ({"path": {}, "dir": True, "file": {"$ref": "#/$defs/x"}, "root": {"type": [1]}}, {}),
    "a list of others": ({"files": {"type": "array", "items": {"type": "object"}}, "paths": {"type": "array"}}, {}),
    "a name that cannot be shown": ({"x\n#path": TEXT}, {}),
}


@pytest.mark.parametrize(("properties", "expected"), PATHS.values(), ids=PATHS)
def test_arguments_that_are_paths_get_a_rule(properties: dict[str, Any], expected: dict[str, str]) -> None:
    definition = {"name": "read", "inputSchema": {"properties": properties, "required": list(properties)}}
    assert guesses(SERVER, LockedServer(tools=(definition,)))["read"].args == expected


def test_a_rule_on_a_path_follows_the_class_and_needs_files_of_this_machine() -> None:
    assert guess("write", "path").args == {"path": "fs:write"}
    assert guess("delete", "path").args == {"path": "fs:write"}
    tools = LockedServer(tools=({"name": "read", "inputSchema": {"properties": {"path": TEXT}, "required": ["path"]}},))
    assert guesses(SERVER, tools)["read"].args == {"path": "fs:read"}
    without = Server(name="s", command=("x",), grants=("network:https:get@a.example",))
    assert guesses(without, tools)["read"].args == {}
    remote = Server(name="s", url="https://a.example/", grants=("fs:read:/srv",))
    assert guesses(remote, tools)["read"].args == {}


@pytest.mark.parametrize("required", [{}, {"required": ["text"]}, {"required": "path"}], ids=str)
def test_an_argument_that_may_be_left_out_gets_no_rule(required: dict[str, Any]) -> None:
    definition = {"name": "read", "inputSchema": {"properties": {"path": TEXT, "text": TEXT}, **required}}
    found = guesses(SERVER, LockedServer(tools=(definition,)))["read"]
    assert found.args == {}
    assert found.needs_why == "it takes `path`; no rule on `path`, since a rule would make it required"


def test_a_guess_holds_no_words_of_the_server() -> None:
    found = guess("read", "x\n  evil: {effect: full}\n#path", "path")
    assert found.needs_why == "it takes `path`"


def test_paths_among_arguments_are_granted_though_they_do_not_exist_yet(here: Path) -> None:
    (here / "data").mkdir()
    home = str(here.parent)
    words = [
        "-y",
        "data",
        "--db=data/x.db",
        "${workdir}/data",
        "missing/x",
        "/",
        "~/project",
        "/etc/hosts",
        "--root=data",
        "--db=./new/x.db",
        "../other",
        "~/later",
        "@scope/package",
        "--url=https://a.example/x",
    ]
    assert argument_grants(words, str(here), home) == [
        "fs:read:${workdir}/data",
        "fs:read:${workdir}/data/x.db",
        "fs:read:${workdir}",
        "fs:read:/etc/hosts",
        "fs:read:${workdir}/new/x.db",
        "fs:read:~/other",
        "fs:read:~/later",
    ]


# The text -------------------------------------------------------------------------------------------------------------

READ = Guess(("fs:read:${workdir}",), "it takes `path`", "read_only", "by its name")


def draft(name: str = "s", *, is_new: bool = True, **tools: Guess) -> Draft:
    server = Server(name=name, command=("npx", "-y", "@a/b", "${workdir}", 'a "b"'), grants=("fs:read:${workdir}",))
    return Draft(server, is_new, False, tools or {"read": READ}, {})


def test_the_lines_that_admit_all_drafted_tools_make_a_manifest_that_they_fit(here: Path) -> None:
    write = Guess(("fs:read:${workdir}", "fs:write:~/out", "network:tcp:a.example:443"), "", "full", "")
    server = {"env": ("LANG",), "secrets": {"TOKEN": "mcp/s/TOKEN"}}
    first, second = draft(read=READ), draft("t", write=write)
    lines = needed_capabilities([first, replace(second, server=replace(second.server, **server))])
    assert lines == {
        "tools": ["s.read", "t.write"],
        "fs_reach": {"read": ["${workdir}"]},
        "grants": ["fs:write:~/out", "network:tcp:a.example:443"],
        "env": ["LANG"],
        "secrets": ["mcp/s/TOKEN"],
        "max_side_effect_class": "full",
        "budget": {"max_calls_per_session": 100},
    }
    specs = {f"{one}.{name}": found for one, name, found in (("s", "read", READ), ("t", "write", write))}
    manifest = Manifest.from_data({"agent": "a", "capabilities": lines})
    for name, found in specs.items():
        spec = ToolSpec(name, CapabilitySet(found.needs), found.effect, "isolated")
        assert validate_registration(spec, manifest) == ()


TEXTS = {
    "nothing": "",
    "comments": """\
# mine

servers:
  # one
  s:
    command: [x]   # why

# end
bundles:
  b: {tools: [s.read]}  # all
""",
    "quotes": """\
agent: 'a'
version: "1.0"
capabilities:
  tools: ["a", 'b']
  deny:
  - "fs:*:/x"
""",
    "wide": "agent: a\ncapabilities:\n    tools: [a]\n    fs_reach:\n        read:\n            - /srv\n",
    "a long line": f"agent: a\ncapabilities: {{tools: [{', '.join(f'a{number}' for number in range(60))}]}}\n",
    "words that look like others": "agent: a\nversion: 'no'\ncapabilities: {env: [ON, 'yes']}\n",
}


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
def test_what_is_there_stays_as_it_is(text: str, here: Path) -> None:
    new = with_drafts(text, [draft(is_new="  s:" not in text)])
    assert keeps_lines(text, new, ["s"])
    assert "# guesses: review every line" in new
    assert "# guess: it takes `path`" in new
    (here / "licet.yaml").write_text(new)
    policy = read_policy(here / "licet.yaml")
    assert [problem for problem in policy.problems if problem.severity == "error"] == []


def test_an_entry_on_one_line_becomes_several(here: Path) -> None:
    text = "servers:\n  s: {command: [x]}\n  t: {command: [y]}\n"
    new = with_drafts(text, [draft(is_new=False)])
    assert keeps_lines(text, new, ["s"])
    assert "  t: {command: [y]}" in new
    (here / "licet.yaml").write_text(new)
    assert not read_policy(here / "licet.yaml").problems


def test_a_changed_or_missing_line_is_noticed() -> None:
    assert not keeps_lines("a: 1\n# kept\nb: 2\n", "a: 1\nb: 2\n", ["s"])
    assert not keeps_lines("a: 1\nb: 2\n", "b: 2\na: 1\n", ["s"])
    assert not keeps_lines("t: {command: [y]}\n", "t:\n  command: [y]\n", ["s"])
    spaced = "agent: a\ncapabilities: {tools: [ 'a','b' ]}\n"  # written back, it would look otherwise
    assert not keeps_lines(spaced, with_drafts(spaced, [draft()]), ["s"])
    assert keeps_lines("a: 1  \nb: 2\n", "a: 1\nnew: 3\nb: 2\n", ["s"])


# The command ----------------------------------------------------------------------------------------------------------

SCRIPT = json.dumps(
    {
        "tools": [
            {
                "name": "read",
                "inputSchema": {"type": "object", "properties": {"path": {}}},
                "annotations": {"readOnlyHint": True},
            },
            {"name": "on", "inputSchema": {"type": "object"}},
            {"name": "resources", "inputSchema": {"type": "object"}},
        ]
    }
)
COMMAND = ("--", "python3", "server.py", SCRIPT)


@needs_walls
def test_a_server_given_on_the_command_line_is_drafted_into_a_new_file(here: Path) -> None:
    said = run("lock", "--init", "files", *COMMAND)
    assert "files: started with fs:read:${workdir}/server.py, and no network" in said.stderr
    assert "tools/resources is refused" in said.stderr
    assert "  tools: [files.read, files.on]" in said.stdout
    assert '  fs_reach: {read: ["${workdir}/server.py"]}\n' in said.stdout
    assert "max_side_effect_class: write_limited" in said.stdout
    assert "run `licet trust MANIFEST` and `licet lock MANIFEST`" in said.stdout
    text = (here / ".licet" / "licet.yaml").read_text()
    assert "resources" not in text.partition("tools:")[2].partition("\n")[2]
    policy = read_policy(here / ".licet" / "licet.yaml")
    assert (policy.kind, policy.problems) == ("workspace", ())
    assert not (here / "licet.lock").exists()

    # It is not drafted twice, and another command takes another name.
    assert "has `tools` already" in run("lock", "--init", "files", *COMMAND, code=1).stderr
    assert "with another command" in run("lock", "--init", "files", "--", "python3", "x.py", code=1).stderr
    assert (here / ".licet" / "licet.yaml").read_text() == text

    # The draft can be locked as it is.
    (here / ".licet" / "a.yaml").write_text(
        'agent: a\ncapabilities: {tools: [files.read], fs_reach: {read: ["${workdir}"]}}\n'
    )
    run("lock", ".licet/a.yaml")
    run("check", "--locked", ".licet/a.yaml")


@needs_walls
def test_servers_of_a_file_are_drafted_and_its_comments_stay(here: Path) -> None:
    command = json.dumps(["python3", "server.py", SCRIPT])
    servers = f"  s:  # first\n    command: {command}\n  t: {{command: [x], tools: {{}}}}\n"
    text = f"# mine\nagent: a\nservers:\n{servers}# end\n"
    (here / "licet.yaml").write_text(text)
    assert "has not been accepted" in run("lock", "--init", code=1).stderr
    trust(here / "licet.yaml")
    document = json.loads(run("lock", "--init", "--grant", "network:https:get@a.example", "--json").stdout)
    assert (document["written"], document["tools"]) == (True, ["s.read", "s.on"])
    new = (here / "licet.yaml").read_text()
    assert document["draft"] == new
    assert all(line in new.splitlines() for line in text.splitlines())
    assert '"network:https:get@a.example"' in new
    assert "each server has `tools` already" in run("lock", "--init", "licet.yaml", code=1).stderr


@needs_walls
def test_a_server_that_cannot_be_asked_is_skipped_and_the_others_are_drafted(here: Path) -> None:
    command = json.dumps(["python3", "server.py", SCRIPT])
    lost = "  lost: {command: [there-is-no-such-program]}\n  far: {url: 'https://there.is.invalid/mcp'}\n"
    text = f"agent: a\nservers:\n{lost}  s: {{command: {command}}}\n"
    (here / "a.yaml").write_text(text)
    said = run("lock", "--init", "a.yaml", code=1)
    skipped = [line for line in said.stderr.splitlines() if line.startswith("skipped: ")]
    assert [line.partition(": ")[2].partition(":")[0] for line in skipped] == ["lost", "far"]
    assert "is not on PATH" in skipped[0]
    assert "  retry with `licet lock --init a.yaml lost`" in said.stderr.splitlines()
    assert "wrote 2 guesses for s into a.yaml" in said.stdout
    new = (here / "a.yaml").read_text()
    assert lost in new
    assert "because no resolver" in " ".join(said.stderr.split())
    assert "u000a" not in said.stderr

    # Nothing is left to draft but what cannot be asked: nothing is written.
    assert "cannot be locked" in run("lock", "--init", "a.yaml", code=1).stderr
    assert (here / "a.yaml").read_text() == new

    (here / "a.yaml").write_text(text)
    document = json.loads(run("lock", "--init", "a.yaml", "--json", code=1).stdout)
    assert (document["written"], document["draft"]) == (True, new)
    assert {name: one["retry"] for name, one in document["skipped"].items()} == {
        "lost": "licet lock --init a.yaml lost",
        "far": "licet lock --init a.yaml far",
    }


def test_a_text_of_several_lines_becomes_one() -> None:
    wrong = NotTaken("RESOLVE_FAILED: no address\n  the host  x\r\n", ["a\n b", "c"])
    assert str(wrong) == "RESOLVE_FAILED: no address the host  x"
    assert wrong.lines == ("a b", "c")


CALLS: tuple[tuple[str, dict[str, Any], str], ...] = (
    ("read", {"path": "notes/a"}, ""),
    ("read", {"path": "/etc/passwd"}, "ARGUMENT_NOT_ALLOWED: `path`"),
    ("read_all", {"paths": ["${workdir}/notes", "notes/b"]}, ""),
    ("read_all", {"paths": ["notes/a", "notes/../../x"]}, "ARGUMENT_NOT_ALLOWED: `paths`"),
    ("write", {"path": "notes/a"}, "APPROVAL_REQUIRED"),
    ("write", {"path": "a"}, "ARGUMENT_NOT_ALLOWED: `path`"),
)


@needs_walls
@pytest.mark.sampled(1)
def test_a_path_outside_is_refused_by_a_drafted_rule(here: Path) -> None:
    (here / "notes").mkdir()
    taken: dict[str, dict[str, Any]] = {"read": {"path": TEXT}, "read_all": {"paths": LIST}, "write": {"path": TEXT}}
    tools = [
        {"name": name, "inputSchema": {"type": "object", "properties": arguments, "required": list(arguments)}}
        for name, arguments in taken.items()
    ]
    grants = ("--grant", "fs:read:${workdir}/notes", "--grant", "fs:write:${workdir}/notes")
    run("lock", "--init", "files", *grants, "--", "python3", "server.py", json.dumps({"tools": tools}))
    drafted = (here / ".licet" / "licet.yaml").read_text()
    assert 'args: {paths: {scope: "fs:read"}} # guess: paths by their names' in drafted
    assert 'args: {path: {scope: "fs:write"}} # guess' in drafted
    (here / ".licet" / "a.yaml").write_text(
        "agent: a\ncapabilities:\n  tools: [files.read, files.read_all, files.write]\n"
        '  fs_reach: {read: ["${workdir}"], write: ["${workdir}"]}\n  max_side_effect_class: write_limited\n'
    )
    run("lock", ".licet/a.yaml")
    manifest = load_manifest(here / ".licet" / "a.yaml")

    async def answers() -> list[str]:
        backend = gateway_servers(manifest, here.parent / "kept", session="s", report=print, workdir=here)
        async with connected(backend, naming(manifest.servers, ""), "2025") as client:
            found = [await client.call(name, _placed(arguments, here)) for name, arguments, _ in CALLS]
        return [text_of(one) if one.get("isError") else "" for one in found]

    for (name, arguments, expected), said in zip(CALLS, asyncio.run(answers()), strict=True):
        assert said[: len(expected) or None] == expected, (name, arguments, said)


@needs_walls
def test_a_policy_and_a_lock_are_written_where_the_server_may_write(here: Path) -> None:
    (here / "agent.yaml").write_text("agent: a\ncapabilities: {}\n")
    grants = ("--grant", "fs:read:${workdir}", "--grant", "fs:write:${workdir}")
    tools = [{"name": "read", "inputSchema": {"type": "object"}}]
    run("lock", "--init", "agent.yaml", "files", *grants, "--", "python3", "server.py", json.dumps({"tools": tools}))
    run("lock", "agent.yaml")
    assert sorted(path.name for path in here.iterdir()) == ["agent.yaml", "licet.lock", "server.py"]
    assert load_manifest(here / "agent.yaml").pinned == "licet.lock"


def _placed(arguments: dict[str, Any], workdir: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(json.dumps(arguments).replace("${workdir}", str(workdir)))
    return found


WRONG: dict[str, tuple[tuple[str, ...], int, str]] = {
    "no policy and no command": (("lock", "--init"), 2, "there is no policy here"),
    "no name": (("lock", "--init", "--", "x"), 2, "one name before `--`"),
    "a name of nothing": (("lock", "--init", "Files", "--", "x"), 2, "is no name of a server"),
    "no rule": (("lock", "--init", "files", "--grant", "fs:fly:/", "--", "x"), 2, "fly"),
    "a lock too": (("lock", "--init", "--update", "files", "--", "x"), 2, "writes no lock"),
    "a command without init": (("lock", "a.yaml", "--", "x"), 2, "are for --init"),
    "no such file": (("lock", "--init", "a.yaml"), 1, "there is no a.yaml"),
    "no such program": (("lock", "--init", "s", "--", "there-is-no-such-program"), 1, "is not on PATH"),
    "a shell": (("lock", "--init", "s", "--", "sh", "-c", "x"), 1, "runs a text"),
}


@pytest.mark.parametrize(("words", "code", "expected"), WRONG.values(), ids=WRONG)
def test_nothing_is_written_for_what_cannot_be_drafted(
    words: tuple[str, ...], code: int, expected: str, here: Path
) -> None:
    assert expected in run(*words, code=code).stderr
    assert not (here / ".licet").exists()


def test_files_with_errors_and_json_are_left_alone(here: Path) -> None:
    (here / "a.json").write_text('{"agent": "a", "servers": {"s": {"command": ["x"]}}}')
    assert "is JSON" in run("lock", "--init", "a.json", code=1).stderr
    (here / "b.yaml").write_text("agent: a\nservers: {s: {comand: [x]}}\n")
    assert "b.yaml:2:15: error" in run("lock", "--init", "b.yaml", code=1).stderr
