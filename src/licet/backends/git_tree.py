"""Reads the policy and source files of a git revision into a directory of its own, without running anything of it.

Nothing is checked out. Only the name of the revision is resolved in the repository. Its objects are then read by way of
an empty repository that borrows its object store, so neither hooks, filters, attributes nor the configuration of the
repository count, and nothing is fetched. Links and submodules are left out: a link could lead anywhere. A small
repository can describe a tree with billions of files, so the list of them is read piece by piece, up to a limit.
"""

import os
import re
import subprocess
import tempfile
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO

from msgspec import Struct

from licet.backends.limits import (
    DEEPEST_FILE,
    EXPORT_SECONDS,
    FIND_SECONDS,
    LARGEST_FILE,
    LARGEST_MODULE,
    LONGEST_TREE_PATH,
    MOST_EXPORTED_BYTES,
    MOST_EXPORTED_FILES,
    MOST_MODULES_BYTES,
    MOST_TREE_BYTES,
    MOST_TREE_ENTRIES,
)
from licet.core.algebra.scope import visible
from licet.own_files import find_on_path

__all__ = ["GitError", "LeftOut", "Revision", "export_revision", "find_revision"]

_MODULE = ".wasm"
_SUFFIXES = (".yaml", ".yml", ".json", ".py", ".lock", _MODULE)  # policy files, source of tools, licet.lock, modules
# Variables that choose another repository, or make git run something.
_LEFT_OUT = re.compile(r"GIT_(?!CONFIG_(GLOBAL|SYSTEM|NOSYSTEM|COUNT|KEY_\d+|VALUE_\d+)$|CEILING_DIRECTORIES$).*")
_SAFE = {
    "GIT_ALLOW_PROTOCOL": "none",  # a partial clone would fetch missing objects, with a command of its configuration
    "GIT_LITERAL_PATHSPECS": "1",
    "GIT_NO_LAZY_FETCH": "1",
    "GIT_NO_REPLACE_OBJECTS": "1",
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_TERMINAL_PROMPT": "0",
    "LC_ALL": "C",
}


class GitError(Exception):
    """A revision that cannot be read; the text is for a person."""


class OutOfTime(GitError):
    """No answer of git in time."""


class Revision(Struct, frozen=True):
    """A commit of a repository, and the directory that commands run in as seen from its root."""

    name: str  # as it was typed
    commit: str
    objects: Path
    prefix: str  # empty, or ending in `/`
    top: Path  # the directory that the prefix is in


class LeftOut(Struct, frozen=True):
    """A file or a directory of a revision that was not written, and the reason."""

    path: str
    why: str  # completes the sentence that begins with the path

    @property
    def may_be_policy(self) -> bool:
        """Whether it could be a policy file. Policy files are small, and a submodule is a directory."""
        return self.why in (_LINK, _MISSING)


_LINK, _SUBMODULE = "is a link, which is not followed", "is a submodule, which is not read"
_MISSING, _LARGE = "is missing in this clone", f"has more than {LARGEST_FILE >> 20} MiB"
_LARGE_MODULE = f"is larger than {LARGEST_MODULE >> 20} MiB, or one of modules of {MOST_MODULES_BYTES >> 20} MiB"


def find_revision(name: str, directory: Path) -> Revision | None:
    """The commit that a name means in the repository of a directory; None if there is no such commit or no git.

    Raises `GitError` if git does not answer: a file of the repository may be a named pipe.
    """
    # A colon would name a file, or search; a leading dash would be an option.
    if not name or name.startswith("-") or ":" in name or "\0" in name or find_on_path("git") is None:
        return None
    try:
        words = ("rev-parse", "--verify", "--quiet", "--end-of-options", f"{name}^{{commit}}")
        found = _git(words, directory, seconds=FIND_SECONDS)
        places = ("rev-parse", "--path-format=absolute", "--git-path", "objects", "--show-prefix", "--show-toplevel")
        said = _git(places, directory, seconds=FIND_SECONDS)
        objects, prefix, top = said.decode("utf-8", "surrogateescape").split("\n")[:3]
    except OutOfTime:
        raise
    except (GitError, ValueError):
        return None
    return Revision(name, found.decode("ascii").strip(), Path(objects), prefix, Path(top))


