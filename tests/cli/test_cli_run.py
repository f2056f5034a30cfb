"""`licet run`: the input of the command, its exit code, and what is printed on which stream."""

import json
import os
import re
import subprocess
import sys
import venv
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import warm
from attacks.walled_programs import needs_namespaces, needs_walls
from cli.messages import message
from licet.backends.ledger.reader import LedgerReader
from licet.backends.memory import Answer
from licet.cli.app import licet as program
from licet.errors import LicetError
from loopback import serving
from pins import trust

pytestmark = needs_walls

MANIFEST: dict[str, Any] = {
    "agent": "runner",
    "tools": {
        "look": {"needs": ["fs:read:${workdir}/in", "process:exec:cat"], "effect": "read_only", "sandbox": "isolated"}
    },
    "capabilities": {
        "tools": ["look"],
        "max_side_effect_class": "write_limited",
        "fs_reach": {"read": ["${workdir}"], "write": ["${workdir}/out"]},
        "process": {"allowed_binaries": ["sh", "cat", "curl"]},
        "env": ["LICET_TEST"],
        "approvals": {"write": "manifest"},
        "sandbox": {"allow_degraded": True},  # so that machines without namespaces run this too
    },
}


@pytest.fixture
def desk(tmp_path: Path) -> Path:
    """A directory with a manifest, something to read, and somewhere to write."""
    for name in ("in", "out"):
        (tmp_path / name).mkdir()
    (tmp_path / "in" / "file").write_text("granted\n")
    (tmp_path / "secret").write_text("beside\n")
    (tmp_path / "agent.yaml").write_text(json.dumps(MANIFEST))
    return tmp_path


def licet(
    desk: Path, *words: str, stdin: str = "", env: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "XDG_STATE_HOME": str(desk / "state"), **(env or {})}
    with suppress(LicetError, OSError):  # a policy with errors cannot be trusted
        trust(desk / words[0], Path(environment["XDG_STATE_HOME"]))
    return warm.run(warm.PROGRAM, ["run", *words], cwd=desk, env=environment, stdin=stdin)


def test_output_input_and_code_are_those_of_the_command(desk: Path) -> None:
    ended = licet(desk, "agent.yaml", "--", "sh", "-c", "cat; cat in/file; echo oh >&2; exit 7", stdin="given\n")
    assert (ended.returncode, ended.stdout, ended.stderr) == (7, "given\ngranted\n", "oh\n")


def test_streams_that_are_closed_lead_nowhere_and_to_nothing_of_ours(desk: Path) -> None:
    # The next opened file would get the number of a closed stream, and so go to the command.
    command = [
        sys.executable,
        "-c",
        "from licet.cli import program; program()",
        "run",
        "agent.yaml",
        "--",
        "sh",
        "-c",
    ]
    command.append("cat && echo end; echo to nobody >&2")
    trust(desk / "agent.yaml", desk / "state")
    ended = subprocess.run(
        ["sh", "-c", 'exec "$@" <&- 2>&-', "sh", *command],
        cwd=desk, env={**os.environ, "XDG_STATE_HOME": str(desk / "state")},
        stdout=subprocess.PIPE, text=True, timeout=600, check=False,
    )  # fmt: skip
    assert (ended.returncode, ended.stdout) == (128 + 13, "end\n")  # SIGPIPE: its reader is gone


def test_it_starts_in_the_working_directory_of_which_only_parts_are_held(desk: Path) -> None:
    capabilities = {**MANIFEST["capabilities"], "fs_reach": {"read": ["${workdir}/in"]}}
    (desk / "part.yaml").write_text(json.dumps({**MANIFEST, "capabilities": capabilities}))
    ended = licet(desk, "part.yaml", "--", "sh", "-c", "pwd; cat in/file; cat secret")
    assert ended.stdout == f"{desk.resolve()}\ngranted\n"
    assert ended.returncode != 0


def test_a_signal_has_a_code_too(desk: Path) -> None:
    assert licet(desk, "agent.yaml", "--", "sh", "-c", "kill -TERM $$").returncode == 128 + 15


