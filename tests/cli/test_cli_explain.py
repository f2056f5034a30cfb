"""`licet explain`: a typed use is understood, and the answer names the rule, its place and the fix."""

import json
import re
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from cli.messages import message
from licet.cli.app import licet
from licet.cli.receipts_text import explanation

MANIFEST = """agent: a
capabilities:
  tools: [fetch, save, erase, closed]
  max_side_effect_class: full
  destinations:
    allow: [api.example.com]
  fs_reach:
    read: ["${workdir}/data", "~/notes"]
    write: ["${workdir}/out"]
  secrets: [KEY]
  budget: {max_calls_per_session: 9}
tools:
  fetch: {needs: ["network:*:*", "fs:read:*", "secret:read:KEY"], effect: read_only, sandbox: restricted}
  save: {needs: ["fs:*:*", "network:*:api.example.com"], effect: write_limited, sandbox: restricted}
  erase: {needs: ["fs:delete:*"], effect: full, sandbox: isolated}
  closed: {needs: []}
"""


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", "/home/somebody")
    (tmp_path / "m.yaml").write_text(MANIFEST)
    return tmp_path


def run(*words: str) -> Result:
    return CliRunner().invoke(licet, ["explain", *words])


@pytest.mark.parametrize(
    ("typed", "use", "code"),
    [
        (["https://api.example.com/v1?q=1"], "network:https:get@api.example.com:443", 0),
        (["HTTPS://API.Example.Com"], "network:https:get@api.example.com:443", 0),
        (["http://api.example.com:8080/"], "network:http:get@api.example.com:8080", 0),
        (["POST https://api.example.com"], "network:https:post@api.example.com:443", 1),
        (["HEAD", "https://api.example.com"], "network:https:head@api.example.com:443", 0),
        (["https://api.stripe.com"], "network:https:get@api.stripe.com:443", 1),
        (["/srv/x"], "fs:read:/srv/x", 1),
        (["./data/a.csv"], "fs:read:{here}/data/a.csv", 0),
        (["read data/../data/./a.csv"], "fs:read:{here}/data/a.csv", 0),
        (["data/a.csv"], None, 2),  # could be a host, a secret or a path
        (["read", "data/a.csv"], "fs:read:{here}/data/a.csv", 0),
        (["write", "a.txt"], "fs:write:{here}/a.txt", 1),
        (["delete", "out/a b"], "fs:delete:{here}/out/a b", 1),
        (["read", ".env"], "fs:read:{here}/.env", 1),
        (["read", "..."], "fs:read:{here}/...", 1),
        (["read", "data/a:b"], "fs:read:{here}/data/a:b", 0),
        (["${workdir}/data/a.csv"], "fs:read:{here}/data/a.csv", 0),
        (["${workdir}"], "fs:read:{here}", 1),
        (["write", "${workdir}/../x"], "fs:write:{above}/x", 1),
        (["read", "~"], "fs:read:/home/somebody", 1),
        (["read", "~/notes/../notes/x"], "fs:read:/home/somebody/notes/x", 0),
        (["read", "data/*"], None, 2),
        (["./data/*"], None, 2),
        (["/srv/*.csv"], None, 2),
        (["~/*"], None, 2),
        (["${workdir}/*"], None, 2),
        (["~root/x"], None, 2),
        (["read", "~root/x"], None, 2),
        (["$HOME/x"], None, 2),
        (["read", "$HOME/x"], None, 2),
        (["read", "${workdir}x"], None, 2),
        (["read", "${home}/x"], None, 2),
        (["./${workdir}"], None, 2),
        (["read", "process:exec:git"], None, 2),
        (["read", "fs:read:/srv"], None, 2),
        (["read"], None, 2),
        (["read", " "], None, 2),
        (["read", ""], None, 2),
        (["./data/../m.yaml"], "fs:read:{here}/m.yaml", 1),
        (["."], "fs:read:{here}", 1),
        (["read ./data/a b"], "fs:read:{here}/data/a b", 0),
        (["write", "./out/x"], "fs:write:{here}/out/x", 1),
        (["delete", "/x"], "fs:delete:/x", 1),
        (["~/notes/today"], "fs:read:/home/somebody/notes/today", 0),
        (["secret:read:KEY"], "secret:read:KEY", 0),
        (["secret:read:OTHER"], "secret:read:OTHER", 1),
        (["network:https:get@api.example.com"], "network:https:get@api.example.com:443", 0),
        (["process:exec:git"], "process:exec:git", 1),
        (["fs:read:*"], None, 2),
        (["network:https:get@*.example.com"], None, 2),
        (["https://user:hunter2@api.example.com"], None, 2),
        (["https://"], None, 2),
        (["CONNECT https://api.example.com"], None, 2),
        (["ftp://api.example.com"], None, 2),
        (["whatever"], None, 2),
        (["./data/a b.csv"], "fs:read:{here}/data/a b.csv", 0),
        (["./data/a.csv", "/etc/passwd"], None, 2),  # two paths, not one with a space
        (["read", "./data/a.csv", "/etc/passwd"], None, 2),
        (["delete", "out/a", "b"], None, 2),
        (["https://api.example.com", "https://api.stripe.com"], None, 2),
        (["https://api.example.com/ https://api.stripe.com"], None, 2),
        (["GET", "https://api.example.com", "https://api.stripe.com"], None, 2),
        (["./data/a.csv", "https://api.example.com"], None, 2),
        (["secret:read:KEY", "secret:read:OTHER"], None, 2),
        (["process:exec:git", "push"], None, 2),
    ],
    ids=lambda given: " ".join(given) if isinstance(given, list) else "",
)
def test_a_use_is_understood_as_it_is_typed(typed: list[str], use: str | None, code: int, here: Path) -> None:
    result = run("m.yaml", "fetch", *typed, "--json")
    assert result.exit_code == code
    if use is None:
        assert message("explain.invalid_value_use") in result.stderr
        assert "hunter2" not in result.stderr
        assert result.stdout == ""
        return
    said = json.loads(result.stdout)
    assert said["use"] == use.format(here=here, above=here.parent)
    assert said["verdict"] == ("allow" if code == 0 else "deny")


