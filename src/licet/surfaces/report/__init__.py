"""Pages for reports: what agents can reach, and what changed, as one HTML file each."""
