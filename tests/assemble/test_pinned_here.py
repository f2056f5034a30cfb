"""A lock with a bad pin for one server: its tools are withheld, and everything else goes on."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from licet import load_manifest
from licet.cli.app import licet
from licet.core.policy.lock import FORMAT, Lock, LockedServer, Resolved, write_lock
from licet.packages.locked_tools import is_pinned, pinned_here

PIN = f"sha512-{'A' * 86}=="
COMMAND = ("npx", "demo")
BAD_PINS = {
    "a path as name": "../evil@1.0.0",
    "a name that is too long": f"{'a' * 300}@1.0.0",
    "a path around it": "../.. > demo@1.0.0",
    "a path as alias": "../x=demo@1.0.0",
    "the directory of all packages": "node_modules@1.0.0",
    "a file as version": "demo@file:x",
}


def locked(*pins: str) -> LockedServer:
    resolved = Resolved("npm", "demo", "1.0.0", "demo", {"any": dict.fromkeys(pins, PIN)})
    return LockedServer(command=COMMAND, resolved=resolved)


@pytest.mark.parametrize("name", BAD_PINS)
def test_a_bad_pin_pins_nothing_and_stops_no_command(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    server = {"command": list(COMMAND), "tools": {"*": {"effect": "read_only"}}}
    policy = {"agent": "a", "servers": {"desk": server}, "capabilities": {"tools": {"desk.echo": {}}}}
    Path("a.yaml").write_text(json.dumps(policy))
    bad = locked(BAD_PINS[name], "demo@1.0.0")  # the bad one first: it is met before the package itself
    assert is_pinned(locked("demo@1.0.0"))
    assert not is_pinned(bad)
    lock = Lock(format=FORMAT, manifests={"a.yaml": load_manifest("a.yaml").digest}, servers={"desk": bad})
    Path("licet.lock").write_bytes(write_lock(lock))
    pinned_here(load_manifest("a.yaml"))
    for command in ("surface", "check"):
        CliRunner().invoke(licet, [command, "a.yaml"], catch_exceptions=False)
