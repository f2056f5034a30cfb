"""Names the rights that nothing has behind walls, from what a failed command said, and what to do instead.

These are refused whatever the policy says, so a line that asks for one is true wherever it is printed: there is no rule
to add. What the program says is no more than the reason to print it.
"""

import re
from typing import NamedTuple

from licet.cli.limits import HINT_LINES
from licet.cli.refused_paths import last_lines
from licet.core.decision.reach import Reach
from licet.core.late_pattern import late_pattern
from licet.sandbox.programs.walls import OF_A_RUN, limits_of

# 64 TiB: what ThreadSanitizer and MemorySanitizer reserve and never use; AddressSanitizer takes 20.
SANITIZED_MB = 1 << 26


class _Refusal(NamedTuple):
    """What programs print when they lack a right, and why they lack it."""

    said: "re.Pattern[str]"
    why: str


_MEMORY = _Refusal(
    late_pattern(r"Sanitizer:? (?:failed to allocate|can not mmap)|ReserveShadowMemoryRange failed"),
    "a sanitizer reserves terabytes of addresses, and the limit of memory counts them: "
    f"`limits: {{memory_mb: {SANITIZED_MB}}}` in the policy lets it run, with no other limit of memory",
)
# The first that fits a line is taken.
_REFUSALS = (
    _MEMORY,
    _Refusal(
        late_pattern(r"LeakSanitizer has encountered a fatal error"),
        "LeakSanitizer stops its own program with `ptrace`, which nothing has behind walls: leave that check out with "
        "`ASAN_OPTIONS=detect_leaks=0`",
    ),
    _Refusal(
        late_pattern(r"\bptrace\b|PTRACE_|^(?:warning: )?Could not (?:trace|attach)"),
        "nothing behind walls may look into another process (`ptrace`): run debuggers, strace and ltrace outside",
    ),
    _Refusal(
        late_pattern(r"^No permission to enable|perf_event_|^Access to performance monitoring"),
        "nothing behind walls may use the counters of the kernel: run perf outside",
    ),
    _Refusal(
        late_pattern(r"^(?:sudo|su|doas|pkexec|runuser): "),
        "nothing behind walls gets other rights than the run has: `sudo` and `su` work outside alone",
    ),
    _Refusal(
        late_pattern(r"^(?:ping6?|traceroute|mtr|arping|tcpdump|nmap): |Couldn't open a raw socket"),
        "there are no raw sockets behind walls: try a TCP connection, which the proxy makes and checks",
    ),
    _Refusal(
        late_pattern(r"No usable sandbox|Failed to move to new namespace|zygote_host_impl_linux|sandbox/linux"),
        "a browser's own sandbox takes namespaces, which nothing may make behind walls: start it with `--no-sandbox`, "
        "as Playwright does, since the walls are around it anyway",
    ),
    _Refusal(
        late_pattern(r"^(?:bwrap|unshare|nsenter|newuidmap|rootlesskit|firejail|fusermount3?|u?mount|chroot): "),
        "nothing behind walls makes namespaces, mounts or another root: run containers and mounts outside",
    ),
    _Refusal(
        late_pattern(r"^E: (?:List directory|Could not open lock file|Unable to )|^dpkg: error: requested operation"),
        "nothing is installed on the machine from behind walls: install packages of the system yourself",
    ),
    _Refusal(
        late_pattern(r"^Failed to connect to (?:\w+ scope |the )?bus|been booted with systemd|^Failed to dial bus"),
        "the services of the machine (systemd, D-Bus) are not reached from behind walls: run this outside",
    ),
    _Refusal(
        late_pattern(r"^(?:crontab|at|atq|atrm|batch): |/var/spool/cron|^Cannot open lockfile"),
        "what cron or at start later would be outside of the walls: add it yourself",
    ),
    _Refusal(
        late_pattern(
            r"^(?:dmesg|sysctl|modprobe|insmod|ip6?tables|nft|ip|RTNETLINK answers|chrt|renice|date|hostname): "
            r".*(?:not permitted|ermission denied)"
        ),
        "nothing behind walls changes the machine, its network or the order of its processes",
    ),
    _Refusal(
        late_pattern(
            r"Could not resolve host|Temporary failure in name resolution|\bEAI_AGAIN\b|\bgaierror\b"
            r"|Name or service not known|no servers could be reached|(?i:network (?:is )?unreachable)"
        ),
        "the only way to the network is the proxy that `http_proxy` and `https_proxy` name, which also looks names up, "
        "and this program goes around it",
    ),
    _Refusal(
        late_pattern(r"(?:ing ownership of|change ownership|chown|chgrp).*(?:not permitted|Invalid argument)"),
        "there is one user and one group behind walls, and files are theirs: `tar --no-same-owner`, `cp` without `-p`",
    ),
)


def rights_refused(said: str, reach: Reach | None) -> list[str]:
    """Why what a failed command asked for is not to be had behind walls, for each right that its last lines name."""
    reasons: dict[str, None] = {}
    for line in last_lines(said):
        refusal = next((refusal for refusal in _REFUSALS if refusal.said.search(line)), None)
        if refusal is not None and not (refusal is _MEMORY and _is_lifted(reach)):
            reasons[refusal.why] = None
    return list(reasons)[:HINT_LINES]


def _is_lifted(reach: Reach | None) -> bool:
    """Whether the policy gives as much memory as a sanitizer reserves."""
    return reach is None or limits_of(reach, OF_A_RUN)["memory_mb"] >= SANITIZED_MB
