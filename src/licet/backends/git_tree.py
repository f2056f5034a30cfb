"""Reads the policy and source files of a git revision into a directory of its own, without running anything of it.

Nothing is checked out. Only the name of the revision is resolved in the repository. Its objects are then read by way of
an empty repository that borrows its object store, so neither hooks, filters, attributes nor the configuration of the
repository count, and nothing is fetched. Links and submodules are left out: a link could lead anywhere.
"""

import os
import re
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePosixPath

from msgspec import Struct

from licet.backends.packages.clients import find_on_path
from licet.core.algebra.scope import visible

__all__ = ["GitError", "Revision", "export_revision", "find_revision"]

_SUFFIXES = (".yaml", ".yml", ".json", ".py", ".lock")  # policy files, source of tools, licet.lock
_MOST_FILES = 50_000
_MOST_BYTES = 512 << 20
_LARGEST = 8 << 20  # of one file; no policy and no source that licet reads is as large
_SECONDS = 60
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


class Revision(Struct, frozen=True):
    """A commit of a repository, and the directory that commands run in as seen from its root."""

    name: str  # as it was typed
    commit: str
    objects: Path
    prefix: str  # empty, or ending in `/`
    top: Path  # the directory that the prefix is in


def find_revision(name: str, directory: Path) -> Revision | None:
    """The commit that a name means in the repository of a directory; None if there is no such commit or no git."""
    # A colon would name a file, or search; a leading dash would be an option.
    if not name or name.startswith("-") or ":" in name or "\0" in name or find_on_path("git") is None:
        return None
    try:
        found = _git(("rev-parse", "--verify", "--quiet", "--end-of-options", f"{name}^{{commit}}"), directory)
        places = ("rev-parse", "--path-format=absolute", "--git-path", "objects", "--show-prefix", "--show-toplevel")
        objects, prefix, top = _git(places, directory).decode("utf-8", "surrogateescape").split("\n")[:3]
    except (GitError, ValueError):
        return None
    return Revision(name, found.decode("ascii").strip(), Path(objects), prefix, Path(top))


def export_revision(revision: Revision, directory: Path, below: str, target: Path) -> tuple[str, ...]:
    """Write the files of a revision below a path to an empty directory; the paths that were left out are returned.

    `below` is a path inside the repository, empty for all of it. Files keep their paths inside the repository.
    """
    store = _empty_repository(revision, directory)
    entries = list(_listed(store, revision, below))
    left_out = [path for mode, _, path in entries if mode in ("120000", "160000")]
    wanted = [(blob, path) for mode, blob, path in entries if mode in ("100644", "100755") and path.endswith(_SUFFIXES)]
    if len(wanted) > _MOST_FILES:
        raise GitError(f"{revision.name} has {len(wanted)} policy and source files, expected at most {_MOST_FILES}")
    for (_, path), data in zip(wanted, _contents(store, [blob for blob, _ in wanted]), strict=True):
        if data is None:
            left_out.append(path)
        else:
            _write(target, path, data, revision)
    return tuple(left_out)


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


def _listed(store: Path, revision: Revision, below: str) -> Iterator[tuple[str, str, str]]:
    """The mode, the object and the path of each entry below a path."""
    words = ["ls-tree", "-r", "-z", "--full-tree", revision.commit]
    if below:
        words += ["--", below]
    for line in _git(words, store, own=True).split(b"\0")[:-1]:
        about, _, path = line.partition(b"\t")
        mode, _, blob = about.decode("ascii").split(" ")
        yield mode, blob, path.decode("utf-8", "surrogateescape")


def _contents(store: Path, blobs: Sequence[str]) -> Iterator[bytes | None]:
    """The bytes of each object, unchanged; None for one that is too large or missing."""
    sizes = _git(("cat-file", "--batch-check"), store, own=True, text="".join(f"{blob}\n" for blob in blobs))
    lines = [line.split(" ") for line in sizes.decode("ascii").splitlines()]
    small = [len(words) == 3 and words[1] == "blob" and int(words[2]) <= _LARGEST for words in lines]
    if sum(int(words[2]) for words, fits in zip(lines, small, strict=True) if fits) > _MOST_BYTES:
        raise GitError(f"the policy and source files have more than {_MOST_BYTES >> 20} MiB")
    asked = "".join(f"{blob}\n" for blob, fits in zip(blobs, small, strict=True) if fits)
    data, place = _git(("cat-file", "--batch"), store, own=True, text=asked), 0
    for fits, words in zip(small, lines, strict=True):
        if not fits:
            yield None
            continue
        start = data.index(b"\n", place) + 1
        yield data[start : start + int(words[2])]
        place = start + int(words[2]) + 1


def _write(target: Path, path: str, data: bytes, revision: Revision) -> None:
    parts = PurePosixPath(path).parts
    # A tree that git itself did not write may have such names.
    if path.startswith("/") or not parts or {"..", ".", ""} & set(path.split("/")) or "\\" in path:
        raise GitError(f"{revision.name} has a file called {visible(path)}, which is no path below its root")
    place = target.joinpath(*parts)
    try:
        place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        number = os.open(place, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0), 0o600)
    except OSError as error:
        raise GitError(f"{revision.name}: {visible(path)} cannot be written: {error.strerror}") from None
    with os.fdopen(number, "wb") as file:
        file.write(data)


def _git(words: Sequence[str], directory: Path, *, own: bool = False, text: str = "") -> bytes:
    """Run git in a directory; `own` says that it is the empty repository, for which no configuration counts."""
    program = find_on_path("git")
    if program is None:
        raise GitError("git is not installed")
    environment = {name: value for name, value in os.environ.items() if not _LEFT_OUT.fullmatch(name)} | _SAFE
    flags = ["--no-pager", "-c", "core.fsmonitor=false", "-c", f"core.hooksPath={os.devnull}"]
    if own:
        environment |= {"GIT_DIR": str(directory), "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}
        environment = {name: value for name, value in environment.items() if not name.startswith("GIT_CONFIG_COUNT")}
    try:
        done = subprocess.run(  # noqa: S603 - git, and words that are options of ours, object names or paths after `--`
            [program, *flags, *words],
            cwd=directory,
            env=environment,
            input=text.encode("ascii"),
            capture_output=True,
            check=False,
            timeout=_SECONDS,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise GitError(f"git cannot be run: {error}") from None
    if done.returncode:
        lines = done.stderr.decode("utf-8", "replace").strip().splitlines()
        raise GitError(f"git failed: {visible(lines[-1]) if lines else done.returncode}")
    return done.stdout
