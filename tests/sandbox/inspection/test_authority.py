"""The authority of a run: what its certificates say, whom clients believe because of them, and where its key is not."""

import os
import shutil
import socket
import ssl
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from functools import reduce
from ipaddress import ip_network
from pathlib import Path
from typing import NamedTuple

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import ExtendedKeyUsageOID

from licet.sandbox.inspection.authority import Authority, NotInspected, subject_hash
from licet.sandbox.limits import AUTHORITY_SECONDS, LEAF_RENEWAL_SECONDS, LEAF_SECONDS, MOST_LEAVES

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
HOSTS = ("api.example.test", "*.sub.example.test:8443", "127.0.0.1", "[::1]:9443")


class Time:
    def __init__(self) -> None:
        self.now = datetime.now(UTC)

    def __call__(self) -> datetime:
        return self.now


def own(authority: Authority) -> x509.Certificate:
    return x509.load_pem_x509_certificate(authority.certificate)


def trusting(authority: Authority) -> ssl.SSLContext:
    return ssl.create_default_context(cadata=authority.certificate.decode())


def handshake(server: ssl.SSLContext, client: ssl.SSLContext, host: str) -> ssl.SSLObject:
    """The client's end after both sides have shaken hands in memory."""
    there, back = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = (server.wrap_bio(there, back, server_side=True), client.wrap_bio(back, there, server_hostname=host))
    for _ in range(4):
        for end in reversed(ends):
            with suppress(ssl.SSLWantReadError):
                end.do_handshake()
    assert ends[1].version() is not None
    return ends[1]


def leaf(authority: Authority, host: str) -> x509.Certificate:
    ended = handshake(authority.context(host), trusting(authority), host.strip("[]"))
    der = ended.getpeercert(binary_form=True)
    assert der is not None
    return x509.load_der_x509_certificate(der)


def forged(authority: Authority, host: str) -> ssl.SSLContext:
    """A certificate for a host that is not under `inspect`, as one who has the key could make it."""
    return authority._context(host, datetime.now(UTC))


# What the certificates say --------------------------------------------------------------------------------------------


def test_an_authority_is_of_one_run_and_limited_to_its_hosts() -> None:
    authority = Authority(HOSTS, lambda: NOW)
    certificate = own(authority)
    found = certificate.extensions
    basic = found.get_extension_for_class(x509.BasicConstraints)
    constraints = found.get_extension_for_class(x509.NameConstraints)
    usage = found.get_extension_for_class(x509.KeyUsage)
    assert (basic.critical, basic.value.ca, basic.value.path_length) == (True, True, 0)
    assert constraints.critical
    assert constraints.value.permitted_subtrees == [
        x509.DNSName("api.example.test"),
        x509.DNSName("sub.example.test"),
        x509.IPAddress(ip_network("127.0.0.1")),
        x509.IPAddress(ip_network("::1")),
    ]
    assert (usage.critical, usage.value.key_cert_sign, usage.value.digital_signature) == (True, True, False)
    assert found.get_extension_for_class(x509.SubjectKeyIdentifier).value.digest
    assert certificate.not_valid_before_utc < NOW < certificate.not_valid_after_utc
    assert certificate.not_valid_after_utc - NOW == timedelta(seconds=AUTHORITY_SECONDS)
    other = own(Authority(HOSTS, lambda: NOW))
    assert certificate.subject != other.subject
    assert certificate.serial_number != other.serial_number
    assert certificate.public_key() != other.public_key()


KINDS = {
    "only names": (("a.test",), ["a.test"], ["0.0.0.0/0", "::/0"]),
    "only old addresses": (("10.0.0.1",), ["invalid", "10.0.0.1/32"], ["::/0"]),
    "only new addresses": (("[fd00::1]",), ["invalid", "fd00::1/128"], ["0.0.0.0/0"]),
    "a name in other letters": (("BÜCHER.test",), ["xn--bcher-kva.test"], ["0.0.0.0/0", "::/0"]),
    "one name at two ports": (("a.test", "a.test:8443"), ["a.test"], ["0.0.0.0/0", "::/0"]),
}


@pytest.mark.parametrize(("inspect", "permitted", "excluded"), KINDS.values(), ids=KINDS.keys())
def test_every_kind_of_name_is_constrained(inspect: tuple[str, ...], permitted: list[str], excluded: list[str]) -> None:
    value = own(Authority(inspect)).extensions.get_extension_for_class(x509.NameConstraints).value
    assert [str(one.value) for one in value.permitted_subtrees or ()] == permitted
    assert [str(one.value) for one in value.excluded_subtrees or ()] == excluded


