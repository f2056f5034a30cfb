"""What a key-value store takes at most, the same for every backend and for whoever asks before it parses a value.

`ctx.kv`: small values in the store that the tool declared, under a scope that only the framework names.
"""

from typing import Any, NoReturn

from licet.core.algebra.domains import STORAGE_KINDS
from licet.core.algebra.use import InvalidUse, Use
from licet.core.policy.tool import storage_scope_id
from licet.declare.plain_json import is_heavy
from licet.guard.grant import Grant
from licet.guard.ports import Kv, TooLarge, Unavailable

LARGEST_VALUE = 1 << 20  # bytes of JSON
MOST_UNITS = 125_000  # of work to parse a value, see `is_heavy`; each is parsed by a slower reader than results are
MOST_KEYS = 50_000  # that are listed at once
TOO_HEAVY = "expected a value of fewer parts: it holds more than can be parsed without delay for others"


def too_long(size: int) -> str:
    """What is wrong with a value of so many bytes."""
    return f"expected a value of at most {LARGEST_VALUE} bytes of JSON, found one of {size}"


def too_many() -> str:
    """What is wrong with a list of all keys."""
    return f"more than {MOST_KEYS} keys begin with this prefix"


_USES = {(action, kind): Use(f"storage:{action}:{kind}") for action in ("read", "write") for kind in STORAGE_KINDS}


class ScopedKv:
    """The store of a call. A tool that declared several has its narrowest here, and the others by `of`."""

    __slots__ = ("_backend", "_grant", "_kind", "_read", "_scope", "_ttl", "_write")

    def __init__(self, grant: Grant, backend: Kv | None, kind: str | None = None) -> None:
        reach = grant.reach
        self._grant = grant
        self._backend = backend
        self._kind = kind or _declared(grant)
        self._read, self._write = _USES["read", self._kind], _USES["write", self._kind]
        self._ttl = reach.spec.storage_ttl_seconds
        manifest = reach.manifest
        self._scope = scope_id(
            self._kind, grant.request.tool, grant.request.session, manifest.personality, manifest.agent
        )

    def of(self, kind: str) -> "ScopedKv":
        """The store of another kind that the tool declared: `tool-private`, `session` or `personality`."""
        try:
            use = Use(f"storage:read:{kind}")
        except InvalidUse as wrong:
            self._grant.invalid("STORAGE_NOT_DECLARED", wrong)
        return ScopedKv(self._grant, self._backend, use.target)

    async def get(self, key: str, default: Any = None) -> Any:
        """The value under a key, or the default."""
        self._grant.check(self._read)
        try:
            value = await self._grant.backend(self._backend, self._read).get(self._scope, key)
        except Unavailable as wrong:
            self._unavailable(self._read, wrong)
        return default if value is None else value

    async def set(self, key: str, value: Any, ttl_seconds: int | None = None) -> None:
        """Keep a value that JSON can carry, for some seconds; otherwise for as long as the tool declared."""
        self._grant.check(self._write)
        try:
            store = self._grant.backend(self._backend, self._write)
            await store.set(self._scope, key, value, self._ttl if ttl_seconds is None else ttl_seconds)
        except TooLarge as wrong:
            self._grant.refuse("LIMIT_SIZE", str(wrong), self._write)
        except Unavailable as wrong:
            self._unavailable(self._write, wrong)

    def check_text(self, text: bytes) -> None:
        """Compare a value that came as JSON with what a store takes, before it is parsed."""
        self._grant.require(self._write)
        if len(text) > LARGEST_VALUE:
            self._grant.refuse("LIMIT_SIZE", too_long(len(text)), self._write)
        if is_heavy(text, MOST_UNITS):
            self._grant.refuse("LIMIT_SIZE", TOO_HEAVY, self._write)

    async def delete(self, key: str) -> bool:
        """Forget a key; whether it was there."""
        self._grant.check(self._write)
        try:
            return await self._grant.backend(self._backend, self._write).delete(self._scope, key)
        except Unavailable as wrong:
            self._unavailable(self._write, wrong)

    async def list(self, prefix: str = "") -> list[str]:
        """The keys that begin with exactly this prefix, sorted."""
        self._grant.check(self._read)
        try:
            return [*await self._grant.backend(self._backend, self._read).list(self._scope, prefix)]
        except TooLarge as wrong:
            self._grant.refuse("LIMIT_SIZE", str(wrong), self._read, "ask for keys with a longer prefix")
        except Unavailable as wrong:
            self._unavailable(self._read, wrong)

    def _unavailable(self, use: Use, wrong: Unavailable) -> NoReturn:
        self._grant.refuse("BACKEND_MISSING", f"the {self._kind} store cannot be used", use, str(wrong))


def scope_id(kind: str, tool: str, session: str, personality: str | None, agent: str) -> str:
    """The namespace of a store.

    A personality's store belongs to every agent that has the personality. The other stores are kept apart per agent,
    whatever their sessions and tools are called.
    """
    scope = storage_scope_id(kind, tool, session, personality)
    return scope if scope.startswith("personality:") else f"{scope}@{agent}"


def _declared(grant: Grant) -> str:
    """The narrowest kind that the tool declared; asking for what it did not declare is refused at each use."""
    spec = grant.reach.spec
    for declared in (spec.needs, spec.optional):
        for kind in STORAGE_KINDS:
            if declared.has(_USES["read", kind]) or declared.has(_USES["write", kind]):
                return kind
    return STORAGE_KINDS[0]
