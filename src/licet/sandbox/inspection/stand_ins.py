"""Which keys does a program use without seeing them, and what happens to their stand-ins in what it sends and gets?

A program has a stand-in where the key would be: in a variable or in a file. In a request to a host that is listed for
the key, the key is put in its place, and in answers it becomes the stand-in again. A stand-in on its way to another
host is an attempt to send the key away.
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Generator, Iterable, Iterator, Mapping
from functools import partial

from msgspec import Struct

from licet.core.algebra.set import CapabilitySet
from licet.core.policy.inspection import Inspection, StandIn, is_inspected
from licet.guard.handles.messages import (
    CODINGS,
    BodyTooLarge,
    Corrupt,
    Decoder,
    Pairs,
    codings_of,
    is_connections_own,
)
from licet.sandbox.inspection.key_files import value_in
from licet.sandbox.inspection.key_forms import KeySearch, KeyStream, Match, rewritten
from licet.sandbox.inspection.key_places import Placed, in_body, in_header, media_type
from licet.sandbox.inspection.key_shapes import CannotPlace, check_key, new_stand_in
from licet.sandbox.limits import (
    LARGEST_KEY_FILE,
    LARGEST_KEYED_BODY,
    LARGEST_UNPACKED_BODY,
    MOST_LEFT,
    MOST_UNPACKED_TIMES,
    UNPACKED_FREELY,
)

__all__ = ["CannotCheck", "CannotPlace", "KeySentAway", "KeysInAnswer", "KeysOfRequest", "StandIns", "read_keys"]


class KeySentAway(Exception):
    """A stand-in is on its way to a host that is not listed for its key."""

    def __init__(self, name: str, where: str) -> None:
        self.name, self.where = name, where
        super().__init__(f"the stand-in of `{name}` is in the {where} of a request to a host that is not listed for it")

    def __reduce__(self) -> tuple[type["KeySentAway"], tuple[str, str]]:
        return KeySentAway, (self.name, self.where)


class CannotCheck(ValueError):
    """The body of a request cannot be searched for stand-ins; the text says why."""


class _Key(Struct, frozen=True):
    """A secret with its stand-in, and the entries that give it."""

    secret: str
    stand_in: str
    entries: tuple[StandIn, ...]

    def __repr__(self) -> str:
        return f"the key of {', '.join(entry.name for entry in self.entries)}"


async def read_keys(
    inspection: Inspection, value: Callable[[str], Awaitable[str]], read_file: Callable[[str], bytes]
) -> "StandIns":
    """Read the secrets of all entries, and make a stand-in for each. Raises `CannotPlace`.

    `value` gives the secret of a reference. Entries with the same secret have the same stand-in, or an answer could not
    say which of them it has.
    """
    entries_of: dict[str, list[StandIn]] = {}
    files: dict[str, bytes] = {}
    for entry in inspection.stand_ins:
        if entry.file and entry.file not in files:
            files[entry.file] = _content(entry, read_file)
        try:
            # A hostile file may take long to parse.
            secret = await (
                asyncio.to_thread(value_in, entry.file, files[entry.file], entry.field)
                if entry.file
                else value(entry.secret)
            )
            check_key(secret)
        except CannotPlace as wrong:
            raise CannotPlace(str(wrong), entry.name) from None
        entries_of.setdefault(secret, []).append(entry)
    keys: list[_Key] = []
    for secret, entries in entries_of.items():
        others = [*entries_of, *(key.stand_in for key in keys)]
        keys.append(_Key(secret, new_stand_in(secret, others), tuple(entries)))
    return StandIns(keys, await _copies(keys, files))


def _content(entry: StandIn, read_file: Callable[[str], bytes]) -> bytes:
    try:
        content = read_file(entry.file)
    except OSError as wrong:
        raise CannotPlace(f"{entry.file}: {wrong.strerror}", entry.name) from None
    except ValueError as wrong:
        raise CannotPlace(str(wrong), entry.name) from None
    if len(content) > LARGEST_KEY_FILE:
        raise CannotPlace(f"{entry.file} has more than {LARGEST_KEY_FILE} bytes", entry.name)
    return content


async def _copies(keys: Iterable[_Key], files: Mapping[str, bytes]) -> dict[str, bytes]:
    if not files:
        return {}
    search = _search_of((key.secret, key.stand_in) for key in keys)
    copies = {path: await asyncio.to_thread(rewritten, search, content) for path, content in files.items()}
    for key in keys:
        for entry in key.entries:
            # An escape that only this format has would leave the secret in the copy.
            if entry.file and await asyncio.to_thread(value_in, entry.file, copies[entry.file], entry.field) != (
                key.stand_in
            ):
                raise CannotPlace(f"{entry.file} has `{entry.field}` in escapes", entry.name)
    return copies


def _search_of(pairs: Iterable[tuple[str, str]]) -> KeySearch:
    return KeySearch((old.encode(), new.encode()) for old, new in pairs)


class StandIns:
    """The keys of one run. Connections share it: all of its changes happen in one step of the event loop."""

    __slots__ = ("_keys", "_places", "_real", "_sent", "environment", "files", "placed")

    def __init__(self, keys: Iterable[_Key], files: Mapping[str, bytes]) -> None:
        self._keys = tuple(keys)
        self._places = {entry.name: entry.places for key in self._keys for entry in key.entries}
        self._sent = _search_of((key.stand_in, key.stand_in) for key in self._keys)
        self._real = _search_of((key.secret, key.stand_in) for key in self._keys)
        #: The variables of a program, each with its stand-in.
        self.environment: Mapping[str, str] = {
            entry.name: key.stand_in for key in self._keys for entry in key.entries if not entry.file
        }
        #: The copies of files that a program sees, by absolute path.
        self.files = files
        #: The names of the entries that were placed so far.
        self.placed: set[str] = set()

    def __repr__(self) -> str:
        return f"StandIns({', '.join(self._places)})"

    def request(self, host: str, port: int, *, secure: bool) -> "KeysOfRequest":
        """The keys of one request. `secure` says that it goes over TLS, to a server whose certificate was verified."""
        listed: dict[int, tuple[StandIn, ...]] = {}
        if secure:
            for number, key in enumerate(self._keys):
                if entries := tuple(entry for entry in key.entries if self._lists(entry, host, port)):
                    listed[number] = entries
        return KeysOfRequest(self._keys, listed, self._sent, self.placed)

    def _lists(self, entry: StandIn, host: str, port: int) -> bool:
        places: CapabilitySet = self._places[entry.name]
        return is_inspected(places, host, port)

    def answer(self, *, always: bool = False) -> "KeysInAnswer | None":
        """What takes the keys out of an answer; None while none was placed in this run, unless `always`.

        It looks for all keys of the run: a host may show what another request brought there. `always` is for a host
        that is listed for a key: it may have it from another run.
        """
        return KeysInAnswer(self._real) if self._keys and (always or self.placed) else None


class KeysOfRequest:
    """One request on its way: places keys, and looks for stand-ins everywhere else.

    Call `target`, `headers`, and then `whole_body`, if `wants_body` is not 0, or `feed` and `finish`. Each of them
    raises `KeySentAway`; from `headers` on, also `CannotCheck`. A body is made to be slow to search by who wants that:
    `whole_body` and `feed` give parts, of which some are empty, and between them other tasks can run.
    """

    __slots__ = (
        *("_decoder", "_in_run", "_inside", "_keys", "_left", "_listed", "_packed", "_placed", "_raw", "_search"),
        *("_stream", "_type", "_unpacked"),
    )

    def __init__(
        self,
        keys: tuple[_Key, ...],
        listed: Mapping[int, tuple[StandIn, ...]],
        search: KeySearch,
        in_run: set[str],
    ) -> None:
        self._keys, self._listed, self._search, self._in_run = keys, listed, search, in_run
        self._placed: dict[str, None] = {}
        self._left: dict[tuple[str, str], None] = {}
        self._type = ""  # of the body
        self._packed = False  # whether the body is compressed
        self._decoder: Decoder | None = None
        self._raw = self._unpacked = 0
        self._stream, self._inside = (KeyStream(search, partial(self._see, "body")) for _ in range(2))

    def __repr__(self) -> str:
        return f"KeysOfRequest(placed={self.placed}, left={self.left})"

    @property
    def placed(self) -> tuple[str, ...]:
        """The names of the entries whose key was placed in this request."""
        return tuple(self._placed)

    @property
    def left(self) -> tuple[tuple[str, str], ...]:
        """Stand-ins for this host that went on as they are: name, and where in the request; the first few."""
        return tuple(self._left)

    # The head --------------------------------------------------------------------------------------------------------

    def target(self, target: str) -> str:
        """Check the path and the query. No key is placed in them."""
        raw = _bytes(target)
        query = raw.find(b"?")
        for match in self._search.found(raw):
            self._see("query" if 0 <= query < match.start else "path", match)
        return target

    def headers(self, pairs: Pairs) -> Pairs:
        """The headers with the keys in place."""
        if not self._keys:
            return pairs
        self._look_at_body(pairs)
        counts = Counter(name.lower() for name, _ in pairs)
        sent: list[tuple[str, str]] = []
        rest: list[tuple[str, bytes]] = []
        for name, value in pairs:
            # Of two credentials, one server takes the first, and another the second.
            placed = self._header(name.lower(), value) if counts[name.lower()] == 1 else None
            if placed is not None:
                self._note(placed, partial(_names_header, name.lower()))
            sent.append((name, placed.value.decode("ascii")) if placed else (name, value))
            rest.append((name, placed.rest if placed else _bytes(value)))
        self._check_headers(rest)
        return tuple(sent)

    def _header(self, name: str, value: str) -> Placed | None:
        if is_connections_own(name):
            return None
        swaps: dict[str, dict[str, str]] = {}
        for number, entries in self._listed.items():
            key = self._keys[number]
            for form in dict.fromkeys(form for entry in entries for form in entry.forms(name)):
                swaps.setdefault(form, {})[key.stand_in] = key.secret
        return in_header(value, swaps) if swaps else None

    def _swap(self, holds: Callable[[StandIn], bool]) -> dict[str, str]:
        return {
            self._keys[number].stand_in: self._keys[number].secret
            for number, entries in self._listed.items()
            if any(map(holds, entries))
        }

    def _check_headers(self, rest: list[tuple[str, bytes]]) -> None:
        names = "\n".join(name for name, _ in rest).lower()
        for number, key in enumerate(self._keys):
            if key.stand_in.lower() in names:  # some write names in lower case
                self._see_key(number, "name of a header")
        # Most requests have none: one search for all.
        if not self._search.has(b"\n".join(part for name, value in rest for part in (_bytes(name), value))):
            return
        for name, value in rest:
            for match in self._search.found(_bytes(name)):
                self._see("name of a header", match)
            for match in self._search.found(value):
                self._see(f"header {name.lower()}", match)

    # The body --------------------------------------------------------------------------------------------------------

    def _look_at_body(self, pairs: Pairs) -> None:
        self._type = media_type(", ".join(value for name, value in pairs if name.lower() == "content-type"))
        codings = codings_of(pairs)
        self._packed = bool(codings)
        if len(codings) == 1 and codings[0] in CODINGS:
            self._decoder = Decoder(codings[0], LARGEST_UNPACKED_BODY)
            self._raw = self._unpacked = 0
        elif codings and len(self._listed) < len(self._keys):
            raise CannotCheck("the body is compressed with another method than gzip or deflate")

    @property
    def wants_body(self) -> int:
        """How many bytes of the body must be known as a whole, because a field of it may hold a key; 0: none.

        It is known after `headers`. In a longer body no key is placed: pass it through `feed`.
        """
        return LARGEST_KEYED_BODY if self._type and not self._packed and self._fields() else 0

    def _fields(self) -> dict[str, dict[str, str]]:
        names = {field for entries in self._listed.values() for entry in entries for field in entry.body}
        return {name: self._swap(partial(_names_field, name)) for name in names}

    def whole_body(self, body: bytes, content_type: str) -> Generator[bytes, None, None]:
        """A whole body with the keys in its fields, in parts. Its length may be another one."""
        if not self._search or self._packed or not (fields := self._fields()):
            yield from self.feed(body)
            yield self.finish()
            return
        placed = yield from in_body(body, content_type, fields)
        for _ in KeyStream(self._search, partial(self._see, "body")).steps(placed.rest):
            yield b""
        self._note(placed, lambda entry: bool(entry.body))
        yield placed.value

    def feed(self, piece: bytes) -> Generator[bytes, None, None]:
        """Check the next piece of a body, and give what can be sent of it, in parts."""
        if not self._search:
            yield piece
            return
        if self._decoder is not None:
            yield from self._check_packed(self._decoder, piece)
        yield from self._stream.steps(piece)

    def finish(self) -> bytes:
        """The rest of a body."""
        return self._stream.finish()

    def _check_packed(self, decoder: Decoder, piece: bytes) -> Generator[bytes, None, None]:
        self._raw += len(piece)
        try:
            for part in decoder.feed(piece):
                self._unpacked += len(part)
                if self._unpacked > UNPACKED_FREELY + MOST_UNPACKED_TIMES * self._raw:
                    raise CannotCheck(f"the body unpacks to more than {MOST_UNPACKED_TIMES} times its length")
                yield b""
                for _ in self._inside.steps(part):
                    yield b""
        except BodyTooLarge:
            raise CannotCheck(f"the body unpacks to more than {LARGEST_UNPACKED_BODY} bytes") from None
        except Corrupt:
            raise CannotCheck("the body is not compressed as its headers say") from None

    # What was found --------------------------------------------------------------------------------------------------

    def _see(self, where: str, match: Match) -> None:
        self._see_key(match.key, where)

    def _see_key(self, number: int, where: str) -> None:
        entries = self._listed.get(number)
        if entries is None:
            raise KeySentAway(self._keys[number].entries[0].name, where)
        if len(self._left) < MOST_LEFT:
            self._left[entries[0].name, where] = None

    def _note(self, placed: Placed, holds: Callable[[StandIn], bool]) -> None:
        for number, entries in self._listed.items():
            if self._keys[number].stand_in in placed.stand_ins:
                names = [entry.name for entry in entries if holds(entry)]
                self._placed.update(dict.fromkeys(names))
                self._in_run.update(names)


class KeysInAnswer:
    """One answer on its way back: each key in it becomes its stand-in, in every spelling, and no length changes."""

    __slots__ = ("_search", "_stream")

    def __init__(self, search: KeySearch) -> None:
        self._search = search
        self._stream = KeyStream(search)

    def __repr__(self) -> str:
        return "KeysInAnswer"

    def name(self, name: str) -> str:
        """The name of a header; empty for one that has to go, because it has a key whose capitals were not kept."""
        shown = self.text(name)
        return "" if self._search.has_in_any_case(_bytes(shown)) else shown

    def text(self, value: str) -> str:
        """A status line, or the value of a header."""
        raw = _bytes(value)
        if not self._search.has(raw):
            return value
        return rewritten(self._search, raw).decode("utf-8", "surrogatepass")

    def feed(self, piece: bytes) -> bytes:
        """Take the next piece of the body, and return what can be passed on."""
        return self._stream.feed(piece)

    def steps(self, piece: bytes) -> Iterator[bytes]:
        """As `feed`, in parts, between which other tasks can run."""
        return self._stream.steps(piece)

    def finish(self) -> bytes:
        """The rest of the body."""
        return self._stream.finish()


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def _names_header(name: str, entry: StandIn) -> bool:
    return bool(entry.forms(name))


def _names_field(name: str, entry: StandIn) -> bool:
    return name in entry.body
