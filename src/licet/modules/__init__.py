"""Finds Python modules as files and reads the imports in their text. Nothing is imported or run."""
