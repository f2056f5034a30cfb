"""Web servers on loopback addresses, each in a thread of its own, that answer what a test says.

A site is the same function that a network in memory takes, so one test can ask both.
"""

import asyncio
import datetime
import inspect
import ipaddress
import ssl
import threading
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import h2.config
import h2.connection
import h2.events
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from licet.backends.memory import Answer, Site
from licet.guard.ports import Exchange

Talk = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


class Connections:
    """The connections of a server, which `talk` answers. All are closed at the end, also one that never talked."""

    def __init__(self, talk: Talk, limit: int = 1 << 16) -> None:
        self._talk, self._limit = talk, limit
        self._made: list[Any] = []

    def protocol(self) -> asyncio.StreamReaderProtocol:
        """The protocol of a new connection."""
        loop, made = asyncio.get_running_loop(), self._made

        class Recorded(asyncio.StreamReaderProtocol):
            def connection_made(self, transport: Any) -> None:
                made.append(transport)
                super().connection_made(transport)

        return Recorded(asyncio.StreamReader(self._limit, loop=loop), self._talk, loop=loop)

    async def refuse_more(self, listener: asyncio.Server) -> None:
        """Close a server. A connection that it just accepted is made first: on a closed server that fails, and the
        socket stays open."""
        for listening in listener.sockets:
            asyncio.get_running_loop().remove_reader(listening.fileno())
        for _ in range(20):
            await asyncio.sleep(0)
        listener.close()

    async def close(self) -> None:
        """Close every connection. The server itself is closed already."""
        for transport in self._made:
            transport.abort()
        # A connection whose TLS handshake is not over has made nothing yet: only its loop knows it.
        for transport in tuple(asyncio.get_running_loop()._transports.values()):  # type: ignore[attr-defined]
            transport.abort()
        await asyncio.sleep(0.01)  # for transports to close


class Server:
    """A server that is running: where it is, and what it was asked."""

    def __init__(self, host: str, port: int) -> None:
        self.host = host
        self.port = port
        self.seen: list[Exchange] = []
        self.connections = 0

    @property
    def url(self) -> str:
        """Its root, without TLS."""
        return f"http://{self.host}:{self.port}/"


