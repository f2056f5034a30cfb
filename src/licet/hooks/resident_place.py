"""Where the socket of a resident lies, and who is at its other end. A client loads this for every event.

It lies in licet's state, which no grant reaches. Its directory belongs to this user alone, and is opened once: its
files are reached through that open directory, so nobody can put another one in its place meanwhile, and the path of the
socket is short. Both sides ask the kernel for the user at the other end. Where a system cannot do this, there is no
resident, and clients work alone.
"""

import _imp
import _socket
import errno
import posix
import sys

# They say where the files of licet lie, and what configures the agents. A resident has these variables and no other
# ones, and clients with other values have another resident: it would read another user's lists of what is accepted, or
# leave open what configures this agent.
OWN_VARIABLES = (
    *(b"HOME", b"XDG_CACHE_HOME", b"XDG_CONFIG_HOME", b"XDG_DATA_HOME", b"XDG_STATE_HOME"),
    *(b"CLAUDE_CONFIG_DIR", b"CODEX_HOME", b"COPILOT_HOME", b"GEMINI_CLI_HOME"),
    *(b"OPENCODE_CONFIG", b"OPENCODE_CONFIG_DIR"),
)

_HASH_KEY = 27
_DIRECTORY, _KIND, _OTHERS = 0o040000, 0o170000, 0o077
_CREDENTIALS = 12  # bytes: pid, uid and gid, each of four
_ABSENT = (errno.ENOENT, errno.ECONNREFUSED)


class NoPlace(Exception):
    """There is no directory for the socket that is certain to belong to this user alone."""


class NoResident(Exception):
    """No resident listens: one can be started."""


class Unreachable(Exception):
    """A resident cannot be reached or is not to be trusted. Another one would be in the same position."""


def own_variables(environ: dict[bytes, bytes]) -> dict[bytes, bytes]:
    """The variables of a resident that a client with this environment starts, which are absolute paths."""
    return {name: environ[name] for name in OWN_VARIABLES if environ.get(name, b"").startswith(b"/")}


def directory(environ: dict[bytes, bytes]) -> bytes:
    """The directory of the sockets, which may be missing. Raises `NoPlace`."""
    own = own_variables(environ)
    if state := own.get(b"XDG_STATE_HOME"):
        return state + b"/licet/resident"
    if home := own.get(b"HOME"):
        return home + b"/.local/state/licet/resident"
    raise NoPlace("this user has no directory for the socket")


def name(environ: dict[bytes, bytes]) -> str:
    """The name of the resident for this licet, this interpreter and these directories."""
    own = own_variables(environ)
    parts = [__file__.encode("utf-8", "surrogateescape"), sys.executable.encode("utf-8", "surrogateescape")]
    parts += [b"%s=%s" % pair for pair in sorted(own.items())]
    return _imp.source_hash(_HASH_KEY, b"\0".join(parts)).hex()


def opened(path: bytes) -> int:
    """Open the directory of the sockets. Raises `NoPlace`, and `FileNotFoundError` if it does not exist yet."""
    if not hasattr(posix, "O_PATH"):
        raise NoPlace("this system has no way to reach a socket through an open directory")
    try:
        place = posix.open(path, posix.O_PATH | posix.O_DIRECTORY | posix.O_NOFOLLOW | posix.O_CLOEXEC)
    except FileNotFoundError:
        raise
    except OSError as wrong:
        raise NoPlace(f"the directory of the socket cannot be opened: {wrong.strerror}") from None
    about = posix.fstat(place)
    if about.st_mode & _KIND != _DIRECTORY or about.st_uid != posix.geteuid() or about.st_mode & _OTHERS:
        posix.close(place)
        raise NoPlace("the directory of the socket does not belong to this user alone")
    return place


def address(place: int, name: str) -> bytes:
    """The path of a resident's socket, through the open directory."""
    return b"/proc/self/fd/%d/%s.sock" % (place, name.encode())


def connect(environ: dict[bytes, bytes]) -> _socket.socket:
    """A connection to the resident for this environment. Raises `NoPlace`, `NoResident` or `Unreachable`."""
    try:
        place = opened(directory(environ))
    except FileNotFoundError:
        raise NoResident from None
    try:
        return connect_in(place, name(environ))
    finally:
        posix.close(place)


def connect_in(place: int, name: str) -> _socket.socket:
    """A connection to the resident of that name. Raises `NoResident` or `Unreachable`."""
    end = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
    try:
        end.setblocking(False)  # a full queue of clients is an error, not something to wait for
        end.connect(address(place, name))
        _require_own(end)
        end.setblocking(True)
    except OSError as wrong:
        end.close()
        if wrong.errno in _ABSENT:
            raise NoResident from None
        raise Unreachable(wrong.strerror) from None
    except BaseException:
        end.close()
        raise
    return end


def _require_own(end: _socket.socket) -> None:
    if peer(end) != posix.geteuid():
        raise Unreachable("another user listens on the socket of the resident")


def peer(end: _socket.socket) -> int:
    """The user at the other end of a connection. Raises `Unreachable` where the system does not say it."""
    return int.from_bytes(_credentials(end)[4:8], sys.byteorder)


def process_of(end: _socket.socket) -> int:
    """The process that has made a connection. Raises `Unreachable` where the system does not say it."""
    return int.from_bytes(_credentials(end)[:4], sys.byteorder)


def _credentials(end: _socket.socket) -> bytes:
    option = getattr(_socket, "SO_PEERCRED", None)
    if option is None:
        raise Unreachable("this system does not say who is at the other end of a socket")
    raw = end.getsockopt(_socket.SOL_SOCKET, option, _CREDENTIALS)
    if len(raw) != _CREDENTIALS:
        raise Unreachable("the system does not say who is at the other end of a socket")
    return raw
