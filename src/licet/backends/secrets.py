r"""Sources of secrets: environment variables, a file of `NAME=value` lines, a mapping, and several of these in order.

A file must be readable by its owner only. Its values are bare, in 'single quotes' (nothing is special) or in "double
quotes" (with the escapes `\n \r \t \" \\`). Nothing is expanded. A line that shells and other readers of such files
would read differently is an error. Errors name the file and the line, never a value.

Ed25519 keys in files that only their owner can read: created atomically, read, used to sign, and verified.

- The key of a ledger is made next to it on first use, as `ledger.key`. To back it up, copy it to a place that only you
  can read. A ledger whose key is lost can still be verified with `ledger.pub`, but not continued.
- The key of an approver is in a file that they name.

A public key is written as `ed25519:` and base64url without padding.
"""

import binascii
import hmac
import os
import re
import stat
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from licet.backends.limits import MOST_KEY_BYTES, MOST_SECRETS_BYTES
from licet.core.late_pattern import late_pattern
from licet.core.values import key_bytes, key_text
from licet.guard.handles.secrets_and_kv import getter
from licet.guard.ports import LedgerUnavailable, Secrets, SecretsFunction, Unavailable
from licet.own_files import NotRegular, create_file, open_regular, read_most

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey


class ChainSecrets:
    """Asks one backend after the other. An error ends the search: the next backend might have an older value."""

    def __init__(self, *backends: Secrets | SecretsFunction) -> None:
        self._backends = [getter(backend) for backend in backends]

    async def get(self, reference: str) -> str | None:
        """Return the value of a secret, from the first backend that has it."""
        for ask in self._backends:
            if (value := await ask(reference)) is not None:
                return value
        return None


_SEGMENT = "[a-z0-9]+(?:_[a-z0-9]+)*"
_SEGMENTS = late_pattern(f"{_SEGMENT}(?:/{_SEGMENT})+")
_FOLDED = late_pattern(f"{_SEGMENT}(?:__{_SEGMENT})+".replace("a-z", "A-Z"))


class EnvironmentSecrets:
    """Each reference is the variable of that name; `github/token` may also be `GITHUB__TOKEN`. Empty means unset."""

    def __init__(self, environ: Mapping[str, str] | None = None) -> None:
        self._environ = os.environ if environ is None else environ

    async def get(self, reference: str) -> str | None:
        """Return the value of a secret, or None if there is no such variable."""
        return next((value for name in variables_of(reference) if (value := self._environ.get(name))), None)


def variables_of(reference: str) -> tuple[str, ...]:
    """Return the names under which a reference is looked up, in order.

    No name belongs to two references: a tool that may not have one of them could ask for the other. So only plain
    segments are converted, in a way that can be reversed, and a reference that looks like a converted one has no name.
    """
    if _FOLDED.fullmatch(reference):
        return ()
    if _SEGMENTS.fullmatch(reference):
        return reference, reference.replace("/", "__").upper()
    return (reference,)  # exactly this name: `path` is not `PATH`


_NAME = late_pattern(r"[A-Za-z_][A-Za-z0-9_./-]*")
_BARE = late_pattern(r"[^\s\"'`#$\\]+")
_SINGLE = late_pattern(r"'([^']*)'")
_DOUBLE = late_pattern(r'"((?:[^"\\]|\\.)*)"')
_AFTER = late_pattern(r"\s*(?:\s#.*)?")  # the text that may follow a value
_CONTROL = late_pattern(r"[\x00-\x08\x0a-\x1f\x7f]")
_ESCAPED = {"n": "\n", "r": "\r", "t": "\t", '"': '"', "\\": "\\"}

Version = tuple[int, ...]


