"""Policies as values: manifests, bundles, tool declarations, connectors, effect classes."""
