"""The walls around tools and programs, enforced by the kernel.

- `kernel`: the mechanisms (Landlock, seccomp, namespaces, hardening); `probe` and `attempts` test them on this machine
- `workers`: processes that run tools behind walls; `bridge`: how a worker uses the handles of its call
- `programs`: programs behind walls, their supervisor, launcher and proxy

Everything here imports on every system, and refuses to run where the kernel is not Linux.
"""
