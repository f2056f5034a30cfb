"""Learning policies: what `licet observe` records, and the least policy that allows it."""
