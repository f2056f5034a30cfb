"""Reads what the command of an MCP server asks for: a package of a launcher (`npx`, `uvx`, `pipx run`), or a file.

Nothing is looked up here, only the words are read. A flag that is not listed is an error: with a guess, the lock could
pin something else than what runs. Packages have a name and a version in a registry. Paths, URLs and git repositories
are refused, because no integrity of them is published.

The command line that starts a Python server without the directory of its script on the import path.

Python searches that directory first, and `python -m` the current one: a file planted there would replace any module
of the server. Python 3.11 and newer leave it out with `-P`. For older ones, and for a server with `code`, a short
program does the same and then runs the script as `python` itself would.

Modules in `code` are compiled from their source each time. The files in `__pycache__` are not in the lock, so they are
not used.

Which interpreter a program is, by its name alone: `python3.13t` is Python, `ruby3.2` is Ruby.

All modules that read a command use these functions. With two patterns, one module could pin a script and another
leave it writable.
"""

import os
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from glob import escape, glob
from typing import Literal

from msgspec import Struct

from licet.core.algebra.scope import visible
from licet.core.late_pattern import late_pattern
from licet.errors import LicetError
from licet.own_files import read_regular
from licet.packages.limits import LARGEST_PYVENV, LONGEST_NPM_NAME

__all__ = [
    "Launch",
    "LaunchError",
    "environment_of",
    "image_warning",
    "interpreter",
    "is_python",
    "launch_of",
    "npm_package",
    "pip_requirement",
    "pypi_requirement",
    "python_argv",
    "settings_of",
    "site_directories",
]

_SAFE_PATH = (3, 11)  # the first Python with `-P`
_START = """\
def start(code):
    import sys
    sys.path[:] = [entry for entry in sys.path if entry]
    if code:
        from importlib.machinery import (BYTECODE_SUFFIXES, EXTENSION_SUFFIXES, SOURCE_SUFFIXES, ExtensionFileLoader,
                                         FileFinder, SourceFileLoader, SourcelessFileLoader)
        class FromSource(SourceFileLoader):
            def get_code(self, name):
                path = self.get_filename(name)
                return self.source_to_code(self.get_data(path), path)
        def finder(path):
            if not any(path == one or path.startswith(one + "/") for one in code):
                raise ImportError("not in the code of the server", path=path)
            return FileFinder(path, (ExtensionFileLoader, EXTENSION_SUFFIXES), (FromSource, SOURCE_SUFFIXES),
                              (SourcelessFileLoader, BYTECODE_SUFFIXES))
        sys.path_hooks.insert(0, finder)
        sys.path_importer_cache.clear()
        sys.path[:0] = code
    del sys.argv[0]
    return sys.argv[0]
"""
_SCRIPT = """\
__file__ = start({code!r})
del start
exec(compile(open(__file__, "rb").read(), __file__, "exec"))
"""
_ARCHIVE = """\
import runpy
runpy.run_path(start({code!r}), run_name="__main__")
"""
_MODULE = """\
import runpy
runpy.run_module(start({code!r}), run_name="__main__", alter_sys=True)
"""


def python_argv(python: str, flags: Sequence[str], program: str, code: Sequence[str] = ()) -> tuple[str, ...]:
    """Start a script or, after a last flag `-m`, a module, with nothing but `code` before Python's own libraries."""
    import zipfile  # which loads what programs rarely need

    own = [flag for flag in flags if flag != "--"]
    is_module = own[-1:] == ["-m"]
    is_archive = not is_module and zipfile.is_zipfile(program)  # it is then searched itself, and not its directory
    if not code and ("-I" in own or is_archive):
        return python, *own, program
    if not code and (_version(python) or (0, 0)) >= _SAFE_PATH:
        return python, *({"-P"} - {*own}), *own, program
    run = _MODULE if is_module else _ARCHIVE if is_archive else _SCRIPT
    return python, *(own[:-1] if is_module else own), "-c", _START + run.format(code=list(code)), program


def environment_of(python: str) -> str:
    """The directory of the virtual environment of an interpreter; empty if it has none."""
    own = os.path.dirname(os.path.dirname(python))
    return own if os.path.isfile(os.path.join(own, "pyvenv.cfg")) else ""


