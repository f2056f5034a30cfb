"""What crosses the wall of a worker: its questions, and the host's answers."""
