"""The paths, besides policy files, that no grant may ever write: this host, its workers or another agent trust them.

A grant that could change any of them could change what the next call, worker or process does, past every rule of the
manifest. The list is made when a gate is built. Handles, workers and programs all obey it:

- the interpreter, its prefixes, its libraries and the directories of `.pth` files; shared libraries; licet itself;
- system files that name lookups and TLS rely on;
- the script that this program was started from, and every project file that a registered tool loads;
- what the servers of the policy are started from: scripts, `code`, virtual environments, `node_modules`, interpreters;
- the files with keys of `stand_ins`: the next run reads what is there, and places it;
- licet's own directories for state, data and caches, and the scratch of other calls: these are not readable either;
- the caches that installers hard-link libraries from, if a library shares its inode with one.

Policy files are closed by the loader (`policy_files/load.py`), so that a review without a gate sees them too. A
manifest made in code has no directory, so for it the policy files in the working directory are closed here.
"""

import os
import site
import sys
import sysconfig
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress

from msgspec.structs import replace

from licet.core.algebra.domains import DOMAINS
from licet.core.policy.inspection import expanded_file
from licet.core.policy.layer import CODE, KEY_FILE, POLICY, SECOND_CODE, SERVER_CODE
from licet.core.policy.manifest import Manifest, every_key_file
from licet.core.values import COMMAND_LINE
from licet.declare import Tool
from licet.errors import RegistrationRefused
from licet.guard.held_paths import Protect, ProtectedPath, outermost, protection_layer
from licet.guard.import_path import ways
from licet.guard.real_paths import RealPaths
from licet.policy_files.policy_paths import WORKSPACE_FILE, home_directory, own_directories, policy_paths
from licet.sandbox import scratch
from licet.sandbox.workers.tool_source import libraries, project_files
from licet.source.finder import FromText

_INTERPRETER = "the interpreter is never writable"
_LIBRARY = "a library of this program is never writable"
_LICET = "licet itself is never writable"
_SYSTEM = "a file that name lookups, TLS or the loader rely on is never writable"
_SCRIPT = "the script that this program was started from is never writable"
_CACHE = "an installer links libraries from this cache, so it is never writable"
_OWN = "licet keeps its state, its caches and installed servers there, and no tool reads or writes them"
_OTHERS = "the scratch of other calls is there, and no tool reads or writes it"

# Files that the dynamic loader, the name resolver and TLS of this process read again and again.
_SYSTEM_FILES = (
    *("/etc/ld.so.preload", "/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ld.so.conf.d"),
    *("/etc/hosts", "/etc/resolv.conf", "/etc/nsswitch.conf", "/etc/host.conf", "/etc/gai.conf"),
    *("/etc/ssl", "/etc/pki", "/etc/ca-certificates", "/etc/localtime", "/etc/passwd", "/etc/group"),
)
# The parts of a prefix that are closed if the prefix also has other data in it, such as `/usr` or a home directory.
_PARTS_OF_A_PREFIX = ("bin", "lib", "lib64", "lib32", "include", "pyvenv.cfg")


def never_writable(
    workdir: str, manifest: Manifest | None = None, tools: Sequence[Tool] = ()
) -> tuple[ProtectedPath, ...]:
    """Every closed path with the reason. The docstring of the module lists them.

    The files of `tools`, and of the tools that `manifest` names with `from:`, are closed too.
    """
    real = RealPaths()
    found = [*_of_this_process(workdir, real)]
    found += _code(project_files(tools), real)
    if manifest is not None:
        found += _project(manifest, real)
        found += _servers(manifest, workdir, real)
        found += _key_files(manifest, workdir)
        found += _policy_in(workdir) if _made_in_code(manifest) else ()
    return outermost(found)


def protect_in(workdir: str) -> Protect:
    """Return the function that a gate calls to list what is closed in its working directory.

    It raises `RegistrationRefused` if a grant lies inside the code of a server as a whole.
    """

    def protect(manifest: Manifest, tools: Sequence[Tool]) -> Sequence[ProtectedPath]:
        if has_servers(manifest):
            from licet.assemble.server_process import conflict_misfits

            if misfits := conflict_misfits(manifest, workdir, home_directory()):
                raise RegistrationRefused(misfits)
        return never_writable(workdir, manifest, tools)

    return protect


