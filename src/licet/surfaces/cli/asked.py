"""A use as a person types it: rule notation, a URL with or without its method, a path with or without its action."""

import re

from licet.assemble import Places
from licet.core.use import Use, use_of_path, use_of_url

_REQUEST = re.compile(r"(?:(?P<method>\S+)\s+)?(?P<url>https?://.*)", re.IGNORECASE | re.DOTALL)
_PATH = re.compile(r"(?:(?P<action>read|write|delete)\s+)?(?P<path>(?:/|~/|\.{1,2}/).*|~|\.{1,2})", re.DOTALL)


def asked_use(text: str, places: Places) -> Use:
    """The concrete use that a person means, or `InvalidUse`; a bare URL is a GET, a bare path is read."""
    # No use in rule notation begins like a URL or a path, so nothing can be taken for the other.
    if request := _REQUEST.fullmatch(text):
        return use_of_url(request["method"] or "GET", request["url"])
    if path := _PATH.fullmatch(text):
        home, spoken = places.home, path["path"]
        target = home + spoken[1:] if spoken[0] == "~" else spoken
        return use_of_path(path["action"] or "read", target, places.workdir)
    return Use(text)
