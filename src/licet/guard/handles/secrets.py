"""`ctx.secrets` and `ctx.env`: secrets, placeholders for secrets, and declared environment variables.

A placeholder is replaced by its secret only in a request or in a child's environment. Every secret that a call sees or
places is redacted from its result and receipt. Placed secrets are also redacted from the answers of servers and
programs, because the tool should not see them.
"""

import inspect
import re
import secrets
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, Protocol

from msgspec.structs import replace

from licet.core.algebra.use import InvalidUse, Use
from licet.core.decision.decision import Deny
from licet.core.decision.request import Ground
from licet.errors import Refused
from licet.guard.grant import Grant
from licet.guard.ports import Secrets, SecretsFunction, Unavailable
from licet.guard.redaction.redact import Redactor

_PLACEHOLDER = re.compile(r"licet-ref-[0-9a-f]{32}")
_MARK = "licet-ref-"


class Placeholders(Protocol):
    """Replaces placeholders in the text and bytes of a request or a command with the secrets they name."""

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


def getter(backend: Secrets | SecretsFunction) -> SecretsFunction:
    """The function that looks up a secret: the `get` of a backend, or the backend itself if it is a function."""
    return backend if not hasattr(backend, "get") else backend.get


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
