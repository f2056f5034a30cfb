"""Lists the files that a server's code is loaded from. An attacker who can write one of them controls the server.

These are the files of the command itself, the virtual environment and the libraries of its interpreter, and every place
where Python or Node would find a module, also one that is not there yet, and what licet runs itself to install a
package. Only files are read, nothing is started: of a version manager on PATH, which would have to be asked, it is
every version of the interpreter that it has installed.

Not found are most places that a program chooses while it runs: a directory that a script puts on its path, unless it is
its own, a name of a module that is computed, or the files that a shell script starts. `servers.NAME.code` closes those.

The files in the directories that `servers.NAME.code` names: a digest of each, for the lock and at each start.

Compiled files in `__pycache__` are left out: they differ from machine to machine, and Python is told not to use them.
"""

import ast
import hashlib
import os
import re
import stat
from collections.abc import Iterator, Mapping
from contextlib import suppress
from glob import escape, glob
from importlib.machinery import EXTENSION_SUFFIXES
from itertools import islice
from pathlib import PurePath

from msgspec import Struct

from licet.core.algebra.scope import inside, visible
from licet.own_files import NotRegular, read_regular
from licet.packages.clients import is_native, npm_places, pip_places, shim_places
from licet.packages.launchers import Launch, environment_of, interpreter, is_python, settings_of, site_directories
from licet.packages.limits import (
    LARGEST_SCRIPT,
    MOST_CODE_BYTES,
    MOST_CODE_FILES,
    MOST_PTH,
    MOST_SITE_ENTRIES,
    MOST_VERSIONS,
)
from licet.packages.node_modules import node_places, option_places, searched_above
from licet.packages.package_store import PackageError, file_digest
from licet.packages.programs import first_line

__all__ = ["Interpreters", "StartedFrom", "code_difference", "code_digests", "started_from"]

# Variables that name places from which the loader, an interpreter or a shell takes code.
_VARIABLES = re.compile(
    r"PYTHON(PATH|HOME|USERBASE|PYCACHEPREFIX)|NODE_(PATH|OPTIONS)|LD_(PRELOAD|AUDIT|LIBRARY_PATH)|"
    r"PERL5?(LIB|OPT)|RUBY(LIB|OPT)|GEM_(HOME|PATH)|BASH_ENV|ZDOTDIR"
)
_IN_OPTIONS = re.compile(r"(?:^|[\s=:;\"])(?:-[A-Za-z])?(\.{0,2}/[^\s:;\"]*)")
# What else a program loads or starts by itself, in the home directory of the user.
_AT_HOME = {
    "ruby": (".gem", ".local/share/gem"),
    "zsh": (".zshenv", ".zshenv.zwc"),
    "docker": (".docker",),
    "podman": (".config/containers",),
}
# The code of a version manager, and the versions that it has installed: pyenv, nodenv, asdf and mise.
_MANAGER = ("bin", "lib", "libexec", "plugins", "pyenv.d", "nodenv.d", "shims", "versions", "installs", "version")
# What tells a version manager which version to start; some of these files may name any directory instead.
_CHOOSES_VERSION = (".python-version", ".node-version", ".nvmrc", ".tool-versions", "mise.toml", ".mise.toml")


class StartedFrom(Struct, frozen=True):
    """The paths of one server: its own, and the prefixes of interpreters, which other programs use too."""

    own: tuple[str, ...] = ()
    prefixes: tuple[str, ...] = ()
    sites: tuple[str, ...] = ()  # those of `own` that have installed distributions


class _Python(Struct, frozen=True):
    """An interpreter: its environment, the prefixes of Python itself, and the places where it finds distributions."""

    own: tuple[str, ...]
    prefixes: tuple[str, ...]
    sites: tuple[str, ...]


Interpreters = dict[tuple[str, str, str], _Python]  # that were looked at: a policy may have many servers on one


