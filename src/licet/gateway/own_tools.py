"""Which tools of the workspace a client of `licet serve` is shown: not those that say that they cannot run here."""

import asyncio
from collections.abc import Callable, Mapping

from licet.gateway.limits import TOOLS_LOOK_SECONDS
from licet.guard.session import Session


class OwnTools:
    """Asks the tools of a session, before each list and now and then.

    `changed` is told when other ones can run, and `announce` when that is news for the client. A list that it has asked
    for tells it: if each were announced too, and a check says something else each time, this would never end.
    """

    def __init__(
        self,
        session: Session,
        changed: Callable[[Mapping[str, str]], None],
        announce: Callable[[], None],
        report: Callable[[str], None],
    ) -> None:
        self._session, self._changed, self._announce, self._report = session, changed, announce, report
        self._unavailable: Mapping[str, str] = {}
        self._asking: asyncio.Task[dict[str, str]] | None = None

    async def renew(self) -> None:
        """Ask them now."""
        policy = self._session.gate.policy
        if policy.unusable or all(one.tool.available is None for one in policy.tools.values()):
            return
        if self._asking is None:  # one look is enough for all who wait
            self._asking = asyncio.get_running_loop().create_task(self._session.unavailable())
            self._asking.add_done_callback(self._has_asked)
        found, before = await asyncio.shield(self._asking), self._unavailable
        if found == before:
            return
        self._unavailable = found
        for name in sorted(found.keys() | before.keys()):
            why = found.get(name, "")
            if why and why != before.get(name, ""):
                self._report(f"{name} is not shown: {why}")
            elif not why and self._is_admitted(name):  # what left the policy, or could not be asked, did not recover
                self._report(f"{name} is shown again: it can run here now")
        self._changed(found)

    def _is_admitted(self, name: str) -> bool:
        registered = self._session.gate.policy.tools.get(name)
        return registered is not None and registered.ready

    def _has_asked(self, asking: "asyncio.Task[dict[str, str]]") -> None:
        self._asking = None

    async def watch(self) -> None:
        """Ask them now and then, without end."""
        while True:
            await asyncio.sleep(TOOLS_LOOK_SECONDS)
            before = self._unavailable
            await self.renew()
            if self._unavailable is not before:
                self._announce()
