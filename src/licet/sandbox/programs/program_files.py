"""The files that a program needs to start: the system's, its binary, the libraries next to it, and names for its ids.

No manifest grants these, so nothing that a tool may write decides which they are.

Files and directories with nothing in them that stand for closed names while programs run.

Only a name that exists can be mounted over, and Landlock has no deny. So a closed name that is missing, in a directory
that a program may write, is made before the program starts, and removed after the last program that needs it has ended.
Otherwise the program could make it, or no new name at all could be made beside it.

Every program that needs one holds a shared lock on it, and who finds no other lock removes it. The lock of its
directory keeps two hosts from doing so at once. It is known by its time, so that one that a killed host has left is
used and removed by the next. So are the directories on the way to one. What somebody has written to stays.
"""

import errno
import fcntl
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from functools import cache
from itertools import takewhile
from types import MappingProxyType
from typing import NamedTuple

from msgspec import Struct

from licet.core.algebra.rules import Use
from licet.core.algebra.scope import inside
from licet.core.decision.reach import Reach
from licet.core.late_pattern import late_pattern
from licet.guard.execution import Command, SandboxUnavailable
from licet.guard.held_paths import held_paths
from licet.guard.import_path import FoundProgram, changeable
from licet.own_files import PLACEHOLDER_TIME, is_placeholder, locked_directory, remove_placeholder
from licet.policy_files.policy_paths import home_directory
from licet.sandbox.grant_paths import NEVER, Identity, identity

# No personal data or secrets are in these; of /etc/ssl only the certificates, not the keys.
SYSTEM = (
    "/usr", "/lib", "/lib32", "/lib64", "/libx32", "/bin", "/sbin", "/etc/alternatives", "/etc/ld.so.cache",
    "/etc/ld.so.conf", "/etc/ld.so.conf.d", "/etc/localtime", "/etc/ssl/certs", "/etc/ssl/openssl.cnf",
    "/etc/ca-certificates", "/etc/pki/tls/certs", "/etc/os-release", "/etc/debian_version",
    "/etc/timezone", "/etc/manpath.config", "/etc/mime.types", "/etc/services", "/etc/protocols", "/etc/terminfo",
    "/etc/fonts", "/etc/vim", "/etc/perl", "/var/lib/dpkg", "/var/lib/rpm",
    "/sys/devices/system/cpu",
)  # fmt: skip
MADE_FILES = ("/etc/passwd", "/etc/group", "/etc/nsswitch.conf", "/etc/hosts")
GIT_SETTINGS = "/etc/gitconfig"  # made, too, for programs of a policy that names git
_NOBODY = 65534  # what a namespace shows in place of every id that is not its own
_BY_A_LINK = (
    "its name leads through a link that a tool may have put there, to a file that is not granted: name that file "
    "itself in `process.allowed_binaries`, or keep tools from writing where the link is"
)


class Shown(NamedTuple):
    """What a program with stand-ins sees besides: variables, and files with other contents than those of the host."""

    environment: Mapping[str, str] = MappingProxyType({})
    contents: tuple[str, ...] = ()  # as text, with one letter for each byte
    copies: tuple[tuple[str, int, int], ...] = ()  # a real path, the number of its content, and its mode
    names: tuple[str, ...] = ()  # other paths of the copies
    keys: tuple[str, ...] = ()  # those copies whose files have keys in them
    hide: tuple[str, ...] = ()  # other names of files that have copies
    directories: tuple[str, ...] = ()  # directories in the private root that can be read for the copies

    @property
    def paths(self) -> tuple[str, ...]:
        """The real paths of the copies."""
        return tuple(path for path, _, _ in self.copies)

    def with_copy(self, path: str, content: bytes) -> "Shown":
        """The same, with one more file."""
        copies = (*self.copies, (path, len(self.contents), 0o444))
        return self._replace(contents=(*self.contents, content.decode("latin-1")), copies=copies)


def of_binary(command: Command, reach: Reach) -> Mapping[str, Identity]:
    """The binary, its runtime, and the libraries next to it outside of system directories; each with its identity.

    A file that replaces one of them later gets no rule. A link or library where a tool may write is not used: a program
    could choose with it what the next program reads.
    """
    binary, ceiling = command.binary, reach.manifest.ceiling
    check_links(command, reach)
    sure = bool(name_of_binary(command, reach))
    try:
        own = {str(binary): identity(binary)}
    except FileNotFoundError:
        raise
    except OSError as wrong:
        raise SandboxUnavailable("the program was replaced by another file after it was found") from wrong
    beside = _beside(binary, {str(binary), command.argv[0]} if sure else {str(binary)}, reach)
    for path in (*beside, *command.runtime):
        if not inside(path, NEVER) and not changeable(path, ceiling):
            with suppress(OSError):  # a link, or missing
                own[path] = identity(path)
    return own