def settings_of(environment: str) -> Mapping[str, str]:
    """What `pyvenv.cfg` says, such as `home`; nothing if it cannot be read."""
    with suppress(OSError, UnicodeDecodeError):
        text = read_regular(os.path.join(environment, "pyvenv.cfg"), LARGEST_PYVENV).decode()
        pairs = (line.partition("=") for line in text.splitlines() if "=" in line)
        return {key.strip().lower(): value.strip() for key, _, value in pairs}
    return {}


def site_directories(prefix: str) -> list[str]:
    """The directories below a prefix of Python, or an environment, in which distributions are installed."""
    there = (glob(f"{escape(prefix)}/lib*/py*3*/{kind}-packages") for kind in ("site", "dist"))
    return sorted(path for paths in there for path in paths)


def _version(python: str) -> tuple[int, int] | None:
    """The version of an interpreter, as far as its files tell; it is not started."""
    named = re.fullmatch(r"python(\d+)\.(\d+)t?d?", os.path.basename(os.path.realpath(python)))
    if named is None and (environment := environment_of(python)):
        settings = settings_of(environment)
        named = re.match(r"(\d+)\.(\d+)", settings.get("version") or settings.get("version_info", ""))
    return (int(named[1]), int(named[2])) if named else None


# Builds have names too: `python3.13t` without the global lock, `python3-dbg`, `pypy3-c`, `python3.12-intel64`.
_PYTHON_NAME = late_pattern(
    r"(python|pypy|graalpy)w?(-?[0-9][0-9._]*)?[dmtuw]*(-(dbg|debug|c|32|64|intel64|x86_64|arm64))?(\.exe)?",
    re.IGNORECASE,
)
_OTHERS = late_pattern(r"(node|sh|bash|dash|zsh|ruby|perl)((?<=node)js)?(-?[0-9][0-9._]*)?(\.exe)?", re.IGNORECASE)


def interpreter(name: str) -> str:
    """The interpreter that a program is, without its version: `python`, `node`, `bash` …; empty for other programs."""
    if _PYTHON_NAME.fullmatch(name):
        return "python"
    found = _OTHERS.fullmatch(name)
    return found[1].lower() if found else ""


def is_python(name: str) -> bool:
    """Whether a program of this name is a Python."""
    return interpreter(name) == "python"


class LaunchError(LicetError):
    """A command that cannot be resolved. The text names the part of it and the fix."""


class Launch(Struct, frozen=True):
    """What a command line asks for.

    `interpreter` has the words before a script (`python -u server.py`), before a module (`python -m server`), or before
    the image of `docker run`; `program` is then the script or the module. `version` is as written, empty if it is not.
    `code` are the directories of `servers.NAME.code`; no word of a command names them.
    """

    kind: Literal["npm", "pypi", "file", "docker"]
    package: str = ""
    version: str = ""
    program: str = ""
    arguments: tuple[str, ...] = ()
    extra: tuple[str, ...] = ()
    interpreter: tuple[str, ...] = ()
    code: tuple[str, ...] = ()


def launch_of(command: Sequence[str]) -> Launch:
    """Return what a command asks for. Raises `LaunchError` if any word before the server's own is not understood."""
    words = tuple(command)
    if not words or not words[0]:
        raise LaunchError("the command is empty: expected the program that starts the server")
    if any("\0" in word for word in words):
        raise LaunchError("the command has a NUL character, which no program can be given")
    name = re.sub(r"\.(cmd|exe)$", "", words[0].rpartition("/")[2])
    if reader := _LAUNCHERS.get(name):
        return reader(words[1:])
    if name in ("docker", "podman"):
        return _docker(words)
    if why := _STARTERS.get(name):
        raise LaunchError(f"`{visible(name)}` {why}")
    if flags := _interpreter(name):
        return _script(words, name, flags)
    return Launch("file", program=words[0], arguments=words[1:])


def image_warning(launch: Launch) -> str:
    """Say what is missing if a `docker run` names an image that can change; empty if it has a digest."""
    if launch.kind != "docker" or re.search(r"@sha256:[0-9a-f]{64}$", launch.package):
        return ""
    return (
        f"`{visible(launch.package)}` names whatever image has this tag at the time: write it with its digest, "
        "`IMAGE@sha256:…`, or the lock pins nothing"
    )


# Flags ----------------------------------------------------------------------------------------------------------------


