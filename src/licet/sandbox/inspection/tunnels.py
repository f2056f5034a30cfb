"""Which tunnels lead to a place that is looked into, although their target is another one?

A rule such as `network:tcp:*:443` opens tunnels to every other name and address, and one of those may be the same
server. So the first bytes of each tunnel are read: if they ask for such a place in TLS, the tunnel ends. A tunnel that
no rule opens by its own address does not lead to an address that such a place was found at.

Limits: a server may take the host from what is inside TLS, and a name that is encrypted (ECH) is not seen.
"""

import asyncio
import ssl
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from ipaddress import IPv6Address, ip_address

from msgspec import Struct

from licet.core.algebra.rules import InvalidUse, Use
from licet.core.algebra.scope import is_address, visible
from licet.core.algebra.set import CapabilitySet
from licet.core.decision.decision import is_written
from licet.core.policy.inspection import is_inspected
from licet.errors import Refused
from licet.guard.grant import Grant
from licet.sandbox.limits import CHUNK, LARGEST_HELLO, MOST_FOUND, REQUEST_SECONDS
from licet.sandbox.streams import Readable

_HANDSHAKE = 0x16  # the first byte of TLS
_OLD_FORM = 0x80  # from this one on, it may be a handshake in the form of SSL 2, which names no host


class Tunnels:
    """The tunnels of a run that looks into some places."""

    def __init__(self, grant: Grant, places: CapabilitySet) -> None:
        self._grant, self._places = grant, places
        self._found: dict[str, None] = {}  # the addresses of places that are looked into, the oldest first

    def found(self, addresses: Iterable[str]) -> None:
        """Remember where a place that is looked into is."""
        for address in addresses:
            self._found.pop(_canonical(address), None)
            self._found[_canonical(address)] = None
        while len(self._found) > MOST_FOUND:
            del self._found[next(iter(self._found))]

    def check(self, use: Use) -> None:
        """Refuse a tunnel to the address of a place that is looked into, unless a rule names the address."""
        if is_address(use.target) and _canonical(use.target) in self._found and not self._is_named(use):
            text = f"{use.target} is an address of a host under `inspect`"
            self._grant.refuse("HOST_NOT_ALLOWED", text, use, f"connect to the host by its name, or add `{use}`")

    def _is_named(self, use: Use) -> bool:
        return is_written(use, self._grant.reach)

    def reader(self, use: Use, address: str, reader: asyncio.StreamReader) -> Readable:
        """What a program sends in a tunnel, which breaks off if it asks for a place that is looked into."""
        must_name = _canonical(address) in self._found and not self._is_named(use)
        return _Checked(reader, lambda opening: self._check_opening(use, opening, must_name=must_name))

    async def _check_opening(self, use: Use, opening: "_Opening", *, must_name: bool) -> None:
        """Record the end of a tunnel, and raise `ConnectionAbortedError`, unless its first bytes may be sent on."""
        if opening.first != _HANDSHAKE and opening.first < _OLD_FORM:
            return
        fix = "connect to the host by its name"
        if opening.first == _HANDSHAKE and not opening.is_read:
            text = f"a tunnel to {use.scope} begins with TLS that cannot be read"
        elif opening.name and self._covers(opening.name, use.port or 0):
            text = f"a tunnel to {use.scope} asks for {visible(opening.name)}, which is under `inspect`"
        elif must_name and not opening.name:
            text = f"a tunnel to {use.scope} asks for no host, at an address of a host under `inspect`"
        else:
            return
        self._grant.limited("HOST_NOT_ALLOWED", text, use, fix)
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
