"""Pure functions on values: no files, sockets, clock, environment or randomness."""
