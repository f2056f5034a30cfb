"""licet: capabilities for the tools that AI agents call.

A tool declares what it touches, a manifest allows part of it, and each call holds exactly the overlap.

`@tool` declares, `load_manifest` reads a policy, `Gate` runs calls. Besides this module, `licet.events`,
`licet.handles` and `licet.ports` (types), `licet.adapters`, `licet.testing` and `licet.tools` are public; everything
else may change. See docs/calls.md.
"""

from importlib import import_module

# Not from `typing`: `python -m licet` loads this file while the current directory is still on the import path, so only
# modules that Python has already loaded, such as `importlib`, are safe to import.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from licet.assemble.gate import Backends, Gate, run
    from licet.assemble.one_tool import check_and_run
    from licet.core.algebra.rules import Capability, InvalidUse, Use, use_of_path, use_of_url
    from licet.core.algebra.scope import Malformed
    from licet.core.algebra.set import CapabilitySet
    from licet.core.decision.decide import decide
    from licet.core.decision.decision import Allow, Ask, Decision, Deny
    from licet.core.decision.request import Request, Usage
    from licet.core.decision.validate import Misfit, validate_registration, validate_tools
    from licet.core.policy.manifest import Manifest
    from licet.core.policy.tool import ToolSpec
    from licet.declare import Context, SyncContext, Tool, ToolCapabilities, tool
    from licet.errors import LicetError, ManifestError, Refused, RegistrationRefused, UntiedArgument
    from licet.guard.result import Result
    from licet.guard.session import Session
    from licet.policy_files.load import load_manifest

__version__ = "0.1.0"

__all__ = [
    "Allow",
    "Ask",
    "Backends",
    "Capability",
    "CapabilitySet",
    "Context",
    "Decision",
    "Deny",
    "Gate",
    "InvalidUse",
    "LicetError",
    "Malformed",
    "Manifest",
    "ManifestError",
    "Misfit",
    "Refused",
    "RegistrationRefused",
    "Request",
    "Result",
    "Session",
    "SyncContext",
    "Tool",
    "ToolCapabilities",
    "ToolSpec",
    "UntiedArgument",
    "Usage",
    "Use",
    "check_and_run",
    "decide",
    "load_manifest",
    "run",
    "tool",
    "use_of_path",
    "use_of_url",
    "validate_registration",
    "validate_tools",
]

# Each name is loaded when it is first used, so a module that only declares tools does not load the YAML reader.
_HOMES = {
    "licet.assemble.one_tool": ("check_and_run",),
    "licet.assemble.gate": ("Backends", "Gate", "run"),
    "licet.core.policy.manifest": ("Manifest",),
    "licet.policy_files.load": ("load_manifest",),
    "licet.core.decision.decide": ("decide",),
    "licet.core.decision.decision": ("Allow", "Ask", "Decision", "Deny"),
    "licet.core.decision.request": ("Request", "Usage"),
    "licet.core.algebra.set": ("CapabilitySet",),
    "licet.core.policy.tool": ("ToolSpec",),
    "licet.core.algebra.rules": ("Capability", "Use", "use_of_path", "use_of_url"),
    "licet.core.decision.validate": ("Misfit", "validate_registration", "validate_tools"),
    "licet.declare": ("Context", "SyncContext", "Tool", "ToolCapabilities", "tool"),
    "licet.errors": (
        *("InvalidUse", "LicetError", "Malformed", "ManifestError", "Refused", "RegistrationRefused", "UntiedArgument"),
    ),
    "licet.guard.result": ("Result",),
    "licet.guard.session": ("Session",),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> object:
    if name not in _HOME_OF:
        raise AttributeError(f"module `licet` has no attribute `{name}`")
    value = getattr(import_module(_HOME_OF[name]), name)
    if name == "Manifest":
        value = value.read_data_with(import_module("licet.policy_files.data").manifest_from_data)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
