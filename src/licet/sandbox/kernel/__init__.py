"""The kernel's own mechanisms: Landlock, seccomp, namespaces, limits. Standard library only."""
