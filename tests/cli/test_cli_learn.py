"""`licet learn`: the file it drafts, what it never changes, and that the draft makes the same run pass."""

import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import warm
from attacks.walled_programs import needs_namespaces
from command_line import enter_project, run
from effort import LONG
from licet import load_manifest
from licet.assemble.review import state_directory
from licet.core.decision.reach import reach_of
from licet.core.policy.manifest import COMMANDS, with_commands
from licet.core.review.recording_lines import RecordingStart, Touch, recording_line, use_of_text
from licet.core.review.sensitive import Whereabouts, above_each, why_sensitive
from pins import trust

HOME = "/home/somebody"


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = enter_project(tmp_path, monkeypatch)
    monkeypatch.setenv("HOME", HOME)
    return folder


def document(*words: str) -> dict[str, Any]:
    (policy,) = json.loads(run("learn", "--json", *words).stdout)["policies"]
    found: dict[str, Any] = policy
    return found


def start(**fields: Any) -> RecordingStart:
    known = {"source": "program", "started": 1, "command": ("make", "test"), "workdir": os.getcwd(), "home": HOME}
    return RecordingStart(**{**known, **fields})


def touches(*uses: str, outcome: Any = "used") -> list[Touch]:
    return [
        Touch(time=1, call="process 7", tool="make", use=use.replace("$W", os.getcwd()), outcome=outcome)
        for use in uses
    ]


def recording(lines: Iterable[Touch], *, name: str = "1.jsonl", **fields: Any) -> Path:
    folder = state_directory(Path.cwd()) / "recordings"
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    path.write_bytes(b"".join([recording_line(start(**fields)), *map(recording_line, lines)]))
    return path


USES = (
    *("process:exec:/usr/bin/make", "fs:read:/usr/lib/libc.so.6"),
    *(
        "fs:read:$W/src/a",
        "fs:read:$W/src/b",
        "fs:read:$W/src/c",
        "fs:read:/etc/passwd",  # every program has one of its own
        "fs:read:/etc/login.defs",
        "fs:read:/home/somebody/notes/x",
    ),
    *("fs:write:$W/out/log", "fs:delete:$W/out/old", "fs:read:/home/somebody/.ssh/id_rsa"),
    *("network:https:get@index.example:443", "network:http:get@169.254.169.254:80", "network:http:get@localhost:8000"),
)
DRAFT = """\
# Drafted by `licet learn` from what was recorded: review every line. A comment says which calls needed it;
# lines that are comments themselves are sensitive, and yours to decide on: who agrees also deletes their denies.
agent: make
capabilities:
  max_side_effect_class: write_limited  # learned: what was recorded writes
  process:
    allowed_binaries:
      - make  # learned: the command that was recorded
  fs_reach:
    read:
      - /etc/login.defs  # learned: 1 read by make, process 7
      - "~/notes/x"  # learned: 1 read by make, process 7
      - "${workdir}/src"  # learned: 3 reads by make, process 7
    write:
      - "${workdir}/out/log"  # learned: 1 write by make, process 7
  env:
    - PATH  # learned: variables are not recorded; programs find others by this one
    - TERM  # learned: what a terminal can show
    - LANG  # learned: the language, and how text is written
    - HOME  # learned: files below the home were used
  grants:
    - "network:read:https://index.example:443"  # learned: 1 request by make, process 7
    # - "fs:delete:${workdir}/out/old"  # learned: 1 delete by make, process 7: a delete
    # - "fs:read:~/.ssh/id_rsa"  # learned: 1 read by make, process 7: keys or credentials
    # - "network:read:http://169.254.169.254:80"  # learned: 1 request by make, process 7: a metadata service
    # - "network:read:http://localhost:8000"  # learned: 1 request by make, process 7: a name of a private network
"""


def drafted() -> str:
    return Path(".licet/licet.yaml").read_text()


def test_a_draft_is_shown_and_written_on_demand() -> None:
    recording(touches(*USES))
    shown = run("learn").stdout
    assert all(line in shown for line in DRAFT.splitlines())
    assert re.search(r"any +\w+ risk +hosts +index.example:443  https read", shown)  # the surface
    assert "nothing is written yet" in shown
    assert not Path(".licet").exists()
    assert "accept it with `licet trust`, and try it: `licet run --ask -- CMD`" in run("learn", "--write").stdout
    assert drafted() == DRAFT
    assert run("check").exit_code == 0


