"""What did the calls of a ledger say, touch and return? Read from receipts that were kept with `record: full`.

Each entry is checked against its hash, so that nothing is learned from one that was changed. `licet receipts verify`
proves more: that none is missing.
"""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct

from licet.assemble.ledger import LedgerPlace, open_reader
from licet.core.ledger.entry import BodiesFact, LinkedEntry, check_row, read_entry
from licet.core.ledger.recorded_checks import UNLISTED
from licet.core.policy.manifest import Manifest
from licet.guard.flow_steps import value_of_mcp
from licet.guard.policy_record import POLICY_CHANGE
from licet.guard.read_elsewhere import SESSION_READ
from licet.guard.session_end import SESSION_END

_ALLOWED = "ALLOWED"


class RecordedCall(Struct, frozen=True):
    """A call that has ended."""

    entry: LinkedEntry  # its receipt
    began: int  # the number of its first entry in the ledger
    number: int  # the number of its receipt
    arguments: Mapping[str, object] | None = None  # None if they were not kept
    result: object = None
    is_kept: bool = False  # whether its result is known; that of a call that failed or was refused is its error

    @property
    def has_bodies(self) -> bool:
        """Whether it was made with `record: full`."""
        return isinstance(self.entry.bodies, BodiesFact)

    @property
    def succeeded(self) -> bool:
        """Whether the tool ran and returned."""
        return self.entry.verdict == "allow" and self.entry.reason == _ALLOWED

    @property
    def ran(self) -> bool:
        """Whether the tool may have touched something. One that was refused something in the middle of its run did."""
        return self.entry.verdict == "allow" or self.began < self.number

    @property
    def granted(self) -> tuple[str, ...] | None:
        """The uses that its handles were granted; None if there were more than a receipt lists."""
        found = [event for event in self.entry.events if event.kind == "CapabilityGranted"]
        if any(isinstance(event.rule, str) and event.rule.endswith(UNLISTED) for event in found):
            return None
        return tuple(dict.fromkeys(event.capability for event in found if isinstance(event.capability, str)))


def recorded_calls(ledger: Path | str, session: str | None = None) -> Iterator[RecordedCall]:
    """The calls of a ledger that have ended, in the order of their receipts; `Unsound` if an entry was changed.

    The ledger is a file, or at an address. `LedgerUnavailable` if there is no ledger, or if it cannot be read.
    """
    began: dict[tuple[object, ...], int] = {}
    with open_reader(LedgerPlace.at(ledger)) as reader:
        for row in reader.entries():
            if session is not None and row.session != session:
                continue
            check_row(row)
            entry = read_entry(row.body)
            same = (entry.id, entry.agent, entry.session, entry.tool, entry.time)
            if entry.kind == "decision":
                began.setdefault(same, row.number)
            elif entry.kind == "receipt" and entry.tool not in (SESSION_END, SESSION_READ, POLICY_CHANGE):
                yield _call(entry, began.pop(same, row.number), row.number)


def _call(entry: LinkedEntry, began: int, number: int) -> RecordedCall:
    if not isinstance(entry.bodies, BodiesFact):
        return RecordedCall(entry, began, number)
    arguments = _data(entry.bodies.arguments)
    result = entry.error if entry.bodies.result is None else _data(entry.bodies.result)
    given = arguments if isinstance(arguments, Mapping) else None
    return RecordedCall(entry, began, number, given, result, is_kept=not entry.truncated)


def _data(text: str | None) -> Any:
    return None if text is None else json.loads(text)


def remembered(call: RecordedCall, manifest: Manifest) -> object:
    """The result as a session remembers it: of a server's tool, the documents in its blocks."""
    return value_of_mcp(call.result) if call.succeeded and is_of_server(call.entry.tool, manifest) else call.result


def is_of_server(tool: str, manifest: Manifest) -> bool:
    """Whether a tool is one of an MCP server of a manifest."""
    return "." in tool and tool.partition(".")[0] in manifest.servers