def started_from(
    launch: Launch,
    directory: str,
    home: str,
    environ: Mapping[str, str],
    store: str = "",
    known: Interpreters | None = None,
) -> StartedFrom:
    """What a server is started from.

    Paths in its command are relative to `directory`. `environ` are the variables that it gets, and `store` is the
    package store. The paths need not exist.
    """
    own, starters, script = _command(launch, directory, store)
    own += _installers(launch, starters, directory, home)
    own += [place for path in own for place in shim_places(path, home)]
    own += launch.code
    own += (*_named_by(environ, directory), *option_places(environ.get("NODE_OPTIONS", ""), directory, home))
    pythons: list[_Python] = []
    name = os.path.basename(starters[0]) if starters else ""
    if is_python(name):
        user = "" if {"-I", "-s"} & {*launch.interpreter} else _user_base(home, environ)
        known = known if known is not None else {}
        for key in ((starter, directory, user) for starter in starters):
            known[key] = known.get(key) or _python(*key)
            pythons.append(known[key])
        own += (place for python in pythons for place in python.own)
        compiled = (word for word in launch.interpreter if word.startswith("pycache_prefix="))
        own += (os.path.join(directory, word.partition("=")[2]) for word in compiled)
        own += _added_by(script) if script else ()
    elif interpreter(name) == "node" and script:
        own += node_places(script, home) if launch.kind == "file" else searched_above(script)
        bases = (os.path.dirname(os.path.dirname(os.path.realpath(starter))) for starter in starters)
        own += (os.path.join(base, "lib", "node") for base in bases)
    own += (os.path.join(home, place) for place in _AT_HOME.get(interpreter(name) or name, ()) if home)
    prefixes = (prefix for python in pythons for prefix in python.prefixes)
    sites = (site for python in pythons for site in python.sites)
    return StartedFrom(tuple(dict.fromkeys(own)), tuple(dict.fromkeys(prefixes)), tuple(dict.fromkeys(sites)))


def _command(launch: Launch, directory: str, store: str) -> tuple[list[str], list[str], str]:
    """The files that a command names, the interpreters that it may mean, and its script; empty if it has none."""
    if launch.kind == "npm":
        own, node = _found("node", directory)
        return own, node, os.path.join(store, "npm", launch.package, "index.js")
    if launch.kind == "pypi":  # licet's own interpreter starts it, with `-I`, from the package store
        return [], [], ""
    if launch.interpreter or launch.kind == "docker":
        own, starters = _found(launch.interpreter[0] if launch.interpreter else launch.program, directory)
        is_script = launch.kind == "file" and launch.interpreter[-1] != "-m"
        script = os.path.join(directory, launch.program) if is_script else ""
        return [*own, *filter(None, (script,))], starters, script
    own, found = _found(launch.program, directory)
    script = found[0] if found else ""
    with suppress(PackageError):
        if word := first_line(os.path.realpath(script))[0]:
            searched, starters = _found(os.path.join("/", word) if "/" in word else word, directory)
            return [*own, *searched], starters, script
    return own, [], script


def _installers(launch: Launch, nodes: list[str], directory: str, home: str) -> list[str]:
    """What licet runs itself, outside of walls, to install the package of a launcher."""
    if launch.kind == "npm":
        own, npms = _found("npm", directory)
        found = (npm_places(npm, node, home) for npm in npms[:1] or [""] for node in nodes or [""])
        return [*own, *(place for places in found for place in places)]
    return [*pip_places(home)] if launch.kind == "pypi" else []


def _found(word: str, directory: str) -> tuple[list[str], list[str]]:
    """Every path that decides what a word of a command means, and the programs that it may mean now."""
    if "/" in word:
        path = os.path.abspath(os.path.join(directory, word))
        return [path], [path]
    own: list[str] = []
    managed: list[str] = []
    scripts: list[str] = []
    is_known = interpreter(word) in ("python", "node")
    for folder in filter(os.path.isabs, os.environ.get("PATH", os.defpath).split(os.pathsep)):
        path = os.path.join(folder, word)
        own.append(path)
        if not os.access(path, os.X_OK) or not os.path.isfile(path):
            continue
        if is_known and os.path.basename(folder) == "shims":  # it starts one of its versions, or what comes later
            manager = os.path.dirname(folder)
            managed += _installed(manager, word)
            own += (os.path.join(manager, part) for part in _MANAGER)
            own += (os.path.join(place, name) for place in _above(directory) for name in _CHOOSES_VERSION)
        elif not is_known or is_native(path):
            return [*own, *managed], [path, *managed]
        scripts.append(path)
    return [*own, *managed], managed or scripts  # if nothing else is known, at least which interpreter it is