def test_learning_twice_changes_nothing() -> None:
    recording(touches(*USES))
    run("learn", "--write")
    again = document("--write")
    assert (again["changed"], again["written"], again["text"]) == (False, False, DRAFT)
    assert again["unused"] == []


HUMAN = """\
# The policy of our build.
agent: build   # not `make`
capabilities:
  # Only reads, please.
  max_side_effect_class: read_only
  fs_reach: {read: ["${workdir}/lib", "/etc"]}   # the headers
  process:
    allowed_binaries:
    - make
    # more to come
  destinations: {allow: [example.org]}
  deny: ["fs:*:${workdir}/src/c"]
# The end.
"""


def test_what_a_person_wrote_stays() -> None:
    recording(touches(*USES))
    Path("licet.yaml").write_text(HUMAN)
    os.chmod("licet.yaml", 0o640)
    found = document("--write")
    text = Path("licet.yaml").read_text()
    kept = [line for line in HUMAN.splitlines() if "fs_reach" not in line]
    assert [line for line in text.splitlines() if line in kept] == kept
    assert "# the headers" in text
    assert os.stat("licet.yaml").st_mode & 0o777 == 0o640
    assert [one["use"].rpartition("/")[2] for one in found["left_out"]] == ["c"]  # the policy denies it
    assert "${workdir}/src/a" in text
    assert "/etc/login.defs" not in text  # `/etc` covers it
    assert {one["rule"]: one["place"] for one in found["unused"]} == {
        "fs:read:${workdir}/lib": "licet.yaml:6:21",
        "network:*:example.org": "licet.yaml:11:26",
    }
    note, about_deletes, about_new_files = found["notes"]
    assert "approvals: {delete: session}" in about_deletes
    assert about_new_files.endswith("make these first: ${workdir}/out/log")
    assert note.startswith("`max_side_effect_class: read_only` (licet.yaml:5) does not permit the writes")
    assert [use.rpartition("/")[2] for use in found["still_refused"]] == ["log"]
    assert not document()["changed"]


def test_at_a_class_that_may_delete_only_writes_are_added() -> None:
    recording(touches("fs:write:$W/out/log"))
    capabilities = "{max_side_effect_class: full, budget: {max_calls_per_session: 9}}"
    Path("licet.yaml").write_text(f"agent: x\ncapabilities: {capabilities}\n")
    text = document()["text"]
    assert '- "fs:write:${workdir}/out/log"' in text
    assert "fs_reach" not in text


def test_several_recordings_are_one_policy() -> None:
    recording(touches("fs:read:$W/src/a"), name="1.jsonl")
    recording(touches("fs:read:$W/src/b", "fs:read:$W/src/c"), name="2.jsonl", command=("pytest",))
    found = document()
    assert len(found["recordings"]) == 2
    assert {"fs:read:${workdir}/src"} == {line["rule"] for line in found["lines"]}
    assert all(f"- {name}  #" in found["text"] for name in ("make", "pytest"))


def test_a_policy_is_named_and_its_agent() -> None:
    path = recording(touches("fs:read:/etc/login.defs"))
    run("learn", str(path), "--manifest", "agent.yaml", "--agent", "builder", "--write")
    assert load_manifest("agent.yaml").agent == "builder"


def test_hosts_are_generalised_on_demand() -> None:
    hosts = (
        "a.files.example.org",
        "b.files.example.org",
        "c.files.example.org",
        "a.github.io",
        "b.github.io",
        "c.github.io",
    )
    recording(touches(*(f"network:https:get@{host}:443" for host in hosts)))
    assert "*" not in document()["text"]
    found = document("--generalise-hosts")
    assert found["added"] == [
        "network:read:https://*.files.example.org:443",
        *(f"network:read:https://{name}.github.io:443" for name in "abc"),
    ]


SHARED = (
    *("amazonaws.com", "us-east-1.amazonaws.com", "core.windows.net", "googleusercontent.com", "nip.io"),
    *("storage.googleapis.com", "s3.amazonaws.com"),
)


def test_hosts_of_different_owners_are_never_generalised() -> None:
    recording(touches(*(f"network:https:get@{one}.{domain}:443" for one in "abc" for domain in SHARED)))
    assert "*" not in document("--generalise-hosts")["text"]


def test_refused_uses_are_not_taken_up() -> None:
    recording([*touches("fs:read:/etc/login.defs"), *touches("fs:read:/etc/shells", outcome="refused")])
    found = document()
    assert found["added"] == ["fs:read:/etc/login.defs"]
    assert found["refused"] == 1
    assert "not taken up: 1 that were refused" in run("learn").stdout