class FileSecrets:
    """Each reference is the line of that name; `github/token` may also be `GITHUB__TOKEN`. Changes are noticed."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = os.path.abspath(path)
        self._version: Version | None = None
        self._values: dict[str, str] = {}

    async def get(self, reference: str) -> str | None:
        """Return the value of a secret, or None; raises `Unavailable` if the file is not fit for secrets."""
        self.check()
        return next((value for name in variables_of(reference) if (value := self._values.get(name))), None)

    def check(self) -> None:
        """Read the file if it has changed; raises `Unavailable` if it is not fit for secrets."""
        known, self._version = self._version, None  # a wrong file has no values, not those that it had before
        try:
            with open_regular(self._path, links=False) as fd:
                found = os.fstat(fd)
                _check(self._path, found)
                version = (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)
                if version != known:
                    self._values = parse(self._path, read_most(fd, MOST_SECRETS_BYTES + 1))
        except OSError as error:
            if os.path.islink(self._path):
                raise Unavailable(f"{self._path} is a link: name the file itself") from None
            if isinstance(error, NotRegular):
                raise Unavailable(f"{self._path} is not a regular file") from None
            raise Unavailable(f"{self._path} cannot be opened: {error.strerror}") from None
        self._version = version


def _check(path: str, found: os.stat_result) -> None:
    if found.st_uid != os.geteuid():
        raise Unavailable(f"{path} belongs to another user: run `chown {os.geteuid()} {path}`")
    mode = stat.S_IMODE(found.st_mode)
    if mode & ~0o600:
        raise Unavailable(f"{path} has mode {mode:04o}, others may read or change it: run `chmod 600 {path}`")


def parse(path: str, raw: bytes) -> dict[str, str]:
    """Parse the values by name; raises `Unavailable` with the line that is wrong."""
    if len(raw) > MOST_SECRETS_BYTES:
        raise Unavailable(f"{path} is larger than {MOST_SECRETS_BYTES} bytes")
    values: dict[str, str] = {}
    lines: dict[str, int] = {}
    for number, row in enumerate(raw.split(b"\n"), 1):
        try:
            line = row.removesuffix(b"\r").decode()
        except UnicodeDecodeError:
            raise Unavailable(f"{path}:{number}: found bytes that are not UTF-8") from None
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        name, value = _entry(f"{path}:{number}", line)
        if name in values:
            raise Unavailable(f"{path}:{number}: `{name}` is there already, on line {lines[name]}: keep one")
        values[name], lines[name] = value, number
    return values


def _entry(where: str, line: str) -> tuple[str, str]:
    if _CONTROL.search(line):
        raise Unavailable(f"{where}: found a control character: write a line break as \\n in double quotes")
    name = _NAME.match(line)
    # The text in place of a name may be a value, so it is not quoted.
    if name is None or line[name.end() : name.end() + 1] != "=":
        hint = ": leave out `export`" if line.lstrip().startswith("export ") else ""
        raise Unavailable(f"{where}: expected `NAME=value`, without spaces before `=`{hint}")
    where, rest = f"{where}: `{name[0]}`", line[name.end() + 1 :]
    if found := _SINGLE.match(rest):
        value = found[1]
    elif found := _DOUBLE.match(rest):
        value = _read(where, found[1])
    elif found := _BARE.match(rest):
        value = found[0]
    else:
        raise Unavailable(f"{where} has no value, or one that needs 'single quotes'")
    if not _AFTER.fullmatch(rest, found.end()):
        raise Unavailable(f"{where} goes on after its value: put all of it in 'single quotes'")
    if not value:
        raise Unavailable(f"{where} is empty: remove the line")
    return name[0], value


def _read(where: str, quoted: str) -> str:
    """Read the escapes of a text in double quotes."""
    if "$" in quoted or "`" in quoted:
        raise Unavailable(f"{where} has a `$` or a backtick in double quotes, and nothing is expanded: use single ones")
    escapes = re.findall(r"\\(.)", quoted)
    if any(escape not in _ESCAPED for escape in escapes):
        raise Unavailable(f'{where} has an unknown escape: known are \\n, \\r, \\t, \\" and \\\\')
    return re.sub(r"\\(.)", lambda found: _ESCAPED[found[1]], quoted)


class MemorySecrets:
    """Values by reference, in the memory of this process."""

    def __init__(self, values: Mapping[str, str] | None = None) -> None:
        self._values = dict(values or {})

    async def get(self, reference: str) -> str | None:
        """Return the value of a secret, or None."""
        return self._values.get(reference)


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

    def pem(self) -> bytes:
        """The private key as the text of a file, without a password."""
        from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

        return self._private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())

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
    key = generated_key() if key is None else key
    create_file(path, key.pem())
    return key


def read_key(path: str, mend: str, *, links: bool) -> SigningKey:
    """Read a private key from a file that only its owner can read.

    Raises `FileNotFoundError` if there is no file, and `BadKey`, with the advice `mend`, if it has no usable key.
    """
    try:
        with open_regular(path, links=links) as fd:
            found, data = os.fstat(fd), read_most(fd, MOST_KEY_BYTES)
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