def _installed(manager: str, word: str) -> list[str]:
    """The versions of an interpreter in the directory of a version manager."""
    places = (f"{escape(manager)}/{inner}/bin/{word}" for inner in ("versions/*", "installs/*/*"))
    return sorted(path for place in places for path in glob(place))[:MOST_VERSIONS]


def _above(directory: str) -> list[str]:
    """A directory, and those above it."""
    return [directory, *map(str, PurePath(directory).parents)]


def _named_by(environ: Mapping[str, str], directory: str) -> Iterator[str]:
    """The places that variables of a server name; some have them among other words."""
    for name, value in environ.items():
        if not _VARIABLES.fullmatch(name) or not value:
            continue
        if name.endswith(("PATH", "LIB")):  # an empty word is the current directory
            words = re.split(r"[:;]", value)
        elif name.startswith("LD_"):  # without a `/` it is a library of the system
            words = [word for word in re.split(r"[:\s]", value) if "/" in word]
        elif name.endswith(("OPT", "OPTIONS")):  # a word that is no path cannot be told from one
            words = _IN_OPTIONS.findall(value)
        else:
            words = [value, *filter(None, value.split(os.pathsep))]
        yield from (os.path.normpath(os.path.join(directory, word)) for word in words)


# Python ---------------------------------------------------------------------------------------------------------------


def _python(python: str, directory: str, user: str) -> _Python:
    above = os.path.dirname(os.path.dirname(python))
    own = [python, f"{python}._pth", os.path.join(os.path.dirname(python), "pyvenv.cfg")]
    own.append(os.path.join(above, "pyvenv.cfg"))
    environment = environment_of(python)
    if not os.path.exists(python) and not f"{directory}/".startswith(f"{above}/"):
        environment = above  # it may be made later
    settings = settings_of(environment) if environment else {}
    base = [os.path.dirname(os.path.dirname(os.path.realpath(python)))]
    base += [os.path.dirname(settings["home"])] if os.path.isabs(settings.get("home", "")) else []
    sites: list[str] = []
    if environment:
        own.append(environment)
        sites += site_directories(environment)
        base = [prefix for prefix in base if prefix != os.path.realpath(environment)]
    if not environment or settings.get("include-system-site-packages", "").lower() == "true":
        sites += [site for prefix in base for site in site_directories(prefix)]
        sites += site_directories("/usr/local") if "/usr" in base else ()
        sites += [f"{user}/lib/{name}/site-packages" for prefix in base for name in _versions(prefix)] if user else ()
    own += (*sites, *(place for site in sites for place in (*_added_by_pth(site), *_linked_into(site))))
    return _Python(tuple(own), tuple(dict.fromkeys(base)), tuple(sites))


def _user_base(home: str, environ: Mapping[str, str]) -> str:
    return environ.get("PYTHONUSERBASE") or (os.path.join(home, ".local") if home else "")


def _versions(prefix: str) -> list[str]:
    return sorted({os.path.basename(path) for path in glob(f"{escape(prefix)}/lib*/py*3.*")})


def _added_by_pth(site: str) -> Iterator[str]:
    """The directories that `.pth` files put on the import path, and the packages that are installed as editable."""
    for file in sorted(glob(f"{escape(site)}/*.pth"))[:MOST_PTH]:
        for line in _lines(file)[:MOST_PTH]:
            if line.startswith(("import ", "import\t")):
                for name in re.findall(r"\b__editable__\w+_finder\b", line):
                    yield from _editable(os.path.join(site, f"{name}.py"))
            elif line and not line.startswith("#"):
                yield os.path.normpath(os.path.join(site, line))


def _linked_into(site: str) -> Iterator[str]:
    """The packages and modules that are only linked into a directory of distributions."""
    with suppress(OSError), os.scandir(site) as entries:
        links = (os.path.realpath(one.path) for one in islice(entries, MOST_SITE_ENTRIES) if one.is_symlink())
        yield from (path for path in links if not inside(path, (os.path.realpath(site),)))