class _Flags(Struct, frozen=True):
    """The flags of a program that licet understands; any other is an error.

    - `ignored`: no value, no influence on what starts.
    - `valued`: flag → the name under which `read` returns its value.
    - `refused`: flag → the reason.
    """

    program: str
    ignored: frozenset[str] = frozenset()
    valued: Mapping[str, str] = {}
    refused: Mapping[str, str] = {}

    def read(self, words: Sequence[str]) -> tuple[list[tuple[str, str]], tuple[str, ...]]:
        """Return the values of the flags, each with the word for it, and the words from the first that is no flag."""
        found: list[tuple[str, str]] = []
        left = list(words)
        while left and left[0].startswith("-"):
            word = left.pop(0)
            if word == "--":
                break
            flag, equals, value = word.partition("=") if word.startswith("--") else (word, "", "")
            if why := self.refused.get(flag):
                raise LaunchError(f"`{self.program} {visible(flag)}` {why}")
            if flag in self.valued:
                if not equals and not left:
                    raise LaunchError(f"`{self.program} {flag}` has no value after it")
                found.append((self.valued[flag], value if equals else left.pop(0)))
            elif word not in self.ignored:
                known = ", ".join(f"`{flag}`" for flag in sorted({*self.ignored, *self.valued})) or "none"
                raise LaunchError(
                    f"`{self.program} {visible(word)}` is not understood: of its flags, these are: {known}"
                )
        return found, tuple(left)


# npx ------------------------------------------------------------------------------------------------------------------

_IN_NPMRC = "is not followed: set it in the npm configuration of this user, where `licet lock` reads it"
_NPX = _Flags(
    "npx",
    frozenset({"-y", "--yes", "-q", "--quiet", "--silent", "--ignore-scripts", "--prefer-offline", "--prefer-online"}),
    {"-p": "package", "--package": "package"},
    {
        "-c": "runs a shell: name the package and its program instead",
        "--call": "runs a shell: name the package and its program instead",
        "--registry": _IN_NPMRC,
        "--userconfig": _IN_NPMRC,
        "--no-install": "starts a local package: name its script instead, `node node_modules/…`",
        "--no": "starts a local package: name its script instead, `node node_modules/…`",
    },
)
_NPM_PART = r"[A-Za-z0-9~][A-Za-z0-9._~-]*"
_NPM_NAME = late_pattern(rf"(@{_NPM_PART}/)?{_NPM_PART}")
_NPM_VERSION = late_pattern(r"[0-9A-Za-z*^~<>=|.+ -]*")


def npm_package(text: str) -> tuple[str, str]:
    """Return the name and the version of `name@version`. Raises `LaunchError` for what no registry has."""
    at = text.find("@", 1)
    name, version = (text, "") if at < 0 else (text[:at], text[at + 1 :])
    if not _NPM_NAME.fullmatch(name) or len(name) > LONGEST_NPM_NAME or name == "node_modules":
        raise _not_a_package(text, "npm", "name@version")
    if not _NPM_VERSION.fullmatch(version):
        raise _not_a_package(text, "npm", "name@version")
    return name, version.strip()


def _npx(words: Sequence[str]) -> Launch:
    found, rest = _NPX.read(words)
    if not rest:
        raise LaunchError("`npx` has no package or program to start")
    if not found:
        name, version = npm_package(rest[0])
        return Launch("npm", name, version, arguments=rest[1:])
    (name, version), *extra = (npm_package(text) for _, text in found)
    program = _plain_program(rest[0])
    return Launch("npm", name, version, program, rest[1:], tuple(_at(*each) for each in extra))


def _at(name: str, version: str) -> str:
    return f"{name}@{version}" if version else name


# uvx and pipx ---------------------------------------------------------------------------------------------------------

_ONE_PYTHON = "is not followed: packages run on the Python that licet runs on; install licet with the one you want"
_IN_PIP = "is not followed: set it in the pip configuration of this user, where `licet lock` reads it"
_NO_BUILD = "is not followed: only wheels are installed, because building a package runs its code"
_UVX = _Flags(
    "uvx",
    frozenset({"-q", "--quiet", "-v", "--verbose", "-n", "--no-cache", "--no-progress", "--isolated", "--no-config"})
    | {"--refresh", "--offline", "-U", "--upgrade", "--no-build", "--no-env-file"},
    {"--from": "from", "--with": "with", "-w": "with"},
    {
        "-p": _ONE_PYTHON,
        "--python": _ONE_PYTHON,
        "--index": _IN_PIP,
        "--index-url": _IN_PIP,
        "--extra-index-url": _IN_PIP,
        "--default-index": _IN_PIP,
        "--with-editable": _NO_BUILD,
        "--with-requirements": "is not followed: name the packages with `--with`",
        "--env-file": "is not followed: list the variables under `env` of the server",
    },
)
_PIPX = _Flags(
    "pipx run",
    frozenset({"-q", "--quiet", "-v", "--verbose", "--no-cache"}),
    {"--spec": "from", "--with": "with"},
    {
        "--python": _ONE_PYTHON,
        "--path": "runs a file: name it instead, `python FILE`",
        "--pip-args": _IN_PIP,
        "--index-url": _IN_PIP,
        "-i": _IN_PIP,
        "--editable": _NO_BUILD,
        "-e": _NO_BUILD,
    },
)


