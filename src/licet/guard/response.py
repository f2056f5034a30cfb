"""What a request brought back, as plain data: it can be pickled, compared and kept, and holds nothing open."""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from encodings import normalize_encoding
from encodings.aliases import aliases
from typing import Any

from licet.values import dataclass

_CHARSET = re.compile(r";\s*charset\s*=\s*\"?([A-Za-z0-9._:-]{1,40})", re.IGNORECASE)

# Those that pages are written in, as Python names them. It has further codecs, and some of them take very long over
# hostile bytes.
_CHARSETS = frozenset(
    {
        *("ascii", "utf_8", "utf_16", "utf_16_be", "utf_16_le", "utf_32", "latin_1", "koi8_r", "koi8_u", "cp866"),
        *(f"iso8859_{part}" for part in (*range(2, 11), *range(13, 17))),
        *(f"cp{page}" for page in range(1250, 1259)),
        *("shift_jis", "cp932", "euc_jp", "iso2022_jp", "euc_kr", "cp949", "gb2312", "gbk", "gb18030", "big5"),
    }
)


class Headers(Mapping[str, str]):
    """Header lines in the order they came; names are looked up in any case, and repeated lines are joined."""

    __slots__ = ("_values", "pairs")

    def __init__(self, pairs: Iterable[tuple[str, str]] = ()) -> None:
        self.pairs = tuple(pairs)
        self._values: dict[str, list[str]] = {}
        for name, value in self.pairs:
            self._values.setdefault(name.lower(), []).append(value)

    def all(self, name: str) -> tuple[str, ...]:
        """Every line of a name; some, such as `Set-Cookie`, cannot be joined."""
        return tuple(self._values.get(name.lower(), ()))

    def __getitem__(self, name: str) -> str:
        found = self.all(name)
        if not found:
            raise KeyError(name)
        return ", ".join(found)

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

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
        plain = normalize_encoding(named[1]).lower() if named else "utf_8"
        codec = aliases.get(plain, plain)
        return self.content.decode(codec if codec in _CHARSETS else "utf-8", "replace")

    def json(self) -> Any:
        """The content as JSON, or `ValueError`."""
        return json.loads(self.content)

    def raise_for_status(self) -> "Response":
        """The response itself, or `BadStatus` if its status says that the request failed."""
        if self.status >= 400:
            raise BadStatus(self.status, self.url)
        return self
