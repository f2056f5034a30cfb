"""The ledger in SQLite: write, read, verify."""
