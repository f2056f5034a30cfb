"""Which tunnels lead to a place that is looked into, although their target is another one?

A rule such as `network:tcp:*:443` opens tunnels to every other name and address, and one of those may be the same
server. So the first bytes of each tunnel are read: if they ask for such a place in TLS, the tunnel ends. A tunnel that
no rule opens by its own address does not lead to an address of such a place: before the first such tunnel, the places
that are named are looked up. While one of them cannot be, tunnels to addresses are refused, and TLS in tunnels to names
must say which host it asks for.

Limits: the addresses of a place that a wildcard covers are known once a request went there. A server may take the host
from what is inside TLS, and a name that is encrypted (ECH) is not seen.
"""

import asyncio
import ssl
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from ipaddress import IPv6Address, ip_address

from msgspec import Struct

from licet.core.algebra.rules import InvalidUse, Use
from licet.core.algebra.scope import is_address, visible
from licet.core.decision.decision import is_written
from licet.core.policy.inspection import Inspection, is_inspected
from licet.errors import Refused
from licet.guard.grant import Grant
from licet.guard.handles.fetch import addresses_of
from licet.guard.ports import Http, Unresolved
from licet.sandbox.limits import (
    ADDRESS_SECONDS,
    CHUNK,
    LARGEST_HELLO,
    LOOK_UP_SECONDS,
    MOST_FOUND,
    REQUEST_SECONDS,
)
from licet.sandbox.streams import Readable

_HANDSHAKE = 0x16  # the first byte of TLS
_OLD_FORM = 0x80  # from this one on, it may be a handshake in the form of SSL 2, which names no host


class Tunnels:
    """The tunnels of a run that looks into some places."""

    def __init__(self, grant: Grant, http: Http, inspection: Inspection) -> None:
        self._grant, self._http, self._places = grant, http, inspection.places
        self._found: dict[tuple[str, int], None] = {}  # where places that are looked into are, the oldest first
        self._until = dict.fromkeys(inspection.named, 0.0)  # when each of them is looked up again
        self._unknown = dict.fromkeys(inspection.named)  # those whose addresses nobody has told yet
        self._looking = asyncio.Lock()

    def found(self, addresses: Iterable[str], port: int) -> None:
        """Remember where a place that is looked into is."""
        for address in addresses:
            there = _canonical(address), port
            self._found.pop(there, None)
            self._found[there] = None
        while len(self._found) > MOST_FOUND:
            del self._found[next(iter(self._found))]

    async def check(self, use: Use) -> None:
        """Refuse a tunnel to what is or may be the address of a place that is looked into, unless a rule names it."""
        if self._is_named(use):
            return
        is_held = self._grant.capabilities.has(use)  # for any other, nothing is looked up
        if is_held:
            await self._look_up(use.port or 0)
        if not is_address(use.target):
            return
        fix = "connect to the host by its name"  # a rule for the address would open a tunnel past `inspect`
        if self._is_found(use.target, use):
            text = f"{use.target} is an address of a host under `inspect`"
            self._grant.refuse("HOST_NOT_ALLOWED", text, None, fix)
        if is_held and (place := self._unknown_at(use)):
            text = f"{use.target} may be an address of {place.target}, which is under `inspect` and cannot be looked up"
            self._grant.refuse("RESOLVE_FAILED", text, None, f"try again, or {fix}")

    def _is_named(self, use: Use) -> bool:
        return is_written(use, self._grant.reach)

    def _is_found(self, address: str, use: Use) -> bool:
        return (_canonical(address), use.port or 0) in self._found

    def _unknown_at(self, use: Use) -> Use | None:
        return next((place for place in self._unknown if place.port == use.port), None)

    async def _look_up(self, port: int) -> None:
        """Learn the addresses of the named places at a port: at first, and again after a while, since they change."""
        async with self._looking:
            now = asyncio.get_running_loop().time()
            late = [place for place, until in self._until.items() if place.port == port and until <= now]
            await asyncio.gather(*map(self._learn, late))

    async def _learn(self, place: Use) -> None:
        seconds = LOOK_UP_SECONDS
        with suppress(Unresolved, TimeoutError):
            async with asyncio.timeout(LOOK_UP_SECONDS):
                addresses = await addresses_of(self._grant, self._http, place)
            self.found(addresses, place.port or 0)
            self._unknown.pop(place, None)
            seconds = ADDRESS_SECONDS
        self._until[place] = asyncio.get_running_loop().time() + seconds

    def reader(self, use: Use, address: str, reader: asyncio.StreamReader) -> Readable:
        """What a program sends in a tunnel, which breaks off if it asks for a place that is looked into."""
        where = ""  # a tunnel there must name its host
        if not self._is_named(use):
            if self._is_found(address, use):
                where = "at an address of a host under `inspect`"
            elif place := self._unknown_at(use):
                where = f"while {place.target}, which is under `inspect`, cannot be looked up"
        return _Checked(reader, lambda opening: self._check_opening(use, opening, where))

    async def _check_opening(self, use: Use, opening: "_Opening", where: str) -> None:
        """Record the end of a tunnel, and raise `ConnectionAbortedError`, unless its first bytes may be sent on."""
        if opening.first != _HANDSHAKE and opening.first < _OLD_FORM:
            return
        fix = "connect to the host by its name"
        if opening.first == _HANDSHAKE and not opening.is_read:
            text = f"a tunnel to {use.scope} begins with TLS that cannot be read"
        elif opening.name and self._covers(opening.name, use.port or 0):
            text = f"a tunnel to {use.scope} asks for {visible(opening.name)}, which is under `inspect`"
        elif where and not opening.name:
            text = f"a tunnel to {use.scope} asks for no host, {where}"
        else:
            return
        self._grant.limited("HOST_NOT_ALLOWED", text, None, fix)
        with suppress(Refused):  # that the ledger is full: the tunnel ends either way
            await self._grant.settle()
        raise ConnectionAbortedError

    def _covers(self, name: str, port: int) -> bool:
        try:
            return is_inspected(self._places, name.rstrip("."), port)
        except InvalidUse:
            return False  # no rule can name it


