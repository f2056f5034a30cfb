"""MCP: messages, links and servers, as the gateway and the lock use them."""