def test_only_so_many_sensitive_lines_are_written() -> None:
    recording(touches(*(f"fs:delete:$W/d{number}/x" for number in range(60))))
    first = document("--write")
    assert sum("a delete" in line for line in first["text"].splitlines()) == 50
    assert first["notes"][0] == "10 more sensitive lines are not written: --json lists them"
    assert len([line for line in first["lines"] if line["kind"] == "sensitive"]) == 60
    assert not document()["changed"]


def test_a_link_to_a_policy_stays_a_link() -> None:
    recording(touches("fs:read:/etc/login.defs"))
    Path("real.yaml").write_text("agent: x\n")
    Path("licet.yaml").symlink_to("real.yaml")
    run("learn", "--write")
    assert Path("licet.yaml").is_symlink()
    assert "/etc/login.defs" in Path("real.yaml").read_text()


# The tools of a gate or a gateway -------------------------------------------------------------------------------------

AGENT = """\
agent: desk
tools:
  look: {needs: ["fs:read:${workdir}/notes"], effect: read_only, sandbox: restricted}
  save: {needs: ["fs:write:${workdir}/out"], effect: write_limited, sandbox: restricted}
  pay: {needs: ["secret:read:bank"], effect: read_only, sandbox: restricted}
  wipe: {needs: [], effect: destructive, sandbox: restricted}
  idle: {needs: [], effect: read_only, sandbox: restricted}
bundles: {extra: {tools: [more], sandbox: restricted, side_effect_class: read_only}}
capabilities:
  tools: [idle]
"""


def test_tools_that_were_called_are_proposed_with_what_they_need() -> None:
    Path("desk.yaml").write_text(AGENT)
    calls = touches(*(f"tool:call:{name}" for name in ("look", "save", "pay", "wipe", "more")), "fs:read:$W/notes/a")
    path = recording(calls, source="gateway", command=(), agent="desk", manifest="desk.yaml")
    found = document(str(path), "--write")
    assert found["file"] == "desk.yaml"
    assert found["added"] == [
        "fs:read:${workdir}/notes",
        "fs:write:${workdir}/out",
        "tool:call:look",
        "tool:call:save",
        "tool:call:pay",
        "tool:call:wipe",
    ]
    assert [line["why"] for line in found["lines"] if line["kind"] == "sensitive"] == [
        "it needs secret:read:bank: a secret",
        "its class is destructive",
    ]
    assert found["left_out"] == [
        {"use": "tool:call:more", "why": "it is in the bundle `extra`: assign that under `bundles`"}
    ]
    assert found["unused"] == [{"rule": "tool:call:idle", "place": "desk.yaml:10:11"}]
    assert sorted(load_manifest("desk.yaml").admissions) == ["idle", "look", "save"]
    run("check", "desk.yaml")
    assert not document(str(path))["changed"]


# Mistakes -------------------------------------------------------------------------------------------------------------


def test_without_recordings_it_says_how_to_make_one() -> None:
    assert "licet observe -- CMD" in run("learn", code=1).stderr


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "1.jsonl: it is empty"),
        (b"{}\n", "1.jsonl:1: this is no recording"),
        (b"START\n[]\n", "1.jsonl:2: Expected `object`"),
        (
            b'START\n{"time":1,"call":"c","tool":"t","use":"fs:read:/x","count":-5}\n',
            "1.jsonl:2: Expected `int` >= 0 - at `$.count`",
        ),
        (b'START\n{"time":1,"call":"c","tool":"t","use":"fs:read:x"}\n', "1.jsonl:2: `fs:read:x` is no use"),
    ],
)
def test_a_bad_recording_is_refused(content: bytes, said: str) -> None:
    path = recording([])
    path.write_bytes(content.replace(b"START", recording_line(start()).strip()))
    assert said in run("learn", code=1).stderr
    assert said in json.loads(run("learn", "--json", code=1).stdout)["error"]


def test_a_line_that_was_not_completed_is_left_out() -> None:
    path = recording(touches("fs:read:/etc/login.defs"))
    path.write_bytes(path.read_bytes() + b'{"time":1,"ca')
    said = run("learn", "--json")
    assert "is incomplete" in said.stderr
    assert "/etc/login.defs" in json.loads(said.stdout)["policies"][0]["text"]


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("licet.yaml", "agent: x\ncapabilities: {fs_reach: {read: [relative]}}\n", "licet.yaml:2:34: error"),
        ("licet.yaml", "bundles: {}\n", "a workspace without an agent"),
        ("other.json", '{"agent": "x", "capabilities": {}}', "JSON, which has no comments"),
    ],
)
def test_a_policy_that_cannot_be_extended_is_left_alone(name: str, content: str, said: str) -> None:
    recording(touches("fs:read:/etc/login.defs"), manifest=name)
    Path(name).write_text(content)
    assert said in run("learn", "--write", code=1).stderr
    assert Path(name).read_text() == content


