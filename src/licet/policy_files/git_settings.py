"""The settings of git of this user that programs behind walls may see, as the text of a configuration.

Configurations of git name programs (helpers, pagers, editors, aliases, filters) and hold keys (headers, URLs). So only
the settings listed here are taken: a name, an address, and choices of words that name no file and no program.
"""

import os
from collections.abc import Iterator

from licet.core.algebra.scope import visible
from licet.policy_files.git_configuration import own_configurations, values_of
from licet.policy_files.limits import LONGEST_GIT_SETTING, MOST_INCLUDED

_SHOWN_BY_SECTION = {
    "user": ("name", "email"),
    "init": ("defaultbranch",),
    "core": ("autocrlf", "eol", "safecrlf", "quotepath", "precomposeunicode"),
    "pull": ("rebase", "ff"),
    "push": ("default", "autosetupremote"),
    "fetch": ("prune",),
    "merge": ("conflictstyle", "ff"),
    "rebase": ("autosquash", "autostash", "updaterefs"),
    "rerere": ("enabled",),
    "commit": ("verbose", "cleanup"),
    "status": ("showuntrackedfiles",),
    "log": ("date",),
    "branch": ("sort",),
    "tag": ("sort",),
    "color": ("ui",),
    "column": ("ui",),
    "diff": ("algorithm", "renames", "mnemonicprefix", "colormoved"),
}
_SHOWN = frozenset(f"{section}.{name}" for section, names in _SHOWN_BY_SECTION.items() for name in names)
_INCLUDE = "include.path"


def shown_settings(home: str) -> str:
    """The text of a configuration with the last value of each; empty if there is none."""
    seen: set[str] = set()
    read = (pair for file in own_configurations(home) for pair in _settings(os.path.abspath(file), home, seen))
    values = {key: value for key, value in read if len(value) <= LONGEST_GIT_SETTING and visible(value) == value}
    return "".join(_line(key, value) for key, value in values.items())


def _line(key: str, value: str) -> str:
    section, _, name = key.partition(".")
    quoted = value.replace("\\", "\\\\").replace('"', '\\"')
    return f'[{section}]\n\t{name} = "{quoted}"\n'


def _settings(file: str, home: str, seen: set[str]) -> Iterator[tuple[str, str]]:
    """The settings in a file and in those that it includes without a condition, in the order of git."""
    if file in seen or len(seen) > MOST_INCLUDED:
        return
    seen.add(file)
    for key, value in values_of(file, (*_SHOWN, _INCLUDE)):
        if key == _INCLUDE:
            path = os.path.join(home, value[2:]) if value.startswith("~/") else value
            yield from _settings(os.path.normpath(os.path.join(os.path.dirname(file), path)), home, seen)
        else:
            yield key, value
