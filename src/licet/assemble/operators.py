"""Sets the operators of a state: the keys that end freezes, and that enrol nodes.

The entry in the ledger is what everybody can check; the pinned copy is what this machine goes by. A state directory
whose pinned copy is missing, while its ledger has such an entry, is not used.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import Protocol, runtime_checkable

from licet.backends.freezes import Operators
from licet.core.ledger.state_acts import StateAct, StateView, entry_of
from licet.core.values import key_bytes
from licet.guard.freezing import ActRefused, OperatorKey, operator_act
from licet.guard.ports import Freezes, Ledger


class PinsOperators(Freezes, Protocol):
    """A store of freezes next to which the keys of the operators are pinned."""

    async def unpinned(self) -> StateView:
        """What the acts amount to, whatever keys are pinned here."""

    async def pin(self, operators: Operators) -> None:
        """Pin the keys of the operators in the directory of the state."""


@runtime_checkable
class HasNodes(Protocol):
    """A ledger that many nodes write, which somebody enrols."""

    async def hand_over(self, operators: Sequence[str], key: OperatorKey | None = None) -> None:
        """Let operators enrol and dismiss nodes from here on; nothing happens if they do already."""


async def set_operators(
    freezes: PinsOperators, ledger: Ledger, keys: Sequence[str], now: datetime, key: OperatorKey | None = None
) -> StateAct | None:
    """Set the keys of the operators of a state; returns the act, or None if they are known and only pinned here.

    A state without operators takes any. Later ones need the `key` of a present operator. The same keys again complete
    what a crash has left, and pin the keys on another node. Raises `ActRefused`.
    """
    wanted = tuple(dict.fromkeys(keys))
    if not wanted:
        raise ActRefused("name at least one key of an operator")
    if wrong := [one for one in wanted if key_bytes(one) is None]:
        raise ActRefused(f"{wrong[0]} is no usable public key: make one with `licet state key FILE`")
    view = await freezes.unpinned()
    if view.keys == wanted:
        if isinstance(ledger, HasNodes):
            await ledger.hand_over(wanted, key)
        await freezes.pin(Operators(ledger=view.ledger, keys=wanted))
        return None
    act = operator_act("operators", wanted, now, view, "command", key)
    if isinstance(ledger, HasNodes):
        await ledger.hand_over(wanted, key)
    await ledger.record(entry_of(act))
    await freezes.pin(Operators(ledger=view.ledger or (await freezes.unpinned()).ledger, keys=wanted))
    await freezes.add(act)
    return act
