"""Secrets from environment variables."""

import os
from collections.abc import Mapping


class EnvironmentSecrets:
    """Each reference is the variable of that name; `github/token` may also be `GITHUB_TOKEN`. Empty is not set."""

    def __init__(self, environ: Mapping[str, str] | None = None) -> None:
        self._environ = os.environ if environ is None else environ

    async def get(self, reference: str) -> str | None:
        """The value of a secret, or None if no variable holds it."""
        return next((value for name in variables_of(reference) if (value := self._environ.get(name))), None)


def variables_of(reference: str) -> tuple[str, ...]:
    """The names under which a reference is looked for, in order."""
    if "/" not in reference and "-" not in reference:
        return (reference,)  # as it is, and no other: `path` is not `PATH`
    return reference, reference.replace("/", "_").replace("-", "_").upper()
