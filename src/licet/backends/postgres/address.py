"""The address of a state in PostgreSQL: `postgresql://USER@HOST/NAME?…`, with licet's own parameters.

An address never holds a password, because other users can read command lines and unit files. `password=secret:NAME`
names a secret of licet, and the driver also reads `~/.pgpass`. The server's TLS certificate is verified; Unix sockets
use no TLS.

`Connection` is what stores use of a connection.
"""

import os
import ssl
from collections.abc import Mapping
from decimal import Decimal, InvalidOperation
from typing import Any, Protocol
from urllib.parse import SplitResult, parse_qsl, unquote, urlencode, urlsplit, urlunsplit

from msgspec import Struct

from licet.core.late_pattern import late_pattern
from licet.core.policy.layer import whole_seconds

SCHEMES = ("postgresql://", "postgres://")
_SECRET = "secret:"  # noqa: S105 - a prefix, and no secret
_SECONDS = late_pattern(r"(\d{1,6})(s|m|h)?")
_UNITS = {"": 1, "s": 1, "m": 60, "h": 3600}
_VERIFIED = ("", "verify-full")
_SOCKETS = ("/run/postgresql", "/var/run/postgresql", "/tmp")  # noqa: S108 - where servers have their sockets
# What the driver may be told; anything else is a mistake, or a setting that this state does not stand on.
_DRIVER = ("host", "port", "user", "dbname", "passfile")


class AddressError(ValueError):
    """An address that is not used. The text says why, and what to write instead; it never repeats a password."""


class Address(Struct, frozen=True):
    """Where a state is, and how its stores behave."""

    dsn: str  # as the driver takes it: without a password and without licet's parameters
    shown: str  # for messages
    password: str = ""  # the reference of a secret
    is_local: bool = False  # only sockets of this machine
    hosts: tuple[str, ...] = ()
    certificates: str = ""  # a file of roots; empty: those of the system
    identity: tuple[str, str] | None = None  # the files of a client certificate and of its key
    max_head_age: int | None = None  # seconds; a ledger whose newest signed head is older takes no entries
    require_synchronous: bool = False  # refuse a server that may lose acknowledged entries at a failover
    lease: Decimal | None = None  # USD that a node takes from a budget at once


_OWN = ("max_head_age", "require_synchronous", "lease")
_PARAMETERS = (*_DRIVER, "password", "sslmode", "sslrootcert", "sslcert", "sslkey", *_OWN)


def read_address(url: str) -> Address:
    """Read an address; `AddressError` says what is wrong with it."""
    try:
        parts = urlsplit(url)
        named = dict(parse_qsl(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query)))
    except ValueError:
        raise AddressError("the address of the state cannot be read: expected postgresql://USER@HOST/NAME") from None
    if not url.startswith(SCHEMES):
        raise AddressError("the address of the state begins with postgresql://")
    if parts.password is not None:
        raise AddressError(
            "the address of the state holds a password, which others may read in lists of processes: write "
            "`?password=secret:NAME`, or put it in the file ~/.pgpass"
        )
    password = named.pop("password", "")
    if password and not password.startswith(_SECRET):
        raise AddressError("`password=` names a secret, such as `?password=secret:db/licet`, and never holds one")
    hosts = _hosts(parts, named)
    is_local = all(host.startswith("/") for host in hosts)
    if (mode := named.pop("sslmode", "")) not in _VERIFIED and not is_local:
        raise AddressError(f"`sslmode={mode}` leaves the server unverified: leave it out, or name `sslrootcert=FILE`")
    own = {name: named.pop(name, None) for name in _OWN}
    certificates, certificate, key = (
        os.path.expanduser(named.pop(name, "")) for name in ("sslrootcert", "sslcert", "sslkey")
    )
    if unknown := [name for name in named if name not in _DRIVER]:
        raise AddressError(f"`{unknown[0]}` is no parameter of an address: expected one of {', '.join(_PARAMETERS)}")
    rest = urlunsplit(parts._replace(query=urlencode(named)))
    return Address(
        dsn=rest,
        shown=urlunsplit(parts._replace(query="", fragment="")),
        password=password.removeprefix(_SECRET),
        is_local=is_local,
        hosts=tuple(hosts) if is_local and not parts.netloc.rpartition("@")[2] and "host" not in named else (),
        certificates=certificates,
        identity=(certificate, key or certificate) if certificate else None,
        max_head_age=_seconds("max_head_age", own["max_head_age"]),
        require_synchronous=_flag("require_synchronous", own["require_synchronous"]),
        lease=_amount("lease", own["lease"]),
    )


