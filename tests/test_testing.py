"""`licet.testing`: what users test their tools with."""

import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import warm
from licet import Backends, Context, Gate, Manifest, ManifestError, RegistrationRefused, SyncContext, run, tool
from licet.testing import Answer, Command, Finished, MemoryGate, decision

URL = "https://api.weather.gov/oslo"


@tool(capabilities={"network": {"allowed_hosts": ["api.weather.gov"]}}, effect="read_only", sandbox="restricted")
async def forecast(ctx: Context, city: str) -> str:
    """The forecast for a city."""
    answer = await ctx.fetch(f"https://api.weather.gov/{city}")
    return f"{answer.status} {answer.text}"


@tool(capabilities={"fs_reach": {"read": "from-personality"}}, effect="read_only", sandbox="isolated")
async def read_note(ctx: Context, name: str) -> str:
    """A note."""
    return await ctx.fs.read(f"notes/{name}.md")


@tool(needs=["fs:*:${workdir}"], effect="full", sandbox="restricted")
async def delete_note(ctx: Context, name: str) -> None:
    """Delete a note."""
    await ctx.fs.delete(f"notes/{name}.md")


@tool(needs=["fs:write:${workdir}"], effect="write_limited", sandbox="restricted")
async def write_note(ctx: Context, text: str) -> None:
    """Write a note."""
    await ctx.fs.write("note.md", text)


@tool(needs=["process:exec:git", "env:read:LANG", "secret:read:TOKEN"], effect="read_only", sandbox="native")
async def status(ctx: Context) -> list[str | None]:
    """The state of a work tree."""
    ended = await ctx.process.spawn("git", ["status"])
    return [ended.stdout, ctx.env.get("LANG"), await ctx.secrets.get("TOKEN")]


@tool(needs=["storage:*:session"], effect="read_only", sandbox="native")
def remember(ctx: SyncContext, value: str | None = None) -> object:
    """Remember a value for a minute."""
    if value is not None:
        ctx.kv.set("value", value, ttl_seconds=60)
    return ctx.kv.get("value")


@tool(needs=[], connector="github@2.1", effect="read_only", sandbox="restricted")
async def issues() -> int:
    """The number of issues."""
    return 3


def test_a_tool_is_tested_with_canned_answers() -> None:
    gate = MemoryGate(forecast, http={URL: Answer.json(["rain"], 201)})
    assert gate.call(forecast, city="oslo").value == '201 ["rain"]'
    assert [sent.url for sent in gate.http.sent] == [URL]


def test_a_tool_may_reach_what_is_allowed_and_nothing_else() -> None:
    gate = MemoryGate(read_note, allow=["fs:read:${workdir}/notes"], files={"notes/oslo.md": "Rain.", "/etc/x.md": "x"})
    assert gate.call("read_note", name="oslo").unwrap() == "Rain."
    assert gate.call("read_note", name="../../etc/x").reason == "PATH_NOT_REACHABLE"


def test_a_deny_wins_over_what_a_tool_declares() -> None:
    gate = MemoryGate(read_note, deny=["fs:read:${workdir}/notes"], files={"notes/oslo.md": "Rain."})
    assert gate.call(read_note, name="oslo").reason == "PATH_NOT_REACHABLE"


def test_a_tool_that_does_not_fit_the_allowed_rules_is_a_misfit() -> None:
    with pytest.raises(RegistrationRefused, match=r"api\.weather\.gov"):
        MemoryGate(forecast, allow=["network:*:api.example.org"])


def test_a_tool_is_tested_under_the_manifest_that_it_runs_under(tmp_path: Path) -> None:
    file = tmp_path / "agent.yaml"
    file.write_text("agent: desk\ncapabilities: {tools: [read_note], fs_reach: {read: ['${workdir}/notes']}}\n")
    for path in (str(file), file):
        gate = MemoryGate(read_note, manifest=path, files={"notes/oslo.md": "Rain."}, workdir=Path("/desk"))
        assert gate.call(read_note, name="oslo").value == "Rain."
        assert gate.manifest.agent == "desk"


