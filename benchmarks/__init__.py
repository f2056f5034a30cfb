"""How fast licet is, as ratios: against the simplest code that gives the same verdicts, and against other libraries."""
