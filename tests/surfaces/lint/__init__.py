"""Tests of `licet lint`."""
