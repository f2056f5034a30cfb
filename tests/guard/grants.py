"""Grants for tests of handles, without a gate."""

from collections.abc import Iterable
from typing import Any

from msgspec.structs import replace

from core.manifests import layer, manifest, tool
from licet.core.algebra.rules import Use
from licet.core.decision.decision import Event
from licet.core.decision.reach import reach_of
from licet.core.decision.request import Approval, Request
from licet.core.policy.layer import EffectClass
from licet.core.policy.terms import Approvals, WriteApproval
from licet.guard.grant import Grant


async def nobody(approval: Approval, use: Use) -> None:
    raise AssertionError(f"nobody is here to be asked about {use}")


def grant(
    needs: Iterable[str] = (),
    allows: Iterable[str] | None = None,
    deny: Iterable[str] = (),
    effect: EffectClass = "write_limited",
    private: Iterable[str] = (),
    *,
    name: str = "worker",
    session: str = "s-1",
    agent: str = "clerk",
    personality: str | None = None,
    ttl: int | None = None,
    ask: Any = nobody,
    seen: list[Event] | None = None,
    deletes: WriteApproval = "call",
    written: bool = True,
) -> Grant:
    """The grant of one call. The manifest allows what the tool needs, unless `allows` is given.

    `deletes` is its `approvals.delete`. With `written`, `fs_reach.write` allows its deletes, otherwise `grants`.
    """
    needs = tuple(needs)
    spec = replace(tool(name, *needs, effect=effect), storage_ttl_seconds=ttl)
    ceiling = manifest(
        spec,
        layers=(layer(needs if allows is None else tuple(allows), tuple(deny), by_fs_reach=written),),
        approvals=Approvals(delete=deletes),
        max_effect=effect,
        private=(tuple(private),),
        agent=agent,
        personality=personality,
    )
    reach = reach_of(ceiling, name)
    assert reach is not None
    observers = () if seen is None else (seen.append,)
    return Grant(Request(name, (), session), reach, ceiling.digest, observers, ask)
