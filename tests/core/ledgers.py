"""Ledgers for tests of the core: entries linked by hand, and heads signed by a key that anybody can compute."""

import hashlib
import itertools
from collections.abc import Iterable, Sequence

from licet.core.ledger.entry import START, Head, Row, Stem, Tail, frame, head_body, link, listed, stem
from licet.core.ledger.linked import Outcome
from licet.core.ledger.merkle import Frontier
from licet.core.ledger.verify import verify, verify_joined
from licet.core.ledger.verify_part import Part, look_at_part

LEDGER, KEY, OTHER_KEY = "ledger-1", "test:key", "test:other"


def sign(key: str, message: bytes) -> bytes:
    """What stands in for a signature: only the text of the key is needed."""
    return hashlib.sha256(key.encode() + message).digest()


def check(key: str, message: bytes, signature: bytes) -> bool:
    return sign(key, message) == signature


def sample_stem(number: int, session: str = "s", agent: str = "a", kind: str = "receipt") -> Stem:
    """An entry in which every key says something."""
    within = frame(
        kind,
        agent,
        session,
        "t",
        manifest="sha256:m",
        tool_digest="sha256:t",
        parent=("above", session),
        verdict="deny",
        reason="HOST_NOT_ALLOWED",
        code="execution_failed",
        cost_usd="0.25",
        error="é \\u0000 no",
        truncated=True,
        approvals='[{"by":["x"]}]',
        events='[{"capability":"x","kind":"CapabilityDenied","reason":"R","rule":"y (f:1)"}]',
        rules=listed(["y (f:1)"]),
        sandbox='{"layers":["landlock"],"level":"native","programs":null}',
    )
    return stem(
        within,
        f"r-{number}",
        "2026-01-01T00:00:00.000000Z",
        '"sha256:a"',
        '"sha256:b"',
        '"1.234"',
        '{"after":{"calls":2},"before":{"calls":1}}',
        '"bodies":{"arguments":"{}","result":"1.5"},',
    )


def rows(stems: Iterable[Stem], ledger: str = LEDGER, times: Iterable[int] | None = None) -> list[Row]:
    """A ledger of these stems."""
    tails: dict[tuple[str, str], Tail] = {}
    made: list[Row] = []
    for second, one in zip(times or itertools.count(1), stems, strict=False):
        session = one[0].chain
        tail = tails.get(session, START)
        row = link(one, ledger, len(made) + 1, tail, f"2026-01-01T00:00:{second:02}.000000Z")
        tails[session] = Tail(row.sequence, row.hash, row.number)
        made.append(row)
    return made


def heads(entries: Sequence[Row], sizes: Iterable[int], ledger: str = LEDGER, key: str = KEY) -> list[Head]:
    """Signed heads at these sizes."""
    frontier, made, wanted = Frontier(), [], set(sizes)
    for row in (None, *entries):
        if row is not None:
            frontier.add(row.hash)
        if frontier.size in wanted:
            body = head_body(ledger, frontier.size, frontier.root, "2026-01-01T00:01:00.000000Z", key)
            made.append(Head(frontier.size, body, sign(key, body)))
    return made


def verified(entries: Iterable[Row], signed: Iterable[Head], kept: Iterable[Head] = ()) -> Outcome:
    """What comes of a ledger, in one pass and in parts: these say the same of a whole one, and nothing of any other."""
    entries, signed, kept = list(entries), list(signed), list(kept)
    outcome = verify(iter(entries), iter(signed), key=KEY, check=check, kept=kept)
    last = max((head.size for head in signed), default=0)
    for ends in ([last // 2, last], [last // 3, last * 2 // 3, last]):
        if last:
            assert in_parts(entries, signed, ends, kept) == (outcome if outcome.ok else None)
    return outcome


def in_parts(
    entries: Sequence[Row], signed: Sequence[Head], ends: Sequence[int], kept: Sequence[Head] = ()
) -> Outcome | None:
    """As `verify_joined`, with parts between these numbers: the entries before the first and behind the last remain."""
    sizes = sorted({head.size for head in (*signed, *kept)})
    parts: list[Part | None] = []
    for before, end in itertools.pairwise(ends):
        parts.append(look_at_part(entries[before:end], before + 1, end, sizes))
    first, rest = entries[: ends[0]], entries[ends[-1] :]
    return verify_joined(first, parts, rest, iter(signed), key=KEY, check=check, kept=kept)


__all__ = ["KEY", "LEDGER", "OTHER_KEY", "check", "heads", "in_parts", "rows", "sample_stem", "sign", "verified"]
