"""Packages of MCP servers and of tools: how they are found, pinned, installed and started."""
