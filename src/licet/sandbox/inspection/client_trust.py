"""How programs behind walls come to trust the authority of their run, without being told.

Every name of the system's bundle shows the real roots and the authority, since tunnels still meet real certificates.
Clients that bring roots of their own are led by the variables in `CLIENTS`. A bundle that a variable of the operator
names is extended in the same way, and never replaced by the system's. Clients with roots that no variable replaces see
an error of TLS: Java with a keystore of its own, programs that pin certificates, Rust with built-in roots.

Nothing is written on the host. Of the files that variables name, only certificates are shown.
"""

import os
import re
import ssl
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Literal, NamedTuple

from msgspec import Struct

from licet.own_files import open_regular, read_most
from licet.sandbox.limits import LARGEST_BUNDLE, MOST_TRUSTED_ENTRIES

FOLDER = "/.licet-trust"  # in the private root of a program; no grant has this path

# Where systems keep their bundle: Debian and Alpine, Fedora, SUSE, Alpine and BSD, OpenSSL itself.
BUNDLES = (
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/pki/tls/cert.pem",
    "/etc/ssl/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
    "/etc/ssl/bundle.pem",
    "/usr/lib/ssl/cert.pem",
    "/usr/lib/ssl/certs/ca-certificates.crt",
    "/var/lib/ca-certificates/ca-bundle.pem",
    "/usr/local/share/certs/ca-root-nss.crt",
)
# Where they keep a file for each root, by the hash of its name.
HASHED = (
    "/etc/ssl/certs",
    "/etc/pki/tls/certs",
    "/etc/pki/ca-trust/extracted/pem/directory-hash",
    "/usr/lib/ssl/certs",
    "/etc/openssl/certs",
)

Kind = Literal["whole", "extra", "given", "directories"]


class Client(NamedTuple):
    """One variable: which client needs it, and what the client takes it for.

    A `whole` bundle is in place of the system's or built-in roots, an `extra` one beside them. What is only `given` is
    set by nobody but the operator, and `directories` are a list of hashed ones.
    """

    variable: str
    needed_by: str
    kind: Kind = "whole"
    otherwise: tuple[str, ...] = ()  # the variables that it reads if this one is not set