def test_it_reaches_what_the_manifest_allows_and_nothing_else(desk: Path) -> None:
    line = "echo a > out/new; echo b > in/new; cat /etc/hostname; echo $LICET_TEST $LICET_OTHER"
    ended = licet(desk, "agent.yaml", "--", "sh", "-c", line, env={"LICET_TEST": "declared", "LICET_OTHER": "no"})
    assert (desk / "out" / "new").read_text() == "a\n"
    assert not (desk / "in" / "new").exists()
    assert ended.stdout == "declared\n"


def test_options_after_the_dashes_belong_to_the_command(desk: Path) -> None:
    assert (
        licet(desk, "agent.yaml", "--", "sh", "-c", 'echo "$@"', "sh", "--json", "--", "--help").stdout
        == "--json -- --help\n"
    )


def test_a_tool_holds_less_than_the_manifest(desk: Path) -> None:
    assert licet(desk, "agent.yaml", "--", "cat", "secret").stdout == "beside\n"
    ended = licet(desk, "agent.yaml", "--tool", "look", "--", "cat", f"{desk}/in/file", f"{desk}/secret")
    assert (ended.returncode, ended.stdout) == (1, "granted\n")
    assert licet(desk, "agent.yaml", "--tool", "look", "--", "sh", "-c", "true").returncode == 125


ASKED = {  # with no host allowed: what is asked for, and the use that is refused and recorded
    "a plain request": ("http://127.0.0.2:9/", "network:http:get@127.0.0.2:9"),
    "a tunnel": ("https://example.test/", "network:tcp:example.test:443"),
}


@needs_namespaces
@pytest.mark.parametrize(("url", "use"), ASKED.values(), ids=ASKED.keys())
def test_a_host_is_named_also_where_none_is_allowed(desk: Path, url: str, use: str) -> None:
    ended = licet(desk, "agent.yaml", "--", "curl", "-sS", "-f", url)
    assert ended.returncode in (22, 56), ended.stderr
    assert f"licet: refused {use}" in ended.stderr
    receipt = re.search(r"licet receipts show (r-\S+)", ended.stderr)
    assert receipt is not None
    shown = [*warm.licet(), "receipts", "show", receipt[1], "--json"]
    environment = {**os.environ, "XDG_STATE_HOME": str(desk / "state")}
    told = subprocess.run(shown, cwd=desk, env=environment, capture_output=True, text=True, check=False)
    assert f'"{use}"' in told.stdout, told.stderr