class _Opening(Struct, frozen=True):
    """What the first bytes of a tunnel say."""

    first: int  # byte
    name: str | None = None  # of the host, in a handshake
    is_read: bool = False  # the handshake, up to where it would name a host


class _Checked:
    """Reads a connection, whose first bytes are checked before they are handed over."""

    def __init__(self, reader: asyncio.StreamReader, check: Callable[[_Opening], Awaitable[None]]) -> None:
        self._reader, self._check, self._is_checked = reader, check, False

    async def read(self, size: int) -> bytes:
        """Some bytes, or none at the end. Raises `ConnectionAbortedError` if they are not sent on."""
        data = await self._reader.read(size)
        if self._is_checked or not data:
            return data
        self._is_checked = True
        hello = _Hello()
        arrived = bytearray(data)
        if data[0] == _HANDSHAKE:
            with suppress(TimeoutError):
                async with asyncio.timeout(REQUEST_SECONDS):
                    while not hello.take(data) and len(arrived) < LARGEST_HELLO:
                        if not (data := await self._reader.read(CHUNK)):
                            break
                        arrived += data
        await self._check(_Opening(arrived[0], hello.name, hello.is_read))
        return bytes(arrived)


class _Hello:
    """The first message of TLS: the library of the server side reads it."""

    def __init__(self) -> None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.MINIMUM_SUPPORTED
        context.sni_callback = self._named
        self._incoming = ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, ssl.MemoryBIO(), server_side=True)
        self.name: str | None = None
        self.is_read = False

    def take(self, data: bytes) -> bool:
        """Take the next bytes; returns whether no more are needed."""
        self._incoming.write(data)
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            return False
        except ssl.SSLError:  # there is no certificate to go on with
            return True
        return True

    def _named(self, _: object, name: str | None, __: object) -> int:
        self.name, self.is_read = name, True
        return ssl.ALERT_DESCRIPTION_UNRECOGNIZED_NAME


def _canonical(address: str) -> str:
    try:
        found = ip_address(address.strip("[]").partition("%")[0])
    except ValueError:
        return address
    mapped = found.ipv4_mapped if isinstance(found, IPv6Address) else None
    return str(mapped or found)
