"""Names of keys for which no stand-in can be placed, each with the reason: they never travel as they are.

A stand-in is replaced in a request that passes by. A key that signs is never in a request, and a value that a client
parses has to be real. A name is a guess: what a value is, is only known when it is read.
"""

from msgspec import Struct

from licet.core.late_pattern import late_pattern


class UnplaceableKind(Struct, frozen=True):
    """A kind of key that cannot be placed: the words of its names, one after the other, and why it cannot."""

    names: tuple[str, ...]
    reason: str


_SIGNS = "it signs requests and is never in one, so nothing can be replaced there"
_PARSED = "the client parses it before it sends anything, and a random value does not parse"

UNPLACEABLE = (
    UnplaceableKind(
        ("AWS_SECRET_ACCESS_KEY", "AWS_ACCESS_KEY_ID", "AWS_SESSION_TOKEN", "AWS_CREDENTIALS", "SECRET_ACCESS_KEY"),
        f"a key of AWS: {_SIGNS}",
    ),
    UnplaceableKind(
        ("HMAC", "SIGNING_KEY", "SIGNING_SECRET", "WEBHOOK_SECRET", "S3_SECRET", "S3_SECRET_KEY", "SECRET_KEY_BASE"),
        _SIGNS,
    ),
    UnplaceableKind(
        ("SSH_KEY", "SSH_PRIVATE_KEY", "ID_RSA", "ID_DSA", "ID_ECDSA", "ID_ED25519", "DEPLOY_KEY"),
        f"a key of SSH: {_SIGNS}",
    ),
    UnplaceableKind(
        ("CLIENT_CERT", "CLIENT_CERTIFICATE", "CLIENT_KEY", "TLS_CERT", "TLS_KEY", "SSL_CERT", "SSL_KEY"),
        "a client certificate is shown in the handshake, which the proxy makes anew",
    ),
    UnplaceableKind(
        ("GOOGLE_APPLICATION_CREDENTIALS", "GOOGLE_CREDENTIALS", "SERVICE_ACCOUNT", "CREDENTIALS_JSON", "KUBECONFIG"),
        f"a document with a key in it: {_PARSED}",
    ),
    UnplaceableKind(("PRIVATE_KEY", "PEM", "P12", "PFX", "KEYSTORE", "JWT"), _PARSED),
    UnplaceableKind(
        ("DATABASE_URL", "DATABASE_PASSWORD", "POSTGRES_PASSWORD", "PGPASSWORD", "MYSQL_PWD", "MYSQL_PASSWORD")
        + ("REDIS_URL", "REDIS_PASSWORD", "MONGODB_URI", "MONGO_URL", "AMQP_URL"),
        "it is sent in the protocol of a database, and keys are placed in HTTPS alone",
    ),
)
_NO_WORD = late_pattern(r"[^A-Z0-9]+")


def unplaceable(name: str) -> str:
    """Why a variable, a reference or a file of this name holds no key that can be placed; empty if nothing is known.

    >>> unplaceable("prod/aws-secret-access-key").partition(":")[0], unplaceable("~/.ssh/id_rsa").partition(":")[0]
    ('a key of AWS', 'a key of SSH')
    >>> unplaceable("GITHUB_TOKEN")
    ''
    """
    words = f"_{_NO_WORD.sub('_', name.upper())}_"
    return next((kind.reason for kind in UNPLACEABLE if any(f"_{text}_" in words for text in kind.names)), "")
