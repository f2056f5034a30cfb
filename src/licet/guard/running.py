"""Programs while they run: what whoever started one has of it, and who stays outside of its walls."""

from typing import Literal, NamedTuple, Protocol

from licet.core.decision import Reason


class Streams(NamedTuple):
    """Which streams of a program are handed over as pipes. The others lead nowhere: no input, and no output is kept."""

    stdin: bool = False
    stdout: bool = False
    stderr: bool = False
    joined: bool = False  # what it says on stderr goes where stdout goes


class Ending(NamedTuple):
    """How a program ended: its code, and the reason of the limit that has ended it, if one has."""

    returncode: int
    limit: Reason | Literal[""]


class Running(Protocol):
    """A program that has started, for as long as whoever started it stays."""

    @property
    def ending(self) -> Ending | None:
        """How it ended, once it was left; None until then, and of one that was left before it had ended."""

    def handed(self) -> tuple[int, ...]:
        """The near ends of the pipes that were asked for, in the order of their numbers; the caller closes them."""

    def signal(self, number: int) -> None:
        """Send it a signal; one that has ended does not mind."""

    async def ended(self) -> int:
        """Its code when it has ended, and all it started; a signal is a negative number, as is having run too long."""


class Used(NamedTuple):
    """How a program ended, and what it and all it started had used by then: in sum, and the largest at its largest."""

    returncode: int
    cpu_seconds: float
    memory_bytes: int


class Watch(Protocol):
    """Whoever stays outside while a program runs behind walls."""

    @property
    def launcher(self) -> str:
        """The folder of `launcher`, the module that builds the walls and starts the program in them."""

    @property
    def files(self) -> tuple[int, ...]:
        """What that is handed to begin with; closed by whoever starts it, once that is done."""

    async def started(self) -> Exception | None:
        """Wait until the program itself runs; why it could not be put behind walls, or could not be started there."""

    async def ended(self) -> Exception | None:
        """Clear up when the program and all it started is gone, or never was; the same answer."""

    def limit(self, used: Used) -> Reason | Literal[""]:
        """After that: the reason of the limit that has ended the program, as far as anybody can tell, or nothing."""