def test_a_manifest_counts_as_accepted_whatever_this_user_trusts() -> None:
    capabilities = {"tools": ["write_note"], "fs_reach": {"write": ["${workdir}"]}, "approvals": {"write": "manifest"}}
    manifest = Manifest.from_data(
        {"agent": "desk", "capabilities": {**capabilities, "max_side_effect_class": "write_limited"}}
    )
    gate = MemoryGate(write_note, manifest=manifest, answers=["denied"])
    assert gate.call(write_note, text="Rain.").ok
    assert gate.approver.asked == []


def test_receipts_can_be_looked_at() -> None:
    gate = MemoryGate(issues)
    run(gate, "issues", purpose="count them")
    assert [(receipt.tool, receipt.purpose) for receipt in gate.receipts] == [("issues", "count them")]


@pytest.mark.parametrize(
    ("tools", "options", "message"),
    [
        ([[read_note]], {}, "found a list"),
        ([read_note], {"answers": "approved"}, "a list of answers"),
        ([read_note], {"answers": ["yes"]}, 'one of "approved"'),
        (
            [read_note],
            {"http": {URL: "rain"}},
            "an `Answer` or a function for https://api.weather.gov/oslo, found a str",
        ),
        ([read_note], {"http": {"a.example": Answer()}}, "a URL with its scheme"),
    ],
)
def test_a_mistake_in_a_test_is_reported(tools: list[Any], options: dict[str, Any], message: str) -> None:
    with pytest.raises(TypeError, match=message):
        MemoryGate(*tools, **options)


def test_a_url_without_an_answer_is_reported_with_those_that_have_one() -> None:
    gate = MemoryGate(forecast, http={URL: Answer.text("rain")})
    assert f"no answer for this URL, only for {URL}" in gate.call(forecast, city="bergen").error


def test_localhost_resolves_to_this_machine() -> None:
    @tool(needs=["network:*:localhost"], effect="read_only", sandbox="restricted")
    async def ping(ctx: Context) -> int:
        """Ask a server on this machine."""
        return (await ctx.fetch("http://localhost/")).status

    gate = MemoryGate(ping, http={"http://localhost/": Answer()})
    assert gate.call(ping).reason == "ADDRESS_NOT_ALLOWED"


def test_a_manifest_and_rules_are_not_mixed() -> None:
    manifest = Manifest.from_data({"agent": "desk"})
    with pytest.raises(TypeError, match="leave them out"):
        MemoryGate(read_note, manifest=manifest, allow=[])
    with pytest.raises(TypeError, match="a list of rules"):
        MemoryGate(read_note, allow="fs:read:/")


def test_an_approver_answers_in_the_prepared_order() -> None:
    files = {"notes/a.md": "", "notes/b.md": "", "notes/c.md": ""}
    gate = MemoryGate(delete_note, files=files, answers=["approved", "denied"])
    assert [gate.call(delete_note, name=name).reason for name in "abc"] == [
        "ALLOWED",
        "APPROVAL_DENIED",
        "APPROVAL_REQUIRED",
    ]
    assert [question.spec.name for question in gate.approver.asked] == ["delete_note"] * 3


def test_a_made_up_policy_approves_the_writes_that_it_allows() -> None:
    gate = MemoryGate(write_note)
    assert gate.call(write_note, text="dry").ok
    assert gate.read_file("note.md") == "dry"
    assert gate.approver.asked == []


def test_programs_are_functions_or_their_output() -> None:
    def git(command: Command) -> Finished:
        return Finished(0, " ".join(command.argv).encode(), b"")

    gate = MemoryGate(status, programs={"git": git}, environ={"LANG": "nb"}, secrets={"TOKEN": "t-1"})
    assert gate.call(status).unwrap()[:2] == ["git status", "nb"]
    gate = MemoryGate(status, programs={"git": "clean"}, secrets={"TOKEN": "t-1"})
    assert gate.call(status).unwrap()[:2] == ["clean", None]


def test_the_clock_moves_by_hand() -> None:
    gate = MemoryGate(remember)
    assert gate.call(remember, value="a").value == "a"
    gate.clock.advance(59)
    assert gate.call(remember).value == "a"
    gate.clock.advance(2)
    assert gate.call(remember).value is None


def test_connectors_of_the_tools_are_allowed() -> None:
    assert MemoryGate(issues).call(issues).value == 3


def test_no_receipt_claims_walls_that_were_not_there() -> None:
    assert MemoryGate(issues).call(issues).layers == ("handles", "no walls: a test")