def test_an_authority_for_all_hosts_has_no_constraint() -> None:
    authority = Authority(("*",))
    with pytest.raises(x509.ExtensionNotFound):
        own(authority).extensions.get_extension_for_class(x509.NameConstraints)
    assert leaf(authority, "any.example.test")


def test_a_leaf_has_its_host_and_a_day() -> None:
    authority = Authority(HOSTS)
    for host in ("api.example.test", "a.b.sub.example.test", "127.0.0.1", "[::1]"):
        certificate = leaf(authority, host)
        found = certificate.extensions
        (name,) = found.get_extension_for_class(x509.SubjectAlternativeName).value
        assert str(name.value) == host.strip("[]")
        assert not list(certificate.subject)
        assert not found.get_extension_for_class(x509.BasicConstraints).value.ca
        assert list(found.get_extension_for_class(x509.ExtendedKeyUsage).value) == [ExtendedKeyUsageOID.SERVER_AUTH]
        key = own(authority).extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value.digest
        assert found.get_extension_for_class(x509.AuthorityKeyIdentifier).value.key_identifier == key
        left = certificate.not_valid_after_utc - datetime.now(UTC)
        assert timedelta(0) < left <= timedelta(seconds=LEAF_SECONDS)


def test_the_oldest_leaf_is_still_valid_when_it_is_made_anew() -> None:
    time = Time()
    authority = Authority(HOSTS, time)
    first = authority.context("api.example.test")
    time.now += timedelta(seconds=LEAF_RENEWAL_SECONDS - 1)
    assert authority.context("API.example.test") is first
    time.now += timedelta(seconds=1)
    assert authority.context("api.example.test") is not first
    assert LEAF_RENEWAL_SECONDS < LEAF_SECONDS


def test_no_leaf_outlives_its_authority() -> None:
    time = Time()
    authority = Authority(HOSTS, time)
    time.now += timedelta(seconds=AUTHORITY_SECONDS - 60)
    context = authority.context("api.example.test")
    client = trusting(authority)
    client.verify_mode, client.check_hostname = ssl.CERT_REQUIRED, True
    with pytest.raises(ssl.SSLCertVerificationError, match="not yet valid"):
        handshake(context, client, "api.example.test")


def test_the_number_of_leaves_is_bounded() -> None:
    authority = Authority(("*.example.test",))
    kept = authority.context("kept.example.test")
    for number in range(MOST_LEAVES - 1):
        authority.context(f"{number}.example.test")
    assert authority.context("kept.example.test") is kept
    authority.context("one-more.example.test")  # in place of the one that was asked for least recently
    assert authority.context("kept.example.test") is kept
    assert len(authority._leaves) == MOST_LEAVES


@pytest.mark.parametrize(
    "host", ["other.test", "example.test", "x.api.example.test", "sub.example.test", "127.0.0.2", "::2", "a b", "", "*"]
)
def test_no_certificate_is_made_for_a_host_that_is_not_inspected(host: str) -> None:
    with pytest.raises(NotInspected):
        Authority(HOSTS).context(host)


def test_connections_are_of_http_1_and_of_no_old_tls() -> None:
    authority = Authority(HOSTS)
    client = trusting(authority)
    client.set_alpn_protocols(["h2", "http/1.1"])
    context = authority.context("api.example.test")
    assert handshake(context, client, "api.example.test").selected_alpn_protocol() == "http/1.1"
    assert context.minimum_version == ssl.TLSVersion.TLSv1_2


# Whom clients believe -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("host", ["other.test", "sub.example.test.evil.test", "127.0.0.2", "[::2]"])
def test_a_certificate_for_another_host_is_believed_by_nobody(host: str) -> None:
    authority = Authority(HOSTS)
    unlimited = Authority(("*",))
    assert handshake(forged(unlimited, host), trusting(unlimited), host.strip("[]"))  # without the constraint it is
    with pytest.raises(ssl.SSLCertVerificationError, match="permitted subtree violation"):
        handshake(forged(authority, host), trusting(authority), host.strip("[]"))


def test_an_authority_of_names_is_believed_for_no_address() -> None:
    authority = Authority(("api.example.test",))
    with pytest.raises(ssl.SSLCertVerificationError, match="subtree violation"):
        handshake(forged(authority, "127.0.0.1"), trusting(authority), "127.0.0.1")


class Met(NamedTuple):
    """A server on loopback: its port, and what it was sent by clients that believe its certificate."""

    port: int
    seen: list[bytes]


