"""Where secrets come from: files, variables and backends of one's own, asked one after the other."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from licet.backends.secrets_chain import ChainSecrets
from licet.backends.secrets_environment import EnvironmentSecrets
from licet.guard.ports import Secrets, SecretsFunction, Unavailable

if TYPE_CHECKING:
    from licet.backends.secrets_file import FileSecrets

Source = Secrets | SecretsFunction


def secrets_from(given: Any) -> tuple[Source, list[Path]]:
    """One backend for all sources that were given, in their order; and the files among them.

    A source is a path (`NAME=value` lines), a mapping (variables, such as `os.environ`), a backend, or an async
    function that takes a reference.
    """
    sources = given if isinstance(given, list | tuple) else [given]
    backends = [_backend(source) for source in sources]
    files = [Path(source) for source in sources if isinstance(source, os.PathLike)]
    return backends[0] if len(backends) == 1 else ChainSecrets(*backends), files


def unfit(file: Path) -> str:
    """Why a file cannot hold secrets, or nothing."""
    try:
        _file(file).check()
    except Unavailable as wrong:
        return str(wrong)
    return ""


def _file(path: "os.PathLike[str]") -> "FileSecrets":
    from licet.backends.secrets_file import FileSecrets  # loaded only where there is such a file

    return FileSecrets(path)


def _backend(source: Any) -> Source:
    if isinstance(source, os.PathLike):
        return _file(source)
    if isinstance(source, Mapping):
        return EnvironmentSecrets(source)
    if isinstance(source, str) or not (callable(source) or callable(getattr(source, "get", None))):
        # A text could be a file, a reference or a value; the last of these would be a secret in an error.
        expected = "a Path, a mapping such as `os.environ`, a backend with `get`, or an async function"
        raise TypeError(f"a source of secrets is {expected}; found a {type(source).__name__}")
    backend: Source = source
    return backend
