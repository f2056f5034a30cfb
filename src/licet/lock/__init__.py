"""Locking servers: what `licet lock` makes of the tools that a server offers."""
