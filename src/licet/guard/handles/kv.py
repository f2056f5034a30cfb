"""`ctx.kv`: small values in the stores that a tool declared, and the limits of every store backend.

A tool cannot name the scope of a store: it is made from the tool, the session, the agent and the personality.
"""

from typing import Any, NoReturn

from licet.core.algebra.domains import STORAGE_KINDS, storage_scope_id
from licet.core.algebra.use import InvalidUse, Use
from licet.declare.plain_json import is_heavy
from licet.guard.grant import Grant
from licet.guard.ports import Ended, Kv, TooLarge, Unavailable

LARGEST_VALUE = 1 << 20  # bytes of JSON
MOST_UNITS = 125_000  # of parsing work, see `is_heavy`; less than for a result, because the parser of stores is slower
MOST_KEYS = 50_000  # in one list
TOO_HEAVY = "expected a value of fewer parts: it holds more than can be parsed without delay for others"


def too_long(size: int) -> str:
    """The message about a value that is too long."""
    return f"expected a value of at most {LARGEST_VALUE} bytes of JSON, found one of {size}"


def too_many() -> str:
    """The message about a list with too many keys."""
    return f"more than {MOST_KEYS} keys begin with this prefix"


_USES = {(action, kind): Use(f"storage:{action}:{kind}") for action in ("read", "write") for kind in STORAGE_KINDS}


class ScopedKv:
    """`ctx.kv` of one call: the narrowest store that the tool declared. `of` returns the others."""

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
        self._grant.check(self._read)
        try:
            value = await self._grant.backend(self._backend, self._read).get(self._scope, key)
        except Unavailable as wrong:
            self._unavailable(self._read, wrong)
        return default if value is None else value

    async def set(self, key: str, value: Any, ttl_seconds: int | None = None) -> None:
        """Store a JSON value, for `ttl_seconds` or for as long as the tool declared."""
        self._grant.check(self._write)
        try:
            store = self._grant.backend(self._backend, self._write)
            await store.set(self._scope, key, value, self._ttl if ttl_seconds is None else ttl_seconds)
        except TooLarge as wrong:
            self._grant.refuse("LIMIT_SIZE", str(wrong), self._write)
        except Ended:
            self._grant.refuse("SESSION_ENDED", "this session has ended, and its store with it", self._write)
        except Unavailable as wrong:
            self._unavailable(self._write, wrong)

    def check_text(self, text: bytes) -> None:
        """Refuse a value, still as JSON text, that is too large to parse or store."""
        self._grant.require(self._write)
        if len(text) > LARGEST_VALUE:
            self._grant.refuse("LIMIT_SIZE", too_long(len(text)), self._write)
        if is_heavy(text, MOST_UNITS):
            self._grant.refuse("LIMIT_SIZE", TOO_HEAVY, self._write)

    async def delete(self, key: str) -> bool:
        self._grant.check(self._write)
        try:
            return await self._grant.backend(self._backend, self._write).delete(self._scope, key)
        except Unavailable as wrong:
            self._unavailable(self._write, wrong)

    async def list(self, prefix: str = "") -> list[str]:
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

    A personality's store is shared by all agents with that personality. The other stores are separate for each agent,
    even if sessions or tools have the same name.
    """
    scope = storage_scope_id(kind, tool, session, personality)
    return scope if scope.startswith("personality:") else f"{scope}@{agent}"


def _declared(grant: Grant) -> str:
    """The narrowest kind that the tool declared. If it declared none, every use of the store is refused."""
    spec = grant.reach.spec
    for declared in (spec.needs, spec.optional):
        for kind in STORAGE_KINDS:
            if declared.has(_USES["read", kind]) or declared.has(_USES["write", kind]):
                return kind
    return STORAGE_KINDS[0]
