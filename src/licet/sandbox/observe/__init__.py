"""Runs a command without walls and notes what it and its children touch, for `licet observe`."""
