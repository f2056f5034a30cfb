"""The limits of the adapters: what they remember between calls."""

REMEMBERED_SECONDS = 24 * 3600  # seconds; that an expired question is remembered, so that a late yes is called late
MOST_APPROVED = 1000  # calls; that were approved, and that Claude Code has not made yet
MOST_OUTCOMES = 1000  # answers, and outcomes; that one adapter keeps for steps of a graph that run again
