"""Declaring a tool: `@tool`, `ToolCapabilities`, and the `Context` of a call. Nothing is enforced here."""

from licet.core.policy.tool import ToolCapabilities
from licet.declare.context import Context
from licet.declare.decorator import Tool, tool
from licet.declare.sync_context import SyncContext

__all__ = ["Context", "SyncContext", "Tool", "ToolCapabilities", "tool"]
