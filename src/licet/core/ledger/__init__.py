"""Ledger entries as canonical JSON, the Merkle tree over them, and their verification."""
