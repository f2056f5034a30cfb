"""What a failed command says of rights that nothing has behind walls is explained; other lines are not."""

import pytest
from msgspec.structs import replace

from guard.grants import grant
from licet.cli.refused_rights import SANITIZED_MB, rights_refused

# As these programs say it; `tests/programs/rows.yaml` has the programs themselves.
REFUSALS = {
    "strace: ptrace(PTRACE_TRACEME, ...): Operation not permitted": "`ptrace`",
    "PTRACE_TRACEME: Operation not permitted": "`ptrace`",
    "warning: ptrace: Operation not permitted": "`ptrace`",
    "==23==LeakSanitizer has encountered a fatal error.": "detect_leaks=0",
    "==2==ERROR: AddressSanitizer failed to allocate 0xdfff0001000 (15392894357504) bytes (errno: 12)": "memory_mb",
    "FATAL: ThreadSanitizer can not mmap the shadow memory": "memory_mb",
    "No permission to enable task-clock event.": "perf",
    "sudo: unable to change to root gid: Operation not permitted": "`sudo`",
    "ping: socket: Operation not permitted": "raw sockets",
    "[0101/1.2:FATAL:zygote_host_impl_linux.cc(128)] No usable sandbox!": "--no-sandbox",
    "unshare: unshare failed: Operation not permitted": "namespaces",
    "bwrap: No permissions to create a new namespace": "namespaces",
    "mount: /mnt: permission denied.": "mounts",
    "Failed to connect to bus: No such file or directory": "systemd",
    "System has not been booted with systemd as init system (PID 1). Can't operate.": "systemd",
    "E: List directory /var/lib/apt/lists/partial is missing. - Acquire (2: No such file or directory)": "installed",
    "dpkg: error: requested operation requires superuser privilege": "installed",
    "crontab: can't open your crontab file.": "cron",
    "dmesg: read kernel buffer failed: Operation not permitted": "changes the machine",
    "curl: (6) Could not resolve host: example.com": "http_proxy",
    "Error: getaddrinfo EAI_AGAIN example.com": "http_proxy",
    "socket.gaierror: [Errno -3] Temporary failure in name resolution": "http_proxy",
    ";; no servers could be reached": "http_proxy",
    "chown: changing ownership of 'a': Operation not permitted": "one user",
    "tar: a: Cannot change ownership to uid 1, gid 1: Invalid argument": "one user",
}


@pytest.mark.parametrize("line", REFUSALS)
def test_a_right_that_nothing_has_is_explained(line: str) -> None:
    (why,) = rights_refused(f"before\n{line}\n{line}\nafter\n", grant().reach)
    assert REFUSALS[line] in why


@pytest.mark.parametrize(
    "line",
    [
        "",
        "3 passed",
        "the command `sudo` is in the notes",
        "mount the disk",
        "perfect",
        "hello@at: noon",
        "suite: failed",
    ],
)
def test_other_lines_explain_nothing(line: str) -> None:
    assert rights_refused(f"{line}\n", grant().reach) == []


def test_a_policy_with_enough_memory_is_not_asked_for_more() -> None:
    reach = grant().reach
    said = "==2==ERROR: ThreadSanitizer failed to allocate 0x1f0000000000 (34084860461056) bytes (errno: 12)"
    assert f"memory_mb: {SANITIZED_MB}" in rights_refused(said, reach)[0]
    reach = replace(reach, manifest=replace(reach.manifest, limits={"memory_mb": SANITIZED_MB}))
    assert rights_refused(said, reach) == []