def _added_by(script: str) -> Iterator[str]:
    """The directory of a script that probably puts it on the import path itself, as many do."""
    text = "\n".join(_lines(script))
    if "__file__" in text and re.search(r"\bsys\s*\.\s*path\b|\bfrom\s+sys\s+import\b|addsitedir", text):
        yield os.path.dirname(os.path.realpath(script))


def _lines(file: str) -> list[str]:
    with suppress(OSError):
        return [line.strip() for line in read_regular(file, LARGEST_SCRIPT).decode("utf-8", "replace").splitlines()]
    return []


def _editable(finder: str) -> Iterator[str]:
    """The packages and modules that the finder of an editable installation leads to."""
    with suppress(OSError, SyntaxError, ValueError, RecursionError, MemoryError):
        for node in ast.parse(read_regular(finder, LARGEST_SCRIPT)).body:
            targets = node.targets if isinstance(node, ast.Assign) else []
            targets = [node.target] if isinstance(node, ast.AnnAssign) else targets
            if any(isinstance(one, ast.Name) and one.id in ("MAPPING", "NAMESPACES") for one in targets):
                assert isinstance(node, ast.Assign | ast.AnnAssign)  # noqa: S101 - only these have targets
                for value in ast.literal_eval(node.value or "{}").values():
                    for path in (value,) if isinstance(value, str) else value:
                        yield path
                        yield from (
                            () if os.path.isdir(path) else (f"{path}{end}" for end in (".py", *EXTENSION_SUFFIXES))
                        )


def code_digests(directory: str) -> dict[str, str]:
    """The digest of each file below a directory, by its relative path; of a link, the digest of where it leads.

    Raises `PackageError` for what cannot be pinned: a link that leads out of the directory, a pipe, too many files.
    """
    root = os.path.realpath(directory)
    if not os.path.isdir(root):
        raise PackageError(f"`{visible(directory)}` is no directory: `code` names the directory of a server's files")
    found: dict[str, str] = {}
    size = 0
    for path, about in _files(root):
        size += about.st_size
        if len(found) >= MOST_CODE_FILES or size > MOST_CODE_BYTES:
            raise PackageError(
                f"`{visible(directory)}` has more than {MOST_CODE_FILES} files or {MOST_CODE_BYTES >> 20} MB: "
                "name the directory that has the server's own files alone"
            )
        found[os.path.relpath(path, root)] = _digest(path, about, root)
    return dict(sorted(found.items()))


def code_difference(locked: Mapping[str, str], now: Mapping[str, str]) -> str:
    """The first file that differs, with how; empty if none does."""
    for name in sorted(locked.keys() | now.keys()):
        if locked.get(name) != now.get(name):
            what = "is missing" if name not in now else "is new" if name not in locked else "is different"
            return f"`{visible(name)}` {what}"
    return ""


def _files(root: str) -> Iterator[tuple[str, os.stat_result]]:
    left = [root]
    while left:
        folder = left.pop()
        is_cache = os.path.basename(folder) == "__pycache__"
        try:
            with os.scandir(folder) as entries:
                for entry in entries:
                    if entry.is_dir(follow_symlinks=False):
                        left.append(entry.path)
                    elif not (is_cache and entry.name.endswith(".pyc")):
                        yield entry.path, entry.stat(follow_symlinks=False)
        except OSError as wrong:
            raise PackageError(f"{visible(folder)} cannot be read: {wrong.strerror}") from wrong


def _digest(path: str, about: os.stat_result, root: str) -> str:
    try:
        if stat.S_ISLNK(about.st_mode):
            if not inside(os.path.realpath(path), (root,)):
                raise PackageError(f"the link {visible(path)} leads out of the code of the server: put a copy there")
            return f"sha256:{hashlib.sha256(os.fsencode(f'link to {os.readlink(path)}')).hexdigest()}"
        if not stat.S_ISREG(about.st_mode):
            raise NotRegular(None, "it is no regular file")
        return file_digest(path)
    except OSError as wrong:
        raise PackageError(f"{visible(path)} cannot be read: {wrong.strerror}") from wrong
