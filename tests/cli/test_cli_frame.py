"""The frame of the command line: useful help, commands that are imported late, and every exit code."""

import fcntl
import os
import re
import signal
import subprocess
import sys
import sysconfig
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result

import licet as library
import warm
from cli.messages import message
from kept_calls import make
from licet.cli.app import COMMANDS, FIRST, licet
from licet.cli.diff import _RISKS

SCRIPT = Path(sysconfig.get_path("scripts")) / "licet"
HEAVY = {"cryptography", "httpx2", "jsonschema_rs", "publicsuffixlist", "pydantic", "rich", "yaml"}


def run(*words: str, **environment: str) -> Result:
    return CliRunner().invoke(licet, words, prog_name="licet", env=environment)


def test_the_version_is_the_librarys() -> None:
    result = run("--version")
    assert (result.exit_code, result.stdout) == (0, f"licet {library.__version__}\n")


@pytest.mark.parametrize(
    ("words", "same"), [(["-V"], ["--version"]), (["help"], ["--help"]), (["help", "call"], ["call", "--help"])]
)
def test_other_ways_to_ask_for_help_and_version(words: list[str], same: list[str]) -> None:
    assert run(*words).stdout == run(*same).stdout


def test_the_module_is_the_command_too() -> None:
    said = subprocess.run([sys.executable, "-m", "licet", "--version"], capture_output=True, text=True, check=False)
    assert (said.returncode, said.stdout, said.stderr) == (0, f"licet {library.__version__}\n", "")


@pytest.mark.parametrize("word", ["--help", "-h"])
def test_help_names_the_five_first_commands_in_order_with_an_example_each(word: str) -> None:
    result = run(word)
    assert result.exit_code == 0
    names = [entry.name for entry in FIRST]
    assert names == ["init", "run", "check", "explain", "surface"]
    assert re.findall(r"^  ([a-z]+)  +[a-z]", result.stdout, re.MULTILINE) == list(COMMANDS)
    for entry in COMMANDS.values():
        assert f"$ {entry.example}\n" in result.stdout
        assert entry.example.split()[:2] == ["licet", entry.name]
    assert max(map(len, result.stdout.splitlines())) <= 80


def test_without_a_word_the_help_is_shown_as_a_mistake() -> None:
    result = run()
    assert result.exit_code == 2
    assert "Usage: licet" in result.output


@pytest.mark.sampled(len(COMMANDS))  # always all of them: they cost little
@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help_and_takes_json(name: str) -> None:
    result = run(name, "--help")
    assert result.exit_code == 0
    assert run(name, "-h").stdout == result.stdout
    assert result.stdout.startswith(f"Usage: licet {name} ")
    assert "--json" in result.stdout or name == "hook"  # its output is the agent's own
    assert max(map(len, result.stdout.splitlines())) <= 100


@pytest.mark.parametrize("words", [["--help"], ["--version"], ["completion", "bash"]], ids=" ".join)
def test_help_loads_neither_the_other_commands_nor_anything_heavy(words: list[str]) -> None:
    program = (
        "import sys\n"
        "from licet.cli import main\n"
        "sys.argv[0] = 'licet'\n"
        "try:\n    main()\n"
        "finally:\n    print(*sys.modules, file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", program, *words], check=True, capture_output=True, text=True)
    loaded = set(done.stderr.split())
    assert loaded & HEAVY == set()
    commands = {f"licet.cli.{name}" for name in COMMANDS}
    assert loaded & commands == {f"licet.cli.{word}" for word in words if word in COMMANDS}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["chek"], "there is no command `chek`; did you mean `check`?"),
        (["frobnicate"], "there is no command `frobnicate`; expected one of init, run, "),
        (["check"], "Missing argument 'FILE...'"),
        (["check", "--jsn", "x.yaml"], "No such option"),
        (["check", "--json", "--sarif", "x.yaml"], "--json, --sarif and --github exclude each other"),
        (["surface", "--json", "--svg", "x.svg", "x.yaml"], "--json excludes --svg and --html"),
        (["diff", "a.yaml"], "Missing argument 'NEW'"),
        (["diff", "a.yaml", "b.yaml", "--fail-on", "shrunk"], "'shrunk' is not one of 'grown', 'changed', 'none'"),
        (["schema", "manifests"], "'manifests' is not one of"),
        (["schema", "manifest", "--output", "x"], "--output writes all kinds"),
        (["completion", "tcsh"], "'tcsh' is not one of 'bash', 'zsh', 'fish'"),
        (["init", "--agent", "no way", "x.py"], "expected a name of 1 to 128 letters"),
    ],
    ids=lambda words: " ".join(words) if isinstance(words, list) else "",
)
def test_a_command_line_that_makes_no_sense_ends_with_2(words: list[str], said: str) -> None:
    result = run(*words)
    assert result.exit_code == 2
    assert said in result.stderr
    assert result.stdout == ""


