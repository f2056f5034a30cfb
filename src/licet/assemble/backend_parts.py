"""The types of the parts of `Backends` as keyword arguments, and the check of those that were given."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict

from licet.backends.secrets import ChainSecrets, EnvironmentSecrets
from licet.guard.execution import Processes, Sandbox
from licet.guard.ports import (
    Approver,
    ApproverFunction,
    ArgumentRules,
    Budgets,
    Clock,
    Files,
    Freezes,
    Http,
    KeptCalls,
    Kv,
    Ledger,
    Opening,
    Ports,
    Secrets,
    SecretsFunction,
    StandingApprovals,
    Unavailable,
)

if TYPE_CHECKING:
    from licet.backends.memory import Answer, Site
    from licet.backends.secrets import FileSecrets
    from licet.sandbox.programs.function_programs import ProgramFunction

SecretSource = Secrets | SecretsFunction | Mapping[str, str] | os.PathLike[str]


class _Parts(TypedDict, total=False):
    """The parts that both kinds of backends take in the same form."""

    kv: Kv | None
    environ: Mapping[str, str] | None
    ledger: Ledger | None
    budgets: Budgets | None
    approver: Approver | ApproverFunction | None
    standing: StandingApprovals | None
    kept_calls: KeptCalls | None
    sandbox: Sandbox | None
    freezes: Freezes | None
    opening: Opening | None
    clock: Clock | None
    argument_rules: ArgumentRules | None
    state: tuple[str, ...]


class LocalParts(_Parts, total=False):
    """The parts that `Backends.local` takes by name."""

    files: Files | None
    http: Http | None
    processes: Processes | None
    secrets: SecretSource | Sequence[SecretSource] | None


class MemoryParts(_Parts, total=False):
    """The parts that `Backends.memory` takes by name. For some, a mapping of the contents is enough."""

    files: Files | Mapping[str, bytes | str] | None
    http: "Http | Mapping[str, Answer | Site] | Site | None"
    processes: "Processes | Mapping[str, ProgramFunction | str | bytes] | None"
    secrets: Secrets | SecretsFunction | Mapping[str, str] | None


_PORTS: dict[str, type] = {
    "files": Files,
    "http": Http,
    "secrets": Secrets,
    "kv": Kv,
    "processes": Processes,
    "ledger": Ledger,
    "budgets": Budgets,
    "approver": Approver,
    "standing": StandingApprovals,
    "kept_calls": KeptCalls,
    "sandbox": Sandbox,
    "freezes": Freezes,
    "opening": Opening,
    "clock": Clock,
}
_FUNCTIONS = ("secrets", "approver")  # parts that may be a function instead of an object


def check_names(parts: Mapping[str, object]) -> None:
    """Raise `TypeError` for a name that is no part of `Backends`."""
    known = Ports.__struct_fields__
    for name in parts:
        if name not in known:
            raise TypeError(f"`{name}` is no part of backends; expected {', '.join(known)}")


def check_part(name: str, part: Any) -> None:
    """Raise `TypeError` if a part lacks methods of its port. None means that there is no such part."""
    expected = "" if part is None or isinstance(part, type) else _lacking(name, part)
    if isinstance(part, type):
        expected = f"an object, not the class: `{name}={part.__name__}(…)`"
    if expected:
        raise TypeError(f"`{name}=` must be {expected}; found {_kind(part)}")


def _lacking(name: str, part: Any) -> str:
    """Return what a part must be; empty if it is that."""
    if name == "environ":
        mapping = isinstance(part, Mapping) or (_has(part, "get") and _has(part, "keys"))
        return "" if mapping else "a mapping such as `os.environ`"
    if name == "state":
        texts = isinstance(part, tuple) and all(isinstance(path, str) for path in part)
        return "" if texts else "a tuple of paths as text"
    if name == "argument_rules":
        return "" if callable(part) else "a function"
    port = _PORTS[name]
    methods = [method for method in vars(port) if not method.startswith("_")]
    missing = [method for method in methods if not _has(part, method)]
    if not missing or (name in _FUNCTIONS and callable(part)):
        return ""
    function = " or a function" if name in _FUNCTIONS else ""
    has = "" if missing == methods else f", of which it lacks {_listed(missing)}"
    return f"an object with {_listed(methods)} as in `licet.ports.{port.__name__}`{function}{has}"


def _has(part: object, method: str) -> bool:
    try:
        return callable(getattr(part, method, None))
    except Exception:  # it fails again when it is used, and then the call is refused
        return True


def _listed(methods: Sequence[str]) -> str:
    return ", ".join(f"`{method}`" for method in methods)


def _kind(part: object) -> str:
    return f"the class `{part.__name__}`" if isinstance(part, type) else f"a {type(part).__name__}"


Source = Secrets | SecretsFunction


def secrets_from(given: Any) -> tuple[Source, list[Path]]:
    """Return one backend for all given sources, searched in order, and the paths of those that are files.

    A source is a path (`NAME=value` lines), a mapping (variables, such as `os.environ`), a backend, or a function that
    takes a reference, async or not.
    """
    sources = given if isinstance(given, list | tuple) else [given]
    backends = [_backend(source) for source in sources]
    files = [Path(source) for source in sources if isinstance(source, os.PathLike)]
    return backends[0] if len(backends) == 1 else ChainSecrets(*backends), files


def secrets_file_problem(file: Path) -> str:
    """Return why a file of secrets cannot be used; empty if it can."""
    try:
        _file(file).check()
    except Unavailable as wrong:
        return str(wrong)
    return ""


def _file(path: "os.PathLike[str]") -> "FileSecrets":
    from licet.backends.secrets import FileSecrets  # imported only if there is such a file

    return FileSecrets(path)


def _backend(source: Any) -> Source:
    if isinstance(source, os.PathLike):
        return _file(source)
    if isinstance(source, Mapping):
        return EnvironmentSecrets(source)
    if isinstance(source, str) or not (callable(source) or callable(getattr(source, "get", None))):
        # A plain text is refused and not quoted: it could be a secret itself.
        expected = "a Path, a mapping such as `os.environ`, a backend with `get`, or a function"
        raise TypeError(f"a source of secrets is {expected}; found a {type(source).__name__}")
    backend: Source = source
    return backend
