"""A use as a person types it: rule notation, a URL with or without its method, a path with or without its action."""

import re

from licet.assemble import Places
from licet.core.use import InvalidUse, Use, use_of_path, use_of_url

_REQUEST = re.compile(r"(?:(?P<method>\S+)\s+)?(?P<url>https?://\S*)", re.IGNORECASE)
_ACTION = re.compile(r"(read|write|delete)\s+(\S.*)", re.DOTALL)
_PATH = re.compile(r"[/~$]|\.{1,2}(?:/|$)")  # how a path begins, and nothing else


def one_use(words: tuple[str, ...], places: Places) -> Use:
    """The one use that the words of a command line are: `POST URL`, `write PATH`, or a word alone."""
    # Two paths are not one path with a space in it: an answer about that would be an answer to another question.
    joined = " ".join(words)
    if len(words) > 1 and not (len(words) == 2 and (_ACTION.fullmatch(joined) or _REQUEST.fullmatch(joined))):
        raise InvalidUse(joined, "one use; ask about each by itself, and quote a path that holds spaces")
    return asked_use(joined, places)


def asked_use(text: str, places: Places) -> Use:
    """The concrete use that a person means, or `InvalidUse`; a bare URL is a GET, a bare path is read."""
    # No use in rule notation begins like a URL or a path, so nothing can be taken for the other.
    if request := _REQUEST.fullmatch(text):
        if "*" in re.split(r"[/?#]", request["url"].partition("://")[2])[0]:
            raise InvalidUse(request["url"], "one concrete URL, whose host has no wildcard")
        return use_of_url(request["method"] or "GET", request["url"])
    acted = _ACTION.fullmatch(text)
    action, spoken = acted.groups() if acted else ("read", text)
    if _PATH.match(spoken) or (acted and ":" not in spoken.partition("/")[0]):
        return use_of_path(action, _filled(spoken, places), places.workdir)
    # A bare `data/a.csv` is not guessed to be a path: `api.example.com/v1` and `github/token` look like one too.
    if text.count(":") < 2:
        raise InvalidUse(text, "an http or https URL, a path such as `./a` or `read a`, or `domain:action:scope`")
    return Use(text)


def _filled(spoken: str, places: Places) -> str:
    """A path with its directory in place of `~` or `${workdir}`, which mean what they do in a rule."""
    if "*" in spoken:
        raise InvalidUse(spoken, "one concrete path, without a wildcard")
    root, slash, rest = spoken.partition("/")
    root = {"~": places.home or "~", "${workdir}": places.workdir}.get(root, root)
    if root.startswith(("~", "$")) or "${" in rest:
        raise InvalidUse(spoken, "a path; only `~` and `${workdir}`, at its start, stand for a directory")
    return root + slash + rest
