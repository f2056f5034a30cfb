"""Reads policy and source text. Nothing that is read here is ever run."""
