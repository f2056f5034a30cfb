"""A granted use without a backend: every handle refuses in the same way, and no approver is asked."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from guard.grants import grant
from licet.errors import Refused
from licet.guard.grant import Grant
from licet.guard.handles.fetch import ScopedFetch
from licet.guard.handles.files import ScopedFiles
from licet.guard.handles.processes import ScopedProcesses
from licet.guard.handles.secrets_and_kv import ScopedEnv, ScopedKv, ScopedSecrets
from licet.guard.redaction.redact import Redactor
from licet.sandbox.programs.proxy import connect

NEEDS = (
    "network:*:site.test", "fs:*:/box", "secret:read:KEY", "process:exec:ls", "process:exec:/bin/ls",
    "storage:*:session", "env:read:HOME",
)  # fmt: skip


async def env(held: Grant) -> Any:
    return ScopedEnv(held, None).get("HOME")


async def stream(held: Grant) -> Any:
    async with ScopedFetch(held, None).stream("https://site.test/"):
        pass


def files(held: Grant) -> ScopedFiles:
    return ScopedFiles(held, None, "/")


def programs(held: Grant) -> ScopedProcesses:
    return ScopedProcesses(held, None, None, binaries={})


CASES: dict[str, tuple[str, Callable[[Grant], Awaitable[Any]]]] = {
    "fetch": ("network", lambda held: ScopedFetch(held, None)("https://site.test/")),
    "fetch, to delete": ("network", lambda held: ScopedFetch(held, None)("https://site.test/", "DELETE")),
    "fetch, malformed": ("network", lambda held: ScopedFetch(held, None)("https://site.test/", headers=5)),
    "stream": ("network", stream),
    "connect": ("network", lambda held: connect(held, None, "site.test", 80)),
    "read": ("files", lambda held: files(held).read("/box/a")),
    "write": ("files", lambda held: files(held).write("/box/a", "")),
    "write much": ("files", lambda held: files(held).write("/box/a", bytes(2 << 20))),
    "exists": ("files", lambda held: files(held).exists("/box/a")),
    "stat": ("files", lambda held: files(held).stat("/box/a")),
    "list": ("files", lambda held: files(held).list("/box")),
    "mkdir": ("files", lambda held: files(held).mkdir("/box/a")),
    "mkdir, deep": ("files", lambda held: files(held).mkdir("/box" + "/a" * 99)),
    "delete": ("files", lambda held: files(held).delete("/box/a")),
    "rename": ("files", lambda held: files(held).rename("/box/a", "/box/b")),
    "open": ("files", lambda held: files(held).open("/box/a")),
    "secret": ("secrets", lambda held: ScopedSecrets(held, None, Redactor()).get("KEY")),
    "program": ("processes", lambda held: programs(held).spawn("ls")),
    "program by path": ("processes", lambda held: programs(held).spawn("/bin/ls")),
    "kv get": ("storage", lambda held: ScopedKv(held, None).get("k")),
    "kv set": ("storage", lambda held: ScopedKv(held, None).set("k", 1)),
    "kv delete": ("storage", lambda held: ScopedKv(held, None).delete("k")),
    "kv list": ("storage", lambda held: ScopedKv(held, None).list()),
    "env": ("environment", env),
}


@pytest.mark.parametrize("case", CASES)
def test_a_granted_use_without_a_backend_names_the_backend_that_is_missing(case: str) -> None:
    category, act = CASES[case]

    async def once() -> None:
        await act(grant(NEEDS, effect="full"))  # whose deletes ask, and nobody may be asked

    with pytest.raises(Refused) as refusal:
        asyncio.run(once())
    assert str(refusal.value) == f"BACKEND_MISSING: Tool worker needs a backend that is not configured: {category}"
    assert refusal.value.decision.use is not None
    assert "Backends.local()" in refusal.value.explain()
