"""licet: capabilities for the tools that AI agents call.

A tool declares what it touches, a manifest allows part of it, and each call holds exactly the overlap.
"""

from licet.core.capability import Capability
from licet.core.decide import decide
from licet.core.decision import Allow, Ask, Decision, Deny, Request, Usage
from licet.core.manifest import Manifest
from licet.core.set import CapabilitySet
from licet.core.tool import ToolSpec
from licet.core.use import Use, use_of_path, use_of_url
from licet.core.validate import Misfit, validate_registration, validate_tools
from licet.declare import Context, Tool, ToolCapabilities, tool
from licet.errors import InvalidUse, LicetError, Malformed, ManifestError, Refused, RegistrationRefused

__version__ = "0.1.0"

__all__ = [
    "Allow",
    "Ask",
    "Capability",
    "CapabilitySet",
    "Context",
    "Decision",
    "Deny",
    "InvalidUse",
    "LicetError",
    "Malformed",
    "Manifest",
    "ManifestError",
    "Misfit",
    "Refused",
    "RegistrationRefused",
    "Request",
    "Tool",
    "ToolCapabilities",
    "ToolSpec",
    "Usage",
    "Use",
    "decide",
    "load_manifest",
    "tool",
    "use_of_path",
    "use_of_url",
    "validate_registration",
    "validate_tools",
]


def __getattr__(name: str) -> object:
    # Reading YAML is needed by those who load a manifest, not by those who declare a tool.
    if name == "load_manifest":
        from licet.backends.manifest_yaml import load_manifest

        return load_manifest
    raise AttributeError(f"module `licet` has no attribute `{name}`")
