"""The key that signs a ledger: an Ed25519 key in a file that only its owner can read, made on first use.

To back it up, copy `ledger.key` to a place that only you can read; a ledger whose key is lost can still be verified
with `ledger.pub`, and not be continued. Keys and signatures are spelled `ed25519:` and base64url without padding.
"""

import base64
import binascii
import os
import secrets
import stat
from contextlib import suppress
from typing import Any

from licet.guard.ports import LedgerUnavailable

SCHEME = "ed25519:"


class SigningKey:
    """A private key, and the text of its public half."""

    def __init__(self, private: Any) -> None:
        self._private = private
        self.public = public_text(private.public_key())

    def __repr__(self) -> str:
        return f"SigningKey({self.public})"

    def sign(self, message: bytes) -> bytes:
        """The signature of a message."""
        signature: bytes = self._private.sign(message)
        return signature


def generated_key() -> SigningKey:
    """A new key that is kept nowhere."""
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    return SigningKey(Ed25519PrivateKey.generate())


def public_text(public: Any) -> str:
    """A public key as text: `ed25519:…`."""
    return SCHEME + base64.urlsafe_b64encode(public.public_bytes_raw()).rstrip(b"=").decode()


def check_signature(key: str, message: bytes, signature: bytes) -> bool:
    """Whether the holder of a key, given as text, has signed a message; what is no key has signed nothing."""
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    scheme, _, text = key.partition(":")
    try:
        raw = base64.b64decode(text.replace("-", "+").replace("_", "/") + "=" * (-len(text) % 4), validate=True)
        if scheme != "ed25519":
            return False
        Ed25519PublicKey.from_public_bytes(raw).verify(signature, message)
    except (InvalidSignature, TypeError, ValueError, binascii.Error):
        return False
    return True


def key_beside(path: str) -> SigningKey:
    """The key in a file, made there if there is none; its public half is written beside it, as `….pub`."""
    with suppress(FileNotFoundError):
        return _with_public(path, _read(path))
    _create(path)
    return _with_public(path, _read(path))


def _read(path: str) -> SigningKey:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    try:
        number = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise LedgerUnavailable(f"the key {path} cannot be read: {error.strerror}") from None
    with os.fdopen(number, "rb") as file:
        found = os.fstat(number)
        if not stat.S_ISREG(found.st_mode) or found.st_uid not in (0, os.geteuid()) or found.st_mode & 0o077:
            raise LedgerUnavailable(f"the key {path} is open to others: run `chmod 600 {path}` as its owner")
        data = file.read(10_000)
    try:
        private = load_pem_private_key(data, None)
    except (TypeError, ValueError):
        private = None
    if not isinstance(private, Ed25519PrivateKey):
        raise LedgerUnavailable(f"{path} holds no Ed25519 key: put its backup there") from None
    return SigningKey(private)


def _create(path: str) -> None:
    """Make a key appear at a path, whole, unless another process was faster."""
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    data = Ed25519PrivateKey.generate().private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    with suppress(FileExistsError):
        _appear(path, data, 0o600)


def _with_public(path: str, key: SigningKey) -> SigningKey:
    """The key, once its public half is there for those who verify."""
    beside = os.path.splitext(path)[0] + ".pub"
    if not os.path.lexists(beside):
        with suppress(FileExistsError):
            _appear(beside, f"{key.public}\n".encode(), 0o644)
    return key


def _appear(path: str, data: bytes, mode: int) -> None:
    spare = f"{path}.{secrets.token_hex(8)}"
    try:
        number = os.open(spare, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, mode)
        try:
            with os.fdopen(number, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(number)
            os.link(spare, path)  # fails if it is there: a key is never replaced
            _sync_folder(os.path.dirname(path))
        finally:
            os.unlink(spare)
    except FileExistsError:
        raise
    except OSError as error:
        raise LedgerUnavailable(f"{path} cannot be made: {error.strerror}") from None


def _sync_folder(folder: str) -> None:
    number = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(number)
    finally:
        os.close(number)
