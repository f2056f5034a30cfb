"""Adapters to the world: files, networks, stores. Each implements a port or reads a format; none decides."""
