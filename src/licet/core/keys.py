"""Which rules the plain lists of a file stand for: the same keys in a manifest, a personality and `ToolCapabilities`.

Hosts are not here: `destinations` and `allowed_hosts` hold whole rules, see `destination` in `core/capability.py`.
"""

LISTS = {
    "fs_reach.read": ("fs:read",),
    "fs_reach.write": ("fs:write", "fs:delete"),  # the class of a tool decides on deletes
    "env": ("env:read",),
    "secrets": ("secret:read",),
    "process.allowed_binaries": ("process:exec",),
}
KEY_OF = {kind: key for key, kinds in LISTS.items() for kind in kinds}
EXACT_KEY_OF = {kinds[0]: key for key, kinds in LISTS.items() if len(kinds) == 1}  # by keys that allow nothing else
