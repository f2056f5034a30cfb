"""The people who agree to payments, for this example alone.

Their keys are made from their names, so that the manifest can list them and every run has the same: anybody can make
them. Real ones are made with `licet approvals key FILE`, by each person, where no tool can read them.
"""

import base64
import hashlib
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat


def key_of(name: str) -> Ed25519PrivateKey:
    """The key of one of them."""
    return Ed25519PrivateKey.from_private_bytes(hashlib.sha256(f"licet example: {name}".encode()).digest())


def public_key(name: str) -> str:
    """How a manifest knows them: what `licet approvals key --public FILE` prints."""
    return "ed25519:" + base64.urlsafe_b64encode(key_of(name).public_key().public_bytes_raw()).decode().rstrip("=")


def write_key(name: str, directory: Path) -> Path:
    """The key of one of them, in a file that only its owner can read."""
    file = directory / f"{name}.key"
    file.touch(0o600)
    file.write_bytes(key_of(name).private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    return file