def export_revision(revision: Revision, directory: Path, below: str, target: Path) -> tuple[LeftOut, ...]:
    """Write the files of a revision below a path to an empty directory, and return what was left out.

    `below` is a path inside the repository, empty for all of it. Files keep their paths inside the repository. What is
    left out may also be a directory around `below`.
    """
    store = _empty_repository(revision, directory)
    left_out = list(_links_among(store, revision, _around(below)))
    wanted: list[tuple[str, str]] = []
    for mode, blob, path in _listed(store, revision, below):
        if why := _why_unread(mode):
            left_out.append(LeftOut(path, why))
        elif path.lower().endswith(_SUFFIXES):
            wanted.append((blob, path))
        if max(len(wanted), len(left_out)) > MOST_EXPORTED_FILES:
            raise GitError(f"it has more than {MOST_EXPORTED_FILES:,} policy and source files, or links")
    for (_, path), data in zip(wanted, _contents(store, wanted), strict=True):
        if isinstance(data, str):
            left_out.append(LeftOut(path, data))
        else:
            _write(target, path, data)
    return tuple(dict.fromkeys(left_out))


def _links_among(store: Path, revision: Revision, paths: Sequence[str]) -> Iterator[LeftOut]:
    """Those of some paths that are links or submodules."""
    if paths:
        entries = _listed(store, revision, *paths, deep=False)
        yield from (LeftOut(path, why) for mode, _, path in entries if path in paths and (why := _why_unread(mode)))


def _around(path: str) -> list[str]:
    """A path and all directories around it."""
    parts = path.split("/") if path else []
    return ["/".join(parts[:number]) for number in range(1, len(parts) + 1)]


def _why_unread(mode: str) -> str:
    # Trees of old versions of git have modes such as 100664.
    return "" if mode.startswith(("100", "040")) else _LINK if mode == "120000" else _SUBMODULE


def _empty_repository(revision: Revision, directory: Path) -> Path:
    """A repository without refs, configuration, hooks and attributes that reads the objects of another one."""
    store = directory / "empty.git"
    for name in ("refs", "objects/info"):
        (store / name).mkdir(parents=True)
    (store / "HEAD").write_text("ref: refs/heads/none\n")
    sha256 = len(revision.commit) == 64
    hashes = "[extensions]\n\tobjectFormat = sha256\n" if sha256 else ""
    (store / "config").write_text(
        f"[core]\n\trepositoryFormatVersion = {int(sha256)}\n\tbare = true\n{hashes}", encoding="utf-8"
    )
    if "\n" in str(revision.objects) or str(revision.objects).startswith('"'):
        raise GitError(f"{visible(str(revision.objects))} is no path that git can borrow objects from")
    (store / "objects/info/alternates").write_text(f"{revision.objects}\n", encoding="utf-8", errors="surrogateescape")
    return store


def _listed(store: Path, revision: Revision, *below: str, deep: bool = True) -> Iterator[tuple[str, str, str]]:
    """The mode, the object and the path of each entry below a path, or of some paths themselves."""
    paths = [path for path in below if path]
    words = ["ls-tree", "-z", "--full-tree", "-r" if deep else "-t", revision.commit, "--", *paths]
    for number, line in enumerate(_git_lines(words, store)):
        if number >= MOST_TREE_ENTRIES:
            raise GitError(f"it has more than {MOST_TREE_ENTRIES:,} files")
        about, _, path = line.partition(b"\t")
        mode, _, blob = about.decode("ascii").split(" ")
        yield mode, blob, path.decode("utf-8", "surrogateescape")


def _contents(store: Path, wanted: Sequence[tuple[str, str]]) -> Iterator[bytes | str]:
    """The bytes of each object, unchanged; the reason for one that is left out."""
    blobs = [blob for blob, _ in wanted]
    sizes = _git(("cat-file", "--batch-check"), store, own=True, text="".join(f"{blob}\n" for blob in blobs))
    lines = [line.split(" ") for line in sizes.decode("ascii").splitlines()]
    known = [int(words[2]) if len(words) == 3 and words[1] == "blob" else None for words in lines]
    modules = [path.lower().endswith(_MODULE) for _, path in wanted]
    small = list(_small(known, modules))
    if sum(int(words[2]) for words, fits in zip(lines, small, strict=True) if fits) > MOST_EXPORTED_BYTES:
        raise GitError(f"the policy and source files have more than {MOST_EXPORTED_BYTES >> 20} MiB")
    asked = "".join(f"{blob}\n" for blob, fits in zip(blobs, small, strict=True) if fits)
    data, place = _git(("cat-file", "--batch"), store, own=True, text=asked), 0
    for fits, words, is_module in zip(small, lines, modules, strict=True):
        if not fits:
            large = _LARGE_MODULE if is_module else _LARGE
            yield large if words[1:2] == ["blob"] else _MISSING
            continue
        start = data.index(b"\n", place) + 1
        yield data[start : start + int(words[2])]
        place = start + int(words[2]) + 1


