"""The walls around tools and programs: what the kernel itself enforces, whatever code runs inside.

`kernel`, `landlock`, `seccomp`, `hardening` and `namespaces` are the mechanisms, one each; `probe` tries whether they
hold on this machine. Everything here imports on every system and refuses where the kernel is not Linux.
"""
