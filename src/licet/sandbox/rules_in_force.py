"""The kernel rules around a worker or a program as text, for its receipt."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any

from licet.core.algebra.scope import inside
from licet.core.algebra.set import CapabilitySet
from licet.core.decision.bundle_rules import private_of
from licet.core.decision.reach import Reach
from licet.core.policy.addresses import common_ranges
from licet.core.policy.effects import Level
from licet.guard.access import Access, access
from licet.sandbox.kernel import landlock

REACHED = frozenset(("fs", "network", "process"))  # domains that a process uses without a handle
_WORDS = (
    ("read", landlock.READ),
    ("write", landlock.WRITE | landlock.SPECIAL),
    ("delete", landlock.DELETE),
    ("execute", landlock.EXECUTE & ~landlock.READ),
)
_SCRATCH = "${scratch}"  # another directory for each process
_Rules = Iterable[tuple[str, int, object]]  # path, access, and which file it was


def worker_access(level: Level, reach: Reach, own: _Rules, given: Iterable[str], granted: _Rules) -> Access:
    """The rules around a worker. At `restricted` none comes from the grant: the tool uses it through handles.

    `given` are the variables that a WASM tool finds in its environment.
    """
    grant = reach.grant if level == "isolated" else CapabilitySet()
    network = any(rule.domain == "network" for rule in grant.allow)
    connects = "connect through the host alone, as granted" if network else "connect nowhere"
    runtime = (f"read+write+delete {_SCRATCH}", *_worded(own))
    variables = (f"variable {name}" for name in given)
    return access(*_texts(grant), (*_worded(granted), *variables, connects), runtime)


def program_access(reach: Reach, orders: Mapping[str, Any], granted: _Rules, own: _Rules) -> Access:
    """The rules around a program, without hidden paths that it could not see anyway."""
    mounts, private = orders["mounts"], common_ranges(private_of(reach.manifest, reach.bundles))
    shown = (*mounts["read"], *mounts["write"])
    texts = [f"hide {path}" for path in mounts["hide"] if inside(path, shown)]
    texts += (f"read-only {path}" for path in mounts["read"] if inside(path, mounts["write"]))
    texts += (f"keep in place {path}" for path in mounts["hold"])
    texts += _worded(granted)
    if orders["network"] and any(rule.domain == "network" for rule in reach.grant.allow):
        texts += ["connect through the egress proxy alone, as granted", *(f"private {cidr}" for cidr in private)]
    else:
        texts.append("connect inside its own network alone" if orders["namespaces"] else "connect nowhere")
    return access(*_texts(reach.grant), texts, _worded(own, scratch=orders["scratch"][0]))


@lru_cache(128)
def _texts(grant: CapabilitySet) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The rules of a grant that a process uses without a handle, and the denies in them."""
    allowed = [rule for rule in grant.allow if rule.domain in REACHED]
    denied = [rule for rule in grant.deny if any(rule.meet(other) for other in allowed)]
    return tuple(map(str, allowed)), tuple(map(str, denied))


def _worded(rules: _Rules, scratch: Sequence[str] = ()) -> Iterator[str]:
    for path, allowed, _ in rules:
        words = "+".join(word for word, bits in _WORDS if allowed & bits)
        yield f"{words} {_SCRATCH if path in scratch else path}"
