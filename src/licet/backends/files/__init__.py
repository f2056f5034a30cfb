"""Files: of this machine by descriptor, and in memory."""
