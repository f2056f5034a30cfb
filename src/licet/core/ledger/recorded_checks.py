"""Searches receipts for the checks inside a call: uses that were denied or granted, by text pattern or by rule.

A tool may catch a refusal and continue. The verdict of its call does not show that, but the events of its receipt do.
Callers verify an entry before they search it here.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from msgspec import Struct

from licet.core.algebra.rules import InvalidUse, Use
from licet.core.algebra.set import CapabilitySet
from licet.core.decision.decision import CapabilityDenied, CapabilityGranted
from licet.core.limits import MOST_DIGITS, MOST_TEXTS

DENIED, GRANTED = CapabilityDenied.__name__, CapabilityGranted.__name__
UNLISTED = "which are not listed"  # ends the text of the event that counts the checks beyond the limit of a receipt
_ENDS = (":", "@", "/")  # separators between the parts of a capability


class Checks(Struct, frozen=True):
    """A search for checks: only denied ones or all, whose capability fits a pattern and is covered by a rule."""

    denied: bool = True
    pattern: str = "*"
    rule: CapabilitySet | None = None
    reason: str = ""  # of the refusal; empty: any

    def of(self, entry: Mapping[str, Any]) -> Iterator[Mapping[str, str]]:
        """The events of a receipt that match.

        The event that counts unlisted refusals always matches, since a matching check may be among them.
        """
        for event in entry["events"]:
            if not _is_check(event) or (self.denied and event["kind"] != DENIED):
                continue
            if _is_unlisted(event) or (self.reason in ("", event["reason"]) and self._fits(event["capability"])):
                yield event

    def _fits(self, capability: str) -> bool:
        return fits(self.pattern, capability) and (self.rule is None or _covers(self.rule, capability))


def fits(pattern: str, text: str) -> bool:
    """Whether a pattern matches a capability, or the beginning of one up to `:`, `@` or `/`; `*` is any characters."""
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
    except InvalidUse:  # for example because a secret in it was redacted
        return False


def _is_check(event: object) -> bool:
    """Whether an event is a complete check. A forged ledger may contain any JSON here."""
    if not isinstance(event, dict) or event.get("kind") not in (DENIED, GRANTED):
        return False
    return all(isinstance(event.get(name), str) for name in ("capability", "reason", "rule"))


def _is_unlisted(event: Mapping[str, str]) -> bool:
    return event["kind"] == DENIED and event["reason"] == "LIMIT_SIZE" and event["rule"].endswith(UNLISTED)


class Tally:
    """Counts checks by capability and reason.

    `other` counts the checks without a text of their own: those beyond the limit of a receipt, and those beyond the
    first 1000 different capabilities.
    """

    __slots__ = ("_counts", "other", "total")

    def __init__(self) -> None:
        self._counts: Counter[tuple[str, str, str]] = Counter()
        self.total = self.other = 0

    def add(self, event: Mapping[str, str]) -> None:
        key, count = (event["kind"], event["capability"], event["reason"]), 1
        unlisted = _is_unlisted(event)
        if unlisted and (number := event["rule"].partition(" ")[0]).isdecimal():
            count = int(number[:MOST_DIGITS])
        self.total += count
        if not unlisted and (key in self._counts or len(self._counts) < MOST_TEXTS):
            self._counts[key] += 1
        else:
            self.other += count

    def most(self, limit: int | None = None) -> list[dict[str, Any]]:
        """The most frequent checks as plain data; equal counts are in the order of their first event."""
        return [
            {"kind": kind, "capability": text, "reason": reason, "count": count}
            for (kind, text, reason), count in self._counts.most_common(limit)
        ]