CLIENTS = (
    Client("SSL_CERT_FILE", "OpenSSL: Python, Ruby, PHP, .NET; Go; httpx, aiohttp, uv, codex, rustls", "whole"),
    Client("SSL_CERT_DIR", "OpenSSL, Go, rustls", "directories"),
    Client("REQUESTS_CA_BUNDLE", "requests, which has roots of its own", "whole", ("CURL_CA_BUNDLE",)),
    Client("CURL_CA_BUNDLE", "curl, also one that was built elsewhere", "whole", ("SSL_CERT_DIR", "SSL_CERT_FILE")),
    Client("GIT_SSL_CAINFO", "git, whose libcurl may be GnuTLS"),
    Client("PIP_CERT", "pip, which has roots of its own", "whole", ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")),
    Client(
        "NODE_EXTRA_CA_CERTS", "Node and Bun, which have roots of their own: fetch, undici, claude, gemini", "extra"
    ),
    Client("npm_config_cafile", "npm and pnpm", "whole", ("NPM_CONFIG_CAFILE",)),
    Client("NPM_CONFIG_CAFILE", "npm and pnpm, which read it in any letters", "given"),
    Client("YARN_HTTPS_CA_FILE_PATH", "Yarn since version 2", "whole"),
    Client("DENO_CERT", "Deno, which has roots of its own", "extra"),
    Client("CARGO_HTTP_CAINFO", "cargo", "whole", ("SSL_CERT_FILE", "SSL_CERT_DIR")),
    Client("AWS_CA_BUNDLE", "aws and boto3, which have roots of their own", "whole", ("REQUESTS_CA_BUNDLE",)),
    Client("CLOUDSDK_CORE_CUSTOM_CA_CERTS_FILE", "gcloud, which has roots of its own"),
    Client("GRPC_DEFAULT_SSL_ROOTS_FILE_PATH", "gRPC in C, C++, Python and Ruby, which has roots of its own"),
    Client("HTTPLIB2_CA_CERTS", "httplib2, which has roots of its own"),
    Client("NIX_SSL_CERT_FILE", "programs of Nix, whose OpenSSL and curl look for no file of the system"),
    Client("CODEX_CA_CERTIFICATE", "codex, before SSL_CERT_FILE", "given"),
    Client("BUNDLE_SSL_CA_CERT", "Bundler of Ruby", "whole", ("SSL_CERT_FILE", "SSL_CERT_DIR")),
    Client("COMPOSER_CAFILE", "Composer of PHP", "whole", ("SSL_CERT_FILE", "SSL_CERT_DIR")),
    Client("HEX_CACERTS_PATH", "mix and hex of Elixir, which have roots of their own"),
    Client("PERL_LWP_SSL_CA_FILE", "LWP of Perl, which may have roots of its own"),
)

_HASHED = re.compile(r"[0-9a-f]{8}\.[0-9]{1,3}")  # as OpenSSL looks certificates up in a directory
_CERTIFICATE = re.compile(
    rb"-----BEGIN (?:X509 |TRUSTED )?CERTIFICATE-----[A-Za-z0-9+/=\s]*-----END (?:X509 |TRUSTED )?CERTIFICATE-----"
)


class Trust(Struct, frozen=True):
    """What makes a program trust an authority: variables, and files with their contents in its private root."""

    variables: Mapping[str, str]
    files: Mapping[str, bytes]  # by real paths
    names: tuple[str, ...]  # other paths of these files
    added: tuple[str, ...]  # those that are new in a directory of the system


def trust_in(
    certificate: bytes,
    subject_hash: str,
    environment: Mapping[str, str],
    directory: str,
    *,
    bundles: Sequence[str] | None = None,
    hashed: Sequence[str] = HASHED,
    built_in: Callable[[], bytes] | None = None,
    folder: str = FOLDER,
) -> Trust:
    """What makes a program with this environment and working directory trust a certificate.

    The variables lead to files in `folder`. `built_in` gives the roots of a machine without a bundle. Raises
    `ValueError` for a bundle that is too large.
    """
    own_file, roots_file, own_directory = f"{folder}/authority.pem", f"{folder}/roots.pem", f"{folder}/hashed"
    places = (*BUNDLES, ssl.get_default_verify_paths().openssl_cafile) if bundles is None else bundles
    there = {name: real for name in places if os.path.isfile(real := os.path.realpath(name))}
    system = {real: _readable(real) for real in dict.fromkeys(there.values())}
    roots = next(filter(None, system.values()), None) or (built_in or _roots_of_fetch)()
    files = {own_file: certificate, roots_file: roots + certificate}
    files |= {real: found + certificate for real, found in system.items()}
    added = {f"{real}/{subject_hash}.0": certificate for real in _directories(hashed)}
    if not there:
        added[BUNDLES[0]] = files[roots_file]
    variables = {}
    for client in CLIENTS:
        given = environment.get(client.variable, "")
        if client.kind == "directories":
            if given:
                files[f"{own_directory}/{subject_hash}.0"] = certificate
                variables[client.variable] = f"{given}:{own_directory}"
        elif given:
            path = os.path.join(directory, given)
            files[own := f"{folder}/{client.variable}.pem"] = _readable(path) + certificate
            variables[client.variable] = own
        elif client.kind != "given" and not any(map(environment.get, client.otherwise)):
            variables[client.variable] = own_file if client.kind == "extra" else roots_file
    return Trust(variables, files | added, tuple(there), tuple(added))


def certificates_in(path: str) -> bytes:
    """The certificates in a file, and nothing else of it. Raises `OSError`, and `ValueError` if it is too large.

    A tool may have led a name to any file, so no other bytes are taken over.
    """
    with open_regular(path) as file:
        text = read_most(file, LARGEST_BUNDLE + 1)
    if len(text) > LARGEST_BUNDLE:
        raise ValueError(f"`{path}` has more than {LARGEST_BUNDLE} bytes of trusted certificates")
    return b"".join(found + b"\n" for found in _CERTIFICATE.findall(text))


def _readable(path: str) -> bytes:
    """The certificates of a bundle or hashed directory; none if it cannot be read: its client trusted none of it."""
    try:
        if not os.path.isdir(path):
            return certificates_in(path)
        names = [name for name in sorted(os.listdir(path)) if _HASHED.fullmatch(name)][:MOST_TRUSTED_ENTRIES]
        found = dict.fromkeys(certificates_in(os.path.join(path, name)) for name in names)
    except OSError:
        return b""
    if sum(map(len, found)) > LARGEST_BUNDLE:
        raise ValueError(f"`{path}` has more than {LARGEST_BUNDLE} bytes of trusted certificates")
    return b"".join(found)


def _directories(names: Iterable[str]) -> Iterator[str]:
    """The real directories of the system that are there and small enough to be made anew."""
    for real in dict.fromkeys(map(os.path.realpath, names)):
        try:
            if len(os.listdir(real)) <= MOST_TRUSTED_ENTRIES:
                yield real
        except OSError:  # missing, or not readable for this user
            continue


def _roots_of_fetch() -> bytes:
    """The roots that `ctx.fetch` trusts, where the system has no bundle."""
    import httpx2

    found = httpx2.create_ssl_context(trust_env=False).get_ca_certs(binary_form=True)
    return "".join(map(ssl.DER_cert_to_PEM_cert, found)).encode()