def _code(files: Iterable[str], real: RealPaths) -> Iterator[ProtectedPath]:
    """The files of tools, and the directories where Python keeps their compiled code."""
    loaded = (getattr(module, "__spec__", None) for module in list(sys.modules.values()))
    from_text = {spec.origin for spec in loaded if spec is not None and isinstance(spec.loader, FromText)}
    for path in dict.fromkeys(files):
        yield from _both_names((path,), CODE, real)
        # Python's own loader runs compiled files that it finds there; licet's loader compiles the source each time.
        why = SECOND_CODE if path in from_text else CODE
        yield from _both_names((os.path.join(os.path.dirname(path), "__pycache__"),), why, real)


def _project(manifest: Manifest, real: RealPaths) -> Iterator[ProtectedPath]:
    """The project files that the tools of a manifest load, and paths where a planted file would be loaded."""
    references = [reference for name, (reference, _) in manifest.sources.items() if name in manifest.admissions]
    if references:  # the code that follows imports is loaded only if there is source
        from licet.assemble.importing import code_roots
        from licet.source.imports import installed_paths
        from licet.source.project import project_modules

        for path, refused in project_modules(references, code_roots(manifest)).closed():
            yield ProtectedPath(path, SECOND_CODE if refused else CODE)
        # Most of these are in the interpreter's own libraries; others are in directories that `PYTHONPATH` names.
        yield from _both_names(installed_paths(references), CODE, real)


def has_servers(manifest: Manifest) -> bool:
    """Whether a policy, or another agent in its lock, names servers."""
    return bool(manifest.servers or (manifest.lock is not None and manifest.lock.servers))


def _servers(manifest: Manifest, workdir: str, real: RealPaths) -> Iterator[ProtectedPath]:
    """What the servers of a policy are started from, and the paths where a planted file would be."""
    if not has_servers(manifest):
        return
    from licet.assemble.server_process import server_paths  # the code that reads commands is loaded only for servers

    every = [found for _, found in server_paths(manifest, workdir, home_directory())]
    yield from (ProtectedPath(path, SERVER_CODE) for path in dict.fromkeys(path for one in every for path in one.own))
    for prefix in {prefix for one in every for prefix in one.prefixes}:
        yield from _both_names(_prefix(prefix, workdir), _INTERPRETER, real)
    if installed_by_links({site for one in every for site in one.sites}):
        yield from _both_names(_installer_caches(), _CACHE, real)


def _key_files(manifest: Manifest, workdir: str) -> Iterator[ProtectedPath]:
    """The files with keys that a policy names. Whether they are there does not matter."""
    home = home_directory()
    for path in every_key_file(manifest):
        if home or not path.startswith("~"):
            yield from (ProtectedPath(way, KEY_FILE) for way in ways(expanded_file(path, workdir, home)))


def _made_in_code(manifest: Manifest) -> bool:
    """Whether a manifest, or one that it was combined with, was not read from a file."""
    if manifest.origin.file == COMMAND_LINE:  # `read_made` has closed them
        return False
    origins = (manifest.origin, *(roster.origin for roster in manifest.rosters))
    return not manifest.files or any(not origin.line for origin in origins)


def _policy_in(workdir: str) -> Iterator[ProtectedPath]:
    """Protect the policy files of the working directory, because other agents may be loaded from them."""
    for path in policy_paths((os.path.join(workdir, WORKSPACE_FILE),)):
        yield ProtectedPath(path, POLICY)


def closed_to_grants(manifest: Manifest, workdir: str) -> Manifest:
    """Add the list to a reviewed manifest as its innermost denies, so that a review answers as a gate would."""
    layer = protection_layer(never_writable(workdir, manifest), manifest.origin)
    return replace(manifest, layers=(*manifest.layers, layer))


def closed_paths(manifest: Manifest, workdir: str) -> tuple[ProtectedPath, ...]:
    """The complete list for a reviewed manifest: the paths that its loader closed, and those closed in every gate."""
    denies = [deny for layer in manifest.layers if layer.kind == "protected paths" for deny in layer.denies]
    unreadable = {deny.capability.key for deny in denies if deny.capability.atoms & DOMAINS["fs"].actions["read"]}
    by_loader = [
        ProtectedPath(deny.capability.key or "/", deny.key, deny.capability.key not in unreadable) for deny in denies
    ]
    return outermost((*by_loader, *never_writable(workdir, manifest)))


