"""What licet itself runs outside of walls for a server: npm and pip with their settings, and version managers.

An attacker who can write these files chooses what `licet lock` installs, or which interpreter runs. They are found
from PATH, variables and files; nothing is started.
"""

import os
import re
import sys
from collections.abc import Iterable, Iterator
from contextlib import suppress

from licet.backends.packages.clients import client_environment
from licet.core.algebra.scope import inside
from licet.regular_files import read_regular

__all__ = ["npm_places", "pip_places", "shim_places"]

_MOST_BYTES = 1 << 20  # of a `.npmrc`, or of a shim
_ROOTS = (
    *("PYENV_ROOT", "ASDF_DIR", "ASDF_DATA_DIR", "MISE_DATA_DIR", "MISE_CONFIG_DIR", "VOLTA_HOME", "NVM_DIR"),
    *("NODENV_ROOT", "NODENV_DIR", "RBENV_ROOT", "PROTO_HOME", "FNM_DIR"),
)
_SHIM_SETTINGS = (".tool-versions", ".asdfrc", ".config/mise")
_NPM_SETTING = re.compile(r"\s*(prefix|globalconfig)\s*=\s*[\"']?(.*?)[\"']?\s*")
_STARTS = re.compile(r"^\s*exec\s+[\"']?([^\"'\s$]+)", re.MULTILINE)


def npm_places(npm: str, node: str, home: str) -> Iterator[str]:
    """The package that npm itself is, each file with its settings, and where Node looks for what npm does not have.

    `npm` and `node` are the paths at which they were found; empty if they were not.
    """
    prefixes = [os.path.dirname(os.path.dirname(one)) for one in (node, os.path.realpath(node)) if node]
    packages = [os.path.join(prefix, "lib", "node_modules", "npm") for prefix in prefixes]
    if npm:
        prefixes.append(os.path.dirname(os.path.dirname(npm)))
        package = os.path.dirname(os.path.dirname(os.path.realpath(npm)))
        if os.path.isfile(os.path.join(package, "package.json")):
            packages.append(package)
    stated = {name.lower(): value for name, value in client_environment().items() if value}
    user = stated.get("npm_config_userconfig") or (os.path.join(home, ".npmrc") if home else "")
    files = [user, stated.get("npm_config_globalconfig", "")]
    prefixes += filter(None, (os.environ.get("PREFIX"), stated.get("npm_config_prefix")))
    for name, value in _npm_settings(user):
        path = re.sub(r"^(~|\$\{HOME\})(?=/|$)", lambda _: home, value)
        (prefixes if name == "prefix" else files).append(path)
    files += (os.path.join(prefix, "etc", "npmrc") for prefix in prefixes)
    if home:
        files += (os.path.join(home, name) for name in (".node_modules", ".node_libraries"))
        if any(os.path.basename(package) == "corepack" for package in packages):
            files.append(os.environ.get("COREPACK_HOME") or os.path.join(home, ".cache", "node", "corepack"))
    yield from _narrow((*packages, *files), home)


def _npm_settings(file: str) -> Iterator[tuple[str, str]]:
    with suppress(OSError):
        for line in read_regular(file, _MOST_BYTES).decode("utf-8", "replace").splitlines():
            if found := _NPM_SETTING.fullmatch(line):
                yield found[1], found[2]


def pip_places(home: str) -> Iterator[str]:
    """Each place where pip looks for its settings."""
    settings = os.environ.get("XDG_CONFIG_HOME", "")
    shared = os.environ.get("XDG_CONFIG_DIRS") or "/etc/xdg"
    places = [os.environ.get("PIP_CONFIG_FILE", ""), os.path.join(sys.prefix, "pip.conf"), "/etc/pip.conf"]
    places += (os.path.join(folder, "pip") for folder in (settings, *shared.split(os.pathsep)) if folder)
    places += (os.path.join(home, name) for name in (".pip", ".config/pip") if home)
    if home and sys.platform == "darwin":
        places.append(os.path.join(home, "Library/Application Support/pip"))
    yield from _narrow((place for place in places if place != os.devnull), home)


def shim_places(program: str, home: str) -> Iterator[str]:
    """If a program on PATH is only a shim: the version manager behind it, its interpreters and its settings."""
    if not os.path.lexists(program):
        return
    real = os.path.realpath(program)
    shims = [path for path in (program, real) if os.path.basename(os.path.dirname(path)) == "shims"]
    shims += [program] if os.path.basename(real) == "volta-shim" else []
    named = [os.environ[name] for name in _ROOTS if os.environ.get(name)]
    if shims:
        roots = [os.path.dirname(os.path.dirname(shim)) for shim in shims]
        settings = (os.path.join(home, name) for name in _SHIM_SETTINGS if home)
        yield from _narrow((*roots, *named, *settings, real, *_started_by(real)), home)
    else:  # nvm and others have no shims: they put a version on PATH
        yield from _narrow((root for root in named if inside(program, (root,))), home)


def _started_by(shim: str) -> Iterator[str]:
    """The programs that a shim names after `exec`, each of them wherever PATH has it."""
    with suppress(OSError):
        for word in _STARTS.findall(read_regular(shim, _MOST_BYTES).decode("utf-8", "replace")):
            folders = [""] if "/" in word else os.environ.get("PATH", os.defpath).split(os.pathsep)
            paths = (os.path.join(folder, word) for folder in folders)
            yield from (path for path in paths if os.path.isfile(path))


def _narrow(places: Iterable[str], home: str) -> Iterator[str]:
    """Only absolute paths, and none that the home directory is in: what else is there has nothing to do with it."""
    for place in places:
        if os.path.isabs(place) and (path := os.path.normpath(place)) != "/" and not (home and inside(home, (path,))):
            yield path
