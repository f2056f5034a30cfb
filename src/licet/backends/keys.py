"""Ed25519 keys in files that only their owner can read: made whole, read with care, used to sign, and verified.

Whose key it is, and what to do where it is missing or wrong, is said by `ledger_keys` and `approval_keys`.

Personal keys of those who approve: where they name a file, one is made or read there.

The key that signs a ledger: made on first use, beside it.

To back it up, copy `ledger.key` to a place that only you can read; a ledger whose key is lost can still be verified
with `ledger.pub`, and not be continued. Keys are spelled `ed25519:` and base64url without padding.
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
# An Ed25519 key as RFC 8410 has it, whose 32 bytes follow: this is how keys are made here, and by OpenSSL.
_PKCS8 = bytes.fromhex("302e020100300506032b657004220420")
_BEGIN, _END = b"-----BEGIN PRIVATE KEY-----\n", b"\n-----END PRIVATE KEY-----\n"


class BadKey(Exception):
    """A file that is no key to sign with: what is wrong with it, and how to mend it."""


class SigningKey:
    """A private key, and the text of its public half: `ed25519:…`."""

    def __init__(self, private: "Ed25519PrivateKey") -> None:
        self._private = private
        self.public = key_text(private.public_key().public_bytes_raw())

    def __repr__(self) -> str:
        return f"SigningKey({self.public})"

    def sign(self, message: bytes) -> bytes:
        """The signature of a message."""
        return self._private.sign(message)

    def derived(self, purpose: bytes) -> bytes:
        """A secret for one purpose, which only the holder of this key can compute."""
        return hmac.digest(self._private.private_bytes_raw(), purpose, "sha256")


def load_code() -> None:
    """Import what reads keys, makes them, signs with them and verifies."""
    import cryptography.exceptions
    import cryptography.hazmat.primitives.asymmetric.ed25519
    import cryptography.hazmat.primitives.serialization  # noqa: F401


def generated_key() -> SigningKey:
    """A new key that is kept nowhere."""
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    return SigningKey(Ed25519PrivateKey.generate())


def create_key(path: str, key: SigningKey | None = None) -> SigningKey:
    """A key, a new one if none is given, in a new file; `FileExistsError` if anything stands there."""
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    key = generated_key() if key is None else key
    create_file(path, key._private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()), 0o600)
    return key


def create_file(path: str, data: bytes, mode: int) -> None:
    """Make a file appear, with all that it holds and on the disk; what is there is never replaced."""
    spare = f"{path}.{secrets.token_hex(8)}"
    number = os.open(spare, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, mode)
    try:
        with os.fdopen(number, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(number)
        os.link(spare, path)  # fails if it is there
        _sync_folder(os.path.dirname(os.path.abspath(path)))
    finally:
        os.unlink(spare)


def read_key(path: str, mend: str, *, links: bool) -> SigningKey:
    """The key in a file that nobody else can read; `BadKey` if it holds none, with how to mend that.

    `FileNotFoundError` if there is no file. Whether a link is followed is for who names the path to say.
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
    if exposed and b"PRIVATE KEY" in data:  # what is no key at all is told as that
        raise BadKey(f"the key {path} is open to others: run `chmod 600 {path}` as its owner")
    private = _common_key(data) or _any_key(data)
    if private is None:
        raise BadKey(f"{path} holds no Ed25519 key: {mend}")
    return SigningKey(private)


def _common_key(data: bytes) -> "Ed25519PrivateKey | None":
    """The key in the one form that nearly all files have: to load what reads every other takes longer than all else."""
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    if not (data.startswith(_BEGIN) and data.endswith(_END)):
        return None
    text = data[len(_BEGIN) : -len(_END)]
    try:
        held = binascii.a2b_base64(text)
    except ValueError:
        return None
    # What is written again in the same way was written in the one way: readers of base64 differ in what they let pass.
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
    """Whether a signature of a message was made with the private half of a key."""
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
    """A new key in a new file that only its owner can read; what stands there already is never replaced."""
    try:
        if not path.parent.is_dir():
            path.parent.mkdir(mode=0o700, parents=True)
        return create_key(str(path))
    except FileExistsError:
        raise BadKey(f"{path} is there already: choose another file; a key that is lost cannot be made again") from None
    except OSError as error:
        raise BadKey(f"{path} cannot be made: {error.strerror}") from None


def read_approver_key(path: Path) -> SigningKey:
    """The key in a file that nobody else can read; `BadKey` otherwise."""
    try:
        return read_key(str(path), "make one with `licet approvals key FILE`", links=True)
    except FileNotFoundError as error:
        raise BadKey(f"{path} cannot be read: {error.strerror}") from None


def check_signature(key: str, message: bytes, signature: bytes) -> bool:
    """Whether the holder of a key, given as text, has signed a message; what is no key has signed nothing."""
    public = key_bytes(key)
    return public is not None and verifies(public, signature, message)


def key_if_readable(path: str) -> SigningKey | None:
    """The key in a file, for who can do without it; nothing is made."""
    try:
        return read_key(path, "put its backup there", links=False)
    except (BadKey, OSError):
        return None


def key_beside(path: str, new: SigningKey | None = None) -> SigningKey:
    """The key in a file, made there if there is none; its public half is written beside it, as `….pub`.

    `new` is the key to put there, where one was made already.
    """
    try:
        with suppress(FileExistsError):  # another process was faster
            if not os.path.lexists(path):
                create_key(path, new)
        key = read_key(path, "put its backup there", links=False)
        beside = os.path.splitext(path)[0] + ".pub"
        with suppress(FileExistsError):
            if not os.path.lexists(beside):
                create_file(beside, f"{key.public}\n".encode(), 0o644)
    except BadKey as wrong:
        raise LedgerUnavailable(str(wrong)) from None
    except OSError as error:
        raise LedgerUnavailable(f"{path} cannot be made: {error.strerror}") from None
    return key
