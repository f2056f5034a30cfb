"""The pure heart: values in, values out. No files, sockets, clock, environment or randomness."""
