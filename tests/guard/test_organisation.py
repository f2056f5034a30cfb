"""The organisation of a machine at every gate: at its start and at each reload, in receipts, and below a delegation."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
import yaml
from msgspec import UNSET

from licet import (
    Backends,
    CapabilitySet,
    Context,
    Gate,
    Manifest,
    ManifestError,
    check_and_run,
    load_manifest,
    run,
    tool,
)
from licet.backends.memory import MemoryHttp
from licet.core.ledger.entry import Entry, read_entry
from licet.core.values import canonical_json
from licet.testing import Answer, MemoryGate, decision
from organisations import put

NARROW = "destinations:\n  allow: [a.example]\nbudget:\n  max_calls_per_session: 3\n"


@tool(needs=["network:https:*"], effect="read_only", sandbox="native")
async def look(ctx: Context, host: str) -> str:
    """Fetch a page."""
    return (await ctx.fetch(f"https://{host}.example/")).text


@tool(needs=["fs:write:/srv"], effect="write_limited", sandbox="native")
async def save(ctx: Context) -> None:
    """Write a file."""
    await ctx.fs.write("/srv/a", "x")


POLICY: dict[str, Any] = {
    "agent": "tester",
    "capabilities": {
        "tools": ["look", "save"],
        "native": ["look", "save"],
        "max_side_effect_class": "write_limited",
        "destinations": {"allow": ["a.example", "b.example"]},
        "fs_reach": {"write": ["/srv"]},
        "approvals": {"write": "manifest"},
    },
}
PAGES = {f"https://{name}.example/": Answer(body=name.encode()) for name in "ab"}
PUBLIC = {f"{name}.example": ["93.184.216.34"] for name in "ab"}


def gate_of(manifest: Manifest | None = None, *, on_misfit: Any = "narrow") -> Gate:
    """A gate of the real kind on memory backends."""
    policy = manifest or Manifest.from_data(POLICY)
    backends = Backends.memory(http=MemoryHttp(PAGES, PUBLIC), files={"/srv/b": "x"})
    return Gate(policy, [look, save], backends, pin=policy.digest, on_misfit=on_misfit)


def entries(gate: Gate) -> list[Entry]:
    """All that its ledger has."""
    return list(gate.ports.ledger.entries)  # type: ignore[union-attr]


def test_every_gate_reads_it_however_its_manifest_was_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = gate_of()
    file = put(monkeypatch, tmp_path, NARROW)
    after = gate_of()
    assert [run(before, "look", {"host": host}).ok for host in "ab"] == [True, True]
    assert run(after, "look", {"host": "a"}).ok
    refused = run(after, "look", {"host": "b"})
    assert refused.reason == "HOST_NOT_ALLOWED"
    assert f"{file}:1" in refused.explain()
    assert before.manifest.digest == after.manifest.digest
    run(after, "look", {"host": "a"})
    spent = run(after, "look", {"host": "a"})
    assert spent.reason == "BUDGET_EXCEEDED"
    assert f"{file}:4" in spent.explain()


def test_registration_names_its_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = put(monkeypatch, tmp_path, "max_side_effect_class: read_only\n")
    gate = gate_of(on_misfit="deny")
    refused = run(gate, "save")
    assert refused.reason == "SIDE_EFFECT_EXCEEDED"
    assert f"{file}:1" in refused.explain()
    assert run(gate, "look", {"host": "a"}).ok


def test_an_edit_takes_effect_at_the_next_reload(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    manifest = Manifest.from_data(POLICY)
    gate = gate_of(manifest)
    put(monkeypatch, tmp_path, NARROW)
    assert run(gate, "look", {"host": "b"}).ok
    gate.reload(manifest)
    assert run(gate, "look", {"host": "b"}).reason == "HOST_NOT_ALLOWED"
    put(monkeypatch, tmp_path, "destinations: {allow: [b.example]}")
    assert run(gate, "look", {"host": "b"}).reason == "HOST_NOT_ALLOWED"
    gate.reload(manifest)
    assert run(gate, "look", {"host": "b"}).ok


def test_a_file_that_cannot_be_used_refuses_everything(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    manifest = Manifest.from_data(POLICY)
    gate = gate_of(manifest)
    child = gate.delegated("helper", ["network:https:a.example"])
    file = put(monkeypatch, tmp_path, "destinations: {allow: [a.example]}\nallow: all\n")
    with pytest.raises(ManifestError, match="the key `allow`"):
        gate_of(manifest)
    with pytest.raises(ManifestError, match="the key `allow`"):
        gate.reload(manifest)
    for one in (gate, child):
        refused = run(one, "look", {"host": "a"})
        assert refused.reason == "MANIFEST_CHANGED"
        assert f"{file}:2" in refused.explain()
    file.unlink()
    gate.reload(manifest)
    assert [run(one, "look", {"host": "a"}).ok for one in (gate, child)] == [True, True]


def test_receipts_have_its_digest_beside_that_of_the_manifest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    alone = gate_of()
    run(alone, "look", {"host": "a"})
    assert {one.organisation for one in entries(alone)} == {UNSET}
    put(monkeypatch, tmp_path, NARROW)
    gate = gate_of()
    run(gate, "look", {"host": "a"})
    run(gate, "look", {"host": "b"})
    run(gate, "unknown")
    expected = (gate.manifest.organisations[0].digest,)
    found = entries(gate)
    assert {one.kind for one in found} == {"decision", "receipt"}
    assert {(one.manifest, one.organisation) for one in found} == {(alone.manifest.digest, expected)}


def test_a_second_file_stays_with_its_manifest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, second = tmp_path / "agent.yaml", tmp_path / "second.yaml"
    path.write_text(yaml.safe_dump(POLICY), encoding="utf-8")
    second.write_text("destinations: {deny: [a.example]}\n", encoding="utf-8")
    put(monkeypatch, tmp_path, NARROW)
    gate = gate_of(load_manifest(path, organisation=second))
    assert [run(gate, "look", {"host": host}).reason for host in "ab"] == ["HOST_NOT_ALLOWED", "HOST_NOT_ALLOWED"]
    named = [Path(one.origin.file).name for one in gate.manifest.organisations]
    assert named == ["organisation.yaml", "second.yaml"]
    digests = tuple(one.digest for one in gate.manifest.organisations)
    assert {one.organisation for one in entries(gate)} == {digests}


def test_entries_without_it_are_read_as_before() -> None:
    """A ledger of an earlier version has no such field, and its hashes stay valid."""
    gate = gate_of()
    run(gate, "look", {"host": "a"})
    body = canonical_json(entries(gate)[0])
    assert b"organisation" not in body
    assert read_entry(body).organisation is UNSET


def test_a_delegate_has_it_too_and_its_digest_does_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    allow = ["network:https:a.example", "network:https:b.example", "tool:call:look"]
    alone = gate_of().delegated("helper", allow)
    put(monkeypatch, tmp_path, NARROW)
    child = gate_of().delegated("helper", allow)
    assert child.manifest.digest == alone.manifest.digest
    assert run(child, "look", {"host": "b"}).reason == "HOST_NOT_ALLOWED"
    assert run(child, "look", {"host": "a"}).ok
    assert {one.organisation for one in entries(child)} == {(child.manifest.organisations[0].digest,)}  # type: ignore[arg-type]


def test_a_personality_and_a_manifest_together_keep_their_digest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "agent.yaml").write_text("agent: a\ncapabilities: {tools: [look], max_side_effect_class: full}\n")
    (tmp_path / "who.yaml").write_text("id: who\ntoolset: [look]\nbudget: {max_calls_per_session: 2}\n")

    def met() -> Manifest:
        return load_manifest(tmp_path / "agent.yaml").meet(load_manifest(tmp_path / "who.yaml"))

    before = met()
    put(monkeypatch, tmp_path, NARROW)
    after = met()
    assert (before.digest, len(before.organisations), len(after.organisations)) == (after.digest, 0, 1)


def test_a_call_without_a_manifest_is_under_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = put(monkeypatch, tmp_path, "max_side_effect_class: read_only\napprovals: {write: call}\n")
    walled = tool(needs=["fs:write:/srv"], effect="write_limited", sandbox="restricted")(save.fn)
    calling = check_and_run(walled, allow=CapabilitySet(["fs:write:/srv"]), backends=Backends.memory())
    found = asyncio.run(calling)
    assert found.reason == "SIDE_EFFECT_EXCEEDED"
    assert f"{file}:1" in found.explain()


def test_a_test_on_memory_backends_says_the_same_on_every_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "agent.yaml"
    path.write_text(
        "agent: a\ntools: {see: {needs: ['network:https:*'], effect: read_only, sandbox: native}}\n"
        "capabilities: {tools: [see], native: [see], destinations: {allow: [b.example]}}\n"
    )

    @tool(needs=["network:https:*"], effect="read_only", sandbox="native")
    async def see(ctx: Context) -> str:
        return (await ctx.fetch("https://b.example/")).text

    file = put(monkeypatch, tmp_path, NARROW)
    for manifest in (None, path, load_manifest(path)):
        assert MemoryGate(see, manifest=manifest, http=PAGES).call(see).ok
        tried = MemoryGate(see, manifest=manifest, http=PAGES, organisation=file)
        assert tried.call(see).reason == "HOST_NOT_ALLOWED"
    assert decision(path, "see", "network:https:get@b.example").verdict == "allow"
