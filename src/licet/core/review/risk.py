"""What a reviewer looks at first: the riskiest thing that a tool, an agent or a change can do.

`RISKS` is the one order, riskiest first. It says what code could do with what it holds, not what it will do: a tool
with one host and one secret may be the most ordinary client, and still be where a secret can leave.
"""

from collections.abc import Iterable
from typing import Any

from msgspec import Struct

from licet.core.algebra.capability import Capability
from licet.core.algebra.set import CapabilitySet
from licet.core.review.sensitive import holds_keys
from licet.core.review.wide import is_wide

RISK_LEVELS = ("critical", "high", "medium", "low", "none")  # riskiest first


class Risk(Struct, frozen=True):
    """One kind of risk; `label` completes the sentence that begins with the name of the tool."""

    kind: str
    level: str
    label: str

    @property
    def rank(self) -> int:
        """Its place in the order; 0 is the riskiest."""
        return RISKS.index(self)

    def document(self) -> dict[str, Any]:
        """The risk as plain data."""
        return {"level": self.level, "kind": self.kind, "text": self.label}

    def __str__(self) -> str:
        return f"{self.level}: {self.label}"


NATIVE = Risk("native", "critical", "runs code without walls")
EVERYTHING = Risk("everything", "critical", "reaches everything of a kind, such as every host")
DELETE = Risk("delete", "high", "deletes")
SECRET_NETWORK = Risk("secret_network", "high", "holds a secret and can send it")
NETWORK_WRITE = Risk("network_write", "medium", "writes to the network")
PROGRAM = Risk("program", "medium", "starts programs")
FILE_WRITE = Risk("file_write", "medium", "writes files")
SECRET = Risk("secret", "medium", "reads secrets")
KEY_FILE = Risk("key_file", "medium", "reads files that hold keys or secrets")
CHECKS = Risk("checks", "medium", "is checked less")
NETWORK_READ = Risk("network_read", "low", "reads from the network")
FILE_READ = Risk("file_read", "low", "reads files")
OTHER = Risk("other", "low", "uses variables, storage, tools or connectors")
NOTHING = Risk("nothing", "none", "reaches nothing")
RISKS = (
    *(NATIVE, EVERYTHING, DELETE, SECRET_NETWORK, NETWORK_WRITE, PROGRAM, FILE_WRITE, SECRET, KEY_FILE, CHECKS),
    *(NETWORK_READ, FILE_READ, OTHER, NOTHING),
)

_FILE_READ, _FILE_DELETE, _FILE_WRITE = (
    Capability("fs:read:*").atoms,
    Capability("fs:delete:*").atoms,
    Capability("fs:write:*").atoms,
)
# licet does not see what a plain connection or an unknown method does, so both count as writes.
_NETWORK_WRITE = sum(Capability(f"network:{text}").atoms for text in ("write:*", "*:other@*", "tcp:*"))
_NETWORK_DELETE = Capability("network:delete:*").atoms
_OF_DOMAIN = {"secret": SECRET, "process": PROGRAM, "network": NETWORK_READ, "fs": FILE_READ}


def riskiest(risks: Iterable[Risk]) -> Risk:
    """The first of some risks in the order; `NOTHING` of none."""
    return min(risks, key=RISKS.index, default=NOTHING)


def rule_risk(rule: Capability) -> Risk:
    """The riskiest thing that one rule allows."""
    if is_wide(rule):
        return EVERYTHING
    deletes, writes = (_FILE_DELETE, _FILE_WRITE) if rule.domain == "fs" else (_NETWORK_DELETE, _NETWORK_WRITE)
    if rule.domain in ("fs", "network") and rule.atoms & deletes:
        return DELETE
    if rule.domain in ("fs", "network") and rule.atoms & writes:
        return FILE_WRITE if rule.domain == "fs" else NETWORK_WRITE
    if rule.domain == "fs" and holds_keys(rule.scope):
        return KEY_FILE
    return _OF_DOMAIN.get(rule.domain, OTHER)


def _reads_keys(rule: Capability) -> bool:
    return rule.domain == "fs" and bool(rule.atoms & _FILE_READ) and holds_keys(rule.scope)


def grant_risks(grant: CapabilitySet, *, native: bool = False) -> tuple[Risk, ...]:
    """Every risk of a grant, riskiest first; `native` says that its holder runs without walls."""
    found = {rule_risk(rule) for rule in grant.allow}
    domains = {rule.domain for rule in grant.allow}
    if "network" in domains and ("secret" in domains or any(_reads_keys(rule) for rule in grant.allow)):
        found.add(SECRET_NETWORK)
    if native:
        found.add(NATIVE)
    return tuple(sorted(found, key=RISKS.index)) or (NOTHING,)


def at_least(risk: Risk, level: str) -> bool:
    """Whether a risk is of this level or a higher one."""
    return RISK_LEVELS.index(risk.level) <= RISK_LEVELS.index(level)