def _of_this_process(workdir: str, real: RealPaths) -> Iterator[ProtectedPath]:
    """The paths that are closed whatever the tools are."""
    for prefix in {sys.prefix, sys.exec_prefix, sys.base_prefix, sys.base_exec_prefix}:
        yield from _both_names(_prefix(prefix, workdir), _INTERPRETER, real)
    yield from _both_names(filter(None, (sys.executable, getattr(sys, "_base_executable", ""))), _INTERPRETER, real)
    yield from _both_names(_libraries(), _LIBRARY, real)
    yield from _both_names((os.path.dirname(os.path.dirname(os.path.abspath(__file__))),), _LICET, real)
    yield from _both_names(_SYSTEM_FILES, _SYSTEM, real)
    yield from _both_names(_shared_libraries(), _SYSTEM, real)
    yield from _both_names(_entry_script(), _SCRIPT, real)
    # Only walled calls have scratch.
    scratches = (scratch.parent(), scratch.sessions_parent()) if sys.platform == "linux" else ()
    yield from _both_names(own_directories(), _OWN, real, readable=False)
    yield from _both_names(scratches, _OTHERS, real, readable=False)
    if installed_by_links(libraries()):
        yield from _both_names(_installer_caches(), _CACHE, real)


def _both_names(paths: Iterable[str], why: str, real: RealPaths, *, readable: bool = True) -> Iterator[ProtectedPath]:
    """Each path as it was named, and its real path: a grant may name either."""
    for path in paths:
        for name in dict.fromkeys((os.path.abspath(path), real.of(path))):
            yield ProtectedPath(name, why, readable)


def _prefix(prefix: str, workdir: str) -> Iterator[str]:
    """The complete prefix; or its own parts, if the working directory or the home directory is inside it."""
    around = os.path.realpath(prefix).rstrip("/") + "/"
    inside = (os.path.realpath(place) + "/" for place in (workdir, home_directory()) if place)
    if any(place.startswith(around) for place in inside):
        yield from (os.path.join(prefix, part) for part in _PARTS_OF_A_PREFIX)
    else:
        yield prefix


def _libraries() -> Iterator[str]:
    """The directories where modules are installed, and where `.pth` files are read from."""
    yield from libraries()
    yield from site.getsitepackages()
    if site.ENABLE_USER_SITE:
        yield site.getusersitepackages()
    # `data` is left out: it is the complete prefix.
    yield from (path for name, path in sysconfig.get_paths().items() if name != "data" and path.startswith("/"))
    if sys.pycache_prefix:
        yield sys.pycache_prefix


def _shared_libraries() -> Iterator[str]:
    """The shared libraries that this process has loaded, and the directories of `LD_LIBRARY_PATH` and of the system."""
    yield from filter(None, os.environ.get("LD_LIBRARY_PATH", "").replace(";", ":").split(":"))
    try:
        with open("/proc/self/maps", encoding="utf-8", errors="surrogateescape") as maps:
            mapped = {line.split(maxsplit=5)[5].rstrip("\n") for line in maps if " r-xp " in line and "/" in line}
    except OSError:  # not Linux, or /proc is hidden: the system directories below are closed anyway
        mapped = set()
    yield from (path for path in mapped if os.path.isfile(path))
    yield from ("/lib", "/lib64", "/usr/lib", "/usr/lib64", "/usr/local/lib")


def _entry_script() -> Iterator[str]:
    """The script that Python was started with, if any."""
    main = sys.modules.get("__main__")
    file = getattr(main, "__file__", None)
    yield from (path for path in (file, sys.argv[0] if sys.argv else "") if path and os.path.isfile(path))


def installed_by_links(directories: Iterable[str]) -> bool:
    """Whether an installer has hard-linked packages into these directories: it then links the metadata too."""
    for directory in directories:
        with suppress(OSError), os.scandir(directory) as entries:
            for entry in entries:
                if entry.name.endswith(".dist-info"):
                    with suppress(OSError):
                        if os.lstat(os.path.join(entry.path, "METADATA")).st_nlink > 1:
                            return True
    return False


def _installer_caches() -> tuple[str, ...]:
    """The caches of installers that put hard links, not copies, into an environment: of uv, and the store of pnpm."""
    home, environ = home_directory(), os.environ
    cache_home = environ.get("XDG_CACHE_HOME") or (os.path.join(home, ".cache") if home else "")
    data_home = environ.get("XDG_DATA_HOME") or (os.path.join(home, ".local", "share") if home else "")
    places = (
        environ.get("UV_CACHE_DIR", ""),
        os.path.join(cache_home, "uv") if cache_home else "",
        os.path.join(environ["PNPM_HOME"], "store") if environ.get("PNPM_HOME") else "",
        os.path.join(data_home, "pnpm", "store") if data_home else "",
    )
    return tuple(place for place in places if place)
