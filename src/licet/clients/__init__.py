"""The configurations of MCP clients: where they are, what their entries say, and exact edits of single entries."""
