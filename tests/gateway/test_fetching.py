"""Packages that the lock pins and this machine does not have: fetched while the gateway goes on, and never chosen."""

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from licet.assemble.server_process import ServerError
from licet.core.policy.lock import LockedServer
from licet.core.policy.servers import Server
from licet.gateway.observation import observation
from licet.packages.pypi import platform_tag
from licet.packages.server_packages import Resolved
from packages.made import silent_registry

from .scripted_server import LEGACY, tool
from .workspaces import Workspace


class OfAPackage(Workspace):
    """A workspace with a server of PyPI that is locked for one platform."""

    def __init__(self, tmp_path: Path, state: Path, platform: str) -> None:
        self.platform = platform
        server = {"command": ["uvx", "demo"], "script": {}, "tools": {"echo": {"effect": "read_only"}}}
        super().__init__(tmp_path / "policy", state, {"s": server}, {"tools": ["s.echo"]})

    def _locked(self, server: Server, script: Mapping[str, Any]) -> LockedServer:
        pins = {self.platform: {"demo==1.0": f"sha256:{'0' * 64}"}}
        resolved = Resolved("pypi", "demo", "1.0", "demo", pins)
        return LockedServer(command=server.command, resolved=resolved, version=LEGACY[0], tools=(tool("echo"),))


@pytest.fixture(autouse=True)
def _own_packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))


def test_a_silent_registry_stops_neither_ping_nor_the_end(
    tmp_path: Path, store_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    workspace = OfAPackage(tmp_path, store_path / "state", platform_tag())

    async def steps() -> None:
        async with workspace.gateway() as client:
            await client.begin("tools/list")
            while not registry.opened.is_set():
                await asyncio.sleep(0.01)
            assert await client.request("ping") == {}
            assert not registry.ended.is_set()  # it was still being asked

    with silent_registry(tmp_path, monkeypatch) as registry:
        asyncio.run(steps())
        assert registry.ended.wait(60)


def test_a_gateway_chooses_no_versions_for_a_platform_that_the_lock_does_not_have(
    tmp_path: Path, store_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    workspace = OfAPackage(tmp_path, store_path / "state", "other-any-cp311")

    with silent_registry(tmp_path, monkeypatch) as registry:
        with pytest.raises(ServerError, match="for this platform: run `licet lock --update`"):
            workspace.backend()
        assert not registry.opened.is_set()


def test_a_gateway_that_observes_chooses_no_versions_either(
    tmp_path: Path, store_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    workspace = OfAPackage(tmp_path, store_path / "state", "other-any-cp311")
    (workspace.place / "licet.lock").unlink()
    with silent_registry(tmp_path, monkeypatch) as registry:
        report = workspace.reports.append
        found = asyncio.run(observation(workspace.manifest, 60, is_open=False, report=report, workdir=workspace.place))
        assert not registry.opened.is_set()
    assert found.offered == {}
    assert "a gateway chooses no version of a package: run `licet lock`" in workspace.reports[-1]
