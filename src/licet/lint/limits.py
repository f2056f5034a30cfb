"""What `licet lint` and the guesses of `licet init` are bounded by, besides the limits of reading source."""

# One command
MOST_TOKENS_IN_CHECK = 60_000  # tokens; all files that `licet check` lints; `licet lint` itself reads more
MOST_GUESSED_FUNCTIONS = 100  # functions; those of one file that `licet init` proposes as tools, for one review