HOSTILE = "\x1b[2J\u202e\ufe0f\nError: fine"
SPELLED = r"\u001b[2J\u202e\ufe0f\u000aError: fine"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([f"x{HOSTILE}"], f"Error: there is no command `x{SPELLED}`; expected one of "),
        (["completion", "bash", HOSTILE], f"unexpected extra argument ({SPELLED})"),
        (["surface", "m.yaml", "--svg", f"gone{HOSTILE}/map.svg"], f"Error: cannot write gone{SPELLED}/map.svg: "),
    ],
)
@pytest.mark.sampled(1)
def test_a_word_that_is_refused_is_spelled_out(words: list[str], said: str, tmp_path: Path) -> None:
    (tmp_path / "m.yaml").write_text("agent: a\n")
    done = subprocess.run([*warm.licet(), *words], check=False, cwd=tmp_path, capture_output=True, text=True)
    assert said in done.stderr


def test_lists_of_choices_from_click_keep_their_lines() -> None:
    assert "Choose from:\n\tbash,\n\tzsh,\n\tfish" in run("completion").stderr


@pytest.mark.parametrize(
    ("shell", "mark"), [("bash", "complete -o nosort"), ("zsh", "#compdef licet"), ("fish", "complete --no-files")]
)
def test_the_completion_script_of_a_shell_asks_licet(shell: str, mark: str) -> None:
    script = run("completion", shell)
    assert script.exit_code == 0
    assert mark in script.stdout
    assert f"_LICET_COMPLETE={shell}_complete" in script.stdout


@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        ("licet ", [f"plain,{name}" for name in COMMANDS]),
        ("licet s", ["plain,surface", "plain,serve", "plain,session", "plain,schema"]),
        ("licet --v", ["plain,--version"]),
        ("licet schema ", ["plain,workspace", "plain,manifest", "plain,personality", "plain,tests"]),
        ("licet diff --fail-on ", [f"plain,{word}" for word in ("grown", "changed", "none", *_RISKS)]),
        ("licet explain here.yaml ", ["plain,list_notes", "plain,read_notes"]),
        ("licet explain here.yaml r", ["plain,read_notes"]),
        ("licet explain gone.yaml r", []),
        ("licet call here.yaml l", ["plain,list_notes"]),
    ],
)
@pytest.mark.sampled(2)
def test_the_shell_completes(typed: str, offered: list[str], tmp_path: Path) -> None:
    (tmp_path / "here.yaml").write_text("agent: a\ncapabilities: {tools: [read_notes, list_notes]}\n")
    asked = {"_LICET_COMPLETE": "bash_complete", "COMP_WORDS": typed, "COMP_CWORD": str(typed.count(" "))}
    done = subprocess.run([SCRIPT], check=True, capture_output=True, text=True, cwd=tmp_path, env=os.environ | asked)
    assert done.stdout.split() == offered


def test_an_unexpected_error_is_one_line_and_70() -> None:
    result = run("check", "a\0b")  # no shell can pass this on, so no command expects it
    assert result.exit_code == 70
    assert re.fullmatch(message("frame.licet_unexpected_valueerror_embedded_null"), result.stderr)


