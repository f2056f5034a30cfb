"""Secrets from several places, the first that knows one."""

from licet.guard.ports import Secrets, SecretsFunction
from licet.guard.secrets import getter


class ChainSecrets:
    """Asks one backend after the other. One that fails ends the search: the next might hold an older value."""

    def __init__(self, *backends: Secrets | SecretsFunction) -> None:
        self._backends = [getter(backend) for backend in backends]

    async def get(self, reference: str) -> str | None:
        """The value of a secret, from the first backend that knows it."""
        for ask in self._backends:
            if (value := await ask(reference)) is not None:
                return value
        return None
