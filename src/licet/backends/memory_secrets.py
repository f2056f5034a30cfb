"""Secrets in a mapping, for tests."""

from collections.abc import Mapping


class MemorySecrets:
    """Values by reference. They are as safe as this process's memory."""

    def __init__(self, values: Mapping[str, str] | None = None) -> None:
        self._values = dict(values or {})

    async def get(self, reference: str) -> str | None:
        """The value of a secret, or None if it is not known here."""
        return self._values.get(reference)
