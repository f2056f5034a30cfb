"""May a person be advised to allow a path that a program names, and by which name?

A program that may write a directory makes a link there, and then complains about the name of it. Who allows that name
allows what it leads to: so a path is judged by every name on the way to it, and advised by its real one alone.
"""

import os

from licet.core.algebra.rules import InvalidUse, Use, use_of_path
from licet.core.algebra.scope import visible
from licet.guard.import_path import ways
from licet.policy_files.policy_paths import home_directory


def written_at(path: str) -> str:
    """What must be allowed before a path can be written: itself, or the directory that a new name is made in."""
    return path if os.path.lexists(path) else os.path.dirname(path)


def real_use(use: Use) -> Use:
    """The use of what a path leads to. Raises `InvalidUse` if no rule can name that."""
    real = os.path.realpath(use.target)
    return use if real == use.target else use_of_path(use.action, real)


def why_not_advised(use: Use, workdir: str) -> str:
    """Why a person must decide on a path by themselves, by its name or by what it leads to; empty if it is ordinary."""
    from licet.core.review.sensitive import Whereabouts, why_sensitive  # only failed commands need its long lists

    real_home, real_workdir = os.path.realpath(home_directory() or "/"), os.path.realpath(workdir)
    homes = (home_directory(), real_home) if home_directory() else ("", "")
    stated, real = Whereabouts(workdir, *homes), Whereabouts(real_workdir, *reversed(homes))
    for name in _names(use):
        if visible(name) != name:
            return "its name has characters that cannot be seen"
        where = stated if name == use.target else real
        try:
            judged = dict.fromkeys(use_of_path(use.action, path) for path in (name, _opened(use, name)))
        except InvalidUse:
            return "it leads to a path that no rule can name"
        for each in judged:
            if why := why_sensitive(each, where):
                return why if name == use.target else f"it leads to `{name}`: {why}"
    return ""


def leads_to_more(action: str, path: str, workdir: str) -> str:
    """Where a path leads that holds more than its name says, such as keys or a home, and why; empty if it does not."""
    real = os.path.realpath(path)
    if real == path:
        return ""
    try:
        named, meant = (why_not_advised(use_of_path(action, name), workdir) for name in (path, real))
    except InvalidUse:
        return ""
    return f"leads to `{visible(real)}`: {meant}" if meant and named != meant else ""


def _names(use: Use) -> tuple[str, ...]:
    """The name of a path as it is stated, after each link on the way, and its real one."""
    return tuple(dict.fromkeys((use.target, *ways(use.target), os.path.realpath(use.target))))


def _opened(use: Use, name: str) -> str:
    return written_at(name) if use.action == "write" else name
