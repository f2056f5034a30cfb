"""What calls hand to tools fits the types that tools are told, in this process and behind a wall."""

from licet.guard.bind import BoundContext
from licet.guard.handles.fetch import ScopedFetch
from licet.guard.handles.files import ScopedFiles
from licet.guard.handles.processes import ScopedProcesses
from licet.guard.handles.secrets_and_kv import ScopedEnv, ScopedKv, ScopedSecrets
from licet.handles import Context, Environment, Fetch, FileSystem, Programs, SecretStore, Store
from licet.sandbox.bridge.worker_context import RemoteContext


def contexts(bound: BoundContext, remote: RemoteContext) -> tuple[Context, Context]:
    """Both contexts."""
    return bound, remote


def handles(
    fetch: ScopedFetch, fs: ScopedFiles, secrets: ScopedSecrets, kv: ScopedKv, env: ScopedEnv, process: ScopedProcesses
) -> tuple[Fetch, FileSystem, SecretStore, Store, Environment, Programs]:
    """Each handle."""
    return fetch, fs, secrets, kv, env, process
