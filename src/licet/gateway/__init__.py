"""The MCP gateway: JSON-RPC between one client and the servers of a workspace, with a gate in between."""
