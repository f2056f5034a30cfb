"""Budgets on the path of a call: read the usage, reserve before any effect, settle afterwards.

If the bundle of a tool has a budget, a call spends from the bundle's account and from its agent's.
"""

import asyncio
from decimal import Decimal
from typing import TYPE_CHECKING

from msgspec.structs import replace

from licet.core.canonical import money_text
from licet.core.decision.budget import bundle_account
from licet.core.decision.decide import decide
from licet.core.decision.decision import BudgetRefunded, BudgetReserved, BudgetSettled, BudgetUnsettled, Deny, Happened
from licet.core.decision.request import Usage
from licet.guard.deadline import finish, in_time
from licet.guard.grant import Grant
from licet.guard.ports import Budgets, Reservation, Unavailable
from licet.guard.registration import Registered

if TYPE_CHECKING:
    from licet.guard.call import Call

_STORE = "the store of budgets"


async def spent(call: "Call", registered: Registered, budgets: Budgets) -> Usage:
    """The usage of the session of a call, and of the bundles of its tool."""
    (agent, session), day = call.session.account, call.time.date().isoformat()
    bundles = registered.reach.bundles if registered.reach is not None else ()
    try:
        usage = await in_time(call.stores, budgets.usage(agent, session, day), _STORE)
        bundle_usage = {
            bundle.name: await in_time(
                call.stores, budgets.usage(bundle_account(agent, bundle.name), session, day), _STORE
            )
            for bundle in bundles
            if bundle.budget
        }
    except Unavailable as broken:
        call.refuse("BACKEND_MISSING", f"{_STORE} cannot be used", str(broken))
    return replace(usage, bundles=bundle_usage) if bundle_usage else usage


async def reserve(call: "Call", registered: Registered, grant: Grant) -> None:
    """Reserve one call and its cost, or refuse the call."""
    budgets = call.ports.budgets
    if budgets is None:
        call.refuse("BACKEND_MISSING", f"Tool {call.tool} has a budget, but no backend keeps one")
    claim, bundle_claims = call.session.claims(registered, call.policy.manifest.budget, call.time)
    try:
        # The bundles first: a call that its bundle refuses then takes nothing from the other tools of its agent.
        for name, wanted in bundle_claims.items():
            taken = await in_time(call.stores, budgets.reserve(wanted), _STORE)
            if taken is None:
                break
            call.bundle_reservations[name] = taken
        else:
            call.reservation = await in_time(call.stores, budgets.reserve(claim), _STORE)
    except Unavailable as broken:
        call.refuse("BACKEND_MISSING", f"{_STORE} cannot be used", str(broken))
    if call.reservation is None:
        call.usage = replace(await spent(call, registered, budgets), approved=call.usage.approved)
        decision = decide(call.request, call.policy.manifest, call.usage)
        if isinstance(decision, Deny):  # it names the limit, and where that is stated
            grant.deny(decision)
        call.refuse("BUDGET_EXCEEDED", "other calls have spent what was left")  # but one was refunded meanwhile
    grant.note_of(BudgetReserved, rule=f"{money_text(claim.cost_usd)} USD" if claim.cost_usd else "")


async def settle(call: "Call", cost: Decimal) -> Happened | None:
    """Settle the reservations of a call that ran, or refund those of one that did not; return the event."""
    registered, about = call.registered, (f"tool:call:{call.tool}", call.tool)
    assert registered is not None  # noqa: S101 - it has made the reservation
    reservations = [one for one in (call.reservation, *call.bundle_reservations.values()) if one is not None]
    failed = ""
    for reservation in reservations:
        try:
            await _end(call, reservation, cost)
        except (asyncio.CancelledError, Exception) as error:  # the store's own cancel: that of the caller is kept
            # An unsettled reservation counts as spent: a store that fails here can only make the budget smaller.
            failed = type(error).__name__
    if failed:
        return BudgetUnsettled(*about, rule=failed)
    if call.reservation is None:  # a bundle refused: there was no event about a reservation
        return None
    if not call.running:
        return BudgetRefunded(*about)
    return BudgetSettled(*about, rule=f"{money_text(cost)} USD" if cost or registered.cost_usd else "")


async def _end(call: "Call", reservation: Reservation, cost: Decimal) -> None:
    budgets = call.ports.budgets
    assert budgets is not None  # noqa: S101 - it has made the reservation
    await finish(
        call.stores, budgets.settle(reservation, cost) if call.running else budgets.refund(reservation), _STORE
    )
