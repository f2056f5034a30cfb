"""The grant of `licet run -- CMD`: no tool declares it, so it needs everything that a program can use."""

from msgspec.structs import replace

from licet.core.algebra.capability import Capability
from licet.core.algebra.set import CapabilitySet
from licet.core.algebra.use import InvalidUse, Use
from licet.core.policy.manifest import Manifest
from licet.core.policy.terms import Admission
from licet.core.policy.tool import ToolSpec

COMMANDS = "licet run"  # no tool can have this name, since names have no spaces
PROGRAM = "run"  # what receipts call it
COMMAND_NEEDS = ("fs:*:*", "network:*:*", "process:exec:*", "env:read:*")
COMMAND_DOMAINS = tuple(need.partition(":")[0] for need in COMMAND_NEEDS)


def admit_commands(manifest: Manifest, name: str = COMMANDS) -> Manifest:
    """Return the manifest with an admission for commands, which no bundle and no rule about a single tool narrows.

    A deny of all tools, `tool:call:*`, denies commands too.
    """
    admissions = {**manifest.admissions, name: (Admission(manifest.origin),)}
    layers = tuple(
        replace(layer, denies=tuple(rule for rule in layer.denies if not _names(rule.capability, name)))
        for layer in manifest.layers
    )
    return replace(manifest, admissions=admissions, layers=layers, loaded=manifest.loaded or manifest)


def with_commands(manifest: Manifest) -> Manifest:
    """Return the manifest with one more tool, named `COMMANDS`, that is any command."""
    spec = ToolSpec(COMMANDS, CapabilitySet(COMMAND_NEEDS), manifest.max_effect, "isolated", origin=manifest.origin)
    return admit_commands(manifest).declare([spec])


def asked_tool(tool: str, manifest: Manifest) -> tuple[str, Manifest]:
    """The tool that people mean by a name, and the manifest that has it: `run` is any command, unless a tool is."""
    if tool != PROGRAM or tool in manifest.admissions or tool in manifest.tools:
        return tool, manifest
    return COMMANDS, with_commands(manifest)


def check_command_use(*uses: Use) -> None:
    """Raise `InvalidUse` for a use that no command of `licet run` has."""
    for use in uses:
        if use.domain not in COMMAND_DOMAINS:
            domains = ", ".join(COMMAND_DOMAINS)
            raise InvalidUse(str(use), f"what a command of `licet run` uses: {domains}; never `{use.domain}`")


def connection_of_command(request: Use) -> Use:
    """What a command needs for a request: over https a connection, since the proxy cannot see what a tunnel carries."""
    return Use(f"network:tcp:{request.target}:{request.port}") if request.action == "https" else request


def _names(rule: Capability, tool: str) -> bool:
    return rule.domain == "tool" and rule.key == tool
