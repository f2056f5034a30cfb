"""How far the build of the Python of `licet.tools.python` is, and how long the rest takes on this machine.

It has two parts: putting the component together, and compiling it. The first tells how far it is. The second does not,
but takes about as much longer as the first did, on a fast machine and on a slow or busy one.
"""

import contextlib
import sys
import threading
import time
from collections.abc import Callable, Iterator

from msgspec import Struct

from licet.sandbox.wasi.python.build import Report
from licet.surfaces.cli.output import coloured, show

COMPILING = "compiling for this machine"
_FIRST = 0.45  # the part of all the time that goes into putting the component together
_KNOWN_FROM = 0.1  # of the first part: before that a guess would be wild
_EVERY = 15.0  # seconds between two lines where there is no terminal


class Stand(Struct, frozen=True):
    """What is done now, which part of everything is done, and the seconds that are left, as far as can be told."""

    phase: str
    done: float
    left: float | None

    @property
    def text(self) -> str:
        """The phase, and the time that is left, for people."""
        if self.left is None:
            return self.phase
        rest = "nearly done" if self.left < 1 else f"about {_rounded(self.left)} left"
        return f"{self.phase}: {rest}"


def _rounded(seconds: float) -> str:
    if seconds > 90:
        return f"{seconds / 60:.0f} minutes"
    return f"{max(1, round(seconds / 5) * 5) if seconds > 10 else round(seconds)} seconds"


class Pace:
    """Remembers the reports of a build, with their times."""

    def __init__(self, now: float) -> None:
        self._begun = now
        self._phase, self._part = "starting", 0.0
        self._compiling_since: float | None = None

    def report(self, phase: str, part: float, now: float) -> None:
        """Note what is done, and how far it is."""
        self._phase, self._part = phase, part
        if phase == COMPILING:
            self._compiling_since = now

    def stand(self, now: float) -> Stand:
        """How things stand at a moment."""
        if self._compiling_since is not None:
            whole = (self._compiling_since - self._begun) / _FIRST * (1 - _FIRST)
            spent = now - self._compiling_since
            done = min(spent / whole, 0.99) if whole > 0 else 0.0
            return Stand(self._phase, _FIRST + (1 - _FIRST) * done, max(0.0, whole - spent))
        done = _FIRST * self._part
        known = self._phase == "building" and self._part >= _KNOWN_FROM
        return Stand(self._phase, done, (now - self._begun) * (1 - done) / done if known else None)


@contextlib.contextmanager
def progress(*, quiet: bool, clock: Callable[[], float] = time.monotonic) -> Iterator[Report]:
    """A bar on a terminal, and otherwise a line for each phase and every 15 seconds, on stderr."""
    pace = Pace(clock())
    if quiet:
        yield lambda phase, part: None
    elif sys.stderr.isatty():
        with _bar(pace, clock) as tell, _ticking(tell, 0.5):
            yield _reporting(pace, clock, tell)
    else:
        tell = _lines(pace, clock)
        with _ticking(tell, 1.0):
            yield _reporting(pace, clock, tell)


def _reporting(pace: Pace, clock: Callable[[], float], tell: Callable[[], None]) -> Report:
    def report(phase: str, part: float) -> None:
        pace.report(phase, part, clock())
        tell()

    return report


def _lines(pace: Pace, clock: Callable[[], float]) -> Callable[[], None]:
    """A function that prints where things stand, if that is new or the last line is old."""
    last, since, turn = "", clock(), threading.Lock()

    def tell() -> None:
        nonlocal last, since
        with turn:
            stand, now = pace.stand(clock()), clock()
            if stand.phase in ("storing", "done", "starting") or (stand.phase == last and now - since < _EVERY):
                return
            last, since = stand.phase, now
            show(stand.text, err=True)

    return tell


@contextlib.contextmanager
def _bar(pace: Pace, clock: Callable[[], float]) -> Iterator[Callable[[], None]]:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    console = Console(stderr=True, color_system="auto" if coloured(err=True) else None)
    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task("starting", total=1.0)

        def tell() -> None:
            stand = pace.stand(clock())
            bar.update(task, description=stand.text, completed=stand.done)

        yield tell


@contextlib.contextmanager
def _ticking(tell: Callable[[], None], seconds: float) -> Iterator[None]:
    """Call a function again and again until the end, since compiling reports nothing itself."""
    ended = threading.Event()

    def tick() -> None:
        while not ended.wait(seconds):
            tell()

    ticker = threading.Thread(target=tick, daemon=True)
    ticker.start()
    try:
        yield
    finally:
        ended.set()
        ticker.join()
