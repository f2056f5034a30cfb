"""The server's certificate is verified, with its name, before a password or an entry is sent."""

import asyncio
import datetime
import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from backends.postgres.test_database import in_loop, pid
from licet.backends.postgres.database import Database
from licet.backends.postgres.migrations import migrate
from licet.guard.ports import Unavailable
from postgres_server import Server, binaries_once, server_user


def certificate(folder: Path, name: str) -> Path:
    """Write a certificate of its own authority for a name, and its key; returns the certificate."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(hours=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    (folder / "server.pem").write_bytes(made.public_bytes(serialization.Encoding.PEM))
    (folder / "server.key").write_bytes(private)
    os.chmod(folder / "server.key", 0o600)
    return folder / "server.pem"


@pytest.fixture(scope="module")
def listening(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[int, Path]]:
    """The port of a server that speaks TLS as `localhost`, and its certificate."""
    known = binaries_once()
    if not known:
        pytest.skip("there is no PostgreSQL on this machine")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    there = Server(next(iter(known.values())))
    made = certificate(tmp_path_factory.mktemp("tls"), "localhost")
    for name in ("server.pem", "server.key"):
        (there.folder / name).write_bytes((made.parent / name).read_bytes())
        os.chmod(there.folder / name, 0o600)
        if own := server_user():
            os.chown(there.folder / name, own["user"], own["group"])
    (there.data / "pg_hba.conf").write_text("local all all trust\nhostssl all all 127.0.0.1/32 trust\n")
    asyncio.run(_prepare(there))
    there.end()
    there.settings |= {
        "listen_addresses": "127.0.0.1",
        "port": str(port),
        "ssl": "on",
        "ssl_cert_file": str(there.folder / "server.pem"),
        "ssl_key_file": str(there.folder / "server.key"),
    }
    there.start()
    yield port, made
    there.stop()


async def _prepare(there: Server) -> None:
    import asyncpg

    connection = await asyncpg.connect(host=str(there.folder), user="postgres")
    await migrate(connection)
    await connection.close()


@in_loop
async def test_a_server_is_used_under_the_name_of_its_certificate(listening: tuple[int, Path]) -> None:
    port, roots = listening
    database = Database(f"postgresql://postgres@localhost:{port}/postgres?sslrootcert={roots}")
    assert await database.once(pid)
    database.close()


@pytest.mark.parametrize(("host", "roots"), [("localhost", False), ("127.0.0.1", True)])
def test_another_certificate_is_refused_at_once(listening: tuple[int, Path], host: str, roots: bool) -> None:
    port, own = listening
    database = Database(f"postgresql://postgres@{host}:{port}/postgres?" + (f"sslrootcert={own}" if roots else ""))
    with pytest.raises(Unavailable, match="is not trusted"):
        asyncio.run(database.once(pid))
    database.close()
