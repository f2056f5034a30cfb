"""The types of `ctx` and its handles, async and sync, for annotations. They are protocols.

A call makes the handles. A test can pass any object with the same methods, or use `licet.testing`. See
docs/handles.md.
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
    SyncContext,
    SyncFetch,
    SyncFileSystem,
    SyncPrograms,
    SyncSecretStore,
    SyncStore,
    TextMode,
)

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
