"""The decision about one call, its reasons, and the edits that would change it."""
