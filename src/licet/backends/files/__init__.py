"""Files of this machine, opened by descriptor, and files in memory."""
