"""The picture of what an agent can reach, as SVG."""
