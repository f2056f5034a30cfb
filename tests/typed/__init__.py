"""Code as users of licet write it, for type checkers."""
