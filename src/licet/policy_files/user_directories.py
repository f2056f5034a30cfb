"""The directories of this user: the home directory, and those for the state, the data and the cache of licet."""

import os
from pathlib import Path

from licet.errors import LicetError

_BELOW_HOME = {"XDG_STATE_HOME": ".local/state", "XDG_DATA_HOME": ".local/share", "XDG_CACHE_HOME": ".cache"}


class NoHome(LicetError):
    """This user has no directory to keep state in."""

    def __init__(self) -> None:
        super().__init__("this user has no home directory to keep state in: say where, or set XDG_STATE_HOME")


def home_directory() -> str:
    """The home directory of this user; empty if there is none."""
    try:
        home = str(Path.home())
    except RuntimeError:  # HOME is not set, and the user database has no entry
        return ""
    return home if home.startswith("/") and os.environ.get("HOME") != "" else ""


def state_root() -> str:
    """The directory for state, of all workspaces; empty if this user has no home directory."""
    return _user_directory("XDG_STATE_HOME")


def data_root() -> str:
    """The directory for files that licet installs or builds; empty if this user has no home directory."""
    return _user_directory("XDG_DATA_HOME")


def cache_root() -> str:
    """The directory for what can be made again; empty if this user has no home directory."""
    return _user_directory("XDG_CACHE_HOME")


def own_directories() -> tuple[str, ...]:
    """Every directory of licet in the home of this user: those that variables name, and those without variables."""
    every = (place for variable in _BELOW_HOME for place in (_user_directory(variable), _usual_directory(variable)))
    return tuple(dict.fromkeys(filter(None, every)))


def _user_directory(variable: str) -> str:
    stated = os.environ.get(variable, "")
    return os.path.join(stated, "licet") if stated.startswith("/") else _usual_directory(variable)


def _usual_directory(variable: str) -> str:
    home = home_directory()
    return os.path.join(home, _BELOW_HOME[variable], "licet") if home else ""
