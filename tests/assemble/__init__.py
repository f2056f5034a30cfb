"""Tests of the path of a call and its handles."""
