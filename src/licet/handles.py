"""The types of `ctx` and its handles, for annotations: what a tool is given, async and not. They are protocols.

Nothing here is made by hand: a call makes handles, and a test of a tool can pass any object with the same methods.
"""

from licet.declare.context import (
    Answer,
    AnswerStream,
    BinaryMode,
    Context,
    Ended,
    Environment,
    Fetch,
    FileSystem,
    HeaderLines,
    Json,
    Path,
    Programs,
    SecretStore,
    Status,
    Store,
    TextMode,
)
from licet.declare.sync_context import SyncContext, SyncFetch, SyncFileSystem, SyncPrograms, SyncSecretStore, SyncStore

__all__ = [
    "Answer",
    "AnswerStream",
    "BinaryMode",
    "Context",
    "Ended",
    "Environment",
    "Fetch",
    "FileSystem",
    "HeaderLines",
    "Json",
    "Path",
    "Programs",
    "SecretStore",
    "Status",
    "Store",
    "SyncContext",
    "SyncFetch",
    "SyncFileSystem",
    "SyncPrograms",
    "SyncSecretStore",
    "SyncStore",
    "TextMode",
]
