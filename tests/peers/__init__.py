"""Tests with programs and packages of other people."""