ALIASES = "agent: x\ncapabilities:\n  fs_reach:\n    read: &r\n      - /srv/a\n    write: *r\n"


def test_a_policy_with_aliases_is_left_alone() -> None:
    recording(touches("fs:read:/etc/login.defs", "fs:write:/srv/x"))
    Path("licet.yaml").write_text(ALIASES)
    said = run("learn", "--write", code=1).stderr
    assert "line 4 has the anchor or alias `r`: write out what the alias stands for" in said
    assert Path("licet.yaml").read_text() == ALIASES


# A recording is not believed ------------------------------------------------------------------------------------------


def test_the_home_of_a_recording_does_not_hide_the_real_one() -> None:
    recording(touches(f"fs:read:{HOME}/.bash_history", "fs:read:/root/.bash_history"), home="/nonexist")
    assert {line["kind"] for line in document()["lines"]} == {"sensitive"}


@pytest.mark.parametrize(
    ("fields", "use", "said"),
    [
        ({"home": "/srv/other"}, "fs:read:/srv/other/notes", "made with the home /srv/other, which is /home/somebody"),
        ({"workdir": "/srv/other"}, "fs:read:/srv/other/notes", "made with the directory /srv/other, which is"),
        ({"workdir": "/srv/other"}, "process:exec:/srv/other/run", "made with the directory /srv/other, which is"),
    ],
)
def test_a_recording_of_another_home_or_directory_is_refused(fields: dict[str, str], use: str, said: str) -> None:
    recording(touches(use), **fields)
    assert said in run("learn", "--write", code=1).stderr
    assert not Path(".licet").exists()


def test_rules_that_name_neither_are_the_same_everywhere() -> None:
    recording(touches("fs:read:/etc/login.defs", f"fs:read:{HOME}/notes"), home="/srv/other", workdir="/srv/w")
    assert document()["added"] == ["fs:read:/etc/login.defs", "fs:read:~/notes"]


@pytest.mark.parametrize("source", ["program", "gate", "gateway"])
@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        (".envrc", None, "which is not there"),
        ("new.yaml", None, "which is not there"),
        (".envrc", "", "must end with .yaml or .yml"),
        ("compose.yaml", "services: {}\n", "error"),
        ("link.yaml", "LINK", "must end with .yaml or .yml"),
    ],
)
def test_only_a_policy_that_is_there_is_taken_from_a_recording(
    source: str, name: str, content: str | None, said: str
) -> None:
    place = Path(name).absolute()
    if content == "LINK":
        Path("script").write_text("agent: x\n")
        place.symlink_to("script")
    elif content is not None:
        place.write_text(content)
    recording(touches("fs:read:/etc/login.defs"), source=source, manifest=str(place))
    assert said in run("learn", "--write", code=1).stderr
    assert (place.read_text() if place.exists() else None) == ("agent: x\n" if content == "LINK" else content)


def test_no_other_file_than_yaml_is_written() -> None:
    recording(touches("fs:read:/etc/login.defs"))
    assert "must end with" in run("learn", "--write", "--manifest", ".envrc", code=1).stderr
    assert not Path(".envrc").exists()


@pytest.mark.parametrize("source", ["program", "gate", "gateway"])
def test_tools_are_checked_whatever_a_recording_says_that_it_is(source: str) -> None:
    Path("licet.yaml").write_text(AGENT)
    recording(touches("tool:call:pay", "tool:call:wipe"), source=source)
    assert {line["rule"]: line["kind"] for line in document()["lines"]} == {
        "tool:call:pay": "sensitive",
        "tool:call:wipe": "sensitive",
    }


