"""One SQLite file shared by processes: opening, locking, batches, schema checks."""