@contextmanager
def serving(
    site: Site, host: str = "127.0.0.1", *, port: int = 0, names: tuple[str, ...] = (), http2: bool = False
) -> Iterator[Server]:
    """A server for a site; with names it speaks TLS, with a certificate for them."""

    def talk(server: Server) -> Talk:
        async def talks(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            secured = writer.get_extra_info("ssl_object")
            speak = _http2 if secured and secured.selected_alpn_protocol() == "h2" else _http1
            await speak(server, site, reader, writer)

        return talks

    with _listening(talk, host, port, secured_context(names, http2) if names else None) as server:
        yield server


@contextmanager
def talking(talk: Talk, host: str = "127.0.0.1", *, names: tuple[str, ...] = ()) -> Iterator[Server]:
    """A server that does not care for HTTP; with names it speaks TLS."""
    with _listening(lambda _: talk, host, 0, secured_context(names) if names else None) as server:
        yield server


@contextmanager
def _listening(
    talk: Callable[[Server], Talk], host: str, port: int, context: ssl.SSLContext | None
) -> Iterator[Server]:
    loop = asyncio.new_event_loop()
    server = Server(host, 0)
    tasks: set[asyncio.Task[None]] = set()

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        server.connections += 1
        task = asyncio.current_task()
        assert task
        tasks.add(task)
        try:
            await talk(server)(reader, writer)
        except (OSError, EOFError, asyncio.CancelledError):
            pass
        finally:
            tasks.discard(task)
            writer.transport.abort()

    connections = Connections(accept)

    async def start() -> asyncio.Server:
        return await loop.create_server(connections.protocol, host, port, ssl=context)

    async def stop() -> None:
        await connections.refuse_more(listener)
        for _ in range(100):  # a connection that was just accepted has a task that has not started yet
            if not asyncio.all_tasks() - tasks - {asyncio.current_task()}:
                break
            await asyncio.sleep(0)
        for task in tuple(tasks):
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await connections.close()
        await loop.shutdown_asyncgens()

    listener = loop.run_until_complete(start())
    server.port = listener.sockets[0].getsockname()[1]
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        _wait(stop(), loop)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(5)
        loop.close()


def _wait(coroutine: Coroutine[Any, Any, None], loop: asyncio.AbstractEventLoop) -> None:
    asyncio.run_coroutine_threadsafe(coroutine, loop).result(5)


async def _asked(server: Server, site: Site, exchange: Exchange) -> Answer:
    server.seen.append(exchange)
    found = site(exchange)
    return await found if inspect.isawaitable(found) else found


def _exchange(
    server: Server, secured: bool, lines: list[tuple[str, str]], first: tuple[str, str], body: bytes
) -> Exchange:
    method, target = first
    authority = dict(lines).get("host", "")
    host = authority.rpartition(":")[0] if authority.rpartition(":")[2].isdecimal() else authority
    url = f"{'https' if secured else 'http'}://{authority}{target}"
    rest = tuple(line for line in lines if line[0] != "host")
    return Exchange(method, url, host, server.port, server.host, rest, body, 0)


async def _http1(server: Server, site: Site, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    secured = writer.get_extra_info("ssl_object") is not None
    while head := await reader.readuntil(b"\r\n\r\n"):
        first, *rest = head.decode("latin-1").split("\r\n")[:-2]
        method, target, _ = first.split(" ")
        lines = [(name.lower(), value.strip()) for name, _, value in (line.partition(":") for line in rest)]
        chunked = dict(lines).get("transfer-encoding") == "chunked"
        body = await (_chunks(reader) if chunked else reader.readexactly(int(dict(lines).get("content-length", "0"))))
        answer = await _asked(server, site, _exchange(server, secured, lines, (method, target), body))
        bare = method == "HEAD" or answer.status in (204, 304)
        whole = isinstance(answer.body, bytes)
        length = (
            f"content-length: {len(answer.body)}" if isinstance(answer.body, bytes) else "transfer-encoding: chunked"
        )
        shown = [f"HTTP/1.1 {answer.status} ok", *(f"{name}: {value}" for name, value in answer.headers), length]
        writer.write("\r\n".join([*shown, "", ""]).encode("latin-1"))
        if isinstance(answer.body, bytes):
            writer.write(b"" if bare else answer.body)
        else:
            try:
                for piece in answer.body:
                    writer.write(b"%x\r\n%b\r\n" % (len(piece), piece))
                    await writer.drain()
            except ValueError:
                return  # the site breaks off
            writer.write(b"0\r\n\r\n")
        assert whole or not bare
        await writer.drain()


async def _chunks(reader: asyncio.StreamReader) -> bytes:
    body = b""
    while size := int(await reader.readuntil(b"\r\n"), 16):
        body += await reader.readexactly(size)
        assert await reader.readexactly(2) == b"\r\n"
    assert await reader.readuntil(b"\r\n") == b"\r\n"
    return body


async def _http2(server: Server, site: Site, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    state = h2.connection.H2Connection(h2.config.H2Configuration(client_side=False, header_encoding="utf-8"))
    state.initiate_connection()
    writer.write(state.data_to_send())
    asked: dict[int, tuple[list[tuple[str, str]], bytearray]] = {}
    while data := await reader.read(65536):
        for event in state.receive_data(data):
            match event:
                case h2.events.RequestReceived(stream_id=int(stream), headers=headers):
                    asked[stream] = ([(str(name), str(value)) for name, value in headers or ()], bytearray())
                case h2.events.DataReceived(stream_id=int(stream), data=bytes(piece)):
                    asked[stream][1].extend(piece)
                    state.acknowledge_received_data(event.flow_controlled_length or 0, stream)
                case h2.events.StreamEnded(stream_id=int(stream)):
                    await _answer2(server, site, state, stream, *asked.pop(stream))
        writer.write(state.data_to_send())
        await writer.drain()


async def _answer2(
    server: Server,
    site: Site,
    state: h2.connection.H2Connection,
    stream: int,
    headers: list[tuple[str, str]],
    body: bytearray,
) -> None:
    given = dict(headers)
    lines = [("host", given[":authority"]), *(line for line in headers if line[0][0] != ":")]
    answer = await _asked(server, site, _exchange(server, True, lines, (given[":method"], given[":path"]), bytes(body)))
    sent = [(":status", str(answer.status)), *((name.lower(), value) for name, value in answer.headers)]
    state.send_headers(stream, sent)
    try:
        for piece in (answer.body,) if isinstance(answer.body, bytes) else answer.body:
            for start in range(0, len(piece), 16384):
                state.send_data(stream, piece[start : start + 16384])
        state.end_stream(stream)
    except ValueError:
        state.reset_stream(stream)  # the site breaks off


# Certificates ---------------------------------------------------------------------------------------------------------


@cache
def _authority() -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey]:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "an authority for tests")])
    # Python 3.13 asks an authority for what the standard asks it for.
    signs = x509.KeyUsage(
        digital_signature=False, content_commitment=False, key_encipherment=False, data_encipherment=False,
        key_agreement=False, key_cert_sign=True, crl_sign=True, encipher_only=False, decipher_only=False,
    )  # fmt: skip
    extensions: list[tuple[x509.ExtensionType, bool]] = [
        (x509.BasicConstraints(ca=True, path_length=0), True),
        (signs, True),
    ]
    return _certificate(name, name, key, key, extensions), key


def authority_file(place: Path) -> str:
    """A file with the certificate of the authority that vouches for the servers here."""
    path = place / "authority.pem"
    path.write_bytes(_authority()[0].public_bytes(serialization.Encoding.PEM))
    return str(path)


def _certificate(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePrivateKey,
    signer: ec.EllipticCurvePrivateKey,
    extensions: list[tuple[x509.ExtensionType, bool]],
) -> x509.Certificate:
    now = datetime.datetime.now(datetime.UTC)
    made = x509.CertificateBuilder().subject_name(subject).issuer_name(issuer).public_key(key.public_key())
    made = made.serial_number(x509.random_serial_number())
    made = made.not_valid_before(now - datetime.timedelta(days=1)).not_valid_after(now + datetime.timedelta(days=1))
    identifier = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
    signed_by = x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key())
    for extension, critical in [*extensions, (identifier, False), (signed_by, False)]:
        made = made.add_extension(extension, critical)
    return made.sign(signer, hashes.SHA256())


def secured_context(names: tuple[str, ...], http2: bool = False) -> ssl.SSLContext:
    """What a server with these names shows to whoever connects by TLS."""
    authority, signer = _authority()
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "a server for tests")])
    known = x509.SubjectAlternativeName([_general_name(name) for name in names])
    certificate = _certificate(subject, authority.subject, key, signer, [(known, False)])
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.set_alpn_protocols(["h2", "http/1.1"] if http2 else ["http/1.1"])
    with TemporaryDirectory() as place:
        path = Path(place) / "server.pem"
        path.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            )
            + certificate.public_bytes(serialization.Encoding.PEM)
        )
        context.load_cert_chain(path)
    return context


def _general_name(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)
