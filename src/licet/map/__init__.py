"""The picture of what an agent can reach, as SVG.

Pages for reports: what agents can reach, and what changed, as one HTML file each.
"""
