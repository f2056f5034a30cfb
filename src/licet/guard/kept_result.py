"""What is kept of a call with an id, for those that repeat it: its result, redacted, and what flow knows of that.

Receipts have digests alone, so this is kept apart from the ledger, by a `KeptCalls`, which signs and forgets it.
"""

from typing import Any, Literal

import msgspec
from msgspec import Struct

from licet.core.decision.request import Reason
from licet.core.policy.flow import ResultLabels, SecretSource
from licet.core.values import data_json
from licet.declare.plain_json import data_again
from licet.guard.result import Code


class Brought(Struct, frozen=True, forbid_unknown_fields=True):
    """What a result brings into its session under the rules of flow, beside its value."""

    labels: ResultLabels = ResultLabels()
    secret: tuple[SecretSource, ...] = ()
    private: bool = False
    from_task: bool = False


class KeptResult(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The result of the first call of an id."""

    format: Literal[1] = 1
    policy: str  # digest; labels hold for the same policy only
    code: Code
    reason: Reason
    error: str
    value: str  # JSON as text, since it may hold numbers of any size
    truncated: bool
    size: int  # bytes of JSON that the tool returned
    brought: Brought | None = None  # None without flow

    @property
    def data(self) -> Any:
        """The value."""
        return data_again(self.value.encode())


class Repeated(Struct, frozen=True):
    """The first call of an id, as one that repeats it finds it."""

    receipt: str
    result: KeptResult


_DECODER = msgspec.json.Decoder(KeptResult)


def value_text(value: object) -> str:
    """A value as it is kept."""
    return data_json(value).decode()


def result_bytes(result: KeptResult) -> bytes:
    """The bytes that a store keeps."""
    return msgspec.json.encode(result)


def read_result(data: bytes) -> KeptResult | None:
    """A result that was kept; None if this licet cannot read it."""
    try:
        found = _DECODER.decode(data)
        found.data  # noqa: B018 - it is read once, to see that it can be
    except (ValueError, RecursionError):
        return None
    return found
