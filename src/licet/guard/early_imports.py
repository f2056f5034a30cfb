"""Imports the modules that calls need while the gate is built, so that licet imports nothing after a tool has run.

To start quickly, licet imports heavy modules, such as the HTTP client, only when they are used. By then a tool might
have put a file on the import path, which would run in this process. A backend that imports something late has a method
`load_code`, which is called here.
"""

import importlib
from collections.abc import Iterable

_ALWAYS = ("rfc8785",)  # canonical JSON with floats or non-ASCII keys
_OF_DOMAIN = {"network": ("licet.guard.handles.fetch",)}


def load_code(domains: Iterable[str], parts: Iterable[object]) -> None:
    """Import the modules for capabilities of these domains and for these backends."""
    for name in (*_ALWAYS, *(name for domain in domains for name in _OF_DOMAIN.get(domain, ()))):
        importlib.import_module(name)
    for part in parts:
        load = getattr(type(part), "load_code", None)  # of its class: an object may have any attribute
        if load is not None:
            load(part)
