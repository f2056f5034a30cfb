"""Capabilities: rules, uses, and exact operations on sets of them."""