def pypi_requirement(text: str) -> tuple[str, str]:
    """Return the name, with its extras in brackets, and the version as written. Raises `LaunchError` for other text."""
    from packaging.requirements import InvalidRequirement, Requirement  # only commands of `uvx` and `pipx` name one
    from packaging.utils import canonicalize_name
    from packaging.version import InvalidVersion, Version

    name, at, version = text.partition("@")
    try:
        wanted = Requirement(name)
        if at and version != "latest":
            Version(version)
    except (InvalidRequirement, InvalidVersion):
        raise _not_a_package(text, "PyPI", "name==version") from None
    if wanted.url or wanted.marker or (at and wanted.specifier) or wanted.name.endswith(".py"):
        raise _not_a_package(text, "PyPI", "name==version")
    extras = ",".join(sorted(canonicalize_name(extra) for extra in wanted.extras))
    normal = str(canonicalize_name(wanted.name))
    return f"{normal}[{extras}]" if extras else normal, version if at else str(wanted.specifier)


def _uvx(words: Sequence[str]) -> Launch:
    return _pypi(_UVX, words)


def _uv(words: Sequence[str]) -> Launch:
    if tuple(words[:2]) == ("tool", "run"):
        return _pypi(_UVX, words[2:])
    raise LaunchError("`uv run` may install at each start: name what it starts instead, `.venv/bin/python server.py`")


def _pipx(words: Sequence[str]) -> Launch:
    if not words or words[0] != "run":
        raise LaunchError("`pipx` starts a server only as `pipx run PACKAGE`")
    return _pypi(_PIPX, words[1:])


def _pypi(flags: _Flags, words: Sequence[str]) -> Launch:
    found, rest = flags.read(words)
    if not rest:
        raise LaunchError(f"`{flags.program}` has no package to start")
    sources = [text for meaning, text in found if meaning == "from"]
    with_texts = [part for meaning, text in found if meaning == "with" for part in _listed(text)]
    extra = tuple(pip_requirement(*pypi_requirement(text)) for text in with_texts)
    if len(sources) > 1:
        raise LaunchError(f"`{flags.program}` names {len(sources)} packages to start from: expected one")
    if sources:
        name, version = pypi_requirement(sources[0])
        return Launch("pypi", name, version, _plain_program(rest[0]), rest[1:], extra)
    name, version = pypi_requirement(rest[0])
    return Launch("pypi", name, version, "", rest[1:], extra)


def _listed(text: str) -> list[str]:
    """The packages of `--with a,b`; a comma before a comparison belongs to a version, as in `a>=1,<2`."""
    return re.split(r",(?=\s*[A-Za-z0-9])(?![^\[]*\])", text)


def pip_requirement(name: str, version: str) -> str:
    """A name and a version as written, the way pip wants them; `1.2` and `latest` come from `name@1.2`."""
    if not version or version == "latest":
        return name
    return f"{name}=={version}" if version[0].isalnum() else f"{name}{version}"


# Files ----------------------------------------------------------------------------------------------------------------

