"""Which certificates programs of one run meet where their HTTPS is looked into: an authority, and its leaves.

An authority exists for one run. Its key is an object in the memory of the host: it is never written to a file, and
nothing behind the walls gets it. It is constrained to the hosts under `inspect`, so that it is worthless for all others
even to a program that trusts it. By RFC 5280 a constraint to a name permits the names below it too; leaves are made for
no host but those under `inspect`.
"""

import os
import ssl
from collections import OrderedDict
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from hashlib import sha1
from ipaddress import ip_address, ip_network

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from licet.core.algebra.rules import Capability, InvalidUse, Use
from licet.core.algebra.scope import is_address
from licet.core.algebra.set import CapabilitySet
from licet.core.policy.inspection import HTTPS_PORT, place_with_port
from licet.sandbox.limits import AUTHORITY_SECONDS, CLOCK_SECONDS, LEAF_RENEWAL_SECONDS, LEAF_SECONDS, MOST_LEAVES

# Constraints are by kind of name: where none of a kind is permitted, all of the kind must be ruled out. No host has a
# name below `invalid` (RFC 6761).
_NO_NAME = x509.DNSName("invalid")
_ALL_ADDRESSES = (ip_network("0.0.0.0/0"), ip_network("::/0"))


class NotInspected(ValueError):
    """A host that the authority makes no certificate for."""


class Authority:
    """The authority of one run, for the hosts of `inspect`. For one event loop; `clock` tells the time in UTC."""

    def __init__(self, inspect: tuple[str, ...], clock: Callable[[], datetime] = lambda: datetime.now(UTC)) -> None:
        keys = [Capability(f"network:tcp:{place_with_port(host)}").key for host in inspect]
        self._hosts = CapabilitySet(f"network:tcp:{_rule_host(key)}" for key in keys)
        self._clock = clock
        self._key = ec.generate_private_key(ec.SECP256R1())
        now = clock()
        self._begins, self._ends = now - timedelta(seconds=CLOCK_SECONDS), now + timedelta(seconds=AUTHORITY_SECONDS)
        # The name is different in each run, since clients find the issuer of a certificate by its name.
        name = f"licet run {os.urandom(8).hex()}"
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        self._certificate = self._own_certificate(_constraints(keys))
        self.certificate: bytes = self._certificate.public_bytes(Encoding.PEM)
        self._leaves: OrderedDict[str, tuple[datetime, ssl.SSLContext]] = OrderedDict()

    def __repr__(self) -> str:
        return "<the authority of a run>"

    def context(self, host: str) -> ssl.SSLContext:
        """The server side of TLS for a host, with a certificate that is made once, and anew before its day is over.

        Raises `NotInspected` for a host that is not under `inspect`.
        """
        try:
            use = Use(f"network:tcp:{_bracketed(host)}:{HTTPS_PORT}")
        except InvalidUse:
            raise NotInspected("expected a host") from None
        if not self._hosts.has(use):
            raise NotInspected("the host is not under `inspect`")
        name, now = use.target, self._clock()
        known = self._leaves.get(name)
        if known is not None and known[0] > now:
            self._leaves.move_to_end(name)
            return known[1]
        context = self._context(name, now)
        self._leaves[name] = min(self._ends, now + timedelta(seconds=LEAF_RENEWAL_SECONDS)), context
        self._leaves.move_to_end(name)
        if len(self._leaves) > MOST_LEAVES:
            self._leaves.popitem(last=False)
        return context

    def _own_certificate(self, constraints: x509.NameConstraints | None) -> x509.Certificate:
        public = self._key.public_key()
        usage = _usage(key_cert_sign=True, crl_sign=True)
        builder = (
            _begun(self._name, self._name, public, self._begins, self._ends)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(usage, critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
        )
        if constraints is not None:
            builder = builder.add_extension(constraints, critical=True)
        return builder.sign(self._key, SHA256())

    def _context(self, host: str, now: datetime) -> ssl.SSLContext:
        key = ec.generate_private_key(ec.SECP256R1())
        leaf = self._leaf(host, key.public_key(), now)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.set_alpn_protocols(["http/1.1"])
        private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        # `load_cert_chain` takes only files, so it gets memory that has no name in any directory.
        memory = os.memfd_create("leaf", os.MFD_CLOEXEC)
        try:
            with open(memory, "wb", closefd=False) as file:
                file.write(private + leaf.public_bytes(Encoding.PEM))
            context.load_cert_chain(f"/proc/self/fd/{memory}")
        finally:
            os.close(memory)
        return context

    def _leaf(self, host: str, public: ec.EllipticCurvePublicKey, now: datetime) -> x509.Certificate:
        begins = max(self._begins, now - timedelta(seconds=CLOCK_SECONDS))
        ends = min(self._ends, now + timedelta(seconds=LEAF_SECONDS))
        issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
        name = x509.IPAddress(ip_address(host.strip("[]"))) if is_address(host) else x509.DNSName(host)
        # The name of the host is in one place only; a subject without names makes that place critical (RFC 5280).
        return (
            _begun(x509.Name([]), self._name, public, begins, ends)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_usage(digital_signature=True), critical=True)
            .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
            .add_extension(x509.SubjectAlternativeName([name]), critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
            .add_extension(issuer, critical=False)
            .sign(self._key, SHA256())
        )

    @property
    def subject_hash(self) -> str:
        """The name of this authority in a directory of certificates, as OpenSSL looks it up.

        It is the SHA-1 of the name's content with all letters small and no double spaces, which this name is already.
        """
        return subject_hash(self._name)


def subject_hash(name: x509.Name) -> str:
    """The hash of a name that is in canonical form: `X509_NAME_hash` of OpenSSL."""
    content = name.public_bytes()[2:]  # without the tag and the length, one byte each: the name is short
    return f"{int.from_bytes(sha1(content, usedforsecurity=False).digest()[:4], 'little'):08x}"


def _rule_host(key: str) -> str:
    """The host of a rule, from its key, which begins with a dot for a subtree."""
    return f"*{key}" if not key or key.startswith(".") else key


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host and not host.startswith("[") else host


def _constraints(keys: Iterable[str]) -> x509.NameConstraints | None:
    """The names that an authority is limited to; None if every host is looked into."""
    keys = tuple(dict.fromkeys(keys))
    if "" in keys:
        return None
    addresses = [ip_network(key.strip("[]")) for key in keys if is_address(key)]
    names = [x509.DNSName(key.lstrip(".")) for key in keys if not is_address(key)]
    versions = {address.version for address in addresses}
    excluded = [x509.IPAddress(one) for one in _ALL_ADDRESSES if one.version not in versions]
    return x509.NameConstraints([*(names or [_NO_NAME]), *map(x509.IPAddress, addresses)], excluded or None)


def _begun(
    subject: x509.Name, issuer: x509.Name, public: ec.EllipticCurvePublicKey, begins: datetime, ends: datetime
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(public)
        .serial_number(x509.random_serial_number())
        .not_valid_before(begins)
        .not_valid_after(ends)
    )


def _usage(*, digital_signature: bool = False, key_cert_sign: bool = False, crl_sign: bool = False) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=digital_signature,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=key_cert_sign,
        crl_sign=crl_sign,
        encipher_only=False,
        decipher_only=False,
    )
