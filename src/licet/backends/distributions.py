"""Finds the installed distribution, and its version, that the code of a tool belongs to, by the files that each lists.

Names prove nothing: a module and a distribution may have any name. A module that no distribution lists (project files,
editable installs, files copied by hand) belongs to none. Nothing is imported.

Metadata is read from library directories only. Otherwise anybody who can write to the directory of the script, to the
working directory, or through a grant could plant the metadata of a distribution that was never installed.
"""

import os
import re
import site
import sys
import sysconfig
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from importlib import metadata

from licet.core.algebra.domains import DOMAINS
from licet.core.algebra.scope import Malformed, inside
from licet.core.policy.connector import Installed
from licet.core.policy.manifest import Manifest
from licet.declare import Tool


def installed_versions(manifest: Manifest, workdir: str, home: str) -> Mapping[str, str]:
    """Return the versions of the distributions that connectors name; a distribution without exactly one is left out."""
    names = {definition.distribution for definition in manifest.definitions.values()} - {""}
    libraries = _libraries(manifest, workdir, home) if names else []
    found = {}
    for name in sorted(names):
        hits = metadata.distributions(name=name, path=libraries)
        versions = {one.version if one.distribution == _normal(name) else "" for one in map(_installed, hits)}
        if len(versions) == 1:  # with several versions installed, it is unknown which one runs
            found[name] = versions.pop()
    return found


def packages_of(tools: Sequence[Tool], manifest: Manifest, workdir: str, home: str) -> Mapping[str, Installed]:
    """Return the distribution of each tool's module by the name of the tool; tools without a connector are left out."""
    files = {tool.name: list(_files(tool)) for tool in tools if tool.spec.named_connectors}
    wanted = {file for each in files.values() for file in each}
    owners = _owners(wanted, _libraries(manifest, workdir, home)) if wanted else {}
    packages = {}
    for name, each in files.items():
        found = sorted({owner for file in each for owner in owners.get(file, ())})
        if len(found) == 1:
            packages[name] = found[0]
        elif found:  # it is unknown which version counts
            packages[name] = Installed(" and ".join(one.distribution for one in found), "")
    return packages


def _files(tool: Tool) -> Iterator[str]:
    """The files of a tool: of its code, of its globals, and of the module that it names.

    `__wrapped__` is not followed: code that sets it could choose the distribution.
    """
    fn = tool.fn
    module = getattr(sys.modules.get(str(getattr(fn, "__module__", ""))), "__file__", None)
    code = getattr(getattr(fn, "__code__", None), "co_filename", None)
    around = getattr(fn, "__globals__", {}).get("__file__")
    files = (file for file in (code, around, module) if isinstance(file, str) and os.path.isfile(file))
    yield from dict.fromkeys(map(os.path.realpath, files))


def _owners(wanted: Iterable[str], libraries: list[str]) -> Mapping[str, set[Installed]]:
    """Return the distributions that list each file as their own."""
    owners: dict[str, set[Installed]] = {}
    for distribution in metadata.distributions(path=libraries):
        root = os.path.realpath(str(distribution.locate_file("")))
        below = [file for file in wanted if inside(file, (root,))]
        record = distribution.read_text("RECORD") if below else None
        for file in below:
            # A search in the text of RECORD rules out most distributions; parsing each RECORD would be slow.
            if record is not None and file[len(root) + 1 :] not in record:
                continue
            if any(os.path.realpath(str(distribution.locate_file(own))) == file for own in distribution.files or ()):
                owners.setdefault(file, set()).add(_installed(distribution))
    return owners


def _installed(distribution: metadata.Distribution) -> Installed:
    return Installed(_normal(distribution.metadata["Name"] or ""), distribution.metadata["Version"] or "")


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _libraries(manifest: Manifest, workdir: str, home: str) -> list[str]:
    """The directories of installed distributions: those of the interpreter, and other entries of `sys.path`.

    The directory of the script, the current and the working directory, and paths that a grant may write are left out.
    """
    own = {path for name, path in sysconfig.get_paths().items() if name in ("purelib", "platlib")}
    own |= {*site.getsitepackages(), *([site.getusersitepackages()] if site.ENABLE_USER_SITE else [])}
    own = {os.path.realpath(path) for path in own}  # no grant ever writes these
    projects = {os.path.realpath(path) for path in (workdir, *_started())}
    written = _written(manifest, workdir, home)
    found: dict[str, None] = {}
    for path in (os.path.realpath(entry) for entry in sys.path if isinstance(entry, str) and entry):
        if path in own or (path not in projects and not any(_overlap(path, other) for other in written)):
            found[path] = None
    return list(found)


def _started() -> Iterator[str]:
    """The current directory, and the directory of the script that this program was started from."""
    with suppress(FileNotFoundError):  # the current directory was removed
        yield os.getcwd()
    if main := getattr(sys.modules.get("__main__"), "__file__", None):
        yield os.path.dirname(main)


def _written(manifest: Manifest, workdir: str, home: str) -> list[str]:
    """The paths that the rules of a manifest allow to be written."""
    try:
        ceiling = manifest.expand(workdir, home).ceiling
    except Malformed:  # the manifest names the home directory of a user who has none, so no gate can be built with it
        return ["/"]
    writes = (rule for rule in ceiling.allow if rule.domain == "fs" and rule.atoms & DOMAINS["fs"].actions["write"])
    return [os.path.realpath(rule.key or "/") for rule in writes]


def _overlap(one: str, other: str) -> bool:
    """Whether one directory is the other, or lies in it."""
    one, other = f"{one.rstrip('/')}/", f"{other.rstrip('/')}/"
    return one.startswith(other) or other.startswith(one)