def test_a_package_that_is_not_in_the_environment_is_named_with_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "licet.yaml").write_text("agent: a\n")
    missing = "import sys; sys.modules['packaging'] = None; from licet.cli import program; program()"
    command = [sys.executable, "-c", missing, "lock", "licet.yaml"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("licet: `packaging`, which licet needs, is not installed in ")
    assert "`pipx runpip licet install --ignore-installed packaging`" in done.stderr


def test_an_unexpected_error_can_be_looked_into() -> None:
    result = run("check", "a\0b", LICET_DEBUG="1")
    assert isinstance(result.exception, ValueError)


def test_a_reader_that_went_away_is_no_news() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run([SCRIPT, "schema", "manifest"], stdout=writing, stderr=subprocess.PIPE, check=False)
    os.close(writing)
    assert (done.returncode, done.stderr) == (141, b"")


WRITING: dict[str, list[str]] = {
    "an answer": ["schema", "manifest"],
    "an answer that ends with a code": ["surface", "m.yaml"],
    "help": ["--help"],
    "help of a command": ["surface", "--help"],
    "the value of a call": ["call", "m.yaml", "read_file", "path=m.yaml", "--state", "state"],
}


@pytest.mark.parametrize("words", WRITING.values(), ids=WRITING)
@pytest.mark.parametrize(
    ("output", "said"),
    [
        (">&-", "licet: cannot write its output: it is closed\n"),
        pytest.param(
            ">/dev/full",
            "licet: cannot write its output: No space left on device\n",
            marks=pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs a device that is always full"),
        ),
    ],
)
@pytest.mark.sampled(2)
def test_an_unwritable_output_is_one_line_and_ends_with_74(
    words: list[str], output: str, said: str, tmp_path: Path
) -> None:
    (tmp_path / "m.yaml").write_text(
        "agent: a\ntools: {read_file: {from: 'licet.tools:read_file'}}\n"
        "capabilities: {tools: {read_file: {sandbox: native}}, native: [read_file], fs_reach: {read: ['${workdir}']}}\n"
    )
    asked = ["sh", "-c", f'exec "$0" "$@" {output}', str(SCRIPT), *words]
    done = subprocess.run(asked, check=False, cwd=tmp_path, stderr=subprocess.PIPE, text=True)
    assert (done.returncode, done.stderr) == (74, said)


@pytest.mark.skipif(not hasattr(fcntl, "F_SETPIPE_SZ"), reason="needs a pipe that is soon full")
def test_an_interrupt_ends_with_130_and_says_so() -> None:
    reading, writing = os.pipe()
    fcntl.fcntl(writing, fcntl.F_SETPIPE_SZ, 4096)
    with subprocess.Popen([SCRIPT, "schema", "manifest"], stdout=writing, stderr=subprocess.PIPE) as process:
        os.close(writing)
        os.read(reading, 1)  # it is writing now, and cannot finish until somebody reads
        process.send_signal(signal.SIGINT)
        _, said = process.communicate()
    os.close(reading)
    assert (process.returncode, said) == (130, b"licet: interrupted\n")


def test_a_terminal_that_lacks_a_character_still_gets_the_report(tmp_path: Path) -> None:
    declared = "{needs: ['network:*:a.example'], effect: read_only, sandbox: restricted}"
    for name, hosts in (("old.yaml", "a.example"), ("new.yaml", "")):
        lists = f"capabilities: {{tools: [t], destinations: {{allow: [{hosts}]}}}}\n"
        (tmp_path / name).write_text(f"agent: a\ntools: {{t: {declared}}}\n{lists}")
    words = [str(SCRIPT), "diff", "old.yaml", "new.yaml"]
    without_minus = os.environ | {"PYTHONIOENCODING": "iso-8859-1"}
    done = subprocess.run(words, check=True, capture_output=True, cwd=tmp_path, env=without_minus)
    assert done.stdout == b"\\u2212 t: network:read:a.example  (old.yaml:3)\n"


@pytest.mark.parametrize("words", [["check", "none.yaml"], ["receipts", "list"], ["receipts", "verify"]], ids=" ".join)
@pytest.mark.sampled(1)
def test_a_closed_stderr_changes_no_exit_code(tmp_path: Path, words: list[str]) -> None:
    codes = [
        subprocess.run(
            ["sh", "-c", f'exec "$@" {closed}', "sh", sys.executable, "-m", "licet", *words],
            cwd=tmp_path,
            env={**os.environ, "XDG_STATE_HOME": str(tmp_path)},
            capture_output=True,
            check=False,
        ).returncode
        for closed in ("", "2>&-")
    ]
    assert codes == [1, 1]


def test_an_interrupted_question_ends_like_any_interrupted_command(monkeypatch: pytest.MonkeyPatch) -> None:
    @click.command()
    def asks() -> None:
        click.confirm("agree?", err=True)

    def interrupted(*_: object, **__: object) -> str:
        raise KeyboardInterrupt

    monkeypatch.setattr("licet.cli.app.Licet.get_command", lambda *_: asks)
    monkeypatch.setattr("click.termui.visible_prompt_func", interrupted)
    with pytest.raises(SystemExit) as ended:
        licet.main(["check"], prog_name="licet")
    assert ended.value.code == 130


NOWHERE = [
    *(["receipts", "verify"], ["receipts", "list"], ["receipts", "show", "r-1-1"], ["receipts", "summary"]),
    *(["receipts", "head"], ["receipts", "export", "r-1-1"], ["explain", "r-1-1"], ["approvals", "list"]),
    *(["surface", "a.yaml"], ["diff", "a.yaml", "b.yaml"], ["lint"], ["init"], ["learn"], ["check"], ["trust"]),
    *(["lock"], ["gateway"], ["test"], ["doctor"], ["call", "a.yaml", "t"]),
]


@pytest.mark.parametrize("words", NOWHERE, ids=" ".join)
def test_a_current_directory_that_was_removed_is_no_internal_error(words: list[str], tmp_path: Path) -> None:
    code = f"import os; os.rmdir(os.getcwd()); {warm.PROGRAM}"
    (tmp_path / "gone").mkdir()
    result = warm.run(code, words, cwd=tmp_path / "gone")
    assert result.returncode in (0, 1, 2), result.stderr
    assert "unexpected" not in result.stderr
    if words[0] in ("receipts", "explain", "lint"):
        assert "the current directory was removed: go to one that is there" in result.stderr


def test_a_ledger_that_is_named_is_verified_from_a_removed_directory(tmp_path: Path) -> None:
    state = make(tmp_path / "made")
    code = f"import os; os.rmdir(os.getcwd()); {warm.PROGRAM}"
    for words in (["--state", str(state)], [str(state / "ledger.sqlite")]):
        (tmp_path / "gone").mkdir()
        result = warm.run(code, ["receipts", "verify", *words], cwd=tmp_path / "gone")
        assert (result.returncode, result.stdout[:5]) == (0, "fine:"), result.stderr
