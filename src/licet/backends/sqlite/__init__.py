"""One SQLite file that several processes share: opening, locking, batches, checks of the schema."""
