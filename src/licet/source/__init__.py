"""Reads tool declarations from Python source without importing it."""
