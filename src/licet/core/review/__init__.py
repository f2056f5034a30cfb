"""What a reviewer sees: the surface of an agent, and differences between two."""