@pytest.mark.parametrize("typed", ["./data/x", "read data/x", "${workdir}/data/x"])
def test_relative_paths_start_from_the_working_directory(typed: str) -> None:
    said = json.loads(run("m.yaml", "fetch", typed, "--workdir", "/srv", "--json").stdout)
    assert (said["verdict"], said["use"]) == ("allow", "fs:read:/srv/data/x")


@pytest.mark.parametrize(
    ("typed", "hint"),
    [
        ("data/a.csv", "expected an http or https URL, a path such as `./a` or `read a`, or `domain:action:scope`"),
        ("whatever", "expected an http or https URL, a path such as `./a` or `read a`, or `domain:action:scope`"),
        ("data/*", "expected an http or https URL, a path such as"),
        ("ftp://x.example", "found `ftp://x.example`, expected an http or https URL, a path such as"),
        ("fs:reed:/x", "found `reed`, expected one of read, write, delete, "),
        ("https://*.x.com/a", "found `https://*.x.com/a`, expected one concrete URL, whose host has no wildcard"),
        ("read data/*", "found `data/*`, expected one concrete path, without a wildcard"),
        ("$HOME/x", "found `$HOME/x`, expected a path; only `~` and `${workdir}`, at its start, stand for a directory"),
    ],
)
def test_a_use_that_is_not_understood_says_how_to_write_it(typed: str, hint: str) -> None:
    assert hint in run("m.yaml", "fetch", typed).stderr


@pytest.mark.parametrize(
    ("tool", "use", "code", "lines"),
    [
        (
            "fetch",
            "https://api.example.com",
            0,
            [
                "allowed: `fetch` may network:https:get@api.example.com:443",
                "  because       `fetch` needs network:*:* (m.yaml:13)",
                "  because       network:*:api.example.com (m.yaml:6)",
            ],
        ),
        (
            "fetch",
            "https://api.stripe.com",
            1,
            [
                "denied: `fetch` may not network:https:get@api.stripe.com:443",
                "  because       the manifest does not allow it (m.yaml:2)",
                "  allowed here  network:*:api.example.com (m.yaml:6)",
                "  to allow it   add `network:https:get@api.stripe.com:443` under `capabilities.grants`",
            ],
        ),
        ("save", "", 1, ["asks: `save` may be called once a person agrees"]),
        ("erase", "", 1, ["asks: `erase` may be called once a person agrees"]),
        ("closed", "", 1, ["denied: `closed` may not be called"]),
        ("fetch", "", 0, ["allowed: `fetch` may be called"]),
        ("fetsh", "", 1, ["denied: `fetsh` may not be called", "  did you mean  fetch"]),
        ("fe\x1b[2J", "", 1, ["denied: `fe\\u001b[2J` may not be called"]),
    ],
)
def test_the_answer_names_the_rule_its_place_and_the_way_out(tool: str, use: str, code: int, lines: list[str]) -> None:
    result = run("m.yaml", tool, *([use] if use else []))
    assert result.exit_code == code
    said = [re.sub("^[├└]─ (?:[✓✗ ] )?", "  ", line) for line in result.stdout.splitlines()]
    assert said[0] == lines[0]
    assert [line for line in lines if not any(one.startswith(line) for one in said)] == []


