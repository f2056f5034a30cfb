"""Declaring a tool: `@tool`, `Tool.wasm`, `ToolCapabilities`, and the `Context` of a call. Nothing is enforced here."""

from licet.core.policy.tool import ToolCapabilities
from licet.declare.context import Context, SyncContext
from licet.declare.decorator import Tool, WasmTool, tool
from licet.declare.wasm import WasmModule

__all__ = ["Context", "SyncContext", "Tool", "ToolCapabilities", "WasmModule", "WasmTool", "tool"]
