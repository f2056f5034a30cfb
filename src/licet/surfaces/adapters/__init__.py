"""Adapters: the tools of a gate as tools of agent frameworks, and a framework's tools behind a gate."""