# Repositories ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "there",
    [(".git/",), (".git",), ("a/b/.git/",), ("store/HEAD", "store/objects/", "store/refs/")],
    ids=["directory", "link", "deep", "bare"],
)
def test_a_directory_with_a_repository_is_written_as_a_whole_only_to_make_files(
    here: Path, there: tuple[str, ...]
) -> None:
    recording(touches(*(f"fs:write:$W/{name}" for name in ("x", "y", "z"))))
    for name in ("x", "y", "z"):
        Path(name).touch()
    for name in there:
        (here / name).parent.mkdir(parents=True, exist_ok=True)
        (here / name).mkdir() if name.endswith("/") else (here / name).touch()
    found = document()
    kinds = {line["rule"]: line["kind"] for line in found["lines"]}
    assert kinds == {f"fs:write:${{workdir}}/{name}": "allow" for name in ("x", "y", "z")}
    Path("z").unlink()  # the next run makes it again; the repository stays closed
    kinds = {line["rule"]: line["kind"] for line in document()["lines"]}
    repository = there[0].rstrip("/") if ".git" in there[0] else "store"
    assert kinds == {
        "fs:read:${workdir}/z": "allow",
        "fs:write:${workdir}": "allow",
        f"fs:write:${{workdir}}/{repository}": "deny",
        **({f"fs:write:${{workdir}}/{there[0].partition('/')[0]}": "deny"} if there[0][0] != "." else {}),
    }


def test_files_of_a_repository_of_any_name_are_left_to_a_person(here: Path) -> None:
    for name in ("store.git/objects", "store.git/refs", "store.git/hooks"):
        (here / name).mkdir(parents=True)
    (here / "store.git/HEAD").touch()
    recording(touches("fs:write:$W/store.git/hooks/update", "fs:write:$W/store.git/config"))
    assert {line["kind"] for line in document()["lines"]} == {"sensitive"}


def test_recordings_of_different_directories_are_not_mixed() -> None:
    recording([], name="1.jsonl")
    recording([], name="2.jsonl", workdir="/srv/elsewhere")
    assert "different directories" in run("learn", code=1).stderr


def test_a_bad_agent_is_a_usage_error() -> None:
    run("learn", "--agent", "a b", code=2)


# The result -----------------------------------------------------------------------------------------------------------

NAMES = st.sampled_from(["a", "b", "c", "d", ".env", "id_rsa", "sp ace"])
PATHS = st.builds(
    lambda root, parts: "/".join([root, *parts]),
    st.sampled_from(["$W", "$W/src", "/srv/data", HOME, "/etc"]),
    st.lists(NAMES, max_size=2),
)
GENERATED = st.lists(
    st.one_of(
        st.builds("fs:{}:{}".format, st.sampled_from(["read", "write", "delete"]), PATHS),
        st.builds(
            "network:https:{}@{}:443".format, st.sampled_from(["get", "post"]), st.sampled_from(["x.org", "10.1.1.1"])
        ),
        st.sampled_from(["process:exec:/usr/bin/git", "network:tcp:x.org:22"]),
    ),
    max_size=15,
)


