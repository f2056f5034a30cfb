"""Removes the secrets of a call from its results, receipts, errors and answers."""
