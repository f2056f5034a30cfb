"""Recordings: what a command, or the calls of an agent, touched. `licet observe` writes them, `licet learn` reads them.

A recording is a file of JSON lines: one `RecordingStart`, then one `Touch` for each thing that was used. It is a draft
for review and no evidence: nobody signs it, and a program that wants to hide can (see docs/learn.md).
"""

from typing import Annotated, Literal

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from licet.core.algebra.rules import InvalidUse, Use, use_of_path
from licet.core.algebra.scope import visible
from licet.core.limits import LONGEST_DRAFTED_NAME

FORMAT = 1


class BadRecording(ValueError):
    """A line that is no part of a recording, or a recording of a newer format."""


class RecordingStart(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The first line of a recording."""

    format: int = FORMAT
    source: Literal["program", "gate", "gateway"]
    started: int  # milliseconds since 1970
    command: tuple[str, ...] = ()  # as it was given, redacted; only of a program
    agent: str = ""  # of a gate or gateway
    manifest: str = ""  # the path of its policy; empty for a program
    workdir: str
    home: str
    inspected: bool | UnsetType = UNSET  # of a program: whether its HTTPS was looked into


class Touch(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One use, or the same use several times by one call."""

    time: int  # of the first, in milliseconds since 1970
    call: str  # the receipt of the call; of a command `process N`
    tool: str  # the tool of the call; of a command the name of the program
    use: str  # as `Use` writes it, such as `fs:read:/srv/a.txt` or `network:https:get@example.com:443`
    outcome: Literal["used", "refused"] = "used"
    count: Annotated[int, Meta(ge=0)] = 1
    # Of a write by a program: whether the name was not there before. Of a delete: whether the program had made it.
    made: bool | UnsetType = UNSET
    directory: bool | UnsetType = UNSET  # of a write that made a name: whether of a directory
    sent_key: bool | UnsetType = UNSET  # of a refused request: whether it had a key for another host


def recording_line(part: RecordingStart | Touch) -> bytes:
    """One line of a recording, with its newline."""
    return msgspec.json.encode(part) + b"\n"


def recording_start(line: bytes) -> RecordingStart:
    """Read the first line of a recording."""
    try:
        start = msgspec.json.decode(line, type=RecordingStart)
    except msgspec.MsgspecError as wrong:
        raise BadRecording(f"this is no recording of `licet observe`: {wrong}") from None
    if start.format != FORMAT:
        raise BadRecording(f"this recording has format {start.format}; this version of licet reads {FORMAT}")
    return start


def touch(line: bytes) -> Touch:
    """Read any other line of a recording."""
    try:
        return msgspec.json.decode(line, type=Touch)
    except msgspec.MsgspecError as wrong:
        raise BadRecording(str(wrong)) from None


class Calls:
    """The calls that needed one thing: how often, by which tools, and the first of them."""

    __slots__ = ("count", "first", "several", "tools")

    def __init__(self) -> None:
        self.count = 0
        self.several = False  # more than one call
        self.tools: set[str] = set()
        self.first: tuple[int, str, str] | None = None

    def add(self, touch: Touch) -> None:
        """Count one line of a recording."""
        self.count += touch.count
        self.tools.add(touch.tool)
        this = touch.time, touch.call, touch.tool
        if self.first is None:
            self.first = this
            return
        self.several = self.several or touch.call != self.first[1]
        if this < self.first:
            self.first = this

    def merge(self, other: "Calls") -> None:
        """Count all of another's calls."""
        self.count += other.count
        self.tools |= other.tools
        if other.first is None:
            return
        self.several |= other.several or (self.first is not None and other.first[1] != self.first[1])
        if self.first is None or other.first < self.first:
            self.first = other.first

    def text(self, noun: str) -> str:
        """One line: `12 reads by git, process 3`."""
        _, call, tool = self.first or (0, "", "")
        others = len(self.tools) - 1
        by = _short(tool) + (f" and {others} more" if others > 0 else "")
        return f"{self.count} {noun}{'' if self.count == 1 else 's'} by {by}, {'first ' * self.several}{_short(call)}"


def _short(text: str) -> str:
    seen = visible(text)
    return seen if len(seen) <= LONGEST_DRAFTED_NAME else f"{seen[:LONGEST_DRAFTED_NAME]}…"


def use_of_text(text: str) -> Use:
    """Read the use of a line; `BadRecording` if it is none. A file may have a `*` in its name."""
    domain, _, rest = text.partition(":")
    action, _, path = rest.partition(":")
    try:
        return use_of_path(action, path) if domain == "fs" else Use(text)
    except InvalidUse as wrong:
        raise BadRecording(f"`{visible(text)}` is no use: {wrong}") from None


class _Run:
    """What one recording made, and what it removed that was there before."""

    def __init__(self, command: tuple[str, ...]) -> None:
        self.command = command
        self.made: set[str] = set()
        self.removed: set[str] = set()
        self.dropped: set[str] = set()  # what it made, and removed or moved away


class Recorded:
    """All lines of recordings, added up by use."""

    def __init__(self) -> None:
        self.events = 0
        self._runs: list[_Run] = []
        self.used: dict[str, tuple[Use, Calls]] = {}  # by the text of the use, which is parsed once
        self.refused: dict[str, tuple[Use, Calls]] = {}
        self.made: set[str] = set()  # paths that were written and not there before
        self.directories: set[str] = set()  # those of them that are directories
        self.removed: set[str] = set()  # paths that were there before, and were removed or moved away
        self.not_own: set[str] = set()  # deletes of something that the same run had not made
        self.inside: set[str] = set()  # uses of the network, as far as HTTPS was looked into
        self.keys_sent: set[str] = set()  # requests that would have sent a key away; rules may have allowed them

    def begin(self, start: RecordingStart) -> None:
        """Add the lines of another recording from now on."""
        self._runs.append(_Run(start.command))

    def made_once(self, directory: str) -> bool:
        """Whether a recording made a directory, and no other one of the same command shows what it does with it."""
        makers = [run for run in self._runs if directory in run.made and directory not in run.removed]
        commands = {run.command for run in makers}
        others = (run for run in self._runs if run not in makers and run.command in commands)
        return bool(makers) and not any(True for _ in others)

    def only_at_first(self) -> set[str]:
        """The directories by which a run made others, which it moved away, and which the next run did without."""
        found = set[str]()
        for run in self._runs:
            others = [other for other in self._runs if other is not run and other.command == run.command]
            for path in run.dropped & self.directories:
                above = path.rpartition("/")[0]
                if any(all(made.rpartition("/")[0] != above for made in other.made) for other in others):
                    found.add(path)
        return found

    def add(self, touch: Touch, *, inspected: bool = False) -> None:
        """Add one line; `inspected` if the recording looked into HTTPS. One that was taken back has the count 0."""
        if not touch.count:
            return
        self.events += touch.count
        if touch.sent_key is True and touch.outcome == "refused":
            self.keys_sent.add(touch.use)
        table = self.used if touch.outcome == "used" else self.refused
        known = table.get(touch.use)
        if known is None:
            known = table[touch.use] = use_of_text(touch.use), Calls()
        known[1].add(touch)
        if touch.outcome == "used" and known[0].domain == "fs":
            self._add_name(known[0], touch)
        if inspected and touch.outcome == "used" and known[0].domain == "network":
            self.inside.add(touch.use)

    def _add_name(self, use: Use, touch: Touch) -> None:
        """Note what a line says about the name of a file: whether it was made, or removed."""
        run = self._runs[-1] if self._runs else _Run(())
        if use.action == "delete":
            if touch.made is True:
                run.dropped.add(use.target)
            else:
                self.not_own.add(touch.use)
                run.removed.add(use.target)
                self.removed.add(use.target)
        elif touch.made is True:
            run.made.add(use.target)
            self.made.add(use.target)
            if touch.directory is True:
                self.directories.add(use.target)