@contextmanager
def serving(context: ssl.SSLContext) -> Iterator[Met]:
    """A server that answers every request with `met`."""
    listener = socket.create_server(("127.0.0.1", 0))
    met = Met(listener.getsockname()[1], [])

    def serve() -> None:
        while True:
            try:
                plain, _ = listener.accept()
            except OSError:
                return
            with suppress(OSError), plain, context.wrap_socket(plain, server_side=True) as made:
                if said := made.recv(65536):
                    met.seen.append(said)
                made.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\nConnection: close\r\n\r\nmet")

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield met
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join()


NODE = (
    "const s=require('tls').connect({port:+process.argv[1],host:'127.0.0.1',servername:process.argv[2],"
    "ca:require('fs').readFileSync(process.argv[3])},()=>{s.end('GET / HTTP/1.0\\r\\n\\r\\n')});"
    "s.resume();s.on('error',e=>process.exit(1))"
)
# How each client trusts the authority in a file, and sends a request.
CLIENTS = {
    "openssl": ["openssl", "s_client", "-connect", "127.0.0.1:{port}", "-servername", "{host}", "-verify_hostname",
                "{host}", "-CAfile", "{file}", "-verify_return_error", "-quiet", "-no_ign_eof"],
    "curl": ["curl", "-sS", "--cacert", "{file}", "--resolve", "{host}:{port}:127.0.0.1", "https://{host}:{port}/"],
    "node": ["node", "-e", NODE, "{port}", "{host}", "{file}"],
    "git, which has GnuTLS on Debian": ["git", "-c", "http.sslCAInfo={file}", "-c", "http.proxy=",
                                        "-c", "http.curloptResolve={host}:{port}:127.0.0.1",
                                        "ls-remote", "https://{host}:{port}/"],
    "wget, which has GnuTLS on Debian": ["wget", "-q", "-O-", "--no-proxy", "--ca-certificate={file}",
                                         "https://{host}:{port}/"],
}  # fmt: skip


def is_met(client: str, authority: Authority, context: ssl.SSLContext, host: str, where: Path) -> bool:
    """Whether a client that trusts an authority sends a request to a server with some certificate."""
    file = where / "authority.pem"
    file.write_bytes(authority.certificate)
    with serving(context) as met:
        given = {"{port}": str(met.port), "{host}": host, "{file}": str(file)}
        command = [reduce(lambda text, one: text.replace(*one), given.items(), word) for word in CLIENTS[client]]
        subprocess.run(
            command, input="GET / HTTP/1.0\r\n\r\n", capture_output=True, text=True, timeout=60, check=False,
            env={"PATH": os.environ["PATH"], "HOME": str(where), "LC_ALL": "C"},
        )  # fmt: skip
    return bool(met.seen)


@pytest.mark.parametrize("client", CLIENTS)
def test_clients_believe_an_authority_for_its_hosts_alone(client: str, tmp_path: Path) -> None:
    if shutil.which(CLIENTS[client][0]) is None:
        pytest.skip("there is no such client here")
    authority, unlimited = Authority(("localhost",)), Authority(("*",))
    assert is_met(client, authority, authority.context("localhost"), "localhost", tmp_path)
    # The same key with another constraint; both servers are at the same name, the only one that leads to loopback.
    other = Authority(("other.test",))
    assert is_met(client, unlimited, forged(unlimited, "localhost"), "localhost", tmp_path)
    assert not is_met(client, other, forged(other, "localhost"), "localhost", tmp_path)


# Where its key is not -------------------------------------------------------------------------------------------------


@pytest.mark.skipif(shutil.which("openssl") is None, reason="there is no openssl here")
def test_its_name_in_a_directory_is_the_one_that_openssl_looks_for(tmp_path: Path) -> None:
    authority = Authority(HOSTS)
    (tmp_path / "a.pem").write_bytes(authority.certificate)
    command = ["openssl", "x509", "-hash", "-noout", "-in", str(tmp_path / "a.pem")]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    assert authority.subject_hash == said == subject_hash(own(authority).subject)
    (tmp_path / f"{said}.0").write_bytes(authority.certificate)
    leaf_file = tmp_path / "leaf.pem"
    leaf_file.write_bytes(leaf(authority, "api.example.test").public_bytes(Encoding.PEM))
    command = ["openssl", "verify", "-x509_strict", "-purpose", "sslserver", "-CApath", str(tmp_path), "-no-CAfile"]
    command += ["-verify_hostname", "api.example.test", str(leaf_file)]
    assert subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip().endswith(": OK")


def test_no_key_is_shown_or_left_open() -> None:
    before = set(os.listdir("/proc/self/fd"))
    authority = Authority(HOSTS)
    authority.context("api.example.test")
    assert set(os.listdir("/proc/self/fd")) == before
    assert b"PRIVATE" not in authority.certificate
    assert repr(authority) == "<the authority of a run>"
