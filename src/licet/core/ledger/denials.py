"""Finds checks in receipts: uses that were denied inside a call, by the text of the capability or by a rule.

A tool may catch a refusal and continue, so the verdict of its call does not show it; the events of its receipt do. The
caller verifies an entry before it is searched here.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from msgspec import Struct

from licet.core.algebra.set import CapabilitySet
from licet.core.algebra.use import InvalidUse, Use
from licet.core.decision.decision import CapabilityDenied, CapabilityGranted

DENIED, GRANTED = CapabilityDenied.__name__, CapabilityGranted.__name__
UNLISTED = "which are not listed"  # how the event ends that counts the checks a receipt had no space for
MOST_TEXTS = 1000  # different uses that one tally tells apart
_MOST_DIGITS = 18
_ENDS = (":", "@", "/")  # where a part of a capability's text ends


class Checks(Struct, frozen=True):
    """Which checks are wanted: denied ones or all, those whose text fits a pattern, those that a rule covers."""

    denied: bool = True
    pattern: str = "*"
    rule: CapabilitySet | None = None

    def of(self, entry: Mapping[str, Any]) -> Iterator[Mapping[str, str]]:
        """The events of a receipt that are wanted.

        The event that counts unlisted refusals fits every pattern and rule: what is wanted may be among them.
        """
        for event in entry["events"]:
            if not _is_check(event) or (self.denied and event["kind"] != DENIED):
                continue
            if _is_unlisted(event) or self._fits(event["capability"]):
                yield event

    def _fits(self, capability: str) -> bool:
        return fits(self.pattern, capability) and (self.rule is None or _covers(self.rule, capability))


def fits(pattern: str, text: str) -> bool:
    """Whether a pattern is a capability's text, or its beginning up to `:`, `@` or `/`; `*` is any characters."""
    first, *rest = pattern.split("*")
    if not text.startswith(first):
        return False
    at = len(first)
    if not rest:
        return _ends_at(text, at)
    for part in rest[:-1]:
        found = text.find(part, at)
        if found == -1:
            return False
        at = found + len(part)
    while (found := text.find(rest[-1], at)) != -1:
        if not rest[-1] or _ends_at(text, found + len(rest[-1])):
            return True
        at = found + 1
    return False


def _ends_at(text: str, at: int) -> bool:
    return text[at : at + 1] in ("", *_ENDS) or text[at - 1 : at] in _ENDS


def _covers(rule: CapabilitySet, capability: str) -> bool:
    try:
        return rule.has(Use(capability))
    except InvalidUse:  # a mark in the place of a secret, perhaps
        return False


def _is_check(event: object) -> bool:
    """Whether an event is a check with all that it says; who forges a ledger may write anything there."""
    if not isinstance(event, dict) or event.get("kind") not in (DENIED, GRANTED):
        return False
    return all(isinstance(event.get(name), str) for name in ("capability", "reason", "rule"))


def _is_unlisted(event: Mapping[str, str]) -> bool:
    return event["kind"] == DENIED and event["reason"] == "LIMIT_SIZE" and event["rule"].endswith(UNLISTED)


class Tally:
    """Counts checks by capability and reason.

    `other` is how many are counted without a text: those that receipts do not list, and those beyond a thousand texts.
    """

    __slots__ = ("_counts", "other", "total")

    def __init__(self) -> None:
        self._counts: Counter[tuple[str, str, str]] = Counter()
        self.total = self.other = 0

    def add(self, event: Mapping[str, str]) -> None:
        """Count one event."""
        key, count = (event["kind"], event["capability"], event["reason"]), 1
        unlisted = _is_unlisted(event)
        if unlisted and (said := event["rule"].partition(" ")[0]).isdecimal():
            count = int(said[:_MOST_DIGITS])
        self.total += count
        if not unlisted and (key in self._counts or len(self._counts) < MOST_TEXTS):
            self._counts[key] += 1
        else:
            self.other += count

    def most(self, limit: int | None = None) -> list[dict[str, Any]]:
        """What was counted most often, as plain data; in the order of the first event where that is equal."""
        return [
            {"kind": kind, "capability": text, "reason": reason, "count": count}
            for (kind, text, reason), count in self._counts.most_common(limit)
        ]
