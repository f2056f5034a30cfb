"""What bounds servers, the programs of `licet run`, and states."""

OUTPUT_BYTES = 1 << 20  # bytes of output that are kept of the process of a server
SHORTEST_LINE = 8  # characters of a line of a secret, from which on it is redacted by itself
RUN_SECONDS = 10 * 365 * 86_400  # seconds; the process of a server ends with its gateway, and a program by itself
MOST_SECRET_SOURCES = 8  # sources; of secrets in which a process looks for the password of a state, the newest first
