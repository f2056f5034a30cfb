"""Tests of the surfaces: the command line and the picture."""
