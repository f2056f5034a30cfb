"""What an operator of a state decides, as bytes that are signed with one of the `operators:` keys of that state.

The private half of such a key is on no node. An act names the ledger that it is for and a number used once, so that it
counts for no other state and for no second time.
"""

from typing import Literal

import msgspec
from msgspec import Struct

from licet.core.ledger.entry import Unsound
from licet.core.values import canonical_json

Kind = Literal["enrol", "dismiss", "thaw", "operators"]


class OperatorAct(Struct, frozen=True, forbid_unknown_fields=True):
    """One decision: a node that may write or may no longer, a freeze that ends, or the next keys of operators."""

    act: Kind
    ledger: str
    about: tuple[str, ...]  # keys of nodes or operators, or ids of freezes
    time: str
    nonce: str
    format: Literal[1] = 1


_READ = msgspec.json.Decoder(OperatorAct)


def act_bytes(act: OperatorAct) -> bytes:
    """The bytes that an operator signs."""
    return canonical_json(act)


def read_act(data: bytes) -> OperatorAct:
    """Read an act strictly: `Unsound` unless it is written exactly as `act_bytes` writes it."""
    try:
        act = _READ.decode(data)
    except msgspec.DecodeError as wrong:
        raise Unsound(f"it is no act of an operator: {wrong}") from None
    if act_bytes(act) != data:
        raise Unsound("it is no act of an operator: other bytes than are signed")
    return act
