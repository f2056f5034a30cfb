"""The agent of `licet demo`, and the steps that it plays."""
