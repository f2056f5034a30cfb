"""Personal keys of those who approve: made, read, used to sign, and verified (Ed25519)."""

import os
import stat
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from licet.core.approval import key_text

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey


class BadKey(Exception):
    """A file that is no key to sign with: what is wrong with it, and how to mend it."""


class SigningKey:
    """A private key, and the name that a manifest knows it by."""

    def __init__(self, key: "Ed25519PrivateKey") -> None:
        self._key = key
        self.name = key_text(key.public_key().public_bytes_raw())

    def __repr__(self) -> str:
        return f"SigningKey({self.name})"

    def sign(self, data: bytes) -> bytes:
        """The signature of some bytes."""
        return self._key.sign(data)


def make_key(path: Path) -> SigningKey:
    """A new key in a new file that only its owner can read; what stands there already is never replaced."""
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    key = Ed25519PrivateKey.generate()
    text = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    try:
        if not path.parent.is_dir():
            path.parent.mkdir(mode=0o700, parents=True)
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except FileExistsError:
        raise BadKey(f"{path} is there already: choose another file; a key that is lost cannot be made again") from None
    except OSError as error:
        raise BadKey(f"{path} cannot be made: {error.strerror}") from None
    try:
        with open(file, "wb") as out:
            out.write(text)
            out.flush()
            os.fsync(out.fileno())
    except BaseException:
        with suppress(OSError):
            path.unlink()
        raise
    return SigningKey(key)


def read_key(path: Path) -> SigningKey:
    """The key in a file that nobody else can read; `BadKey` otherwise."""
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    try:
        with open(os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK), "rb") as file:
            found = os.fstat(file.fileno())
            if not stat.S_ISREG(found.st_mode):
                raise BadKey(f"{path} is not a regular file")
            text = file.read(65_536)
            exposed = found.st_uid != os.geteuid() or found.st_mode & 0o077
            if exposed and b"PRIVATE KEY" in text:  # what is no key at all is told as that
                raise BadKey(f"{path} is open to others: run `chmod 600 {path}` as its owner")
    except OSError as error:
        raise BadKey(f"{path} cannot be read: {error.strerror}") from None
    try:
        key = load_pem_private_key(text, None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        key = None
    if not isinstance(key, Ed25519PrivateKey):
        raise BadKey(f"{path} holds no Ed25519 key: make one with `licet approvals key FILE`")
    return SigningKey(key)


def verifies(key: bytes, signature: bytes, data: bytes) -> bool:
    """Whether a signature of some bytes was made with the private half of a key."""
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    try:
        Ed25519PublicKey.from_public_bytes(key).verify(signature, data)
    except (InvalidSignature, ValueError):
        return False
    return True