def test_json_has_what_a_program_needs(here: Path) -> None:
    said = json.loads(run("m.yaml", "fetch", "https://api.stripe.com", "--json").stdout)
    assert said["rules"][0].pop("fix").startswith(message("explain.add_network_https_get_api"))
    assert said == {
        "verdict": "deny",
        "reason": "HOST_NOT_ALLOWED",
        "tool": "fetch",
        "use": "network:https:get@api.stripe.com:443",
        "rules": [
            {
                "text": message("explain.manifest_does_not_allow"),
                "reason": "HOST_NOT_ALLOWED",
                "origin": {"file": "m.yaml", "line": 2, "column": 1},
            }
        ],
        "message": message("explain.host_not_allowed_api_stripe"),
        "also_allows": [],
    }


def test_json_of_an_open_question_and_of_a_yes() -> None:
    asked = json.loads(run("m.yaml", "save", "write ./out/x", "--json").stdout)
    assert (asked["verdict"], asked["reason"]) == ("ask", "APPROVAL_REQUIRED")
    assert asked["message"].startswith("APPROVAL_REQUIRED: ")
    allowed = json.loads(run("m.yaml", "fetch", "secret:read:KEY", "--json").stdout)
    assert (allowed["verdict"], allowed["reason"], allowed["message"]) == ("allow", None, None)


def test_the_way_out_leads_out(here: Path) -> None:
    refusal = run("m.yaml", "fetch", "https://api.stripe.com").stdout
    added = re.search("add `(.*)` under `capabilities.grants`", refusal)
    assert added
    wider = MANIFEST.replace("  secrets:", f'  grants: ["{added[1]}"]\n  secrets:')
    (here / "m.yaml").write_text(wider)
    assert run("m.yaml", "fetch", "https://api.stripe.com").exit_code == 0


KEYS = """agent: a
capabilities:
  tools: [t]
  max_side_effect_class: full
  budget: {max_calls_per_session: 9}
  destinations: {allow: [%s]}
  fs_reach: {write: [%s]}
tools: {t: {from: "tools:t"}}
"""
BY_KEYS = """from licet import tool

@tool(capabilities={"network": {"allowed_hosts": [%s]}, "fs_reach": {"write": [%s]}}, effect="full", sandbox="isolated")
def t() -> None: ...
"""


@pytest.mark.parametrize(
    ("use", "host", "path"),
    [("https://new.example/v1", '"new.example:443"', ""), ("write /srv/new", "", '"/srv/new"')],
)
def test_following_every_line_leaves_a_check_that_is_clean(use: str, host: str, path: str, here: Path) -> None:
    (here / "k.yaml").write_text(KEYS % ("", ""))
    (here / "tools.py").write_text(BY_KEYS % ("", ""))
    told = [line.strip("├└─ ") for line in run("k.yaml", "t", use).stdout.splitlines() if "to allow it" in line]
    item = (host or path).strip('"')
    assert [re.sub(r" in \S+( \(.*)?$", "", line).removeprefix("to allow it   ") for line in told] == [
        message("explain.add_tool", item=item, host="network.allowed_hosts" if host else "fs_reach.write"),
        f"add `{item}` under `capabilities.{'destinations.allow' if host else 'fs_reach.write'}`",
    ]
    (here / "k.yaml").write_text(KEYS % (host, path))
    (here / "tools.py").write_text(BY_KEYS % (host, path))
    assert CliRunner().invoke(licet, ["check", "k.yaml"]).exit_code == 0
    assert run("k.yaml", "t", use).stdout.startswith(("asks: ", "allowed: "))


def test_a_tool_that_does_not_fit_is_allowed_nothing(here: Path) -> None:
    (here / "k.yaml").write_text(KEYS.replace("[t]", "[t, u]", 1) % ('"a.example:443"', "") + "# {}\n")
    (here / "tools.py").write_text(BY_KEYS % ('"a.example:443", "b.example"', ""))
    result = run("k.yaml", "t", "https://a.example")
    assert result.exit_code == 1
    assert result.stdout.splitlines()[:2] == [
        message("explain.denied_may_not_network_https"),
        message("explain.needs_network_example_which_manifest"),
    ]
    assert message("explain.allow_add_example_under_capabilities") in result.stdout


HOSTS = """agent: a
capabilities:
  tools: [t]
  destinations: {allow: [%s]}
tools: {t: {needs: ["network:*:*"], effect: read_only, sandbox: restricted}}
"""


