"""Reads policy files and the source of tools. Nothing that is read here is imported or run."""
