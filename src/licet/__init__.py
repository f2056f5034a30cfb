"""licet: capabilities for the tools that AI agents call.

A tool declares what it touches, a manifest allows part of it, and each call holds exactly the overlap.
"""

from importlib import import_module

# Not from `typing`: `python -m licet` loads this file while the current directory is still on the import path, and
# `importlib` is all that Python itself has loaded by then.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from licet.assemble.one_tool import check_and_run
    from licet.assemble.running import Backends, Gate, run
    from licet.backends.manifest_yaml import load_manifest
    from licet.core.capability import Capability
    from licet.core.decide import decide
    from licet.core.decision import Allow, Ask, Decision, Deny, Request, Usage
    from licet.core.manifest import Manifest
    from licet.core.set import CapabilitySet
    from licet.core.tool import ToolSpec
    from licet.core.use import Use, use_of_path, use_of_url
    from licet.core.validate import Misfit, validate_registration, validate_tools
    from licet.declare import Context, SyncContext, Tool, ToolCapabilities, tool
    from licet.errors import InvalidUse, LicetError, Malformed, ManifestError, Refused, RegistrationRefused
    from licet.guard.result import Result
    from licet.guard.session import Session

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

# Each name is loaded when it is first asked for: who declares a tool does not wait for the YAML reader.
_HOMES = {
    "licet.assemble.one_tool": ("check_and_run",),
    "licet.assemble.running": ("Backends", "Gate", "run"),
    "licet.backends.manifest_data": ("Manifest",),  # with what `Manifest.from_data` needs
    "licet.backends.manifest_yaml": ("load_manifest",),
    "licet.core.capability": ("Capability",),
    "licet.core.decide": ("decide",),
    "licet.core.decision": ("Allow", "Ask", "Decision", "Deny", "Request", "Usage"),
    "licet.core.set": ("CapabilitySet",),
    "licet.core.tool": ("ToolSpec",),
    "licet.core.use": ("Use", "use_of_path", "use_of_url"),
    "licet.core.validate": ("Misfit", "validate_registration", "validate_tools"),
    "licet.declare": ("Context", "SyncContext", "Tool", "ToolCapabilities", "tool"),
    "licet.errors": ("InvalidUse", "LicetError", "Malformed", "ManifestError", "Refused", "RegistrationRefused"),
    "licet.guard.result": ("Result",),
    "licet.guard.session": ("Session",),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> object:
    if name not in _HOME_OF:
        raise AttributeError(f"module `licet` has no attribute `{name}`")
    value = globals()[name] = getattr(import_module(_HOME_OF[name]), name)
    return value


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