def check_links(command: Command, reach: Reach) -> None:
    """Raise `SandboxUnavailable` if a tool may have led the name of a program to a file that nobody has granted."""
    binary = command.binary
    covered = inside(binary, SYSTEM) or held_paths(reach.grant).covers("read", binary)
    if not covered and not name_of_binary(command, reach) and not reach.grant.has(Use(f"process:exec:{binary}")):
        raise SandboxUnavailable(_BY_A_LINK)


def name_of_binary(command: Command, reach: Reach) -> tuple[str, ...]:
    """The path by which a program was found, unless a tool could have made a link on the way.

    Interpreters look for themselves by the name that they were called by, and then for their libraries beside it.
    """
    binary, ceiling = command.binary, reach.manifest.ceiling
    # Without the links on the way, the path is not trusted.
    if isinstance(binary, FoundProgram) and not any(changeable(link, ceiling) for link in binary.links):
        return (binary.path,)
    return ()


def _beside(binary: str, names: set[str], reach: Reach) -> Iterator[str]:
    """The directories of libraries next to a program that the manifest names.

    Not for `*`: the choice of a program would then be a choice of what can be read.
    """
    rules = [rule.capability for layer in reach.layers for rule in layer.allows]
    if any(rule.domain == "process" and rule.key in names for rule in rules):
        yield from libraries_beside(binary)


def libraries_beside(binary: str) -> Iterator[str]:
    """The directories of libraries next to the `bin` of a program; none for a `bin` in `/` or in the home directory."""
    above, folder = os.path.split(os.path.dirname(binary))
    if folder == "bin" and above.count("/") >= 2 and above != os.path.expanduser("~"):
        for name in ("lib", "lib64", "libexec"):
            yield os.path.join(above, name)


def made_files(home: str) -> Mapping[str, str]:
    """The contents of `MADE_FILES`: programs look up the names of their user, their groups and `localhost`.

    The files of the host list every account and machine, so a program gets its own entries alone, unless the policy
    lets it read the real file.
    """
    user, group = _names()
    users = {0: f"root:x:0:0::{home if user[0] == 0 else '/root'}:/bin/sh", _NOBODY: _NOBODY_ENTRY}
    if user[1]:
        users[user[0]] = f"{user[1]}:x:{user[0]}:{group[0]}::{home}:/bin/sh"
    groups = {0: "root:x:0:", _NOBODY: f"nogroup:x:{_NOBODY}:"}
    if group[1]:
        groups[group[0]] = f"{group[1]}:x:{group[0]}:"
    host = os.uname().nodename
    texts = (
        users.values(),
        groups.values(),
        ("passwd: files", "group: files", "hosts: files dns"),
        (f"127.0.0.1 localhost {host}", "::1 localhost ip6-localhost"),
    )
    return {path: "".join(f"{line}\n" for line in lines) for path, lines in zip(MADE_FILES, texts, strict=True)}


def git_settings(reach: Reach) -> str:
    """What `GIT_SETTINGS` holds: the name, the address and some choices of this user; empty if no rule names git."""
    rules = (rule.capability for layer in reach.layers for rule in layer.allows)
    if not any(rule.domain == "process" and os.path.basename(rule.key) == "git" for rule in rules):
        return ""
    from licet.policy_files.git_settings import shown_settings  # many programs have nothing to do with git

    return shown_settings(home_directory())


_NOBODY_ENTRY = f"nobody:x:{_NOBODY}:{_NOBODY}::/nonexistent:/usr/sbin/nologin"


@cache  # a directory service may answer slowly
def _names() -> tuple[tuple[int, str], tuple[int, str]]:
    """The ids of this user and group, with their names; an id that has none keeps none."""
    import grp
    import pwd

    user, group, names = os.getuid(), os.getgid(), ["", ""]
    with suppress(KeyError):
        names[0] = pwd.getpwuid(user).pw_name
    with suppress(KeyError):
        names[1] = grp.getgrgid(group).gr_name
    return (user, names[0]), (group, names[1])


# Names that programs expect to be files. They read an empty file without an error; git does not list empty directories.
# Only licet reads its own names, and for it a directory there is no policy.
_OF_FILES = late_pattern(
    r"(?!licet\.(?:yaml|lock)$).+\.(?:json[c5]?|ya?ml|toml|ini|cfg|conf|md|txt|lock|py|pth|[cm]?js|ts|lua|el|sh|xml|env|pem|key|db|log)"
    r"|\.?(?:env|netrc|gitmodules|gitconfig|gdbinit|lldbinit|exrc|profile|bash_profile|[a-z]*rc|pgpass|tool-versions)"
    r"|(?:\.env|id)[._][^/]+|Jenkinsfile|Makefile|Dockerfile|\.(?:cursor|windsurf|cline)rules"
    r"|config\.worktree|commondir|refs|objects|HEAD"  # directories of these names would make a repository
    r"|\.(?:hg|svn|bzr|jj)",  # a directory of that name would make a repository of the project, for builds and editors
    re.IGNORECASE,
)
_TEXTS = {"commondir": ".\n"}  # of git, which stops at an empty one: its common directory is its own


