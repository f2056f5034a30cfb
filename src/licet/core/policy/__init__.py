"""What an agent may touch: manifests, tools, connectors, effect classes."""
