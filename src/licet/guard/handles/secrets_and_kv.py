"""`ctx.secrets` and `ctx.env`: secrets, placeholders for secrets, and declared environment variables.

A placeholder is replaced by its secret only in a request or in a child's environment. Every secret that a call sees or
places is redacted from its result and receipt. Placed secrets are also redacted from the answers of servers and
programs, because the tool should not see them.

`ctx.kv`: small values in the stores that a tool declared, and the limits of every store backend.

A tool cannot name the scope of a store: it is made from the tool, the session, the agent and the personality.
"""

import asyncio
import inspect
import secrets
from collections.abc import Awaitable, Callable, Mapping
from functools import lru_cache
from typing import Any, NoReturn, Protocol

from msgspec.structs import replace

from licet.core.algebra.domains import STORAGE_KINDS, storage_scope_id
from licet.core.algebra.rules import InvalidUse, Use
from licet.core.decision.decision import Deny
from licet.core.decision.request import Ground
from licet.core.late_pattern import late_pattern
from licet.declare.plain_json import is_heavy
from licet.errors import Refused
from licet.guard.grant import Grant
from licet.guard.limits import LARGEST_VALUE, MOST_KEYS, MOST_UNITS
from licet.guard.ports import Ended, Kv, Secrets, SecretsFunction, TooLarge, Unavailable
from licet.guard.redaction.redact import Redactor

_PLACEHOLDER = late_pattern(r"licet-ref-[0-9a-f]{32}")
_MARK = "licet-ref-"


class Placeholders(Protocol):
    """Replaces placeholders in the text and bytes of a request or a command with the secrets they name."""

    async def get(self, reference: str) -> str:
        """The value of a secret that the call holds."""

    @property
    def placed(self) -> Redactor:
        """The redactor of the secrets that were inserted so far."""

    async def resolve(self, text: str) -> str:
        """The text with its placeholders replaced."""

    async def resolve_bytes(self, data: bytes, escape: Callable[[str], str] = ...) -> bytes:
        """The bytes with their placeholders replaced, each value passed through `escape` first."""


class ScopedSecrets:
    """`ctx.secrets` of one call. Its placeholders work only in this call."""

    __slots__ = ("_backend", "_grant", "_placed", "_redactor", "placed")

    def __init__(self, grant: Grant, backend: Secrets | SecretsFunction | None, redactor: Redactor) -> None:
        self._grant = grant
        self._backend = backend
        self._redactor = redactor
        self._placed: dict[str, Use] = {}
        self.placed = Redactor()  # the values that replaced a placeholder

    async def get(self, reference: str) -> str:
        """The value of a secret. The tool then sees it; prefer `ref` where a placeholder is enough."""
        return await self._value(self._use(reference))

    async def exists(self, reference: str) -> bool:
        """Whether a granted secret is known here, for availability checks. The value goes nowhere."""
        use = self._use(reference)
        self._grant.require(use)
        backend: Any = self._grant.backend(self._backend, use)
        try:
            found: Any = getter(backend)(use.target)
            found = await found if inspect.isawaitable(found) else found
        except Exception:
            return False
        return type(found) is str

    def ref(self, reference: str) -> str:
        """A placeholder that becomes the secret in a header, a body or a child's environment, and nowhere else."""
        use = self._use(reference)
        self._grant.check(use)
        for placeholder, placed in self._placed.items():
            if placed == use:
                return placeholder
        # It cannot be guessed, so text from elsewhere is never taken for a placeholder.
        placeholder = _MARK + secrets.token_hex(16)
        self._placed[placeholder] = use
        return placeholder

    async def resolve(self, text: str, escape: Callable[[str], str] = str) -> str:
        """Replace this call's placeholders in a text; only for headers, bodies and environments.

        `escape` is applied to each value, for example to put it inside a JSON string. The caller must check the
        replaced text again, because a secret may contain any character.
        """
        if not self._placed or _MARK not in text:
            return text
        values = {found: escape(await self._place(self._placed[found])) for found in self._used(text)}
        # Replaced in one pass, so that a value which looks like a placeholder is left alone.
        return _PLACEHOLDER.sub(lambda found: values.get(found[0], found[0]), text)

    async def resolve_bytes(self, data: bytes, escape: Callable[[str], str] = str) -> bytes:
        """As `resolve`, for a body."""
        if not self._placed or _MARK.encode() not in data:
            return data
        # Latin-1 carries any bytes; the values go in as UTF-8.
        text = await self.resolve(
            data.decode("latin-1"), lambda value: escape(value).encode("utf-8", "surrogateescape").decode("latin-1")
        )
        return text.encode("latin-1")

    def _used(self, text: str) -> list[str]:
        return [found for found in dict.fromkeys(_PLACEHOLDER.findall(text)) if found in self._placed]

    def _use(self, reference: str) -> Use:
        try:
            return Use(f"secret:read:{reference}")
        except InvalidUse as wrong:
            self._grant.invalid("SECRET_NOT_DECLARED", wrong)

    async def _place(self, use: Use) -> str:
        value = await self._value(use)
        self.placed.add(use.target, value)
        return value

    async def _value(self, use: Use) -> str:
        grant = self._grant
        grant.check(use)
        backend: Any = grant.backend(self._backend, use)
        text, fix, value = f"no backend knows {use.target}", "", None
        try:
            value = await getter(backend)(use.target)
        except Unavailable as wrong:
            text, fix = f"the backend for {use.target} cannot be used", str(wrong)
        except Exception as error:  # its text may contain anything, so only the type is shown
            text = f"the backend for {use.target} failed: {type(error).__name__}"
        if type(value) is not str:
            grant.refuse("BACKEND_MISSING", text, use, fix)
        self._redactor.add(use.target, value)
        return value


