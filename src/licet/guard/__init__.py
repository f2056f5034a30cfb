"""Enforcement: the gate, the one path of a call, and the handles that check every use."""
