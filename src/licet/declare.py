"""Declaring a tool: `@tool`, `ToolCapabilities`, and the `Context` that a call hands over. Nothing is enforced here."""

import inspect
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from licet.core.needs import spec_of


class Context(Protocol):
    """What a call hands to its tool."""

    session_id: str
    agent: str
    workdir: str


class ToolCapabilities: ...


class Tool:
    """A function and its declaration."""

    def __init__(self, fn: Callable[..., Any], spec: Any) -> None:
        self.fn = fn
        self.spec = spec


def tool(*, capabilities: Mapping[str, Any] | None = None, needs: Any = None, **rest: Any) -> Callable[..., Tool]:
    """Declare a function to be a tool."""
    return lambda fn: Tool(fn, spec_of(name=fn.__name__, capabilities=capabilities, needs=needs, **rest))