_INLINE = "runs a text and no file: put it into a script"
_PRELOAD = "loads more code than the script that is pinned: load it from the script"
_PYTHON = _Flags(
    "python",
    frozenset({"-u", "-B", "-E", "-I", "-s", "-S", "-P", "-O", "-OO", "-q", "-b", "-bb"}),
    {"-X": "option", "-W": "warning"},
    {"-c": _INLINE, "-": _INLINE},
)
_NODE = _Flags(
    "node",
    frozenset({"--no-warnings", "--enable-source-maps", "--no-deprecation", "--trace-warnings"}),
    {"--max-old-space-size": "size"},
    {
        "-e": _INLINE,
        "--eval": _INLINE,
        "-p": _INLINE,
        "--print": _INLINE,
        "-": _INLINE,
        **dict.fromkeys(("-r", "--require", "--import", "--loader", "--experimental-loader"), _PRELOAD),
        "--env-file": "is not followed: list the variables under `env` of the server",
    },
)
_SHELL = {"-c": _INLINE, "-e": _INLINE}
_DOWNLOADS = "may install at each start: use `npx`, `uvx` or `pipx run`, or name the program that it starts"
_WRAPS = "only starts another program: name that program"
_STARTERS = {
    **dict.fromkeys(("npm", "pnpm", "pnpx", "yarn", "bun", "bunx", "deno", "rye", "hatch", "go", "cargo"), _DOWNLOADS),
    **dict.fromkeys(("poetry", "pdm", "pixi", "conda", "mamba", "micromamba", "nix", "nix-shell"), _DOWNLOADS),
    **dict.fromkeys(("cmd", "powershell", "pwsh", "sudo", "doas", "nohup", "timeout", "xargs", "nice", "mise"), _WRAPS),
    **dict.fromkeys(("exec", "command", "setsid", "stdbuf", "busybox", "direnv", "dotenv"), _WRAPS),
    "env": f"{_WRAPS}, and list the variables under `env` of the server",
}


def _interpreter(name: str) -> _Flags | None:
    match interpreter(name):
        case "":
            return None
        case "python":
            return _PYTHON
        case "node":
            return _NODE
    return _Flags(name, refused=_SHELL)


def _script(words: tuple[str, ...], name: str, flags: _Flags) -> Launch:
    module = words.index("-m", 1) if flags is _PYTHON and "-m" in words[1:] else 0
    before = words[1:module]
    if module and "--" not in before and not flags.read(before)[1]:  # otherwise `-m` is an argument of a script
        if len(words) == module + 1:
            raise LaunchError(f"`{visible(name)} -m` has no module after it")
        program = words[module + 1]
        if not re.fullmatch(r"\w+(\.\w+)*", program):
            raise LaunchError(f"`{visible(program)}` is no name of a module")
        return Launch("file", program=program, arguments=words[module + 2 :], interpreter=words[: module + 1])
    _, rest = flags.read(words[1:])
    if not rest:
        raise LaunchError(f"`{visible(name)}` has no script to start")
    before = words[: len(words) - len(rest)]
    return Launch("file", program=rest[0], arguments=rest[1:], interpreter=before)


# Docker ---------------------------------------------------------------------------------------------------------------

_RUN_FLAGS = (
    "--add-host --cap-add --cap-drop --cpus --device --dns --entrypoint --env --env-file --gpus --group-add --hostname "
    "--ipc --label --log-driver --memory --mount --name --net --network --pid --platform --publish --pull --runtime "
    "--security-opt --shm-size --stop-timeout --tmpfs --ulimit --user --userns --volume --workdir "
    "-e -h -l -m -p -u -v -w"
)
_RUN = _Flags(
    "docker run",
    frozenset({"-i", "-t", "-it", "-ti", "--interactive", "--tty", "--rm", "--init", "--privileged", "--read-only"})
    | {"-q", "--quiet"},
    dict.fromkeys(_RUN_FLAGS.split(), "value"),
    {"-d": "leaves the server without a pipe to speak through", "--detach": "leaves the server without a pipe"},
)
_IMAGE = late_pattern(r"[a-z0-9][A-Za-z0-9._/:@-]*")


def _docker(words: tuple[str, ...]) -> Launch:
    if words[1:2] != ("run",):
        raise LaunchError(f"`{visible(words[0])}` starts a server only as `{visible(words[0])} run … IMAGE`")
    _, rest = _RUN.read(words[2:])
    if not rest or not _IMAGE.fullmatch(rest[0]):
        raise LaunchError(f"`{visible(words[0])} run` has no image to start")
    before = words[: len(words) - len(rest)]
    return Launch("docker", rest[0], program=words[0], arguments=rest[1:], interpreter=before)


_LAUNCHERS: Mapping[str, Callable[[Sequence[str]], Launch]] = {"npx": _npx, "uvx": _uvx, "uv": _uv, "pipx": _pipx}


def _plain_program(name: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_.+-]*", name):
        raise LaunchError(f"`{visible(name)}` is no name of a program: expected a word without `/`")
    return name


def _not_a_package(text: str, registry: str, expected: str) -> LaunchError:
    return LaunchError(
        f"`{visible(text)}` is no package of {registry} with a version: expected `{expected}`; paths, URLs and git "
        "repositories have no published integrity, so they are not installed"
    )
