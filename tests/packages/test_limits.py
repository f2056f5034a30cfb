"""Registries that never answer: what waits for them is stopped, with everything that it started."""

import asyncio
import fcntl
import os
from pathlib import Path

import pytest

from licet.packages.package_store import building
from licet.packages.pypi import platform_tag
from licet.packages.server_packages import PackageError, Resolved, in_thread, install, launch_of, resolve

from .made import needs_node, silent, silent_registry

PYPI = ("uvx", Resolved("pypi", "demo", "1.0", "demo", {platform_tag(): {"demo==1.0": f"sha256:{'0' * 64}"}}))
NPM = ("npx", Resolved("npm", "demo", "1.0.0", "demo", {"any": {"demo@1.0.0": f"sha512-{'A' * 86}=="}}))
BOTH = [pytest.param(*PYPI, id="pip"), pytest.param(*NPM, id="npm", marks=needs_node)]


@pytest.mark.parametrize(("launcher", "resolved"), BOTH)
def test_what_takes_too_long_is_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, launcher: str, resolved: Resolved
) -> None:
    store, launch = tmp_path / "store", launch_of([launcher, "demo"])
    with silent_registry(tmp_path, monkeypatch), pytest.raises(PackageError, match=r"took longer than 1\.5 s"):
        asyncio.run(in_thread(1.5, lambda: install(launch, resolved, store, progress=silent)))
    assert {path.name for path in store.glob("*/*/*")} == {".lock"}


@pytest.mark.parametrize(("launcher", "resolved"), BOTH)
def test_what_nobody_waits_for_is_stopped_and_the_loop_stays_free(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, launcher: str, resolved: Resolved
) -> None:
    async def steps() -> None:
        task = asyncio.create_task(in_thread(3600.0, lambda: resolve(launch, store, progress=silent)))
        while not registry.opened.is_set():
            await asyncio.sleep(0.01)
        assert not registry.ended.is_set()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    store, launch = tmp_path / "store", launch_of([launcher, "demo"])
    with silent_registry(tmp_path, monkeypatch) as registry:
        asyncio.run(steps())
        assert registry.ended.wait(60)


def test_a_lock_that_another_process_holds_is_not_waited_for_without_end(tmp_path: Path) -> None:
    parent = tmp_path / "store" / "pypi" / "demo"
    parent.mkdir(parents=True)

    def build() -> None:
        with building(tmp_path / "store", "pypi", "demo"):
            pass

    asyncio.run(in_thread(10.0, build))
    held = os.open(parent / ".lock", os.O_RDWR)
    fcntl.flock(held, fcntl.LOCK_EX)
    try:
        with pytest.raises(PackageError, match="another process that installs the same package"):
            asyncio.run(in_thread(0.3, build))
    finally:
        os.close(held)
