"""From the URL that a caller wrote to the request that is sent: the use it is, and the one spelling of the URL.

The parser that decides is the parser whose serialisation goes out, so no second reading can lead elsewhere.
"""

from typing import NamedTuple

import can_ada

from licet.core.network import DEFAULT_PORTS
from licet.core.scope import unsettled
from licet.core.use import InvalidUse, Use, use_of_url


class Destination(NamedTuple):
    """One request: what it does and to whom, its method, and its URL in canonical form, without a fragment."""

    use: Use
    method: str
    url: str

    @property
    def origin(self) -> tuple[str, str, int | None]:
        """Whom the request talks to: protocol, host and port."""
        return self.use.action, self.use.target, self.use.port


def destination(method: str, url: str) -> Destination:
    """Where a URL leads, or `InvalidUse`."""
    # A subclass of `str` may answer differently each time; its characters cannot.
    text = str.__str__(url) if issubclass(type(url), str) else url
    word = str.__str__(method) if issubclass(type(method), str) else method
    use = use_of_url(word, text)
    parsed = can_ada.parse(text)
    port = "" if use.port == DEFAULT_PORTS[use.action] else f":{use.port}"
    # The host is the checked one, which has no trailing dot; certificates and virtual hosts have none either.
    sent = f"{use.action}://{use.target}{port}{parsed.pathname}{parsed.search}"
    return Destination(use, word if use.method == "other" else use.method.upper(), sent)


def redirected(method: str, source: str, location: str) -> Destination:
    """Where a `Location` leads, seen from the canonical URL that answered with it, or `InvalidUse`."""
    if not location.isprintable():
        raise InvalidUse(location, "a URL without control characters")
    try:
        joined = can_ada.parse(source) + location
    except ValueError as wrong:
        raise InvalidUse(location, "a URL that can be followed") from wrong
    reached = destination(method, joined.href)
    if unsettled(reached.use.target, location):
        raise InvalidUse(location, "a host whose spelling is settled")
    return reached