class _Held(Struct, frozen=True):
    """One placeholder: its path, and the open file that is locked."""

    path: str
    fd: int


class Placeholders:
    """The placeholders of one program. `release` must follow."""

    def __init__(self) -> None:
        self._held: list[_Held] = []
        self._names: list[str] = []
        self._directories: dict[str, None] = {}  # those that were made on the way to one, by any host; outer ones first

    def hold(self, paths: Iterable[str]) -> list[str]:
        """Make the names that are missing, and hold those that were made before. Returns those that are not held.

        They are missing, or what stands for them may go before this program ends: the caller must refuse every new
        name beside them.
        """
        not_held, self._names = [], [*paths]
        for path in self._names:
            try:
                self._make_directories(os.path.dirname(path))
                held = self._hold(path)
            except OSError:
                held = False
            if not held and _may_go(path):
                not_held.append(path)
        self._mark_directories()
        return not_held

    @property
    def files(self) -> list[str]:
        """Those that are files and not directories."""
        return [held.path for held in self._held if _OF_FILES.fullmatch(os.path.basename(held.path))]

    def release(self) -> None:
        """Remove the placeholders that nobody else holds and nobody has written to."""
        made = self._made_meanwhile()
        for held in reversed(self._held):
            with suppress(OSError):  # another program needs it, or it is gone
                remove_placeholder(held.path, held.fd)
            os.close(held.fd)
        for path in self._names:
            with suppress(OSError):  # as above
                _remove(path)
        for path in (*made, *reversed(self._directories)):
            with suppress(OSError):  # something is in it
                os.rmdir(path)
        self._mark_directories()
        self._held, self._names, self._directories = [], [], {}

    def _made_meanwhile(self) -> list[str]:
        """The directories that were made anew for placeholders while the program ran, inner ones first."""
        made = set()
        for path in self._names:
            with suppress(OSError):
                while is_placeholder(os.lstat(path := os.path.dirname(path))):
                    made.add(path)
        return sorted(made, reverse=True)

    def _make_directories(self, directory: str) -> None:
        if os.path.realpath(directory) != directory:
            raise OSError(errno.ELOOP, "a link is on the way", directory)
        missing = []
        while not os.path.lexists(directory):
            missing.append(directory)
            directory = os.path.dirname(directory)
        for path in reversed([*takewhile(_is_marked, _upwards(directory))]):  # another host made them for this
            self._directories[path] = None
        for path in reversed(missing):
            os.mkdir(path)
            self._directories[path] = None

    def _mark_directories(self) -> None:
        """Mark the directories that were made: whoever is the last that needs one removes it, also after a kill.

        Each name that is made or removed in one takes its mark away. What somebody has put something into is theirs.
        """
        for path in reversed(self._directories):
            with suppress(OSError), os.scandir(path) as entries:
                if all(is_placeholder(entry.stat(follow_symlinks=False)) for entry in entries):
                    os.utime(path, ns=(PLACEHOLDER_TIME, PLACEHOLDER_TIME), follow_symlinks=False)

    def _hold(self, path: str) -> bool:
        # A program can lock what it can open, for ever. So only making a name needs the lock of its directory.
        with suppress(BlockingIOError), locked_directory(os.path.dirname(path)):
            if not os.path.lexists(path):
                _make(path)
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
            mine = os.fstat(fd)
            # Who removes it has locked it alone. If that came first, it is gone from its name.
            held = is_placeholder(mine) and os.path.samestat(mine, os.lstat(path))
        except OSError:
            os.close(fd)
            raise
        if held:
            self._held.append(_Held(path, fd))
        else:
            os.close(fd)  # somebody else made it: it is closed as it is
        return held


def _upwards(directory: str) -> Iterator[str]:
    while directory != (above := os.path.dirname(directory)):
        yield directory
        directory = above


def _is_marked(directory: str) -> bool:
    return is_placeholder(os.lstat(directory))


def _may_go(path: str) -> bool:
    """Whether a name is missing, or has a placeholder that another host may remove."""
    try:
        return is_placeholder(os.lstat(path))
    except OSError:
        return True


def _remove(path: str) -> None:
    """Remove a placeholder that was made while the program ran (see `cover_watch`)."""
    if is_placeholder(os.lstat(path)):
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            remove_placeholder(path, fd)
        finally:
            os.close(fd)


def placeholder_text(path: str) -> str | None:
    """What is in the file that stands for a closed name; None if a directory does."""
    name = os.path.basename(path)
    return _TEXTS.get(name, "") if _OF_FILES.fullmatch(name) else None


def _make(path: str) -> None:
    text = placeholder_text(path)
    if text is not None:
        fd = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        with os.fdopen(fd, "w") as file:
            file.write(text)
    else:
        os.mkdir(path, 0o700)
    os.utime(path, ns=(PLACEHOLDER_TIME, PLACEHOLDER_TIME), follow_symlinks=False)