def test_tools_run_behind_walls_where_a_test_asks_for_it() -> None:
    gate = MemoryGate(forecast, http={URL: Answer.json(["rain"], 201)}, walls=True)
    try:
        result = gate.call(forecast, city="oslo")
    finally:
        gate.close()
    assert result.value == '201 ["rain"]'
    assert "no walls: a test" not in result.layers


@tool(needs=["fs:read:~/notes", "network:https:get@a.example"], effect="read_only", sandbox="restricted")
async def gather(ctx: Context) -> dict[str, object]:
    """A note of this user, and where a page has moved to."""
    moved = await ctx.fetch("https://a.example/", redirects=False)
    note = await ctx.fs.read_bytes("~/notes/a")
    return {"note": note, "more": [bytearray(b"x")], "moved": [moved.status, moved.headers["location"]]}


@pytest.mark.parametrize("walls", [False, True])
def test_home_redirects_and_bytes_are_the_same_behind_walls(walls: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/maria")
    moved = Answer(302, [("location", "https://elsewhere.example/")])
    notes = {"/home/maria/notes/a": b"\xff\x00"}
    gate = MemoryGate(gather, files=notes, http={"https://a.example/": moved}, walls=walls)
    try:
        result = gate.call(gather)
    finally:
        gate.close()
    assert result.value == {
        "note": {"type": "bytes", "base64": "/wA="},
        "more": [{"type": "bytes", "base64": "eA=="}],
        "moved": [302, "https://elsewhere.example/"],
    }


@tool(needs=["secret:read:TOKEN", "fs:read:${workdir}/notes"], effect="read_only", sandbox="native")
async def reveal(ctx: Context, path: str = "notes/a") -> bytes:
    """The bytes of a note, which may hold a secret."""
    await ctx.secrets.get("TOKEN")
    return await ctx.fs.read_bytes(path)


def test_a_secret_inside_bytes_does_not_leave() -> None:
    gate = MemoryGate(
        reveal, files={"notes/a": b"\xffkey=s3cr3t-value-of-maria;"}, secrets={"TOKEN": "s3cr3t-value-of-maria"}
    )
    assert gate.call(reveal).value == {"type": "bytes", "base64": "/2tleT1[redacted TOKEN]E7"}


@pytest.mark.parametrize(
    ("path", "capability"),
    [("notes/a", ""), ("/etc/passwd", "fs:read:/etc/passwd"), ("notes/../b", "fs:read:/workdir/b"), ("notes/none", "")],
)
def test_a_result_says_which_capability_was_refused(path: str, capability: str) -> None:
    result = MemoryGate(reveal, files={"notes/a": "x"}, secrets={"TOKEN": "s3cr3t-value"}).call(reveal, path=path)
    assert result.capability == pickle.loads(pickle.dumps(result)).capability == capability


def test_a_call_that_may_not_be_made_lacks_the_call_itself() -> None:
    gate = MemoryGate(remember, deny=["tool:call:remember"])
    assert gate.call(remember).capability == "tool:call:remember"
    assert gate.call("nothing").capability == ""  # not known here, so not refused by a rule


def test_memory_backends_take_the_same_contents_as_a_memory_gate() -> None:
    policy = Manifest.from_data(
        {
            "agent": "test",
            "capabilities": {
                "tools": ["page", "version"],
                "native": ["page", "version"],
                "destinations": {"allow": ["a.example"]},
                "process": {"allowed_binaries": ["git"]},
            },
        }
    )

    @tool(needs=["network:https:get@a.example"], effect="read_only", sandbox="native")
    async def page(ctx: Context) -> str:
        return (await ctx.fetch("https://a.example/")).text

    @tool(needs=["process:exec:git"], effect="read_only", sandbox="native")
    async def version(ctx: Context) -> str:
        return (await ctx.process.spawn("git", ["--version"])).stdout

    for http, git in (
        ({"https://a.example/": Answer.text("hello")}, "git 2"),
        (lambda exchange: Answer.text("hello"), lambda command: Finished(0, b"git 2", b"")),
    ):
        gate = Gate(policy, [page, version], Backends.memory(http=http, processes={"git": git}))
        assert run(gate, "page").value == "hello"
        assert run(gate, "version").value == "git 2"


def test_plain_functions_and_plain_backends_give_secrets() -> None:
    class Vault:
        def get(self, reference: str) -> str | None:
            return {"TOKEN": "s3cr3t-value"}.get(reference)

    policy = Manifest.from_data(
        {
            "agent": "test",
            "capabilities": {
                "tools": ["reveal"],
                "native": ["reveal"],
                "secrets": ["TOKEN"],
                "fs_reach": {"read": ["${workdir}/notes"]},
            },
        }
    )
    sources: tuple[Any, ...] = (lambda reference: "s3cr3t-value", Vault(), lambda reference: None)
    for source in sources:
        gate = Gate(policy, [reveal], Backends.memory(files={"/desk/notes/a": "x"}, secrets=source), workdir="/desk")
        result = run(gate, "reveal")
        known = getattr(source, "get", source)("TOKEN") is not None
        assert result.reason == ("ALLOWED" if known else "BACKEND_MISSING")


SUITE = '''
from licet import Context, tool
from licet.testing import Answer

@tool(needs=["network:https:get@a.example"], effect="read_only", sandbox="restricted")
async def peek(ctx: Context) -> str:
    """Peek."""
    return (await ctx.fetch("https://a.example/")).text

def test_it(gate):
    assert gate(peek, http={"https://a.example/": Answer.text("hello")}).call(peek).value == "hello"
'''


def run_pytest(folder: Path, conftest: str) -> subprocess.CompletedProcess[str]:
    (folder / "conftest.py").write_text(conftest)
    (folder / "test_it.py").write_text(SUITE)
    words = ["-q", "-p", "no:cacheprovider", "-p", "no:xdist", str(folder)]
    return warm.run("import sys, pytest; sys.exit(pytest.main(sys.argv[1:]))", words, cwd=folder)


def test_a_project_that_names_the_plugin_has_the_fixture(tmp_path: Path) -> None:
    done = run_pytest(tmp_path, 'pytest_plugins = ["licet.testing"]\n')
    assert done.returncode == 0, done.stdout


def test_a_project_that_does_not_name_the_plugin_has_no_fixture(tmp_path: Path) -> None:
    assert "fixture 'gate' not found" in run_pytest(tmp_path, "").stdout


def test_licet_testing_does_not_import_pytest() -> None:
    program = "import sys, licet.testing; print('pytest' in sys.modules)"
    done = subprocess.run([sys.executable, "-I", "-c", program], check=True, capture_output=True, text=True)
    assert done.stdout.strip() == "False"


DECIDED = """\
agent: clerk
tools:
  read: {needs: ["fs:read:${workdir}/notes"], effect: read_only, sandbox: restricted}
  send: {needs: ["network:https:post@a.example"], effect: write_limited, sandbox: restricted}
capabilities:
  tools: {read: {}, send: {args: {to: {enum: [ann]}}}}
  max_side_effect_class: write_limited
  destinations: {allow: [a.example]}
  fs_reach: {read: ["${workdir}/notes"]}
"""


@pytest.mark.parametrize(
    ("asked", "options", "verdict", "reason"),
    [
        (("read", "fs:read:${workdir}/notes/a"), {}, "allow", None),
        (("read", "fs:read:/srv/notes/a"), {"workdir": "/srv"}, "allow", None),
        (("read", "fs:read:/srv/notes/a"), {}, "deny", "PATH_NOT_REACHABLE"),
        (("send",), {"args": {"to": "ann"}}, "ask", None),
        (("send",), {"args": {"to": "eve"}}, "deny", "ARGUMENT_NOT_ALLOWED"),
    ],
)
def test_a_decision_is_asserted_in_one_line(
    tmp_path: Path, asked: tuple[str, ...], options: dict[str, Any], verdict: str, reason: str | None
) -> None:
    (tmp_path / "licet.yaml").write_text(DECIDED)
    found = decision(tmp_path / "licet.yaml", *asked, **options)
    assert (found.verdict, getattr(found, "reason", None)) == (verdict, reason)


def test_a_question_that_cannot_be_decided_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "licet.yaml").write_text(DECIDED)
    with pytest.raises(ValueError, match=r"^found the tool `reed`, expected .* did you mean `read`\?$"):
        decision(tmp_path / "licet.yaml", "reed")
    with pytest.raises(ManifestError, match="no file there"):
        decision(tmp_path / "gone.yaml", "read")
