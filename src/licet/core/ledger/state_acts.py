"""What is decided about a whole state: freezes, their ends, and the keys of its operators; and which of it counts.

Every store of these acts keeps them in the order in which they were made, and asks `folded` what they amount to. Rows
may have been written by anybody who can write the store: what does not count is left out, and named.
"""

from collections.abc import Iterable, Sequence
from typing import Literal

import msgspec
from msgspec import UNSET, Struct

from licet.core.ledger.entry import STATE_AGENT, STATE_SESSION, CheckSignature, Entry, StateFact, Unsound
from licet.core.ledger.operator_acts import OperatorAct, act_bytes, read_act
from licet.core.values import canonical_json, key_bytes

Kind = Literal["freeze", "thaw", "operators"]

_TOOLS: dict[Kind, str] = {"freeze": "licet freeze", "thaw": "licet thaw", "operators": "licet state init"}


class StateAct(Struct, frozen=True, forbid_unknown_fields=True):
    """One row of a store of these acts. Its id is chosen by whoever makes it, before it is written."""

    kind: Kind
    id: str
    time: str
    fact: StateFact


class StateView(Struct, frozen=True):
    """What the acts of a state amount to."""

    ledger: str = ""  # that operators sign acts for
    keys: tuple[str, ...] = ()  # of the operators; empty if the state has none
    freezes: tuple[StateAct, ...] = ()  # those in force, the first one first
    unsound: tuple[str, ...] = ()  # what does not count, and why
    nonces: frozenset[str] = frozenset()  # of the operators' acts that were used

    def why(self, agent: str, tool: str) -> str:
        """Why calls of a tool by an agent, or by its delegates, are stopped; empty if they are not."""
        for one in self.freezes:
            if freezes(one.fact, agent, tool):
                return one.fact.why or "frozen"
        return ""


NOTHING = StateView()
_ROW = msgspec.json.Decoder(StateAct)


def freezes(fact: StateFact, agent: str, tool: str) -> bool:
    """Whether a freeze stops an agent's calls of a tool. A delegate is stopped with the agent that it works for."""
    of_agent = fact.agent is UNSET or agent == fact.agent or agent.startswith(f"{fact.agent}>")
    return of_agent and fact.tool in (UNSET, tool)


def row_bytes(act: StateAct) -> bytes:
    """An act as stores keep it."""
    return canonical_json(act)


def read_row(data: object) -> StateAct:
    """Read a row of a store strictly; `Unsound` unless it is written exactly as `row_bytes` writes it."""
    if type(data) is not bytes:  # SQLite stores any type in any column
        raise Unsound("it is no act on a state: not a blob of bytes")
    try:
        act = _ROW.decode(data)
        again = row_bytes(act)
    except (ValueError, RecursionError) as wrong:
        raise Unsound(f"it is no act on a state: {wrong}") from None
    if again != data:
        raise Unsound("it is no act on a state: other bytes than are written")
    return act


def entry_of(act: StateAct) -> Entry:
    """The entry in the ledger about an act."""
    is_freeze = act.kind == "freeze"
    return Entry(
        kind=act.kind,
        id=act.id,
        agent=STATE_AGENT,
        session=STATE_SESSION,
        tool=_TOOLS[act.kind],
        time=act.time,
        manifest="",
        verdict="deny" if is_freeze else "allow",
        reason="FROZEN" if is_freeze else "ALLOWED",
        state=act.fact,
    )


def act_of(entry: Entry) -> StateAct | None:
    """The act that an entry is about; None if it is about something else."""
    kind = entry.kind
    if not isinstance(entry.state, StateFact) or not (kind == "freeze" or kind == "thaw" or kind == "operators"):
        return None
    return StateAct(kind, entry.id, entry.time, entry.state)


def merged(recorded: Iterable[StateAct], stored: Iterable[StateAct]) -> Sequence[StateAct]:
    """The acts of the ledger, and those of a store that it does not have: its entry may follow, or could not be kept.

    So a freeze goes on that was deleted from one of the two.
    """
    found = list(recorded)
    known = {one.id for one in found}
    return [*found, *(one for one in stored if one.id not in known)]


def folded(acts: Iterable[StateAct], ledger: str, check: CheckSignature, keys: tuple[str, ...] = ()) -> StateView:
    """What the acts of the state with this ledger amount to. `keys` are those of its operators before the first act.

    Their order decides which keys an act needs. A thaw names the freezes that it ends, so it may stand before them: one
    of two stores may have lost the first entry of a freeze.
    """
    begun: dict[str, StateAct] = {}
    ended: set[str] = set()
    seen: set[str] = set()
    nonces: set[str] = set()
    unsound: list[str] = []
    for act in acts:
        if act.id in seen:  # the first one counts: a second may say something else
            unsound.append(f"{act.kind} {act.id}: another act has this id")
            continue
        seen.add(act.id)
        if act.kind == "freeze":
            begun[act.id] = act
            continue
        if keys:
            found = _signed(act, keys, ledger, nonces, check)
            if isinstance(found, str):
                unsound.append(f"{act.kind} {act.id}: {found}")
                continue
            nonces.add(found.nonce)
        if act.kind == "thaw":
            ended.update(act.fact.about)
        elif act.fact.about and all(key_bytes(key) is not None for key in act.fact.about):
            keys = act.fact.about
        else:
            unsound.append(f"{act.kind} {act.id}: it names no keys")
    active = tuple(act for name, act in begun.items() if name not in ended)
    return StateView(ledger, keys, active, tuple(unsound), frozenset(nonces))


def _signed(
    act: StateAct, keys: Sequence[str], ledger: str, used: set[str], check: CheckSignature
) -> OperatorAct | str:
    """The operator's act in a row; or why it does not count."""
    fact = act.fact
    if not isinstance(fact.act, str) or not isinstance(fact.signature, str):
        return "no operator has signed it"
    try:
        signed = read_act(fact.act.encode())
        signature = bytes.fromhex(fact.signature)
    except ValueError as wrong:  # `Unsound` is one; so is a lone surrogate
        return str(wrong)
    if (signed.act, signed.about) != (act.kind, fact.about):
        return "it is about something else than was signed"
    if signed.ledger != ledger:
        return "it was signed for another state"
    if signed.nonce in used:
        return "its act was used before"
    if fact.by not in keys or not check(fact.by, act_bytes(signed), signature):
        return "it is not signed with a key of the operators"
    return signed