def _small(sizes: Sequence[int | None], modules: Sequence[bool]) -> Iterator[bool]:
    """Which objects are read, by their sizes and whether they are WebAssembly modules."""
    left = MOST_MODULES_BYTES
    for size, is_module in zip(sizes, modules, strict=True):
        fits = size is not None and size <= (min(LARGEST_MODULE, left) if is_module else LARGEST_FILE)
        left -= size if fits and is_module and size is not None else 0
        yield fits


def _write(target: Path, path: str, data: bytes) -> None:
    parts = path.split("/")
    # A tree that git itself did not write may have such names.
    if {"..", ".", ""} & set(parts) or "\\" in path:
        raise GitError(f"it has a file called {visible(path)}, which is no path below its root")
    if len(parts) > DEEPEST_FILE:
        raise GitError(f"it has a file below more than {DEEPEST_FILE} directories: {visible(path[:80])} …")
    place = target.joinpath(*parts)
    try:
        place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        number = os.open(place, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0), 0o600)
    except OSError as error:
        raise GitError(f"{visible(path)} cannot be written: {error.strerror}") from None
    with os.fdopen(number, "wb") as file:
        file.write(data)


def _git(
    words: Sequence[str], directory: Path, *, own: bool = False, text: str = "", seconds: float = EXPORT_SECONDS
) -> bytes:
    """Run git in a directory; `own` says that it is the empty repository, for which no configuration counts."""
    command, environment = _command(words, directory, own=own)
    try:
        done = subprocess.run(  # noqa: S603 - git, and words that are options of ours, object names or paths after `--`
            command,
            cwd="/",
            env=environment,
            input=text.encode("ascii"),
            capture_output=True,
            check=False,
            timeout=seconds,
        )
    except subprocess.TimeoutExpired:
        raise OutOfTime(f"git took more than {seconds} s") from None
    except OSError as error:
        raise GitError(f"git cannot be run: {error}") from None
    if done.returncode:
        raise GitError(_failure(done.stderr, done.returncode))
    return done.stdout


def _git_lines(words: Sequence[str], store: Path) -> Iterator[bytes]:
    """The lines that git prints in the empty repository, each ended by a NUL. git is stopped when nobody reads on."""
    command, environment = _command(words, store, own=True)
    with tempfile.TemporaryFile() as said:
        try:
            git = subprocess.Popen(  # noqa: S603 - as above
                command, cwd="/", env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=said
            )
        except OSError as error:
            raise GitError(f"git cannot be run: {error}") from None
        timer = threading.Timer(EXPORT_SECONDS, git.kill)
        timer.daemon = True
        timer.start()
        try:
            assert git.stdout is not None  # noqa: S101 - it is a pipe
            yield from _pieces(git.stdout)
            code = git.wait()
        finally:
            out_of_time = not timer.is_alive()
            timer.cancel()
            git.kill()
            git.wait()
            git.stdout and git.stdout.close()
        if code:
            said.seek(0)
            raise GitError(
                f"git took more than {EXPORT_SECONDS} s" if out_of_time else _failure(said.read(1 << 16), code)
            )


def _pieces(pipe: IO[bytes]) -> Iterator[bytes]:
    rest, count = b"", 0
    while data := pipe.read(1 << 16):
        count += len(data)
        if count > MOST_TREE_BYTES:
            raise GitError(f"the list of its files has more than {MOST_TREE_BYTES >> 20} MiB")
        *lines, rest = (rest + data).split(b"\0")
        if len(rest) > LONGEST_TREE_PATH:
            raise GitError("it has a file with a name that no system accepts")
        yield from lines


def _command(words: Sequence[str], directory: Path, *, own: bool) -> tuple[list[str], dict[str, str]]:
    """The command line, for any current directory, and the environment of git.

    The `git` on PATH may be a version manager's, which starts what a file of the current directory says.
    """
    program = find_on_path("git")
    if program is None:
        raise GitError("git is not installed")
    environment = {name: value for name, value in os.environ.items() if not _LEFT_OUT.fullmatch(name)} | _SAFE
    flags = ["--no-pager", "-c", "core.fsmonitor=false", "-c", f"core.hooksPath={os.devnull}"]
    if own:
        environment |= {
            "GIT_DIR": os.path.abspath(directory),
            "GIT_CONFIG_GLOBAL": os.devnull,
            "GIT_CONFIG_NOSYSTEM": "1",
        }
        environment = {name: value for name, value in environment.items() if not name.startswith("GIT_CONFIG_COUNT")}
    return [program, "-C", os.path.abspath(directory), *flags, *words], environment


def _failure(said: bytes, code: int) -> str:
    lines = said.decode("utf-8", "replace").strip().splitlines()
    return f"git failed: {visible(lines[-1]) if lines else code}"
