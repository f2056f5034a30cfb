"""Makes the `ctx` of one call from its grant and the ports. A tool reaches the outside only through it."""

import inspect
import threading
from decimal import Decimal
from typing import TYPE_CHECKING, NamedTuple

from licet.core.algebra.rules import InvalidUse, Use
from licet.core.decision.decision import Deny
from licet.core.decision.request import NOTHING, Ground, plus_up, reported, settled_amount
from licet.guard.availability_answers import advice_about, answer_text, error_text
from licet.guard.contained import Raised, contained
from licet.guard.facts import SessionFacts
from licet.guard.grant import Grant
from licet.guard.handles.files import ScopedFiles
from licet.guard.handles.processes import ScopedProcesses
from licet.guard.handles.secrets_and_kv import ScopedEnv, ScopedKv, ScopedSecrets
from licet.guard.ports import Ports, free_after_fork
from licet.guard.redaction.redact import Redactor
from licet.guard.registration import Registered

if TYPE_CHECKING:
    from licet.guard.handles.fetch import ScopedFetch


_MAKING = free_after_fork(threading.Lock())


class CallParts(NamedTuple):
    """What a context is made of: engines read it, such as the one that runs tools in workers."""

    session: SessionFacts
    registered: Registered
    ports: Ports
    grant: Grant


class BoundContext:
    """The `ctx` of one call. Each handle is made when it is first used, and checks every use.

    A handle may have no backend (None): then the tool declared nothing of that kind, and the handle refuses first.
    """

    __slots__ = (
        *("_env", "_fetch", "_fs", "_grant", "_kv", "_ports", "_process", "_registered", "_secrets", "_session"),
        *("_total", "charged"),
    )

    _fetch: "ScopedFetch | None"
    _fs: ScopedFiles | None
    _secrets: ScopedSecrets | None
    _kv: ScopedKv | None
    _env: ScopedEnv | None
    _process: ScopedProcesses | None

    def __init__(self, session: SessionFacts, registered: Registered, ports: Ports, grant: Grant) -> None:
        self.charged: Decimal | None = None
        self._total = NOTHING  # the exact sum; `charged` is rounded up
        self._session = session
        self._registered = registered
        self._ports = ports
        self._grant = grant
        self._fetch = self._fs = self._secrets = self._kv = self._env = self._process = None

    @property
    def session_id(self) -> str:
        """The session that this call belongs to."""
        return self._session.id

    @property
    def agent(self) -> str:
        """The agent that makes this call."""
        return self._session.agent

    @property
    def workdir(self) -> str:
        """Where relative paths start."""
        return self._session.gate.workdir

    @property
    def fetch(self) -> "ScopedFetch":
        """Requests to the hosts that this call holds."""
        if self._fetch is None:
            from licet.guard.handles.fetch import ScopedFetch  # slow to import, and only needed for the network

            self._fetch = ScopedFetch(self._grant, self._ports.http, self.secrets)
        return self._fetch

    @property
    def fs(self) -> ScopedFiles:
        """Files below the paths that this call holds."""
        if self._fs is None:
            self._fs = ScopedFiles(self._grant, self._ports.files, self.workdir, home=self._session.gate.home)
        return self._fs

    @property
    def secrets(self) -> ScopedSecrets:
        """Secrets that this call holds, by reference."""
        with _MAKING:  # a tool may have threads: two redactors would each know only some of its secrets
            if self._secrets is None:
                self._grant.redactor = Redactor()
                self._secrets = ScopedSecrets(self._grant, self._ports.secrets, self._grant.redactor)
        return self._secrets

    @property
    def kv(self) -> ScopedKv:
        """The store that the tool declared."""
        if self._kv is None:
            self._kv = ScopedKv(self._grant, self._ports.kv)
        return self._kv

    @property
    def env(self) -> ScopedEnv:
        """Variables of the host's environment that this call holds."""
        if self._env is None:
            self._env = ScopedEnv(self._grant, self._ports.environ)
        return self._env

    @property
    def process(self) -> ScopedProcesses:
        """Programs that this call holds."""
        if self._process is None:
            self._process = ScopedProcesses(
                self._grant,
                self._ports.processes,
                self._ports.sandbox,
                binaries=self._registered.binaries,
                environ=self._ports.environ,
                placeholders=self.secrets,
                workdir=self.workdir,
                seconds=self._registered.seconds,
                output_bytes=self._registered.output_bytes,
            )
        return self._process

    def charge(self, amount: Decimal | str | int) -> None:
        """Add to the cost of this call, in dollars; the sum must not exceed the declared `cost_usd`."""
        cost = reported(amount)
        if cost is None:
            raise ValueError(f"expected an amount of money as a Decimal, a text or a whole number, found {amount!r}")
        most = self._registered.cost_usd
        with _MAKING:  # two threads of a tool could charge at once, and one amount would be lost
            if self._grant.over:
                self._grant.refuse("SESSION_ENDED", "the call has ended, and what it costs is settled")
            fits = cost <= most and (total := plus_up(self._total, cost)) <= most
            if fits:
                self._total, self.charged = total, settled_amount(total)
        if not fits:
            text, spec = f"more than the {most} USD that the tool declares for a call", self._grant.reach.spec
            ground = Ground("BUDGET_EXCEEDED", text, spec.origin, "raise `cost_usd` where the tool is declared")
            self._grant.deny(Deny(self._grant.request, (ground,)))

    def settled(self) -> Decimal | None:
        """The charged sum of a call that has ended; None if nothing was charged."""
        with _MAKING:  # a thread that is still in `charge` adds to the sum first
            return self.charged


class AvailabilityView:
    """The argument of an availability check: variables, programs and secrets that the tool may use, and no others."""

    __slots__ = ("_context", "_grant", "_registered")

    def __init__(self, context: BoundContext, grant: Grant, registered: Registered) -> None:
        self._context, self._grant, self._registered = context, grant, registered

    def env(self, name: str) -> str | None:
        """The value of a declared environment variable, or None if it is not set."""
        return self._context.env.get(name)

    def program(self, name: str) -> str | None:
        """The path of a declared program, or None if it is not installed."""
        try:
            self._grant.check(use := Use(f"process:exec:{name}"))
        except InvalidUse as wrong:
            self._grant.invalid("BINARY_NOT_ALLOWED", wrong)
        return self._registered.binaries.get(use.target)

    async def secret(self, reference: str) -> bool:
        """Whether a declared secret exists here; its value is not given."""
        return await self._context.secrets.exists(reference)


async def why_unavailable(session: SessionFacts, registered: Registered, grant: Grant) -> tuple[str, str]:
    """Why a tool cannot run here, and where its check is; empty if it returns True. All that it raises is a no."""
    check = registered.tool.available
    if check is None:
        return "", ""
    view = AvailabilityView(BoundContext(session, registered, session.gate.ports, grant), grant, registered)

    async def asked() -> object:
        returned: object = check(view)
        return await returned if inspect.isawaitable(returned) else returned

    try:
        answer = await contained(asked())
    except Raised as raised:
        return error_text(raised.error), advice_about(check, raised.error)
    why = answer_text(check, answer)
    return why, advice_about(check, None) if why else ""


def parts_of(context: BoundContext) -> CallParts:
    """What a context is made of. A function, so that no public name of the `ctx` leads a native tool to the policy."""
    made = context._session, context._registered, context._ports, context._grant  # noqa: SLF001 - of the class above
    return CallParts(*made)
