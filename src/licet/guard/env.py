"""`ctx.env`: variables of the host's environment, those that were declared and no others."""

from collections.abc import Mapping
from functools import lru_cache

from licet.core.use import InvalidUse, Use
from licet.guard.holding import Holding

_use = lru_cache(1024)(lambda name: Use(f"env:read:{name}"))


class ScopedEnv:
    """The variables that a call holds. It cannot list them, and it cannot change any."""

    __slots__ = ("_environ", "_holding")

    def __init__(self, holding: Holding, environ: Mapping[str, str] | None) -> None:
        self._holding = holding
        self._environ = environ

    def get(self, name: str, default: str | None = None) -> str | None:
        """The value of a variable, or the default if it is not set."""
        try:
            use = _use(name) if type(name) is str else Use(f"env:read:{name}")
        except InvalidUse as wrong:
            self._holding.invalid("ENV_NOT_ALLOWED", wrong)
        self._holding.check(use)
        return self._holding.backend(self._environ, use).get(use.target, default)
