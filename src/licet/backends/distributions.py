"""Which installed distribution a tool's code comes from, and at which version: found by the files that each lists.

Names prove nothing: a module may have any name, and a distribution may have another. A module that no distribution
lists (project files, editable installs, files copied by hand) comes from none. Nothing is imported.
"""

import inspect
import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from importlib import metadata

from licet.core.connector import Installed
from licet.core.manifest import Manifest
from licet.declare import Tool


def installed_versions(manifest: Manifest) -> Mapping[str, str]:
    """The versions of the distributions that connectors are defined by; one that is not installed is left out."""
    names = {definition.distribution for definition in manifest.definitions.values()} - {""}
    found = {}
    for name in sorted(names):
        with suppress(metadata.PackageNotFoundError):
            found[name] = metadata.version(name)
    return found


def packages_of(tools: Sequence[Tool]) -> Mapping[str, Installed]:
    """By name of the tool, the distribution that its module belongs to; tools without a connector are left out."""
    files = {tool.name: list(_files(tool)) for tool in tools if tool.spec.named_connectors}
    owners = _owners(file for each in files.values() for file in each)
    packages = {}
    for name, each in files.items():
        found = sorted({owner for file in each for owner in owners.get(file, ())})
        if len(found) == 1:
            packages[name] = found[0]
        elif found:  # nobody can say which version counts
            packages[name] = Installed(" and ".join(one.distribution for one in found), "")
    return packages


def _files(tool: Tool) -> Iterator[str]:
    """The file of a tool's module, and that of its code: a decorator of another package may have wrapped it."""
    fn = inspect.unwrap(tool.fn)
    module = getattr(sys.modules.get(str(getattr(fn, "__module__", ""))), "__file__", None)
    code = getattr(getattr(fn, "__code__", None), "co_filename", None)
    yield from dict.fromkeys(os.path.realpath(file) for file in (module, code) if file and os.path.isfile(file))


def _owners(files: Iterable[str]) -> Mapping[str, set[Installed]]:
    """The distributions that list each file among their own."""
    wanted = set(files)
    owners: dict[str, set[Installed]] = {}
    for distribution in metadata.distributions() if wanted else ():
        root = os.path.realpath(str(distribution.locate_file("")))
        inside = [file for file in wanted if file.startswith(f"{root}/")]
        record = distribution.read_text("RECORD") if inside else None
        for file in inside:
            # Most distributions are ruled out by their text; reading all of them as tables takes long.
            if record is not None and file[len(root) + 1 :] not in record:
                continue
            if any(os.path.realpath(str(distribution.locate_file(own))) == file for own in distribution.files or ()):
                name = re.sub(r"[-_.]+", "-", distribution.metadata["Name"] or "").lower()
                owners.setdefault(file, set()).add(Installed(name, distribution.version))
    return owners