def redacted_refusal(redactor: Redactor, refusal: Refused) -> Refused:
    """A refusal without secrets, which may be part of a path or host. Returns the same object if it has none."""
    decision = refusal.decision
    use, rules = decision.use, decision.rules
    clean = tuple(replace(rule, text=redactor.text(rule.text), fix=redactor.text(rule.fix)) for rule in rules)
    line = redactor.text(str(refusal))
    if clean == rules and line == str(refusal) and (use is None or redactor.text(str(use)) == str(use)):
        return refusal
    if use is not None:  # it contains the secret, so keep only the redacted line
        clean = (Ground(refusal.code, line.removeprefix(f"{refusal.code}: ")), *clean)
    return Refused(Deny(decision.request, clean, None))


def getter(backend: Secrets | SecretsFunction) -> Callable[[str], Awaitable[str | None]]:
    """The function that looks up a secret: the `get` of a backend, or the backend itself if it is a function.

    What is not async runs in a thread, since it may wait for a vault.
    """
    ask: Any = backend if not hasattr(backend, "get") else backend.get

    async def value(reference: str) -> str | None:
        found = ask(reference) if _is_async(ask) else await asyncio.to_thread(ask, reference)
        value: str | None = await found if inspect.isawaitable(found) else found
        return value

    return value


def _is_async(function: object) -> bool:
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(getattr(function, "__call__", None))  # noqa: B004


_use = lru_cache(1024)(lambda name: Use(f"env:read:{name}"))


class ScopedEnv:
    """`ctx.env` of one call. It can neither list nor change variables."""

    __slots__ = ("_environ", "_grant")

    def __init__(self, grant: Grant, environ: Mapping[str, str] | None) -> None:
        self._grant = grant
        self._environ = environ

    def get(self, name: str, default: str | None = None) -> str | None:
        """The value of a variable, or the default if it is not set."""
        try:
            use = _use(name) if type(name) is str else Use(f"env:read:{name}")
        except InvalidUse as wrong:
            self._grant.invalid("ENV_NOT_ALLOWED", wrong)
        self._grant.check(use)
        return self._grant.backend(self._environ, use).get(use.target, default)


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

    async def get(self, key: str, default: object = None) -> Any:
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
