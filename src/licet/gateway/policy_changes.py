"""Keeps the policy of a running gateway that of its files: loaded again, by the rules of a start, when one changes.

The files are looked at before each request of the client, so that no call is decided by a policy which its files no
longer say, and once a second, so that servers end and the client is told of new lists without a request. What a start
would refuse is refused here: every call is denied, with what to do, until the files are such that a start would take
them. The session goes on, with its budgets, its receipts and its memory.
"""

import asyncio
from collections.abc import Awaitable, Callable

from licet.core.decision.request import Ground
from licet.core.policy.manifest import Manifest
from licet.errors import LicetError
from licet.gateway.limits import LOOK_AGAIN_SECONDS, POLICY_LOOK_SECONDS
from licet.guard.gate import BareGate
from licet.guard.policy_record import policy_entry
from licet.guard.ports import LedgerUnavailable
from licet.guard.session import Session
from licet.policy_files.policy_source import PolicyRefused, PolicySource, meaning

_TO_THE_MODEL = "the policy has changed, and is not in force as it is now: a person has to look at it"


class PolicyChanges:
    """Looks whether the policy of a session has changed. `use` puts another one in force, or raises why it cannot."""

    def __init__(
        self,
        source: PolicySource,
        gate: BareGate,
        session: Session,
        manifest: Manifest,
        use: Callable[[Manifest], Awaitable[None]],
        report: Callable[[str], None],
    ) -> None:
        self._source, self._gate, self._session, self._use, self._report = source, gate, session, use, report
        self._meaning, self._digest = meaning(manifest), manifest.digest  # of the policy that was used last
        self._refused = ""  # why none is in force
        self._work: asyncio.Task[None] | None = None

    def is_due(self) -> bool:
        """Whether a file has changed, or one is being loaded. A few microseconds."""
        return self._work is not None or self._source.has_changed()

    async def settle(self) -> None:
        """Return when the policy in force is what the files say, or none is, at a time after this was called."""
        if self._work is not None:  # it may have looked before the caller came
            await asyncio.shield(self._work)
        if self._work is not None or self._source.has_changed():
            await asyncio.shield(self._work or self._load_again())  # a client may cancel its request, not this

    async def watch(self) -> None:
        """Look now and then, without end. What was refused is tried again: the reason may lie in no file of policy."""
        loop = asyncio.get_running_loop()
        tried = loop.time()
        while True:
            await asyncio.sleep(POLICY_LOOK_SECONDS)
            if not self._refused:
                tried = loop.time()
            elif self._work is None and loop.time() - tried >= LOOK_AGAIN_SECONDS:
                tried = loop.time()
                self._load_again()
            await self.settle()

    async def close(self) -> None:
        """Wait for a load that is under way."""
        if self._work is not None:
            await asyncio.gather(self._work, return_exceptions=True)

    def _load_again(self) -> "asyncio.Task[None]":
        self._work = asyncio.get_running_loop().create_task(self._load())
        self._work.add_done_callback(self._is_done)
        return self._work

    def _is_done(self, work: "asyncio.Task[None]") -> None:
        self._work = None

    async def _load(self) -> None:
        try:
            manifest, said = await asyncio.to_thread(self._read)
            if said == self._meaning and not self._refused:
                return
            await self._use(manifest)
        except PolicyRefused as refused:
            await self._refuse(str(refused), refused.fix, refused.manifest)
        except LicetError as error:
            await self._refuse(" ".join(str(error).split()), "")
        except Exception as error:  # whatever it is: the policy before this one may allow more
            await self._refuse(f"it cannot be loaded: {type(error).__name__}: {error}", "")
        else:
            before, self._meaning, self._digest, self._refused = self._digest, said, manifest.digest, ""
            self._report(f"the policy was loaded again: {manifest.digest} is in force")
            await self._record(manifest.digest, before, "")

    def _read(self) -> tuple[Manifest, tuple[object, ...]]:
        manifest = self._source.load()
        return manifest, meaning(manifest)

    async def _refuse(self, why: str, fix: str, manifest: Manifest | None = None) -> None:
        """Deny all calls, and say why once."""
        advice = "; ".join(filter(None, (why, fix)))
        self._gate.withdraw(Ground("MANIFEST_CHANGED", _TO_THE_MODEL, self._gate.manifest.origin, advice), manifest)
        is_new, self._refused = self._refused != advice, advice
        if is_new:
            self._report(f"the policy has changed, and every call is refused: {advice}")
            await self._record(self._digest if manifest is None else manifest.digest, self._digest, advice)

    async def _record(self, digest: str, before: str, why: str) -> None:
        ledger = self._gate.ports.ledger
        if ledger is None:
            return
        try:
            await ledger.record(policy_entry(self._gate, self._session, digest, before, why))
        except LedgerUnavailable as error:  # then every call is refused for that reason, too
            self._report(f"that the policy changed is not in the ledger: {error}")
