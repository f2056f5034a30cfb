"""Imports what calls will need while the gate is built: once a tool has run, licet loads no code of its own any more.

Modules load others when something is first done, so that starting costs little: the first request loads a whole HTTP
stack. A tool that could plant a file on the import path by then would have it run in this process. What is loaded here
is what the parts in use need. A part tells with a method `load_code`; one without it loads nothing late.
"""

import importlib
from collections.abc import Iterable

_ALWAYS = ("rfc8785",)  # writes what is hashed where it holds floats or keys that are not ASCII
_OF_DOMAIN = {"network": ("licet.guard.handles.fetch",)}  # what licet itself loads late


def load_code(domains: Iterable[str], parts: Iterable[object]) -> None:
    """Import what calls need that hold such domains of capabilities and use such parts."""
    for name in (*_ALWAYS, *(name for domain in domains for name in _OF_DOMAIN.get(domain, ()))):
        importlib.import_module(name)
    for part in parts:
        load = getattr(type(part), "load_code", None)  # of its class: a part may answer to any name
        if load is not None:
            load(part)
