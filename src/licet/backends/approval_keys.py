"""Personal keys of those who approve: where they name a file, one is made or read there."""

from pathlib import Path

from licet.backends.signing_keys import BadKey, SigningKey, create_key, verifies
from licet.backends.signing_keys import read_key as read_key_file

__all__ = ["BadKey", "SigningKey", "make_key", "read_key", "verifies"]


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


def read_key(path: Path) -> SigningKey:
    """The key in a file that nobody else can read; `BadKey` otherwise."""
    try:
        return read_key_file(str(path), "make one with `licet approvals key FILE`", links=True)
    except FileNotFoundError as error:
        raise BadKey(f"{path} cannot be read: {error.strerror}") from None