@needs_namespaces
@pytest.mark.parametrize(("line", "imported"), [("true", False), ("curl -s http://127.0.0.2:9/; true", True)])
def test_the_proxy_is_made_when_a_program_connects(desk: Path, line: str, imported: bool) -> None:
    # Most programs never do, and to import it takes a tenth of the time of a short run.
    state = desk / "state"
    trust(desk / "agent.yaml", state)
    shown = [sys.executable, "-X", "importtime", "-m", "licet", "run", "agent.yaml", "--", "sh", "-c", line]
    environment = {**os.environ, "XDG_STATE_HOME": str(state)}
    ended = subprocess.run(shown, cwd=desk, env=environment, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    assert ("licet.sandbox.programs.walls" in ended.stderr, "licet.sandbox.programs.proxy" in ended.stderr) == (
        True,
        imported,
    )


REFUSED = {
    "a program that is not allowed": (("agent.yaml", "--", "ls"), "process:exec:ls", 125),
    "a program that is not there": (("agent.yaml", "--", "curl-of-nobody"), "process:exec:curl-of-nobody", 125),
    "no manifest": (("none.yaml", "--", "cat"), "none.yaml:1:1", 125),
    "a tool that nobody knows": (("agent.yaml", "--tool", "other", "--", "cat"), "knows no tool `other`", 2),
    "no command": (("agent.yaml",), "expected a command after `--`", 2),
    "nothing after the dashes": (("agent.yaml", "--"), "expected a command after `--`", 2),
}


@pytest.mark.parametrize(("words", "said", "code"), REFUSED.values(), ids=REFUSED.keys())
@pytest.mark.sampled(3)
def test_a_refusal_is_explained_on_stderr(desk: Path, words: tuple[str, ...], said: str, code: int) -> None:
    ended = licet(desk, *words)
    assert (ended.returncode, ended.stdout) == (code, "")
    assert said in ended.stderr


def test_writes_that_nobody_approved(desk: Path) -> None:
    manifest = {**MANIFEST, "capabilities": {**MANIFEST["capabilities"], "approvals": {"write": "session"}}}
    (desk / "agent.yaml").write_text(json.dumps(manifest))
    ended = licet(desk, "agent.yaml", "--", "sh", "-c", "echo ran")
    assert (ended.returncode, ended.stdout) == (125, "")
    assert "to settle it" in ended.stderr


def test_json_goes_to_stderr_and_leaves_stdout_to_the_command(desk: Path) -> None:
    ended = licet(desk, "agent.yaml", "--json", "--", "sh", "-c", "echo hi; exit 3")
    document = json.loads(ended.stderr)
    assert (ended.returncode, ended.stdout) == (3, "hi\n")
    assert (document["exit_code"], document["ok"], document["timed_out"]) == (3, True, False)
    assert "process:exec:sh" in [event["capability"] for event in document["events"]]
    refused = licet(desk, "agent.yaml", "--json", "--", "ls")
    assert json.loads(refused.stderr)["reason"] == "BINARY_NOT_ALLOWED"


def test_a_limit_that_ends_the_command_is_reported(desk: Path) -> None:
    manifest = {**MANIFEST, "capabilities": {**MANIFEST["capabilities"], "limits": {"cpu_seconds": 1}}}
    (desk / "agent.yaml").write_text(json.dumps(manifest))
    ended = licet(desk, "agent.yaml", "--", "sh", "-c", "while :; do :; done")
    assert ended.returncode in (128 + 24, 128 + 9)
    assert "LIMIT_CPU, `limits.cpu_seconds`" in ended.stderr


def with_capabilities(desk: Path, **more: Any) -> None:
    (desk / "agent.yaml").write_text(json.dumps({**MANIFEST, "capabilities": {**MANIFEST["capabilities"], **more}}))


def test_a_command_can_run_without_a_time_limit_unless_the_policy_states_one(desk: Path) -> None:
    line = ("--no-time-limit", "--", "sh", "-c", "sleep 100000 & sleep 100000")
    with_capabilities(desk, limits={"wall_seconds": 1})
    assert licet(desk, "agent.yaml", *line).returncode == 124
    with_capabilities(desk)
    shown = licet(desk, "agent.yaml", "--no-time-limit", "--json", "--", "sh", "-c", "exit 3")
    assert (shown.returncode, json.loads(shown.stderr)["timed_out"]) == (3, False)


def test_session_and_state_are_those_that_were_named(desk: Path) -> None:
    words = ("agent.yaml", "--state", "kept", "--session", "s-7", "--purpose", "to try it", "--", "sh", "-c", "true")
    assert licet(desk, *words).returncode == 0
    with LedgerReader(desk / "kept" / "ledger.sqlite") as reader:
        assert {(row.session, row.kind) for row in reader.list()} >= {("s-7", "receipt")}
    refused = licet(desk, "agent.yaml", "--session", "no spaces", "--", "sh", "-c", "true")
    assert refused.returncode == 2


VENV_SCRIPT = "#!{python}\nimport sys\nprint(sys.prefix, *sys.argv[1:])\n"


@needs_namespaces
def test_a_link_to_the_file_of_secrets_in_a_granted_directory_is_as_closed_as_the_file(desk: Path) -> None:
    (desk / "in" / "real.env").write_text("KEY=hunter2\n")
    (desk / "in" / "real.env").chmod(0o600)
    (desk / "in" / "link.env").symlink_to("real.env")
    (desk / "out" / "link.env").symlink_to("../in/link.env")
    for secrets in ("in/link.env", "out/link.env"):
        line = "cat in/file; cat in/*.env out/*.env; echo KEY=evil > out/link.env"
        ended = licet(desk, "agent.yaml", "--secrets", secrets, "--", "sh", "-c", line)
        assert ended.stdout == "granted\n", ended.stderr
        assert "hunter2" not in ended.stderr
        assert os.readlink(desk / "out" / "link.env") == "../in/link.env"
        assert (desk / "in" / "real.env").read_text() == "KEY=hunter2\n"


def test_a_file_of_secrets_that_the_command_reaches_is_warned_of(desk: Path) -> None:
    """It is closed, and shows for a moment when an editor outside replaces it."""
    for place in (desk / "in", desk, desk.parent):
        (place / "keys.env").write_text("KEY=hunter2\n")
        (place / "keys.env").chmod(0o600)
    (desk / "link.env").symlink_to("in/keys.env")
    (desk / "in" / "link.env").symlink_to("../keys.env")
    with_capabilities(desk, fs_reach={"read": ["${workdir}/in"], "write": ["${workdir}/out"]})
    for name, warned in {
        "in/keys.env": True,
        "link.env": True,
        "in/link.env": True,
        "keys.env": False,
        "../keys.env": False,
    }.items():
        said = licet(desk, "agent.yaml", "--secrets", name, "--", "sh", "-c", "true").stderr
        line = f"licet: --secrets {name} is in a directory that the command reaches: an editor outside that saves it"
        assert said == (f"{line} shows it for a moment; move it elsewhere\n" if warned else "")


def test_scripts_and_interpreters_of_virtual_environments_are_started(desk: Path) -> None:
    venv.create(desk / "env", with_pip=False)
    python = desk / "env" / "bin" / "python"
    for name, text in (
        ("plain.sh", "#!/bin/sh\necho plain $1\n"),
        ("env/bin/tool", VENV_SCRIPT.format(python=python)),
        ("lost", "#!/nowhere/python3\n"),
        ("other", "#!/nowhere/interpreter\n"),
    ):
        (desk / name).write_text(text)
        (desk / name).chmod(0o755)
    names = ["plain.sh", "env/bin/tool", "env/bin/python", "lost", "other"]
    binaries = {"allowed_binaries": [f"${{workdir}}/{name}" for name in names]}
    with_capabilities(desk, process=binaries, fs_reach={"read": ["${workdir}/in"]})
    assert licet(desk, "agent.yaml", "--", "./plain.sh", "x").stdout == "plain x\n"
    assert licet(desk, "agent.yaml", "--", "env/bin/tool", "x").stdout == f"{desk}/env x\n"
    line = licet(desk, "agent.yaml", "--", "env/bin/python", "-c", "import sys; print(sys.prefix)")
    assert line.stdout == f"{desk}/env\n"
    for name, said in (("lost", "`/nowhere/python3` is no interpreter"), ("other", "`/nowhere/interpreter`, which is")):
        ended = licet(desk, "agent.yaml", "--", f"./{name}")
        assert ended.returncode == 125
        assert said in ended.stderr


# A script that is found by name on PATH gets the path that the kernel would pass to its interpreter.
ON_PATH = {
    "of a shell": ("#!/bin/sh\necho $0 $1\n", False),
    "of a virtual environment": ("#!{python}\nimport sys\nprint(sys.argv[0], sys.argv[1])\n", False),
    "by a link": ("#!/bin/sh\necho $0 $1\n", True),
}


@pytest.mark.parametrize("case", ON_PATH)
@pytest.mark.parametrize("readable", [True, False])
@pytest.mark.sampled(3)
def test_a_script_on_the_path_gets_its_own_path(desk: Path, case: str, readable: bool) -> None:
    text, linked = ON_PATH[case]
    venv.create(desk / "env", with_pip=False)
    binaries, target = desk / "env" / "bin", desk / "env" / ("target" if linked else "bin/tool")
    target.write_text(text.format(python=binaries / "python"))
    target.chmod(0o755)
    if linked:
        (binaries / "tool").symlink_to(target)
    read = ["${workdir}/env"] if readable else ["${workdir}/in"]
    with_capabilities(desk, process={"allowed_binaries": ["tool"]}, fs_reach={"read": read})
    ended = licet(desk, "agent.yaml", "--", "tool", "x", env={"PATH": f"{binaries}:{os.environ['PATH']}"})
    shown = binaries / "tool" if readable else target
    assert (ended.stdout, ended.stderr) == (f"{shown} x\n", "")


def test_a_first_line_that_a_tool_may_write_opens_no_environment(desk: Path) -> None:
    """A tool could name any interpreter there, and so choose what can be read."""
    venv.create(desk / "env", with_pip=False)
    (desk / "env" / "secret").write_text("kept")
    script = desk / "out" / "tool"
    script.write_text(f"#!{desk}/env/bin/python\nprint(open({str(desk / 'env' / 'secret')!r}).read())\n")
    script.chmod(0o755)
    with_capabilities(
        desk, process={"allowed_binaries": ["${workdir}/out/tool"]}, fs_reach={"write": ["${workdir}/out"]}
    )
    assert "kept" not in licet(desk, "agent.yaml", "--", "out/tool").stdout


def test_settings_of_an_environment_that_a_tool_may_write_open_nothing(desk: Path) -> None:
    """An environment of copies says in `pyvenv.cfg` where its Python is. A tool could name any directory there."""
    venv.create(desk / "env", with_pip=False)
    secret, script = desk / "lib" / "python3" / "os.py", desk / "script"
    secret.parent.mkdir(parents=True)
    secret.write_text("kept")
    (desk / "bin").mkdir()
    (desk / "env" / "pyvenv.cfg").write_text(f"home = {desk}/bin\n")
    script.write_text(f"#!{desk}/env/bin/python\nprint(open({str(secret)!r}).read())\n")
    script.chmod(0o755)
    reach = {"write": ["${workdir}/env/pyvenv.cfg"]}
    with_capabilities(desk, process={"allowed_binaries": ["${workdir}/script"]}, fs_reach=reach)
    assert "kept" not in licet(desk, "agent.yaml", "--", "./script").stdout


def test_time_is_limited(desk: Path) -> None:
    manifest = {**MANIFEST, "capabilities": {**MANIFEST["capabilities"], "limits": {"wall_seconds": 1}}}
    (desk / "agent.yaml").write_text(json.dumps(manifest))
    ended = licet(desk, "agent.yaml", "--", "sh", "-c", "sleep 100000 & sleep 100000")  # neither is waited for
    assert ended.returncode == 124
    assert message("run.longer_than_limits_wall_seconds") in ended.stderr


@needs_namespaces
def test_requests_go_through_the_proxy(desk: Path) -> None:
    with serving(lambda _: Answer(200, (), b"a page")) as server:
        allowed = {"destinations": {"allow": [f"127.0.0.1:{server.port}"]}}
        manifest = {**MANIFEST, "capabilities": {**MANIFEST["capabilities"], **allowed}}
        (desk / "agent.yaml").write_text(json.dumps(manifest))
        url = f"http://127.0.0.1:{server.port}/"
        line = f"curl -sS {url}; echo; curl -sS http://evil.test/; curl -sS --noproxy '*' -m 2 {url}"
        ended = licet(desk, "agent.yaml", "--", "sh", "-c", line)
        assert server.connections == 1
    assert ended.stdout.splitlines()[0] == "a page"
    assert "HOST_NOT_ALLOWED: evil.test" in ended.stdout
    *_, refused, receipt = ended.stderr.splitlines()
    assert re.fullmatch(message("run.licet_refused_network_http_get"), refused)
    assert re.fullmatch(message("run.licet_all_was_checked_licet"), receipt)


@needs_namespaces
def test_many_refusals_are_listed_up_to_a_limit_and_then_counted(desk: Path) -> None:
    allowed = {"destinations": {"allow": ["api.example"]}}  # without a rule for the network there is no proxy
    (desk / "agent.yaml").write_text(json.dumps({**MANIFEST, "capabilities": {**MANIFEST["capabilities"], **allowed}}))
    send = "curl -sS http://$n.evil.test/ http://$n.evil.test/"
    line = f"for n in 1 2 3 4 5 6 7 8 9 10 11 12; do {send}; done >out/said; exit 3"
    ended = licet(desk, "agent.yaml", "--", "sh", "-c", line)
    told = [line for line in ended.stderr.splitlines() if line.startswith("licet: ")]
    assert [line.split("@")[1].split(":")[0] for line in told[:-1]] == [f"{n}.evil.test" for n in range(1, 5)]
    assert told[-1].startswith(message("run.licet_more_all_was_checked"))


RECEIPTS = [
    (["sh", "-c", "exit 7"], "none but those around its programs", "; ended with 7"),
    (["ls"], "none, it did not run", None),
]


@pytest.mark.parametrize(("command", "layers", "ended"), RECEIPTS, ids=["ran", "refused"])
@pytest.mark.sampled(1)
def test_a_receipt_tells_of_walls_and_codes_only_where_something_ran(
    desk: Path, command: list[str], layers: str, ended: str | None
) -> None:
    licet(desk, "agent.yaml", "--", *command)
    environment = {**os.environ, "XDG_STATE_HOME": str(desk / "state")}

    def receipts(*words: str) -> str:
        done = warm.run(warm.PROGRAM, ["receipts", *words], cwd=desk, env=environment)
        assert done.returncode == 0, done.stderr
        return done.stdout

    (receipt,) = json.loads(receipts("list", "--json"))["receipts"]
    lines = dict(line.split(maxsplit=1) for line in receipts("show", receipt["id"]).splitlines()[1:])
    assert lines["layers"] == f"isolated: {layers}"
    assert "/licet/assemble/" not in receipts("show", receipt["id"])  # no line of ours
    assert ("programs" in lines) == (ended is not None)
    if ended is not None:
        assert lines["programs"].endswith(ended)


def test_the_event_of_a_tool_without_walls_has_only_its_level(desk: Path) -> None:
    events = json.loads(licet(desk, "agent.yaml", "--json", "--", "sh", "-c", "exit 7").stderr)["events"]
    assert [event["rule"] for event in events if event["kind"] == "SandboxEntered"] == ["isolated"]


def test_a_refusal_names_the_state_option_for_its_receipt(desk: Path) -> None:
    def hints(folder: Path, manifest: str) -> list[str]:
        environment = {"XDG_STATE_HOME": str(desk / "state")}
        ended = licet(folder, manifest, "--", "true", env=environment)
        assert ended.returncode == 125
        return [line for line in ended.stderr.splitlines() if line.startswith("  to see it")]

    assert hints(desk, "agent.yaml") == []
    (hint,) = hints(desk / "in", "../agent.yaml")
    assert re.fullmatch(message("run.see_licet_explain_state_state", desk=desk), hint)


PROGRAM = """
import atexit, threading, time
from licet.cli import main, program
atexit.register(lambda: print("at the end"))
threading.Thread(target=lambda: (time.sleep(0.2), print("thread"))).start()
try:
    {}()
finally:
    print("after it")
"""


@pytest.mark.parametrize("entry", ["program", "main"])
def test_the_process_waits_for_threads_and_exit_handlers(entry: str) -> None:
    command = [sys.executable, "-c", PROGRAM.format(entry), "explain", "--nonsense"]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert "No such option" in ended.stderr
    *before, last = ended.stdout.splitlines()
    assert (ended.returncode, set(before), last) == (2, {"thread", "after it"}, "at the end")


def test_the_receipt_of_a_refused_command_leads_to_its_explanation(desk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(desk)
    monkeypatch.setenv("XDG_STATE_HOME", str(desk / "state"))
    (desk / "other.yaml").write_text("agent: other\ncapabilities: {tools: []}\n")
    said = json.loads(licet(desk, "agent.yaml", "--json", "--", "ls").stderr)
    told = CliRunner().invoke(program, ["explain", said["receipt"]]).stdout
    way = re.search("see `licet explain (agent.yaml run process:exec:ls)`", told)
    assert way is not None, told
    assert "add `ls` under" in CliRunner().invoke(program, ["explain", *way[1].split()]).stdout


@pytest.mark.parametrize(
    ("name", "said"),
    [("nowhere", "not available: `run` was not called"), ("ls", "denied: `run` may not process:exec:ls")],
)
def test_nobody_is_asked_about_a_program_that_cannot_start(desk: Path, name: str, said: str) -> None:
    capabilities = {**MANIFEST["capabilities"], "approvals": {"write": "session"}}
    capabilities["process"] = {"allowed_binaries": ["sh", "nowhere"]}
    (desk / "agent.yaml").write_text(json.dumps({**MANIFEST, "capabilities": {**capabilities, "tools": []}}))
    assert "asks: `run` may be called once a person agrees" in licet(desk, "agent.yaml", "--", "sh").stderr
    ended = licet(desk, "agent.yaml", "--", name)
    assert (ended.returncode, ended.stderr.partition("\n")[0]) == (125, said)


# What a command does, and the hint about it: a part of a line, or nothing where no wall was hit.
HINTS = {
    "it writes what is denied": ("echo x > out/closed", "`{desk}/out/closed` may not be written: `fs:write:"),
    "the line of the rule": ("echo x > out/closed", "is denied (agent.yaml:1)"),
    "it writes what no rule allows": ("echo x > in/new", "`{desk}/in/new` may not be written: no rule allows it"),
    "it deletes": ("rm out/kept", "`{desk}/out/kept` may be written, and not renamed or deleted: the class is"),
    "all that deletes take": ("rm out/kept", "it takes full, `approvals.delete: session` or `manifest`, and a budget"),
    "it writes policy": ("echo x > agent.yaml", "`{desk}/agent.yaml` may not be written: policy files are never"),
    "it fails": ("exit 3", ""),
    "it says that something was refused": ("echo permission denied >&2; exit 1", ""),
    "it says so about what it may do": ("echo \"cannot open 'in/file': Permission denied\" >&2; exit 1", ""),
    "a host refuses it": ("echo 'user@host: Permission denied (publickey).' >&2; exit 255", ""),
    "it succeeds after all": (
        "echo x > in/new; true",
        "licet: it ended with code 0, but its output says that it was refused this",
    ),
    "it succeeds, and says so about what it may do": ("echo \"cannot open 'in/file': Permission denied\" >&2", ""),
    "it succeeds, and names no path": ("echo permission denied >&2", ""),
    "it succeeds": ("cat in/file", ""),
}


@needs_namespaces
@pytest.mark.parametrize("case", HINTS)
@pytest.mark.sampled(4)
def test_a_hint_names_a_wall_that_was_hit(desk: Path, case: str) -> None:
    script, expected = HINTS[case]
    for name in ("closed", "kept"):
        (desk / "out" / name).write_text("x")
    writes = {"read": ["${workdir}"], "write": ["${workdir}/out"]}
    with_capabilities(desk, fs_reach=writes, deny=["fs:write:${workdir}/out/closed"])
    said = licet(desk, "agent.yaml", "--", "sh", "-c", script).stderr
    assert ("its output says that it was refused this" in said) is bool(expected), said
    assert expected.format(desk=desk) in said


@needs_namespaces
def test_a_refusal_for_a_missing_secret_says_how_to_give_it(desk: Path) -> None:
    stand_in = {"DESK_TOKEN": {"secret": "desk/token", "hosts": ["api.example.com"]}}
    with_capabilities(desk, secrets=["desk/token"], inspect=["api.example.com"], stand_ins=stand_in)
    ended = licet(desk, "agent.yaml", "--", "sh", "-c", "true")
    assert ended.returncode == 125
    way = "  to give it    set the variable `DESK__TOKEN`, or write `desk/token=…` into"
    assert f"{way} a file for `--secrets`\n" in ended.stderr
    lacking = desk.parent / "secrets"
    lacking.write_text("other=value\n")
    lacking.chmod(0o600)
    assert f"{way} `{lacking}`\n" in licet(desk, "agent.yaml", "--secrets", str(lacking), "--", "sh").stderr


def test_a_command_that_succeeds_gets_a_few_hints_and_json_gets_none(desk: Path) -> None:
    line = "for name in 1 2 3 4 5 6 7; do echo x > in/$name; done; true"
    ended = licet(desk, "agent.yaml", "--", "sh", "-c", line)
    assert (ended.returncode, ended.stderr.count("\n  - ")) == (0, 4)
    assert "  - " not in licet(desk, "agent.yaml", "--json", "--", "sh", "-c", line).stderr


def test_a_list_of_receipts_has_the_commands(desk: Path) -> None:
    environment = {**os.environ, "XDG_STATE_HOME": str(desk / "state")}
    licet(desk, "agent.yaml", "--", "sh", "-c", "echo between-us")
    licet(desk, "agent.yaml", "--", "ls")
    with_capabilities(desk, record="full")
    licet(desk, "agent.yaml", "--", "sh", "-c", f"echo {'long ' * 20}")
    listed = warm.run(warm.PROGRAM, ["receipts", "list"], cwd=desk, env=environment)
    heading, full, refused, program = listed.stdout.splitlines()
    start, end = heading.index("command"), heading.index("verdict")
    shown = [line[start:end].rstrip() for line in (full, refused, program)]
    assert shown == ["sh -c 'echo long long long long long lo…", "ls", "sh"]  # no arguments, unless they are kept
    found = warm.run(warm.PROGRAM, ["receipts", "list", "--json"], cwd=desk, env=environment)
    commands = [one["command"] for one in json.loads(found.stdout)["receipts"]]
    assert commands == [f"sh -c 'echo {'long ' * 20}'", "ls", "sh"]
    assert "between-us" not in listed.stdout + found.stdout
