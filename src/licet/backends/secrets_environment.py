"""Secrets from environment variables."""

import os
import re
from collections.abc import Mapping

_SEGMENT = "[a-z0-9]+(?:_[a-z0-9]+)*"
_SEGMENTS = re.compile(f"{_SEGMENT}(?:/{_SEGMENT})+")
_FOLDED = re.compile(f"{_SEGMENT}(?:__{_SEGMENT})+".replace("a-z", "A-Z"))


class EnvironmentSecrets:
    """Each reference is the variable of that name; `github/token` may also be `GITHUB__TOKEN`. Empty is not set."""

    def __init__(self, environ: Mapping[str, str] | None = None) -> None:
        self._environ = os.environ if environ is None else environ

    async def get(self, reference: str) -> str | None:
        """The value of a secret, or None if no variable holds it."""
        return next((value for name in variables_of(reference) if (value := self._environ.get(name))), None)


def variables_of(reference: str) -> tuple[str, ...]:
    """The names under which a reference is looked for, in order.

    No variable is looked for under two references: who may not have the one could ask for the other. So only plain
    segments are folded, in a way that can be read back, and what could be read back is nobody's name as it stands.
    """
    if _FOLDED.fullmatch(reference):
        return ()
    if _SEGMENTS.fullmatch(reference):
        return reference, reference.replace("/", "__").upper()
    return (reference,)  # as it is, and no other: `path` is not `PATH`
