"""How fast licet is, as ratios: against the barest code that gives the same verdicts, and against its peers."""
