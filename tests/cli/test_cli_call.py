"""`licet call`: typed arguments reach the tool, its answer is shown safely, and a refusal is explained."""

import json
import os
import re
import signal
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

import warm
from cli.messages import message
from cli.terminals import read_all
from licet.cli.app import licet

EXAMPLES = Path(__file__).parents[2] / "examples"
SCRIPT = Path(sysconfig.get_path("scripts")) / "licet"

TOOLS = '''
import enum, time
from typing import Any, Literal
from licet import Context, SyncContext, tool

class Level(enum.IntEnum):
    HIGH = 7

class Colour(enum.StrEnum):
    RED = "red"
    FIVE = "5"

@tool(needs=[], effect="read_only")
async def echo(text: str = "", number: int = 0, real: float = 0, flag: bool = False, many: list[str] = [],
               maybe: str | None = None, anything: Any = None, colour: Colour = Colour.RED,
               size: Literal[1, 2] = 1, word: Literal["1", "2"] = "1",
               level: Level | None = None, mixed: Literal[1, True] = 1) -> dict[str, Any]:
    """Say what was given."""
    given = {key: value for key, value in locals().items() if repr(value) not in ("''", "0", "False", "[]", "None")}
    return {key: value for key, value in given.items() if repr(value) not in ("1", "'1'", repr(Colour.RED))}

@tool(needs=[], effect="read_only")
def say(text: str) -> str:
    """Say a text."""
    return text

@tool(needs=[], effect="read_only")
def data(text: str) -> list[Any]:
    """Say a text, in data."""
    return [text, 1, None]

@tool(needs=[], effect="read_only")
def nothing() -> None:
    """Return nothing."""

@tool(needs=[], effect="read_only")
def fail() -> None:
    """Fail."""
    raise ValueError("no \\x1b[2J luck")

@tool(needs=[], effect="read_only")
async def sleep() -> None:
    """Wait for long."""
    import asyncio
    print("asleep", flush=True)
    await asyncio.sleep(60)

@tool(needs=[], effect="read_only")
async def interrupted() -> None:
    """Be interrupted while it computes."""
    import asyncio, signal
    signal.raise_signal(signal.SIGINT)
    await asyncio.sleep(60)

@tool(needs=["secret:read:KEY"], effect="read_only")
async def secret(ctx: Context) -> int:
    """How long a secret is."""
    return len(await ctx.secrets.get("KEY"))

@tool(capabilities={"storage": {"scope": "session"}}, effect="read_only")
def count(ctx: SyncContext) -> int:
    """How often it was called in this session."""
    number = ctx.kv.get("n", 0) + 1
    ctx.kv.set("n", number)
    return number

@tool(capabilities={"fs_reach": {"read": "from-personality"}}, effect="read_only")
async def where(ctx: Context) -> str:
    """The working directory."""
    return ctx.workdir
'''
NAMES = ("echo", "say", "data", "nothing", "fail", "sleep", "interrupted", "secret", "count", "where")
MANIFEST: dict[str, Any] = {
    "agent": "a",
    "tools": {name: {"from": f"own_tools:{name}"} for name in NAMES},
    "bundles": {"own": {"tools": list(NAMES), "sandbox": "native"}},
    "capabilities": {
        "bundles": ["own"],
        "native": list(NAMES),
        "secrets": ["KEY"],
        "limits": {"output_kb": 1},
        "fs_reach": {"read": ["${workdir}"]},
    },
}


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    for name in ("own_tools", "broken", "broken_not", "weather"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    (tmp_path / "own_tools.py").write_text(TOOLS)
    (tmp_path / "m.yaml").write_text(json.dumps(MANIFEST))
    return tmp_path


def run(*words: str, stdin: str | None = None) -> Result:
    return CliRunner().invoke(licet, ["call", *words], input=stdin, catch_exceptions=False)


# What is typed --------------------------------------------------------------------------------------------------------

TYPED: dict[str, tuple[list[str], dict[str, Any]]] = {
    "a text": (["text=oslo"], {"text": "oslo"}),
    "a text that looks like a number": (["text=5"], {"text": "5"}),
    "a text with signs in it": (["text=a=b:=c"], {"text": "a=b:=c"}),
    "lines": (["text=a\nb"], {"text": "a\nb"}),
    "a number": (["number=5"], {"number": 5}),
    "a number with a fraction": (["real=0.5"], {"real": 0.5}),
    "yes": (["flag=true"], {"flag": True}),
    "a list": (['many=["a", "b"]'], {"many": ["a", "b"]}),
    "perhaps a text": (["maybe=null"], {"maybe": "null"}),
    "anything is a text": (["anything=5"], {"anything": "5"}),
    "anything, as JSON": (['anything:={"a": [5]}'], {"anything": {"a": [5]}}),
    "a text as JSON": (['text:="x"'], {"text": "x"}),
    "a word of a list that looks like a number": (["colour=5"], {"colour": "5"}),
    "a number of a list": (["size=2"], {"size": 2}),
    "a text of a list": (["word=2"], {"word": "2"}),
    "a number that is defined elsewhere": (["level=7"], {"level": 7}),
    "a list without a type": (["mixed=true"], {"mixed": True}),
}


@pytest.mark.parametrize(("words", "given"), TYPED.values(), ids=TYPED)
def test_arguments_are_understood_as_they_are_typed(words: list[str], given: dict[str, Any]) -> None:
    result = run("m.yaml", "echo", *words)
    assert (result.exit_code, result.stderr) == (0, "")
    assert json.loads(result.stdout) == given


SENSELESS: dict[str, tuple[list[str], str]] = {
    "no key": (["oslo"], "`oslo` is not an argument; expected `key=value` or `key:=json`"),
    "an odd key": (["a b=c"], "is not an argument"),
    "twice": (["text=a", "text=b"], "`text` is given twice"),
    "no JSON": (["number=five"], "the value of `number` is not JSON; expected JSON for a value of type integer"),
    "no JSON where it was asked for": (["text:=x"], "the value of `text` is not JSON"),
    "a duplicate key": (['anything:={"a": 1, "a": 2}'], "a duplicate key"),
    "no number of JSON": (["real=NaN"], "NaN is not a JSON number"),
    "nesting": (["anything:=" + "[" * 100_000], "is not JSON"),
    "no such file": (["--args", "gone.json"], "Invalid value for --args: cannot read gone.json"),
    "JSON in the place of a file": (["--args", '{"a": 1}'], "for --args: expected the name of a file, found JSON"),
    "not a file name": (["--args", "a\0b"], "Invalid value for --args: cannot read a"),
    "a file of no JSON": (["--args", "own_tools.py"], "Invalid value for --args: own_tools.py is not JSON"),
    "no object": (["--args", "list.json"], "list.json does not contain a JSON object"),
    "in the file and typed": (["--args", "args.json", "text=b"], "`text` is given twice"),
    "a session that is none": (["--session", "a b"], "expected a session id"),
    "no secrets": (["--secrets", "gone.env"], "gone.env"),
}


@pytest.mark.parametrize(("words", "said"), SENSELESS.values(), ids=SENSELESS)
def test_a_command_line_that_makes_no_sense_ends_with_2(here: Path, words: list[str], said: str) -> None:
    (here / "list.json").write_text("[]")
    (here / "args.json").write_text('{"text": "a"}')
    result = run("m.yaml", "echo", *words)
    assert (result.exit_code, result.stdout) == (2, "")
    assert said in result.stderr


def test_a_state_that_cannot_be_written_says_how_to_choose_another(here: Path) -> None:
    (here / "taken").touch()
    result = run("m.yaml", "say", "text=a", "--state", "taken")
    assert result.exit_code == 1
    assert message("call.keep_receipts_elsewhere_state_dir") in result.stderr
    assert "receipt       none" in result.stderr
    assert "Unavailable" not in result.stderr


@pytest.mark.parametrize("source", ["args.json", "-"])
def test_arguments_can_come_from_a_file(here: Path, source: str) -> None:
    (here / "args.json").write_text('{"text": "5", "number": 5}')
    result = run("m.yaml", "echo", "--args", source, "flag=true", stdin='{"text": "5", "number": 5}')
    assert json.loads(result.stdout) == {"text": "5", "number": 5, "flag": True}


@pytest.mark.parametrize(
    ("words", "said"), [(["c=1"], "`c` is not an argument of this tool"), (["text:=5"], "`text` input should be")]
)
def test_arguments_that_do_not_fit_are_refused_by_the_call(words: list[str], said: str) -> None:
    result = run("m.yaml", "echo", *words)
    assert (result.exit_code, result.stdout) == (1, "")
    assert said in result.stderr


# What is shown --------------------------------------------------------------------------------------------------------

SHOWN: dict[str, tuple[list[str], str]] = {
    "a text": (["say", "text=Århus\n\tis there"], "Århus\n\tis there\n"),
    "a text that ends its line": (["say", "text=a\n"], "a\n"),
    "data": (["data", "text=Århus\u202e\x07"], '[\n  "Århus\\u202e\\u0007",\n  1,\n  null\n]\n'),
    "data beyond the first plane": (["data", "text=\U000e0001"], '[\n  "\\udb40\\udc01",\n  1,\n  null\n]\n'),
    "nothing": (["nothing"], "null\n"),
}


@pytest.mark.parametrize(("words", "shown"), SHOWN.values(), ids=SHOWN)
def test_a_value_is_shown_for_people(words: list[str], shown: str) -> None:
    result = run("m.yaml", *words)
    assert (result.exit_code, result.stdout, result.stderr) == (0, shown, "")


@pytest.mark.parametrize("tool", ["say", "data"])
@pytest.mark.sampled(1)
def test_no_text_of_a_tool_acts_on_the_terminal(tool: str) -> None:
    shown, terminal = os.openpty()
    words = [*warm.licet(), "call", "m.yaml", tool, "text=a\x1b[2J\u202eb\n\tc"]
    done = subprocess.run(words, check=False, stdout=terminal, stderr=terminal)
    os.close(terminal)
    said = read_all(shown)
    os.close(shown)
    assert done.returncode == 0
    assert re.findall(r"[^ -~\r\n\t]", said) == []
    assert "\\u001b[2J\\u202eb" in said


def test_in_a_pipe_a_text_is_what_it_is() -> None:
    assert run("m.yaml", "say", "text=\x1b[1mbold").stdout_bytes == b"\x1b[1mbold\n"


def test_a_value_that_is_cut_says_so() -> None:
    result = run("m.yaml", "say", f"text={'x' * 2000}")
    assert (result.exit_code, len(result.stdout)) == (0, 1025)
    assert "this is the beginning" in result.stderr


def test_the_whole_result_as_json() -> None:
    said = json.loads(run("m.yaml", "say", "text=a", "--json").stdout)
    listed = json.loads(CliRunner().invoke(licet, ["receipts", "list", "--manifest", "m.yaml", "--json"]).stdout)
    duration = said.pop("duration_ms")
    assert re.fullmatch(r"\d+\.\d{3}", duration)  # text everywhere, as in a receipt
    assert duration in json.dumps(listed)
    assert said.pop("receipt").startswith("r-")
    kinds = {
        "SessionOpened": None,
        "CapabilityGranted": None,
        "SandboxEntered": "native: handles, declared, not enforced",
    }
    about = {"capability": "tool:call:say", "tool_name": "say", "reason": None}
    events = [{**about, "kind": kind, "rule": rule} for kind, rule in kinds.items()]
    for event in said["events"]:
        assert re.fullmatch(r"\d+\.\d{3}", event.pop("duration_ms"))
        assert event.pop("time").endswith("+00:00")
    assert said == {
        "ok": True, "verdict": "allow", "logs": "", "tool": "say", "value": "a", "code": "ok", "reason": "ALLOWED",
        "capability": None, "error": None, "explanation": None, "cost_usd": "0", "truncated": False, "events": events,
            "approvals": [],
            "sandbox": {"access": None, "layers": ["handles", "declared, not enforced"], "programs": None},
    }  # fmt: skip


def test_without_a_tool_the_tools_are_listed_and_nothing_is_imported() -> None:
    listed = run("m.yaml")
    assert listed.exit_code == 0
    assert "say" in [line.split()[0] for line in listed.stdout.splitlines()]
    assert "say" in json.loads(run("m.yaml", "--json").stdout)["tools"]


def test_a_refusal_as_json_ends_with_1_all_the_same() -> None:
    result = run("m.yaml", "fail", "--json")
    said = json.loads(result.stdout)
    assert (result.exit_code, result.stderr, said["ok"], said["value"]) == (1, "", False, None)
    assert (said["code"], said["reason"]) == ("execution_failed", "TOOL_FAILED")
    assert said["error"] == "TOOL_FAILED: ValueError: no \\u001b[2J luck"
    assert said["explanation"].startswith(message("call.failed_fail_raised"))


# What stands around it ------------------------------------------------------------------------------------------------


def test_a_typo_is_answered_with_the_nearest_tool() -> None:
    result = run("m.yaml", "ecko")
    assert result.exit_code == 1
    *_, near, receipt = result.stderr.splitlines()
    assert near == message("call.did_you_mean_echo")
    assert receipt.startswith("  receipt ")


def test_a_missing_secret_is_refused_with_advice_where_to_put_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KEY", raising=False)
    *_, way, receipt = run("m.yaml", "secret").stderr.splitlines()
    assert way == message("call.give_set_variable_key_or")
    assert receipt.startswith("  receipt ")


@pytest.mark.parametrize(
    ("reference", "advice"),
    [
        ("shop/api_token", "set the variable `SHOP__API_TOKEN`, or write `shop/api_token=…` into a file"),
        ("shop/api-token", "to give it    write `shop/api-token=…` into a file for `--secrets`"),
        ("SHOP__TOKEN", "no backend knows SHOP__TOKEN"),
    ],
)
def test_a_secret_with_a_slash_is_a_variable_in_capitals(here: Path, reference: str, advice: str) -> None:
    source = TOOLS.replace('"KEY"', f'"{reference}"').replace("secret:read:KEY", f"secret:read:{reference}")
    (here / "own_tools.py").write_text(source)
    (here / "m.yaml").write_text(json.dumps(MANIFEST).replace('"KEY"', f'"{reference}"'))
    assert advice in run("m.yaml", "secret").stderr


def test_a_tool_that_does_not_fit_is_denied_with_the_way_out_and_a_receipt(here: Path) -> None:
    (here / "m.yaml").write_text(json.dumps(MANIFEST).replace('"secrets": ["KEY"]', '"secrets": []'))
    result = run("m.yaml", "secret")
    assert (result.exit_code, result.stdout) == (1, "")
    denied, *rest = result.stderr.splitlines()
    assert denied.startswith("denied: `secret`")
    assert message("call.secret_read_key_which_manifest") in result.stderr
    assert message("call.allow_add_key_under_capabilities") in rest
    (receipt,) = (line.split()[-1] for line in rest if line.startswith("  receipt"))
    said = CliRunner().invoke(licet, ["explain", receipt])
    assert (said.exit_code, "secret:read:KEY" in said.stdout) == (1, True)
    told = json.loads(run("m.yaml", "secret", "--json").stdout)
    assert (told["ok"], told["reason"]) == (False, "SECRET_NOT_DECLARED")


UNFIT: dict[str, tuple[str, str]] = {
    "it needs what the manifest does not give": ('"secrets": ["KEY"]', '"secrets": []'),
    "its rule is about an argument that it does not take": (
        '"bundles": ["own"]',
        '"bundles": ["own"], "tools": {"secret": {"args": {"txt": {"maxLength": 3}}}}',
    ),
}


@pytest.mark.parametrize(("old", "new"), UNFIT.values(), ids=UNFIT)
def test_call_explain_and_surface_agree_about_a_tool_that_does_not_fit(here: Path, old: str, new: str) -> None:
    text = json.dumps(MANIFEST)
    assert old in text
    (here / "m.yaml").write_text(text.replace(old, new))
    unfit, fit = (
        [
            run("m.yaml", *words).exit_code,
            CliRunner().invoke(licet, ["explain", "m.yaml", words[0]]).exit_code,
            next(tool["standing"] for tool in _surface()["tools"] if tool["name"] == words[0]),
        ]
        for words in (("secret",), ("say", "text=a"))
    )
    assert unfit == [1, 1, "blocked"]
    assert fit == [0, 0, "callable"]  # another tool that does not fit stops nothing


def _surface() -> dict[str, Any]:
    shown: dict[str, Any] = json.loads(CliRunner().invoke(licet, ["surface", "m.yaml", "--json"]).stdout)
    return shown


def test_a_session_continues_in_the_next_call(here: Path) -> None:
    counts = [run("m.yaml", "count", *more).stdout for more in ((), (), ("--session", "other"), ())]
    assert counts == ["1\n", "2\n", "1\n", "3\n"]
    assert run("m.yaml", "count", "--state", "elsewhere").stdout == "1\n"
    assert (here / "elsewhere" / "kv.sqlite").exists()


def test_an_unusable_store_is_explained_without_a_traceback(here: Path) -> None:
    (here / "kept").mkdir(mode=0o700)
    (here / "kept" / "kv.sqlite").mkdir()
    told = run("m.yaml", "count", "--state", "kept").stderr
    assert message("call.allow_kept_kv_sqlite_not", here=here) in told


READER = """agent: r
tools: {read_file: {from: "licet.tools:read_file"}}
bundles: {b: {tools: [read_file], sandbox: native}}
capabilities: {bundles: [b], native: [read_file], fs_reach: {read: ["${workdir}"]}}
"""

NOTES = """from licet import tool


@tool(needs=["fs:read:${workdir}/notes"], effect="read_only", sandbox="native")
def read_file() -> None:
    pass
"""


@pytest.mark.parametrize("path", ["kept/kv.sqlite", "keys.env"])
def test_a_refused_read_of_state_or_secrets_says_that_licet_keeps_them_there(path: str, here: Path) -> None:
    (here / "r.yaml").write_text(READER)
    (here / "keys.env").write_text("KEY=x\n")
    (here / "keys.env").chmod(0o600)
    refused = run("r.yaml", "read_file", f"path={path}", "--state", "kept", "--secrets", "keys.env")
    assert refused.exit_code == 1
    told = [line for line in refused.stderr.splitlines() if line.startswith(("  because", "  to allow"))]
    assert told == [message("call.licet_keeps_its_state_or")]


@pytest.mark.parametrize("state", ["notes", "."])
def test_a_state_directory_inside_a_need_of_the_tool_is_refused_with_the_reason(state: str, here: Path) -> None:
    (here / "reader.py").write_text(NOTES)
    (here / "r.yaml").write_text(READER.replace("licet.tools:read_file", "reader:read_file"))
    refused = run("r.yaml", "read_file", "--state", state)
    assert refused.exit_code == 1
    said = (
        f"needs fs:read:{here}/notes, but licet keeps its state or its secrets there, and no tool reads or writes them"
    )
    assert said in refused.stderr
    assert message("call.keep_two_apart_state_no") in refused.stderr


def test_a_receipt_in_another_state_directory_is_named_with_its_state_option(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def hints(*words: str) -> list[str]:
        refused = run(*words)
        assert refused.exit_code == 1
        return [line for line in refused.stderr.splitlines() if line.startswith("  to see it")]

    assert hints("m.yaml", "fail") == []
    (hint,) = hints("m.yaml", "fail", "--state", "kept here")
    assert re.fullmatch(message("call.see_licet_explain_state_kept", here=here), hint)
    assert CliRunner().invoke(licet, [*hint.split()[4:6], "--state", "kept here"]).stdout.startswith("allowed")
    (here / "sub").mkdir()
    monkeypatch.chdir(here / "sub")
    (hint,) = hints("../m.yaml", "fail")
    found = CliRunner().invoke(licet, hint.split()[4:])
    assert found.stdout.startswith("allowed"), found.output
    (here / "broken").mkdir()
    (here / "broken" / "ledger.sqlite").write_text("no database\n" * 100)
    assert hints("../m.yaml", "fail", "--state", "../broken") == []  # nothing was kept


def test_the_working_directory_can_be_chosen(here: Path) -> None:
    assert run("m.yaml", "where").stdout == f"{here}\n"
    assert run("m.yaml", "where", "--workdir", "/srv").stdout == "/srv\n"


def test_secrets_come_from_the_file_before_the_environment(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KEY", "12345")
    file = here / "keys.env"
    file.touch(mode=0o600)
    file.write_text("KEY=123\n")
    assert run("m.yaml", "secret").stdout == "5\n"
    assert run("m.yaml", "secret", "--secrets", "keys.env").stdout == "3\n"
    file.write_text("OTHER=123\n")
    assert run("m.yaml", "secret", "--secrets", "keys.env").stdout == "5\n"


def test_a_secrets_file_that_others_can_read_is_refused_and_not_passed_over(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KEY", "12345")
    (here / "keys.env").write_text("KEY=123\n")
    (here / "keys.env").chmod(0o644)
    result = run("m.yaml", "secret", "--secrets", "keys.env")
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.startswith(message("call.keys_env_file_not_fit"))
    assert message("call.has_mode_others_may_read") in result.stderr
    # The file is checked before anything runs, even for a tool that needs no secret.
    assert run("m.yaml", "say", "text=a", "--secrets", "keys.env").stdout == ""


def test_no_tool_reads_the_secrets_file_as_a_file(here: Path) -> None:
    (here / "keys.env").touch(mode=0o600)
    (here / "keys.env").write_text("KEY=123\n")
    words = ["read_file", "path=keys.env", "--workdir", str(here)]
    (here / "r.yaml").write_text(
        "agent: a\ntools: {read_file: {from: 'licet.tools:read_file'}}\n"
        "capabilities: {tools: {read_file: {sandbox: native}}, native: [read_file], fs_reach: {read: ['${workdir}']}}\n"
    )
    assert run("r.yaml", *words).stdout == "KEY=123\n"
    refused = run("r.yaml", *words, "--secrets", "keys.env")
    assert (refused.exit_code, refused.stdout) == (1, "")
    assert "may not fs:read:" in refused.stderr


WRONG_FILES: dict[str, tuple[str, str]] = {
    "no manifest": ("[]", "m.yaml:1:1: error"),
    "an unknown key": ("agent: a\ncapabilities: {tool: []}\n", "m.yaml:2:"),
    "no module": (
        "agent: a\ntools:\n  t: {from: 'gone:t'}\ncapabilities: {tools: [t]}\n",
        "m.yaml:3:13: error: found no module `gone`, expected a Python file below the directory of the manifest",
    ),
    "a module that fails": (
        "agent: a\ntools:\n  t: {from: 'broken:t'}\ncapabilities: {tools: [t]}\n",
        "a tool that can be imported (ZeroDivisionError: division by zero)",
    ),
    "no tool": (
        "agent: a\ntools:\n  t: {from: 'broken_not:t'}\ncapabilities: {tools: [t]}\n",
        "found `t`, which is not declared as a tool, expected a function with `@tool(…)`",
    ),
    "a workspace": ("bundles: {}\n", "a manifest or a personality"),
}


@pytest.mark.parametrize(("text", "said"), WRONG_FILES.values(), ids=WRONG_FILES)
@pytest.mark.parametrize("as_json", [False, True])
def test_errors_of_the_files_are_reported_before_a_call(here: Path, text: str, said: str, as_json: bool) -> None:
    (here / "m.yaml").write_text(text)
    (here / "broken.py").write_text("from licet import tool\n\n@tool(needs=[])\ndef t(): ...\n\n1 / 0\n")
    (here / "broken_not.py").write_text("def t(): ...\n")
    result = run("m.yaml", "t", *(["--json"] if as_json else []))
    assert result.exit_code == 1
    if as_json:
        assert json.loads(result.stdout).keys() == {"problems"}
    else:
        assert said in result.stderr


def test_ctrl_c_ends_a_call_cleanly() -> None:
    with subprocess.Popen(
        [SCRIPT, "call", "m.yaml", "sleep"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as done:
        assert done.stdout
        assert done.stdout.readline() == "asleep\n"
        done.send_signal(signal.SIGINT)
        rest, complaints = done.communicate(timeout=50)
    assert (done.returncode, rest) == (130, "")
    assert complaints.startswith("licet: interrupted: the call was ended; `licet receipts list")


def test_ctrl_c_while_a_tool_computes_ends_the_command_and_not_only_the_tool() -> None:
    done = subprocess.run([SCRIPT, "call", "m.yaml", "interrupted"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (130, "")
    assert done.stderr.startswith("licet: interrupted: the call was ended")


# The examples ---------------------------------------------------------------------------------------------------------


def in_example(name: str, *words: str) -> Result:
    os.chdir(EXAMPLES / name)  # the fixture goes back
    return run(*words)


def test_the_desk_example_reads_what_it_may_and_nothing_else() -> None:
    assert in_example("desk", "desk.yaml", "read_file", "path=notes/oslo.md").stdout.startswith("# Oslo\n")
    found = json.loads(in_example("desk", "desk.yaml", "search_files", "pattern=rain", "path=notes").stdout)
    assert [match["path"] for match in found["matches"]] == ["notes/bergen.md"]
    refused = in_example("desk", "desk.yaml", "read_file", "path=notes/private/safe.md")
    assert (refused.exit_code, refused.stdout) == (1, "")
    assert "denied by fs:*:" in refused.stderr
    assert "(desk.yaml:25)" in refused.stderr
    assert "HOST_NOT_ALLOWED" in in_example("desk", "desk.yaml", "http_get", "url=https://a.test", "--json").stdout


def test_the_weather_example_runs_behind_walls() -> None:
    missing = in_example("weather", "research.yaml", "read_notes", "name=x")
    sys.modules.pop("weather", None)
    assert missing.exit_code == 1
    assert message("call.filenotfounderror_errno_no_such_file") in missing.stderr