@given(GENERATED)
@settings(max_examples=300 if LONG else 10, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_the_policy_that_is_written_allows_what_was_used_and_nothing_sensitive(uses: list[str]) -> None:
    target = Path("generated.yaml")
    target.unlink(missing_ok=True)
    path = recording(touches(*uses))
    found = document(str(path), "--manifest", str(target), "--write")
    where = Whereabouts(os.getcwd(), HOME)
    manifest = with_commands(load_manifest(target).expand(where.workdir, where.home))
    reach = reach_of(manifest, COMMANDS)
    assert reach is not None
    used = {use_of_text(use.replace("$W", where.workdir)) for use in uses if not use.startswith("process:")}
    directories = above_each(use.target.rpartition("/")[0] for use in used if use.domain == "fs")
    sensitive = {use for use in used if why_sensitive(use, where, directories)}
    assert [str(use) for use in used - sensitive if not reach.grant.has(use)] == found["still_refused"] == []
    assert [str(use) for use in sensitive if reach.grant.has(use)] == []
    assert not document(str(path), "--manifest", str(target))["changed"]


@needs_namespaces
def test_the_same_run_passes_under_the_policy(here: Path, tmp_path: Path) -> None:
    (here / "src").mkdir()
    for name in "abc":
        (here / "src" / name).write_text(f"{name}\n")
    recording(
        touches("process:exec:/usr/bin/cat", "fs:read:$W/src/a", "fs:read:$W/src/b", "fs:read:$W/src/c"),
        command=("cat", "src/a", "src/b", "src/c"),
    )
    (here / "out").mkdir()
    recording(
        touches("fs:write:$W/out/tmp1234", "fs:write:$W/out/kept"),
        command=("sh", "-c", "…"),
        name="2.jsonl",
    )
    (here / "out" / "kept").touch()
    found = document("--manifest", "agent.yaml", "--write")
    assert ("fs:write:${workdir}/out" in found["added"], found["notes"]) == (True, [])
    environment = {**os.environ, "XDG_STATE_HOME": str(tmp_path / "state")}
    text = Path("agent.yaml").read_text()
    Path("agent.yaml").write_text(f"{text}  approvals: {{write: manifest}}\n")  # so that nobody is asked
    trust(here / "agent.yaml", tmp_path / "state")
    for command in (
        ["cat", "src/a", "src/b", "src/c"],
        ["sh", "-c", "echo 1 > out/kept; echo 2 > out/tmp5678; cat src/a"],
    ):
        said = warm.run(warm.PROGRAM, ["run", "agent.yaml", "--", *command], cwd=here, env=environment, stdin="")
        assert (said.returncode, said.stdout[:2]) == (0, "a\n"), said.stderr
    assert (here / "out" / "tmp5678").read_text() == "2\n"


def test_files_that_may_hold_secrets_are_denied_in_a_directory_that_was_listed(here: Path) -> None:
    (here / ".env").write_text("TOKEN=x")
    (here / "config").mkdir()
    (here / "config" / "server.key").write_text("x")
    recording(touches("fs:read:$W"))
    run("learn", "--write")
    policy = yaml.safe_load((here / ".licet" / "licet.yaml").read_text())
    assert policy["capabilities"]["fs_reach"]["read"] == ["${workdir}"]
    assert policy["capabilities"]["deny"] == ["fs:*:${workdir}/.env", "fs:*:${workdir}/config/server.key"]


# Lines that make names, other ones each time, as real programs do; the second is what a person has to agree to.
PROGRAMS = {
    "redirects": ("echo $$ > out.txt; mkdir -p build/deep; echo 1 > build/deep/$$", False),
    "a script": ("printf '#!/bin/sh\\necho ran > ran.txt\\n' > s.sh; chmod +x s.sh; ./s.sh", False),
    "sed -i": ("echo 1 > kept.txt; sed -i s/1/2/ kept.txt; cat kept.txt", True),
    "temporary files": ("t=$(mktemp); echo 1 > $t; cp $t copy.$$; rm $t copy.$$", True),
    "python": ('/usr/bin/python3 -c \'import m; open("o", "w").write(str(m.a))\'', False),
    "git": ("git -c user.name=a -c user.email=a@b commit -q --allow-empty -m x; git log --oneline | wc -l", True),
}


@needs_namespaces
@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.sampled(1)
def test_what_was_observed_runs_again_under_what_was_learned(here: Path, tmp_path: Path, name: str) -> None:
    line, agreed = PROGRAMS[name]
    environment = {**os.environ, "XDG_STATE_HOME": str(tmp_path / "state"), "HOME": str(tmp_path)}
    subprocess.run(["git", "init", "-q"], check=True)
    (here / "m.py").write_text("a = 1\n")
    before = {path.name for path in here.iterdir()}

    def licet(*words: str) -> subprocess.CompletedProcess[str]:
        return warm.run(warm.PROGRAM, list(words), cwd=here, env=environment, stdin="")

    def again() -> None:
        for path in here.iterdir():
            if path.name not in before:
                shutil.rmtree(path) if path.is_dir() else path.unlink()

    observed = licet("observe", "--", "sh", "-c", line)
    assert observed.returncode == 0, observed.stderr
    again()
    before.add(".licet")
    assert licet("learn", "--write").returncode == 0
    policy = here / ".licet" / "licet.yaml"
    document = yaml.safe_load(text := policy.read_text())
    assert document["capabilities"]["process"]["allowed_binaries"] == ["sh"]
    extra = "  approvals: {write: manifest}\n"
    if agreed:
        text = re.sub(r"^(\s*)# (grants:|- \")", r"\1\2", text, flags=re.MULTILINE).replace("write_limited", "full")
        text = text.replace("class: read_only", "class: full")
        extra = "  approvals: {write: manifest, delete: session}\n  budget: {max_calls_per_day: 10}\n"
        extra = extra if "max_side_effect_class" in text else f"  max_side_effect_class: full\n{extra}"
    policy.write_text(text + extra)
    trust(policy, tmp_path / "state")
    if agreed and (asked := re.search(r"licet approvals approve (a-\w+)", licet("run", "--", "sh", "-c", line).stderr)):
        assert licet("approvals", "approve", asked[1], "--yes").returncode == 0
    for _ in range(2):
        again()
        ended = licet("run", "--", "sh", "-c", line)
        assert (ended.returncode, ended.stderr) == (0, ""), text
