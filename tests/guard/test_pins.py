"""A policy may approve writes by itself only if its digest is pinned."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from licet import Backends, Context, Gate, Manifest, Refused, Result, load_manifest, run, tool
from licet.backends.approvals.terminal import MemoryApprover
from licet.backends.memory import MemoryLedger
from licet.cli.app import licet
from pins import trust

from .gates import call

POLICY: dict[str, Any] = {
    "agent": "clerk",
    "capabilities": {
        "tools": ["save"],
        "native": ["save"],
        "max_side_effect_class": "write_limited",
        "approvals": {"write": "manifest"},
        "fs_reach": {"write": ["/srv"]},
    },
}
OTHER = "sha256:" + "0" * 64


@tool(needs=["fs:write:/srv"], effect="write_limited", sandbox="native")
async def save(ctx: Context) -> str:
    """Write a file."""
    await ctx.fs.write("/srv/a", "text")
    return "saved"


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "policy"
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    (folder / "agent.yaml").write_text(json.dumps(POLICY))
    return folder


def lock(place: Path, content: object) -> None:
    text = content if isinstance(content, str) else json.dumps(content)
    (place / "licet.lock").write_text(text)


def built(manifest: Manifest, **options: Any) -> Gate:
    return Gate(manifest, [save], Backends.memory(files={"/srv/a": b""}), **options)


def reason(manifest: Manifest, **options: Any) -> str:
    return call(built(manifest, **options), "save").reason


def test_without_a_pin_the_policy_approves_nothing() -> None:
    result = call(built(load_manifest("agent.yaml")), "save")
    assert result.reason == "APPROVAL_REQUIRED"
    assert "licet trust agent.yaml" in result.explain()


def test_a_digest_in_code_pins_it() -> None:
    manifest = load_manifest("agent.yaml")
    assert reason(manifest, pin=manifest.digest) == "ALLOWED"
    with pytest.raises(Refused, match="MANIFEST_CHANGED"):
        built(manifest, pin=OTHER)


def test_policy_from_data_is_pinned_by_code_alone() -> None:
    manifest = Manifest.from_data(POLICY)
    assert reason(manifest) == "APPROVAL_REQUIRED"
    assert reason(manifest, pin=manifest.digest) == "ALLOWED"


def test_the_trust_list_pins_a_path_with_a_digest(place: Path) -> None:
    trust(place / "agent.yaml")
    assert reason(load_manifest("agent.yaml")) == "ALLOWED"
    (place / "copy.yaml").write_text((place / "agent.yaml").read_text())
    assert reason(load_manifest("copy.yaml")) == "APPROVAL_REQUIRED"
    (place / "agent.yaml").write_text(json.dumps(POLICY | {"version": "2"}))
    assert reason(load_manifest("agent.yaml")) == "APPROVAL_REQUIRED"


def test_a_trust_list_that_cannot_be_used_trusts_nothing(place: Path) -> None:
    trust(place / "agent.yaml")
    (place.parent / "state" / "licet" / "trust").write_text("{}")
    assert reason(load_manifest("agent.yaml")) == "APPROVAL_REQUIRED"


def test_a_lock_pins_it(place: Path) -> None:
    lock(place, {"format": 1, "manifests": {"agent.yaml": load_manifest("agent.yaml").digest}})
    assert reason(load_manifest("agent.yaml")) == "ALLOWED"


WRONG: dict[str, object] = {
    "another digest": {"format": 1, "manifests": {"agent.yaml": OTHER}},
    "no entry for it": {"format": 1, "manifests": {}},
    "another format": {"format": 2, "manifests": {"agent.yaml": "DIGEST"}},
    "a format that is no number": {"format": True, "manifests": {"agent.yaml": "DIGEST"}},
    "more than is known": {"format": 1, "manifests": {"agent.yaml": "DIGEST"}, "signed": {}},
    "no list": {"format": 1, "manifests": ["DIGEST"]},
    "no digest": {"format": 1, "manifests": {"agent.yaml": None}},
    "a key twice": '{"format": 1, "manifests": {"agent.yaml": "DIGEST", "agent.yaml": "DIGEST"}}',
    "no JSON": "agent.yaml DIGEST",
    "nothing": "",
    "endless nesting": "[" * 100_000,
}


@pytest.mark.parametrize("content", WRONG.values(), ids=WRONG)
@pytest.mark.sampled(4)
def test_a_lock_without_the_digest_of_the_manifest_is_a_refusal(content: object, place: Path) -> None:
    digest = load_manifest("agent.yaml").digest
    trust(place / "agent.yaml")  # nothing makes up for it
    text = content if isinstance(content, str) else json.dumps(content)
    lock(place, text.replace("DIGEST", digest))
    manifest = load_manifest("agent.yaml")
    for options in ({}, {"pin": digest}):
        with pytest.raises(Refused, match="MANIFEST_CHANGED") as refused:
            built(manifest, **options)
        assert "licet.lock" in refused.value.explain()

    said = CliRunner().invoke(licet, ["check", "agent.yaml"])
    assert (said.exit_code, "licet.lock:1:1: warning: found" in said.stdout) == (0, True)
    said = CliRunner().invoke(licet, ["explain", "agent.yaml", "save"])
    assert (said.exit_code, "licet.lock" in said.stdout) == (1, True)
    assert CliRunner().invoke(licet, ["surface", "agent.yaml"]).exit_code == 0
    assert CliRunner().invoke(licet, ["diff", "agent.yaml", "agent.yaml"]).exit_code == 0


COMMANDS = {
    "save": (["call", "agent.yaml", "save"], 1),
    "run": (["run", "agent.yaml", "--", "true"], 125),
}


@pytest.mark.parametrize(("name", "words", "code"), [(name, *one) for name, one in COMMANDS.items()], ids=COMMANDS)
def test_a_call_refused_because_of_the_lock_leaves_a_receipt_with_its_name(
    place: Path, name: str, words: list[str], code: int
) -> None:
    lock(place, {"format": 1, "manifests": {"agent.yaml": OTHER}})
    said = CliRunner().invoke(licet, words, catch_exceptions=False)
    assert said.exit_code == code
    assert f"denied: `{name}` may not be called" in said.stderr
    assert "licet.lock" in said.stderr
    found = CliRunner().invoke(licet, ["receipts", "list", "--json"], catch_exceptions=False)
    [receipt] = json.loads(found.stdout)["receipts"]
    assert (receipt["tool"], receipt["verdict"], receipt["reason"]) == (name, "deny", "MANIFEST_CHANGED")


def test_a_lock_that_is_no_file_is_a_refusal(place: Path) -> None:
    (place / "licet.lock").symlink_to("gone")
    with pytest.raises(Refused, match="MANIFEST_CHANGED"):
        built(load_manifest("agent.yaml"))


def test_a_link_to_a_policy_does_not_lead_past_its_lock(place: Path, tmp_path: Path) -> None:
    lock(place, {"format": 1, "manifests": {"agent.yaml": OTHER}})
    (tmp_path / "linked.yaml").symlink_to(place / "agent.yaml")
    with pytest.raises(Refused, match="MANIFEST_CHANGED"):
        built(load_manifest(tmp_path / "linked.yaml"))


def test_a_gate_is_reloaded_only_with_what_its_lock_holds(place: Path) -> None:
    lock(place, {"format": 1, "manifests": {"agent.yaml": load_manifest("agent.yaml").digest}})
    gate = built(load_manifest("agent.yaml"))
    (place / "agent.yaml").write_text(json.dumps(POLICY | {"version": "2"}))
    with pytest.raises(Refused, match="MANIFEST_CHANGED"):
        gate.reload(load_manifest("agent.yaml"))
    # The older policy may allow more than the file does now, so nothing is judged by it any more.
    assert run(gate, "save").reason == "MANIFEST_CHANGED"


def test_a_second_ceiling_makes_another_policy(place: Path) -> None:
    trust(place / "agent.yaml")
    personality = {"id": "p", "toolset": ["save"], "native": ["save"], "max_side_effect_class": "write_limited"}
    content = {**personality, "fs_reach": {"write": ["/srv"]}, "approvals": {"write": "manifest"}}
    (place / "mind.yaml").write_text(json.dumps(content))
    both = load_manifest("agent.yaml", personality="mind.yaml")
    assert reason(both) == "APPROVAL_REQUIRED"
    assert reason(both, pin=both.digest) == "ALLOWED"
    assert not load_manifest("agent.yaml").meet(load_manifest("mind.yaml")).pinned


def test_a_delegate_holds_less_under_the_same_pin() -> None:
    manifest = load_manifest("agent.yaml")
    for options, expected in (({"pin": manifest.digest}, "ALLOWED"), ({}, "APPROVAL_REQUIRED")):
        whole = built(manifest, **options)

        async def delegated(gate: Gate = whole) -> Result:
            async with gate.session("s") as session:
                helper = session.delegate(agent="helper", allow=["fs:write:/srv"])
                return await helper.call("save")

        assert asyncio.run(delegated()).reason == expected


MODES = {
    "pinned": ({}, True, "its writes are approved in the policy, pinned by `Gate(pin=…)` (agent.yaml:1)"),
    "not pinned": ({}, False, "it asks once a session (agent.yaml:1)"),
    "each call": ({"approvals": {"write": "call"}}, True, "it asks before each call (agent.yaml:1)"),
}


@pytest.mark.parametrize(("keys", "pins", "told"), MODES.values(), ids=MODES)
def test_receipts_say_how_writes_are_approved(keys: dict[str, Any], pins: bool, told: str, place: Path) -> None:
    (place / "agent.yaml").write_text(json.dumps(POLICY | {"capabilities": POLICY["capabilities"] | keys}))
    manifest = load_manifest("agent.yaml")
    ledger = MemoryLedger()
    approver = MemoryApprover(lambda _: "approved")
    backends = Backends.memory(files={"/srv/a": b""}, ledger=ledger, approver=approver)
    result = call(Gate(manifest, [save], backends, pin=manifest.digest if pins else None), "save")
    assert result.ok, result.explain()
    assert told in json.loads(ledger.rows[-1].body)["rules"]


def test_check_says_that_a_policy_is_not_pinned(place: Path) -> None:
    said = CliRunner().invoke(licet, ["check", "agent.yaml"])
    assert said.exit_code == 0
    assert "agent.yaml:1" in said.stdout
    assert "found `manifest` as approval, and no pin, expected a pin" in said.stdout
    trust(place / "agent.yaml")
    assert "no pin" not in CliRunner().invoke(licet, ["check", "agent.yaml"]).stdout