@pytest.mark.parametrize(
    ("allowed", "url", "verdict", "told"),
    [
        ('"*"', "http://169.254.169.254/latest", "deny", ["169.254.169.254 is a metadata service"]),
        ("169.254.169.254", "http://169.254.169.254/latest", "deny", ["169.254.169.254 is a metadata service"]),
        ('"[fd00:ec2::254]"', "http://[fd00:ec2::254]/", "deny", ["fd00:ec2::254 is a metadata service"]),
        (
            "a.example",
            "http://0xa9fea9fe/",
            "deny",
            ["169.254.169.254 is a metadata service", "the manifest does not allow it"],
        ),
        ('"*"', "http://127.0.0.1:8080/", "deny", ["127.0.0.1 is loopback"]),
        ("127.0.0.1", "http://127.0.0.1:8080/", "allow", None),
        ('"[::1]"', "http://[::1]:8080/", "allow", None),
        ('"*"', "http://[::1]:8080/", "deny", ["::1 is loopback"]),
        ('"*"', "http://93.184.215.14/", "allow", None),
        ('"*"', "http://93.example/", "allow", None),  # the addresses of a name are known only when it is looked up
        ('"*"', "http://localhost/", "deny", ["`localhost` has no public address, and `private` is empty"]),
        ("localhost", "http://a.localhost/", "deny", None),
        ("db.internal", "http://db.internal/", "deny", ["`db.internal` has no public address, and `private` is empty"]),
    ],
)
def test_an_address_is_judged_as_a_call_judges_it(
    allowed: str, url: str, verdict: str, told: list[str] | None, here: Path
) -> None:
    (here / "h.yaml").write_text(HOSTS % allowed)
    said = json.loads(run("h.yaml", "t", url, "--json").stdout)
    assert said["verdict"] == verdict
    if told is not None:
        assert [rule["text"] for rule in said["rules"]] == told
        assert said["reason"] == "ADDRESS_NOT_ALLOWED"
        # No change opens a metadata service, so none is advised.
        assert any(rule["fix"] for rule in said["rules"]) == ("metadata" not in told[0])


@pytest.mark.parametrize(
    ("host", "opened"), [("localhost", '["127.0.0.0/8", "::1/128"]'), ("db.internal", '["10.0.0.0/8"]')]
)
def test_an_inner_name_is_allowed_once_its_addresses_are_opened_as_advised(host: str, opened: str, here: Path) -> None:
    (here / "h.yaml").write_text(HOSTS % host)
    said = run("h.yaml", "t", f"http://{host}/").stdout
    assert message("explain.allow_set_private", opened=opened) in said
    (here / "h.yaml").write_text((HOSTS % host).replace("  tools:", f"  private: {opened}\n  tools:"))
    assert run("h.yaml", "t", f"http://{host}/").exit_code == 0


def test_another_tool_that_does_not_fit_changes_nothing(here: Path) -> None:
    other = "  other: {needs: ['env:read:X'], effect: read_only, sandbox: restricted}\n"
    (here / "m.yaml").write_text(MANIFEST.replace("[fetch,", "[other, fetch,") + other)
    (alone, changed) = (
        run("m.yaml", name, use) for name, use in (("fetch", "secret:read:KEY"), ("other", "env:read:X"))
    )
    assert (alone.exit_code, changed.exit_code) == (0, 1)
    assert "other" not in alone.stdout


@pytest.mark.parametrize("words", [["gone.yaml"], ["bad.yaml"], ["shared.yaml"]], ids=" ".join)
def test_a_manifest_that_is_wrong_says_why_and_decides_nothing(words: list[str], here: Path) -> None:
    (here / "bad.yaml").write_text("agent: a\nverison: x\n")
    (here / "shared.yaml").write_text("bundles: {}\n")
    result = run(*words, "fetch", "/x")
    assert (result.exit_code, result.stdout) == (1, "")
    assert re.match(rf"{words[0]}:\d+:\d+: error: found ", result.stderr)
    said = json.loads(run(*words, "fetch", "/x", "--json").stdout)
    assert list(said) == ["problems"]
    assert said["problems"][0]["file"] == words[0]


