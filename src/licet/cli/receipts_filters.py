"""The options by which receipts are searched: agent, time, and checks inside calls, by pattern or by capability."""

from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from itertools import islice
from typing import Any, get_args

import click
from msgspec import Struct

from licet.cli.limits import USES_SHOWN
from licet.cli.options import Command, duration
from licet.cli.receipts_text import Entry
from licet.core.algebra.scope import Malformed
from licet.core.algebra.set import CapabilitySet
from licet.core.decision.request import Reason
from licet.core.ledger.entry import Row
from licet.core.ledger.recorded_checks import DENIED, UNLISTED, Checks, Tally
from licet.core.values import canonical_json
from licet.guard.entry_reader import EntryReader


class _Moment(click.ParamType):  # type: ignore[type-arg]  # generic in newer releases of click alone
    """A date or time, in UTC by default, or how long ago, such as `7d`."""

    name = "time"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> datetime:
        """Parse a time."""
        try:
            if (ago := duration(value)) is not None:
                return datetime.now(UTC) - ago
            moment = datetime.fromisoformat(value)
        except (ValueError, OverflowError):
            self.fail(f"`{value}` is no time: expected 2026-01-31, 2026-01-31T12:00, or 30m, 2h, 7d ago", param, ctx)
        return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)


class _Rule(click.ParamType):  # type: ignore[type-arg]
    """A capability as it is written in a manifest."""

    name = "capability"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> CapabilitySet:
        """Parse a rule to the set that covers exactly this rule."""
        try:
            return CapabilitySet([value])
        except Malformed as wrong:
            self.fail(str(wrong), param, ctx)


class _Pattern(click.ParamType):  # type: ignore[type-arg]
    """A pattern for the text of a capability."""

    name = "pattern"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Check a pattern. An empty one is refused: it is a mistake, such as a variable that is not set."""
        text = str(value)
        if not text or not text.isprintable():
            self.fail("expected a pattern such as `network:*`, or nothing behind the option", param, ctx)
        return text


def search_options(command: Command) -> Command:
    """Add the filters that every search has: agent, session, tool, time, and checks inside calls."""
    for option in reversed(
        (
            _only("--agent", "NAME", "of this agent"),
            _only("--session", "ID", "in this session"),
            _only("--tool", "NAME", "of this tool"),
            _only(
                "--denied-use",
                "[PATTERN]",
                "in which a use was denied, also if the call succeeded: `network:*`, `fs:read:/etc`",
                type=_Pattern(),
                is_flag=False,
                flag_value="*",
            ),
            _only(
                "--capability",
                "RULE",
                "with a check that this rule covers, as in a manifest: `network:*:*.example.com`",
                type=_Rule(),
            ),
            _only(
                "--reason",
                "CODE",
                "in which a use was denied for this reason, such as `SECRET_NOT_DECLARED`",
                type=click.Choice(get_args(Reason)),
            ),
            _only("--since", "TIME", "since then: 2026-01-31, 2026-01-31T12:00, 2h", type=_Moment()),
            _only("--until", "TIME", "before then", type=_Moment()),
        )
    ):
        command = option(command)
    return command


def _only(name: str, metavar: str, which: str, **given: Any) -> Callable[[Command], Command]:
    """A filter; `which` ends the sentence `Only calls …`."""
    return click.option(name, metavar=metavar, help=f"Only calls {which}.", **given)


class Wanted(Struct, frozen=True):
    """The filters of a search."""

    agent: str | None = None
    session: str | None = None
    tool: str | None = None
    since: datetime | None = None
    until: datetime | None = None
    denied_use: str | None = None
    capability: CapabilitySet | None = None
    reason: str | None = None

    @property
    def columns(self) -> dict[str, Any]:
        """The filters that the columns of a ledger answer."""
        return {name: getattr(self, name) for name in ("agent", "session", "tool", "since", "until")}

    @property
    def checks(self) -> Checks | None:
        """The filters that need the events of a receipt; None if there are none."""
        if self.denied_use is None and self.capability is None and self.reason is None:
            return None
        denied = self.denied_use is not None or self.reason is not None
        return Checks(denied, self.denied_use or "*", self.capability, self.reason or "")


def in_body(checks: Checks) -> Iterator[tuple[str, ...]]:
    """Texts of which, per tuple, each match has one in its body. SQLite filters by them before bodies are parsed."""
    yield (f'"{DENIED}"',) if checks.denied else ('"kind":"Capability',)
    longest = max(checks.pattern.split("*"), key=len)
    yield canonical_json(longest).decode()[1:-1], UNLISTED
    if checks.reason:
        yield f'"reason":"{checks.reason}"', UNLISTED
    if checks.rule is not None:
        yield *(f'"capability":"{rule.domain}:' for rule in checks.rule.allow), UNLISTED


def found_receipts(
    reader: EntryReader, wanted: Wanted, checks: Checks, verdict: str | None, limit: int, read: Callable[[Row], Entry]
) -> Sequence[Entry]:
    """Return the newest receipts that have a matching check."""
    rows = map(read, reader.containing(*in_body(checks), **wanted.columns, verdict=verdict))
    return list(islice((entry for entry in rows if any(checks.of(entry))), limit))


def check_lines(entry: Entry, checks: Checks) -> Iterator[str]:
    """The matching checks of a receipt, one line for each different one."""
    tally = tallied(entry, checks)
    found = tally.most()
    for one in found[:USES_SHOWN]:
        yield f"    {check_text(one)}"
    if more := sum(one["count"] for one in found[USES_SHOWN:]) + tally.other:
        yield f"    and {more} more"


def checks_document(entry: Entry, checks: Checks | None) -> dict[str, Any]:
    """The denied uses of a receipt as plain data, and the granted ones if the search includes them."""
    tally = tallied(entry, checks or Checks())
    found: dict[str, Any] = {"denied_uses": [one for one in tally.most() if one.pop("kind") == DENIED]}
    if checks is not None and not checks.denied:
        found["granted_uses"] = [one for one in tally.most() if one.pop("kind") != DENIED]
    return {**found, "other_uses": tally.other}


def tallied(entry: Entry, checks: Checks) -> Tally:
    """Count the matching checks of a receipt."""
    tally = Tally()
    for event in checks.of(entry):
        tally.add(event)
    return tally


def check_text(one: dict[str, Any]) -> str:
    """Describe a use in one line: how often, and why it was denied."""
    word = "denied" if one["kind"] == DENIED else "granted"
    times = f"{one['count']}x " if one["count"] > 1 else ""
    return f"{word} {times}{one['capability']}  {one['reason']}".rstrip()
