"""Data for reviewers: the surface of an agent, the differences between two manifests, and warnings about wide ones."""
