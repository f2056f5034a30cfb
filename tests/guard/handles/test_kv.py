"""`ctx.kv`: the declared store, its default time to live, and its scope."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from guard.grants import grant
from licet.backends.kv import MemoryKv, SqliteKv
from licet.errors import Refused
from licet.guard.handles.secrets_and_kv import ScopedKv, scope_id
from licet.guard.ports import Unavailable


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def refused(act: Any) -> Refused:
    with pytest.raises(Refused) as caught:
        asyncio.run(act)
    return caught.value


def test_the_four_operations() -> None:
    async def run() -> None:
        kv = ScopedKv(grant(["storage:*:session"]), MemoryKv())
        await kv.set("a", {"n": 1})
        await kv.set("b", None)
        assert await kv.get("a") == {"n": 1}
        assert await kv.get("none") is None
        assert await kv.get("none", 7) == 7
        assert await kv.list() == ["a", "b"]
        assert await kv.list("a") == ["a"]
        assert await kv.delete("a") is True
        assert await kv.delete("a") is False

    asyncio.run(run())


def test_a_value_that_is_too_large_for_the_store_is_refused() -> None:
    kv = ScopedKv(grant(["storage:*:session"]), MemoryKv(most_bytes=200))
    asyncio.run(kv.set("a", "x" * 100))
    for key, value in (("b", "x" * 100), ("a", "x" * (1 << 20))):
        refusal = refused(kv.set(key, value))
        assert refusal.code == "LIMIT_SIZE"
        assert str(refusal.use) == "storage:write:session"
    assert asyncio.run(kv.list()) == ["a"]
    assert asyncio.run(kv.get("a")) == "x" * 100


def test_the_declared_time_to_live_holds_unless_the_tool_says_otherwise() -> None:
    clock = Clock()

    async def run() -> None:
        kv = ScopedKv(grant(["storage:*:session"], ttl=60), MemoryKv(clock))
        await kv.set("default", 1)
        await kv.set("longer", 1, ttl_seconds=120)
        clock.now = 59
        assert await kv.list() == ["default", "longer"]
        clock.now = 60
        assert await kv.list() == ["longer"]

    asyncio.run(run())


SCOPES = [
    # needs, personality, the scope
    (["storage:*:tool-private"], None, "tool:worker@clerk"),
    (["storage:*:session"], None, "session:s-1@clerk"),
    (["storage:*:personality"], "butler", "personality:butler"),
    (["storage:*:personality"], None, "session:s-1@clerk"),
    (["storage:*:session", "storage:*:tool-private"], None, "tool:worker@clerk"),
    (["storage:read:session"], None, "session:s-1@clerk"),
    (["storage:*:*"], None, "tool:worker@clerk"),
]


@pytest.mark.parametrize(("needs", "personality", "scope"), SCOPES)
def test_the_scope_is_named_by_licet(needs: list[str], personality: str | None, scope: str) -> None:
    backend = MemoryKv()
    backend_scopes: Callable[[], list[str]] = lambda: sorted(backend._scopes)  # noqa: E731
    held = grant([*needs, "storage:write:session"] if "read" in needs[0] else needs, personality=personality)
    asyncio.run(ScopedKv(held, backend).set("k", 1))
    assert backend_scopes() == [scope]


def test_another_declared_store_is_reached_by_its_kind() -> None:
    async def run() -> None:
        backend = MemoryKv()
        kv = ScopedKv(grant(["storage:*:session", "storage:*:tool-private"]), backend)
        await kv.of("session").set("k", "shared")
        await kv.set("k", "own")
        assert await kv.of("session").get("k") == "shared"
        assert await kv.of("tool-private").get("k") == "own"
        with pytest.raises(Refused, match="STORAGE_NOT_DECLARED: personality is not in the tool's declared storage"):
            await kv.of("personality").get("k")
        for wrong in ("*", "global", ""):
            with pytest.raises(Refused, match="STORAGE_NOT_DECLARED"):
                kv.of(wrong)

    asyncio.run(run())


def operations(kv: ScopedKv) -> dict[str, Any]:
    return {"get": kv.get("k"), "set": kv.set("k", 1), "delete": kv.delete("k"), "list": kv.list()}


@pytest.mark.parametrize("name", ["get", "set", "delete", "list"])
def test_a_tool_that_declares_no_storage_has_none(name: str) -> None:
    acts = operations(ScopedKv(grant(["env:read:A"]), MemoryKv()))
    error = refused(acts.pop(name))
    for rest in acts.values():
        rest.close()
    assert error.code == "STORAGE_NOT_DECLARED"


@pytest.mark.parametrize(("side", "fails"), [("read", {"set", "delete"}), ("write", {"get", "list"})])
def test_each_operation_checks_read_or_write(side: str, fails: set[str]) -> None:
    async def run() -> set[str]:
        failed = set()
        for name, act in operations(ScopedKv(grant([f"storage:{side}:session"]), MemoryKv())).items():
            try:
                await act
            except Refused as error:
                failed.add(name if error.code == "STORAGE_NOT_DECLARED" else error.code)
        return failed

    assert asyncio.run(run()) == fails


def test_writing_what_belongs_to_a_personality_is_a_side_effect() -> None:
    read_only = grant(["storage:*:personality"], effect="read_only", personality="butler")
    assert asyncio.run(ScopedKv(read_only, MemoryKv()).get("k")) is None
    assert refused(ScopedKv(read_only, MemoryKv()).set("k", 1)).code == "SIDE_EFFECT_EXCEEDED"
    own = grant(["storage:*:session"], effect="read_only")
    asyncio.run(ScopedKv(own, MemoryKv()).set("k", 1))


class Broken:
    async def _fail(self, *given: Any) -> Any:
        raise Unavailable("/state/kv.db is damaged")

    get = set = delete = list = clear = _fail


@pytest.mark.parametrize("name", ["get", "set", "delete", "list"])
def test_a_broken_store_is_reported_without_its_path(name: str) -> None:
    acts = operations(ScopedKv(grant(["storage:*:session"]), Broken()))
    error = refused(acts.pop(name))
    for rest in acts.values():
        rest.close()
    assert str(error) == "BACKEND_MISSING: the session store cannot be used"
    assert "/state/kv.db is damaged" in error.explain()


def test_it_ends_with_its_call() -> None:
    held = grant(["storage:*:session"])
    kv = ScopedKv(held, MemoryKv())
    held.over = True
    assert refused(kv.get("k")).code == "SESSION_ENDED"


@pytest.mark.parametrize("store", ["memory", "sqlite"])
def test_agents_share_the_store_of_their_personality_and_no_other(tmp_path: Path, store: str) -> None:
    backend = MemoryKv(most_bytes=200) if store == "memory" else SqliteKv(tmp_path / "kv.db", most_bytes=200)

    def kv(kind: str, agent: str, personality: str | None = "butler", session: str = "s-1") -> ScopedKv:
        held = grant([f"storage:*:{kind}"], agent=agent, personality=personality, session=session)
        return ScopedKv(held, backend)

    async def scene() -> None:
        for kind in ("tool-private", "session"):
            await kv(kind, "clerk").set("k", kind)
            assert await kv(kind, "cook").get("k") is None
        await kv("personality", "clerk").set("k", "x" * 80)
        assert await kv("personality", "cook", session="s-2").get("k") == "x" * 80
        assert await kv("personality", "cook", "gardener").get("k") is None
        assert await kv("personality", "cook", None).get("k") is None  # this is the session store, of each agent
        with pytest.raises(Refused, match="LIMIT_SIZE"):  # one store, one quota
            await kv("personality", "cook").set("other", "x" * 80)

    asyncio.run(scene())


def test_no_two_agents_or_kinds_share_a_scope() -> None:
    scopes = [
        scope_id(kind, tool, session, personality, agent)
        for kind in ("tool-private", "session")
        for tool in ("a", "b")
        for session in ("a", "b")
        for personality in ("a", "b")
        for agent in ("a", "b")
    ]
    assert len(set(scopes)) == 2 * 2 * 2  # each kind by its own name, and by agent
    assert scope_id("personality", "t", "s", "a", "clerk") == "personality:a"
    assert scope_id("personality", "t", "s", None, "clerk") == "session:s@clerk"
