"""What declarations, and checks against their JSON Schemas, are bounded by."""

# Declarations
LARGEST_MODULE = 64 << 20  # bytes; a WebAssembly module
LONGEST_FUNCTION = 512  # characters; the name of an export of a module
LONGEST_CONSTANT = 100_000  # characters; a constant that a notebook cell uses: more belongs into arguments or files

# The process that checks arguments against a schema
ANSWER_SECONDS = 2.0  # seconds; a yes or no
LIST_SECONDS = 0.5  # seconds; the errors after a no
START_SECONDS = 10.0  # seconds; the process starts
MOST_CHECKERS = 2  # processes; those that wait for the next check
LONGEST_ANSWER = 1 << 16  # bytes; one answer
