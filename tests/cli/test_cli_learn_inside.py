"""`licet learn` from what was seen inside HTTPS: `inspect`, exact methods, and keys that could stay outside."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from cli.test_cli_learn import document, recording, touches
from cli.test_cli_learn import here as here  # noqa: PLC0414 - a fixture
from command_line import run
from licet import load_manifest
from licet.core.policy.keys import INSPECT, STAND_INS
from licet.core.review.known_keys import KNOWN_KEYS
from licet.core.review.recording_lines import Touch

GET, POST = "network:https:get@api.example.com:443", "network:https:post@api.example.com:443"
TUNNEL, OTHER_TUNNEL = "network:tcp:api.example.com:443", "network:tcp:other.example.com:443"


@pytest.fixture(autouse=True)
def without_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    for known in KNOWN_KEYS:
        for variable in known.variables:
            monkeypatch.delenv(variable, raising=False)


def inside(*uses: str, name: str = "1.jsonl", **fields: Any) -> Path:
    return recording(touches(*uses), name=name, **{"inspected": True, **fields})


def capabilities(*words: str) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(document(*words)["text"])["capabilities"]
    return found


DRAFT = """\
  grants:
    - "network:https:get@api.example.com:443"  # learned: 1 request by make, process 7
    - "network:https:post@api.example.com:443"  # learned: 1 request by make, process 7
    - "network:tcp:other.example.com:443"  # learned: 1 connection by make, process 7
  inspect:
    - api.example.com  # learned: 2 requests by make, process 7
