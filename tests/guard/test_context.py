"""The handles of a call have the same methods and parameters as the protocols in `licet.handles`."""

import inspect

import pytest

from licet import handles
from licet.guard.bind import BoundContext
from licet.guard.handles.fetch import ScopedFetch
from licet.guard.handles.files import ScopedFiles
from licet.guard.handles.processes import ScopedProcesses
from licet.guard.handles.secrets_and_kv import ScopedEnv, ScopedKv, ScopedSecrets

HANDLES: dict[type, type] = {
    handles.Fetch: ScopedFetch,
    handles.FileSystem: ScopedFiles,
    handles.SecretStore: ScopedSecrets,
    handles.Store: ScopedKv,
    handles.Environment: ScopedEnv,
    handles.Programs: ScopedProcesses,
    handles.Context: BoundContext,
    handles.SyncContext: BoundContext,
    handles.SyncFetch: ScopedFetch,
    handles.SyncFileSystem: ScopedFiles,
    handles.SyncSecretStore: ScopedSecrets,
    handles.SyncStore: ScopedKv,
    handles.SyncPrograms: ScopedProcesses,
}


def taken(function: object) -> list[tuple[str, object, object]]:
    assert callable(function)
    return [(one.name, one.kind, one.default) for one in inspect.signature(function).parameters.values()]


@pytest.mark.parametrize("told", HANDLES, ids=lambda told: told.__name__)
def test_each_handle_has_the_methods_of_its_protocol(told: type) -> None:
    names = [name for name in dir(told) if name == "__call__" or not name.startswith("_")]
    assert names
    for name in names:
        promised, kept = inspect.getattr_static(told, name), getattr(HANDLES[told], name)
        if inspect.isfunction(promised):
            assert taken(kept) == taken(promised), name
