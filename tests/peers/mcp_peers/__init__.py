"""Tests of the gateway with MCP servers and clients of others."""