"""


def test_hosts_that_were_looked_into_are_drafted_with_exact_methods() -> None:
    inside(GET, POST, OTHER_TUNNEL)
    found = document("--write")
    assert found["text"].endswith(DRAFT)
    assert found["looked_into"] == [{"host": "api.example.com", "calls": "2 requests by make, process 7"}]
    assert found["still_refused"] == []
    assert run("check").exit_code == 0
    assert not document("--write")["changed"]
    assert "api.example.com" in run("surface").stdout


# The uses of a recording that looked into HTTPS, those of one that did not, and the hosts and grants of the draft.
BOTH: dict[str, tuple[tuple[str, ...], tuple[str, ...], list[str], list[str]]] = {
    "requests in both ways": ((GET,), (TUNNEL,), ["api.example.com"], [GET]),
    "a tunnel alone": ((GET,), (TUNNEL, OTHER_TUNNEL), ["api.example.com"], [GET, OTHER_TUNNEL]),
    "an upgrade": ((GET, TUNNEL), (TUNNEL,), ["api.example.com"], [GET, TUNNEL]),
    "nothing inside": ((OTHER_TUNNEL,), (TUNNEL,), [], [TUNNEL, OTHER_TUNNEL]),
    "another port": (
        ("network:tcp:api.example.com:8443", GET),
        (),
        ["api.example.com"],
        [GET, "network:tcp:api.example.com:8443"],
    ),
}


@pytest.mark.parametrize("name", BOTH)
def test_a_recording_that_looks_into_https_goes_with_one_that_does_not(name: str) -> None:
    seen, tunnels, hosts, grants = BOTH[name]
    inside(*seen)
    recording(touches(*tunnels), name="2.jsonl")
    found = capabilities()
    assert (found.get("inspect", []), found["grants"]) == (hosts, grants)
    left_out = [one["use"] for one in document()["left_out"]]
    assert left_out == ([TUNNEL] if TUNNEL in tunnels and GET in seen and TUNNEL not in seen else [])


@pytest.mark.parametrize("source", ["gate", "gateway"])
def test_requests_of_tools_are_never_looked_into(source: str) -> None:
    Path("desk.yaml").write_text("agent: desk\n")
    inside(GET, source=source, command=(), agent="desk", manifest="desk.yaml")
    assert "inspect" not in capabilities()


def test_a_host_of_which_all_is_left_to_a_person_is_left_to_a_person() -> None:
    inside("network:https:get@localhost:443", "network:https:delete@api.example.com:443", GET)
    text = document()["text"]
    assert "# - localhost  # learned: 1 request by make" in text
    assert '# - "network:https:delete@api.example.com:443"' in text
    assert yaml.safe_load(text)["capabilities"]["inspect"] == ["api.example.com"]


def test_hosts_are_generalised_as_their_rules_are() -> None:
    inside(*(f"network:https:get@{one}.files.example.org:443" for one in "abc"))
    assert capabilities()["inspect"] == [f"{one}.files.example.org" for one in "abc"]
    found = capabilities("--generalise-hosts")
    assert (found["inspect"], found["grants"]) == (
        ["*.files.example.org"],
        ["network:https:get@*.files.example.org:443"],
    )


def test_a_policy_that_looks_into_a_host_already_keeps_its_line() -> None:
    inside(GET, "network:https:get@b.example.org:443")
    Path("licet.yaml").write_text('agent: x\ncapabilities:\n  inspect: ["*.example.com"]  # by hand\n')
    document("--write")
    assert INSPECT.of(load_manifest("licet.yaml")) == ("*.example.com", "b.example.org")
    assert "# by hand" in Path("licet.yaml").read_text()


def test_a_rule_for_a_tunnel_that_nothing_needs_any_more_is_named() -> None:
    recording(touches(TUNNEL, OTHER_TUNNEL))
    document("--write")
    inside(GET, name="2.jsonl")
    found = document("--write")
    assert found["added"] == [GET]
    assert [one["rule"] for one in found["unused"]] == [TUNNEL]


# Keys ----------------------------------------------------------------------------------------------------------------

MODEL, CODE = "network:https:post@api.anthropic.com:443", "network:https:get@api.github.com:443"


def with_comments(text: str) -> str:
    """The draft after a person has agreed to its comments about keys."""
    lines = text.splitlines(keepends=True)
    first = next(number for number, line in enumerate(lines) if line.startswith("capabilities"))
    return "".join(
        lines[: first + 1]
        + [line.replace("# ", "", 1) if line.lstrip()[0] == "#" else line for line in lines[first + 1 :]]
    )


def test_known_keys_of_these_hosts_are_offered_as_comments_that_a_person_can_agree_to(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "x")
    monkeypatch.setenv("GH_TOKEN", "x")
    inside(MODEL, CODE)
    found = document("--write")
    text = Path(found["file"]).read_text()
    offer = "    # GH_TOKEN: {secret: GH_TOKEN, hosts: [api.github.com]}  # learned: programs see a value without worth"
    assert offer in text.splitlines()
    assert STAND_INS.of(load_manifest(found["file"])) == ()
    assert any("`stand_ins`" in note for note in found["notes"])
    again = document("--write")
    assert (again["changed"], again["notes"]) == (False, [])
    Path(found["file"]).write_text(with_comments(text))
    entries = STAND_INS.of(load_manifest(found["file"]))
    assert [(one.name, one.hosts, one.headers) for one in entries] == [
        ("ANTHROPIC_API_KEY", ("api.anthropic.com",), ("x-api-key",)),
        ("GH_TOKEN", ("api.github.com",), ()),
    ]
    assert run("check", found["file"]).exit_code == 0


def test_without_a_variable_that_is_set_each_kind_of_key_is_offered() -> None:
    inside(MODEL)
    text = document()["text"]
    assert [
        name for name in ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "GITHUB_TOKEN") if f"# {name}: {{" in text
    ] == [
        "ANTHROPIC_API_KEY",
        "ANTHROPIC_AUTH_TOKEN",
    ]


def test_a_key_that_the_policy_places_is_not_offered() -> None:
    inside(CODE)
    entry = "GITHUB_TOKEN: {secret: t, hosts: [api.github.com]}"
    Path("licet.yaml").write_text(
        f"agent: x\ncapabilities:\n  secrets: [t]\n  inspect: [api.github.com]\n  stand_ins:\n    {entry}\n"
    )
    assert "GITHUB_TOKEN" not in document()["text"].replace(entry, "")
    assert "GH_TOKEN" not in document()["text"]


def test_keys_are_offered_next_to_those_of_other_hosts() -> None:
    inside(CODE)
    entry = "MINE: {secret: t, hosts: [a.example.org]}"
    policy = f"agent: x\ncapabilities:\n  secrets: [t]\n  inspect: [a.example.org]\n  stand_ins:\n    {entry}\n"
    Path("licet.yaml").write_text(policy)
    found = document("--write")
    Path("licet.yaml").write_text(with_comments(found["text"]))
    assert {"MINE", "GITHUB_TOKEN"} <= {one.name for one in STAND_INS.of(load_manifest("licet.yaml"))}


def test_keys_are_offered_for_no_tunnel() -> None:
    recording(touches("network:tcp:api.github.com:443"))
    assert "stand_ins" not in document()["text"]


# A key that was sent away --------------------------------------------------------------------------------------------


def sent_away(use: str) -> list[Touch]:
    """What a gate records of such a request: it is allowed first, and refused when the key in it is found."""
    (used,) = touches(use)
    return [used, Touch(time=2, call=used.call, tool=used.tool, use=use, outcome="refused", sent_key=True)]


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("honest", [0, 2])
def test_a_request_that_would_have_sent_a_key_away_is_not_learned(turned: bool, honest: int) -> None:
    Path("desk.yaml").write_text("agent: desk\n")
    evil = "network:https:post@evil.example.com:443"
    lines = sent_away(evil) + touches(GET, *[evil] * honest)
    about: dict[str, Any] = {"source": "gate", "command": (), "agent": "desk", "manifest": "desk.yaml"}
    recording(reversed(lines) if turned else lines, **about)
    found = document()
    assert "evil" not in found["text"]
    assert "api.example.com" in found["text"]
    assert [(one["use"], one["why"]) for one in found["left_out"]] == [
        (evil, "one of these requests would have sent a key away")
    ]
