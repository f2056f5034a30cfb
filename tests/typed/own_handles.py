"""What calls hand to tools fits the types that tools are told, in this process and behind a wall."""

from licet.guard.bind import BoundContext
from licet.guard.env import ScopedEnv
from licet.guard.fetch import ScopedFetch
from licet.guard.files import ScopedFiles
from licet.guard.kv import ScopedKv
from licet.guard.processes import ScopedProcesses
from licet.guard.secrets import ScopedSecrets
from licet.handles import Context, Environment, Fetch, FileSystem, Programs, SecretStore, Store
from licet.sandbox.inside import RemoteContext


def contexts(bound: BoundContext, remote: RemoteContext) -> tuple[Context, Context]:
    """Both contexts."""
    return bound, remote


def handles(
    fetch: ScopedFetch, fs: ScopedFiles, secrets: ScopedSecrets, kv: ScopedKv, env: ScopedEnv, process: ScopedProcesses
) -> tuple[Fetch, FileSystem, SecretStore, Store, Environment, Programs]:
    """Each handle."""
    return fetch, fs, secrets, kv, env, process
