"""How a tool that ran somewhere else can end without a value, as an engine tells it."""

from licet.core.decision import Reason


class Stopped(Exception):
    """A tool that was ended from outside, or ended itself without an answer: by what, and in words for the model."""

    def __init__(self, reason: Reason, text: str) -> None:
        self.reason: Reason = reason
        super().__init__(text)


class Raised(Exception):
    """What a tool raised behind a wall: of the exception itself only the name of its type and its text come out."""

    def __init__(self, kind: str, text: str) -> None:
        self.kind = kind
        super().__init__(text)
