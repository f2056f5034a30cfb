"""The address of a remote server: sends HTTP requests there, and nowhere else.

The rules are those of `ctx.fetch`: the name is resolved once for each request, every address must be allowed, and the
connection goes to a checked one. A redirect is followed only within the origin, and if the method stays.
"""

from collections.abc import Callable
from contextlib import AsyncExitStack

from licet.core.algebra.scope import visible
from licet.core.algebra.use import Destination, InvalidUse, destination, redirected
from licet.errors import Refused
from licet.guard.grant import Grant
from licet.guard.handles.dial import FetchLimits, first_reply
from licet.guard.handles.messages import Headers, Outgoing, Pairs
from licet.guard.ports import Http, Reply
from licet.guard.redaction.redact import Redactor
from licet.surfaces.gateway.link import Gone

_LIMITS = FetchLimits()
_REDIRECTS = (301, 302, 303, 307, 308)
_KEEP_METHOD = (307, 308)


class Endpoint:
    """Where a remote server is, and which headers with secrets it gets.

    The POST that carries a call is no effect of the tool: policy is asked whether the host may be reached at all, which
    is `network:…:get@HOST`.
    """

    def __init__(
        self,
        url: str,
        grant: Grant,
        http: Http,
        *,
        headers: Pairs = (),
        redactor: Redactor | None = None,
        report: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._there = destination("GET", url)
        self._grant, self._http = grant, http
        self._headers, self._report = headers, report
        self.redactor = redactor or Redactor()
        self._told: set[str] = set()

    async def open(self, stack: AsyncExitStack, method: str, headers: Pairs, body: bytes, seconds: float) -> Reply:
        """Send a request, and return the head of the answer. `seconds` is for each wait. Raises `Gone`."""
        there = Destination(self._there.use, method, self._there.url)
        message = Outgoing((*headers, *self._headers), body)
        for _ in range(_LIMITS.redirects + 1):
            async with AsyncExitStack() as attempt:
                try:
                    self._grant.require(there.use)
                    reply = await first_reply(attempt, self._grant, self._http, there, message, seconds, _LIMITS)
                except Refused as refusal:
                    self.tell(refusal.explain())
                    raise Gone(self.redactor.text(str(refusal))) from None
                known = Headers(reply.headers)
                if reply.status not in _REDIRECTS or "location" not in known:
                    stack.push_async_exit(attempt.pop_all())
                    return reply
            there = self._followed(there, reply.status, known.all("location")[0])
        raise Gone(f"it redirects more than {_LIMITS.redirects} times")

    def _followed(self, there: Destination, status: int, location: str) -> Destination:
        """The target of a redirect within the origin. Anything else would send the secrets elsewhere."""
        try:
            target = redirected(there.method, there.url, location.encode("latin-1", "replace").decode(errors="replace"))
        except InvalidUse:
            raise Gone("it redirects to an address that is none") from None
        if target.origin != there.origin:
            self.tell(f"it redirects to {target.url}: if that is the server, write it as its `url`")
            raise Gone("it redirects to another origin, which is not followed")
        if there.method != "GET" and status not in _KEEP_METHOD:
            raise Gone(f"it redirects with status {status}, which does not keep the method")
        return Destination(there.use, there.method, target.url)

    def tell(self, text: str) -> None:
        """Report something to the operator, once."""
        one_line = " ".join(map(str.strip, self.redactor.text(text).split("\n")))  # a refusal has several
        clean = visible(one_line)[:2_000]
        if clean not in self._told and len(self._told) < 100:
            self._told.add(clean)
            self._report(clean)
