"""Ed25519 keys in files that only their owner can read: created atomically, read, used to sign, and verified.

- The key of a ledger is made next to it on first use, as `ledger.key`. To back it up, copy it to a place that only you
  can read. A ledger whose key is lost can still be verified with `ledger.pub`, but not continued.
- The key of an approver is in a file that they name.

A public key is written as `ed25519:` and base64url without padding.
"""

import binascii
import hmac
import os
import secrets
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from licet.core.canonical import key_bytes, key_text
from licet.guard.ports import LedgerUnavailable
from licet.regular_files import NotRegular, open_regular, read_most

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey


_MOST = 65_536  # bytes
# An Ed25519 key as in RFC 8410, followed by its 32 bytes. licet and OpenSSL write keys like this.
_PKCS8 = bytes.fromhex("302e020100300506032b657004220420")
_BEGIN, _END = b"-----BEGIN PRIVATE KEY-----\n", b"\n-----END PRIVATE KEY-----\n"


class BadKey(Exception):
    """A file that has no usable key. The message says what is wrong, and how to fix it."""


class SigningKey:
    """A private key, and its public key as text: `ed25519:…`."""

    def __init__(self, private: "Ed25519PrivateKey") -> None:
        self._private = private
        self.public = key_text(private.public_key().public_bytes_raw())

    def __repr__(self) -> str:
        return f"SigningKey({self.public})"

    def sign(self, message: bytes) -> bytes:
        return self._private.sign(message)

    def derived(self, purpose: bytes) -> bytes:
        """Derive a secret for one purpose, which only the holder of this key can compute."""
        return hmac.digest(self._private.private_bytes_raw(), purpose, "sha256")


def load_code() -> None:
    """Import the code that reads, makes, uses and verifies keys."""
    import cryptography.exceptions
    import cryptography.hazmat.primitives.asymmetric.ed25519
    import cryptography.hazmat.primitives.serialization  # noqa: F401


def generated_key() -> SigningKey:
    """Make a key that is not stored."""
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    return SigningKey(Ed25519PrivateKey.generate())


def create_key(path: str, key: SigningKey | None = None) -> SigningKey:
    """Store a key, or a new one, in a new file; raises `FileExistsError` if the path exists."""
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    key = generated_key() if key is None else key
    create_file(path, key._private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()), 0o600)
    return key


def create_file(path: str, data: bytes, mode: int) -> None:
    """Create a file atomically, with its data on the disk; never replaces a file."""
    spare = f"{path}.{secrets.token_hex(8)}"
    number = os.open(spare, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, mode)
    try:
        with os.fdopen(number, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(number)
        os.link(spare, path)  # fails if the path exists
        _sync_folder(os.path.dirname(os.path.abspath(path)))
    finally:
        os.unlink(spare)


def read_key(path: str, mend: str, *, links: bool) -> SigningKey:
    """Read a private key from a file that only its owner can read.

    Raises `FileNotFoundError` if there is no file, and `BadKey`, with the advice `mend`, if it has no usable key.
    """
    try:
        with open_regular(path, links=links) as fd:
            found, data = os.fstat(fd), read_most(fd, _MOST)
    except FileNotFoundError:
        raise
    except NotRegular as error:
        raise BadKey(f"{path} is {error.strerror}: {mend}") from None
    except OSError as error:
        raise BadKey(f"the key {path} cannot be read: {error.strerror}") from None
    exposed = found.st_uid != os.geteuid() or found.st_mode & 0o077
    if exposed and b"PRIVATE KEY" in data:  # a file without a key is reported as that, below
        raise BadKey(f"the key {path} is open to others: run `chmod 600 {path}` as its owner")
    private = _common_key(data) or _any_key(data)
    if private is None:
        raise BadKey(f"{path} holds no Ed25519 key: {mend}")
    return SigningKey(private)


def _common_key(data: bytes) -> "Ed25519PrivateKey | None":
    """Read a key in the form that nearly all files have: importing the general parser takes very long."""
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    if not (data.startswith(_BEGIN) and data.endswith(_END)):
        return None
    text = data[len(_BEGIN) : -len(_END)]
    try:
        held = binascii.a2b_base64(text)
    except ValueError:
        return None
    # Encoded again and compared, because decoders of base64 differ in what they accept.
    if len(held) != len(_PKCS8) + 32 or not held.startswith(_PKCS8) or binascii.b2a_base64(held, newline=False) != text:
        return None
    return Ed25519PrivateKey.from_private_bytes(held[len(_PKCS8) :])


def _any_key(data: bytes) -> "Ed25519PrivateKey | None":
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    try:
        private = load_pem_private_key(data, None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        return None
    return private if isinstance(private, Ed25519PrivateKey) else None


def verifies(key: bytes, signature: bytes, message: bytes) -> bool:
    """Whether a signature of a message was made with this key."""
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    try:
        Ed25519PublicKey.from_public_bytes(key).verify(signature, message)
    except (InvalidSignature, TypeError, ValueError):
        return False
    return True


def _sync_folder(folder: str) -> None:
    number = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(number)
    finally:
        os.close(number)


def make_key(path: Path) -> SigningKey:
    """Make a key in a new file that only its owner can read; never replaces a file."""
    try:
        if not path.parent.is_dir():
            path.parent.mkdir(mode=0o700, parents=True)
        return create_key(str(path))
    except FileExistsError:
        raise BadKey(f"{path} is there already: choose another file; a key that is lost cannot be made again") from None
    except OSError as error:
        raise BadKey(f"{path} cannot be made: {error.strerror}") from None


def read_approver_key(path: Path) -> SigningKey:
    """Read the key of an approver; raises `BadKey` if there is none."""
    try:
        return read_key(str(path), "make one with `licet approvals key FILE`", links=True)
    except FileNotFoundError as error:
        raise BadKey(f"{path} cannot be read: {error.strerror}") from None


def check_signature(key: str, message: bytes, signature: bytes) -> bool:
    """Whether a message was signed with a public key, given as text; False if the text is no key."""
    public = key_bytes(key)
    return public is not None and verifies(public, signature, message)


def key_if_readable(path: str) -> SigningKey | None:
    """Read a key; None if that is not possible. Makes no key."""
    try:
        return read_key(path, "put its backup there", links=False)
    except (BadKey, OSError):
        return None


def ledger_key(path: str, new: SigningKey | None = None) -> SigningKey:
    """Read the key of a ledger. If there is none, make one, and write the public key next to it as `….pub`.

    `new` is the key to store if there is none yet.
    """
    try:
        with suppress(FileExistsError):  # another process was faster
            if not os.path.lexists(path):
                create_key(path, new)
        key = read_key(path, "put its backup there", links=False)
        public_path = os.path.splitext(path)[0] + ".pub"
        with suppress(FileExistsError):
            if not os.path.lexists(public_path):
                create_file(public_path, f"{key.public}\n".encode(), 0o644)
    except BadKey as wrong:
        raise LedgerUnavailable(str(wrong)) from None
    except OSError as error:
        raise LedgerUnavailable(f"{path} cannot be made: {error.strerror}") from None
    return key