def place_of(url: str) -> str:
    """The servers and the name of the database of an address, without its user and its other parameters."""
    parts = urlsplit(url)
    named = dict(parse_qsl(parts.query))
    at = parts.netloc.rpartition("@")[2] or named.get("host", "")
    return "\n".join((at, named.get("port", ""), parts.path.strip("/") or named.get("dbname", "")))


def servers_of(address: Address) -> list[tuple[str, int]]:
    """The host and port of each server that an address names, in the order in which they are tried."""
    parts = urlsplit(address.dsn)
    named = dict(parse_qsl(parts.query))
    ports = [one for one in (named.get("port") or os.environ.get("PGPORT", "")).split(",") if one]
    found: list[tuple[str, int]] = []
    at = parts.netloc.rpartition("@")[2]
    hosts = list(address.hosts) or (at or named.get("host", "") or os.environ.get("PGHOST", "")).split(",")
    for number, text in enumerate(hosts):
        host, _, port = text.rpartition(":") if text[-1:].isdigit() and not text.startswith("/") else (text, "", "")
        port = port or (ports[number] if number < len(ports) else ports[0] if len(ports) == 1 else "5432")
        found.append((unquote(host or text).strip("[]"), int(port) if port.isdecimal() else 0))
    return found


def _hosts(parts: SplitResult, named: Mapping[str, str]) -> list[str]:
    """The hosts that the driver will try, in order."""
    at = parts.netloc.rpartition("@")[2]
    given = at or named.get("host", "") or os.environ.get("PGHOST", "")
    hosts = [unquote(host) for host in given.split(",") if host]
    if not hosts:  # the driver itself would also try a port of this machine, which any user may have taken
        return [next((one for one in _SOCKETS if os.path.isdir(one)), _SOCKETS[0])]
    return [host if host.startswith("/") else host.rpartition(":")[0] or host for host in hosts]


def _seconds(name: str, text: str | None) -> int | None:
    if text is None:
        return None
    if (found := _SECONDS.fullmatch(text)) is None or not int(found[1]):
        raise AddressError(f"`{name}={text}` is no time: expected seconds, or such as `30s` or `5m`")
    return whole_seconds(int(found[1]) * _UNITS[found[2] or ""], name)


def _flag(name: str, text: str | None) -> bool:
    if text not in (None, "true", "false"):
        raise AddressError(f"`{name}={text}`: expected `true` or `false`")
    return text == "true"


def _amount(name: str, text: str | None) -> Decimal | None:
    if text is None:
        return None
    try:
        amount = Decimal(text)
    except InvalidOperation:
        amount = Decimal(0)
    if not amount.is_finite() or amount <= 0:
        raise AddressError(f"`{name}={text}` is no amount: expected US dollars above 0, such as `0.50`")
    return amount


def tls_of(address: Address) -> ssl.SSLContext | bool:
    """What the driver verifies the server with; False on sockets of this machine."""
    if address.is_local:
        return False
    try:
        context = ssl.create_default_context(cafile=address.certificates or None)
    except OSError as error:
        raise AddressError(f"`sslrootcert={address.certificates}` cannot be read: {error.strerror}") from None
    try:
        if address.identity is not None:
            context.load_cert_chain(*address.identity)
    except OSError as error:
        raise AddressError(f"`sslcert={address.identity}` cannot be used: {error.strerror}") from None
    return context


class Connection(Protocol):
    """What stores use of a connection of asyncpg, which has no types of its own."""

    async def execute(self, query: str, *args: Any) -> str: ...
    async def executemany(self, query: str, args: Any) -> None: ...
    async def fetch(self, query: str, *args: Any) -> list[Any]: ...
    async def fetchrow(self, query: str, *args: Any) -> Any: ...
    async def fetchval(self, query: str, *args: Any) -> Any: ...
    def transaction(self, *, isolation: str | None = None) -> Any: ...
