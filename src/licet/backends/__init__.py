"""Adapters to the world: files, network, stores, keys. Each implements a port; none decides anything."""
