"""What a request brought back, as plain data: it can be pickled, compared and kept, and holds nothing open."""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

_CHARSET = re.compile(r";\s*charset\s*=\s*\"?([A-Za-z0-9._:-]{1,40})", re.IGNORECASE)

# Codecs of Python that no page is written in; what comes in them from outside can take very long to decode.
_NO_CHARSETS = frozenset({"idna", "punycode", "raw_unicode_escape", "unicode_escape", "undefined"})


class Headers(Mapping[str, str]):
    """Header lines in the order they came; names are looked up in any case, and repeated lines are joined."""

    __slots__ = ("pairs",)

    def __init__(self, pairs: Iterable[tuple[str, str]] = ()) -> None:
        self.pairs = tuple(pairs)

    def all(self, name: str) -> tuple[str, ...]:
        """Every line of a name; some, such as `Set-Cookie`, cannot be joined."""
        wanted = name.lower()
        return tuple(value for each, value in self.pairs if each.lower() == wanted)

    def __getitem__(self, name: str) -> str:
        found = self.all(name)
        if not found:
            raise KeyError(name)
        return ", ".join(found)

    def __iter__(self) -> Iterator[str]:
        return iter(dict.fromkeys(name.lower() for name, _ in self.pairs))

    def __len__(self) -> int:
        return len({name.lower() for name, _ in self.pairs})

    def __eq__(self, other: object) -> bool:
        return self.pairs == other.pairs if isinstance(other, Headers) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.pairs)

    def __repr__(self) -> str:
        return f"Headers({list(self.pairs)!r})"


class BadStatus(Exception):
    """A response whose status says that the request failed."""

    def __init__(self, status: int, url: str) -> None:
        self.status, self.url = status, url
        super().__init__(f"{url} answered {status}")

    def __reduce__(self) -> tuple[type["BadStatus"], tuple[int, str]]:
        return BadStatus, (self.status, self.url)


@dataclass(frozen=True, slots=True)
class Response:
    """An answer, read to its end: the URL is the one that answered, after redirects."""

    status: int
    url: str
    headers: Headers
    content: bytes

    @property
    def ok(self) -> bool:
        """Whether the request succeeded, as far as the status says."""
        return 200 <= self.status < 300

    @property
    def text(self) -> str:
        """The content as text, in the encoding that the headers name, or UTF-8; what does not fit is replaced."""
        named = _CHARSET.search(self.headers.get("content-type", ""))
        charset = named[1].lower() if named else "utf-8"
        if charset.replace("-", "_") in _NO_CHARSETS:
            charset = "utf-8"
        try:
            return self.content.decode(charset, "replace")
        except (LookupError, UnicodeError):
            return self.content.decode("utf-8", "replace")

    def json(self) -> Any:
        """The content as JSON, or `ValueError`."""
        return json.loads(self.content)

    def raise_for_status(self) -> "Response":
        """The response itself, or `BadStatus` if its status says that the request failed."""
        if self.status >= 400:
            raise BadStatus(self.status, self.url)
        return self
