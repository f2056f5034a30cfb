"""Tools of locked servers as declarations: from the definition in the lock, and the entry in the workspace."""

import json
from pathlib import Path
from typing import Any

import pytest

from licet import load_manifest
from licet.core.algebra.set import CapabilitySet
from licet.core.policy.flow import ArgumentFlow
from licet.core.policy.flow_terms import argument_flow
from licet.core.policy.lock import Lock, LockedServer, write_lock
from licet.core.policy.manifest import Manifest
from licet.core.policy.servers import ServerToolEntry
from licet.core.values import Origin
from licet.policy_files.server_tools import _terms, refusal_of_name

READ: dict[str, Any] = {
    "name": "read",
    "description": "Reads a file.",
    "inputSchema": {"type": "object", "properties": {"path": {"type": "string"}}},
}
ENTRY: dict[str, Any] = {
    "command": ["files"],
    "grants": ["fs:read:/srv", "fs:write:/srv/out"],
    "tools": {"read": {"needs": ["fs:read:/srv"], "effect": "read_only", "args": {"path": {"scope": "fs:read"}}}},
}


def loaded(
    folder: Path,
    entry: dict[str, Any] | None = None,
    *,
    admitted: tuple[str, ...] = ("s.read",),
    **locked: Any,
) -> Manifest:
    servers = {"s": {**ENTRY, **(entry or {})}}
    policy = {"agent": "a", "servers": servers, "capabilities": {"tools": list(admitted), "native": ["s"]}}
    (folder / "a.yaml").write_text(json.dumps(policy))
    (folder / "licet.lock").unlink(missing_ok=True)
    fields = {"command": ("files",), "tools": (READ,), **locked}
    lock = Lock(
        format=1, manifests={"a.yaml": load_manifest(folder / "a.yaml").digest}, servers={"s": LockedServer(**fields)}
    )
    (folder / "licet.lock").write_bytes(write_lock(lock))
    return load_manifest(folder / "a.yaml")


def test_a_tool_is_declared_by_its_lock_and_its_entry(tmp_path: Path) -> None:
    manifest = loaded(tmp_path)
    spec = manifest.tools["s.read"]
    assert (spec.description, spec.schema) == ("Reads a file.", READ["inputSchema"])
    assert (spec.effect, spec.sandbox, spec.needs) == ("read_only", "isolated", CapabilitySet(["fs:read:/srv"]))
    assert spec.origin is not None
    assert spec.origin.file.endswith("a.yaml")
    assert [admission.args for admission in manifest.admissions["s.read"]] == [{}, ENTRY["tools"]["read"]["args"]]


def test_the_lock_does_not_change_the_digest(tmp_path: Path) -> None:
    with_lock = loaded(tmp_path)
    (tmp_path / "licet.lock").unlink()
    without = load_manifest(tmp_path / "a.yaml")
    assert with_lock.digest == without.digest
    assert "s.read" not in without.tools


def test_a_tool_without_an_entry_is_not_declared(tmp_path: Path) -> None:
    write = {"name": "write", "inputSchema": {"type": "object"}}
    assert "s.write" not in loaded(tmp_path, tools=(READ, write)).tools
    every = {"tools": {"*": {"effect": "full"}}}
    assert loaded(tmp_path, every, tools=(READ, write)).tools["s.write"].effect == "full"


def test_a_tool_that_clients_would_reject_is_not_declared_though_a_lock_has_it(tmp_path: Path) -> None:
    every = {"tools": {"*": {"effect": "full"}}}
    assert "s.write" not in loaded(tmp_path, every, tools=(READ, {"name": "write", "inputSchema": {}})).tools


def test_left_out_needs_are_all_that_the_process_may_touch(tmp_path: Path) -> None:
    manifest = loaded(tmp_path, {"tools": {"read": {"effect": "read_only"}}})
    assert manifest.tools["s.read"].needs == CapabilitySet()
    assert manifest.tools["s.read"].optional == CapabilitySet(ENTRY["grants"])  # a ceiling with less narrows them


@pytest.mark.parametrize("annotations", [{"readOnlyHint": False}, {"destructiveHint": True}])
def test_an_annotation_tightens_the_class(annotations: dict[str, Any], tmp_path: Path) -> None:
    manifest = loaded(tmp_path, tools=({**READ, "annotations": annotations},))
    assert manifest.tools["s.read"].effect in ("write_limited", "full")


NOT_DECLARED: dict[str, dict[str, Any]] = {
    "another command": {"command": ("other",)},
    "another word in it": {"command": ("files", "/")},
    "an address": {"url": "https://a.example"},
    "a refused tool": {"refused": {"tools/read": "it clashes"}},
    "no such tool": {"tools": ()},
}


@pytest.mark.parametrize("locked", NOT_DECLARED.values(), ids=NOT_DECLARED)
def test_a_lock_of_something_else_declares_nothing(locked: dict[str, Any], tmp_path: Path) -> None:
    assert "s.read" not in loaded(tmp_path, **locked).tools


def test_a_native_server_needs_no_grants(tmp_path: Path) -> None:
    entry = {"sandbox": "native", "tools": {"read": {"effect": "read_only"}}}
    servers = {"s": {"command": ["files"], **entry}}
    policy = {"agent": "a", "servers": servers, "capabilities": {"tools": ["s.read"], "native": ["s"]}}
    (tmp_path / "a.yaml").write_text(json.dumps(policy))
    digest = load_manifest(tmp_path / "a.yaml").digest
    server = LockedServer(command=("files",), tools=(READ,))
    (tmp_path / "licet.lock").write_bytes(
        write_lock(Lock(format=1, manifests={"a.yaml": digest}, servers={"s": server}))
    )
    manifest = load_manifest(tmp_path / "a.yaml")
    assert manifest.tools["s.read"].sandbox == "native"
    assert "s.read" in manifest.native


def test_reading_resources_is_a_tool_of_its_own(tmp_path: Path) -> None:
    manifest = loaded(tmp_path, {"resources": ["file:///srv"]})
    assert manifest.tools["s.resources"].effect == "read_only"
    assert "s.prompts" not in manifest.tools


NAMES = {"read": True, "a.b/c-d_E": True, "resources": False, "prompts": False, "a b": False, "": False, "é": False}
NAMES |= {"x" * 126: True, "x" * 127: False, "a\n": False}


@pytest.mark.parametrize(("name", "usable"), NAMES.items())
def test_a_full_name_is_a_name_of_a_tool(name: str, usable: bool) -> None:
    assert bool(refusal_of_name("s", name)) is not usable


def test_what_a_server_entry_says_about_flow_is_an_admission_of_its_tool() -> None:
    entry = ServerToolEntry(
        args={"to": {"flow": "to", "maxLength": 9}}, asked_by={"en": ("Send",), "de": ("schick", "send")}
    )
    admission = _terms(entry, Origin("licet.yaml", 1, 1))
    assert admission.asked_by == ("schick", "send")
    assert admission.argument_rules == {"to": {"maxLength": 9}}
    assert argument_flow(admission.args["to"]) == ArgumentFlow(role="to")