@pytest.mark.parametrize(("verdict", "reason"), [("ask", "APPROVAL_REQUIRED"), ("deny", "APPROVAL_EXPIRED")])
@pytest.mark.parametrize("began", [True, False])
def test_explain_says_whether_a_tool_ran_before_its_approval_was_missing(
    verdict: str, reason: str, began: bool
) -> None:
    granted = {"kind": "CapabilityGranted", "capability": "tool:call:t"}
    asked = {"kind": "CapabilityDenied", "capability": "fs:delete:/a", "reason": reason}
    entry = {
        "kind": "receipt",
        "verdict": verdict,
        "reason": reason,
        "tool": "t",
        "rules": [],
        "approvals": [],
        "cost_usd": "0",
        "events": [granted, asked] if began else [asked],
        "code": "execution_failed",
        "error": None,
        "manifest": "sha256:0",
        "time": "now",
        "agent": "a",
        "session": "s",
        "id": "r-0-1",
    }
    told = "  it ran        until there; called again, it runs from the start"
    assert (told in explanation(entry)) is began


COMMANDS = """agent: a
capabilities:
  fs_reach: {read: ["${workdir}/data"]}
  secrets: [KEY]
  process: {allowed_binaries: [ls]}
"""


@pytest.mark.parametrize(
    ("use", "code", "first"),
    [
        ("process:exec:ls", 0, "allowed: `licet run` may process:exec:ls"),
        ("process:exec:cat", 1, "denied: `licet run` may not process:exec:cat"),
        ("${workdir}/data/a", 0, "allowed: `licet run` may fs:read:{here}/data/a"),
        ("secret:read:KEY", 2, ""),
    ],
)
def test_any_command_of_run_is_explained(use: str, code: int, first: str, here: Path) -> None:
    Path("m.yaml").write_text(COMMANDS)
    result = run("m.yaml", "run", use)
    assert (result.exit_code, result.stdout.partition("\n")[0]) == (code, first.format(here=here))
    assert "is not known" not in result.output


@pytest.mark.parametrize("url", ["https://example.com/a", "POST https://example.com", "https://[2001:4860::1]:8443"])
def test_the_line_that_is_advised_for_an_https_url_of_a_command_is_the_one_that_its_tunnel_needs(url: str) -> None:
    writing = COMMANDS + "  max_side_effect_class: write_limited\n"
    Path("m.yaml").write_text(writing)
    place = "[2001:4860::1]:8443" if "[" in url else "example.com:443"
    result = run("m.yaml", "run", url)
    assert result.stdout.startswith(f"denied: `licet run` may not network:tcp:{place}\n")
    assert f"add `network:tcp:{place}` under `capabilities.grants` in m.yaml" in result.stdout
    Path("m.yaml").write_text(f'{writing}  grants: ["network:tcp:{place}"]\n')
    assert run("m.yaml", "run", url).stdout.startswith(f"asks: `licet run` may network:tcp:{place} once")


def test_a_tool_that_is_called_run_is_explained_as_itself() -> None:
    Path("m.yaml").write_text(MANIFEST.replace("closed", "run"))
    assert run("m.yaml", "run", "process:exec:ls").stdout.startswith("denied: `run` may not be called")


SHELL = "agent: a\ncapabilities: {tools: [], process: {allowed_binaries: [sh]}}\n"
UNKNOWN = {  # what is typed, the code, and what is said
    "nothing": (
        [],
        2,
        "Missing argument 'TOOL': expected run (any command), such as `licet explain run write out.txt`",
    ),
    "a use alone": (["write", "a.txt"], 2, "`write` is no tool: expected run (any command), such as"),
    "no such tool": (["bash"], 1, "known here    run (any command), such as `licet explain run write out.txt`"),
}


@pytest.mark.parametrize(("words", "code", "said"), UNKNOWN.values(), ids=UNKNOWN)
def test_who_does_not_know_the_tools_is_told_them(words: list[str], code: int, said: str, here: Path) -> None:
    (here / "licet.yaml").write_text(SHELL)
    result = run(*words)
    assert (result.exit_code, said in result.output) == (code, True), result.output


def test_the_tools_of_a_named_manifest_are_told() -> None:
    expected = "expected closed, erase, fetch, save, such as `licet explain m.yaml save write out.txt`"
    assert expected in run("m.yaml").output


@pytest.mark.parametrize("key", ["tools", "toolset"])
def test_advice_for_a_personality_names_the_key_that_its_file_has(key: str) -> None:
    tool = "tools: {look: {needs: [], effect: read_only, sandbox: isolated}}"
    Path("m.yaml").write_text(f"agent: a\n{tool}\ncapabilities: {{tools: [look]}}\n")
    Path("p.yaml").write_text(f"id: p\n{key}: [other]\n")
    words = ("m.yaml", "look", "--personality", "p.yaml")
    assert f"add `look` under `{key}` in p.yaml" in run(*words).stdout
    Path("p.yaml").write_text(f"id: p\n{key}: [other, look]\n")
    assert run(*words).stdout.startswith("allowed: `look` may be called")
