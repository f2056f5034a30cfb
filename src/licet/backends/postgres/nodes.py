"""The nodes of a state: each process that writes belongs to one, and signs what it writes with the key of its node.

The key is made on the node, in the directory that it keeps for itself, and never leaves it. Whoever administers the
database can write any row; without the key of a node that an operator has enrolled, such a row is refused.
"""

import os
from pathlib import Path

from licet.backends.secrets import SigningKey, check_signature, create_key, read_key

KEY_FILE = "node.key"
_MEND = "put the key of this node there, or move it away: the next start makes another one, which needs to be enrolled"


class Node:
    """This node: it signs. `public` is how others know it."""

    def __init__(self, key: SigningKey) -> None:
        self._key = key
        self.public = key.public

    @classmethod
    def of(cls, directory: Path) -> "Node":
        """The node whose directory this is; its key is made by the first process that asks."""
        path = os.fspath(directory / KEY_FILE)
        try:
            return cls(read_key(path, _MEND, links=False))
        except FileNotFoundError:
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        try:
            return cls(create_key(path))
        except FileExistsError:  # another process was first
            return cls(read_key(path, _MEND, links=False))

    def sign(self, purpose: str, body: bytes) -> bytes:
        """Sign bytes for one purpose, such as `batch` or `approval`: a signature for one counts for no other."""
        return self._key.sign(_text(purpose, body))


def is_signed(public: str, purpose: str, body: bytes, signature: bytes) -> bool:
    """Whether a node has signed these bytes for this purpose. Whether it is enrolled is another question."""
    return check_signature(public, _text(purpose, body), signature)


def _text(purpose: str, body: bytes) -> bytes:
    return b"licet node\n" + purpose.encode() + b"\n" + body
