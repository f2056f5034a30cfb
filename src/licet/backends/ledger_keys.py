"""The key that signs a ledger: made on first use, beside it.

To back it up, copy `ledger.key` to a place that only you can read; a ledger whose key is lost can still be verified
with `ledger.pub`, and not be continued. Keys are spelled `ed25519:` and base64url without padding.
"""

import os
from contextlib import suppress

from licet.backends.signing_keys import BadKey, SigningKey, create_file, create_key, generated_key, read_key, verifies
from licet.core.approval import key_bytes
from licet.guard.ports import LedgerUnavailable

__all__ = ["SigningKey", "check_signature", "generated_key", "key_beside", "key_if_readable"]


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
