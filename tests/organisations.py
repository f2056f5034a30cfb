"""Organisation files for tests: none by default, one of a test's own, and one at its real place for a whole process."""

import ctypes
import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from licet.policy_files import organisation
from licet.policy_files.organisation import Place

WORKSPACE = """connectors:
  tenant_allowlist: [github, {connector: slack, version: ">=2"}]
tools:
  fetch: {needs: ["network:*:*"], effect: write_limited, sandbox: isolated}
  save: {needs: ["fs:write:/srv/out"], effect: write_limited, sandbox: isolated}
  issue: {needs: ["network:https:api.example.com"], effect: read_only, sandbox: isolated, connector: github@2.1}
  wipe: {needs: ["fs:delete:/srv/out"], effect: full, sandbox: isolated}
"""
MANIFEST = """agent: research
capabilities:
  tools: [fetch, save, issue, wipe]
  max_side_effect_class: full
  destinations: {allow: [api.example.com, files.example.com]}
  fs_reach: {read: [/srv], write: [/srv/out]}
  process: {allowed_binaries: [git]}
  connectors: [github]
  approvals: {write: manifest, delete: session, expires_seconds: 600}
  budget: {max_calls_per_session: 10, max_cost_usd: 5}
"""
REAL = Path("/etc/licet/organisation.yaml")
_NEWNS, _NEWUSER, _PRIVATE = 0x00020000, 0x10000000, 0x40000 | 0x4000


def nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let this process be on a machine without an organisation file."""
    monkeypatch.setattr(organisation, "MACHINE", Place("/proc/licet/organisation.yaml", 0))


def put(monkeypatch: pytest.MonkeyPatch, folder: Path, text: str) -> Path:
    """Let this process be on a machine with this organisation file, which belongs to whoever runs the test."""
    path = folder.resolve() / "machine" / "organisation.yaml"
    path.parent.mkdir(mode=0o755, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    path.parent.chmod(0o755)
    path.chmod(0o644)
    monkeypatch.setattr(organisation, "MACHINE", Place(str(path), os.getuid(), str(path.parent)))
    return path


def hidden() -> None:
    """Hide the real organisation file of this machine, if it has one, from this process and all that it starts."""
    if not os.path.lexists(REAL):
        return
    libc = ctypes.CDLL(None, use_errno=True)
    user, group = os.getuid(), os.getgid()
    done = libc.unshare(_NEWNS if user == 0 else _NEWNS | _NEWUSER) == 0
    if done and user:
        for name, text in (("setgroups", "deny"), ("uid_map", f"{user} {user} 1"), ("gid_map", f"{group} {group} 1")):
            Path("/proc/self", name).write_text(text, encoding="ascii")
    done = done and libc.mount(None, b"/", None, _PRIVATE, None) == 0
    if not done or libc.mount(b"tmpfs", bytes(REAL.parent), b"tmpfs", 0, b"mode=755") != 0:
        pytest.exit(f"{REAL} would decide the tests, and cannot be hidden here: run them in a container", 2)


# Puts a file at the real place, for one process and what it starts. Only root can: root must own the file.
_AT_ITS_PLACE = """
set -e
old=$1 file=$2; shift 2
mount --bind /etc "$old"
mount -t tmpfs -o mode=755 tmpfs /etc
for path in "$old"/* "$old"/.[!.]*; do [ -e "$path" ] && ln -s "$path" /etc/ || true; done
rm -rf /etc/licet
mkdir /etc/licet
cp "$file" /etc/licet/organisation.yaml
chmod 644 /etc/licet/organisation.yaml
exec "$@"
"""


def can_place() -> bool:
    """Whether this process may put a file at the real place, in a mount namespace of its own."""
    if os.getuid() or shutil.which("unshare") is None:
        return False
    return subprocess.run(["unshare", "-m", "true"], check=False, capture_output=True).returncode == 0


def run_at_its_place(
    folder: Path, text: str, command: Sequence[str], **given: object
) -> subprocess.CompletedProcess[str]:
    """Run a command on a machine whose real organisation file has this text."""
    old, file = folder / "etc", folder / "placed.yaml"
    old.mkdir(exist_ok=True)
    file.write_text(text, encoding="utf-8")
    words = ["unshare", "-m", "sh", "-c", _AT_ITS_PLACE, "sh", str(old), str(file), *command]
    return subprocess.run(words, check=False, capture_output=True, text=True, **given)  # type: ignore[call-overload,no-any-return]
